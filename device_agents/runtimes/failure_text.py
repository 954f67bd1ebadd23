"""From what a library says to the class of the failure, and from its chatter to the one line that matters."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator

MAX_REASON_CHARS = 800

_OUT_OF_MEMORY = re.compile(
    r"out of (device |host )?memory|bad_alloc|failed to allocate|cannot allocate memory|could not allocate"
    r"|allocation failed|insufficient memory",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"unresolved custom op|didn't find op for builtin|not supported by|unsupported op|ops are not accelerated"
    r"|op builtin_code out of range|select tensorflow op|no nodes? .*delegat|not support(ed)? (op|node|tensor)",
    re.IGNORECASE,
)
_PREPARE = re.compile(r"failed to prepare|delegate application failure", re.IGNORECASE)
_REASON_LINE = re.compile(
    r"^(?:ERROR|Error|W(?:ARNING|arning)|[EF]\d{4} |Exception|terminate)|not supported|cannot|[Ff]ailed"
)
_NOISE_LINE = re.compile(
    r"NPU accelerator could not be loaded|Logging before InitGoogle|XDG_RUNTIME_DIR|Source Location Trace"
    r"|unknown SDK version|Failed to load OpenCL library|RegisterAccelerator|Attempting to load"
)


class Captured:
    """What a block wrote to standard error."""

    def __init__(self) -> None:
        self.text = ""


@contextlib.contextmanager
def captured_stderr() -> Iterator[Captured]:
    """Collect what native code writes to descriptor 2 in this block, and still leave it in the log.

    When descriptor 2 is a regular file (the worker's log) its tail is read; otherwise the output goes to a temporary
    file and is written on afterwards.
    """
    captured = Captured()
    if not hasattr(os, "dup2"):
        yield captured
        return
    sys.stderr.flush()
    status = os.fstat(2)
    if stat.S_ISREG(status.st_mode):
        path = f"/proc/self/fd/{2}"
        try:
            yield captured
        finally:
            with contextlib.suppress(OSError), open(path, "rb") as log:
                log.seek(status.st_size)
                captured.text = log.read().decode("utf-8", "replace")
        return
    with tempfile.TemporaryFile() as collected:
        saved = os.dup(2)
        os.dup2(collected.fileno(), 2)
        try:
            yield captured
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            collected.seek(0)
            data = collected.read()
            captured.text = data.decode("utf-8", "replace")
            with contextlib.suppress(OSError):
                os.write(2, data)


_POSITION = re.compile(r"(?:ERROR|INFO|WARNING): \[[^\]\s]*:\d+\]\s*(?:└\s*)?|└\s*")
"""Source positions that LiteRT puts before what it says."""
_GLUED_SENTENCES = re.compile(r"(?<=[\w.)])(?=Node number \d|Restored original|Encountered unresolved)")
"""Where the interpreter glues one message to the next."""


def classify(text: str, otherwise: str) -> str:
    """The failure class that the words of a library point to.

    Args:
        text: Message of the exception and what stood on standard error.
        otherwise: The class when the words tell nothing more.
    """
    if _OUT_OF_MEMORY.search(text):
        return "out_of_memory"
    if _UNSUPPORTED.search(text):
        return "unsupported"
    if _PREPARE.search(text):
        return "prepare_failed"
    return otherwise


def reason(error: BaseException, chatter: str = "") -> str:
    """The message of ``error`` on one line, with the telling lines of ``chatter`` (standard error) behind it."""
    said = _GLUED_SENTENCES.sub(" ", _POSITION.sub("", re.sub(r"\s+", " ", str(error)))).strip()
    half = len(said) // 2
    if said[:half].strip() == said[half:].strip():  # the interpreter says some things twice
        said = said[:half].strip()
    parts = [said] if said else []
    telling: list[str] = []
    for line in chatter.splitlines():
        line = line.strip()
        if _REASON_LINE.search(line) and not _NOISE_LINE.search(line):
            line = _POSITION.sub("", line)
            if line not in telling:
                telling.append(line)
    if telling:
        parts.append("; ".join(telling))
    text = " | ".join(parts) or type(error).__name__
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"

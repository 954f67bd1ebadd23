"""What a person sees while a command works, and how results are printed.

Results go to stdout, progress and notes to stderr, so that ``--json`` can be piped. When stderr is not a terminal,
progress is quiet.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from edgeplace.errors import OutputError
from edgeplace.printable import printable


def ready_standard_streams() -> None:
    """Make standard streams of whatever the shell left us.

    A descriptor that was closed would be given to the next file that is opened, and what is printed would go into that
    file. Characters that the terminal's encoding does not have are printed as escapes.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def printing() -> Iterator[None]:
    """What is printed in the block reaches stdout, or the user is told why not.

    Raises:
        OutputError: It cannot be written (a full disk).
        BrokenPipeError: The reader has gone.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        raise
    except OSError as error:
        silence_stdout()
        raise OutputError(f"cannot be written: {error.strerror or error}", where="standard output") from error


def silence_stdout() -> None:
    """Nobody takes what is left in the buffer: keep the interpreter's own flush at the end quiet."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    with printing():
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def print_renderables(*parts: RenderableType) -> None:
    """Tables and lines on stdout; wide enough to be piped into a file without wrapping."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    with printing():
        for part in parts:
            console.print(part, markup=False)


class _WhatColumn(ProgressColumn):
    """What is being done now. In a narrow terminal it alone gives way, and stays on one line."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["what"]), no_wrap=True, overflow="ellipsis")


def progress_columns() -> tuple[ProgressColumn, ...]:
    """Stage, how far, for how long, how long still, and what is being done now."""
    return (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        _WhatColumn(table_column=Column()),
    )


class ConsoleObserver:
    """Shows what a run is doing: the stage, what is measured now, the best so far, the time left."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._quiet = quiet or not self._console.is_terminal
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def stage(self, title: str, total: int | None = None) -> None:
        """A new stage begins, with ``total`` steps when that is known."""
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(title, total=total, what="")

    def advance(self, what: str, steps: int = 1) -> None:
        """``what`` is being done now; ``steps`` are finished since the last call."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, what=what)

    def note(self, text: str) -> None:
        """Something the user should know, whatever the output is."""
        console = self._progress.console if self._progress is not None else self._console
        console.print(f"note: {printable(text)}", style="yellow", markup=False)

    @contextmanager
    def running(self) -> Iterator[ConsoleObserver]:
        """Show progress while the block runs (nothing when quiet)."""
        if self._quiet:
            yield self
            return
        with Progress(*progress_columns(), console=self._console, transient=True) as progress:
            self._progress = progress
            try:
                yield self
            finally:
                self._progress = None

"""The protocol between the host and the agent: framed messages over one byte stream each way.

A frame is ``u32 header size | u64 payload size | header | payload``, integers little endian. The header is a JSON
object; the payload is raw bytes. The stream begins with :data:`MARKER`, so that whatever a login shell prints first
is skipped. This module is standard library only; the host imports it, never the reverse.

Requests carry ``{"verb": ..., "id": n}``; everything the agent sends back for it carries the same ``id`` and one of

* ``{"event": "heartbeat" | "progress", ...}``: still working; any number of these come first,
* ``{"ok": true, ...}``: the answer,
* ``{"ok": false, "failure": {"kind", "message", "stage", "segment", "platform", "code"}}``: foreign code failed;
  that is a result (the kinds are DESIGN section 6), and the agent is ready for the next request,
* ``{"ok": false, "error": {"kind", "message"}}``: the request itself was wrong, or the agent is. With ``id`` null it
  is about the whole stream (no frame could be read, the root folder is unusable), and the agent ends. Kind
  ``missing_blob`` carries ``missing``, the hashes to send again.

A request that works in the worker may carry ``deadline_s`` (for all of it) and ``stage_deadline_s`` (since the last
progress event); the one that runs out first ends the worker with failure ``timeout``. An *array blob* is
``{"blob": sha256, "dtype": name, "shape": [...]}``: raw bytes in C order that were ``put`` before.

Verbs (a closed set; no shell, no pickle, no eval). Sizes are bytes, times say their unit:

==========  ==================================================================================================
hello       -> version, agent_sha256, python, machine, system, boot_id, cpu_count, pid, runtimes {name: version},
            runtimes_reason (why there are none), blobs_dir, fingerprint {machine, kernel, cpu_model, cpu_count,
            os_release, libc}
have        hashes -> missing
put         sha256 + payload ->
segment     sha256, size_bytes, constants [[sha256, offset, size_bytes]] + skeleton payload -> ; the finished file
            is spliced from blobs the agent has, and its hash is checked (error kind ``hash_mismatch``,
            ``missing_blob``)
probe       platform, model (a small file's hash), inputs -> available, reason, details
try         platform, model, inputs [blob | null], timing?, deadlines -> outputs payload, prepare_ms, first_run_ms,
            accelerated (bool | null), ran_on, times_ms ...: compiles one file alone and does one checked run
run         plan, inputs [[array blob per graph input] per sample], intermediates (bool) -> arrays payload
measure     plan, inputs [...], timing -> times_ms, segment_ms, handover_ms, prepare_ms, first_run_ms, noisy
interleave  plans, inputs, rounds, runs_per_round, budget_s -> times_ms [plan][round][run]
shapes      model, input_shapes {tensor: shape}, kernels -> shapes {tensor: shape}
health      -> governor, frequency_khz, temperature_c, throttled, load, memory_available_bytes
drop        what ("sessions" | "blobs") ->
bye         ->
==========  ==================================================================================================

A *platform* on the wire is a JSON object: ``name``, ``kind`` (cpu, gpu, npu, edgetpu), ``loader`` (interpreter,
compiled_model, tflite_c), ``runtime`` (litert, tflite or empty for whichever is there), ``options`` (of the loader),
``library`` and ``library_options`` (an external delegate), ``env`` (variables the worker is started with), ``preload``
(libraries to load first).

A *plan* on the wire: ``{"segments": [{"platform": name, "model": sha256, "inputs": [source], "outputs": n}],
"outputs": [source], "platforms": {name: platform}}`` where a source is ``["input", i]``, ``["segment", id, k]`` or
``["constant", blob sha256, dtype, shape]``.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Optional, Union

PROTOCOL_VERSION = 1
MARKER = b"\nedgeplace-agent-stream-1\n"
VERBS = (
    "hello", "have", "put", "segment", "probe", "try", "run", "measure", "interleave", "shapes", "health", "drop",
    "bye",
)  # fmt: skip
MAX_HEADER_BYTES = 64 * 1024 * 1024
MAX_PAYLOAD_BYTES = 2 * 1024 * 1024 * 1024
MAX_MARKER_SKIP_BYTES = 1024 * 1024
_PREFIX = struct.Struct("<IQ")
PREFIX_BYTES = _PREFIX.size

Buffer = Union[bytes, bytearray, memoryview]


class ProtocolError(Exception):
    """The other side sent something that is not this protocol."""


class StreamClosed(ProtocolError):
    """The other side closed the stream (or its process ended)."""


class RequestError(Exception):
    """One request is wrong; the stream is fine and the next request may follow.

    Attributes:
        kind: ``bad_request``, ``unknown_verb``, ``missing_blob``, ``hash_mismatch``, ``too_large``, ``busy``,
            ``no_space``, ``io_error``, ``runtime_missing`` or ``worker_error``.
        facts: More fields for the error frame (``missing``: hashes the agent does not have).
    """

    def __init__(self, message: str, kind: str = "bad_request", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.facts = facts


def encode_prefix(header: dict[str, Any], payload_size: int) -> bytes:
    """Prefix and header of a frame; the payload's bytes follow as they are."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=True).encode()
    if len(text) > MAX_HEADER_BYTES or payload_size > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"frame too large: header {len(text)} bytes, payload {payload_size} bytes")
    return _PREFIX.pack(len(text), payload_size) + text


def write_frame(stream: BinaryIO, header: dict[str, Any], payload: Any = b"") -> None:
    """Send one frame. ``payload`` is bytes-like, or a list of bytes-like pieces that follow each other."""
    pieces = payload if isinstance(payload, (list, tuple)) else [payload]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    stream.write(encode_prefix(header, size))
    for piece in pieces:
        stream.write(piece)
    stream.flush()


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """``size`` bytes, or :class:`StreamClosed`."""
    data = bytearray(size)
    view = memoryview(data)
    taken = 0
    while taken < size:
        chunk = stream.read(min(size - taken, 1 << 20))
        if not chunk:
            raise StreamClosed(f"the stream ended after {taken} of {size} bytes")
        view[taken : taken + len(chunk)] = chunk
        taken += len(chunk)
    return bytes(data)


def decode_prefix(prefix: Buffer) -> tuple[int, int]:
    """Header size and payload size of a frame that begins with ``prefix`` (:data:`PREFIX_BYTES` long).

    Raises:
        ProtocolError: The frame would be larger than the caps.
    """
    header_size, payload_size = _PREFIX.unpack(prefix)
    if header_size > MAX_HEADER_BYTES or payload_size > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"frame too large: header {header_size} bytes, payload {payload_size} bytes")
    return header_size, payload_size


def decode_header(text: Buffer) -> dict[str, Any]:
    """A frame's header from its bytes.

    Raises:
        ProtocolError: They are not a JSON object.
    """
    try:
        header = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the frame's header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ProtocolError("the frame's header is not a JSON object")
    return header


def read_header(stream: BinaryIO) -> tuple[dict[str, Any], int]:
    """The next frame's header and the size of the payload that follows it in the stream, still unread.

    Raises:
        StreamClosed: The stream ended.
        ProtocolError: What came is no frame, or is larger than the caps.
    """
    header_size, payload_size = decode_prefix(read_exactly(stream, PREFIX_BYTES))
    return decode_header(read_exactly(stream, header_size)), payload_size


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """The next frame's header and payload.

    Raises:
        StreamClosed: The stream ended.
        ProtocolError: What came is no frame, or is larger than the caps.
    """
    header, payload_size = read_header(stream)
    return header, read_exactly(stream, payload_size) if payload_size else b""


def skip_to_marker(stream: BinaryIO, limit: int = MAX_MARKER_SKIP_BYTES) -> bytes:
    """Read up to and including :data:`MARKER`; gives what came before it (an rc file's chatter)."""
    seen = bytearray()
    while not seen.endswith(MARKER):
        byte = stream.read(1)
        if not byte:
            raise StreamClosed(
                "the stream ended before the agent's marker: " + seen[-400:].decode(errors="replace")
            )
        seen += byte
        if len(seen) > limit:
            raise ProtocolError(f"no agent marker in the first {limit} bytes")
    return bytes(seen[: -len(MARKER)])


def failure_header(
    kind: str,
    message: str,
    stage: str = "",
    segment: Optional[int] = None,
    platform: Optional[str] = None,
    code: Optional[int] = None,
) -> dict[str, Any]:
    """The answer that says foreign code failed."""
    return {
        "ok": False,
        "failure": {
            "kind": kind, "message": message, "stage": stage, "segment": segment, "platform": platform, "code": code,
        },
    }  # fmt: skip


def error_header(kind: str, message: str, **facts: Any) -> dict[str, Any]:
    """The answer that says the request was wrong or the agent is."""
    return {"ok": False, "error": {"kind": kind, "message": message, **facts}}

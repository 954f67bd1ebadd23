"""Frames out of bytes that come in any pieces, for a reader that must never block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from device_agents import protocol

Frame = tuple[dict[str, Any], protocol.Buffer]


class FrameAssembler:
    """Collects bytes until they are frames (:mod:`device_agents.protocol`). A payload is in memory once."""

    def __init__(self) -> None:
        self._start = bytearray()  # prefix and header, until they are complete
        self._header: Optional[dict[str, Any]] = None
        self._payload = bytearray()
        self._payload_bytes = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take more bytes and give the frames that are complete now; those before damage come out before the error.

        Raises:
            ProtocolError: The bytes are no frames.
        """
        view = memoryview(data)
        while True:
            if self._header is None:
                view = view[self._take_start(view) :]
                if self._header is None:
                    return
            part = view[: self._payload_bytes - len(self._payload)]
            self._payload += part
            view = view[len(part) :]
            if len(self._payload) < self._payload_bytes:
                return
            frame = self._header, self._payload
            self._header, self._payload = None, bytearray()
            yield frame

    def _take_start(self, view: memoryview) -> int:
        """Complete prefix and header as far as ``view`` goes; gives how much of it that took."""
        taken = self._fill_start(view, protocol.PREFIX_BYTES)
        if len(self._start) < protocol.PREFIX_BYTES:
            return taken
        header_bytes, self._payload_bytes = protocol.decode_prefix(self._start[: protocol.PREFIX_BYTES])
        end = protocol.PREFIX_BYTES + header_bytes
        taken += self._fill_start(view[taken:], end)
        if len(self._start) == end:
            self._header = protocol.decode_header(self._start[protocol.PREFIX_BYTES :])
            self._start.clear()
        return taken

    def _fill_start(self, view: memoryview, size: int) -> int:
        part = view[: max(0, size - len(self._start))]
        self._start += part
        return len(part)

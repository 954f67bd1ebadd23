"""Frames out of bytes that come in any pieces, for a reader that must never block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from device_agents import protocol


class FrameAssembler:
    """Collects bytes until they are frames (:mod:`device_agents.protocol`)."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._sizes: Optional[tuple[int, int]] = None  # of the header and payload being waited for

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Take more bytes and give the frames that are complete now; those before damage come out before the error.

        Raises:
            ProtocolError: The bytes are no frames.
        """
        self._data += data
        while True:
            if self._sizes is None:
                if len(self._data) < protocol.PREFIX_BYTES:
                    return
                self._sizes = protocol.decode_prefix(self._data[: protocol.PREFIX_BYTES])
            header_end = protocol.PREFIX_BYTES + self._sizes[0]
            payload_end = header_end + self._sizes[1]
            if len(self._data) < payload_end:
                return
            with memoryview(self._data) as view:
                header = protocol.decode_header(view[protocol.PREFIX_BYTES : header_end])
                payload = bytes(view[header_end:payload_end])
            del self._data[:payload_end]
            self._sizes = None
            yield header, payload

"""What the board has of our files and arrays, what it lacks, and how it gets it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from device_agents import protocol
from edgeplace.agent_client.conversation import AgentRefused, Answer, agreed
from edgeplace.deadline import Deadline
from edgeplace.tflite.segment_file import SegmentFile

LOG = logging.getLogger(__name__)

HAVE_TIMEOUT_S = 60.0
RESEND_ATTEMPTS = 3
"""The agent's store is capped; what one request needs may have gone to make room for another's."""
REMEMBERED_SKELETON_BYTES = 256 * 1024 * 1024
"""Recipes are kept to be sent again; a long search makes many, and the old ones are not asked for any more."""

Ask = Callable[[dict[str, Any], Sequence[protocol.Buffer], "Deadline | None"], Answer]


class BoardBlobs:
    """Sends what is missing, once, and again when the board had to forget it.

    Args:
        ask: Sends a request and gives its answer.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._there: set[str] = set()  # hashes the agent is known to have
        self._blobs: dict[str, protocol.Buffer] = {}
        self._segments: dict[str, SegmentFile] = {}  # least recently used first
        self._skeleton_bytes = 0

    def forget(self) -> None:
        """Nothing is known any more about what the board has: ask before the next use."""
        self._there.clear()

    def data(self, sha256: str) -> protocol.Buffer:
        """The bytes of a blob that was given here."""
        return self._blobs[sha256]

    def ensure(self, blobs: Mapping[str, protocol.Buffer]) -> None:
        """Send those the board does not have. They are kept, not copied, to be sent again."""
        self._blobs.update(blobs)
        for sha256 in self._missing(blobs):
            self._ask({"verb": "put", "sha256": sha256}, [self._blobs[sha256]], None)
            self._there.add(sha256)

    def ensure_segments(self, files: Iterable[SegmentFile]) -> None:
        """Have the board put the files together: constants it lacks are sent, then the recipes."""
        wanted = {file.sha256: file for file in files}
        for file in wanted.values():
            self._remember(file)
        absent = self._missing(wanted)
        constants: dict[str, protocol.Buffer] = {}
        for sha256 in absent:
            constants.update(wanted[sha256].data)
        self.ensure(constants)
        for sha256 in absent:
            file = wanted[sha256]
            recipe = [[c.sha256, c.offset, c.size_bytes] for c in file.constants]
            header = {
                "verb": "segment",
                "sha256": sha256,
                "size_bytes": file.size_bytes,
                "constants": recipe,
            }
            self.ask_resending(header, [file.skeleton])
            self._there.add(sha256)

    def ask_resending(
        self,
        header: dict[str, Any],
        payload: Sequence[protocol.Buffer] = (),
        deadline: Deadline | None = None,
    ) -> Answer:
        """Send a request that names blobs; those the board had to forget meanwhile are sent again.

        Raises:
            AgentRefused: Kind ``missing_blob``: the request names a blob that was never given here, or the board
                cannot hold all the request needs.
        """
        for _ in range(RESEND_ATTEMPTS - 1):
            try:
                return self._ask(header, payload, deadline)
            except AgentRefused as error:
                if error.kind != "missing_blob":
                    raise
                self._resend(error)
        return self._ask(header, payload, deadline)

    def _resend(self, refusal: AgentRefused) -> None:
        missing = [str(sha256) for sha256 in refusal.facts.get("missing", ())]
        if not missing or not all(sha256 in self._segments or sha256 in self._blobs for sha256 in missing):
            raise refusal
        LOG.info("the board had to forget %d blobs; they are sent again", len(missing))
        self.forget()  # others of the same age may have gone too
        self.ensure_segments([self._segments[sha256] for sha256 in missing if sha256 in self._segments])
        self.ensure({sha256: self._blobs[sha256] for sha256 in missing if sha256 in self._blobs})

    def _missing(self, hashes: Iterable[str]) -> list[str]:
        """Those of ``hashes`` that the agent does not have, each once; the others are noted as there."""
        asked = [sha256 for sha256 in dict.fromkeys(hashes) if sha256 not in self._there]
        if not asked:
            return []
        answer = self._ask({"verb": "have", "hashes": asked}, (), Deadline(HAVE_TIMEOUT_S))
        with agreed("have"):
            missing = {str(sha256) for sha256 in answer.header["missing"]}
        self._there.update(sha256 for sha256 in asked if sha256 not in missing)
        return [sha256 for sha256 in asked if sha256 in missing]

    def _remember(self, file: SegmentFile) -> None:
        if self._segments.pop(file.sha256, None) is None:
            self._skeleton_bytes += len(file.skeleton)
        self._segments[file.sha256] = file
        while self._skeleton_bytes > REMEMBERED_SKELETON_BYTES and len(self._segments) > 1:
            oldest = next(iter(self._segments))
            self._skeleton_bytes -= len(self._segments.pop(oldest).skeleton)

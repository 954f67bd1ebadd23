"""What a run is asked to do, and how it tells what it is doing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgeplace.errors import EXIT_INTERRUPTED, EdgePlaceError

DEFAULT_SURROGATE_BUDGET = 64
"""Placements the surrogate measures at most when no budget is given; exhaustive search has no limit of its own."""


class Observer(Protocol):
    """Told what a run is doing; the command line shows it, a script may ignore it."""

    def stage(self, title: str, total: int | None = None) -> None:
        """A new stage begins, with ``total`` steps when that is known."""

    def advance(self, what: str, steps: int = 1) -> None:
        """``what`` is being done now; ``steps`` are finished since the last call."""

    def note(self, text: str) -> None:
        """Something the user should know."""


class SilentObserver:
    """Says nothing."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Ignored."""

    def advance(self, what: str, steps: int = 1) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""


@dataclass(frozen=True)
class Target:
    """Which board, and what of it.

    Attributes:
        board: A profile's name, or ``ssh://[user@]host[:port]``.
        platforms: ``NAME`` keeps only the platforms named; ``NAME=delegate:/lib.so,key=value`` adds one.
        overrides: ``platforms.cpu.options.threads=2`` and the like.
    """

    board: str = "local"
    boards_dirs: tuple[Path, ...] = ()
    platforms: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptimizeRequest:
    """What ``edgeplace optimize`` is asked to do; the fields are its options.

    Attributes:
        out: The map to write; ``MODEL.BOARD.yaml`` in the current folder when none is named.
        shapes: ``INPUT=1x224x224x3``, for inputs that are to have another shape than in the file.
        inputs: Samples to check outputs with (npz, npy, an image, a folder); seeded ones when none are named.
        granularity: How finely the model may be cut: ``op``, ``unit`` or ``block``.
        pins: ``NODES=PLATFORM``: these must go there. ``bans``: these must not.
        threshold: With fewer feasible placements than this, every one is measured.
        optimizer: Search with this one, whatever the threshold says.
        budget: Most placements to measure; ``None`` for all of them, or the surrogate's
            :data:`DEFAULT_SURROGATE_BUDGET`.
        minutes: Stop searching after this long; the final comes on top.
        metric: ``module:function``, a task metric that decides instead of SNR and cosine.
        sample_budget_s: Longest timing of one placement.
        run_deadline_s: A run that takes longer hangs.
        rounds: Rounds of the final; ``None`` for as many as plans this fast need.
        resume: Go on with the records of the same search.
        store: File or URL of the records; ``None`` for the user's own.
    """

    model: Path
    target: Target = Target()
    out: Path | None = None
    signature: str = ""
    shapes: tuple[str, ...] = ()
    inputs: Path | None = None
    granularity: str = "unit"
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()
    threshold: int = 256
    optimizer: str | None = None
    budget: int | None = None
    minutes: float | None = None
    seed: int = 0
    min_cosine: float = 0.99
    min_snr_db: float = 30.0
    metric: str | None = None
    metric_min: float | None = None
    sample_budget_s: float = 1.0
    run_deadline_s: float = 30.0
    rounds: int | None = None
    resume: bool = False
    store: str | None = None


@dataclass(frozen=True)
class VerifyRequest:
    """What ``edgeplace verify`` is asked to do; the fields are its options.

    Attributes:
        model: The model file, when it is neither beside the map nor in the current folder.
        board: Another board than the one in the map.
        tolerance: How much slower than the map says still holds, as a share.
        rounds: Interleaved rounds; ``None`` for as many as plans this fast need.
    """

    map: Path
    model: Path | None = None
    board: str | None = None
    boards_dirs: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    inputs: Path | None = None
    metric: str | None = None
    run_deadline_s: float = 30.0
    tolerance: float = 0.25
    rounds: int | None = None


class SearchInterrupted(EdgePlaceError):
    """Ctrl-C during a search. Everything measured is kept; ``hint`` says how to go on."""

    exit_code = EXIT_INTERRUPTED

"""What one run on a board says: times, or why there are none. A failure is data; a broken link is an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FAILURE_KINDS = (
    "unsupported",
    "compile_failed",
    "prepare_failed",
    "invoke_failed",
    "timeout",
    "crashed",
    "exited",
    "out_of_memory",
    "wrong_output",
    "agent_lost",
    "link_lost",
    "board_rebooted",
    "device_gone",
)
"""The closed list of failure classes (DESIGN section 6)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a placement, segment or platform gave no usable time.

    Attributes:
        kind: One of :data:`FAILURE_KINDS`.
        message: The reason in the words of whoever refused.
        stage: ``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check`` or empty.
        segment: Id of the segment it happened in, when known.
        platform: Name of the platform it happened on, when known.
        code: Signal number of ``crashed``, exit code of ``exited``.
    """

    kind: str
    message: str
    stage: str = ""
    segment: int | None = None
    platform: str | None = None
    code: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise ValueError(f"'{self.kind}' is no failure class")

    def __str__(self) -> str:
        kind = f"{self.kind}({self.code})" if self.code is not None else self.kind
        where = "" if self.platform is None else f" on {self.platform}"
        where += "" if self.segment is None else f" in segment {self.segment}"
        return f"{kind}{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far outputs are from the reference; over several samples and outputs the worst counts.

    ``None`` means the measure does not apply (no quantization steps for float outputs, and so on).
    ``snr_db`` is infinite for equal outputs.
    """

    max_abs: float
    cosine: float
    snr_db: float
    psnr_db: float
    steps: float | None = None
    equal_share: float | None = None
    has_nan: bool = False
    degenerate: bool = False
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Raw times of one plan in steady state, and what is kept apart from them. Milliseconds throughout.

    Attributes:
        times_ms: Total time of each run, in order.
        segment_ms: Median time of each segment.
        handover_ms: Median time of getting each segment its inputs.
        prepare_ms: Load and compile time of each segment (0 when it was still compiled).
        first_run_ms: Total of the first run.
        noisy: The interval did not get narrow enough within the budget.
    """

    times_ms: tuple[float, ...]
    p50_ms: float
    ci95_ms: tuple[float, float]
    min_ms: float
    p90_ms: float
    p99_ms: float
    segment_ms: tuple[float, ...] = ()
    handover_ms: tuple[float, ...] = ()
    prepare_ms: tuple[float, ...] = ()
    first_run_ms: float = 0.0
    noisy: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """One placement run on one board: ``timing`` or ``failure``, never both and never neither.

    ``agreement`` stands beside either: a plan that ran but gave wrong outputs has failure ``wrong_output`` and
    says by how much.
    """

    placement_id: str
    plan_id: str
    timing: Timing | None = None
    failure: Failure | None = None
    agreement: Agreement | None = None
    health: Mapping[str, object] = field(default_factory=dict)
    simulated: bool = False

    def __post_init__(self) -> None:
        if (self.timing is None) == (self.failure is None):
            raise ValueError("a measurement has a timing or a failure, never both and never neither")

    @property
    def p50_ms(self) -> float | None:
        """Median total time, ``None`` for a failed run."""
        return None if self.timing is None else self.timing.p50_ms

"""What a delegate map says (``format: edgeplace/delegate-map@1``).

The map is the answer of a search and a file that people read and edit: which nodes run on which platform, how fast and
how right that was when it was measured, what it was compared with, and what was left out and why.
``docs/delegate-map.md`` is the reference.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from edgeplace.boards import NAME_PATTERN, PlatformSpec
from edgeplace.measure.measurement import Agreement
from edgeplace.schema import (
    MAX_NODE_ID,
    Field,
    FrozenModel,
    NodeRanges,
    Scalar,
    ShortFloat,
    TimeMs,
    field_validator,
)

MAP_FORMAT: Literal["edgeplace/delegate-map@1"] = "edgeplace/delegate-map@1"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
FILE_NAME_PATTERN = r"^[^/\\\x00-\x1f]+$"


class ModelInfo(FrozenModel):
    """The model the map is for.

    Attributes:
        file: Its file name, without a folder.
        sha256: Hash of the file.
        nodes: Number of nodes of the graph that was placed.
        signature: Which signature that is; empty for subgraph 0.
        shapes: Input name -> shape, where it is not the one in the file.
        granularity: How finely it could be cut in the search.
        carried: Constant producers (DEQUANTIZE of fp16 weights, DENSIFY ...): every segment that reads what they make
            carries its own copy, so they are placed nowhere. They may stand inside the ranges of segments.
    """

    file: str = Field(pattern=FILE_NAME_PATTERN)
    sha256: str = Field(pattern=SHA256_PATTERN)
    nodes: int = Field(ge=0, le=MAX_NODE_ID)
    signature: str = ""
    shapes: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    granularity: Literal["op", "unit", "block"] = "unit"
    carried: NodeRanges = ()


class BoardInfo(FrozenModel):
    """The board it was measured on.

    Attributes:
        name: What ``--board`` was given: a profile's name or ``ssh://user@host``.
        simulated: True when no real board was measured.
        fingerprint: What tells this board from another: machine, kernel, runtimes, agent.
    """

    name: str = Field(min_length=1)
    simulated: bool
    fingerprint: dict[str, Scalar] = Field(default_factory=dict)


class Objective(FrozenModel):
    """What was minimised."""

    metric: Literal["latency"] = "latency"
    statistic: Literal["p50"] = "p50"


class AgreementInfo(FrozenModel):
    """How far outputs are from the reference; the worst over samples and outputs. What does not apply is absent."""

    snr_db: ShortFloat | None = None
    cosine: ShortFloat | None = None
    max_abs: ShortFloat | None = None
    psnr_db: ShortFloat | None = None
    steps: ShortFloat | None = None
    equal_share: ShortFloat | None = None
    metric: ShortFloat | None = None
    has_nan: bool = False
    degenerate: bool = False

    @classmethod
    def of(cls, agreement: Agreement) -> AgreementInfo:
        """What a measurement says, in finite numbers: of equal outputs ``max_abs`` 0 remains, and no SNR."""
        measures = ("snr_db", "cosine", "max_abs", "psnr_db", "steps", "equal_share", "metric")
        known = {name: getattr(agreement, name) for name in measures}
        return cls(
            **{name: float(v) for name, v in known.items() if v is not None and math.isfinite(v)},
            has_nan=agreement.has_nan,
            degenerate=agreement.degenerate,
        )


class MapSegment(FrozenModel):
    """Nodes that run together on one platform.

    Attributes:
        id: Position in execution order, from 0.
        platform: The platform asked for.
        nodes: Its nodes; carried ones among them do not count.
        sha256: Hash of the segment's file; empty after an edit by hand.
        inputs: Names of the tensors it takes, in order.
        outputs: Names of the tensors it gives, in order.
        p50_ms: Median time within the whole plan.
        ran_on: What really ran it, as the runtime says.
    """

    id: int = Field(ge=0)
    platform: str
    nodes: NodeRanges
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    p50_ms: TimeMs | None = None
    ran_on: str = ""


class Result(FrozenModel):
    """What the placement of this map measured.

    Attributes:
        p50_ms: Median total time.
        ci95_ms: Bootstrap interval of the median.
        speedup_over_best_single: Best single platform's time over this one's, from the interleaved final; 1 when this
            is the best single platform.
        decision: Why this placement is the answer, in words.
        numeric: Agreement with the reference.
        floor: How far correct kernels are from each other on this model.
        limit: The bound that held: the looser of the user's and 1.5 times the floor.
        reference: Which kernels the reference outputs are from.
        inputs: Which inputs the outputs were compared on.
        noisy: The interval did not get narrow enough.
    """

    p50_ms: TimeMs
    ci95_ms: tuple[TimeMs, TimeMs]
    speedup_over_best_single: ShortFloat | None = None
    decision: str = ""
    numeric: AgreementInfo = AgreementInfo()
    floor: AgreementInfo = AgreementInfo()
    limit: AgreementInfo = AgreementInfo()
    reference: str = ""
    inputs: str = ""
    noisy: bool = False


class SearchInfo(FrozenModel):
    """How the placement was found.

    Attributes:
        method: Name of the optimizer.
        threshold: With fewer placements than this all are measured.
        placements: Exact number of feasible placements.
        measured: Placements measured.
        failed: Of those, how many gave no usable time.
        budget: Most placements to measure, when there was a limit.
        finished_by: What ended it: ``space`` (all measured), ``budget``, ``minutes``, ``converged``, ``infeasible``.
        pins: ``--pin`` rules that were in force.
        bans: ``--ban`` rules that were in force.
    """

    method: str
    threshold: int
    placements: int
    measured: int
    failed: int = 0
    seed: int = 0
    budget: int | None = None
    finished_by: str = ""
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()


class Rejection(FrozenModel):
    """Nodes that cannot go to a platform: what was tried, and what came of it.

    Attributes:
        nodes: The nodes tried.
        platform: Where.
        failure: The failure class (DESIGN section 6); ``wrong_output`` for a disagreement.
        message: The reason in the words of whoever refused.
        numeric: By how much the outputs disagreed.
    """

    nodes: NodeRanges
    platform: str
    failure: str
    message: str = ""
    numeric: AgreementInfo | None = None


class DelegateMap(FrozenModel):
    """A delegate map.

    Attributes:
        platforms: Platform name -> what it is, exactly as it was measured.
        segments: The segments in execution order.
        result: What was measured, absent in a map written by hand.
        baselines: What it was compared with: name -> median in ms, or why there is none.
        rejected: Nodes that some platform cannot take.
        platforms_left_out: Platform name -> why none of it was used.
    """

    format: Literal["edgeplace/delegate-map@1"]
    model: ModelInfo
    board: BoardInfo
    objective: Objective = Objective()
    platforms: dict[str, PlatformSpec]
    segments: tuple[MapSegment, ...]
    result: Result | None = None
    baselines: dict[str, TimeMs | str] = Field(default_factory=dict)
    search: SearchInfo | None = None
    rejected: tuple[Rejection, ...] = ()
    platforms_left_out: dict[str, str] = Field(default_factory=dict)

    @field_validator("platforms")
    @classmethod
    def _platforms_are_named(cls, value: dict[str, PlatformSpec]) -> dict[str, PlatformSpec]:
        """Names go into file names and programs."""
        for name in value:
            if not re.match(NAME_PATTERN, name):
                raise ValueError(f"'{name}' is not a name (letters, digits, '-' and '_')")
        return value

    @property
    def platform_of_nodes(self) -> dict[int, str]:
        """Node -> platform, without the carried nodes."""
        carried = frozenset(self.model.carried)
        return {node: s.platform for s in self.segments for node in s.nodes if node not in carried}

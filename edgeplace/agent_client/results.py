"""What the agent answers, as values. The wire format is ``device_agents/protocol.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from device_agents.arrays import unpack_arrays

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """Who answers, and what its board is. ``None`` stands for what the board does not say.

    Attributes:
        boot_id: Changes with every boot of the board.
        cpu_count: CPUs the agent may use.
        pid: The agent's process.
        runtimes: TFLite runtimes that can be used, with their versions.
        runtimes_reason: Why there are none.
        blobs_dir: Where the agent keeps blobs.
        fingerprint: What makes times comparable: machine, kernel, processor, system, runtimes.
    """

    version: int
    agent_sha256: str
    python: str
    machine: str
    system: str
    boot_id: str | None
    cpu_count: int | None
    pid: int
    runtimes: Mapping[str, str]
    runtimes_reason: str | None
    blobs_dir: str
    fingerprint: Mapping[str, Any]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> AgentInfo:
        """From the answer to ``hello``."""
        return cls(
            version=int(header["version"]),
            agent_sha256=str(header["agent_sha256"]),
            python=str(header["python"]),
            machine=str(header["machine"]),
            system=str(header["system"]),
            boot_id=_text(header["boot_id"]),
            cpu_count=None if header["cpu_count"] is None else int(header["cpu_count"]),
            pid=int(header["pid"]),
            runtimes={str(name): str(version) for name, version in header["runtimes"].items()},
            runtimes_reason=_text(header.get("runtimes_reason")),
            blobs_dir=str(header["blobs_dir"]),
            fingerprint=dict(header.get("fingerprint") or {}),
        )


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether a platform is there at all. ``reason`` says why not."""

    available: bool
    reason: str
    details: Mapping[str, Any]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> ProbeResult:
        """From the answer to ``probe``."""
        return cls(
            bool(header["available"]), str(header.get("reason") or ""), dict(header.get("details") or {})
        )


@dataclass(frozen=True, slots=True)
class TryResult:
    """One file compiled alone on one platform, run once and, when asked for, timed. Milliseconds.

    Attributes:
        outputs: One array per output of the file.
        prepare_ms: Load and compile time, 0 when it was still compiled.
        accelerated: The platform's own hardware ran all of it; ``None`` when the runtime does not say.
        ran_on: What really ran it, in the runtime's words.
        has_nan: An output holds a NaN.
        times_ms: Each timed run; empty without timing.
    """

    outputs: tuple[Array, ...]
    prepare_ms: float
    first_run_ms: float
    accelerated: bool | None
    ran_on: str
    has_nan: bool
    times_ms: tuple[float, ...]

    @classmethod
    def of(cls, header: Mapping[str, Any], payload: bytes) -> TryResult:
        """From the answer to ``try``."""
        return cls(
            outputs=tuple(unpack_arrays(header["arrays"], payload)),
            prepare_ms=float(header["prepare_ms"]),
            first_run_ms=float(header["first_run_ms"]),
            accelerated=header["accelerated"],
            ran_on=str(header["ran_on"] or ""),
            has_nan=bool(header["has_nan"]),
            times_ms=_floats(header.get("times_ms") or ()),
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """A plan run once per sample, from a fresh state; state flows from one sample to the next.

    Attributes:
        outputs: Per sample, one array per graph output.
        intermediates: Per sample, every output of every segment, segment by segment; empty when not asked for.
        ran_on: Per segment, what really ran it, in the runtime's words.
        accelerated: Per segment, whether the platform's own hardware ran all of it; ``None`` for unknown.
    """

    outputs: tuple[tuple[Array, ...], ...]
    intermediates: tuple[tuple[Array, ...], ...]
    ran_on: tuple[str, ...]
    accelerated: tuple[bool | None, ...]

    @classmethod
    def of(
        cls,
        header: Mapping[str, Any],
        payload: bytes,
        outputs_of: Callable[[int, Sequence[Array]], tuple[Array, ...]] | None,
    ) -> RunResult:
        """From the answer to ``run``.

        Args:
            outputs_of: Picks the graph outputs of sample ``i`` out of all segments' outputs; ``None`` when the agent
                sent the graph outputs themselves.
        """
        arrays = unpack_arrays(header["arrays"], payload)
        size, count = int(header["arrays_per_sample"]), len(header["total_ms"])
        if len(arrays) != size * count:
            raise ValueError(f"{len(arrays)} arrays are not {size} for each of {count} samples")
        samples = tuple(tuple(arrays[n * size : (n + 1) * size]) for n in range(count))
        ran_on, accelerated = _segment_facts(header)
        if outputs_of is None:
            return cls(samples, (), ran_on, accelerated)
        outputs = tuple(outputs_of(number, sample) for number, sample in enumerate(samples))
        return cls(outputs, samples, ran_on, accelerated)


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """A plan timed in steady state. Milliseconds.

    Attributes:
        times_ms: Total time of each run, in order.
        ci95_ms: 95 % interval of the median.
        segment_ms: Median time of each segment.
        handover_ms: Median time of getting each segment its inputs.
        unaccounted_ms: Median of what is in the total and in no part.
        prepare_ms: Load and compile time of each segment, 0 for one that was still compiled.
        noisy: The interval is wider than asked for.
        ran_on: Per segment, what really ran it, in the runtime's words.
        accelerated: Per segment, whether the platform's own hardware ran all of it; ``None`` for unknown.
    """

    times_ms: tuple[float, ...]
    p50_ms: float
    ci95_ms: tuple[float, float]
    min_ms: float
    p90_ms: float
    p99_ms: float
    segment_ms: tuple[float, ...]
    handover_ms: tuple[float, ...]
    unaccounted_ms: float
    prepare_ms: tuple[float, ...]
    first_run_ms: float
    noisy: bool
    ran_on: tuple[str, ...]
    accelerated: tuple[bool | None, ...]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> MeasureResult:
        """From the answer to ``measure``."""
        low_ms, high_ms = header["ci95_ms"]
        ran_on, accelerated = _segment_facts(header)
        return cls(
            times_ms=_floats(header["times_ms"]),
            p50_ms=float(header["p50_ms"]),
            ci95_ms=(float(low_ms), float(high_ms)),
            min_ms=float(header["min_ms"]),
            p90_ms=float(header["p90_ms"]),
            p99_ms=float(header["p99_ms"]),
            segment_ms=_floats(header["segment_ms"]),
            handover_ms=_floats(header["handover_ms"]),
            unaccounted_ms=float(header["unaccounted_ms"]),
            prepare_ms=_floats(header["prepare_ms"]),
            first_run_ms=float(header["first_run_ms"]),
            noisy=bool(header["noisy"]),
            ran_on=ran_on,
            accelerated=accelerated,
        )


@dataclass(frozen=True, slots=True)
class InterleaveResult:
    """Several plans timed in rounds: ``times_ms[plan][round][run]``."""

    times_ms: tuple[tuple[tuple[float, ...], ...], ...]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> InterleaveResult:
        """From the answer to ``interleave``."""
        return cls(tuple(tuple(map(_floats, rounds)) for rounds in header["times_ms"]))


@dataclass(frozen=True, slots=True)
class ShapesResult:
    """The tensors of a file once its inputs have given shapes.

    Attributes:
        shapes: Tensor number -> shape.
        dynamic: Tensors whose size is only known while the file runs; their shapes mean nothing.
    """

    shapes: Mapping[int, tuple[int, ...]]
    dynamic: frozenset[int]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> ShapesResult:
        """From the answer to ``shapes``."""
        shapes = {int(tensor): tuple(int(n) for n in shape) for tensor, shape in header["shapes"].items()}
        return cls(shapes, frozenset(int(tensor) for tensor in header["dynamic"]))


def _segment_facts(header: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[bool | None, ...]]:
    segments = header["segments"]
    return (
        tuple(str(segment["ran_on"] or "") for segment in segments),
        tuple(segment["accelerated"] for segment in segments),
    )


def _floats(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

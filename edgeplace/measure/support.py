"""Support found by trying: every unit is cut out, compiled alone on every platform, run once, compared and timed.

A platform's own list of supported operators is never asked: vendors' lists are wrong in both directions. A unit that
is refused is bisected into consecutive runs of nodes, so that a unit with one bad node can be split and the rest of
it still placed. What was tried is remembered by the hash of the segment, the platform and the runtime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgeplace.graph.contract import atoms, split_unit
from edgeplace.graph.graph import Unit, UnitGraph
from edgeplace.measure.agreement import Gate, compare
from edgeplace.measure.measurement import Agreement, Failure
from edgeplace.measure.workbench import Array, Workbench
from edgeplace.placement.plan import Segment
from edgeplace.placement.segmentation import lone_segment

LOG = logging.getLogger(__name__)

NOT_WORTH_BISECTING = ("timeout", "agent_lost", "link_lost", "board_rebooted", "device_gone", "wrong_output")
"""Failures that say nothing about single nodes, or whose repetition costs a whole deadline each."""

Atom = tuple[int, ...]
"""Nodes that must stay together, the smallest part a unit may be split into."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying some nodes alone on a platform gave.

    Attributes:
        failure: Why they cannot go there, ``None`` when they can.
        time_ms: Median time of the nodes alone.
        agreement: How far their outputs are from the reference's, fed the reference's own inputs.
    """

    nodes: tuple[int, ...]
    platform: str
    failure: Failure | None = None
    time_ms: float | None = None
    agreement: Agreement | None = None


class TrialMemory(Protocol):
    """Trials of earlier searches, by segment hash and platform."""

    def get(self, segment_sha256: str, platform: str) -> Trial | None:
        """What an earlier search found, ``None`` when none tried. Its ``nodes`` need not be this model's."""

    def put(self, segment_sha256: str, platform: str, trial: Trial) -> None:
        """Remember what this search found."""


@dataclass
class Support:
    """Which units of a unit graph can go to which platforms, and how fast each is alone there."""

    unit_graph: UnitGraph
    trials: dict[tuple[int, str], Trial] = field(default_factory=dict)
    node_failures: dict[tuple[int, str], Failure] = field(default_factory=dict)

    def supported(self) -> dict[tuple[int, str], bool]:
        """(unit id, platform) -> it can go there."""
        return {key: trial.failure is None for key, trial in self.trials.items()}

    def reasons(self) -> dict[tuple[int, str], str]:
        """(unit id, platform) -> why it cannot go there."""
        return {key: str(trial.failure) for key, trial in self.trials.items() if trial.failure is not None}

    def unit_times_ms(self) -> dict[tuple[int, str], float]:
        """(unit id, platform) -> median time alone."""
        return {
            key: trial.time_ms
            for key, trial in self.trials.items()
            if trial.failure is None and trial.time_ms is not None
        }


class SupportFinder:
    """Tries units on platforms.

    Args:
        tensors: The reference's own tensors of one sample, by tensor number: what each unit is fed and compared with.
        gate: The bound on disagreement.
        trusted: Platforms whose outputs are right by definition unless they are NaN (the CPU's own kernels).
        memory: Trials of earlier searches, or ``None``.
        report: Called with a line of text before each trial.
    """

    def __init__(
        self,
        workbench: Workbench,
        tensors: Mapping[int, Array],
        gate: Gate,
        *,
        trusted: frozenset[str],
        memory: TrialMemory | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._workbench = workbench
        self._tensors = tensors
        self._gate = gate
        self._trusted = trusted
        self._memory = memory
        self._report = report
        self._tried: dict[tuple[tuple[int, ...], str], Trial] = {}

    def find(self, unit_graph: UnitGraph, platforms: Sequence[str]) -> Support:
        """Try every unit on every platform; units that are only partly supported are split and tried again.

        The unit graph of the answer is the given one, or a finer one.
        """
        support = self._try_all(unit_graph, platforms)
        finer = unit_graph
        for unit in unit_graph.units:
            groups = self._groups_of_equal_support(support, unit, platforms)
            if len(groups) > 1:
                LOG.info("unit %d is only partly supported; it is split in %d", unit.id, len(groups))
                (now,) = (u.id for u in finer.units if u.nodes == unit.nodes)
                finer = split_unit(finer, now, groups)
        if finer is unit_graph:
            return support
        refined = self._try_all(finer, platforms)
        refined.node_failures.update(support.node_failures)
        return refined

    def _try_all(self, unit_graph: UnitGraph, platforms: Sequence[str]) -> Support:
        support = Support(unit_graph)
        for unit in unit_graph.units:
            for platform in platforms:
                support.trials[unit.id, platform] = self.attempt(unit_graph, unit.nodes, platform)
        return support

    def attempt(self, unit_graph: UnitGraph, nodes: Sequence[int], platform: str) -> Trial:
        """Compile these nodes alone on a platform, run them once on the reference's inputs, compare, time."""
        key = (tuple(nodes), platform)
        if key not in self._tried:
            self._report(f"{_span(key[0])} on {platform}")
            self._tried[key] = self._attempt_or_remember(lone_segment(unit_graph, key[0], platform))
        return self._tried[key]

    def _attempt_or_remember(self, segment: Segment) -> Trial:
        if self._memory is None:
            return self._attempt(segment)
        sha256 = self._workbench.file_of(segment).sha256
        known = self._memory.get(sha256, segment.platform)
        if known is not None:
            return replace(known, nodes=segment.nodes, platform=segment.platform)
        trial = self._attempt(segment)
        self._memory.put(sha256, segment.platform, trial)
        return trial

    def _attempt(self, segment: Segment) -> Trial:
        inputs = [self._tensors.get(tensor) for tensor in segment.inputs]
        tried = self._workbench.attempt(segment, inputs)
        if isinstance(tried, Failure):
            return Trial(segment.nodes, segment.platform, failure=tried)
        if tried.accelerated is False and segment.platform not in self._trusted:
            # No silent fallback: the runtime took the file and ran it, or part of it, somewhere else.
            failure = Failure(
                "unsupported", f"it ran on {tried.ran_on}", "compile", platform=segment.platform
            )
            return Trial(segment.nodes, segment.platform, failure)
        if any(tensor is None for tensor in inputs):
            return Trial(segment.nodes, segment.platform, time_ms=tried.time_ms)
        agreement, reason = self.check(segment, tried.outputs)
        if not reason:
            return Trial(segment.nodes, segment.platform, None, tried.time_ms, agreement)
        wrong = Failure("wrong_output", reason, stage="check", platform=segment.platform)
        return Trial(segment.nodes, segment.platform, wrong, None, agreement)

    def check(self, segment: Segment, outputs: Sequence[Array]) -> tuple[Agreement | None, str]:
        """How far a segment's outputs are from the reference's, and why that is too far (empty when it is not)."""
        pairs = [
            (self._tensors[tensor], output, tensor)
            for tensor, output in zip(segment.outputs, outputs, strict=True)
            if tensor in self._tensors
        ]
        if not pairs:
            return None, ""
        facts = self._workbench.graph.tensors
        agreement = compare(
            [reference for reference, _, _ in pairs],
            [output for _, output, _ in pairs],
            [facts[tensor].quantization for _, _, tensor in pairs],
        )
        if segment.platform in self._trusted:
            return agreement, "its output has NaN or Inf" if agreement.has_nan else ""
        if agreement.steps is not None and agreement.steps <= 2 and not agreement.has_nan:
            # Two correct roundings of one small quantized operator: a step or two, whatever the SNR makes of it.
            return agreement, ""
        verdict = self._gate.check(agreement)
        return agreement, "" if verdict.passed else verdict.reason

    def _groups_of_equal_support(
        self, support: Support, unit: Unit, platforms: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """The unit's nodes in consecutive runs that the same platforms support."""
        parts = atoms(support.unit_graph, unit.id)
        if len(parts) == 1:
            return [unit.nodes]
        able: dict[str, set[Atom]] = {}
        for platform in platforms:
            failure = support.trials[unit.id, platform].failure
            if failure is None:
                able[platform] = set(parts)
            elif failure.kind not in NOT_WORTH_BISECTING:
                able[platform] = self._bisect(support, parts, platform)
        return _runs_of_equal_support(parts, able)

    def _bisect(self, support: Support, parts: Sequence[Atom], platform: str) -> set[Atom]:
        """The atoms that work there, found by trying halves of a run that does not."""
        able: set[Atom] = set()
        half = len(parts) // 2
        for run in (parts[:half], parts[half:]):
            trial = self.attempt(support.unit_graph, [node for atom in run for node in atom], platform)
            if trial.failure is None:
                able.update(run)
            elif len(run) == 1:
                support.node_failures.update({(node, platform): trial.failure for node in run[0]})
            elif trial.failure.kind not in NOT_WORTH_BISECTING:
                able |= self._bisect(support, run, platform)
        return able


def _runs_of_equal_support(parts: Sequence[Atom], able: Mapping[str, set[Atom]]) -> list[tuple[int, ...]]:
    """Consecutive atoms with the same set of platforms, in order, as node ids."""
    groups: list[list[int]] = []
    last: frozenset[str] | None = None
    for atom in parts:
        here = frozenset(name for name, works in able.items() if atom in works)
        if here != last:
            groups.append([])
        groups[-1].extend(atom)
        last = here
    return [tuple(group) for group in groups]


def _span(nodes: tuple[int, ...]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {nodes[0]}..{nodes[-1]}"

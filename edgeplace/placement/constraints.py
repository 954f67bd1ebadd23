"""Which platforms each unit may go to: what was found by trying, and what the user pins and bans."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgeplace.errors import InputError, NoFeasiblePlacementError, UnknownNameError
from edgeplace.graph.contract import format_ids
from edgeplace.graph.graph import Graph, Node, Unit, UnitGraph
from edgeplace.placement.space import PlacementSpace
from edgeplace.registry import nearest_name_hint

Support = Mapping[tuple[int, str], bool]
"""(unit id, platform) -> whether the platform runs the unit; what is not there was not tried and counts as no."""
Reasons = Mapping[tuple[int, str], str]
"""(unit id, platform) -> why the platform does not run the unit."""

_ID_LIST = re.compile(r"\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*")


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``--pin`` or ``--ban``: nodes and a platform.

    Attributes:
        verb: ``pin`` or ``ban``.
        pattern: Operator ids (``12``, ``3-7,9``), or a glob over operator type, custom code and node name. Operator
            types match in any case; ``*``, ``?`` and ``[...]`` are special.
        platform: The platform's name.
    """

    verb: str
    pattern: str
    platform: str

    def __str__(self) -> str:
        return f"--{self.verb} '{self.pattern}={self.platform}'"

    def matches(self, node: Node) -> bool:
        """Whether the rule is about this node."""
        if _ID_LIST.fullmatch(self.pattern):
            return any(first <= node.id <= last for first, last in self._id_ranges())
        return (
            fnmatch.fnmatchcase(node.op_type, self.pattern.upper())
            or fnmatch.fnmatchcase(node.name, self.pattern)
            or (bool(node.custom_code) and fnmatch.fnmatchcase(node.custom_code, self.pattern))
        )

    def _id_ranges(self) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for piece in self.pattern.split(","):
            first, _, last = piece.partition("-")
            ranges.append((int(first), int(last or first)))
        return ranges


def parse_rule(verb: str, text: str) -> Rule:
    """Read ``NODES=PLATFORM`` as given to ``--pin`` or ``--ban``.

    Raises:
        InputError: The text has not that form.
    """
    pattern, equals, platform = text.rpartition("=")
    pattern, platform = pattern.strip(), platform.strip()
    if not equals or not pattern or not platform:
        raise InputError(
            f"--{verb} '{text}' has not the form NODES=PLATFORM",
            hint=f"for example: --{verb} 'DEPTHWISE*=npu' or --{verb} '3-7=cpu'",
        )
    rule = Rule(verb, pattern, platform)
    if _ID_LIST.fullmatch(pattern):
        for first, last in rule._id_ranges():
            if first > last:
                raise InputError(f"{rule}: the range {first}-{last} goes backwards")
    return rule


def allowed_platforms(
    unit_graph: UnitGraph,
    platforms: Sequence[str],
    support: Support,
    pins: Sequence[Rule] = (),
    bans: Sequence[Rule] = (),
    *,
    reasons: Reasons | None = None,
) -> tuple[tuple[str, ...], ...]:
    """For each unit, the platforms it may go to, in the order of ``platforms``.

    A rule about one node is a rule about its whole unit.

    Raises:
        UnknownNameError: A rule names a platform that is not among ``platforms``.
        InputError: A rule is about no node, two pins disagree, or pins and bans leave a unit nothing.
        NoFeasiblePlacementError: No platform runs some unit.
    """
    reasons = reasons or {}
    for rule in (*pins, *bans):
        if rule.platform not in platforms:
            raise UnknownNameError(
                f"{rule}: there is no platform '{rule.platform}'",
                hint=nearest_name_hint(rule.platform, platforms),
            )
    pins_of = _units_of(unit_graph, pins)
    bans_of = _units_of(unit_graph, bans)
    return tuple(
        _unit_platforms(
            unit_graph.graph,
            unit,
            platforms,
            [name for name in platforms if support.get((unit.id, name), False)],
            pins_of.get(unit.id, ()),
            bans_of.get(unit.id, ()),
            reasons,
        )
        for unit in unit_graph.units
    )


def build_space(
    unit_graph: UnitGraph,
    platforms: Sequence[str],
    support: Support,
    pins: Sequence[Rule] = (),
    bans: Sequence[Rule] = (),
    *,
    reasons: Reasons | None = None,
) -> PlacementSpace:
    """The space of all feasible placements; arguments and errors are those of :func:`allowed_platforms`."""
    return PlacementSpace(
        unit_graph, allowed_platforms(unit_graph, platforms, support, pins, bans, reasons=reasons)
    )


def _units_of(unit_graph: UnitGraph, rules: Iterable[Rule]) -> dict[int, list[Rule]]:
    """Unit id -> the rules that are about one of its nodes."""
    nodes = unit_graph.graph.nodes
    found: dict[int, list[Rule]] = {}
    for rule in rules:
        units = [
            unit.id for unit in unit_graph.units if any(rule.matches(nodes[node]) for node in unit.nodes)
        ]
        if not units:
            raise InputError(f"{rule} is about no node of the model", hint=_no_match_hint(unit_graph, rule))
        for unit_id in units:
            found.setdefault(unit_id, []).append(rule)
    return found


def _no_match_hint(unit_graph: UnitGraph, rule: Rule) -> str:
    nodes = unit_graph.graph.nodes
    copied = [node for node in sorted(unit_graph.replicated) if rule.matches(nodes[node])]
    if copied:
        return f"nodes {format_ids(copied)} only prepare constants: they go along with whoever reads them"
    if _ID_LIST.fullmatch(rule.pattern):
        return f"operators are 0 to {len(nodes) - 1}" if nodes else "the model has no operators"
    return nearest_name_hint(rule.pattern, {node.custom_code or node.op_type for node in nodes})


def _unit_platforms(
    graph: Graph,
    unit: Unit,
    platforms: Sequence[str],
    supported: Sequence[str],
    pins: Sequence[Rule],
    bans: Sequence[Rule],
    reasons: Reasons,
) -> tuple[str, ...]:
    who = _describe(graph, unit)
    if not supported:
        raise NoFeasiblePlacementError(
            f"no platform runs {who}: {_why_not(unit, platforms, reasons)}",
            hint="add a platform that runs it (--platform), or leave this part out of the model",
        )
    wanted = list(dict.fromkeys(pin.platform for pin in pins))
    if len(wanted) > 1:
        other = next(pin for pin in pins if pin.platform != pins[0].platform)
        raise InputError(f"{pins[0]} contradicts {other}: both are about {who}")
    if wanted and wanted[0] not in supported:
        raise InputError(
            f"{pins[0]}: {wanted[0]} does not run {who}: {_why_not(unit, wanted, reasons)}",
            hint=f"it runs on {', '.join(supported)}",
        )
    banned = {ban.platform: ban for ban in bans}
    left = tuple(name for name in wanted or supported if name not in banned)
    if not left and wanted:
        raise InputError(f"{pins[0]} contradicts {banned[wanted[0]]}: both are about {who}")
    if not left:
        rules = ", ".join(str(banned[name]) for name in supported)
        raise InputError(
            f"{rules} leave no platform for {who}",
            hint=f"without bans it runs on {', '.join(supported)}",
        )
    return left


def _describe(graph: Graph, unit: Unit) -> str:
    types = dict.fromkeys(graph.nodes[node].custom_code or graph.nodes[node].op_type for node in unit.nodes)
    shown = list(types)[:4]
    if len(types) > len(shown):
        shown.append("...")
    return f"unit {unit.id} '{unit.name}' (nodes {format_ids(unit.nodes)}: {', '.join(shown)})"


def _why_not(unit: Unit, platforms: Iterable[str], reasons: Reasons) -> str:
    return "; ".join(f"{name}: {reasons.get((unit.id, name), 'not supported')}" for name in platforms)

"""Rules of thumb: what people do without a search. The search starts from them and is compared with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgeplace.optimizers.additive import Wiring, hinted_costs
from edgeplace.optimizers.base import FinishedBy, Optimizer, SearchHints
from edgeplace.optimizers.shortest_path import fastest_per_unit, shortest_path
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace


@dataclass(frozen=True, slots=True)
class RulePlacement:
    """What a rule says, under the rule's name (``single:npu``, ``shortest-path`` ...)."""

    rule: str
    placement: Placement


def rule_placements(space: PlacementSpace, hints: SearchHints) -> tuple[RulePlacement, ...]:
    """What every rule that applies says; different rules may say the same.

    ``single:P``
        Everything on platform P (where all units may go there).
    ``prefer:P``
        Every unit that may go to P goes there, the others to their first platform: what a runtime's delegate does.
    ``prefix:P``
        As ``prefer:P``, but only up to the first unit that may not go to P: one segment, one hand-over.
    ``shortest-path``
        The fastest by the additive model (needs unit times).
    ``greedy``
        Each unit where it alone is fastest (needs unit times).
    """
    found: list[RulePlacement] = []
    for platform in space.platforms:
        single = space.single(platform)
        if single is not None:
            found.append(RulePlacement(f"single:{platform}", single))
    for platform in space.platforms:
        if space.single(platform) is None:
            units = len(space.allowed)
            found.append(RulePlacement(f"prefer:{platform}", space.nearest_to((platform,) * units)))
            refused = next(unit for unit in range(units) if platform not in space.allowed[unit])
            if refused:
                prefix = [platform] * refused + [names[0] for names in space.allowed[refused:]]
                found.append(RulePlacement(f"prefix:{platform}", Placement(tuple(prefix))))
    wiring = Wiring(space)
    costs = hinted_costs(wiring, hints)
    if costs is not None:
        found.append(RulePlacement("shortest-path", shortest_path(wiring, costs).placement))
        found.append(RulePlacement("greedy", fastest_per_unit(wiring, costs)))
    return tuple(found)


class Rules(Optimizer):
    """Measures what the rules of thumb say, and nothing else."""

    name = "rules"

    def do_propose(self) -> Iterable[Placement]:
        return [item.placement for item in rule_placements(self.space, self.hints)]

    def do_explain_end(self) -> FinishedBy:
        return "list"

"""All feasible placements of a unit graph: for each unit, the platforms it may go to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.plan import Placement


@dataclass(frozen=True)
class PlacementSpace:
    """The set of feasible placements.

    Attributes:
        allowed: For each unit, the platforms it may go to (support found by trying, pins and bans applied),
            in the order of the board profile. Never empty for any unit.
    """

    unit_graph: UnitGraph
    allowed: tuple[tuple[str, ...], ...]

    @property
    def size(self) -> int:
        """Exact number of feasible placements (patent claim 2 compares it with the threshold)."""
        return math.prod(len(platforms) for platforms in self.allowed)

    @property
    def platforms(self) -> tuple[str, ...]:
        """Every platform some unit may go to, in first-seen order."""
        return tuple(dict.fromkeys(name for names in self.allowed for name in names))

    def __contains__(self, placement: object) -> bool:
        return (
            isinstance(placement, Placement)
            and len(placement.platforms) == len(self.allowed)
            and all(name in names for name, names in zip(placement.platforms, self.allowed, strict=True))
        )

    def __iter__(self) -> Iterator[Placement]:
        """Every placement once, the last unit changing fastest."""
        for index in range(self.size):
            yield self.at(index)

    def at(self, index: int) -> Placement:
        """Placement number ``index`` in iteration order; with a random index, a uniform random placement."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen: list[str] = []
        for names in reversed(self.allowed):
            index, digit = divmod(index, len(names))
            chosen.append(names[digit])
        return Placement(tuple(reversed(chosen)))

    def single(self, platform: str) -> Placement | None:
        """Everything on one platform, or ``None`` when some unit may not go there."""
        if all(platform in names for names in self.allowed):
            return Placement((platform,) * len(self.allowed))
        return None

    def nearest_to(self, wanted: Sequence[str]) -> Placement:
        """The wish where it is allowed, each unit's first platform where it is not."""
        return Placement(
            tuple(
                wish if wish in names else names[0] for wish, names in zip(wanted, self.allowed, strict=True)
            )
        )

"""Measures every placement (patent claim 2, fewer configurations than the threshold)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from edgeplace.optimizers.base import Optimizer
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace


class Exhaustive(Optimizer):
    """Every feasible placement once, single platforms first, so that a stopped search has them to compare with."""

    name = "exhaustive"

    def __init__(self, space: PlacementSpace, **arguments: Any) -> None:
        super().__init__(space, **arguments)
        self._walk = _walk(space)

    def do_propose(self) -> Iterable[Placement]:
        return self._walk


def _walk(space: PlacementSpace) -> Iterator[Placement]:
    for platform in space.platforms:
        single = space.single(platform)
        if single is not None:
            yield single
    yield from space

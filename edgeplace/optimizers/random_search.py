"""Uniform random placements: the least an optimizer has to beat."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

from edgeplace.optimizers.base import Optimizer
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace

_SHUFFLED_UP_TO = 1 << 16
"""Spaces up to this size are shuffled, so that the last placements are found too."""

_TRIES = 4096
"""How many draws without anything new end the search in a larger space."""


class RandomSearch(Optimizer):
    """Uniform random placements until the budget is spent or all are measured."""

    name = "random"

    def __init__(self, space: PlacementSpace, **arguments: Any) -> None:
        super().__init__(space, **arguments)
        self._walk = _walk(space, random.Random(self.seed))

    def do_propose(self) -> Iterable[Placement]:
        return itertools.islice(self._walk, max(_TRIES, min(self.space.size, _SHUFFLED_UP_TO)))


def _walk(space: PlacementSpace, chance: random.Random) -> Iterator[Placement]:
    if space.size <= _SHUFFLED_UP_TO:
        for index in chance.sample(range(space.size), space.size):
            yield space.at(index)
    else:
        while True:
            yield space.at(chance.randrange(space.size))

"""Which placements the surrogate looks at: changes of the best ones, mixtures of them, and fresh ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeplace.optimizers.additive import Rows, Wiring

ALL_UP_TO = 2048
"""Spaces up to this size are looked at completely."""


def all_rows(wiring: Wiring) -> Rows:
    """Every placement of the space, in its iteration order."""
    grids = np.meshgrid(*[np.array(numbers, dtype=np.intp) for numbers in wiring.choices], indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def flips(wiring: Wiring, row: Rows) -> Rows:
    """Every placement that differs from ``row`` in one unit."""
    made = []
    for unit, numbers in enumerate(wiring.choices):
        for number in numbers:
            if number != row[unit]:
                changed = row.copy()
                changed[unit] = number
                made.append(changed)
    return _stacked(made, wiring)


def run_flips(wiring: Wiring, row: Rows, count: int, chance: np.random.Generator) -> Rows:
    """``count`` placements in which a run of neighbouring units moved to one platform (where they may go there)."""
    made = []
    for _ in range(count):
        changed = row.copy()
        _move_run(wiring, changed, chance)
        made.append(changed)
    return _stacked(made, wiring)


def crossovers(wiring: Wiring, parents: Rows, count: int, chance: np.random.Generator) -> Rows:
    """``count`` placements that are one parent up to some unit and another from there on."""
    made = []
    for _ in range(count if len(parents) > 1 and wiring.units > 1 else 0):
        first, second = chance.choice(len(parents), size=2, replace=False)
        cut = int(chance.integers(1, wiring.units))
        made.append(np.concatenate([parents[first][:cut], parents[second][cut:]]))
    return _stacked(made, wiring)


def random_rows(wiring: Wiring, count: int, chance: np.random.Generator) -> Rows:
    """``count`` random placements with few borders: a random platform for all, then a few runs moved elsewhere.

    Uniform placements change platform at most units, which is nearly always slow and teaches little.
    """
    made = []
    for _ in range(count):
        wish = int(chance.integers(len(wiring.platforms)))
        row = np.array([wish if wish in numbers else numbers[0] for numbers in wiring.choices], dtype=np.intp)
        for _ in range(int(chance.integers(1, 4))):
            _move_run(wiring, row, chance)
        made.append(row)
    return _stacked(made, wiring)


def unique_rows(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, each once, in order of first appearance."""
    rows = np.concatenate(parts, axis=0)
    _, first = np.unique(rows, axis=0, return_index=True)
    return np.asarray(rows[np.sort(first)])


def _move_run(wiring: Wiring, row: Rows, chance: np.random.Generator) -> None:
    start = int(chance.integers(wiring.units))
    # Short runs more often than long ones, up to the whole of what follows.
    length = 1 + int((wiring.units - start) * chance.random() ** 2)
    platform = int(chance.integers(len(wiring.platforms)))
    for unit in range(start, min(start + length, wiring.units)):
        if wiring.allowed[unit, platform]:
            row[unit] = platform


def _stacked(made: list[Rows], wiring: Wiring) -> Rows:
    return np.array(made, dtype=np.intp).reshape(len(made), wiring.units)

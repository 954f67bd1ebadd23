"""The gate between measuring everything and learning (patent claim 2)."""

from __future__ import annotations

DEFAULT_THRESHOLD = 256
"""Spaces smaller than this are measured completely."""


def choose_method(space_size: int, threshold: int = DEFAULT_THRESHOLD) -> str:
    """Name of the optimizer for a space of that many feasible placements.

    Claim 2: when the number of all possible configurations is greater than or equal to the threshold, the optimized
    one is found by an optimization method from samples; when it is less, it is the fastest among all of them.

    Args:
        space_size: Exact number of feasible placements (``PlacementSpace.size``).
        threshold: From how many on the space is searched and not measured completely.
    """
    return "surrogate" if space_size >= threshold else "exhaustive"

"""Gradient-boosted trees, several of them on resampled data, so that they also say how unsure they are.

The only place that imports sklearn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor

MEMBERS = 5
"""Boosted models in the ensemble."""
_TREES = 40
_DEPTH = 3
_RATE = 0.1


class BoostedEnsemble:
    """Boosted trees fitted on bootstrap samples of one data set.

    Deterministic: the same data and seed give the same predictions (one thread, fixed random states).

    Args:
        features: Shape (samples, features).
        target: Shape (samples,).
        seed: Of the resampling and of the trees.
    """

    def __init__(self, features: NDArray[np.float64], target: NDArray[np.float64], *, seed: int) -> None:
        self._members: list[GradientBoostingRegressor] = []
        chance = np.random.Generator(np.random.PCG64(seed))
        for member in range(MEMBERS):
            drawn = chance.integers(0, len(target), size=len(target))
            model = GradientBoostingRegressor(
                n_estimators=_TREES,
                max_depth=_DEPTH,
                learning_rate=_RATE,
                subsample=0.8,
                max_features=0.5,
                random_state=(seed + member) % 2**32,
            )
            self._members.append(model.fit(features[drawn], target[drawn]))

    def predict(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation over the members, each of shape (rows,)."""
        each = np.stack([model.predict(features) for model in self._members])
        return each.mean(axis=0), each.std(axis=0)

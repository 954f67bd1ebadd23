"""Short real searches for tests: this machine's platforms, few measurements, everything else as a user gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeplace import controller


def short_request(model: Path, folder: Path, *platforms: str, **changes: Any) -> controller.OptimizeRequest:
    """A search of at most a dozen measurements with its own store and map in ``folder``."""
    settings: dict[str, Any] = {
        "model": model,
        "out": folder / "map.yaml",
        "store": str(folder / "store.sqlite"),
        "target": controller.Target(platforms=platforms),
        "budget": 12,
        "rounds": 12,
        "sample_budget_s": 0.05,
    }
    return controller.OptimizeRequest(**{**settings, **changes})

"""The runs, as plain functions that read top to bottom; the command line calls them, and scripts may."""

from edgeplace.controller.deploy import generate
from edgeplace.controller.look import (
    cut,
    diff_maps,
    explain_map,
    inspect,
    list_boards,
    map_facts,
    probe_board,
    schema,
    validate_map,
)
from edgeplace.controller.optimize import OptimizeOutcome, optimize
from edgeplace.controller.requests import (
    Observer,
    OptimizeRequest,
    SearchInterrupted,
    SilentObserver,
    Target,
    VerifyRequest,
)
from edgeplace.controller.verify import verify
from edgeplace.errors import CheckFailedError

__all__ = [
    "CheckFailedError",
    "Observer",
    "OptimizeOutcome",
    "OptimizeRequest",
    "SearchInterrupted",
    "SilentObserver",
    "Target",
    "VerifyRequest",
    "cut",
    "diff_maps",
    "explain_map",
    "generate",
    "inspect",
    "list_boards",
    "map_facts",
    "optimize",
    "probe_board",
    "schema",
    "validate_map",
    "verify",
]

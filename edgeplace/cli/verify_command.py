"""``edgeplace verify``: run a delegate map again. Is it as fast and as right as it says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeplace.cli import options, output
from edgeplace.errors import EXIT_CHECK_FAILED, EXIT_OK


def verify(
    map_: options.MapPath,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="The model, when it is not beside the map.")
    ] = None,
    board: options.OptionalBoard = None,
    boards_dir: options.BoardsDir = None,
    set_: options.Set = None,
    metric: options.MetricSpec = None,
    inputs: options.Inputs = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="How much slower than the map says is still a pass.", min=0.0)
    ] = 0.25,
    run_deadline: options.RunDeadline = 30.0,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Interleaved rounds [30].", min=12)] = None,
    json: options.Json = False,
) -> int:
    """Re-measure a map and compare speed and outputs with what it says; exit code 3 when it does not hold."""
    from edgeplace import controller
    from edgeplace.report import tables

    observer = output.ConsoleObserver(quiet=json)
    request = controller.VerifyRequest(
        map=map_,
        model=model,
        board=board,
        boards_dirs=tuple(boards_dir or ()),
        overrides=tuple(set_ or ()),
        metric=metric,
        inputs=inputs,
        tolerance=tolerance,
        run_deadline_s=run_deadline,
        rounds=rounds,
    )
    with observer.running():
        outcome = controller.verify(request, observer)
    if json:
        output.print_json(outcome)
    else:
        output.print_renderables(*tables.verify_tables(outcome))
    return EXIT_OK if outcome["holds"] else EXIT_CHECK_FAILED

"""``edgeplace optimize``: find the fastest right placement of a model on a board and write its delegate map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeplace.cli import options, output


def optimize(
    model: options.ModelPath,
    board: options.Board = "local",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="MAP", help="The map to write [MODEL.BOARD.yaml].")
    ] = None,
    platform: options.Platform = None,
    set_: options.Set = None,
    boards_dir: options.BoardsDir = None,
    signature: options.Signature = "",
    shape: options.Shapes = None,
    inputs: options.Inputs = None,
    granularity: options.Granularity = "unit",
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="NODES=PLATFORM", help="Nodes (id, type or name) must go there."),
    ] = None,
    ban: Annotated[
        list[str] | None,
        typer.Option("--ban", metavar="NODES=PLATFORM", help="Nodes (id, type or name) must not go there."),
    ] = None,
    threshold: Annotated[
        int,
        typer.Option("--threshold", help="Measure every placement when there are fewer than this.", min=0),
    ] = 256,
    optimizer: Annotated[
        str | None,
        typer.Option("--optimizer", metavar="NAME", help="Use this one whatever the threshold says."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", help="Placements to measure at most [64 for the surrogate].", min=1),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Stop searching after this long.", min=0.0)
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="The same seed and records give the same proposals.")
    ] = 0,
    cosine: Annotated[
        float, typer.Option("--min-cosine", help="Least cosine between outputs and the reference's.")
    ] = 0.99,
    snr: Annotated[
        float, typer.Option("--min-snr", metavar="DB", help="Least signal-to-noise ratio of outputs, in dB.")
    ] = 30.0,
    metric: options.MetricSpec = None,
    metric_min: Annotated[
        float | None, typer.Option("--metric-min", help="The task metric must not be below this.")
    ] = None,
    sample_budget: Annotated[
        float,
        typer.Option("--sample-budget", metavar="SECONDS", help="Longest timing of one placement.", min=0.01),
    ] = 1.0,
    run_deadline: options.RunDeadline = 30.0,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Interleaved rounds of the final [30].", min=12)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the same search was stopped.")
    ] = False,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Measure placements of MODEL on a board and write the delegate map of the one that is fastest and right."""
    from edgeplace import controller
    from edgeplace.report import tables

    request = controller.OptimizeRequest(
        model=model,
        target=controller.Target(board, tuple(boards_dir or ()), tuple(platform or ()), tuple(set_ or ())),
        out=out,
        signature=signature,
        shapes=tuple(shape or ()),
        inputs=inputs,
        granularity=granularity,
        pins=tuple(pin or ()),
        bans=tuple(ban or ()),
        threshold=threshold,
        optimizer=optimizer,
        budget=budget,
        minutes=minutes,
        seed=seed,
        min_cosine=cosine,
        min_snr_db=snr,
        metric=metric,
        metric_min=metric_min,
        sample_budget_s=sample_budget,
        run_deadline_s=run_deadline,
        rounds=rounds,
        resume=resume,
        store=store,
    )
    observer = output.ConsoleObserver(quiet=json)
    with observer.running():
        outcome = controller.optimize(request, observer)
    if json:
        output.print_json(outcome.as_dict())
    else:
        output.print_renderables(*tables.optimize_tables(outcome.as_dict()))

"""``edgeplace map``: look at a delegate map, explain it, check it, compare two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeplace.cli import options, output

app = typer.Typer(help="Delegate maps.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show(map_: options.MapPath, json: options.Json = False) -> None:
    """Show the segments, times and numbers of a map."""
    from edgeplace import controller
    from edgeplace.report import tables

    facts = controller.map_facts(map_)
    if json:
        output.print_json(facts)
    else:
        output.print_renderables(*tables.map_tables(facts))


@app.command("explain")
def explain(map_: options.MapPath, json: options.Json = False) -> None:
    """Say why each part is where it is, what was left out, and which segment disagreed on which platform."""
    from edgeplace import controller

    lines = controller.explain_map(map_)
    if json:
        output.print_json({"lines": lines})
    else:
        output.print_renderables(*lines)


@app.command("validate")
def validate(
    map_: options.MapPath,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="The model, when it is not beside the map.")
    ] = None,
) -> None:
    """Check a map against the schema and its model: every node placed once, nothing unknown."""
    from edgeplace import controller

    controller.validate_map(map_, model)
    output.print_renderables(f"{map_}: valid")


@app.command("diff")
def diff(
    first: Annotated[Path, typer.Argument(metavar="MAP")],
    second: Annotated[Path, typer.Argument(metavar="MAP")],
    json: options.Json = False,
) -> None:
    """Say what differs between two maps of one model."""
    from edgeplace import controller

    lines = controller.diff_maps(first, second)
    if json:
        output.print_json({"lines": lines})
    else:
        output.print_renderables(*(lines or ["no difference"]))

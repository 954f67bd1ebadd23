"""``edgeplace schema``: the JSON Schema of the files that EdgePlace reads and writes."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeplace.cli import output


def schema(
    kind: Annotated[str, typer.Argument(metavar="delegate-map|board", help="Which file.")] = "delegate-map",
) -> None:
    """Print the JSON Schema of a delegate map or a board profile."""
    from edgeplace import controller

    output.print_json(controller.schema(kind))

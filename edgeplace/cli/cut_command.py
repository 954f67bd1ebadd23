"""``edgeplace cut``: write segments of a model, for people who only want this."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeplace.cli import options, output


def cut(
    model: options.ModelPath,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the segments.")],
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at", metavar="OP|TENSOR", help="Cut before this operator number or behind this tensor."
        ),
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option("--parts", metavar="N", help="Cut into N parts with about equal MACs.", min=1),
    ] = None,
    signature: options.Signature = "",
    shape: options.Shapes = None,
    json: options.Json = False,
) -> None:
    """Cut a model into stand-alone .tflite segments and write them with a plan.json that says how they connect."""
    from edgeplace import controller

    result = controller.cut(model, out, at=at or (), parts=parts, signature=signature, shapes=shape or ())
    if json:
        output.print_json(result)
        return
    for note in result["notes"]:
        output.print_renderables(f"note: {note}")
    for segment in result["segments"]:
        output.print_renderables(
            f"{segment['file']}  {segment['size_bytes']} bytes  nodes {segment['nodes']}"
        )

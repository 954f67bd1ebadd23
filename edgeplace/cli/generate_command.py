"""``edgeplace generate``: deployment code from a delegate map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeplace.cli import options, output


def generate(
    map_: options.MapPath,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    target: Annotated[str, typer.Option("--target", metavar="NAME", help="What to generate.")] = "python",
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="The model, when it is not beside the map.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write segments, map and readable code that runs them, needing only numpy and the runtime."""
    from edgeplace import controller

    files = controller.generate(map_, out, target=target, model=model)
    if json:
        output.print_json({"folder": str(out), "files": files})
    else:
        output.print_renderables(f"wrote {len(files)} files to {out}", *(f"  {name}" for name in files))

"""Options that several verbs share, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="The .tflite file.", show_default=False)]
MapPath = Annotated[Path, typer.Argument(metavar="MAP", help="The delegate map (YAML).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]
Signature = Annotated[
    str, typer.Option("--signature", metavar="NAME", help="Use this signature instead of the main graph.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="INPUT=1x224x224x3", help="Shape of an input; may be given several times."
    ),
]
Granularity = Annotated[
    str, typer.Option("--granularity", metavar="op|unit|block", help="How finely the model may be cut.")
]
Board = Annotated[
    str, typer.Option("--board", metavar="NAME", help="Board profile, or ssh://user@host[:port].")
]
OptionalBoard = Annotated[
    str | None, typer.Option("--board", metavar="NAME", help="Another board than the one in the map.")
]
BoardsDir = Annotated[
    list[Path] | None,
    typer.Option("--boards-dir", metavar="DIR", help="More board profiles; these come first."),
]
Platform = Annotated[
    list[str] | None,
    typer.Option(
        "--platform",
        metavar="NAME[=delegate:/lib.so,key=value]",
        help="Use only these platforms of the board; with '=' adds an external delegate.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="platforms.cpu.options.threads=2", help="Change a value of the board profile."
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="PATH", help="Samples to check with: npz, npy, image or a folder."),
]
MetricSpec = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="MODULE:FUNCTION",
        help="Task metric, a function (outputs, labels) -> float; higher is better.",
    ),
]
RunDeadline = Annotated[
    float, typer.Option("--run-deadline", metavar="SECONDS", help="A run longer than this is hung.", min=0.1)
]
StorePath = Annotated[
    str | None,
    typer.Option("--store", metavar="FILE", help="Where measurements are kept.", envvar="EDGEPLACE_STORE"),
]

"""What a person sees while a command works."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from edgeplace.cli.output import progress_columns

WHAT = "best so far 0.358 ms; last: 10 segments on cpu + cpu1 + npu"


@pytest.mark.parametrize("width", [76, 80, 160])
def test_progress_stays_on_one_line_and_keeps_its_numbers(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    progress = Progress(*progress_columns(), console=console, auto_refresh=False)
    task = progress.add_task("measuring (surrogate)", total=20, what="")
    progress.update(task, advance=11, what=WHAT)
    with console.capture() as captured:
        console.print(progress.get_renderable())
    (line,) = captured.get().splitlines()
    assert "measuring (surrogate)" in line
    assert "11/20" in line
    assert (WHAT in line) == (width == 160)

"""``edgeplace boards``: which board profiles there are, and what one offers."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeplace.cli import options, output

app = typer.Typer(help="Board profiles.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_boards(boards_dir: options.BoardsDir = None, json: options.Json = False) -> None:
    """List the board profiles that can be named with --board."""
    from edgeplace import controller
    from edgeplace.report import tables

    boards = controller.list_boards(boards_dir or ())
    if json:
        output.print_json(boards)
    else:
        output.print_renderables(*tables.boards_tables(boards))


@app.command("probe")
def probe(
    board: Annotated[
        str, typer.Argument(metavar="BOARD", help="Board profile, or ssh://user@host[:port].")
    ] = "local",
    boards_dir: options.BoardsDir = None,
    platform: options.Platform = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> None:
    """Start the agent on a board and try each of its platforms: which are there, which are not, and why."""
    from edgeplace import controller
    from edgeplace.report import tables

    target = controller.Target(board, tuple(boards_dir or ()), tuple(platform or ()), tuple(set_ or ()))
    facts = controller.probe_board(target)
    if json:
        output.print_json(facts)
    else:
        output.print_renderables(*tables.platform_tables(facts))

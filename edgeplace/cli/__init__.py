"""The command line: one file per verb. This is the only place that prints errors and picks exit codes.

Exit codes: 0 ok, 1 explained error, 2 bad input, 3 a check failed, 4 rolled back, 70 bug, 130 interrupted.

A verb imports what it runs inside its function, so that ``--help`` and a mistyped option are answered at once: without
numpy, pydantic and the database, the command line starts in a fifth of the time.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence

import typer

from edgeplace import __version__
from edgeplace.cli import (
    boards_command,
    cut_command,
    generate_command,
    inspect_command,
    map_command,
    optimize_command,
    output,
    schema_command,
    verify_command,
)
from edgeplace.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUG,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EdgePlaceError,
)
from edgeplace.printable import printable

# typer carries its own click from 0.20 on and used the separate package before; the root of both is found by name.
_USAGE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="edgeplace",
    help="Place every operator of a TFLite model on the processor of a board where it is fastest and still right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("inspect")(inspect_command.inspect)
app.command("cut")(cut_command.cut)
app.command("optimize")(optimize_command.optimize)
app.command("verify")(verify_command.verify)
app.command("generate")(generate_command.generate)
app.command("schema")(schema_command.schema)
app.add_typer(map_command.app, name="map")
app.add_typer(boards_command.app, name="boards")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"edgeplace {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _root(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and debug logs."),
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING,
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code (the console script hands it to the shell)."""
    output.ready_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if debug:  # accepted anywhere on the line, the group option wants it first
        arguments = ["--debug", *(a for a in arguments if a != "--debug")]
    try:
        result = app(arguments, prog_name="edgeplace", standalone_mode=False)
        with output.printing():
            pass
        if result == EXIT_INTERRUPTED:  # what newer typers make of Ctrl-C
            raise KeyboardInterrupt
        return result if isinstance(result, int) else EXIT_OK
    except typer.Exit as request:
        return request.exit_code
    except _USAGE_ERROR as error:
        return _explain(getattr(error, "format_message", error.__str__)() or "no command", "", EXIT_BAD_INPUT)
    except EdgePlaceError as error:
        if debug:
            traceback.print_exc()
        return _explain(str(error), error.hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _explain("interrupted", "", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # `edgeplace ... | head`: the reader has gone, and that is fine.
        output.silence_stdout()
        return EXIT_ERROR
    except Exception as error:  # noqa: BLE001 - the last handler: nothing may reach the user as a bare traceback
        if debug:
            traceback.print_exc()
        return _explain(
            f"this is a bug in edgeplace: {type(error).__name__}: {error}",
            "run the same command with --debug and report what it prints",
            EXIT_BUG,
        )


def _explain(message: str, hint: str, code: int) -> int:
    kind = "" if code == EXIT_INTERRUPTED else "error: "
    sys.stderr.write(f"edgeplace: {kind}{printable(message)}\n")
    if hint:
        sys.stderr.write(f"  try: {printable(hint)}\n")
    return code

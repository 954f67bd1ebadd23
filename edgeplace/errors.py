"""The error tree, split by who must act.

Every error a user can see is an :class:`EdgePlaceError`. It says *what* went wrong, *where* (file and line when
there is one), *why*, and *what to do next* (``hint``). Only ``edgeplace.cli`` prints errors and picks exit codes.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_CHECK_FAILED = 3
EXIT_ROLLED_BACK = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class EdgePlaceError(Exception):
    """An explained error: the work could not be done, and the message says why.

    Attributes:
        hint: What the user can do next, or an empty string.
        where: The file (with ``:line`` when known), host or platform the error is about, or an empty string.
    """

    exit_code = EXIT_ERROR

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class InputError(EdgePlaceError):
    """What the user gave is wrong (exit code 2)."""

    exit_code = EXIT_BAD_INPUT


class ModelError(InputError):
    """A ``.tflite`` file that cannot be read or used."""


class ProfileError(InputError):
    """A board profile, delegate map or other YAML file that is not valid."""


class UnknownNameError(InputError):
    """A name that is on no list; the hint carries the nearest right one."""


class LinkError(EdgePlaceError):
    """The way to the board does not work (connection refused, host key, authentication, broken pipe)."""


class AgentError(EdgePlaceError):
    """The agent on the board answered, and the answer was an error of its own (not a failed measurement)."""


class StoreError(EdgePlaceError):
    """The record of measurements cannot be read or written."""


class OutputError(EdgePlaceError):
    """A result could not be written; nothing half-written is left behind."""


class NoFeasiblePlacementError(EdgePlaceError):
    """No placement of this model runs and gives right outputs on this board."""


class CheckFailedError(EdgePlaceError):
    """A check that the user asked for does not hold (exit code 3)."""

    exit_code = EXIT_CHECK_FAILED

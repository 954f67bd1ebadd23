"""The user's own folders. A user without a home folder is told so, and how to name the folder by hand."""

from __future__ import annotations

import os
from pathlib import Path

from edgeplace.errors import EdgePlaceError


class NoHomeFolderError(EdgePlaceError):
    """The user has no home folder: an unknown user id in a container, with ``HOME`` not set."""


def home_folder() -> Path:
    """The user's home folder.

    Raises:
        NoHomeFolderError: The user has none.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise NoHomeFolderError(
            "this user has no home folder", hint="set HOME to a folder you may write"
        ) from error


def xdg_folder(variable: str, below_home: str) -> Path:
    """The folder that an ``XDG_..._HOME`` variable names, else the usual one below the home folder.

    Raises:
        NoHomeFolderError: The variable is not set and the user has no home folder.
    """
    named = os.environ.get(variable, "")
    return Path(named) if named else home_folder() / below_home


def expand_home(path: str | Path) -> Path:
    """``path`` with a leading ``~`` or ``~user`` replaced by that home folder.

    Raises:
        NoHomeFolderError: That user, or that user's home folder, is not known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise NoHomeFolderError(
            "the home folder it begins with is not known", where=str(path), hint="write the path out"
        ) from error

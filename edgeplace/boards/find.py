"""Where board profiles are found, and how a board is loaded."""

from __future__ import annotations

import contextlib
import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgeplace.boards.address import parse_address
from edgeplace.boards.overrides import choose_platforms, override_value
from edgeplace.boards.profile import BoardProfile
from edgeplace.errors import InputError, ProfileError, UnknownNameError
from edgeplace.registry import nearest_name_hint
from edgeplace.schema import Document, merge_values, read_document, read_text, validate_document
from edgeplace.user_folders import NoHomeFolderError, xdg_folder

GENERIC_BOARD = "linux"
"""The profile that ``ssh://user@host`` takes its platforms from."""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A profile that was found: its file, and what it says or why it cannot be read."""

    name: str
    path: Path
    profile: BoardProfile | None
    problem: str = ""


def profile_folders(boards_dirs: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where profiles are looked for, first hit first: the given folders, the user's own, the packaged ones."""
    own: tuple[Path, ...] = ()
    with contextlib.suppress(NoHomeFolderError):
        own = (xdg_folder("XDG_CONFIG_HOME", ".config") / "edgeplace" / "boards",)
    return (*boards_dirs, *own, _packaged_folder())


def _packaged_folder() -> Path:
    """``edgeplace/_boards`` of an installed wheel, else ``boards/`` beside the package of a checkout."""
    package = Path(str(importlib.resources.files("edgeplace")))
    installed = package / "_boards"
    return installed if installed.is_dir() else package.parent / "boards"


def list_boards(boards_dirs: Sequence[Path] = ()) -> tuple[BoardEntry, ...]:
    """Every profile that ``--board`` can name, by name; one that cannot be read says why.

    Raises:
        InputError: One of ``boards_dirs`` is not a folder.
    """
    entries: list[BoardEntry] = []
    for name, path in sorted(_profile_files(boards_dirs).items()):
        try:
            entries.append(BoardEntry(name, path, _load_file(path, boards_dirs)))
        except (ProfileError, UnknownNameError) as error:
            entries.append(BoardEntry(name, path, None, str(error)))
    return tuple(entries)


def load_board(
    name_or_address: str,
    boards_dirs: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    platforms: Sequence[str] = (),
) -> BoardProfile:
    """The board that ``--board``, ``--set`` and ``--platform`` describe.

    Args:
        name_or_address: A profile's name, or ``ssh://[user@]host[:port]`` for a Linux host without a profile.
        boards_dirs: Folders to look in first.
        overrides: ``path.to.value=text`` each, applied in order.
        platforms: ``NAME`` each keeps only the platforms named; ``NAME=FORM...`` adds one (:func:`parse_platform`).

    Raises:
        UnknownNameError: No such board, platform or form.
        ProfileError: The profile, or what ``overrides`` and ``platforms`` make of it, is not valid.
        InputError: A folder, an address or an option's text is wrong.
    """
    if "://" in name_or_address:
        board = _unknown_host(name_or_address, boards_dirs)
    else:
        board = _load_file(_find(name_or_address, boards_dirs), boards_dirs)
    for text in overrides:
        board = override_value(board, text)
    if not board.address:
        raise ProfileError(
            f"board {board.name} has no address: it is there to be extended",
            where=board.where(),
            hint="--set address=ssh://user@host, or give ssh://user@host:port as the board",
        )
    return choose_platforms(board, platforms) if platforms else board


def _profile_files(boards_dirs: Sequence[Path]) -> dict[str, Path]:
    """Profile name -> the file that counts."""
    for folder in boards_dirs:
        if not folder.is_dir():
            raise InputError("is not a folder of board profiles", where=str(folder))
    files: dict[str, Path] = {}
    for folder in profile_folders(boards_dirs):
        for path in sorted(folder.glob("*.yaml")):
            files.setdefault(path.stem, path)
    return files


def _find(name: str, boards_dirs: Sequence[Path]) -> Path:
    files = _profile_files(boards_dirs)
    if name not in files:
        hint = nearest_name_hint(name, files)
        raise UnknownNameError(f"no board named '{name}'", hint=f"{hint}; or give ssh://user@host:port")
    return files[name]


def _load_file(path: Path, boards_dirs: Sequence[Path]) -> BoardProfile:
    document = read_document(read_text(path), str(path))
    base_name = document.value.get("extends") if isinstance(document.value, dict) else None
    if isinstance(base_name, str) and base_name:
        document = _extend(document, base_name, boards_dirs)
    board = validate_document(BoardProfile, document)
    if board.name != path.stem:
        raise ProfileError(
            f"the name is '{board.name}', but the file is called {path.name}", where=document.where("name")
        )
    return board


def _extend(document: Document, base_name: str, boards_dirs: Sequence[Path]) -> Document:
    """The document with what it does not say itself taken from the profile it extends."""
    assert isinstance(document.value, dict)
    where = document.where("extends")
    files = _profile_files(boards_dirs)
    if base_name not in files:
        raise ProfileError(
            f"extends '{base_name}', and there is no such board",
            where=where,
            hint=nearest_name_hint(base_name, files),
        )
    base_document = read_document(read_text(files[base_name]), str(files[base_name]))
    if isinstance(base_document.value, dict) and base_document.value.get("extends"):
        raise ProfileError(
            f"extends '{base_name}', which extends another board itself; one level only", where=where
        )
    base = validate_document(BoardProfile, base_document)
    inherited = base.model_dump(exclude_defaults=True, include={"ssh", "agent", "platforms"})
    # An entry that says what it is stands for itself; one that does not changes the one taken over.
    own = document.value.get("platforms")
    if isinstance(own, dict):
        complete = {name for name, entry in own.items() if isinstance(entry, dict) and "kind" in entry}
        kept = {name: entry for name, entry in inherited["platforms"].items() if name not in complete}
        inherited = {**inherited, "platforms": kept}
    return replace(document, value=merge_values(inherited, document.value))


def _unknown_host(text: str, boards_dirs: Sequence[Path]) -> BoardProfile:
    """A board for a Linux host of which only the address is known."""
    address = parse_address(text)
    generic = _load_file(_find(GENERIC_BOARD, boards_dirs), boards_dirs)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address.host).strip("-.") or "host"
    return generic.model_copy(update={"name": name, "title": text, "address": text})

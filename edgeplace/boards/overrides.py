"""What ``--set`` and ``--platform`` change in a profile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgeplace.boards.profile import NAME_PATTERN, BoardProfile, PlatformProfile
from edgeplace.errors import InputError, UnknownNameError
from edgeplace.registry import nearest_name_hint
from edgeplace.schema import merge_values, read_document, validate_value


def override_value(board: BoardProfile, text: str) -> BoardProfile:
    """The board after ``--set path.to.value=text``."""
    source = f"--set {text}"
    path, equals, value_text = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(
            "is not path.to.value=value", where=source, hint="--set platforms.cpu.options.threads=2"
        )
    if keys[0] == "platforms" and len(keys) > 1:
        board.platform(keys[1])
    value: Any = read_document(value_text, source).value if value_text.strip() else ""
    for key in reversed(keys):
        value = {key: value}
    return validate_value(BoardProfile, merge_values(board.model_dump(exclude_defaults=True), value), source)


def _plain(board: BoardProfile) -> dict[str, Any]:
    return board.model_dump(exclude_defaults=True)


def choose_platforms(board: BoardProfile, texts: Sequence[str]) -> BoardProfile:
    """Add the platforms with ``=``; when some are named without, keep only those and the added ones."""
    offered = dict(board.platforms)
    wanted: list[str] = []
    kept: list[str] = []
    for text in texts:
        name, equals, _ = text.partition("=")
        if equals:
            added_name, platform = parse_platform(text, board)
            offered[added_name] = platform
        else:
            board.platform(name)
            kept.append(name)
        wanted.append(name)
    names = dict.fromkeys(wanted) if kept else dict.fromkeys([*offered, *wanted])
    return board.model_copy(update={"platforms": {name: offered[name] for name in names}})


PLATFORM_FORMS: Mapping[str, Mapping[str, Any]] = {
    "delegate": {"kind": "delegate", "loader": "interpreter"},
    "tflite_c": {"kind": "cpu", "loader": "tflite_c"},
}
"""What ``--platform NAME=FORM:/path/lib.so`` can be: form -> what the platform begins with."""


def parse_platform(text: str, board: BoardProfile) -> tuple[str, PlatformProfile]:
    """The platform that ``--platform NAME=FORM`` describes.

    ======================================  =================================================================
    ``my=delegate:/path/lib.so,key=value``  an external delegate, and its options
    ``c1=tflite_c:/path/lib.so,threads=1``  a TFLite C library (without a path, the one that is found), and options
    ``cpu2=cpu,threads=2``                  a platform of this board with other options of the loader
    ======================================  =================================================================

    Raises:
        UnknownNameError: The form, or the platform it starts from, does not exist.
        ProfileError: The platform is not valid.
        InputError: The text is not written like that.
    """
    source = f"--platform {text}"
    name, _, rest = text.partition("=")
    if not re.match(NAME_PATTERN, name):
        raise InputError(f"'{name}' is not a name (letters, digits, '-' and '_')", where=source)
    head, *pairs = rest.split(",")
    form, colon, library = head.partition(":")
    options = _parse_pairs(pairs, source)
    if not colon:
        if form not in board.platforms:
            hint = nearest_name_hint(form, board.platforms)
            raise UnknownNameError(
                f"board {board.name} has no platform named '{form}' to start from",
                where=source,
                hint=hint if hint.startswith("did") else f"{hint}; or write {name}=delegate:/path/lib.so",
            )
        plain = board.platforms[form].model_dump(exclude_defaults=True)
        return name, validate_value(PlatformProfile, merge_values(plain, {"options": options}), source)
    if form not in PLATFORM_FORMS:
        raise UnknownNameError(
            f"'{form}' is no form of a platform", where=source, hint=nearest_name_hint(form, PLATFORM_FORMS)
        )
    if not library and form == "delegate":
        raise InputError(f"the path of the library is missing after '{form}:'", where=source)
    key = "library_options" if form == "delegate" else "options"
    plain = {**PLATFORM_FORMS[form], "library": library, key: options}
    return name, validate_value(PlatformProfile, plain, source)


def _parse_pairs(pairs: Sequence[str], source: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"'{pair}' is not key=value", where=source)
        if key in options:
            raise InputError(f"'{key}' is given twice", where=source)
        options[key] = read_document(value, source).value if value.strip() else ""
    return options

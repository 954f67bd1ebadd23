"""Board profiles: what a board offers, where it is, and where its profile is found.

A profile is one YAML file. Hardware facts stand in the file, behaviour does not: to add a board is to add a file.
``docs/adding-a-board.md`` walks through one.
"""

from edgeplace.boards.address import Address, parse_address
from edgeplace.boards.find import (
    GENERIC_BOARD,
    BoardEntry,
    list_boards,
    load_board,
    profile_folders,
)
from edgeplace.boards.overrides import parse_platform
from edgeplace.boards.profile import (
    NAME_PATTERN,
    AgentSettings,
    BoardProfile,
    PlatformProfile,
    PlatformSpec,
    SshSettings,
)
from edgeplace.boards.wire import platform_spec, resolve_options, spec_from_wire

__all__ = [
    "GENERIC_BOARD",
    "NAME_PATTERN",
    "Address",
    "AgentSettings",
    "BoardEntry",
    "BoardProfile",
    "PlatformProfile",
    "PlatformSpec",
    "SshSettings",
    "list_boards",
    "load_board",
    "parse_address",
    "parse_platform",
    "platform_spec",
    "profile_folders",
    "resolve_options",
    "spec_from_wire",
]

"""What a board profile says (``format: edgeplace/board@1``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from edgeplace.boards.address import parse_address
from edgeplace.errors import InputError, UnknownNameError
from edgeplace.registry import nearest_name_hint
from edgeplace.schema import Field, FrozenModel, Scalar, field_validator, model_validator

LOCAL = "local"
"""The address of this machine: the agent is a child process."""
CORES = "cores"
"""As the value of option ``threads``: one thread for each core of the board."""
MAX_THREADS = 1024
"""The agent refuses more."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*\Z"
BOARD_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

LOADER_OPTIONS: Mapping[str, Mapping[str, type | tuple[str, ...]]] = {
    "interpreter": {"threads": int, "kernels": ("xnnpack", "builtin", "reference")},
    "compiled_model": {
        "accelerator": ("cpu", "gpu", "npu"),
        "fallback": bool,
        "threads": int,
        "openvino_libs": str,
    },
    "tflite_c": {"threads": int, "xnnpack": bool, "delegate": str},
}
"""The options of each loader of ``device_agents/runtimes``, with their type or their values."""
OPEN_LOADERS = frozenset({"compiled_model"})
"""These take more options than we name: the fields of the vendors' own option classes. The agent refuses wrong ones."""


class PlatformSpec(FrozenModel):
    """A platform: a runtime, a delegate or accelerator, and their options.

    Attributes:
        kind: What computes. ``delegate`` is an external delegate of which nothing more is known.
        loader: How it is opened: the runtime's interpreter, LiteRT's CompiledModel, or the TFLite C library.
        runtime: ``litert``, ``tflite``, or empty for whichever the board has.
        options: Options of the loader; ``threads: cores`` means one for each core.
        library: Path of the external delegate on the board (``interpreter``), or of the C library (``tflite_c``,
            empty for the one that is found; its external delegate is option ``delegate``).
        library_options: Options handed to the external delegate, as text.
        env: Environment variables of the process that uses the platform.
        preload: Shared libraries to load first, in order.
    """

    kind: Literal["cpu", "gpu", "npu", "edgetpu", "delegate"]
    loader: Literal["interpreter", "compiled_model", "tflite_c"]
    runtime: Literal["litert", "tflite", ""] = ""
    options: dict[str, Scalar] = Field(default_factory=dict)
    library: str = ""
    library_options: dict[str, Scalar] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    preload: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> PlatformSpec:
        if self.kind == "delegate" and not self.library:
            raise ValueError("kind 'delegate' needs 'library', the path of the delegate's .so")
        if self.loader == "compiled_model" and self.runtime == "tflite":
            raise ValueError("CompiledModel is part of runtime 'litert'")
        if self.loader == "compiled_model" and self.kind not in ("cpu", "gpu", "npu"):
            raise ValueError(f"CompiledModel runs cpu, gpu and npu, not {self.kind}")
        if self.loader == "compiled_model" and self.library:
            raise ValueError("CompiledModel takes no external delegate")
        delegate = self.options.get("delegate") if self.loader == "tflite_c" else self.library
        if self.library_options and not delegate:
            raise ValueError("'library_options' are options of an external delegate, and none is given")
        known = LOADER_OPTIONS[self.loader]
        for name, value in self.options.items():
            if name not in known and self.loader in OPEN_LOADERS:
                continue
            if name not in known:
                raise ValueError(
                    f"'{name}' is not an option of {self.loader}; {nearest_name_hint(name, known)}"
                )
            _check_option(name, value, known[name])
        return self


def _check_option(name: str, value: Scalar, wanted: type | tuple[str, ...]) -> None:
    if isinstance(wanted, tuple):
        if value not in wanted:
            raise ValueError(f"option '{name}' is one of {', '.join(wanted)}, not '{value}'")
    elif wanted is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value != CORES and not (whole and 1 <= int(value) <= MAX_THREADS):
            raise ValueError(
                f"option '{name}' is a whole number from 1 to {MAX_THREADS}, or '{CORES}', not '{str(value)[:40]}'"
            )
    elif not isinstance(value, wanted):
        raise ValueError(f"option '{name}' is {'text' if wanted is str else 'true or false'}, not '{value}'")


class PlatformProfile(PlatformSpec):
    """A platform of a board profile: its spec and what is known about it.

    Attributes:
        verified: The entry was run on the real hardware.
        notes: What a person should know: limits, traps, where the facts are from.
    """

    verified: bool = False
    notes: str = ""


class SshSettings(FrozenModel):
    """How to log in. There is no password: keys and the ssh agent only.

    Attributes:
        user: Empty for the name of the one who runs EdgePlace.
        identity_file: Private key; empty for the ssh agent and the usual keys.
        known_hosts: File of trusted host keys; empty for the usual one.
    """

    user: str = ""
    port: int = Field(default=22, ge=1, le=65535)
    identity_file: str = ""
    known_hosts: str = ""


class AgentSettings(FrozenModel):
    """The agent on the board.

    Attributes:
        python: The Python to run it with; empty for ``python3`` (on ``local``, the one EdgePlace runs in).
        root: The one folder it writes to; empty for its own choice.
    """

    python: str = ""
    root: str = ""


class BoardProfile(FrozenModel):
    """A board: where it is and which platforms it offers.

    Attributes:
        name: What ``--board`` calls it; the file is called ``NAME.yaml``.
        title: What people call it.
        address: ``local``, or ``ssh://[user@]host[:port]``; empty in a profile that is only there to be extended.
        extends: Another profile whose ``ssh``, ``agent`` and ``platforms`` this one changes or adds to; one level.
        platforms: Platform name -> what it is, in the order of preference at equal speed.
    """

    format: Literal["edgeplace/board@1"]
    name: str = Field(pattern=BOARD_NAME_PATTERN)
    title: str = ""
    address: str = ""
    extends: str = ""
    ssh: SshSettings = SshSettings()
    agent: AgentSettings = AgentSettings()
    platforms: dict[str, PlatformProfile] = Field(default_factory=dict, validate_default=True)

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value not in ("", LOCAL):
            try:
                parse_address(value)
            except InputError as error:
                raise ValueError(error.message) from None
        return value

    @field_validator("platforms")
    @classmethod
    def _platforms_are_named(cls, value: dict[str, PlatformProfile]) -> dict[str, PlatformProfile]:
        if not value:
            raise ValueError("there is none")
        for name in value:
            if not re.match(NAME_PATTERN, name):
                raise ValueError(f"'{name}' is not a name (letters, digits, '-' and '_')")
        return value

    def platform(self, name: str) -> PlatformProfile:
        """The platform called ``name``.

        Raises:
            UnknownNameError: This board has no such platform.
        """
        if name not in self.platforms:
            raise UnknownNameError(
                f"board {self.name} has no platform named '{name}'",
                hint=nearest_name_hint(name, self.platforms),
            )
        return self.platforms[name]

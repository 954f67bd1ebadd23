"""A platform as it goes over the wire to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeplace.boards.profile import CORES, PlatformSpec
from edgeplace.schema import Scalar, validate_value


def platform_spec(name: str, platform: PlatformSpec, cpu_count: int = 1) -> dict[str, Any]:
    """The platform as the agent takes it (``device_agents/protocol.py``).

    Args:
        name: What the board calls it.
        platform: Its entry in the profile or the map.
        cpu_count: Cores of the board (the agent's ``hello`` says), for ``threads: cores``.
    """
    return {
        "name": name,
        "kind": platform.kind,
        "loader": platform.loader,
        "runtime": platform.runtime,
        "options": resolve_options(platform.options, cpu_count),
        "library": platform.library,
        "library_options": {key: _option_text(value) for key, value in platform.library_options.items()},
        "env": dict(platform.env),
        "preload": list(platform.preload),
    }


def spec_from_wire(wire: Mapping[str, Any]) -> PlatformSpec:
    """The reverse of :func:`platform_spec`: what a map keeps of a platform that was measured."""
    plain = {key: value for key, value in wire.items() if key != "name" and value}
    if "preload" in plain:
        plain["preload"] = tuple(plain["preload"])
    return validate_value(PlatformSpec, plain, f"platform {wire.get('name', '')}")


def resolve_options(options: Mapping[str, Scalar], cpu_count: int) -> dict[str, Scalar]:
    """Options with ``cores`` replaced by the number of cores."""
    return {key: cpu_count if value == CORES else value for key, value in options.items()}


def _option_text(value: Scalar) -> str:
    """How a delegate's option reads as text: as it would in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)

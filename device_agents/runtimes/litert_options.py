"""From the options of a platform to LiteRT's option classes, by the names of their fields."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Mapping
from typing import Any, Optional

from device_agents.protocol import RequestError
from device_agents.runtimes.option_values import as_flag, as_threads

OWN_OPTIONS = ("accelerator", "fallback", "threads", "openvino_libs")
"""Options that are ours, not fields of a LiteRT class."""

_GROUPS = {
    "gpu": ("gpu_options",),
    "npu": ("intel_openvino_options", "qualcomm_options"),
    "cpu": ("cpu_options",),
}


def compile_options(module: Any, accelerator: str, accelerators: Any, given: Mapping[str, Any]) -> Any:
    """LiteRT's ``Options`` for one compilation.

    Args:
        module: ``ai_edge_litert.compiled_model``.
        accelerator: ``gpu``, ``npu`` or ``cpu``: whose option class the names belong to.
        accelerators: The flags to compile for.
        given: The platform's options.

    Raises:
        RequestError: No option class of this accelerator has such a field, or the value does not fit it.
    """
    options = module.Options(
        hardware_accelerators=accelerators,
        cpu_options=module.CpuOptions(num_threads=as_threads("threads", given.get("threads", 1))),
    )
    wanted = {key: value for key, value in given.items() if key not in OWN_OPTIONS}
    if wanted:
        _fill(_group_with(options, accelerator, set(wanted)), wanted)
    return options


def _group_with(options: Any, accelerator: str, names: set[str]) -> Any:
    known: set[str] = set()
    for attribute in _GROUPS[accelerator]:
        group = getattr(
            options.create(), attribute, None
        )  # reading the attribute creates the group: not in `options`
        if group is None:
            continue
        fields = {field.name for field in dataclasses.fields(group)}
        if names <= fields:
            return getattr(options, attribute)
        known |= fields
    unknown = ", ".join(sorted(names - known) or sorted(names))
    raise RequestError(
        f"LiteRT's {accelerator} has no option {unknown}; it has {', '.join(sorted(known)) or 'none'}"
    )


def _fill(group: Any, wanted: Mapping[str, Any]) -> None:
    hints = typing.get_type_hints(type(group))
    for name, value in wanted.items():
        hint = hints.get(name)
        member_class = _enumeration(hint)
        if member_class is not None and isinstance(value, str):
            try:
                value = member_class[value.upper()]
            except KeyError:
                raise RequestError(
                    f"option {name} is {value!r}, not one of {', '.join(member_class.__members__)}"
                ) from None
        elif hint is bool or bool in typing.get_args(hint):
            value = as_flag(name, value)
        setattr(group, name, value)


def _enumeration(hint: Any) -> Optional[type[enum.Enum]]:
    for candidate in (hint, *typing.get_args(hint)):
        if isinstance(candidate, type) and issubclass(candidate, enum.Enum):
            return candidate
    return None

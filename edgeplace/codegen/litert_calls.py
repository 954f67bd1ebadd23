"""LiteRT's option classes as Python source: which class has which option, and which values are enumerations.

Facts of ``ai_edge_litert.compiled_model`` 2.3.0. The agent looks fields up in the installed package
(``device_agents/runtimes/litert_options.py``); generated code has to name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeplace.boards import PlatformSpec
from edgeplace.codegen.base import python_literal
from edgeplace.errors import InputError
from edgeplace.registry import nearest_name_hint
from edgeplace.schema import Scalar

OWN_OPTIONS = frozenset({"accelerator", "fallback", "threads", "openvino_libs"})
"""Options of the loader that are no fields of a LiteRT class."""


@dataclass(frozen=True)
class OptionClass:
    """One of LiteRT's option classes.

    Attributes:
        argument: The argument of ``Options`` that takes it.
        fields: Its fields.
        enumerations: Those whose value is a member of ``NAME.FIELD``.
    """

    name: str
    argument: str
    fields: frozenset[str]
    enumerations: frozenset[str] = frozenset()


_CLASSES: Mapping[str, tuple[OptionClass, ...]] = {
    "cpu": (
        OptionClass(
            "CpuOptions",
            "cpu_options",
            frozenset({"enable_ynnpack", "xnnpack_flags", "xnnpack_weight_cache_path"}),
        ),
    ),
    "gpu": (
        OptionClass(
            "GpuOptions",
            "gpu_options",
            frozenset(
                {
                    "enforce_f32",
                    "constant_tensor_sharing",
                    "infinite_float_capping",
                    "benchmark_mode",
                    "allow_src_quantized_fc_conv_ops",
                    "hint_waiting_for_completion",
                }
            ),
        ),
    ),
    "npu": (
        OptionClass(
            "IntelOpenVinoOptions",
            "intel_openvino_options",
            frozenset({"graph_backend", "performance_mode", "enable_weight_sharing"}),
            frozenset({"graph_backend", "performance_mode"}),
        ),
        OptionClass(
            "QualcommOptions",
            "qualcomm_options",
            frozenset(
                {
                    "log_level",
                    "htp_performance_mode",
                    "dsp_performance_mode",
                    "use_int64_bias_as_int32",
                    "enable_weight_sharing",
                    "use_conv_hmx",
                    "use_fold_relu",
                    "profiling",
                    "ir_json_dir",
                    "dlc_dir",
                    "vtcm_size",
                    "num_hvx_threads",
                    "optimization_level",
                    "graph_priority",
                    "backend",
                    "saver_output_dir",
                    "graph_io_tensor_mem_type",
                }
            ),
            frozenset(
                {
                    "log_level",
                    "htp_performance_mode",
                    "dsp_performance_mode",
                    "profiling",
                    "optimization_level",
                    "graph_priority",
                    "backend",
                    "graph_io_tensor_mem_type",
                }
            ),
        ),
    ),
}


def accelerator_of(spec: PlatformSpec) -> str:
    """``cpu``, ``gpu`` or ``npu``: the option ``accelerator``, else the platform's kind."""
    return str(spec.options.get("accelerator", spec.kind))


def options_arguments(name: str, spec: PlatformSpec) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """The arguments of LiteRT's ``Options`` besides the accelerators: keyword, class, what stands in its brackets.

    In the source, LiteRT's module is called ``litert``.

    Args:
        name: The platform's name, for messages.

    Raises:
        InputError: LiteRT has no such option.
    """
    accelerator = accelerator_of(spec)
    threads = int(spec.options.get("threads", 1))
    given = {key: value for key, value in spec.options.items() if key not in OWN_OPTIONS}
    if accelerator == "cpu":
        fields = _fields(_find(name, "cpu", given), given)
        return (("cpu_options", "litert.CpuOptions", (f"num_threads={threads}", *fields)),)
    arguments: list[tuple[str, str, tuple[str, ...]]] = [
        ("cpu_options", "litert.CpuOptions", (f"num_threads={threads}",))
    ]
    if given:
        found = _find(name, accelerator, given)
        arguments.append((found.argument, f"litert.{found.name}", _fields(found, given)))
    return tuple(arguments)


def _find(name: str, accelerator: str, given: Mapping[str, Scalar]) -> OptionClass:
    for found in _CLASSES[accelerator]:
        if given.keys() <= found.fields:
            return found
    known = {field for found in _CLASSES[accelerator] for field in found.fields}
    wrong = next((key for key in given if key not in known), next(iter(given)))
    raise InputError(
        f"platform {name}: LiteRT's {accelerator} has no option '{wrong}'",
        hint=nearest_name_hint(wrong, known),
    )


def _fields(found: OptionClass, given: Mapping[str, Scalar]) -> tuple[str, ...]:
    parts = []
    for key, value in given.items():
        if key in found.enumerations and isinstance(value, str):
            member = value.upper()
            if not member.isidentifier():
                raise InputError(f"option '{key}': '{value}' is no member of an enumeration")
            parts.append(f"{key}=litert.{found.name}.{key.upper()}.{member}")
        else:
            parts.append(f"{key}={python_literal(value)}")
    return tuple(parts)

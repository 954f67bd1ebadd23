"""LiteRT's CompiledModel: GPU and NPU accelerators (and its CPU, for comparison).

Options of a platform with this loader:

* ``accelerator``: ``gpu``, ``npu`` or ``cpu`` (the platform's kind).
* ``fallback``: let the CPU take what the accelerator does not (false). Such a session says ``accelerated`` false
  when the CPU was needed.
* ``threads``: threads of the CPU part (1).
* ``openvino_libs``: folder with OpenVINO's libraries when they are not in the installed package.
* every field of LiteRT's own option class of that accelerator, by its name: ``GpuOptions`` (``enforce_f32``, ...),
  ``IntelOpenVinoOptions`` (``graph_backend: CPU``, ...), ``QualcommOptions``. Enumerations by their member's name.

Three habits of the library decide how this is written. It runs asynchronously, so a run ends when every output has been
read. ``is_fully_accelerated`` is true for a compilation that went to the CPU as a whole, so fallback is only allowed
after the accelerator alone has refused. And exceptions carry no reason, so it is taken from standard error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, Optional

import numpy as np

from device_agents.protocol import RequestError
from device_agents.runtimes.environment import accelerator_of, openvino_gap
from device_agents.runtimes.failure_text import captured_stderr, classify, reason
from device_agents.runtimes.litert_options import compile_options
from device_agents.runtimes.model_facts import ModelFacts
from device_agents.runtimes.option_values import as_flag
from device_agents.runtimes.session import (
    Progress,
    Session,
    StageError,
    TensorSpec,
    check_arrays,
    preparing,
    wanted_shape,
)

ACCELERATORS = ("gpu", "npu", "cpu")

_HOST_MEMORY = [1]
"""Buffer types of a tensor that only host memory can hold; an NPU's tensors always have others too."""
_ADAPTER = re.compile(r"Selected adapter: ([^,\n]+)")
_OPERATOR_NUMBER = re.compile(r"op type (\d+)")
_NO_ADAPTER = "No adapters found"
_NATIVE_DTYPES = frozenset(("float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool"))

_shared: dict[str, Any] = {}
"""What the process has once: LiteRT's ``environment``, and the GPU ``adapter`` it chose."""


def _litert() -> Any:
    try:
        from ai_edge_litert import compiled_model
    except ImportError as error:
        raise StageError("compile_failed", f"ai-edge-litert is needed: {error}", "compile") from None
    return compiled_model


def _environment(module: Any) -> Any:
    """One LiteRT environment for the process: accelerators register in it once."""
    if "environment" not in _shared:
        _shared["environment"] = module.Environment.create()
    return _shared["environment"]


class CompiledModelSession(Session):
    """A file compiled by LiteRT for an accelerator."""

    def __init__(
        self,
        platform: dict[str, Any],
        model_path: str,
        facts: ModelFacts,
        input_shapes: Optional[dict[str, Sequence[int]]],
        progress: Progress,
    ) -> None:
        super().__init__(platform, model_path, facts)
        self._litert = _litert()
        self._accelerator = accelerator_of(platform)
        self._options = dict(platform.get("options") or {})
        self._input_shapes = input_shapes
        if self._accelerator not in ACCELERATORS:
            raise RequestError(f"LiteRT has no accelerator {self._accelerator!r}")
        with preparing(self):
            self._open(progress)

    def _open(self, progress: Progress) -> None:
        self._model, fell_back = self._compile()
        self._signature = next(iter(self._model.get_signature_list()))
        progress("prepare")
        with captured_stderr() as chatter:
            try:
                self._find_tensors()
                self._resize_as_asked()
                self._make_buffers()
            except RuntimeError as error:
                raise _refusal(error, chatter.text, "prepare", "prepare_failed") from None
        self._describe(fell_back)

    def _compile(self) -> tuple[Any, bool]:
        """The model, and whether the CPU had to help; then ``details["refused"]`` says why."""
        flags = self._litert.HardwareAccelerator
        alone = flags[self._accelerator.upper()]
        try:
            return self._compile_for(alone), False
        except StageError as error:
            if alone == flags.CPU or not as_flag("fallback", self._options.get("fallback", False)):
                raise
            self.details["refused"] = error.message
        return self._compile_for(alone | flags.CPU), True

    def _compile_for(self, accelerators: Any) -> Any:
        options = compile_options(self._litert, self._accelerator, accelerators, self._options)
        failure: Optional[Exception] = None
        model: Any = None
        with captured_stderr() as chatter:
            try:
                model = self._litert.CompiledModel.from_file(
                    self.model_path, environment=_environment(self._litert), options=options
                )
            except RuntimeError as error:
                failure = error
        adapter = _ADAPTER.search(chatter.text)
        if adapter:
            _shared["adapter"] = adapter.group(1)
        if failure is not None:
            raise self._compile_refusal(failure, chatter.text)
        return model

    def _compile_refusal(self, error: Exception, chatter: str) -> StageError:
        gap = openvino_gap(self._options.get("openvino_libs")) if self._accelerator == "npu" else ""
        if gap:
            return StageError("compile_failed", gap, "compile")
        if _NO_ADAPTER in chatter:
            advice = "no usable GPU: LiteRT needs a Vulkan driver that Dawn accepts (Debian: chromium has SwiftShader)"
            return StageError("compile_failed", f"{advice}; {reason(error, chatter)}", "compile")
        return _refusal(error, _with_names(chatter), "compile", "compile_failed")

    def _find_tensors(self) -> None:
        """Details of inputs and outputs in the order of the subgraph, and the way from there to the signature's."""
        inputs = list(self._model.get_input_tensor_details(self._signature).values())
        outputs = list(self._model.get_output_tensor_details(self._signature).values())
        self._input_order = _positions(self.facts.inputs, inputs, "input")
        self._output_order = _positions(self.facts.outputs, outputs, "output")
        self.inputs = tuple(_spec(inputs[place]) for place in self._input_order)
        self.outputs = tuple(_spec(outputs[place]) for place in self._output_order)

    def _resize_as_asked(self) -> None:
        resized = False
        for number, (spec, place) in enumerate(zip(self.inputs, self._input_order)):
            shape = wanted_shape(self._input_shapes, spec.name, self.facts.inputs[number])
            if shape is not None and shape != spec.shape:
                self._model.resize_input_tensor(place, shape, 0, False)
                resized = True
        if resized:
            self._find_tensors()

    def _make_buffers(self) -> None:
        """Buffers for one run, and the native calls that fill, run and read them, bound to their arguments."""
        from ai_edge_litert import tensor_buffer

        native = tensor_buffer._tb  # the public read makes a new array each time, and refuses 64-bit integers
        self._in_buffers = self._model.create_input_buffers(0)
        self._out_buffers = self._model.create_output_buffers(0)
        self._results = [np.zeros(spec.shape, dtype=spec.dtype) for spec in self.outputs]
        self._writers: list[tuple[Callable[..., None], str, tuple[int, ...], Any]] = []
        for spec, place in zip(self.inputs, self._input_order):
            write = partial(native.WriteTensorBuffer, self._in_buffers[place].capsule)
            self._writers.append((write, _wire_type(spec.dtype), spec.shape, np.dtype(spec.dtype)))
        self._readers: list[Callable[[], None]] = []
        for spec, place, result in zip(self.outputs, self._output_order, self._results):
            wire = _wire_type(spec.dtype)
            target = result.reshape(-1) if wire == spec.dtype else result.reshape(-1).view(np.uint8)
            if target.size:
                capsule = self._out_buffers[place].capsule
                self._readers.append(partial(native.ReadTensorToBuffer, capsule, target, wire))
        self._run_native = partial(self._model.run_by_index, 0, self._in_buffers, self._out_buffers)

    def _describe(self, fell_back: bool) -> None:
        total = self.facts.node_count
        self.nodes = {"total": total}
        full = bool(self._model.is_fully_accelerated())
        if self._accelerator == "cpu":
            self.ran_on = "litert cpu"
            return
        self.accelerated = full and not fell_back and not self._host_only_npu()
        who = self._accelerator
        if who == "gpu" and "adapter" in _shared:
            self.details["adapter"] = _shared["adapter"]
            who = f"gpu ({_shared['adapter']})"
        elif who == "npu":
            folder = str(_environment(self._litert).options.dispatch_library_path).rstrip(os.sep)
            self.details["vendor"] = os.path.basename(os.path.dirname(folder))
            backend = self._options.get("graph_backend")
            who = f"npu ({self.details['vendor']}{f', {backend}' if backend else ''})"
        if self.accelerated:
            self.nodes[self._accelerator] = total
        self.ran_on = who if self.accelerated else f"{who} and cpu, shares unknown"

    def _host_only_npu(self) -> bool:
        """An NPU compilation none of whose tensors can leave host memory: the CPU took all of it."""
        if self._accelerator != "npu":
            return False
        wants = [self._model.get_input_buffer_requirements(place) for place in self._input_order]
        wants += [self._model.get_output_buffer_requirements(place) for place in self._output_order]
        return all(list(want["supported_types"]) == _HOST_MEMORY for want in wants)

    def feed(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs in; see the base class."""
        for (write, wire, shape, dtype), array in zip(self._writers, arrays):
            if array.shape != shape or array.dtype != dtype:
                self._feed_resized(arrays)
                return
            flat = np.ascontiguousarray(array).reshape(-1)
            write(flat if wire == dtype.name else flat.view(np.uint8), wire)

    def _feed_resized(self, arrays: Sequence[Any]) -> None:
        check_arrays(self.inputs, arrays)
        try:
            for spec, place, array in zip(self.inputs, self._input_order, arrays):
                if array.shape != spec.shape:
                    self._model.resize_input_tensor(place, array.shape, 0, False)
            self._find_tensors()
            self._make_buffers()
        except RuntimeError as error:
            raise _refusal(error, "", "prepare", "prepare_failed") from None
        for spec, array in zip(self.inputs, arrays):
            if array.shape != spec.shape:
                message = f"input '{spec.name}' has shape {list(spec.shape)} and stays so, {list(array.shape)} was given"
                raise StageError("prepare_failed", message, "prepare")
        self.feed(arrays)

    def invoke(self) -> list[Any]:
        """Run, read every output, and give them; see the base class."""
        try:
            self._run_native()
            for read in self._readers:
                read()
        except RuntimeError as error:
            raise _refusal(error, "", "", "invoke_failed") from None
        return self._results

    def _do_reset(self) -> None:
        self.close()
        self._open(lambda stage: None)

    def close(self) -> None:
        """Release buffers and model."""
        self._run_native = None  # type: ignore[assignment]
        self._writers, self._readers, self._in_buffers, self._out_buffers = [], [], [], []
        self._model = None


def _with_names(chatter: str) -> str:
    """OpenVINO's plug-in names operators by number; people know them by name."""
    if not _OPERATOR_NUMBER.search(chatter):
        return chatter
    from ai_edge_litert import schema_py_generated

    names = {
        value: name for name, value in vars(schema_py_generated.BuiltinOperator).items() if name.isupper()
    }
    return _OPERATOR_NUMBER.sub(lambda match: names.get(int(match.group(1)), match.group(0)), chatter)


def _refusal(error: Exception, chatter: str, stage: str, otherwise: str) -> StageError:
    message = reason(error, chatter)
    return StageError(classify(message, otherwise), message, stage)


def _positions(order: Sequence[int], details: Sequence[dict[str, Any]], what: str) -> list[int]:
    """For each tensor of the subgraph its place in the signature.

    Raises:
        StageError: The signature has other tensors than the subgraph.
    """
    places = {int(detail["index"]): place for place, detail in enumerate(details)}
    if len(places) == len(order) and all(tensor in places for tensor in order):
        return [places[tensor] for tensor in order]
    if len(details) == len(
        order
    ):  # a tensor that stands twice, or a runtime that numbers tensors its own way
        return list(range(len(order)))
    message = f"the signature has {len(details)} {what}s, the subgraph {len(order)}"
    raise StageError("unsupported", message, "prepare")


def _spec(detail: dict[str, Any]) -> TensorSpec:
    name = str(detail["dtype"])
    try:
        np.dtype(name)
    except TypeError:
        message = f"tensor '{detail['name']}' has a type LiteRT's CompiledModel cannot pass on ({name})"
        raise StageError("unsupported", message, "prepare") from None
    return TensorSpec(str(detail["name"]), name, tuple(int(size) for size in detail["shape"]))


def _wire_type(dtype: str) -> str:
    """The type name to read and write with; what LiteRT has no name for goes as bytes."""
    return dtype if dtype in _NATIVE_DTYPES else "uint8"

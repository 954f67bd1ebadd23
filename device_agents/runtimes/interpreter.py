"""TFLite's Interpreter, of ``ai-edge-litert`` or ``tflite-runtime``, with CPU kernels or an external delegate.

Options of a platform with this loader:

* ``threads``: number of CPU threads (1).
* ``kernels``: ``xnnpack`` (the default), ``builtin`` (optimized kernels without a default delegate) or
  ``reference`` (slow and plain). What an external delegate does not claim runs on these.

``library`` and ``library_options`` of the platform name an external delegate (``load_delegate``).

The interpreter does not say what a delegate claimed, and one that claims nothing is no error. But each partition
becomes a node ``DELEGATE`` behind the original ones: external delegates are applied when the interpreter is made,
XNNPACK when tensors are allocated, so counting at both moments tells them apart, and walking back from a partition's
outputs to its inputs names the nodes it replaced.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, Optional

import numpy as np

from device_agents.protocol import RequestError
from device_agents.runtimes.failure_text import classify, reason
from device_agents.runtimes.model_facts import ModelFacts
from device_agents.runtimes.option_values import as_threads
from device_agents.runtimes.session import (
    Progress,
    Session,
    StageError,
    TensorSpec,
    check_arrays,
    describe_shares,
    preparing,
    wanted_shape,
)

KERNELS = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""Name of a kernel set -> the runtime's name for its resolver."""

RUNTIMES = {"litert": "ai_edge_litert.interpreter", "tflite": "tflite_runtime.interpreter"}


def load_runtime(name: str) -> Any:
    """The interpreter module of a runtime; ``name`` is ``litert``, ``tflite`` or empty for the first that is there.

    Raises:
        StageError: It is not installed.
        RequestError: There is no runtime of that name.
    """
    if name and name not in RUNTIMES:
        raise RequestError(f"no runtime named {name!r}; there are {', '.join(RUNTIMES)}")
    failures = []
    for candidate in [name] if name else list(RUNTIMES):
        try:
            return importlib.import_module(RUNTIMES[candidate])
        except ImportError as error:
            failures.append(f"{candidate}: {error}")
    raise StageError("compile_failed", f"no TFLite runtime: {'; '.join(failures)}", "compile")


class InterpreterSession(Session):
    """A file in a TFLite Interpreter."""

    def __init__(
        self,
        platform: dict[str, Any],
        model_path: str,
        facts: ModelFacts,
        input_shapes: Optional[dict[str, Sequence[int]]],
        progress: Progress,
    ) -> None:
        super().__init__(platform, model_path, facts)
        options = dict(platform.get("options") or {})
        self._threads = as_threads("threads", options.pop("threads", 1))
        self._kernels = str(options.pop("kernels", "xnnpack"))
        if options or self._kernels not in KERNELS:
            raise RequestError(
                f"loader interpreter has no option {', '.join(sorted(options)) or repr(self._kernels)}; "
                f"it takes threads and kernels ({', '.join(KERNELS)})"
            )
        self._input_shapes = input_shapes
        self._module = load_runtime(str(platform.get("runtime") or ""))
        with preparing(self):
            self._open(progress)

    def _open(self, progress: Progress) -> None:
        try:
            self._interpreter = self._create()
        except (RuntimeError, ValueError, OSError) as error:
            raise _refusal(error, "compile", "compile_failed") from None
        external_count = self._count_partitions()
        progress("prepare")
        try:
            self._resize_as_asked()
            self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise _refusal(error, "prepare", "prepare_failed") from None
        self._bind()
        self._account(external_count)

    def _create(self) -> Any:
        delegates = []
        library = self.platform.get("library")
        if library:
            ctypes.CDLL(
                library
            )  # says why it cannot be loaded; load_delegate leaves a half-made object behind
            delegates = [self._module.load_delegate(library, self.platform.get("library_options") or {})]
        return self._module.Interpreter(
            model_path=self.model_path,
            num_threads=self._threads,
            experimental_op_resolver_type=getattr(self._module.OpResolverType, KERNELS[self._kernels]),
            experimental_delegates=delegates,
        )

    def _resize_as_asked(self) -> None:
        for detail in self._interpreter.get_input_details():
            shape = wanted_shape(self._input_shapes, detail["name"], int(detail["index"]))
            if shape is not None and shape != tuple(detail["shape"]):
                self._interpreter.resize_tensor_input(detail["index"], shape)

    def _bind(self) -> None:
        """Take the shortest way to the native calls.

        The public methods check before each call that no array views the runtime's memory. Here such views are made
        after a run, read before the next, and never kept over a new allocation, so the wrapper below is called
        directly: that, and no copy of an output, is what keeps a hand-over within microseconds.
        """
        native = self._interpreter._interpreter
        input_details = self._interpreter.get_input_details()
        output_details = self._interpreter.get_output_details()
        self.inputs = tuple(_spec(detail) for detail in input_details)
        self.outputs = tuple(_spec(detail) for detail in output_details)
        self._setters = [partial(native.SetTensor, int(detail["index"])) for detail in input_details]
        self._invoke_native = native.Invoke
        self._readers: list[Callable[[], Any]] = [
            partial(native.GetTensor, int(detail["index"]), 0)
            if spec.dtype == "string"
            else partial(native.tensor, native, int(detail["index"]))
            for detail, spec in zip(output_details, self.outputs)
        ]

    def feed(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs in; see the base class."""
        try:
            for set_tensor, array in zip(self._setters, arrays):
                set_tensor(array)
        except ValueError:
            self._feed_resized(arrays)

    def _feed_resized(self, arrays: Sequence[Any]) -> None:
        check_arrays(self.inputs, arrays)
        held = [np.array(array) for array in arrays]  # a view of this session's memory would not survive
        try:
            for detail, array in zip(self._interpreter.get_input_details(), held):
                if tuple(detail["shape"]) != array.shape:
                    self._interpreter._interpreter.ResizeInputTensor(
                        int(detail["index"]), np.array(array.shape, dtype=np.int32), False
                    )
            self._interpreter._interpreter.AllocateTensors()
            self._bind()
            for set_tensor, array in zip(self._setters, held):
                set_tensor(array)
        except (RuntimeError, ValueError) as error:
            raise _refusal(error, "prepare", "prepare_failed") from None

    def invoke(self) -> list[Any]:
        """Run and give the outputs as views; see the base class."""
        try:
            self._invoke_native()
        except (RuntimeError, ValueError) as error:
            raise _refusal(error, "", "invoke_failed") from None
        try:
            return [read() for read in self._readers]
        except (RuntimeError, ValueError):
            return [self._read_slowly(number) for number in range(len(self._readers))]

    def _read_slowly(self, number: int) -> Any:
        try:
            return self._readers[number]()
        except (RuntimeError, ValueError) as error:
            detail = self._interpreter.get_output_details()[number]
            if 0 in detail["shape"]:  # the runtimes refuse to hand out tensors without elements
                return np.empty(tuple(detail["shape"]), dtype=detail["dtype"])
            message = f"output '{detail['name']}': {reason(error)}"
            raise StageError("invoke_failed", message) from None

    def tensor_shapes(self) -> tuple[dict[int, tuple[int, ...]], list[int]]:
        """The shape of every tensor of the first subgraph, and the tensors that have no memory before a run.

        Only with kernels other than ``xnnpack``: a delegate takes the tensors inside its partitions away.
        """
        native = self._interpreter._interpreter
        shapes: dict[int, tuple[int, ...]] = {}
        dynamic: list[int] = []
        for tensor in range(len(self.facts.names)):
            shapes[tensor] = tuple(int(size) for size in native.TensorSize(tensor, 0))
            if tensor in self.facts.constants or 0 in shapes[tensor]:
                continue
            try:
                native.tensor(native, tensor)
            except (ValueError, RuntimeError) as error:
                if "null" in str(error):
                    dynamic.append(tensor)
        return shapes, dynamic

    def _do_reset(self) -> None:
        if self.facts.has_resources or self.platform.get("library"):
            # Resources live outside the tensors, and a delegate may keep state of its own.
            self.close()
            self._open(lambda stage: None)
        else:
            self._interpreter.reset_all_variables()

    def close(self) -> None:
        """Release the interpreter, then its delegate."""
        self._setters, self._readers = [], []
        self._invoke_native = None
        self._interpreter = None

    def _count_partitions(self) -> int:
        native = self._interpreter._interpreter
        return sum(
            native.NodeName(index) == "DELEGATE" for index in range(self.facts.node_count, native.NumNodes())
        )

    def _account(self, external_count: int) -> None:
        native = self._interpreter._interpreter
        first = self.facts.node_count
        partitions = [i for i in range(first, native.NumNodes()) if native.NodeName(i) == "DELEGATE"]
        claims = _Claims(native, self.facts)
        external = claims.nodes_of(partitions[:external_count])
        default = claims.nodes_of(partitions[external_count:]) - external
        self.nodes = {"total": first}
        if self.platform.get("library"):
            name = os.path.basename(str(self.platform["library"]))
            self.nodes[name] = len(external)
            self.accelerated = len(external) > 0 and not claims.left_to_run(external)
        if default:
            self.nodes["xnnpack"] = len(default)
        rest = "builtin" if self._kernels == "xnnpack" else self._kernels
        self.nodes[rest] = first - len(external) - len(default)
        self.ran_on = describe_shares(self.nodes)


class _Claims:
    """Which of a file's nodes went into delegate partitions."""

    def __init__(self, native: Any, facts: ModelFacts) -> None:
        self._native = native
        self._facts = facts
        self._inputs = [_tensors(native.NodeInputs(i)) for i in range(facts.node_count)]
        self._outputs = [_tensors(native.NodeOutputs(i)) for i in range(facts.node_count)]
        self._maker = {tensor: i for i, outputs in enumerate(self._outputs) for tensor in outputs}

    def nodes_of(self, partitions: Sequence[int]) -> set[int]:
        """The nodes that the given partitions replaced."""
        claimed: set[int] = set()
        for partition in partitions:
            given = set(_tensors(self._native.NodeInputs(partition)))
            made = _tensors(self._native.NodeOutputs(partition))
            claimed |= self._between(given, made)
        return claimed | self._sinks(claimed)

    def _between(self, given: set[int], made: list[int]) -> set[int]:
        found: set[int] = set()
        open_tensors = list(made)
        while open_tensors:
            tensor = open_tensors.pop()
            node = self._maker.get(tensor)
            if tensor in given or node is None or node in found:
                continue
            found.add(node)
            open_tensors.extend(self._inputs[node])
        return found

    def _sinks(self, claimed: set[int]) -> set[int]:
        """Nodes without outputs (ASSIGN_VARIABLE) all of whose inputs are made by claimed nodes or constants."""
        return {
            node
            for node, outputs in enumerate(self._outputs)
            if not outputs
            and self._inputs[node]
            and all(
                tensor in self._facts.constants or self._maker.get(tensor) in claimed
                for tensor in self._inputs[node]
            )
        }

    def left_to_run(self, claimed: set[int]) -> set[int]:
        """Nodes outside ``claimed`` that have work at run time; those fed by constants alone are computed once."""
        fixed: set[int] = set(self._facts.constants)
        left: set[int] = set()
        for node, inputs in enumerate(self._inputs):
            if node in claimed:
                continue
            if inputs and all(tensor in fixed for tensor in inputs):
                fixed.update(self._outputs[node])
            else:
                left.add(node)
        return left


def _refusal(error: Exception, stage: str, otherwise: str) -> StageError:
    message = reason(error)
    return StageError(classify(message, otherwise), message, stage)


def _tensors(numbers: Any) -> list[int]:
    return [int(number) for number in numbers if number >= 0]


def _spec(detail: dict[str, Any]) -> TensorSpec:
    dtype = np.dtype(detail["dtype"])
    name = "string" if dtype.kind in "OSU" else dtype.name
    return TensorSpec(str(detail["name"]), name, tuple(int(size) for size in detail["shape"]))

"""A TFLite C library through ctypes: the runtime a C deployment loads, so its placement is measured with its own.

``library`` of the platform is the path of the C library; without it the one inside the package ``pymicro-wakeword`` is
taken, or the system's ``libtensorflowlite_c.so``. Options of a platform with this loader:

* ``threads``: number of CPU threads (1).
* ``xnnpack``: use XNNPACK (true). This library never applies it by itself, so the delegate is made here.
* ``delegate``: path of an external delegate; ``library_options`` of the platform are its options.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_void_p
from typing import Any, Optional

import numpy as np

from device_agents.protocol import RequestError
from device_agents.runtimes.failure_text import classify, reason
from device_agents.runtimes.model_facts import ModelFacts
from device_agents.runtimes.option_values import as_flag, as_threads
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
from device_agents.runtimes.tflite_c_library import (
    PLUGIN_REPORTER,
    TYPE_NAMES,
    CountingDelegate,
    ErrorLog,
    load_library,
)

_OPTIONS = ("threads", "xnnpack", "delegate")


def _spec(library: Any, tensor: int) -> TensorSpec:
    name = (library.TfLiteTensorName(tensor) or b"").decode("utf-8", "replace")
    kind = library.TfLiteTensorType(tensor)
    if kind not in TYPE_NAMES:
        raise StageError("unsupported", f"tensor '{name}' has type {kind}, which is not passed on", "prepare")
    rank = library.TfLiteTensorNumDims(tensor)
    shape = tuple(int(library.TfLiteTensorDim(tensor, i)) for i in range(rank))
    return TensorSpec(name, TYPE_NAMES[kind], shape)


class _Views:
    """numpy views of tensors, made anew when a tensor has moved.

    Also inputs move: with a tensor sized while running, the library plans its arena again in the middle of a run.
    """

    def __init__(self, library: Any, tensors: Sequence[int]) -> None:
        self._library = library
        self._tensors = tensors
        self._places: list[Any] = [None] * len(tensors)
        self._views: list[Any] = [None] * len(tensors)

    def current(self) -> list[Any]:
        """One view per tensor, valid until the next run or allocation."""
        address_of, size_of = self._library.TfLiteTensorData, self._library.TfLiteTensorByteSize
        for number, tensor in enumerate(self._tensors):
            place = address_of(tensor), size_of(tensor)
            if place != self._places[number]:
                self._places[number] = place
                self._views[number] = self._make(tensor, *place)
        return self._views

    def _make(self, tensor: int, address: Optional[int], size: int) -> Any:
        spec = _spec(self._library, tensor)
        if not size or not address:
            return np.empty(spec.shape, dtype=spec.dtype)
        data: Any = (c_uint8 * size).from_address(address)
        return np.frombuffer(data, dtype=spec.dtype).reshape(spec.shape)


class TfliteCSession(Session):
    """A file in the C library's interpreter."""

    def __init__(
        self,
        platform: dict[str, Any],
        model_path: str,
        facts: ModelFacts,
        input_shapes: Optional[dict[str, Sequence[int]]],
        progress: Progress,
    ) -> None:
        super().__init__(platform, model_path, facts)
        self._options = dict(platform.get("options") or {})
        unknown = sorted(set(self._options) - set(_OPTIONS))
        if unknown:
            raise RequestError(
                f"loader tflite_c has no option {', '.join(unknown)}; it takes {', '.join(_OPTIONS)}"
            )
        self._threads = as_threads("threads", self._options.get("threads", 1))
        self._input_shapes = input_shapes
        self._library = load_library(platform.get("library"))
        self._errors = ErrorLog()
        self._model: Optional[int] = None
        self._interpreter: Optional[int] = None
        self._xnnpack: Optional[int] = None
        self._external: Optional[int] = None
        self._plugin: Any = None
        self._counters: dict[str, CountingDelegate] = {}
        with preparing(self):
            try:
                self._open(progress)
            except BaseException:
                self.close()
                raise

    def _open(self, progress: Progress) -> None:
        library = self._library
        self._model = library.TfLiteModelCreateFromFile(os.fsencode(self.model_path))
        if not self._model:
            raise self._failure("compile_failed", "compile", "the library does not take the file")
        self._counters = self._make_delegates()
        options = library.TfLiteInterpreterOptionsCreate()
        try:
            library.TfLiteInterpreterOptionsSetNumThreads(options, self._threads)
            library.TfLiteInterpreterOptionsSetErrorReporter(options, self._errors.reporter, None)
            for counter in self._counters.values():
                library.TfLiteInterpreterOptionsAddDelegate(options, counter.pointer)
            self._interpreter = library.TfLiteInterpreterCreate(self._model, options)
        finally:
            library.TfLiteInterpreterOptionsDelete(options)
        if not self._interpreter:
            raise self._failure("compile_failed", "compile", "no interpreter could be made")
        progress("prepare")
        self._resize_as_asked()
        if library.TfLiteInterpreterAllocateTensors(self._interpreter) != 0:
            raise self._failure("prepare_failed", "prepare", "tensors could not be allocated")
        self._bind()
        self._account()

    def _make_delegates(self) -> dict[str, CountingDelegate]:
        """The delegates in the order they get to choose: the external one first."""
        delegates: dict[str, CountingDelegate] = {}
        path = self._options.get("delegate")
        if path:
            self._external = external = self._load_plugin(str(path))
            delegates[os.path.basename(str(path))] = CountingDelegate(external, self.facts.node_count)
        if as_flag("xnnpack", self._options.get("xnnpack", True)):
            if not hasattr(self._library, "TfLiteXNNPackDelegateCreate"):
                raise StageError(
                    "compile_failed", "this C library has no XNNPACK (option xnnpack: false)", "compile"
                )
            options = self._library.TfLiteXNNPackDelegateOptionsDefault()
            options.num_threads = self._threads
            self._xnnpack = xnnpack = int(self._library.TfLiteXNNPackDelegateCreate(ctypes.byref(options)))
            delegates["xnnpack"] = CountingDelegate(xnnpack, self.facts.node_count)
        return delegates

    def _load_plugin(self, path: str) -> int:
        given = self.platform.get("library_options") or {}
        texts = c_char_p * len(given)
        keys = texts(*(str(key).encode() for key in given))
        values = texts(*(str(value).encode() for value in given.values()))
        try:
            self._plugin = ctypes.CDLL(path)
            create = self._plugin.tflite_plugin_create_delegate
            self._plugin.tflite_plugin_destroy_delegate.argtypes = [c_void_p]
        except (OSError, AttributeError) as error:
            raise StageError("compile_failed", f"{path} is no delegate: {error}", "compile") from None
        create.restype = c_void_p
        create.argtypes = [POINTER(c_char_p), POINTER(c_char_p), c_size_t, PLUGIN_REPORTER]
        pointer = create(keys, values, len(given), self._errors.plugin_reporter)
        if not pointer:
            raise self._failure("compile_failed", "compile", f"{path} made no delegate")
        return int(pointer)

    def _resize_as_asked(self) -> None:
        for number, tensor in enumerate(self.facts.inputs):
            shape = wanted_shape(self._input_shapes, self.facts.names[tensor], tensor)
            if shape is not None:
                self._resize(number, shape)

    def _resize(self, number: int, shape: Sequence[int]) -> None:
        sizes = (c_int * len(shape))(*shape)
        if (
            self._library.TfLiteInterpreterResizeInputTensor(self._interpreter, number, sizes, len(shape))
            != 0
        ):
            raise self._failure(
                "prepare_failed", "prepare", f"input {number} does not take shape {list(shape)}"
            )

    def _bind(self) -> None:
        library, interpreter = self._library, self._interpreter
        self._in_tensors = [
            library.TfLiteInterpreterGetInputTensor(interpreter, i)
            for i in range(library.TfLiteInterpreterGetInputTensorCount(interpreter))
        ]
        self._out_tensors = [
            library.TfLiteInterpreterGetOutputTensor(interpreter, i)
            for i in range(library.TfLiteInterpreterGetOutputTensorCount(interpreter))
        ]
        self.inputs = tuple(_spec(library, tensor) for tensor in self._in_tensors)
        self.outputs = tuple(_spec(library, tensor) for tensor in self._out_tensors)
        self._in_views = _Views(library, self._in_tensors)
        self._out_views = _Views(library, self._out_tensors)

    def feed(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs in; see the base class."""
        for view, array in zip(self._in_views.current(), arrays):
            if view.shape != array.shape or view.dtype != array.dtype:
                self._feed_resized(arrays)
                return
            view[...] = array

    def _feed_resized(self, arrays: Sequence[Any]) -> None:
        check_arrays(self.inputs, arrays)
        held = [np.array(array) for array in arrays]  # a view of this session's memory would not survive
        for number, (spec, array) in enumerate(zip(self.inputs, held)):
            if spec.shape != array.shape:
                self._resize(number, array.shape)
        if self._library.TfLiteInterpreterAllocateTensors(self._interpreter) != 0:
            raise self._failure("prepare_failed", "prepare", "tensors could not be allocated")
        self._bind()
        for view, array in zip(self._in_views.current(), held):
            view[...] = array

    def invoke(self) -> list[Any]:
        """Run and give the outputs as views; see the base class."""
        if self._library.TfLiteInterpreterInvoke(self._interpreter) != 0:
            raise self._failure("invoke_failed", "", "the run failed")
        return self._out_views.current()

    def _account(self) -> None:
        total = self.facts.node_count
        self.nodes = {"total": total}
        left = total
        for name, counter in self._counters.items():
            if counter.claimed is not None:
                self.nodes[name] = counter.claimed
                left -= counter.claimed
        self.nodes["builtin"] = left
        if self._options.get("delegate"):
            external = next(iter(self._counters.values())).claimed
            self.accelerated = None if external is None else external == total
        version = self._library.TfLiteVersion().decode()
        self.details["version"] = version
        self.ran_on = f"tflite c {version}: {describe_shares(self.nodes)}"

    def _failure(self, kind: str, stage: str, otherwise: str) -> StageError:
        message = reason(RuntimeError(self._errors.take() or otherwise))
        return StageError(classify(message, kind), message, stage)

    def _do_reset(self) -> None:
        self.close()
        self._open(lambda stage: None)

    def close(self) -> None:
        """Release the interpreter, then what it used."""
        self._in_views = self._out_views = _Views(self._library, ())
        if self._interpreter:
            self._library.TfLiteInterpreterDelete(self._interpreter)
        if self._xnnpack:
            self._library.TfLiteXNNPackDelegateDelete(self._xnnpack)
        if self._external:
            self._plugin.tflite_plugin_destroy_delegate(self._external)
        if self._model:
            self._library.TfLiteModelDelete(self._model)
        self._interpreter = self._xnnpack = self._external = self._model = None

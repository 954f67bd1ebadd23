"""A TFLite C library as ctypes sees it: its functions, the structures they take, what it reports.

Functions are those of the public headers ``c_api.h``, ``c_api_experimental.h``, ``common.h`` and
``xnnpack_delegate.h``, declared here as far as they are used.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import importlib.util
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint8, c_void_p
from typing import Any, Optional

from device_agents.runtimes.session import StageError

TYPE_NAMES = {
    1: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 8: "complex64", 9: "int8",
    10: "float16", 11: "float64", 12: "complex128", 13: "uint64", 16: "uint32", 17: "uint16",
}  # fmt: skip
"""``TfLiteType`` -> numpy name, for the types whose bytes numpy can hold."""
_MESSAGE_BYTES = 2048
_XNNPACK_OPTIONS_BYTES = 512

_REPORTER = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)
PLUGIN_REPORTER = ctypes.CFUNCTYPE(None, c_char_p)
_PREPARE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)

_libraries: dict[str, Any] = {}


class _XnnpackOptions(ctypes.Structure):
    """``TfLiteXNNPackDelegateOptions``: its first field is the thread count, the rest differs by version.

    Larger than every version, so that the library can return its own by value into it.
    """

    _fields_ = (("num_threads", c_int32), ("rest", c_uint8 * (_XNNPACK_OPTIONS_BYTES - 4)))


class _DelegateHead(ctypes.Structure):
    """The beginning of ``TfLiteDelegate``."""

    _fields_ = (("data", c_void_p), ("prepare", c_void_p))


class _ContextHead(ctypes.Structure):
    """The beginning of ``TfLiteContext``."""

    _fields_ = (("tensors_size", c_size_t), ("get_execution_plan", c_void_p))


_GET_EXECUTION_PLAN = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(POINTER(c_int)))

_SIGNATURES: dict[str, tuple[Any, Sequence[Any]]] = {
    "TfLiteVersion": (c_char_p, ()),
    "TfLiteModelCreateFromFile": (c_void_p, (c_char_p,)),
    "TfLiteModelDelete": (None, (c_void_p,)),
    "TfLiteInterpreterOptionsCreate": (c_void_p, ()),
    "TfLiteInterpreterOptionsDelete": (None, (c_void_p,)),
    "TfLiteInterpreterOptionsSetNumThreads": (None, (c_void_p, c_int32)),
    "TfLiteInterpreterOptionsAddDelegate": (None, (c_void_p, c_void_p)),
    "TfLiteInterpreterOptionsSetErrorReporter": (None, (c_void_p, _REPORTER, c_void_p)),
    "TfLiteInterpreterCreate": (c_void_p, (c_void_p, c_void_p)),
    "TfLiteInterpreterDelete": (None, (c_void_p,)),
    "TfLiteInterpreterAllocateTensors": (c_int, (c_void_p,)),
    "TfLiteInterpreterInvoke": (c_int, (c_void_p,)),
    "TfLiteInterpreterGetInputTensorCount": (c_int32, (c_void_p,)),
    "TfLiteInterpreterGetInputTensor": (c_void_p, (c_void_p, c_int32)),
    "TfLiteInterpreterGetOutputTensorCount": (c_int32, (c_void_p,)),
    "TfLiteInterpreterGetOutputTensor": (c_void_p, (c_void_p, c_int32)),
    "TfLiteInterpreterResizeInputTensor": (c_int, (c_void_p, c_int32, POINTER(c_int), c_int32)),
    "TfLiteTensorType": (c_int, (c_void_p,)),
    "TfLiteTensorNumDims": (c_int32, (c_void_p,)),
    "TfLiteTensorDim": (c_int32, (c_void_p, c_int32)),
    "TfLiteTensorByteSize": (c_size_t, (c_void_p,)),
    "TfLiteTensorData": (c_void_p, (c_void_p,)),
    "TfLiteTensorName": (c_char_p, (c_void_p,)),
    "TfLiteXNNPackDelegateOptionsDefault": (_XnnpackOptions, ()),
    "TfLiteXNNPackDelegateCreate": (c_void_p, (POINTER(_XnnpackOptions),)),
    "TfLiteXNNPackDelegateDelete": (None, (c_void_p,)),
}
_XNNPACK_PREFIX = "TfLiteXNNPack"


def find_library() -> Optional[str]:
    """Path of a TFLite C library on this machine, or None."""
    spec = importlib.util.find_spec("pymicro_wakeword")
    if spec is not None and spec.origin:
        found = sorted(
            glob.glob(
                os.path.join(os.path.dirname(spec.origin), "**", "libtensorflowlite_c.so"), recursive=True
            )
        )
        if found:
            return found[0]
    return ctypes.util.find_library("tensorflowlite_c")


def load_library(path: Optional[str]) -> Any:
    """The C library with its functions declared.

    Raises:
        StageError: It is not there, cannot be loaded, or is no TFLite C library.
    """
    path = path or find_library()
    if path is None:
        message = "no TFLite C library: name one in 'library' (the package pymicro-wakeword carries one)"
        raise StageError("compile_failed", message, "compile")
    if path in _libraries:
        return _libraries[path]
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            if name.startswith(_XNNPACK_PREFIX) and not hasattr(library, name):
                continue
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments)
    except (OSError, AttributeError) as error:
        raise StageError("compile_failed", f"{path} is no TFLite C library: {error}", "compile") from None
    _libraries[path] = library
    return library


class ErrorLog:
    """Collects what the library reports, through its error reporter (a C variadic function)."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        format_text = ctypes.CDLL(None).vsnprintf
        format_text.argtypes = [c_char_p, c_size_t, c_char_p, c_void_p]

        def report(_data: Any, form: bytes, arguments: Any) -> None:
            buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
            # A va_list is handed on as a pointer on every ABI that Linux boards use.
            format_text(buffer, _MESSAGE_BYTES, form, arguments)
            self.add(buffer.value)

        self.reporter = _REPORTER(report)
        self.plugin_reporter = PLUGIN_REPORTER(self.add)

    def add(self, text: bytes) -> None:
        """Keep one message."""
        self._lines.append(text.decode("utf-8", "replace").strip())

    def take(self) -> str:
        """All messages since the last time, in one text."""
        text = " ".join(self._lines)
        self._lines.clear()
        return text


class CountingDelegate:
    """A delegate whose claim is counted: the execution plan is read after its own ``Prepare``.

    The plan then holds what is left of the file's nodes, and one new node per partition.
    """

    def __init__(self, pointer: int, node_count: int) -> None:
        self.pointer = pointer
        self.claimed: Optional[int] = None
        self._node_count = node_count
        head = _DelegateHead.from_address(pointer)
        if not head.prepare:  # an opaque delegate has its functions elsewhere
            return
        original = _PREPARE(head.prepare)

        def prepare(context: int, delegate: int) -> int:
            if self.claimed is not None:  # called again for the other subgraphs, and after a resize
                return int(original(context, delegate))
            before = self._left(context)
            status = int(original(context, delegate))
            if before is not None:
                self.claimed = before - (self._left(context) or 0)
            return status

        self._wrapped = _PREPARE(prepare)  # kept: the library calls it for as long as the delegate lives
        head.prepare = ctypes.cast(self._wrapped, c_void_p).value

    def _left(self, context: int) -> Optional[int]:
        get_plan = _GET_EXECUTION_PLAN(_ContextHead.from_address(context).get_execution_plan)
        plan = POINTER(c_int)()
        if get_plan(context, ctypes.byref(plan)) != 0:
            return None
        count = int(plan[0])  # a TfLiteIntArray: its size, then its elements
        return sum(int(plan[1 + i]) < self._node_count for i in range(count))

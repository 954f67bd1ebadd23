"""Task metrics of the user's own: ``--metric module:function``.

The function is called once per placement with everything it needs to judge it::

    def top1(outputs, labels):
        '''outputs: one dict per sample, output name -> numpy array; labels: one per sample, or None.'''
        return sum(out["scores"].argmax() == int(label) for out, label in zip(outputs, labels)) / len(labels)

Higher is better. It runs on the host, in this process: it is the user's code, and no part of what is measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import numbers
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeplace.errors import InputError
from edgeplace.registry import nearest_name_hint

SampleOutputs = Mapping[str, npt.NDArray[Any]]
"""The outputs of one sample by name."""

_NO_LABELS_HINT = (
    "it was called with (outputs, labels), and labels is None: --inputs gives none"
    " (labels.csv in the folder, or the key 'labels' of an npz)"
)
_SPEC_HINT = "write it as module:function, or path/to/file.py:function"


@dataclass(frozen=True, slots=True)
class Metric:
    """A loaded metric.

    Attributes:
        name: What the user wrote, ``module:function``.
    """

    name: str
    function: Callable[..., object]

    def __call__(self, outputs: Sequence[SampleOutputs], labels: Sequence[object] | None = None) -> float:
        """The metric of these outputs; higher is better.

        Args:
            outputs: One mapping per sample, output name -> array.
            labels: One label per sample, in the same order, or ``None`` when there are none.

        Raises:
            InputError: The function raised, or gave something that is no finite number. ``where`` is the file and
                line of the user's code.
        """
        try:
            value = self.function([dict(sample) for sample in outputs], labels)
        except (Exception, SystemExit) as error:
            hint = "" if labels is not None else _NO_LABELS_HINT
            raise _user_code_error(f"metric '{self.name}' failed", error, hint) from error
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise InputError(
                f"metric '{self.name}' gave {value!r:.80}, not a finite number",
                hint="return one float for all samples; higher is better",
                where=_definition_of(self.function),
            )
        return float(value)


def load_metric(spec: str) -> Metric:
    """The metric that ``spec`` names.

    Args:
        spec: ``module:function`` (the current folder is searched first, as with ``python -m``), or
            ``path/to/file.py:function``. The function may be nested: ``module:Class.method``.

    Raises:
        InputError: The spec is malformed, the module or function is not there or not callable, or importing the module
            failed (``where`` is then the file and line it failed at).
    """
    module_name, separator, path = spec.rpartition(":")
    if not separator or not module_name or not path:
        raise InputError(f"'{spec}' names no metric", hint=_SPEC_HINT)
    found: Any = _import(module_name)
    where = getattr(found, "__file__", None) or module_name
    for part in path.split("."):
        if not hasattr(found, part):
            names = (
                [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
            raise InputError(
                f"no function named '{path}' in it", hint=nearest_name_hint(part, names), where=where
            )
        found = getattr(found, part)
    if not callable(found):
        raise InputError(
            f"'{path}' is a {type(found).__name__}, not a function", hint=_SPEC_HINT, where=where
        )
    return Metric(spec, found)


def _import(name: str) -> ModuleType:
    if name.endswith(".py"):
        return _import_file(Path(name))
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise _user_code_error(f"module '{name}' of the metric cannot be imported", error) from error
        raise InputError(
            f"there is no module '{error.name}' for the metric '{name}'",
            hint="start edgeplace in the folder that holds it, or give its path: path/to/file.py:function",
        ) from None
    except (Exception, SystemExit) as error:
        raise _user_code_error(f"module '{name}' of the metric cannot be imported", error) from error
    finally:
        sys.path[:] = before


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("there is no such file for the metric", hint=_SPEC_HINT, where=str(path))
    name = f"edgeplace_user_metric_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("the metric's file cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    # Registered like any import: dataclasses and typing look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _user_code_error("the metric's file cannot be imported", error) from error
    return module


def _user_code_error(message: str, error: BaseException, hint: str = "") -> InputError:
    """An explained error from an exception in the user's code: its last line, and where it happened."""
    last_line = traceback.format_exception_only(type(error), error)[-1].strip()
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        where = _users_last_frame(error)
    return InputError(
        f"{message}: {last_line}", hint=hint or "--debug shows the whole traceback", where=where
    )


def _users_last_frame(error: BaseException) -> str:
    """File and line of the deepest frame that is neither this file's nor the import machinery's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _definition_of(function: Callable[..., object]) -> str:
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"

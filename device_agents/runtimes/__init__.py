"""The only place where a TFLite runtime is imported: one loader per way to run a file.

A *loader* turns a platform (the JSON object of :mod:`device_agents.protocol`) and a file into a
:class:`~device_agents.runtimes.session.Session`. Loaders import their runtime when they are used, never before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Optional

from device_agents.protocol import RequestError
from device_agents.runtimes.environment import apply_environment, runtime_versions
from device_agents.runtimes.model_facts import ModelFileError, read_model_facts
from device_agents.runtimes.session import Progress, Session, StageError, TensorSpec

LOADERS = ("interpreter", "compiled_model", "tflite_c")
"""Names of the loaders, as in ``platform["loader"]``."""

__all__ = [
    "LOADERS",
    "Session",
    "StageError",
    "TensorSpec",
    "apply_environment",
    "open_session",
    "runtime_versions",
]


def open_session(
    platform: dict[str, Any],
    model_path: str,
    *,
    input_shapes: Optional[dict[str, Sequence[int]]] = None,
    progress: Optional[Progress] = None,
) -> Session:
    """Load and compile a file for a platform.

    Args:
        platform: What to run it on; its environment is applied first.
        model_path: The ``.tflite`` file.
        input_shapes: Other shapes for some inputs, by tensor name or tensor number.
        progress: Called with ``compile`` and ``prepare`` before these stages.

    Raises:
        StageError: The file or the platform refuses.
        RequestError: The platform names a loader or an option that does not exist.
    """
    report: Progress = progress or (lambda stage: None)
    loader = platform.get("loader")
    if loader not in LOADERS:
        raise RequestError(f"no loader named {loader!r}; there are {', '.join(LOADERS)}")
    report("compile")
    apply_environment(platform)
    try:
        if os.path.getsize(model_path) == 0:
            raise ModelFileError("the file is empty")
        facts = read_model_facts(model_path)
    except ModelFileError as error:
        raise StageError("compile_failed", str(error), "compile") from None
    if loader == "interpreter":
        from device_agents.runtimes.interpreter import InterpreterSession

        return InterpreterSession(platform, model_path, facts, input_shapes, report)
    if loader == "compiled_model":
        from device_agents.runtimes.compiled_model import CompiledModelSession

        return CompiledModelSession(platform, model_path, facts, input_shapes, report)
    from device_agents.runtimes.tflite_c import TfliteCSession

    return TfliteCSession(platform, model_path, facts, input_shapes, report)

"""What every loader gives back: a compiled file that can be fed, invoked and read."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Callable, Optional

import numpy as np

from device_agents.runtimes.model_facts import ModelFacts

Progress = Callable[[str], None]
"""Called with the name of a stage (``compile``, ``prepare``, ``first_run``) before it begins."""


class StageError(Exception):
    """Foreign code refused or failed. That is a result, not a bug.

    Attributes:
        kind: A failure class of DESIGN section 6: ``unsupported``, ``compile_failed``, ``prepare_failed``,
            ``invoke_failed``, ``out_of_memory`` or ``wrong_output``.
        message: The reason in the words of whoever refused.
        stage: ``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check`` or empty.
        segment: Id of the plan's segment, when known.
        platform: Name of the platform, when known.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        stage: str = "",
        segment: Optional[int] = None,
        platform: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.stage = stage
        self.segment = segment
        self.platform = platform


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a file. ``dtype`` is a numpy name or ``string``; ``shape`` is the current one."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Session(ABC):
    """One file, compiled for one platform.

    :meth:`feed` copies inputs in, :meth:`invoke` runs and gives the outputs. A run is over when :meth:`invoke`
    returns: asynchronous accelerators are waited for by reading every output on the host. What :meth:`invoke`
    gives may be views of the runtime's own memory, valid until this session is fed, invoked, reset or closed;
    :meth:`run` gives copies.

    A session belongs to one thread. To write one: subclass, fill the attributes in the constructor, implement the
    hooks, add the loader's name to ``LOADERS`` in ``device_agents/runtimes/__init__.py``.

    Attributes:
        inputs: What :meth:`feed` takes, in the order of the file's first subgraph.
        outputs: What :meth:`invoke` gives, in the order of the file's first subgraph.
        accelerated: True when every node that has work at run time is claimed by the platform's accelerator or
            external delegate, False when some or all fell back to the CPU, None on a CPU platform.
        ran_on: What really runs the nodes, for people: ``libedgetpu.so.1 5/7, xnnpack 2/7``.
        nodes: The same for machines: ``total`` and the number of nodes by whoever claimed them.
        prepare_ms: Time from opening the file to being ready for the first run.
        memory_bytes: Estimate of what the session holds: growth of the process, and the file's size at least.
        facts: What the file says about itself.
        fresh: Nothing ran since opening or the last reset.
        broken: A run failed; what is left of the session is not to be trusted.
    """

    def __init__(self, platform: dict[str, Any], model_path: str, facts: ModelFacts) -> None:
        self.platform = platform
        self.model_path = model_path
        self.facts = facts
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.accelerated: Optional[bool] = None
        self.ran_on = ""
        self.nodes: dict[str, int] = {}
        self.details: dict[str, Any] = {}
        self.prepare_ms = 0.0
        self.memory_bytes = 0
        self.fresh = True
        self.broken = False

    @abstractmethod
    def feed(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs in; an input whose shape differs from the current one is resized first.

        Raises:
            StageError: The shape or type is refused.
        """

    @abstractmethod
    def invoke(self) -> list[Any]:
        """Run, wait for the end, and give the outputs (views; see the class).

        Raises:
            StageError: The run failed.
        """

    @abstractmethod
    def _do_reset(self) -> None:
        """Bring all state back to what it is after opening."""

    @abstractmethod
    def close(self) -> None:
        """Release everything the session holds. The session cannot be used afterwards."""

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Feed, invoke and copy the outputs.

        Raises:
            StageError: The run failed.
        """
        self.fresh = False
        try:
            self.feed(arrays)
            return [np.array(output) for output in self.invoke()]
        except StageError:
            self.broken = True
            raise

    def reset(self) -> None:
        """Bring the state (variable tensors, resources) back to that of a freshly opened file.

        A file without state is left alone.

        Raises:
            StageError: The file could not be opened again.
        """
        if self.facts.stateful and not self.fresh:
            self._do_reset()
        self.fresh = True


@contextlib.contextmanager
def preparing(session: Session) -> Any:
    """Measure what it takes to make ``session``: fills ``prepare_ms`` and ``memory_bytes``."""
    before = resident_bytes()
    started_ns = perf_counter_ns()
    yield
    session.prepare_ms = (perf_counter_ns() - started_ns) / 1e6
    session.memory_bytes = max(resident_bytes() - before, os.path.getsize(session.model_path))


def resident_bytes() -> int:
    """Resident memory of this process, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def wanted_shape(
    input_shapes: Optional[dict[str, Sequence[int]]], name: str, index: int
) -> Optional[tuple[int, ...]]:
    """The shape asked for an input, by its tensor name or its tensor number; None when it stays as it is."""
    for key in (name, str(index)):
        if input_shapes and key in input_shapes:
            return tuple(int(size) for size in input_shapes[key])
    return None


def describe_shares(nodes: dict[str, int]) -> str:
    """``{"total": 7, "xnnpack": 5, "builtin": 2}`` as ``xnnpack 5/7, builtin 2/7``."""
    total = nodes["total"]
    return ", ".join(f"{who} {count}/{total}" for who, count in nodes.items() if who != "total" and count)


def check_arrays(specs: Sequence[TensorSpec], arrays: Sequence[Any]) -> None:
    """Refuse arrays of the wrong number or type.

    Raises:
        StageError: Kind ``invoke_failed``; the message names the first wrong one.
    """
    if len(specs) != len(arrays):
        raise StageError(
            "invoke_failed", f"the file has {len(specs)} inputs, {len(arrays)} arrays were given"
        )
    for spec, array in zip(specs, arrays):
        given = "string" if array.dtype.kind in "OSU" else array.dtype.name
        if given != spec.dtype:
            raise StageError(
                "invoke_failed", f"input '{spec.name}' is {spec.dtype}, the array given is {given}"
            )

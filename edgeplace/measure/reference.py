"""Which kernels the numeric reference comes from, and the name it is cached under.

The reference is the whole model on the reference kernels (``BUILTIN_REF``): slow, plain, written to be right. A model that
they cannot run (a custom operator that only a delegate has) uses the whole model on one-thread XNNPACK instead, and the
delegate map says so. Running it is the bench's work; here is only the choice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeplace.errors import NoFeasiblePlacementError
from edgeplace.measure.measurement import Failure


@dataclass(frozen=True, slots=True)
class Kernels:
    """A kernel set of the whole model on the CPU.

    Attributes:
        name: ``reference`` (``BUILTIN_REF``), ``builtin`` (``BUILTIN_WITHOUT_DEFAULT_DELEGATES``) or ``xnnpack`` (the
            runtime's default).
        threads: Threads it may use.
    """

    name: str
    threads: int = 1

    def __str__(self) -> str:
        return self.name if self.threads == 1 else f"{self.name} with {self.threads} threads"


REFERENCE = Kernels("reference")
BUILTIN = Kernels("builtin")
XNNPACK = Kernels("xnnpack")

REFERENCE_ORDER = (REFERENCE, XNNPACK)
"""What the reference may come from, best first. ``builtin`` is not here: what stops the reference kernels, a
custom operator, stops it too, and where it does not, XNNPACK is the nearer to what boards run."""

CALIBRATION_KERNELS = (REFERENCE, BUILTIN, XNNPACK)
"""The kernel sets whose spread is the model's floor."""


@dataclass(frozen=True, slots=True)
class ReferenceChoice:
    """What the reference comes from.

    Attributes:
        kernels: The kernel set.
        why_not: What the better ones died of, in words; empty for the reference kernels themselves.
    """

    kernels: Kernels
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the map; ``why_not`` only when there is something to say."""
        data: dict[str, Any] = {"kernels": self.kernels.name, "threads": self.kernels.threads}
        return {**data, "why_not": self.why_not} if self.why_not else data


def next_reference(failures: Mapping[Kernels, Failure]) -> ReferenceChoice:
    """The best kernel set that is not known to fail; try it, add its failure, ask again.

    Args:
        failures: What running the whole model on a kernel set ended in, for the sets that were tried and failed.

    Raises:
        NoFeasiblePlacementError: None is left; there is nothing to compare a placement with.
    """
    for kernels in REFERENCE_ORDER:
        if kernels not in failures:
            return ReferenceChoice(kernels, _reasons(failures))
    raise NoFeasiblePlacementError(
        f"the whole model runs on no CPU kernels, so there is no numeric reference: {_reasons(failures)}",
        hint=_hint(failures),
    )


def cache_key(
    *,
    model_sha256: str,
    inputs_sha256: str,
    kernels: Kernels,
    runtime_version: str,
    machine: str,
    compare_at: Sequence[str] = (),
) -> str:
    """The name a reference is cached under: a hash of everything its numbers depend on.

    Args:
        inputs_sha256: :attr:`~.inputs.InputSet.sha256`; it covers shapes too.
        runtime_version: Name and version, ``ai-edge-litert 2.3.0``: kernels differ between versions.
        machine: Machine of the computer it ran on, ``x86_64``: float kernels differ between instruction sets.
        compare_at: Names of tensors compared instead of the outputs (``--compare-at``), in order.
    """
    parts = {
        "model": model_sha256,
        "inputs": inputs_sha256,
        "kernels": kernels.name,
        "threads": kernels.threads,
        "runtime": runtime_version,
        "machine": machine,
        "compare_at": list(compare_at),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _hint(failures: Mapping[Kernels, Failure]) -> str:
    if all(failure.kind == "invoke_failed" for failure in failures.values()):
        return "it loads and then fails to run: give inputs it can work with, --inputs samples.npz"
    return (
        "a model with operators that only a device has must be given as it was before that device's compiler"
    )


def _reasons(failures: Mapping[Kernels, Failure]) -> str:
    return "; ".join(f"{kernels}: {failures[kernels]}" for kernels in REFERENCE_ORDER if kernels in failures)

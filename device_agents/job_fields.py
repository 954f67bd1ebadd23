"""From the fields of a job to arrays, numbers and timing plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from device_agents.arrays import decode_array
from device_agents.protocol import RequestError
from device_agents.runtimes import Session, TensorSpec
from device_agents.timing import TimingPlan


def read_array(blob: Mapping[str, Any], paths: Mapping[str, str]) -> Any:
    """The array of an array blob.

    Raises:
        RequestError: The file does not hold such an array.
    """
    with open(paths[blob["blob"]], "rb") as file:
        data = file.read()
    try:
        return decode_array(blob["dtype"], blob["shape"], data)
    except ValueError as error:
        raise RequestError(f"array blob {blob['blob'][:12]}: {error}") from None


def inputs_of(session: Session, job: Mapping[str, Any]) -> list[Any]:
    """The inputs of a job for one file; what is not given is made up.

    Raises:
        RequestError: Their number is wrong, or a blob holds no such array.
    """
    given = job.get("inputs") or [None] * len(session.inputs)
    if len(given) != len(session.inputs):
        raise RequestError(f"the file has {len(session.inputs)} inputs, the request {len(given)}")
    generator = np.random.default_rng(0)
    return [
        made_up(spec, generator) if blob is None else read_array(blob, job["paths"])
        for spec, blob in zip(session.inputs, given)
    ]


def made_up(spec: TensorSpec, generator: np.random.Generator) -> Any:
    """An array that any model takes: floats in 0..1, small integers over their range, large ones 0 (often indices)."""
    if spec.dtype == "string":
        array = np.empty(spec.shape, dtype=object)
        array.fill(b"")
        return array
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "fc":
        return generator.random(spec.shape, dtype=np.float32).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, spec.shape).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, spec.shape, dtype=dtype, endpoint=True)
    return np.zeros(spec.shape, dtype=dtype)


def samples_of(job: Mapping[str, Any]) -> list[list[Any]]:
    """The samples of a job, each one array per graph input.

    Raises:
        RequestError: There is none, or a blob holds no such array.
    """
    samples = [[read_array(blob, job["paths"]) for blob in sample] for sample in job["inputs"]]
    if not samples:
        raise RequestError("inputs has no sample")
    return samples


def timing_plan(given: Mapping[str, Any]) -> TimingPlan:
    """The timing plan of a job.

    Raises:
        RequestError: A field is unknown or no good.
    """
    try:
        return TimingPlan.from_wire(given)
    except (ValueError, TypeError) as error:
        raise RequestError(f"timing: {error}") from None


def count(job: Mapping[str, Any], name: str) -> int:
    """A number of a job that is at least 1.

    Raises:
        RequestError: It is missing or no such number.
    """
    value = job.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} is {value!r}, not a number >= 1")
    return value

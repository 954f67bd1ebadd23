"""What a request must look like, and which blobs it names. Everything from the host is untrusted until it passed here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from device_agents.protocol import RequestError
from device_agents.store import checked_hash

JOB_VERBS = ("probe", "try", "run", "measure", "interleave", "shapes")
"""The verbs whose work is done by foreign code, in the worker."""
DEFAULT_DEADLINE_S = 600.0
MAX_DEADLINE_S = 86_400.0


def job_blobs(request: Mapping[str, Any]) -> list[str]:
    """Check the request of a verb of :data:`JOB_VERBS`; gives the hashes of all blobs it names, each once.

    Raises:
        RequestError: A field is missing or not what it must be.
    """
    verb = request["verb"]
    hashes: list[str] = []
    if verb in ("probe", "try", "shapes"):
        hashes.append(checked_hash(request.get("model")))
    if verb in ("probe", "try"):
        _check_platform(request.get("platform"), "platform")
        hashes += _sample_blobs(request.get("inputs") or [], "inputs", may_be_null=True)
    if verb in ("run", "measure", "interleave"):
        hashes += _run_blobs(request)
    return list(dict.fromkeys(hashes))


def environment_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that the platforms of a checked job request want, together.

    Raises:
        RequestError: ``env`` is not an object of texts, or two platforms want different values of one variable.
    """
    wanted: dict[str, str] = {}
    for platform in _platforms_of(request):
        env = platform.get("env") or {}
        if not isinstance(env, dict):
            raise RequestError(f"platform {platform['name']}: env is not an object")
        for name, value in env.items():
            if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
                raise RequestError(f"platform {platform['name']}: env {name!r} is no variable with a text")
            if wanted.setdefault(name, value) != value:
                raise RequestError(
                    f"two platforms of one plan want different values of {name}; drivers read it once per process"
                )
    return wanted


def _platforms_of(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if request["verb"] in ("probe", "try"):
        yield request["platform"]
    elif request["verb"] != "shapes":
        for plan in request["plans"] if request["verb"] == "interleave" else [request["plan"]]:
            yield from plan["platforms"].values()


def constants_of(request: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """The ``constants`` of a ``segment`` request as (hash, offset, size).

    Raises:
        RequestError: They are not a list of such triples.
    """
    constants: list[tuple[str, int, int]] = []
    for number, entry in enumerate(_list(request.get("constants"), "constants")):
        where = f"constants[{number}]"
        if not isinstance(entry, list) or len(entry) != 3:
            raise RequestError(f"{where} is not [sha256, offset, size_bytes]")
        constants.append((checked_hash(entry[0]), natural(entry[1], where), natural(entry[2], where)))
    return constants


def hashes_of(request: Mapping[str, Any]) -> list[str]:
    """The ``hashes`` of a ``have`` request.

    Raises:
        RequestError: They are not a list of hashes.
    """
    return [checked_hash(value) for value in _list(request.get("hashes"), "hashes")]


def deadlines_s(request: Mapping[str, Any]) -> tuple[float, Optional[float]]:
    """``deadline_s`` (or the default) and ``stage_deadline_s`` (or None).

    Raises:
        RequestError: One of them is not a positive number of seconds, or is over a day.
    """
    values: list[Optional[float]] = []
    for name in ("deadline_s", "stage_deadline_s"):
        value = request.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise RequestError(f"{name} is not a number")
            if not math.isfinite(value) or not 0 < value <= MAX_DEADLINE_S:
                raise RequestError(f"{name} is {value}, not in 0 < s <= {MAX_DEADLINE_S:g}")
        values.append(None if value is None else float(value))
    return (DEFAULT_DEADLINE_S if values[0] is None else values[0]), values[1]


def natural(value: Any, where: str) -> int:
    """``value`` when it is an integer >= 0.

    Raises:
        RequestError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError(f"{where}: {value!r} is no number >= 0")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise RequestError(f"{where} is not a list")
    return value


def _check_platform(platform: Any, where: str) -> None:
    if not isinstance(platform, dict):
        raise RequestError(f"{where} is not an object")
    for key in ("name", "loader"):
        if not isinstance(platform.get(key), str):
            raise RequestError(f"{where}.{key} is not a text")


def _sample_blobs(sample: Any, where: str, may_be_null: bool) -> Iterator[str]:
    for number, entry in enumerate(_list(sample, where)):
        if entry is None and may_be_null:
            continue
        if not isinstance(entry, dict):
            raise RequestError(f"{where}[{number}] is no array blob")
        yield _array_blob(entry.get("blob"), entry.get("dtype"), entry.get("shape"), f"{where}[{number}]")


def _array_blob(sha256: Any, dtype: Any, shape: Any, where: str) -> str:
    if not isinstance(dtype, str):
        raise RequestError(f"{where}: the dtype is not a text")
    for size in _list(shape, f"{where}: the shape"):
        natural(size, f"{where}: the shape")
    return checked_hash(sha256)


def _run_blobs(request: Mapping[str, Any]) -> Iterator[str]:
    """The blobs of plans and their samples; every sample has as many arrays as the plans take."""
    samples = _list(request.get("inputs"), "inputs")
    if not samples:
        raise RequestError("inputs has no sample")
    for number, sample in enumerate(samples):
        yield from _sample_blobs(sample, f"inputs[{number}]", may_be_null=False)
    inputs = min(len(sample) for sample in samples)
    if request["verb"] == "interleave":
        plans = _list(request.get("plans"), "plans")
        if not plans:
            raise RequestError("plans has no plan")
        for number, plan in enumerate(plans):
            yield from _plan_blobs(plan, f"plans[{number}]", inputs)
    else:
        yield from _plan_blobs(request.get("plan"), "plan", inputs)


def _plan_blobs(plan: Any, where: str, inputs: int) -> Iterator[str]:
    if not isinstance(plan, dict) or not isinstance(plan.get("platforms"), dict):
        raise RequestError(f"{where} is not an object with platforms")
    for name, platform in plan["platforms"].items():
        _check_platform(platform, f"{where}.platforms.{name}")
    outputs: list[int] = []  # of each segment so far
    for number, segment in enumerate(_list(plan.get("segments"), f"{where}.segments")):
        here = f"{where}.segments[{number}]"
        if not isinstance(segment, dict):
            raise RequestError(f"{here} is not an object")
        if segment.get("platform") not in list(plan["platforms"]):  # may be anything, even unhashable
            raise RequestError(
                f"{here}: platform {segment.get('platform')!r} is not among the plan's platforms"
            )
        yield checked_hash(segment.get("model"))
        yield from _source_blobs(segment.get("inputs"), f"{here}.inputs", inputs, outputs)
        outputs.append(natural(segment.get("outputs"), f"{here}.outputs"))
    yield from _source_blobs(plan.get("outputs"), f"{where}.outputs", inputs, outputs)


def _source_blobs(sources: Any, where: str, inputs: int, outputs: list[int]) -> Iterator[str]:
    for number, source in enumerate(_list(sources, where)):
        here = f"{where}[{number}]"
        kind = source[0] if isinstance(source, list) and source else None
        if kind == "input" and len(source) == 2:
            if natural(source[1], here) >= inputs:
                raise RequestError(f"{here}: a sample has no input {source[1]}, only {inputs}")
        elif kind == "segment" and len(source) == 3:
            segment, output = natural(source[1], here), natural(source[2], here)
            if segment >= len(outputs) or output >= outputs[segment]:
                raise RequestError(f"{here}: there is no output {output} of an earlier segment {segment}")
        elif kind == "constant" and len(source) == 4:
            yield _array_blob(source[1], source[2], source[3], here)
        else:
            raise RequestError(f"{here} is no source")

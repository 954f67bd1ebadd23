"""The jobs of the worker: one function per verb (:mod:`device_agents.protocol` has the wire's words).

Each gives the answer's header and the pieces of its payload. Foreign code that refuses or fails raises
:class:`~device_agents.runtimes.StageError`; before each stage that can hang or die, ``context.progress`` says so.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, perf_counter_ns
from typing import Any, Callable, Optional

import numpy as np

from device_agents.arrays import pack_arrays
from device_agents.job_fields import count, inputs_of, samples_of, timing_plan
from device_agents.protocol import RequestError
from device_agents.runnable import RunnablePlan, Step, WorkerContext, make_runnable, stage_reporter
from device_agents.runtimes import Session, StageError, runtime_versions
from device_agents.runtimes.environment import library_hashes
from device_agents.timing import TimedRuns, TimingPlan, time_runs

__all__ = ["WorkerContext", "handle_job"]

Answer = tuple[dict[str, Any], list[Any]]

_TRY_TIMING = {"warmup_min_runs": 2, "warmup_min_s": 0.0, "min_runs": 5, "max_runs": 200, "budget_s": 0.3}
_MAX_INTERLEAVED = 1_000_000


def handle_job(job: dict[str, Any], payload: bytes, context: WorkerContext) -> Answer:
    """Do one job.

    Args:
        job: The host's request plus ``paths`` (:mod:`device_agents.worker` has the details).
        payload: Not used by any verb of today.
        context: What the worker keeps between jobs.

    Raises:
        StageError: Foreign code refused or failed; that is the answer.
        RequestError: The request is wrong.
    """
    verb = job.get("verb")
    if verb not in _JOBS:
        raise RequestError(f"the worker has no job {verb!r}; it has {', '.join(_JOBS)}", "unknown_verb")
    context.sessions.begin_job()
    return _JOBS[verb](job, context)


def _probe(job: dict[str, Any], context: WorkerContext) -> Answer:
    """Is the platform there? Compiles and runs a small file on it; what goes wrong is the reason."""
    details: dict[str, Any] = {"runtimes": runtime_versions()}
    try:
        session, _ = _open_alone(job, context)
        _first_run(session, inputs_of(session, job), context, job["platform"].get("name"))
    except StageError as error:
        return {"available": False, "reason": error.message, "kind": error.kind, "details": details}, []
    details.update(_about(session))
    details["libraries"] = library_hashes(job["platform"])
    if session.accelerated is False and job["platform"].get("loader") == "compiled_model":
        refused = session.details.get("refused", "no reason was given")
        reason = f"the small model did not go to the accelerator: {refused}"
        return {"available": False, "reason": reason, "kind": "unsupported", "details": details}, []
    return {"available": True, "reason": "", "details": details}, []


def _try(job: dict[str, Any], context: WorkerContext) -> Answer:
    """One file alone: compile, one checked run, and a short timing when asked for."""
    platform = job["platform"].get("name")
    session, opened = _open_alone(job, context)
    inputs = inputs_of(session, job)
    outputs, first_run_ms = _first_run(session, inputs, context, platform)
    context.progress(stage="check", segment=None, platform=platform)
    _check_outputs(session, outputs)
    descriptions, pieces = pack_arrays(outputs)
    header = {
        **_about(session),
        "arrays": descriptions,
        "prepare_ms": session.prepare_ms if opened else 0.0,
        "first_run_ms": first_run_ms,
        "has_nan": any(_has_nan(output) for output in outputs),
    }
    if job.get("timing") is not None:
        plan = timing_plan({**_TRY_TIMING, **job["timing"]})

        def run() -> None:
            session.feed(inputs)
            session.invoke()

        header.update(_times(_timed(run, plan, context, platform)))
    return header, pieces


def _run(job: dict[str, Any], context: WorkerContext) -> Answer:
    """Outputs of each sample in turn, from a fresh start; state flows from one sample to the next."""
    plan = make_runnable(job["plan"], job["paths"], context)
    samples = samples_of(job)
    plan.reset()
    arrays: list[Any] = []
    totals_ms: list[float] = []
    collect = plan.everything_of if job.get("intermediates") else plan.outputs_of
    for sample in samples:
        rows, total_ms = _placed_run(plan, sample, context)
        totals_ms.append(total_ms)
        arrays.extend(collect(rows))
    descriptions, pieces = pack_arrays(arrays)
    per_sample = len(arrays) // len(samples) if samples else 0
    header = {
        "arrays": descriptions,
        "arrays_per_sample": per_sample,
        "total_ms": totals_ms,
        "prepare_ms": list(plan.prepare_ms),
        "segments": _about_segments(plan),
    }
    return header, pieces


def _measure(job: dict[str, Any], context: WorkerContext) -> Answer:
    """Times of one plan in steady state. Several samples take turns, each as often as the others."""
    timing = timing_plan(job.get("timing") or {})
    plan = make_runnable(job["plan"], job["paths"], context)
    samples = samples_of(job)
    plan.reset()
    _, first_run_ms = _placed_run(plan, samples[0], context)
    stamps_ns: list[int] = []
    turns = itertools.cycle(samples)
    timed = _timed(lambda: plan.execute(next(turns), stamps_ns), timing, context, None, stamps_ns.clear)
    header = {
        **_times(timed),
        **_parts(stamps_ns, timed, len(plan.steps)),
        "prepare_ms": list(plan.prepare_ms),
        "first_run_ms": first_run_ms,
        "segments": _about_segments(plan),
    }
    return header, []


def _interleave(job: dict[str, Any], context: WorkerContext) -> Answer:
    """Several plans in turns, so that whatever the machine does meanwhile hits all of them.

    Each round runs every plan ``runs_per_round`` times after one run that does not count (the others have emptied the
    caches). The plan that begins changes from round to round. A round that the budget cuts off does not count; the
    first always does.
    """
    rounds, runs = count(job, "rounds"), count(job, "runs_per_round")
    if rounds * runs * len(job["plans"]) > _MAX_INTERLEAVED:
        raise RequestError("rounds x runs_per_round x plans is too many")
    ends_s = monotonic() + float(job.get("budget_s") or 1e9)
    plans = [make_runnable(plan, job["paths"], context) for plan in job["plans"]]
    samples = samples_of(job)
    for plan in plans:
        plan.reset()
        _placed_run(plan, samples[0], context)
    times_ms: list[list[list[float]]] = [[] for _ in plans]
    with _undisturbed():
        for number in range(rounds):
            context.progress(stage="timing", segment=None, platform=None, round=number)
            this_round = _one_round(plans, samples, number, runs, None if number == 0 else ends_s)
            if this_round is None:
                break
            for series, times in zip(times_ms, this_round):
                series.append(times)
    return {"times_ms": times_ms, "rounds": len(times_ms[0])}, []


def _one_round(
    plans: Sequence[RunnablePlan], samples: Sequence[Any], number: int, runs: int, ends_s: Optional[float]
) -> Optional[list[list[float]]]:
    """Times of each plan, or None when the budget ended before the round did."""
    times: list[list[float]] = [[] for _ in plans]
    for turn in range(len(plans)):
        which = (number + turn) % len(plans)
        plan = plans[which]
        plan.execute(samples[0], [])
        for run in range(runs):
            if ends_s is not None and monotonic() > ends_s:
                return None
            stamps_ns: list[int] = []
            started_ns = perf_counter_ns()
            plan.execute(samples[run % len(samples)], stamps_ns)
            times[which].append((perf_counter_ns() - started_ns) / 1e6)
    return times


def _shapes(job: dict[str, Any], context: WorkerContext) -> Answer:
    """The shape of every tensor of a file once its inputs have the given shapes, by the CPU's own kernels.

    ``dynamic`` lists the tensors whose size is only known while the file runs; their shapes mean nothing.
    """
    kernels = str(job.get("kernels") or "builtin")
    platform = {
        "name": kernels,
        "loader": "interpreter",
        "runtime": str(job.get("runtime") or ""),
        "options": {"kernels": kernels},
    }
    from device_agents.runtimes.interpreter import InterpreterSession

    session, _ = context.sessions.get(
        platform,
        job["model"],
        job["paths"][job["model"]],
        taken=set(),
        input_shapes=job.get("input_shapes") or None,
        progress=stage_reporter(context, None, kernels),
    )
    assert isinstance(session, InterpreterSession)
    shapes, dynamic = session.tensor_shapes()
    return {"shapes": {str(tensor): list(shape) for tensor, shape in shapes.items()}, "dynamic": dynamic}, []


def _drop(job: dict[str, Any], context: WorkerContext) -> Answer:
    """Close all sessions."""
    dropped = len(context.sessions)
    context.sessions.clear()
    gc.collect()
    return {"dropped": dropped}, []


_JOBS: dict[str, Callable[[dict[str, Any], WorkerContext], Answer]] = {
    "probe": _probe,
    "try": _try,
    "run": _run,
    "measure": _measure,
    "interleave": _interleave,
    "shapes": _shapes,
    "drop": _drop,
}


def _placed_run(
    plan: RunnablePlan, sample: Sequence[Any], context: WorkerContext
) -> tuple[list[Sequence[Any]], float]:
    """One run that says before each segment which one it is, and its time without the saying."""
    told_ns = 0

    def tell(step: Step) -> None:
        nonlocal told_ns
        started_ns = perf_counter_ns()
        context.progress(stage="first_run", segment=step.segment, platform=step.platform)
        told_ns += perf_counter_ns() - started_ns

    stamps_ns: list[int] = []
    rows = plan.execute(sample, stamps_ns, tell)
    return rows, (stamps_ns[-1] - stamps_ns[0] - told_ns) / 1e6


def _open_alone(job: dict[str, Any], context: WorkerContext) -> tuple[Session, bool]:
    platform = job["platform"]
    name = str(platform.get("name", ""))
    try:
        return context.sessions.get(
            platform,
            job["model"],
            job["paths"][job["model"]],
            taken=set(),
            progress=stage_reporter(context, None, name),
        )
    except StageError as error:
        error.platform = name
        raise


def _first_run(
    session: Session, inputs: Sequence[Any], context: WorkerContext, platform: Optional[str]
) -> tuple[list[Any], float]:
    session.reset()
    context.progress(stage="first_run", segment=None, platform=platform)
    started_ns = perf_counter_ns()
    outputs = session.run(inputs)
    return outputs, (perf_counter_ns() - started_ns) / 1e6


def _check_outputs(session: Session, outputs: Sequence[Any]) -> None:
    """A run that left an output without its elements did not really run."""
    for spec, output in zip(session.outputs, outputs):
        dtype = "string" if output.dtype.kind in "OSU" else output.dtype.name
        if dtype != spec.dtype:
            raise StageError(
                "wrong_output", f"output '{spec.name}' came as {dtype}, not {spec.dtype}", "check"
            )


def _has_nan(array: Any) -> bool:
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def _timed(
    run: Callable[[], Any],
    plan: TimingPlan,
    context: WorkerContext,
    platform: Optional[str],
    warmed_up: Callable[[], None] = lambda: None,
) -> TimedRuns:
    def tick(stage: str, runs: int) -> None:
        context.progress(stage=stage, segment=None, platform=platform, runs=runs)
        if stage == "timing" and runs == 0:
            warmed_up()

    with _undisturbed():
        return time_runs(run, plan, tick=tick)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection while the clock runs."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _times(timed: TimedRuns) -> dict[str, Any]:
    return {
        "times_ms": list(timed.times_ms),
        "p50_ms": timed.p50_ms,
        "ci95_ms": list(timed.ci95_ms),
        "min_ms": timed.min_ms,
        "p90_ms": timed.p90_ms,
        "p99_ms": timed.p99_ms,
        "noisy": timed.noisy,
        "warmup_runs": timed.warmup_runs,
    }


def _parts(stamps_ns: Sequence[int], timed: TimedRuns, segments: int) -> dict[str, Any]:
    """Median time of each segment and hand-over, and of what is in the total but in no part."""
    per_run = 2 * segments + 1
    stamps = np.asarray(stamps_ns, dtype=np.int64).reshape(-1, per_run)
    parts_ms = np.diff(stamps, axis=1) / 1e6
    inside_ms = (stamps[:, -1] - stamps[:, 0]) / 1e6
    medians = np.median(parts_ms, axis=0) if segments else np.zeros(0)
    return {
        "handover_ms": [float(value) for value in medians[0::2]],
        "segment_ms": [float(value) for value in medians[1::2]],
        "unaccounted_ms": float(np.median(np.asarray(timed.times_ms) - inside_ms)),
    }


def _about(session: Session) -> dict[str, Any]:
    return {
        "accelerated": session.accelerated,
        "ran_on": session.ran_on,
        "nodes": session.nodes,
        "memory_bytes": session.memory_bytes,
        **session.details,
    }


def _about_segments(plan: RunnablePlan) -> list[dict[str, Any]]:
    return [{"platform": step.platform, **_about(step.session)} for step in plan.steps]

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import require_runtime
from worker_jobs import BUILTIN, CPU, REFERENCE, Jobs, plan_of, seeded, whole_model_plan

from device_agents import session_cache
from device_agents.protocol import RequestError
from device_agents.runnable import RunnablePlan
from device_agents.runtimes import StageError
from device_agents.session_cache import SessionCache, default_cap_bytes
from edgeplace.testing.model_builder import Builder

ModelFile = Callable[[str], Path]
QUICK = {"warmup_min_runs": 1, "warmup_min_s": 0.0, "min_runs": 5, "max_runs": 40, "budget_s": 0.2}


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def adder(value: float) -> bytes:
    """x + value, over (1, 4)."""
    builder = Builder()
    graph = builder.graph()
    graph.output(graph.add(graph.input((1, 4)), graph.constant(np.full((1, 4), value, np.float32))))
    return builder.finish()


def joiner() -> bytes:
    """x - y in four elements, and y as it came."""
    builder = Builder()
    graph = builder.graph()
    x, y = graph.input((1, 4)), graph.input((1, 4))
    minus = graph.constant(np.full((1, 4), -1.0, np.float32))
    graph.output(graph.add(x, graph.mul(y, minus)), y)
    return builder.finish()


X = seeded(1, 4)


def test_a_plan_wires_inputs_segments_and_constants(jobs: Jobs) -> None:
    one, ten, join = jobs.model(adder(1)), jobs.model(adder(10)), jobs.model(joiner())
    fixed = jobs.array(np.full((1, 4), 5.0, np.float32))
    constant = ["constant", fixed["blob"], fixed["dtype"], fixed["shape"]]
    plan = plan_of(
        [
            (CPU, one, [["input", 0]], 1),
            (BUILTIN, ten, [["segment", 0, 0]], 1),
            (REFERENCE, join, [["segment", 1, 0], ["segment", 0, 0]], 2),
            (CPU, join, [["segment", 2, 0], constant], 2),
        ],
        [["segment", 3, 0], ["segment", 2, 1], ["input", 0], constant],
    )
    header, outputs = jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    wanted = [np.full((1, 4), 5.0), X + 1, X, np.full((1, 4), 5.0)]
    for got, expected in zip(outputs, wanted):
        np.testing.assert_allclose(got, expected, atol=1e-6)
    assert [segment["platform"] for segment in header["segments"]] == ["cpu", "builtin", "reference", "cpu"]
    assert header["arrays_per_sample"] == 4


def test_intermediates_are_every_output_of_every_segment(jobs: Jobs) -> None:
    one, join = jobs.model(adder(1)), jobs.model(joiner())
    plan = plan_of(
        [(CPU, one, [["input", 0]], 1), (CPU, join, [["segment", 0, 0], ["input", 0]], 2)],
        [["segment", 1, 0]],
    )
    samples = [[jobs.array(X)], [jobs.array(2 * X)]]
    header, arrays = jobs.do("run", plan=plan, inputs=samples, intermediates=True)
    assert (header["arrays_per_sample"], len(arrays)) == (3, 6)
    for scale, (first, difference, same) in ((1, arrays[:3]), (2, arrays[3:])):
        np.testing.assert_allclose(first, scale * X + 1, atol=1e-6)
        np.testing.assert_allclose(difference, np.ones((1, 4)), atol=1e-6)
        np.testing.assert_allclose(same, scale * X, atol=1e-6)


def test_equal_segments_of_one_plan_do_not_share_a_session(jobs: Jobs) -> None:
    one, join = jobs.model(adder(1)), jobs.model(joiner())
    again = {**CPU, "name": "the same under another name"}
    plan = plan_of(
        [
            (CPU, one, [["input", 0]], 1),
            (CPU, one, [["segment", 0, 0]], 1),
            (again, one, [["segment", 1, 0]], 1),
            (CPU, join, [["segment", 2, 0], ["segment", 0, 0]], 2),
        ],
        [["segment", 3, 0], ["segment", 0, 0], ["segment", 1, 0]],
    )
    _, (difference, first, second) = jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    np.testing.assert_allclose(difference, np.full((1, 4), 2.0), atol=1e-6)
    np.testing.assert_allclose(second - first, np.ones((1, 4)), atol=1e-6)
    assert len(jobs.context.sessions) == 4


def test_a_shared_segment_is_compiled_once(jobs: Jobs) -> None:
    one, ten = jobs.model(adder(1)), jobs.model(adder(10))
    first = plan_of([(CPU, one, [["input", 0]], 1)], [["segment", 0, 0]])
    second = plan_of([(CPU, one, [["input", 0]], 1), (CPU, ten, [["segment", 0, 0]], 1)], [["segment", 1, 0]])
    sample = [[jobs.array(X)]]
    assert jobs.do("run", plan=first, inputs=sample)[0]["prepare_ms"][0] > 0
    prepare_ms = jobs.do("run", plan=second, inputs=sample)[0]["prepare_ms"]
    assert prepare_ms[0] == 0
    assert prepare_ms[1] > 0
    assert jobs.do("drop")[0] == {"dropped": 2}
    assert jobs.do("run", plan=first, inputs=sample)[0]["prepare_ms"][0] > 0


def test_the_least_recently_used_session_goes_first_and_pinned_ones_stay(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, cache_bytes=0)
    models = [jobs.model(adder(value)) for value in (1, 2, 3)]
    plan = plan_of(
        [(CPU, model, [["segment", n - 1, 0] if n else ["input", 0]], 1) for n, model in enumerate(models)],
        [["segment", 2, 0]],
    )
    _, (output,) = jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    np.testing.assert_allclose(output, X + 6, atol=1e-6)
    assert len(jobs.context.sessions) == 3  # the plan at hand is never evicted
    jobs.do("try", platform=CPU, model=models[0])
    assert len(jobs.context.sessions) == 1


def test_a_use_keeps_a_session_from_being_the_next_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class OfOneByte:
        """A session that only has a size."""

        memory_bytes = 1
        broken = False

        def __init__(self, path: str) -> None:
            self.path = path

        def close(self) -> None:
            closed.append(self.path)

    monkeypatch.setattr(session_cache, "open_session", lambda platform, path, **_: OfOneByte(path))
    cache = SessionCache(cap_bytes=2)

    def use(name: str) -> bool:
        cache.begin_job()
        return cache.get(CPU, name, name, taken=set(), progress=lambda stage: None)[1]

    assert [use(name) for name in "abab"] == [True, True, False, False]
    assert use("a") is False
    assert use("c") is True
    assert closed == ["b"]
    assert [use("a"), use("c")] == [False, False]
    assert use("b") is True
    assert closed == ["b", "a"]
    assert cache.size_bytes == 2


def test_the_cap_follows_the_free_memory() -> None:
    assert 0 < default_cap_bytes() < 1 << 50
    assert SessionCache().size_bytes == 0


def test_state_flows_from_sample_to_sample_and_starts_afresh(jobs: Jobs, model_file: ModelFile) -> None:
    model = jobs.model(model_file("resource_variables"))
    header, _ = jobs.do("try", platform=CPU, model=model)
    plan = whole_model_plan(CPU, model, 1, len(header["arrays"]))
    inputs = [[jobs.array(np.ones((1, 4), np.float32))]] * 3
    header, once = jobs.do("run", plan=plan, inputs=inputs)
    jobs.do("measure", plan=plan, inputs=inputs, timing=QUICK)
    _, twice = jobs.do("run", plan=plan, inputs=inputs)
    assert all(np.array_equal(a, b) for a, b in zip(once, twice))
    per_sample = header["arrays_per_sample"]
    assert not all(np.array_equal(a, b) for a, b in zip(once[:per_sample], once[per_sample:]))


def test_measure_keeps_the_parts_and_they_add_up(jobs: Jobs) -> None:
    one, join = jobs.model(adder(1)), jobs.model(joiner())
    plan = plan_of(
        [(CPU, one, [["input", 0]], 1), (BUILTIN, join, [["segment", 0, 0], ["input", 0]], 2)],
        [["segment", 1, 0]],
    )
    header, _ = jobs.do("measure", plan=plan, inputs=[[jobs.array(X)]], timing=QUICK)
    assert len(header["times_ms"]) >= QUICK["min_runs"]
    assert len(header["segment_ms"]) == len(header["handover_ms"]) == len(header["prepare_ms"]) == 2
    assert header["min_ms"] <= header["p50_ms"] <= header["p90_ms"] <= header["p99_ms"]
    assert header["ci95_ms"][0] <= header["p50_ms"] <= header["ci95_ms"][1]
    assert 0 <= header["unaccounted_ms"] <= header["p50_ms"]
    assert all(value > 0 for value in header["segment_ms"] + header["handover_ms"])
    stages = [event["stage"] for event in jobs.progress]
    assert stages == ["compile", "prepare"] * 2 + ["first_run", "first_run", "warmup", "timing"]
    assert [event["segment"] for event in jobs.progress[:6]] == [0, 0, 1, 1, 0, 1]


def test_a_plan_without_segments_only_passes_arrays(jobs: Jobs) -> None:
    plan = {"segments": [], "outputs": [["input", 0]], "platforms": {}}
    _, (output,) = jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    np.testing.assert_array_equal(output, X)
    header, _ = jobs.do("measure", plan=plan, inputs=[[jobs.array(X)]], timing=QUICK)
    assert (header["segment_ms"], header["handover_ms"]) == ([], [])


def test_interleave_gives_every_plan_the_same_number_of_runs(jobs: Jobs) -> None:
    model = jobs.model(adder(1))
    plans = [whole_model_plan(platform, model, 1, 1) for platform in (CPU, BUILTIN, REFERENCE)]
    header, _ = jobs.do("interleave", plans=plans, inputs=[[jobs.array(X)]], rounds=4, runs_per_round=3)
    assert [[len(times) for times in series] for series in header["times_ms"]] == [[3] * 4] * 3
    assert header["rounds"] == 4
    assert sum(event["stage"] == "timing" for event in jobs.progress) == 4


def test_interleaved_plans_take_turns_at_being_first_after_a_run_that_does_not_count(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    execute = RunnablePlan.execute

    def noted(plan: RunnablePlan, *given: Any) -> Any:
        ran.append(plan.steps[0].platform)
        return execute(plan, *given)

    monkeypatch.setattr(RunnablePlan, "execute", noted)
    model = jobs.model(adder(1))
    plans = [whole_model_plan(platform, model, 1, 1) for platform in (CPU, BUILTIN, REFERENCE)]
    jobs.do("interleave", plans=plans, inputs=[[jobs.array(X)]], rounds=4, runs_per_round=2)
    cpu, builtin, reference = (["cpu"] * 3, ["builtin"] * 3, ["reference"] * 3)
    assert ran == [
        *("cpu", "builtin", "reference"),  # once each, to be there
        *(cpu + builtin + reference),
        *(builtin + reference + cpu),
        *(reference + cpu + builtin),
        *(cpu + builtin + reference),
    ]


def test_interleave_ends_with_its_budget_after_whole_rounds(jobs: Jobs) -> None:
    model = jobs.model(adder(1))
    plans = [whole_model_plan(platform, model, 1, 1) for platform in (CPU, BUILTIN)]
    header, _ = jobs.do(
        "interleave", plans=plans, inputs=[[jobs.array(X)]], rounds=100, runs_per_round=2, budget_s=1e-9
    )
    assert header["rounds"] == 1
    assert [[len(times) for times in series] for series in header["times_ms"]] == [[2], [2]]


def test_try_makes_up_inputs_or_takes_them(jobs: Jobs) -> None:
    model = jobs.model(joiner())
    _, made_up = jobs.do("try", platform=CPU, model=model)
    _, same = jobs.do("try", platform=CPU, model=model, inputs=[None, None])
    assert all(np.array_equal(a, b) for a, b in zip(made_up, same))
    header, (difference, y) = jobs.do(
        "try", platform=CPU, model=model, inputs=[jobs.array(X), jobs.array(2 * X)], timing=QUICK
    )
    np.testing.assert_allclose(difference, -X, atol=1e-6)
    np.testing.assert_array_equal(y, 2 * X)
    assert header["prepare_ms"] == 0.0  # still compiled
    assert header["first_run_ms"] > 0
    assert len(header["times_ms"]) >= QUICK["min_runs"]
    assert header["has_nan"] is False


def test_shapes_follow_the_inputs(jobs: Jobs) -> None:
    builder = Builder()
    graph = builder.graph()
    x = graph.input((1, 8, 8, 3), shape_signature=(-1, -1, -1, 3))
    y = graph.conv(x, 4, stride=2)
    z = graph.pool(y)
    graph.output(z)
    model = jobs.model(builder.finish())
    as_is = jobs.do("shapes", model=model, input_shapes={})[0]
    assert as_is["shapes"][str(y)] == [1, 4, 4, 4]
    for key in (str(x), "in0"):
        resized = jobs.do("shapes", model=model, input_shapes={key: [2, 16, 32, 3]}, kernels="builtin")[0]
        assert resized["shapes"][str(x)] == [2, 16, 32, 3]
        assert resized["shapes"][str(y)] == [2, 8, 16, 4]
        assert resized["shapes"][str(z)] == [2, 4, 8, 4]
        assert resized["dynamic"] == []
    with pytest.raises(StageError):
        jobs.do("shapes", model=model, input_shapes={"in0": [1, 8, 8, 5]})


def test_tensors_sized_while_running_are_said_to_be_dynamic(jobs: Jobs, model_file: ModelFile) -> None:
    header, _ = jobs.do("shapes", model=jobs.model(model_file("dynamic_where")))
    assert header["dynamic"]


def test_a_handed_over_shape_resizes_the_next_segment(jobs: Jobs) -> None:
    def tanh() -> bytes:
        builder = Builder()
        graph = builder.graph()
        graph.output(graph.unary("TANH", graph.input((1, 4), shape_signature=(-1, 4))))
        return builder.finish()

    model = jobs.model(tanh())
    plan = plan_of(
        [(CPU, model, [["input", 0]], 1), (BUILTIN, model, [["segment", 0, 0]], 1)], [["segment", 1, 0]]
    )
    arrays = [seeded(rows, 4, seed=rows) for rows in (1, 3, 2)]
    _, outputs = jobs.do("run", plan=plan, inputs=[[jobs.array(array)] for array in arrays])
    for array, output in zip(arrays, outputs):
        np.testing.assert_allclose(output, np.tanh(np.tanh(array)), atol=1e-6)


def test_both_runtimes_run_in_one_process_and_one_plan(jobs: Jobs) -> None:
    require_runtime("litert")
    require_runtime("tflite")
    new, old = {**CPU, "name": "new", "runtime": "litert"}, {**CPU, "name": "old", "runtime": "tflite"}
    model = jobs.model(adder(1))
    plan = plan_of(
        [(new, model, [["input", 0]], 1), (old, model, [["segment", 0, 0]], 1)], [["segment", 1, 0]]
    )
    _, (output,) = jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    np.testing.assert_allclose(output, X + 2, atol=1e-6)


def test_a_failure_names_segment_and_platform(jobs: Jobs, model_file: ModelFile) -> None:
    good, bad = jobs.model(adder(1)), jobs.model(model_file("unknown_custom_op"))
    plan = plan_of(
        [(CPU, good, [["input", 0]], 1), (BUILTIN, bad, [["segment", 0, 0]], 1)], [["segment", 1, 0]]
    )
    with pytest.raises(StageError) as caught:
        jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])
    assert (caught.value.kind, caught.value.segment, caught.value.platform) == ("unsupported", 1, "builtin")


@pytest.mark.parametrize(
    ("verb", "change"),
    [
        ("fly", {}),
        ("measure", {"timing": {"runs": 5}}),
        ("measure", {"inputs": []}),
        ("interleave", {"rounds": 0, "runs_per_round": 1}),
        ("interleave", {"rounds": 10**6, "runs_per_round": 10**6}),
    ],
)
def test_wrong_requests_are_request_errors(jobs: Jobs, verb: str, change: dict[str, Any]) -> None:
    plan = whole_model_plan(CPU, jobs.model(adder(1)), 1, 1)
    fields = {"plan": plan, "plans": [plan], "inputs": [[jobs.array(X)]], **change}
    with pytest.raises(RequestError):
        jobs.do(verb, **fields)


def test_a_plan_that_does_not_fit_its_file_is_a_request_error(jobs: Jobs) -> None:
    plan = whole_model_plan(CPU, jobs.model(joiner()), 1, 2)
    with pytest.raises(RequestError, match="2 and 2 in its file"):
        jobs.do("run", plan=plan, inputs=[[jobs.array(X)]])


def test_an_array_that_does_not_fit_its_description_is_a_request_error(jobs: Jobs) -> None:
    plan = whole_model_plan(CPU, jobs.model(adder(1)), 1, 1)
    blob = {**jobs.array(X), "shape": [7]}
    with pytest.raises(RequestError, match="array blob"):
        jobs.do("run", plan=plan, inputs=[[blob]])

"""The test delegate in every loader that takes one, and what each of its misdeeds becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import c_library, require_runtime
from agent_process import running_agent
from delegate_build import NAME, build_test_delegate
from worker_jobs import CPU, Jobs, seeded, whole_model_plan

from device_agents.runtimes import Session, StageError, open_session
from edgeplace.testing.model_builder import Builder, fb

NODES = 5


def elementwise() -> bytes:
    """tanh((x + c)^2) + relu(x), and the tanh itself: five nodes, all of which the delegate knows."""
    builder = Builder()
    graph = builder.graph()
    x = graph.input((1, 2, 3))
    y = graph.add(x, graph.constant(np.arange(3, dtype=np.float32)))
    y = graph.unary("TANH", graph.make("MUL", [y, y], (1, 2, 3), fb.MulOptionsT()))
    graph.output(graph.add(y, graph.unary("RELU", x)), y)
    return builder.finish()


def expected(x: Any) -> list[Any]:
    tanh = np.tanh((x + np.arange(3, dtype=np.float32)) ** 2)
    return [tanh + np.maximum(x, 0), tanh]


X = seeded(1, 2, 3)


@pytest.fixture(scope="session")
def delegate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_test_delegate(tmp_path_factory.mktemp("delegate"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "elementwise.tflite"
    path.write_bytes(elementwise())
    return path


def platform_of(loader: str, library: Path, **options: Any) -> dict[str, Any]:
    if loader == "tflite_c":
        return {
            "name": "test",
            "kind": "npu",
            "loader": "tflite_c",
            "library": str(c_library()),
            "options": {"delegate": str(library)},
            "library_options": options,
        }
    require_runtime(loader)
    return {
        "name": "test",
        "kind": "npu",
        "loader": "interpreter",
        "runtime": loader,
        "library": str(library),
        "library_options": options,
    }


@pytest.fixture(params=["litert", "tflite", "tflite_c"])
def loader(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(loader: str, library: Path, model: Path, **options: Any) -> Session:
    return open_session(platform_of(loader, library, **options), str(model))


def test_a_delegate_that_claims_all_is_accelerated_and_right(
    loader: str, delegate: Path, model: Path
) -> None:
    session = opened(loader, delegate, model)
    assert session.accelerated is True
    assert session.nodes[NAME] == NODES
    for output, wanted in zip(session.run([X]), expected(X)):
        np.testing.assert_allclose(output, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "claimed"),
    [({"ops": "ADD"}, 2), ({"ops": "TANH,RELU"}, 2), ({"max_nodes": 1}, 1), ({"ops": "ADD,MUL,TANH"}, 4)],
)
def test_a_partial_claim_says_how_many_nodes(
    loader: str, delegate: Path, model: Path, options: dict[str, Any], claimed: int
) -> None:
    session = opened(loader, delegate, model, **options)
    assert session.accelerated is False
    assert session.nodes[NAME] == claimed
    assert sum(count for who, count in session.nodes.items() if who != "total") == NODES
    assert f"{NAME} {claimed}/{NODES}" in session.ran_on
    for output, wanted in zip(session.run([X]), expected(X)):
        np.testing.assert_allclose(output, wanted, atol=1e-6)


def test_a_delegate_that_claims_nothing_is_no_silent_success(
    loader: str, delegate: Path, model: Path
) -> None:
    session = opened(loader, delegate, model, ops="none")
    assert session.accelerated is False
    assert session.nodes[NAME] == 0
    assert NAME not in session.ran_on


def test_wrong_numbers_come_through_as_they_are(loader: str, delegate: Path, model: Path) -> None:
    session = opened(loader, delegate, model, ops="TANH", mode="wrong", scale=2, offset=0.5)
    np.testing.assert_allclose(session.run([X])[1], expected(X)[1] * 2 + 0.5, atol=1e-5)
    assert np.isnan(opened(loader, delegate, model, mode="nan").run([X])[1]).all()


@pytest.mark.parametrize(
    ("mode", "kind", "says"),
    [
        ("refuse_create", "compile_failed", "creation refused"),
        ("refuse_prepare", "prepare_failed", "graph refused"),
        ("refuse_nodes", "prepare_failed", "nodes refused"),
        ("fail_invoke", "invoke_failed", "run failed"),
        ("oom_invoke", "out_of_memory", "out of memory"),
    ],
)
def test_each_refusal_has_its_class_and_its_words(
    loader: str, delegate: Path, model: Path, mode: str, kind: str, says: str
) -> None:
    with pytest.raises(StageError) as caught:
        opened(loader, delegate, model, mode=mode, cap_mb=4).run([X])
    assert caught.value.kind == kind
    assert says in caught.value.message


def test_a_failure_later_on_is_placed_in_its_segment(delegate: Path, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    model = jobs.model(elementwise())
    plan = whole_model_plan(platform_of("litert", delegate, mode="fail_invoke", after_runs=5), model, 1, 2)
    with pytest.raises(StageError) as caught:
        jobs.do(
            "measure", plan=plan, inputs=[[jobs.array(X)]], timing={"warmup_min_runs": 3, "warmup_min_s": 0}
        )
    assert (caught.value.kind, caught.value.segment, caught.value.platform) == ("invoke_failed", 0, "test")
    assert jobs.progress[-1]["stage"] == "timing"


DEATHS = [
    ({"mode": "crash_prepare"}, "crashed", 11, "compile"),
    ({"mode": "exit_prepare"}, "exited", 0, "compile"),
    ({"mode": "crash_invoke"}, "crashed", 11, "first_run"),
    ({"mode": "exit_invoke"}, "exited", 0, "first_run"),
    ({"mode": "crash_invoke", "after_runs": 2}, "crashed", 11, "warmup"),
    ({"mode": "hang_prepare"}, "timeout", None, "compile"),
    ({"mode": "hang_invoke"}, "timeout", None, "first_run"),
]


@pytest.mark.parametrize("runtime", ["litert", "tflite"])
def test_each_death_is_a_result_and_the_next_measurement_goes_on(
    runtime: str, delegate: Path, tmp_path: Path
) -> None:
    timing = {"warmup_min_runs": 3, "warmup_min_s": 0.0, "min_runs": 3, "max_runs": 5, "budget_s": 0.1}
    with running_agent(tmp_path / "root") as agent:
        model, blob = agent.put(elementwise()), agent.put(X.tobytes())
        inputs = [[{"blob": blob, "dtype": "float32", "shape": list(X.shape)}]]

        def measure(**options: Any) -> dict[str, Any]:
            plan = whole_model_plan(platform_of(runtime, delegate, **options), model, 1, 2)
            limit_s = 3.0 if options["mode"].startswith("hang") else 60.0
            return agent.ask("measure", plan=plan, inputs=inputs, timing=timing, stage_deadline_s=limit_s)

        for options, kind, code, stage in DEATHS:
            failure = measure(**options)["failure"]
            assert (failure["kind"], failure["code"], failure["stage"]) == (kind, code, stage), (
                options,
                failure,
            )
            if stage in ("compile", "first_run"):
                assert (failure["segment"], failure["platform"]) == (0, "test")
            answer = measure(mode="print")
            assert answer["ok"], answer
            assert answer["segments"][0]["accelerated"] is True
            assert len(answer["times_ms"]) >= 3


def test_the_delegate_can_take_a_known_time(delegate: Path, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    model = jobs.model(elementwise())
    timing = {"warmup_min_runs": 0, "warmup_min_s": 0, "min_runs": 3, "max_runs": 3}
    platform = platform_of("litert", delegate, delay_us=2000)
    header, _ = jobs.do(
        "measure", plan=whole_model_plan(platform, model, 1, 2), inputs=[[jobs.array(X)]], timing=timing
    )
    assert header["min_ms"] >= 2.0
    plain, _ = jobs.do("try", platform=CPU, model=model, inputs=[jobs.array(X)])
    assert plain["accelerated"] is None

"""A real runtime with a real external delegate that misbehaves, under the real agent: each death is one answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_process import AgentProcess, children_of, running_agent
from delegate_build import build_test_delegate
from worker_jobs import BUILTIN, plan_of, seeded

from device_agents.arrays import pack_arrays, unpack_arrays

# TFLite's Python interpreter hands the graph to a delegate while it is constructed: that is the stage `compile`.
MISBEHAVIOUR = [
    ("refuse_create", "compile_failed", "compile", None),
    ("refuse_prepare", "prepare_failed", "compile", None),
    ("crash_prepare", "crashed", "compile", signal.SIGSEGV),
    ("exit_prepare", "exited", "compile", 0),
    ("hang_prepare", "timeout", "compile", None),
    ("refuse_nodes", "prepare_failed", "compile", None),
    ("fail_invoke", "invoke_failed", "first_run", None),
    ("crash_invoke", "crashed", "first_run", signal.SIGSEGV),
    ("exit_invoke", "exited", "first_run", 0),
    ("kill_invoke", "out_of_memory", "first_run", None),
    ("hang_invoke", "timeout", "first_run", None),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_test_delegate(tmp_path_factory.mktemp("delegate"))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One agent for all tests of this file: each must leave it ready for the next."""
    with running_agent(tmp_path_factory.mktemp("board") / "root") as process:
        yield process


def delegated(library: Path, mode: str) -> dict[str, Any]:
    return {
        "name": mode,
        "kind": "npu",
        "loader": "interpreter",
        "library": str(library),
        "library_options": {"mode": mode},
    }


def array_blob(agent: AgentProcess, array: Any) -> dict[str, Any]:
    (description,), pieces = pack_arrays([array])
    blob = agent.put(b"".join(bytes(piece) for piece in pieces))
    return {"blob": blob, "dtype": description["dtype"], "shape": description["shape"]}


@pytest.fixture
def model(agent: AgentProcess, model_file: Callable[[str], Path]) -> str:
    return agent.put(model_file("branchy").read_bytes())


@pytest.mark.parametrize(("mode", "kind", "stage", "code"), MISBEHAVIOUR)
def test_each_misbehaviour_has_its_own_class_and_the_next_job_works(
    agent: AgentProcess, library: Path, model: str, mode: str, kind: str, stage: str, code: int | None
) -> None:
    deadline = {"deadline_s": 3} if kind == "timeout" else {}
    failure = agent.ask("try", model=model, platform=delegated(library, mode), **deadline)["failure"]
    assert (failure["kind"], failure["stage"], failure["code"]) == (kind, stage, code), failure
    assert failure["platform"] == mode
    assert agent.ask("try", model=model, platform=BUILTIN)["ok"]


def test_printing_delegates_do_not_disturb_the_stream(agent: AgentProcess, library: Path, model: str) -> None:
    answer = agent.ask("try", model=model, platform=delegated(library, "print"))
    assert answer["ok"]
    assert answer["accelerated"] is not None


def plan_and_sample(
    agent: AgentProcess, model: str, *platforms: dict[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """A plan that runs ``branchy`` once per platform, each time on the graph's input; gives the last one's outputs."""
    segments = [(platform, model, [("input", 0)], 2) for platform in platforms]
    last = len(platforms) - 1
    plan = plan_of(segments, [("segment", last, 0), ("segment", last, 1)])
    return plan, [array_blob(agent, seeded(1, 8, 8, 4))]


def test_a_death_is_placed_in_the_plan(agent: AgentProcess, library: Path, model: str) -> None:
    plan, sample = plan_and_sample(agent, model, BUILTIN, delegated(library, "crash_prepare"))
    failure = agent.ask("run", plan=plan, inputs=[sample])["failure"]
    assert (failure["kind"], failure["segment"], failure["platform"]) == ("crashed", 1, "crash_prepare")


def test_a_plan_runs_and_its_worker_stays_for_the_next(agent: AgentProcess, model: str) -> None:
    plan, sample = plan_and_sample(agent, model, BUILTIN)
    agent.send("run", plan=plan, inputs=[sample, sample])
    header, payload = agent.receive()
    assert header["ok"], header
    arrays = unpack_arrays(header["arrays"], payload)
    assert len(arrays) == 4
    assert all(np.array_equal(a, b) for a, b in zip(arrays[:2], arrays[2:]))
    before = children_of(agent.process.pid)
    timing = {"min_runs": 3, "max_runs": 3, "budget_s": 5, "warmup_min_runs": 1, "warmup_min_s": 0}
    measured = agent.ask("measure", plan=plan, inputs=[sample], timing=timing)
    assert len(measured["times_ms"]) == 3
    assert measured["prepare_ms"] == [0.0], "the segment is still compiled"
    assert children_of(agent.process.pid) == before


def test_a_worker_that_reaches_its_memory_limit_says_so(
    tmp_path: Path, library: Path, model_file: Callable[[str], Path]
) -> None:
    """The delegate asks for ten times the limit; the board has more, so only the limit can stop it."""
    limit_bytes = 3 << 28  # 0.75 GiB: enough for the runtime itself
    platform = delegated(library, "oom_invoke")
    platform["library_options"]["cap_mb"] = str(10 * limit_bytes >> 20)
    with running_agent(tmp_path / "root", "--worker-memory-bytes", str(limit_bytes)) as agent:
        model = agent.put(model_file("branchy").read_bytes())
        assert agent.ask("try", model=model, platform=BUILTIN)["ok"]
        failure = agent.ask("try", model=model, platform=platform)["failure"]
        assert (failure["kind"], failure["stage"]) == ("out_of_memory", "first_run"), failure
        assert agent.ask("try", model=model, platform=BUILTIN)["ok"]

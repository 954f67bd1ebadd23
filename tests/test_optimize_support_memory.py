"""What was found by trying is remembered from one search to the next, for as long as the platform is the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from accelerators import require_gpu, require_npu
from delegate_build import build_test_delegate
from optimize_runs import short_request
from worker_jobs import CPU, Jobs

from device_agents.runtimes.environment import library_hashes
from edgeplace import controller
from edgeplace.measure.workbench import Workbench
from edgeplace.placement.plan import Segment
from edgeplace.store import Store
from edgeplace.testing.model_builder import Builder


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The platforms on which a segment was tried alone, one entry for each trial on the board."""
    platforms: list[str] = []
    attempt = Workbench.attempt

    def counted(self: Workbench, segment: Segment, inputs: Sequence[Any]) -> Any:
        platforms.append(segment.platform)
        return attempt(self, segment, inputs)

    monkeypatch.setattr(Workbench, "attempt", counted)
    return platforms


@pytest.fixture
def library(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the test delegate that may be changed."""
    copy = tmp_path / "libacc.so"
    copy.write_bytes(build_test_delegate(tmp_path_factory.mktemp("delegate")).read_bytes())
    return copy


@pytest.mark.parametrize(
    "platform",
    ["cpu_ref", pytest.param("npu", marks=pytest.mark.npu), pytest.param("gpu", marks=pytest.mark.gpu)],
)
def test_a_second_search_tries_nothing_again(
    platform: str, tried: list[str], model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    if platform == "npu":
        require_npu()
    if platform == "gpu":
        require_gpu()
    request = short_request(model_file("conv_chain"), tmp_path, "cpu1", platform, budget=2)
    first = controller.optimize(request).map
    assert set(tried) == {"cpu1", platform}
    tried.clear()
    second = controller.optimize(request).map
    assert tried == []
    assert second.rejected == first.rejected
    assert second.search is not None
    assert first.search is not None
    assert second.search.placements == first.search.placements


def test_refusals_are_remembered_too(
    tried: list[str], library: Path, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    platform = f"acc=delegate:{library},ops=TANH,mode=crash_invoke"
    request = short_request(
        model_file("multi_output"), tmp_path, "cpu1", platform, granularity="op", budget=2
    )
    first = controller.optimize(request).map
    assert {(r.platform, r.failure) for r in first.rejected} >= {("acc", "crashed"), ("acc", "unsupported")}
    tried.clear()
    second = controller.optimize(request).map
    assert tried == []
    assert second.rejected == first.rejected


def test_another_library_under_the_same_name_is_tried_again(
    tried: list[str], library: Path, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    request = short_request(
        model_file("multi_output"), tmp_path, "cpu1", f"acc=delegate:{library},ops=TANH", granularity="op",
        budget=2,
    )  # fmt: skip
    controller.optimize(request)
    tried.clear()
    library.write_bytes(library.read_bytes() + b"another build")
    controller.optimize(request)
    assert set(tried) == {"acc"}


def test_other_options_are_tried_again(
    tried: list[str], library: Path, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    def search(options: str) -> int:
        platform = f"acc=delegate:{library},{options}"
        found = controller.optimize(
            short_request(model_file("multi_output"), tmp_path, "cpu1", platform, granularity="op", budget=2)
        ).map
        assert found.search is not None
        return found.search.placements

    assert search("ops=TANH") == 2
    tried.clear()
    assert search("ops=none") == 1
    assert set(tried) == {"acc"}


def test_a_search_over_another_library_is_not_resumed(
    library: Path, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    request = short_request(
        model_file("multi_output"), tmp_path, "cpu1", f"acc=delegate:{library},ops=TANH", granularity="op",
        budget=2,
    )  # fmt: skip
    controller.optimize(request)
    library.write_bytes(library.read_bytes() + b"another build")
    controller.optimize(request)
    with Store.open(request.store) as store:
        assert len({session.key for session in store.sessions()}) == 2


def test_the_probe_says_which_library_files_there_are(library: Path, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    builder = Builder()
    graph = builder.graph()
    graph.output(graph.unary("RELU", graph.input((1, 4))))
    model = jobs.model(builder.finish())
    delegate = {**CPU, "kind": "npu", "library": str(library), "options": {}}
    answer, _ = jobs.do("probe", platform=delegate, model=model, inputs=[])
    assert answer["details"]["libraries"] == library_hashes(delegate)
    assert all(len(sha256) == 64 for sha256 in answer["details"]["libraries"].values())
    assert jobs.do("probe", platform=CPU, model=model, inputs=[])[0]["details"]["libraries"] == {}


def test_a_library_named_without_a_folder_is_found_where_it_was_loaded_from() -> None:
    (by_name,) = library_hashes({"preload": ["libc.so.6"]}).values()
    assert len(by_name) == 64
    assert library_hashes({"options": {"delegate": "libthere_is_none.so"}}) == {"libthere_is_none.so": ""}

"""The records of a search: what is kept when it ends early, and what counts against a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_workbench import fake_board, reference_of

from edgeplace.controller.records import SessionRecorder, search_session
from edgeplace.controller.requests import OptimizeRequest, SearchInterrupted, SilentObserver
from edgeplace.errors import LinkError, StoreError
from edgeplace.measure.measurement import Measurement
from edgeplace.measure.statistics import timing_from
from edgeplace.placement.plan import Placement
from edgeplace.store import Store
from edgeplace.testing.toy import toy_graph

PLACEMENT = Placement(("cpu", "npu"))


class NoteTaker(SilentObserver):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def measure_then(
    store: Store, ending: BaseException | None, *, resume: bool = False, watch: NoteTaker | None = None
) -> SessionRecorder:
    """A search that measures plan ``a`` and is stopped by ``ending`` while plan ``b`` runs."""
    graph = toy_graph(2)
    request = OptimizeRequest(model=Path("toy.tflite"), resume=resume)
    inputs = reference_of(graph)[0].inputs
    with search_session(
        store, request, fake_board("cpu", "npu"), graph, inputs, watch or NoteTaker()
    ) as session:
        if session.lookup("a") is None:
            timing = timing_from([1.0] * 5)
            session.end(session.start("a", PLACEMENT), Measurement(PLACEMENT.id, "a", timing=timing))
        token = session.start("b", PLACEMENT)
        if ending is not None:
            raise ending
        session.end(token, Measurement(PLACEMENT.id, "b", timing=timing_from([2.0] * 5)))
        session.finish("the map")
    return session


def test_ctrl_c_keeps_the_measurements_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    with (
        Store.open(path) as store,
        pytest.raises(SearchInterrupted, match="1 measurements are kept") as caught,
    ):
        measure_then(store, KeyboardInterrupt())
    assert "--resume" in caught.value.hint
    watch = NoteTaker()
    with Store.open(path) as store:
        assert measure_then(store, None, resume=True, watch=watch).measured == 2
        (session,) = store.sessions()
        assert (session.measured, session.unfinished) == (2, 0)
        assert session.finished_at is not None
    assert watch.notes == []


@pytest.mark.parametrize(
    ("ending", "strikes"),
    [
        (LinkError("the connection broke"), {}),
        (StoreError("the disk is full"), {}),
        (RuntimeError("as good as a killed host"), {"b": 1}),
    ],
    ids=["link", "disk", "bug"],
)
def test_only_a_host_that_dies_counts_against_the_plan_that_was_running(
    tmp_path: Path, ending: Exception, strikes: dict[str, int]
) -> None:
    path = str(tmp_path / "store.sqlite")
    with Store.open(path) as store, pytest.raises(type(ending)):
        measure_then(store, ending)
    with Store.open(path) as store:
        graph = toy_graph(2)
        request = OptimizeRequest(model=Path("toy.tflite"), resume=True)
        inputs = reference_of(graph)[0].inputs
        with search_session(store, request, fake_board("cpu", "npu"), graph, inputs, NoteTaker()) as session:
            assert session.strikes == strikes
            assert session.measured == 1


def test_an_unfinished_search_is_mentioned_when_another_begins(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    with Store.open(path) as store, pytest.raises(SearchInterrupted):
        measure_then(store, KeyboardInterrupt())
    watch = NoteTaker()
    with Store.open(path) as store:
        measure_then(store, None, watch=watch)
    (note,) = watch.notes
    assert "1 measurements exists; --resume goes on with it" in note

"""Sessions: START and END records, what a dead host leaves behind, and who may work on a session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from edgeplace.errors import StoreError
from edgeplace.measure.measurement import Agreement, Failure, Measurement, Timing
from edgeplace.store import Store


def timed(name: str, ms: float = 1.25) -> Measurement:
    timing = Timing((ms, ms + 0.1), ms, (ms, ms + 0.1), ms, ms, ms, segment_ms=(ms,))
    return Measurement(name, f"plan-{name}", timing=timing, agreement=Agreement(0.0, 1.0, float("inf"), 90.5))


def failed(name: str) -> Measurement:
    return Measurement(name, f"plan-{name}", failure=Failure("crashed", "died", "prepare", 0, "npu", 11))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "store.sqlite"


def test_records_come_back_in_order_and_equal(path):
    measured = [timed("a", 0.1), failed("b"), timed("c", 1 / 3)]
    with Store.open(path) as store:
        session = store.session("key", {"model": "m"}, resume=False)
        for item in measured:
            session.end(session.start(item.plan_id, item.placement_id, "measure", ("cpu", "npu")), item)
        session.end(session.start("plan", "-", "baseline"), None)
    with Store.open(path) as store:
        session = store.session("key", {"model": "m"}, resume=True)
        assert session.measurements() == tuple(measured)
        records = session.records()
        assert [r.kind for r in records] == ["measure"] * 3 + ["baseline"]
        assert records[0].platforms == ("cpu", "npu")
        assert records[3].measurement is None
        assert session.records("interleave") == ()


def test_times_of_a_record_are_those_of_the_clock(path):
    moments = iter([datetime(2030, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=n) for n in range(10)])
    with Store.open(path, clock=lambda: next(moments)) as store:
        session = store.session("key", {}, resume=False)
        session.end(session.start("p", "a"), timed("a"))
        (record,) = session.records()
        assert record.ended_at - record.started_at == timedelta(seconds=1)


def test_a_session_says_what_is_known_of_it(path):
    with Store.open(path) as store:
        assert store.last_session("key") is None
        session = store.session("key", {"model": "m", "seed": 0}, resume=False)
        session.end(session.start("p", "a"), timed("a"))
        session.end(session.start("p", "a", "interleave"), timed("a"))
        session.give_up(session.start("p", "b"), "Ctrl-C")
        session.start("p", "c")
        summary = store.last_session("key")
        assert (summary.id, summary.measured, summary.unfinished) == (session.id, 1, 1)
        assert summary.facts == {"model": "m", "seed": 0}
        assert summary.finished_at is None
        session.finish("format: ...")
        assert session.result == "format: ..."
        assert store.last_session("key").finished_at is not None


def test_a_new_session_leaves_the_older_one_alone(path):
    with Store.open(path) as store:
        first = store.session("key", {}, resume=False)
        first.end(first.start("p", "a"), timed("a"))
        second = store.session("key", {}, resume=False)
        assert second.records() == ()
        assert [s.id for s in store.sessions()] == [first.id, second.id]
        second.close()
        assert store.session("key", {}, resume=True).id == second.id


def test_nothing_to_resume_is_an_error_that_says_so(path):
    with Store.open(path) as store:
        store.session("other", {}, resume=False)
        with pytest.raises(StoreError, match="no earlier search") as caught:
            store.session("key", {}, resume=True)
    assert "--resume" in caught.value.hint


def test_a_start_without_an_end_is_reported_and_is_a_strike(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        session.start("plan-a", "a", "measure", ("npu",))
        session.give_up(session.start("plan-b", "b"), "the link broke")
        assert session.unfinished() == ()  # still in flight here
        assert session.strikes() == {}
    with Store.open(path) as store:
        session = store.session("key", {}, resume=True)
        (lost,) = session.unfinished()
        assert (lost.plan_id, lost.placement_id, lost.platforms) == ("plan-a", "a", ("npu",))
        session.start("plan-a", "a")
    with Store.open(path) as store:
        assert store.session("key", {}, resume=True).strikes() == {"plan-a": 2}
        assert store.session("key", {}, resume=False).strikes() == {"plan-a": 2}
        assert store.session("another key", {}, resume=False).strikes() == {}


def test_an_end_needs_its_start(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        token = session.start("p", "a")
        session.end(token, timed("a"))
        with pytest.raises(ValueError, match="no run"):
            session.end(token, timed("a"))
        with pytest.raises(ValueError, match="no kind of run"):
            session.start("p", "a", "guess")


CHILD = """
import sys
from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.store import Store

store = Store.open(sys.argv[1])
session = store.session("key", {}, resume=False)
for number in range(5):
    token = session.start(f"plan-{number}", f"placement-{number}")
    session.end(token, Measurement(f"placement-{number}", f"plan-{number}", failure=Failure("timeout", "t")))
session.start("plan-5", "placement-5")
print("in the middle of a run", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child_in_the_middle(path):
    """A host that has recorded five runs, has begun a sixth, and waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"in the middle of a run\n"
    yield child
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()


def test_a_killed_host_loses_the_run_in_flight_and_nothing_else(path, child_in_the_middle):
    os.kill(child_in_the_middle.pid, signal.SIGKILL)
    child_in_the_middle.wait()
    with Store.open(path) as store:
        session = store.session("key", {}, resume=True)
        assert [r.placement_id for r in session.records()] == [f"placement-{n}" for n in range(5)]
        assert [u.placement_id for u in session.unfinished()] == ["placement-5"]
        assert session.strikes() == {"plan-5": 1}
        session.end(session.start("plan-5", "placement-5"), timed("placement-5"))
        assert len(session.records()) == 6


def test_a_session_another_process_works_on_is_refused(path, child_in_the_middle):
    with Store.open(path) as store:
        with pytest.raises(StoreError, match="another process") as caught:
            store.session("key", {}, resume=True)
        assert caught.value.hint
        # A search of its own is fine: both write to the same file.
        other = store.session("key 2", {}, resume=False)
        other.end(other.start("p", "a"), timed("a"))
        assert len(other.records()) == 1


def test_a_finished_or_closed_session_leaves_no_lock_behind(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        with pytest.raises(StoreError, match="another process"):
            store.session("key", {}, resume=True)
        session.finish("done")
        store.session("key", {}, resume=True).close()
        assert [p.name for p in path.parent.iterdir() if "lock" in p.name] == []

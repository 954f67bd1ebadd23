"""The file itself: what cannot be opened, what cannot be written, and what two hosts do to each other."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import event

from edgeplace.errors import StoreError
from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.store import Store, Support, default_store_path
from edgeplace.store.database import _use_write_ahead_log
from edgeplace.store.tables import FORMAT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def change(path, statement: str, *values: object) -> None:
    """Change the file behind the store's back."""
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


def failed(message: str = "t") -> Measurement:
    return Measurement("a", "p", failure=Failure("timeout", message))


def test_every_write_is_synced(path):
    with Store.open(path) as store, store._database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_start_is_committed_before_it_returns(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        session.start("p", "a")
        with sqlite3.connect(path) as other:
            assert other.execute("SELECT placement_id, ended_at FROM measurements").fetchall() == [
                ("a", None)
            ]
        other.close()


def test_the_default_store_is_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Store.open() as store:
        assert store.where == str(tmp_path / ".edgeplace" / "store.sqlite") == str(default_store_path())


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_path_and_a_url_name_the_same_file(path, form):
    with Store.open(form.format(path)) as store:
        store.session("key", {}, resume=False)
    with Store.open(path) as store:
        assert store.last_session("key") is not None


def test_a_store_in_memory_works():
    with Store.open("sqlite://") as store:
        session = store.session("key", {}, resume=False)
        session.end(session.start("p", "a"), failed())
        assert session.measurements() == (failed(),)


@pytest.mark.parametrize(
    ("url", "match"), [("postgresql://lab/edgeplace", "SQLite only"), ("://", "no database URL")]
)
def test_other_databases_are_refused(url, match):
    with pytest.raises(StoreError, match=match) as caught:
        Store.open(url)
    assert "sqlite:///" in caught.value.hint


def test_a_password_in_a_url_is_not_shown():
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql://me:secret@lab/edgeplace")
    assert "secret" not in str(caught.value)


def test_a_newer_format_is_refused(path):
    Store.open(path).close()
    change(path, "UPDATE edgeplace_store SET value = ? WHERE name = 'format'", str(FORMAT + 1))
    with pytest.raises(
        StoreError, match=f"format {FORMAT + 1}, this EdgePlace reads format {FORMAT}"
    ) as caught:
        Store.open(path)
    assert "update EdgePlace" in caught.value.hint


@pytest.mark.parametrize("value", ["0", "early"])
def test_an_older_format_is_refused(path, value):
    Store.open(path).close()
    change(path, "UPDATE edgeplace_store SET value = ?", value)
    with pytest.raises(StoreError, match=f"format {value}") as caught:
        Store.open(path)
    assert "another store" in caught.value.hint


def test_a_format_that_is_not_there_is_refused(path):
    Store.open(path).close()
    change(path, "DELETE FROM edgeplace_store")
    with pytest.raises(StoreError, match="format unknown"):
        Store.open(path)


def test_a_file_of_another_program_is_refused_and_left_alone(path):
    change(path, "CREATE TABLE bookmarks (id INTEGER)")
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]
    other.close()


def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"a text file, and a long one " * 100)
    with pytest.raises(StoreError, match="not a SQLite file") as caught:
        Store.open(path)
    assert caught.value.hint
    assert caught.value.where == str(path)
    assert path.read_bytes().startswith(b"a text file")


def test_an_empty_file_becomes_a_store(path):
    path.write_bytes(b"")
    with Store.open(path) as store:
        assert store.sessions() == ()


def test_a_damaged_file_is_an_error_with_a_way_out(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        for number in range(50):
            session.end(session.start("p", f"{number}"), failed("x" * 2000))
    data = bytearray(path.read_bytes())
    data[4096 * 8 :] = b"\xff" * (len(data) - 4096 * 8)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError) as caught, Store.open(path) as store:
        store.session("key", {}, resume=True).records()
    assert "move it away" in caught.value.hint


def test_a_damaged_record_is_named(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        token = session.start("p", "a")
        session.end(token, failed())
        change(path, "UPDATE measurements SET payload = '{'")
        with pytest.raises(StoreError, match=f"record {token} cannot be read"):
            session.records()


def test_a_missing_table_is_an_error_with_a_way_out(path):
    Store.open(path).close()
    change(path, "DROP TABLE support")
    with Store.open(path) as store, pytest.raises(StoreError, match="a table is missing"):
        store.support_get("s", "p", "r")


def test_a_file_that_may_only_be_read_is_refused(path):
    Store.open(path).close()
    # By URL and not by file mode: a mode does not stop root, who runs many a CI.
    with pytest.raises(StoreError, match="may not be written") as caught, Store.open(f"sqlite:///file:{path}?mode=ro&uri=true") as store:  # fmt: skip
        store.session("key", {}, resume=False)
    assert "writable" in caught.value.hint


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="folder cannot be made"):
        Store.open(tmp_path / "file" / "store.sqlite")


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path)


def test_a_second_host_is_refused_when_the_first_does_not_let_go(path):
    with Store.open(path) as first, Store.open(path, busy_timeout_s=0) as second:
        session = second.session("key", {}, resume=False)
        token = session.start("p", "a")
        with first._database.writing():
            with pytest.raises(StoreError, match="another EdgePlace is writing") as caught:
                session.end(token, failed())
            assert second.last_session("key").unfinished == 1  # reading goes on
        session.end(token, failed())
        assert len(session.records()) == 1
    assert "wait" in caught.value.hint


class Contended:
    """A connection to a file that another host is just making: the switch to the log is refused a few times."""

    def __init__(self, refusals: int, text: str = "database is locked") -> None:
        self.refusals = refusals
        self.text = text
        self.asked = 0

    def execute(self, statement: str) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise sqlite3.OperationalError(self.text)


def test_a_file_that_another_host_is_just_making_is_asked_again():
    contended = Contended(refusals=2)
    _use_write_ahead_log(contended, 30.0)
    assert contended.asked == 3


@pytest.mark.parametrize(("text", "patience_s"), [("database is locked", 0.0), ("disk I/O error", 30.0)])
def test_what_waiting_does_not_help_is_refused_at_once(text, patience_s):
    contended = Contended(refusals=9, text=text)
    with pytest.raises(sqlite3.OperationalError, match=text):
        _use_write_ahead_log(contended, patience_s)
    assert contended.asked == 1


def test_two_hosts_may_write_in_turn(path):
    with Store.open(path) as first, Store.open(path) as second:
        sessions = [store.session(key, {}, resume=False) for store, key in ((first, "1"), (second, "2"))]
        for number in range(5):
            tokens = [session.start("p", f"{number}") for session in sessions]
            for session, token in zip(sessions, tokens, strict=True):
                session.end(token, failed())
        assert [len(session.records()) for session in sessions] == [5, 5]


def test_a_full_disk_loses_nothing(path):
    with Store.open(path) as store:
        session = store.session("key", {}, resume=False)
        session.end(session.start("p", "a"), failed("before"))
        token = session.start("p", "b")
        with store._database.reading() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        set_pages = "PRAGMA max_page_count={}".format

        @event.listens_for(store._database.engine, "begin")
        def limit(connection):
            connection.exec_driver_sql(set_pages(pages + room))

        room = 0
        with pytest.raises(StoreError, match="disk is full") as caught:
            session.end(token, failed("x" * 100_000))
        assert "--resume" in caught.value.hint
        assert [m.failure.message for m in session.measurements()] == ["before"]
        room = 1000
        session.end(token, failed("x" * 100_000))
        assert len(session.measurements()) == 2


class TestSupport:
    def test_it_is_remembered_by_all_three_names(self, path):
        failure = Failure("prepare_failed", "no", "prepare", None, "npu")
        with Store.open(path) as store:
            store.support_put("s", "npu", "r", Support(failure))
            store.support_put("s", "cpu", "r", Support(time_ms=0.1, details={"ran_on": "cpu"}))
        with Store.open(path) as store:
            assert store.support_get("s", "npu", "r") == Support(failure)
            found = store.support_get("s", "cpu", "r")
            assert found == Support(time_ms=0.1, details={"ran_on": "cpu"})
            assert found.failure is None
            for names in (("other", "npu", "r"), ("s", "gpu", "r"), ("s", "npu", "newer")):
                assert store.support_get(*names) is None

    def test_a_newer_try_replaces_an_older_one(self, path):
        with Store.open(path) as store:
            store.support_put("s", "p", "r", Support(Failure("timeout", "slow")))
            store.support_put("s", "p", "r", Support(time_ms=2.0))
            assert store.support_get("s", "p", "r") == Support(time_ms=2.0)

    @pytest.mark.parametrize("kind", ["link_lost", "agent_lost", "board_rebooted", "device_gone"])
    def test_what_is_not_about_the_segment_is_not_remembered(self, path, kind):
        with Store.open(path) as store:
            store.support_put("s", "p", "r", Support(Failure(kind, "gone")))
            assert store.support_get("s", "p", "r") is None

    def test_a_damaged_row_is_an_error(self, path):
        with Store.open(path) as store:
            store.support_put("s", "p", "r", Support())
            change(path, "UPDATE support SET failure = 'x'")
            with pytest.raises(StoreError, match="a record of support cannot be read"):
                store.support_get("s", "p", "r")


class TestReferences:
    def test_bytes_come_back(self, path):
        data = bytes(range(256)) * 100
        with Store.open(path) as store:
            assert store.reference_put("key", data)
        with Store.open(path) as store:
            assert store.reference_get("key") == data
            assert store.reference_get("other") is None

    def test_the_least_recently_used_goes_first(self, path):
        with Store.open(path, references_cap_bytes=30) as store:
            for key in "abc":
                store.reference_put(key, key.encode() * 10)
            store.reference_get("a")
            store.reference_put("d", b"d" * 15)
            assert [store.reference_get(key) is not None for key in "abcd"] == [True, False, False, True]

    def test_a_key_is_replaced(self, path):
        with Store.open(path, references_cap_bytes=10) as store:
            store.reference_put("a", b"1" * 10)
            store.reference_put("a", b"2" * 10)
            assert store.reference_get("a") == b"2" * 10

    def test_what_is_larger_than_the_cap_is_not_kept(self, path):
        with Store.open(path, references_cap_bytes=10) as store:
            store.reference_put("a", b"1" * 10)
            assert not store.reference_put("b", b"2" * 11)
            assert store.reference_get("a") is not None

    def test_damaged_bytes_are_not_given_out(self, path):
        with Store.open(path) as store:
            store.reference_put("a", b"right")
            change(path, "UPDATE reference_outputs SET data = ?", b"wrong")
            assert store.reference_get("a") is None

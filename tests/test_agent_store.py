"""Blobs on the board: complete and right or not there, capped, least recently used goes first."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from agent_process import sha256
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agents.protocol import RequestError
from device_agents.store import BlobStore, checked_hash, make_root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def put(store: BlobStore, data: bytes) -> str:
    store.put(sha256(data), len(data), io.BytesIO(data))
    return sha256(data)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def splice(
    store: BlobStore, finished: bytes, constants: Sequence[tuple[int, int]], skeleton: bytes | None = None
) -> str:
    """Build ``finished``, whose bytes from offset to offset + size of each constant are blobs."""
    recipe = [(sha256(finished[at : at + size]), at, size) for at, size in constants]
    if skeleton is None:
        skeleton = bytes(
            byte
            for at, byte in enumerate(finished)
            if not any(start <= at < start + size for start, size in constants)
        )
    store.splice(sha256(finished), len(finished), recipe, len(skeleton), io.BytesIO(skeleton))
    return sha256(finished)


def kind_of(action: Callable[[], object]) -> str:
    with pytest.raises(RequestError) as caught:
        action()
    return caught.value.kind


@pytest.mark.parametrize(
    "name", ["", "..", "a" * 63, "a" * 65, "A" * 64, "../" * 21 + "x", "a" * 64 + "\n", None, 7, b"a"]
)
def test_only_hashes_are_names(name: object) -> None:
    assert kind_of(lambda: checked_hash(name)) == "bad_request"


def test_a_blob_is_kept_under_its_hash_for_its_owner_only(folder: Path) -> None:
    store = BlobStore(folder)
    name = put(store, b"weights")
    assert name in store
    path = Path(store.paths([name])[name])
    assert path.read_bytes() == b"weights"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.missing([name, sha256(b"x"), sha256(b"x")]) == [sha256(b"x")]


@pytest.mark.parametrize("data", [b"weighty", b"weight", b"weights and more"])
def test_what_does_not_have_the_hash_leaves_nothing_behind(folder: Path, data: bytes) -> None:
    store = BlobStore(folder)
    assert kind_of(lambda: store.put(sha256(b"weights"), len(data), io.BytesIO(data))) == "hash_mismatch"
    assert files_in(folder) == []
    assert store.total_bytes == 0


def test_a_source_that_ends_early_leaves_nothing_behind(folder: Path) -> None:
    store = BlobStore(folder)
    assert kind_of(lambda: store.put(sha256(b"weights"), 7, io.BytesIO(b"wei"))) == "hash_mismatch"
    assert files_in(folder) == []


def test_a_source_that_breaks_leaves_nothing_behind(folder: Path) -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise ConnectionError("gone")

    store = BlobStore(folder)
    with pytest.raises(ConnectionError):
        store.put(sha256(b"weights"), 7, Broken())
    assert files_in(folder) == []


def test_least_recently_used_goes_first_and_a_use_counts(folder: Path) -> None:
    store = BlobStore(folder, cap_bytes=30)
    first, second, third = (put(store, letter * 10) for letter in (b"a", b"b", b"c"))
    store.missing([first])  # a question from the host is a use: it will rely on the answer
    fourth = put(store, b"d" * 10)
    assert files_in(folder) == sorted([first, third, fourth])
    assert store.missing([second]) == [second]
    assert store.total_bytes == 30


def test_the_order_survives_a_restart(folder: Path) -> None:
    store = BlobStore(folder, cap_bytes=30)
    names = [put(store, letter * 10) for letter in (b"a", b"b", b"c")]
    for age, name in enumerate(reversed(names)):
        os.utime(store.path(name), (1000 - age, 1000 - age))
    again = BlobStore(folder, cap_bytes=30)
    put(again, b"d" * 10)
    assert names[0] not in again
    assert again.missing(names[1:]) == []


def test_a_smaller_cap_is_kept_at_the_start(folder: Path) -> None:
    store = BlobStore(folder, cap_bytes=30)
    for letter in (b"a", b"b", b"c"):
        put(store, letter * 10)
    assert BlobStore(folder, cap_bytes=10).total_bytes == 10
    assert len(files_in(folder)) == 1


def test_what_was_damaged_while_no_agent_ran_counts_as_missing(folder: Path) -> None:
    store = BlobStore(folder)
    good, bad, short = put(store, b"good"), put(store, b"evil"), put(store, b"short")
    store.path(bad).write_bytes(b"EVIL")
    store.path(short).write_bytes(b"")
    again = BlobStore(folder)
    assert again.missing([good, bad, short]) == [bad, short]
    assert files_in(folder) == [good]
    assert again.total_bytes == 4


def test_unfinished_files_go_at_the_start_and_strangers_stay(folder: Path) -> None:
    folder.mkdir()
    (folder / "incoming-abc").write_bytes(b"half")
    (folder / "ab").mkdir()
    (folder / "ab" / "README").write_bytes(b"not a blob")
    assert BlobStore(folder).total_bytes == 0
    assert files_in(folder) == ["README"]


def test_a_blob_that_somebody_removed_counts_as_missing(folder: Path) -> None:
    store = BlobStore(folder)
    name = put(store, b"weights")
    store.path(name).unlink()
    assert store.missing([name]) == [name]
    assert store.total_bytes == 0
    put(store, b"weights")
    assert store.missing([name]) == []


def test_a_full_disk_is_said_and_leaves_nothing_behind(folder: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    store = BlobStore(folder)
    data = bytes(1 << 20)
    (folder / sha256(data)[:2]).mkdir()
    original = os.open

    def full(path: object, flags: int, *more: int, **also: object) -> int:
        opened = original(path, flags, *more, **also)  # type: ignore[arg-type]
        if "incoming-" in str(path) and flags & os.O_CREAT:
            full_device = original("/dev/full", os.O_WRONLY)
            os.dup2(full_device, opened)
            os.close(full_device)
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", full)
        kind = kind_of(lambda: put(store, data))
    assert kind == "no_space"
    assert files_in(folder) == []


def test_splicing_keeps_its_constants_and_drops_others(folder: Path) -> None:
    store = BlobStore(folder, cap_bytes=40)
    constant = put(store, b"c" * 10)
    other = put(store, b"o" * 10)
    finished = splice(store, b"head" + b"c" * 10 + b"tail" + b"c" * 10 + b"!!", [(4, 10), (18, 10)])
    assert constant in store
    assert other not in store
    assert store.path(finished).read_bytes().startswith(b"headcccccccccctail")


def test_a_file_that_does_not_fit_beside_its_constants_is_refused(folder: Path) -> None:
    store = BlobStore(folder, cap_bytes=25)
    put(store, b"c" * 10)
    assert kind_of(lambda: splice(store, b"c" * 10 + b"x" * 10, [(0, 10)])) == "too_large"
    assert len(files_in(folder)) == 1


def test_a_missing_constant_is_named(folder: Path) -> None:
    store = BlobStore(folder)
    with pytest.raises(RequestError) as caught:
        splice(store, b"headCONST", [(4, 5)])
    assert (caught.value.kind, caught.value.facts) == ("missing_blob", {"missing": [sha256(b"CONST")]})


@pytest.mark.parametrize(
    ("size", "constants", "skeleton"),
    [
        (9, [(4, 5)], b"hea"),
        (9, [(4, 5)], b"headX"),
        (9, [(5, 5)], b"headX"),
        (8, [(4, 5)], b"head"),
        (14, [(4, 5), (8, 5)], b"head"),
        (14, [(9, 5), (4, 5)], b"head"),
    ],
)
def test_pieces_that_make_up_no_file_are_refused(
    folder: Path, size: int, constants: list[tuple[int, int]], skeleton: bytes
) -> None:
    store = BlobStore(folder)
    constant = put(store, b"CONST")
    recipe = [(constant, at, length) for at, length in constants]
    refused = kind_of(lambda: store.splice(sha256(b"x"), size, recipe, len(skeleton), io.BytesIO(skeleton)))
    assert refused == "bad_request"


def test_a_constant_of_another_size_than_the_recipe_says_is_refused(folder: Path) -> None:
    store = BlobStore(folder)
    recipe = [(put(store, b"CONST"), 4, 4)]
    assert kind_of(lambda: store.splice(sha256(b"x"), 8, recipe, 4, io.BytesIO(b"head"))) == "bad_request"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data())
def test_any_file_splices_to_itself(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    pieces = data.draw(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=8))
    finished, constants = b"", []
    store = BlobStore(tmp_path_factory.mktemp("store"))
    for piece, is_constant in pieces:
        if is_constant:
            put(store, piece)
            constants.append((len(finished), len(piece)))
        finished += piece
    assert store.path(splice(store, finished, constants)).read_bytes() == finished


@settings(derandomize=True, deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(0, 60), max_size=30))
def test_the_cap_holds_whatever_comes(sizes: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = BlobStore(folder, cap_bytes=100)
    for number, size in enumerate(sizes):
        put(store, bytes([number]) * size)
        on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert on_disk == store.total_bytes <= 100


def test_the_root_is_made_and_tightened(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    make_root(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    root.chmod(0o755)
    make_root(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_large_files_report_that_work_goes_on(folder: Path) -> None:
    calls: list[None] = []
    store = BlobStore(folder, alive=lambda: calls.append(None))
    data = bytes(3 << 20)
    store.put(hashlib.sha256(data).hexdigest(), len(data), io.BytesIO(data))
    assert len(calls) >= 3

"""Frames and arrays on the wire: what goes in comes out, and what is damaged is refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agents import protocol
from device_agents.arrays import decode_array, pack_arrays, unpack_arrays
from device_agents.frame_assembler import FrameAssembler

FRAMES = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)), st.binary(max_size=50)
    ),
    max_size=6,
)
DTYPES = st.sampled_from(["float32", "float16", "int8", "uint8", "int32", "int64", "bool", "complex64"])


def written(frames: list[tuple[dict[str, Any], bytes]]) -> bytes:
    stream = io.BytesIO()
    for header, payload in frames:
        protocol.write_frame(stream, header, payload)
    return stream.getvalue()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(frames=FRAMES)
def test_frames_come_out_as_they_went_in(frames: list[tuple[dict[str, Any], bytes]]) -> None:
    stream = io.BytesIO(written(frames))
    assert [protocol.read_frame(stream) for _ in frames] == frames
    with pytest.raises(protocol.StreamClosed):
        protocol.read_frame(stream)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(frames=FRAMES, cuts=st.lists(st.integers(0, 400), max_size=10))
def test_frames_are_assembled_from_any_pieces(
    frames: list[tuple[dict[str, Any], bytes]], cuts: list[int]
) -> None:
    data, assembler, seen = written(frames), FrameAssembler(), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in zip(edges, edges[1:]):
        seen += assembler.feed(data[start:end])
    assert seen == frames


@settings(derandomize=True, deadline=None, max_examples=100)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    try:
        protocol.read_frame(io.BytesIO(data))
    except protocol.ProtocolError:
        return


def test_frames_before_damage_come_out_before_the_error() -> None:
    frames = FrameAssembler().feed(written([({"n": 1}, b""), ({"n": 2}, b"x")]) + b"\xff" * 12)
    assert [next(frames), next(frames)] == [({"n": 1}, b""), ({"n": 2}, b"x")]
    with pytest.raises(protocol.ProtocolError, match="too large"):
        next(frames)


def test_a_payload_in_pieces_is_one_payload() -> None:
    stream = io.BytesIO()
    protocol.write_frame(stream, {}, [b"ab", np.arange(2, dtype=np.uint8), b""])
    stream.seek(0)
    assert protocol.read_frame(stream) == ({}, b"ab\x00\x01")


@pytest.mark.parametrize(
    "prefix",
    [
        struct.pack("<IQ", protocol.MAX_HEADER_BYTES + 1, 0),
        struct.pack("<IQ", 0, protocol.MAX_PAYLOAD_BYTES + 1),
    ],
)
def test_sizes_over_the_caps_are_refused_before_anything_is_allocated(prefix: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="too large"):
        protocol.read_frame(io.BytesIO(prefix))


def test_what_a_login_shell_prints_is_skipped_and_given() -> None:
    stream = io.BytesIO(b"Welcome to the board!\n" + protocol.MARKER + written([({"id": 1}, b"")]))
    assert protocol.skip_to_marker(stream) == b"Welcome to the board!\n"
    assert protocol.read_frame(stream)[0] == {"id": 1}


def test_a_stream_without_marker_is_refused_with_its_words() -> None:
    with pytest.raises(protocol.StreamClosed, match="python3: not found"):
        protocol.skip_to_marker(io.BytesIO(b"sh: python3: not found\n"))
    with pytest.raises(protocol.ProtocolError, match="no agent marker"):
        protocol.skip_to_marker(io.BytesIO(b"x" * 200), limit=100)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(dtype=DTYPES, shape=st.lists(st.integers(0, 4), max_size=4))
def test_arrays_come_out_as_they_went_in(dtype: str, shape: list[int]) -> None:
    count = int(np.prod(shape, dtype=int))
    array = (np.arange(count) % 2).astype(dtype).reshape(shape)
    descriptions, pieces = pack_arrays([array, array.T])
    first, second = unpack_arrays(descriptions, b"".join(bytes(piece) for piece in pieces))
    for given_array, back in ((array, first), (array.T, second)):
        assert back.dtype == given_array.dtype
        assert back.shape == given_array.shape
        assert np.array_equal(back, given_array)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(items=st.lists(st.binary(max_size=9), max_size=5))
def test_strings_come_out_as_they_went_in(items: list[bytes]) -> None:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    descriptions, pieces = pack_arrays([array])
    (back,) = unpack_arrays(descriptions, b"".join(pieces))
    assert back.tolist() == items


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("float32", [2], b"1234"),
        ("float32", [1], b"12345678"),
        ("float32", [-1], b"1234"),
        ("object", [1], b"12345678"),
        ("O", [1], b"12345678"),
        ("no such type", [1], b"1"),
        ("U4", [1], b"1234"),
        ("V0", [1], b""),
        ("string", [1], b"\x05\x00\x00\x00abc"),
        ("string", [1], b"\x05\x00"),
        ("string", [2], b"\x01\x00\x00\x00a"),
        ("string", [], b""),
    ],
)
def test_bytes_that_make_no_such_array_are_refused(dtype: str, shape: list[int], data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_array(dtype, shape, data)


@pytest.mark.parametrize(("nbytes", "payload"), [(4, b"123"), (4, b"12345"), (-1, b"")])
def test_a_payload_of_another_size_is_refused(nbytes: int, payload: bytes) -> None:
    with pytest.raises(ValueError):
        unpack_arrays([{"dtype": "float32", "shape": [1], "nbytes": nbytes}], payload)

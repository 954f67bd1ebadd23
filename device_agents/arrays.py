"""numpy arrays on the wire: a JSON description of each, and their bytes one after the other."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from device_agents.protocol import Buffer


def pack_arrays(arrays: Sequence[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Descriptions (``dtype``, ``shape``, ``nbytes``) and the pieces of the payload.

    String tensors (numpy object or bytes arrays) have dtype ``string``: a u32 length before each element.
    """
    descriptions: list[dict[str, Any]] = []
    pieces: list[Any] = []
    for array in arrays:
        array = np.asarray(array)
        if array.dtype.kind in "OSU":
            items = [
                item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()
            ]
            data: Any = b"".join(struct.pack("<I", len(item)) + item for item in items)
            name = "string"
        else:
            contiguous: Any = np.ascontiguousarray(array)
            data = memoryview(contiguous.reshape(-1).view(np.uint8)) if contiguous.size else b""
            name = array.dtype.name
        descriptions.append({"dtype": name, "shape": list(array.shape), "nbytes": memoryview(data).nbytes})
        pieces.append(data)
    return descriptions, pieces


def unpack_arrays(descriptions: Sequence[dict[str, Any]], payload: Buffer) -> list[Any]:
    """The arrays of a payload; they are views of it where the type allows.

    Raises:
        ValueError: Description and payload do not fit.
    """
    arrays: list[Any] = []
    position = 0
    view = memoryview(payload)
    for description in descriptions:
        size = int(description["nbytes"])
        data = view[position : position + size] if size >= 0 else view[:0]
        if len(data) != size:
            raise ValueError(f"the payload ends in array {len(arrays)}")
        position += size
        arrays.append(decode_array(description["dtype"], description["shape"], data))
    if position != len(view):
        raise ValueError(f"the payload has {len(view) - position} bytes too many")
    return arrays


def decode_array(dtype: str, shape: Sequence[int], data: Buffer) -> Any:
    """One array from its raw bytes (C order, little endian); a view of ``data`` where the type allows.

    Args:
        dtype: A numpy type name (``float32``, ``bool``), or ``string`` for length-prefixed elements.
        shape: Sizes, none negative; ``[]`` for a scalar.
        data: The array's bytes, as :func:`pack_arrays` makes them.

    Raises:
        ValueError: The bytes do not make such an array.
    """
    sizes = tuple(int(n) for n in shape)
    count = math.prod(sizes)
    if any(n < 0 for n in sizes):
        raise ValueError(f"{list(sizes)} is no shape")
    if dtype == "string":
        return _decode_strings(memoryview(data), sizes, count)
    try:
        element = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"'{dtype}' is no array type here") from None
    if element.hasobject or element.itemsize == 0:
        raise ValueError(f"'{dtype}' is no array type here")
    if memoryview(data).nbytes != count * element.itemsize:
        raise ValueError(
            f"{memoryview(data).nbytes} bytes are no {dtype} array of shape {list(sizes)} "
            f"({count * element.itemsize} bytes)"
        )
    return (
        np.frombuffer(data, dtype=element, count=count).reshape(sizes) if count else np.empty(sizes, element)
    )


def _decode_strings(data: memoryview, shape: tuple[int, ...], count: int) -> Any:
    items: list[bytes] = []
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise ValueError(f"the size of string {len(items)} is cut off")
        (size,) = struct.unpack_from("<I", data, position)
        item = bytes(data[position + 4 : position + 4 + size])
        if len(item) != size:
            raise ValueError(f"string {len(items)} is cut off")
        items.append(item)
        position += 4 + size
    if len(items) != count:
        raise ValueError(f"{len(items)} strings are no array of shape {list(shape)}")
    array = np.empty(count, dtype=object)
    array[:] = items
    return array.reshape(shape)

"""numpy arrays on the wire: a JSON description of each, and their bytes one after the other."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Union

import numpy as np

Buffer = Union[bytes, bytearray, memoryview]


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
            contiguous = np.ascontiguousarray(array)
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
        data = view[position : position + size]
        if len(data) != size:
            raise ValueError(f"the payload ends in array {len(arrays)}")
        position += size
        shape = tuple(int(n) for n in description["shape"])
        if description["dtype"] == "string":
            arrays.append(_unpack_strings(data, shape))
        else:
            arrays.append(np.frombuffer(data, dtype=np.dtype(description["dtype"])).reshape(shape))
    if position != len(view):
        raise ValueError(f"the payload has {len(view) - position} bytes too many")
    return arrays


def _unpack_strings(data: memoryview, shape: tuple[int, ...]) -> Any:
    items: list[bytes] = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from("<I", data, position)
        items.append(bytes(data[position + 4 : position + 4 + size]))
        position += 4 + size
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)

"""Arrays of a user's file as samples of a model: which array is which input, which axis is the sample, which type."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeplace.errors import InputError
from edgeplace.measure.input_spec import InputSpec, counted, first_line, shape_text
from edgeplace.registry import nearest_name_hint

Array = npt.NDArray[Any]
Sample = tuple[Array, ...]

LABELS_KEY = "labels"

_NPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK\x03\x04"
_READ_ERRORS = (
    OSError, ValueError, EOFError, KeyError, MemoryError, OverflowError, NotImplementedError, RuntimeError,
    SyntaxError, TypeError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise on damaged files: truncated, flipped bits, absurd sizes, encrypted entries."""


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an ``.npz`` file by key.

    Raises:
        InputError: It cannot be read, is something else, holds none, or holds pickled objects.
    """
    _check_magic(path, ".npz", _ZIP_MAGIC)
    arrays: dict[str, Array] = {}
    try:
        archive = np.load(path, allow_pickle=False)
    except _READ_ERRORS as error:
        raise InputError(f"not a readable .npz file: {first_line(error)}", where=str(path)) from None
    with archive:
        for key in archive.files:
            try:
                array = archive[key]
            except _READ_ERRORS as error:
                raise _unreadable_array(path, f"array '{key}'", error) from None
            if not isinstance(array, np.ndarray):
                raise InputError(
                    f"'{key}' in it is no array", hint="write it with numpy.savez", where=str(path)
                )
            arrays[key] = array
    if not arrays:
        raise InputError("the .npz file holds no array", where=str(path))
    return arrays


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file.

    Raises:
        InputError: It cannot be read, is something else, or holds pickled objects.
    """
    _check_magic(path, ".npy", _NPY_MAGIC)
    try:
        array: Array = np.load(path, allow_pickle=False)
    except _READ_ERRORS as error:
        raise _unreadable_array(path, "the array", error) from None
    return array


def _check_magic(path: Path, suffix: str, magic: bytes) -> None:
    """Refuse what the name says wrongly; numpy would take any other file for a pickle."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(magic))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if start == magic:
        return
    is_other = {_NPY_MAGIC[:4]: "it holds a single array", _ZIP_MAGIC: "it holds several arrays"}.get(
        start[:4]
    )
    raise InputError(
        f"not an {suffix} file: {is_other or ('it is empty' if not start else 'it begins with other bytes')}",
        hint=f"name it {'.npy' if suffix == '.npz' else '.npz'}"
        if is_other
        else f"write it with numpy.save{suffix[3:]}",
        where=str(path),
    )


def _unreadable_array(path: Path, what: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Object arrays" in str(error):
        return InputError(
            f"{what} holds Python objects (pickle), which are never loaded: they can run code",
            hint="save numbers with their type: array.astype('float32'); text as fixed-width bytes: array.astype('S')",
            where=str(path),
        )
    return InputError(f"{what} cannot be read: {first_line(error)}", where=str(path))


def samples_of_arrays(
    path: Path, arrays: Mapping[str, Array], specs: Sequence[InputSpec]
) -> tuple[list[Sample], Sequence[object] | None]:
    """One tuple of arrays per sample, in the order of the inputs, and the labels when there are any.

    Args:
        path: The file, for messages.
        arrays: By key; see the text of :mod:`~.inputs`.
        specs: The model's inputs, in order.

    Raises:
        InputError: Keys, shapes, types or numbers of samples do not fit.
    """
    arrays = dict(arrays)
    labels = None
    if LABELS_KEY in arrays and all(spec.name != LABELS_KEY for spec in specs):
        labels = arrays.pop(LABELS_KEY)
    if set(arrays) == {f"arr_{number}" for number in range(len(specs))}:
        arrays = {spec.name: arrays[f"arr_{number}"] for number, spec in enumerate(specs)}
    by_input = _group_by_input(path, arrays, specs)
    columns = [
        [array for key in by_input[spec.name] for array in _split_samples(path, key, arrays[key], spec)]
        for spec in specs
    ]
    counts = {spec.name: len(column) for spec, column in zip(specs, columns, strict=True)}
    most = max(counts.values(), default=1)
    uneven = [name for name, count in counts.items() if count not in (1, most)]
    if uneven:
        described = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
        raise InputError(
            f"the inputs have different numbers of samples: {described}",
            hint="give each input as many samples as the others, or one for all",
            where=str(path),
        )
    columns = [column * most if len(column) == 1 else column for column in columns]
    samples = [tuple(column[number] for column in columns) for number in range(most)]
    if labels is None:
        return samples, None
    if labels.ndim == 0 or len(labels) != most:
        raise InputError(
            f"labels {shape_text(labels.shape)} for {counted(most, 'sample')}",
            hint="the first axis of 'labels' is the sample",
            where=str(path),
        )
    return samples, list(labels)


def _group_by_input(
    path: Path, arrays: Mapping[str, Array], specs: Sequence[InputSpec]
) -> dict[str, list[str]]:
    """Input name -> the keys of its arrays, in the order of their samples."""
    names = [spec.name for spec in specs]
    numbered: dict[str, dict[int, str]] = {name: {} for name in names}
    whole: dict[str, str] = {}
    for key in arrays:
        name, separator, number = key.rpartition("/")
        if key in numbered:
            whole[key] = key
        elif separator and name in numbered and number.isdecimal():
            numbered[name][int(number)] = key
        else:
            raise InputError(
                f"'{key}' is no input of the model ({', '.join(names)})",
                hint=nearest_name_hint(name if separator and number.isdecimal() else key, names),
                where=str(path),
            )
    groups: dict[str, list[str]] = {}
    for spec in specs:
        keys = numbered[spec.name]
        if keys and spec.name in whole:
            raise InputError(f"both '{spec.name}' and '{spec.name}/{min(keys)}' are given", where=str(path))
        if sorted(keys) != list(range(len(keys))):
            raise InputError(
                f"the samples of '{spec.name}' are numbered {sorted(keys)}",
                hint="number them 0, 1, 2, ... without gaps",
                where=str(path),
            )
        groups[spec.name] = [whole[spec.name]] if spec.name in whole else [keys[n] for n in sorted(keys)]
    missing = [spec for spec in specs if not groups[spec.name]]
    if missing:
        described = ", ".join(f"'{spec.name}' ({spec})" for spec in missing)
        raise InputError(
            f"no array for {described}",
            hint=f"it has {', '.join(arrays) or 'none'}; every input of the model needs one",
            where=str(path),
        )
    return groups


def _split_samples(path: Path, key: str, array: Array, spec: InputSpec) -> list[Array]:
    """The samples in one array, each with the input's exact shape and type."""
    array = _as_type(path, key, array, spec)
    shape = spec.shape
    if array.shape == shape:
        return [array]
    if array.shape[1:] == shape and array.ndim == len(shape) + 1 and len(array):
        return [np.ascontiguousarray(item).reshape(shape) for item in array]
    batch_of_one = len(shape) > 0 and shape[0] == 1
    if batch_of_one and array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array):
        return [np.ascontiguousarray(array[n : n + 1]) for n in range(len(array))]
    signature = spec.tensor.shape_signature
    may_change = any(dimension < 0 for dimension in signature)
    hint = f"one sample is {shape_text(shape)}, several are {shape_text(('N', *shape))}"
    if may_change and array.ndim == len(shape):
        hint += f"; this input may be resized: --shape {spec.name}={'x'.join(map(str, array.shape))}"
    raise InputError(
        f"array '{key}' has shape {shape_text(array.shape)}, input '{spec.name}' is {spec}",
        hint=hint,
        where=str(path),
    )


def _as_type(path: Path, key: str, array: Array, spec: InputSpec) -> Array:
    """The array in the input's type, when nothing but width differs and no value changes its meaning."""
    if spec.dtype == "string":
        if array.dtype.kind == "U":
            return np.char.encode(array, "utf-8")
        if array.dtype.kind == "S":
            return array
        raise _wrong_type(path, key, array, spec, "save text as fixed-width bytes: array.astype('S')")
    try:
        target = np.dtype(spec.dtype)
    except TypeError:
        raise _wrong_type(
            path, key, array, spec, "inputs of this type cannot be given as numpy arrays"
        ) from None
    if array.dtype == target:
        return array if array.dtype.isnative else array.astype(target)
    if array.dtype.kind == target.kind and target.kind in "fc":
        return array.astype(target)
    if {array.dtype.name, target.name} == {"int8", "uint8"}:
        hint = "pixels for an int8 input are x - 128" if target.kind == "i" else "pixels are x + 128"
        raise _wrong_type(path, key, array, spec, hint)
    if array.dtype.kind in "iu" and target.kind in "iu":
        limits = np.iinfo(target)
        if array.size == 0 or (int(array.min()) >= limits.min and int(array.max()) <= limits.max):
            return array.astype(target)
        raise _wrong_type(path, key, array, spec, f"some of its values do not fit into {spec.tensor.dtype}")
    raise _wrong_type(path, key, array, spec, _conversion_hint(array, target, spec))


def _conversion_hint(array: Array, target: np.dtype[Any], spec: InputSpec) -> str:
    quantization = spec.tensor.quantization
    if target.kind in "iu" and array.dtype.kind == "f" and quantization is not None and quantization.scales:
        scale, zero_point = quantization.scales[0], (*quantization.zero_points, 0)[0]
        return f"quantize it: round(x / {scale:g}) + {zero_point}, clipped to {spec.tensor.dtype}"
    if target.kind == "f" and array.dtype.kind in "iu":
        return "scale it as the model expects (pixels often x / 255) and save it as float32"
    return f"save it as {spec.dtype}"


def _wrong_type(path: Path, key: str, array: Array, spec: InputSpec, hint: str) -> InputError:
    return InputError(
        f"array '{key}' is {array.dtype} {shape_text(array.shape)}, input '{spec.name}' is {spec}",
        hint=hint,
        where=str(path),
    )

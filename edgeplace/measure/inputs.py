"""The inputs a model is measured and checked on: the user's (``--inputs``), or seeded random ones.

``--inputs`` takes

* ``.npz``: one array per model input. The key is the input's name, or the name and a sample's number (``image/0``,
  ``image/1``); arrays saved without keys (``arr_0``, ``arr_1``) are taken in the inputs' order. A key ``labels`` that is
  no input's name holds one label per sample for ``--metric``.
* ``.npy``: the array of a model with one input.
* an image (Pillow reads it): for a model whose one input is an image, see :class:`ImageOptions`.
* a folder: every file in it is one sample, in the order of their names. A file ``labels.csv`` with lines
  ``file name,label`` gives labels.

In npz and npy files an array is one sample when it has the input's shape, and several when it has one more axis in
front (``[N, *shape]``), or when the input's own first dimension is 1 and the array's is N.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeplace.errors import InputError
from edgeplace.measure.images import IMAGE_SUFFIXES, ImageOptions, read_image
from edgeplace.measure.input_arrays import Array, Sample, read_npy, read_npz, samples_of_arrays
from edgeplace.measure.input_spec import InputSpec, counted, input_specs, shape_text
from edgeplace.registry import nearest_name_hint
from edgeplace.tflite.model import Tensor

LOG = logging.getLogger(__name__)

DEFAULT_SAMPLES = 8
"""Samples of seeded inputs; what calibrating the numeric floor needs at least."""

LABELS_FILE = "labels.csv"

_SMALL_INTEGER_RANGE = {"int4": (-8, 7), "int2": (-2, 1), "uint4": (0, 15)}
_WORDS = (b"edge", b"place", b"turn the light on", b"seven", b"a", b"stop", b"left", b"right")


@dataclass(frozen=True, slots=True)
class InputSet:
    """The inputs of a model for one or more samples.

    Attributes:
        samples: For each sample one array per graph input, in the graph's order, with its shape and type.
        source: Where they come from, in words for the map: a file's name, or the seed.
        sha256: Hash of all arrays (types, shapes and bytes, in order) and nothing else: the same numbers from another
            file have the same hash.
        labels: One label per sample for ``--metric``, when there are any.
    """

    samples: tuple[Sample, ...]
    source: str
    sha256: str
    labels: tuple[object, ...] | None = None

    @classmethod
    def of(cls, samples: Sequence[Sample], source: str, labels: Sequence[object] | None = None) -> InputSet:
        """A set of these samples, hashed."""
        return cls(tuple(samples), source, hash_samples(samples), None if labels is None else tuple(labels))


def load_inputs(
    path: Path, tensors: Sequence[Tensor], names: Sequence[str], *, image: ImageOptions | None = None
) -> InputSet:
    """The inputs in a file or folder.

    Args:
        path: See the module's text for what it may be.
        tensors: The graph's input tensors, in order, with the shapes in force.
        names: Their names (``Graph.input_names``).
        image: How pictures are read; only pictures use it.

    Raises:
        InputError: Anything that does not fit; ``where`` is the file, the message says what was expected and what is
            there, the hint what to do.
    """
    specs = input_specs(tensors, names)
    image = image or ImageOptions()
    if path.is_dir():
        return _load_folder(path, specs, image)
    if not path.exists():
        raise InputError("no such file or folder of inputs", where=str(path))
    samples, labels = _load_file(path, specs, image)
    return InputSet.of(samples, f"{path.name} ({counted(len(samples), 'sample')})", labels)


def random_inputs(
    tensors: Sequence[Tensor], names: Sequence[str], *, samples: int = DEFAULT_SAMPLES, seed: int = 0
) -> InputSet:
    """Seeded inputs: the same seed, shapes and types give the same arrays in every process.

    Sample *i* does not depend on how many samples there are. The ranges:

    ==================  ========================================================================================
    float types         uniform in [0, 1), the range of a picture; complex types in both parts
    8-, 4-, 2-bit       the whole range
    int16, uint16       the whole range when quantized, else 0 or 1
    32, 64-bit          0 or 1: such inputs are mostly indices, and these exist in every table with two rows
    bool                both, evenly
    string              short English words
    ==================  ========================================================================================

    Raises:
        InputError: A type that no numbers can be made up for (``resource``, ``variant``).
    """
    specs = input_specs(tensors, names)
    made = [
        tuple(
            _random_array(spec, np.random.default_rng((seed, number, position)))
            for position, spec in enumerate(specs)
        )
        for number in range(samples)
    ]
    return InputSet.of(made, f"seeded random (seed {seed}, {counted(samples, 'sample')})")


def parse_shapes(
    texts: Sequence[str], tensors: Sequence[Tensor], names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The shapes of ``--shape input=1x224x224x3`` (several allowed), by input name.

    A model with one input needs no name: ``1x224x224x3``. Commas do as well as ``x``. An input's name may itself hold
    ``=``; the last one counts.

    Raises:
        InputError: An unknown name, a name given twice, a dimension that is no number above 0, or another number of
            dimensions than the input has.
    """
    specs = {spec.name: spec for spec in input_specs(tensors, names)}
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, dimensions = text.rpartition("=")
        if not separator:
            if len(specs) != 1:
                raise InputError(
                    f"--shape {text}: which input? the model has {len(specs)}",
                    hint=f"write name=shape; known: {', '.join(specs)}",
                )
            name = next(iter(specs))
        if name not in specs:
            raise InputError(f"--shape {text}: no input named '{name}'", hint=nearest_name_hint(name, specs))
        if name in shapes:
            raise InputError(
                f"--shape gives '{name}' two shapes: {shape_text(shapes[name])} and {dimensions}"
            )
        shapes[name] = _parse_dimensions(text, dimensions, specs[name].shape)
    return shapes


def hash_samples(samples: Sequence[Sample]) -> str:
    """SHA-256 over type, shape and bytes of every array, in order; strings by their bytes and lengths."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(b"sample\0")
        for array in sample:
            digest.update(f"{array.dtype.kind}{array.dtype.itemsize}{list(array.shape)}\0".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _load_file(
    path: Path, specs: Sequence[InputSpec], image: ImageOptions
) -> tuple[list[Sample], Sequence[object] | None]:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return samples_of_arrays(path, read_npz(path), specs)
    if suffix == ".npy":
        only = _only_input(path, specs, "an .npy file holds one array", "use .npz with one array per input")
        return samples_of_arrays(path, {only.name: read_npy(path)}, specs)
    if suffix in IMAGE_SUFFIXES:
        only = _only_input(
            path, specs, "an image is one input", "put image and other inputs into an .npz file"
        )
        return [(read_image(path, only, image),)], None
    raise InputError(
        f"'{suffix or path.name}' is no kind of input file",
        hint=f"known: .npz, .npy, a folder, images ({', '.join(sorted(IMAGE_SUFFIXES))})",
        where=str(path),
    )


def _load_folder(folder: Path, specs: Sequence[InputSpec], image: ImageOptions) -> InputSet:
    known = IMAGE_SUFFIXES | {".npz", ".npy"}
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    files = [entry for entry in entries if entry.is_file() and entry.suffix.lower() in known]
    ignored = [entry.name for entry in entries if entry not in files and entry.name != LABELS_FILE]
    if not files:
        found = f"; it has {', '.join(ignored[:5])}" if ignored else "; it is empty"
        raise InputError(
            f"no sample in this folder{found}",
            hint="each .npz, .npy or image file in it is one sample",
            where=str(folder),
        )
    if ignored:
        LOG.warning("%s: not a sample, left out: %s", folder, ", ".join(ignored))
    samples: list[Sample] = []
    for file in files:
        loaded, _ = _load_file(file, specs, image)
        if len(loaded) != 1:
            raise InputError(
                f"{len(loaded)} samples in one file; in a folder each file is one sample",
                hint="give this file alone as --inputs, or split it",
                where=str(file),
            )
        samples += loaded
    labels = _read_labels(folder / LABELS_FILE, files) if (folder / LABELS_FILE).is_file() else None
    return InputSet.of(samples, f"{folder.name}/ ({counted(len(samples), 'sample')})", labels)


def _read_labels(path: Path, files: Sequence[Path]) -> list[object]:
    labels: dict[str, object] = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            for number, row in enumerate(csv.reader(stream), start=1):
                if not row:
                    continue
                if len(row) != 2:
                    raise InputError(
                        f"{counted(len(row), 'column')}, expected two: file name,label",
                        where=f"{path}:{number}",
                    )
                labels[row[0].strip()] = row[1].strip()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the labels cannot be read: {error}", where=str(path)) from None
    missing = [file.name for file in files if file.name not in labels]
    if missing:
        raise InputError(
            f"no label for {', '.join(missing[:5])}",
            hint="one line per sample: file name,label",
            where=str(path),
        )
    return [labels[file.name] for file in files]


def _random_array(spec: InputSpec, generator: np.random.Generator) -> Array:
    dtype, shape = spec.tensor.dtype, spec.shape
    if dtype == "string":
        return np.array(generator.choice(np.array(_WORDS), size=shape))
    if dtype in ("complex64", "complex128"):
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, size=shape).astype(np.bool_)
    if dtype in ("float16", "float32", "float64"):
        return np.asarray(generator.random(shape)).astype(dtype)
    if dtype in _SMALL_INTEGER_RANGE:
        low, high = _SMALL_INTEGER_RANGE[dtype]
        return np.asarray(generator.integers(low, high + 1, size=shape)).astype(spec.dtype)
    whole_range = dtype in ("int8", "uint8") or (
        dtype in ("int16", "uint16")
        and spec.tensor.quantization is not None
        and spec.tensor.quantization.scales
    )
    if whole_range:
        limits = np.iinfo(dtype)
        return np.asarray(generator.integers(limits.min, int(limits.max) + 1, size=shape)).astype(dtype)
    if dtype in ("int16", "uint16", "int32", "uint32", "int64", "uint64"):
        return np.asarray(generator.integers(0, 2, size=shape)).astype(dtype)
    raise InputError(
        f"no random numbers for input '{spec.name}' of type {dtype}",
        hint="give real ones with --inputs"
        if dtype == "bfloat16"
        else "choose another --signature of the model",
    )


def _only_input(path: Path, specs: Sequence[InputSpec], fact: str, hint: str) -> InputSpec:
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs) or "none"
        raise InputError(f"{fact}, and the model has {len(specs)}: {names}", hint=hint, where=str(path))
    return specs[0]


def _parse_dimensions(text: str, dimensions: str, current: tuple[int, ...]) -> tuple[int, ...]:
    parts = (
        re.split(r"[x,]", dimensions.strip().removeprefix("[").removesuffix("]"))
        if dimensions.strip()
        else []
    )
    try:
        shape = tuple(int(part) for part in parts)
    except ValueError:
        raise InputError(f"--shape {text}: '{dimensions}' is no shape", hint="like 1x224x224x3") from None
    if any(dimension < 1 for dimension in shape) or math.prod(shape) > 2**31:
        raise InputError(
            f"--shape {text}: each dimension must be above 0 and their product at most 2^31",
            hint="give the size to measure with; it cannot be left open",
        )
    if len(shape) != len(current):
        raise InputError(
            f"--shape {text}: {counted(len(shape), 'dimension')}, and the input has {len(current)}",
            hint=f"it is {'x'.join(map(str, current)) or 'a scalar'} now",
        )
    return shape

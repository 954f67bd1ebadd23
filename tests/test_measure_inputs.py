"""Inputs from files, folders, pictures and seeds; and every way they can be wrong, with its message."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from edgeplace.errors import InputError
from edgeplace.measure.images import ImageOptions
from edgeplace.measure.inputs import InputSet, hash_samples, load_inputs, parse_shapes, random_inputs
from edgeplace.tflite.model import Quantization, Tensor


def tensor(dtype: str = "float32", shape: tuple[int, ...] = (1, 2, 3), **more: Any) -> Tensor:
    return Tensor(0, "tensor", shape, dtype, 0, False, **more)


IMAGE = tensor(shape=(1, 4, 6, 3))


def save(folder: Path, name: str = "inputs.npz", **arrays: Any) -> Path:
    path = folder / name
    np.savez(path, **arrays)
    return path


def load(path: Path, *tensors: Tensor, names: tuple[str, ...] = (), **more: Any) -> InputSet:
    tensors = tensors or (tensor(),)
    return load_inputs(path, tensors, names or ("x", "y", "z")[: len(tensors)], **more)


def refusal(path: Path, *tensors: Tensor, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        load(path, *tensors, **more)
    assert caught.value.where == str(path)
    return caught.value


# --- npz and npy ------------------------------------------------------------------------------------------------


def test_one_sample(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    found = load(save(tmp_path, x=data))
    assert len(found.samples) == 1
    assert np.array_equal(found.samples[0][0], data)
    assert found.source == "inputs.npz (1 sample)"
    assert found.labels is None


@pytest.mark.parametrize("shape", [(5, 2, 3), (5, 1, 2, 3)], ids=["in place of 1", "an axis in front"])
def test_leading_axis_is_the_sample(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = np.arange(30, dtype=np.float32).reshape(shape)
    found = load(save(tmp_path, x=data))
    assert [sample[0].shape for sample in found.samples] == [(1, 2, 3)] * 5
    assert np.array_equal(found.samples[3][0].ravel(), np.arange(18, 24))
    assert found.source == "inputs.npz (5 samples)"


def test_scalar_input_takes_a_vector_of_samples(tmp_path: Path) -> None:
    found = load(save(tmp_path, x=np.float32([1, 2])), tensor(shape=()))
    assert [sample[0].shape for sample in found.samples] == [(), ()]


def test_numbered_keys_are_samples_in_order(tmp_path: Path) -> None:
    one = np.ones((1, 2, 3), np.float32)
    found = load(save(tmp_path, **{f"a/b/{n}": one * n for n in (10, *range(10))}), names=("a/b",))
    assert [sample[0][0, 0, 0] for sample in found.samples] == list(range(11))


def test_input_given_once_serves_all_samples(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.zeros((3, 2, 3), np.float32), y=np.int32([7]))
    found = load(path, tensor(), tensor("int32", (1,)))
    assert [int(sample[1][0]) for sample in found.samples] == [7, 7, 7]


def test_arrays_without_keys_are_taken_in_order(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, np.zeros((1, 2, 3), np.float32), np.int32([7]))
    assert int(load(path, tensor(), tensor("int32", (1,))).samples[0][1][0]) == 7


def test_labels_come_along(tmp_path: Path) -> None:
    found = load(save(tmp_path, x=np.zeros((2, 2, 3), np.float32), labels=[3, 4]))
    assert found.labels == (3, 4)


def test_input_called_labels_is_an_input(tmp_path: Path) -> None:
    found = load(save(tmp_path, labels=np.zeros((1, 2, 3), np.float32)), names=("labels",))
    assert found.labels is None


def test_wider_numbers_of_the_same_kind_are_narrowed(tmp_path: Path) -> None:
    found = load(save(tmp_path, x=np.zeros((1, 2, 3)), y=np.array([-7])), tensor(), tensor("int8", (1,)))
    assert [array.dtype.name for array in found.samples[0]] == ["float32", "int8"]


def test_text_becomes_bytes(tmp_path: Path) -> None:
    found = load(save(tmp_path, x=np.array(["grün"])), tensor("string", (1,)))
    assert found.samples[0][0].tolist() == ["grün".encode()]


def test_npy_is_the_array_of_the_only_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((2, 2, 3), np.float32))
    assert len(load(path).samples) == 2


def test_same_numbers_have_the_same_hash_whatever_they_come_from(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.save(tmp_path / "x.npy", data)
    assert load(tmp_path / "x.npy").sha256 == load(save(tmp_path, x=data)).sha256
    assert load(save(tmp_path, x=data)).sha256 != load(save(tmp_path, x=data + 1)).sha256


def test_hash_sees_shape_type_and_where_a_sample_ends() -> None:
    zeros = np.zeros(4, np.float32)
    hashes = {
        hash_samples([(zeros,)]),
        hash_samples([(zeros.reshape(2, 2),)]),
        hash_samples([(zeros.astype(np.int32),)]),
        hash_samples([(zeros, zeros)]),
        hash_samples([(zeros,), (zeros,)]),
    }
    assert len(hashes) == 5


# --- what is refused --------------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in str(refusal(tmp_path / "none.npz"))


@pytest.mark.parametrize(
    ("arrays", "message", "hint"),
    [
        ({"imgae": np.zeros((1, 2, 3), np.float32)}, "'imgae' is no input of the model (image)", "did you mean 'image'?"),
        ({"image/0": np.zeros((1, 2, 3), np.float32), "image/2": np.zeros((1, 2, 3), np.float32)}, "numbered [0, 2]", "without gaps"),
        ({"image/0": np.zeros((1, 2, 3), np.float32), "image": np.zeros((1, 2, 3), np.float32)}, "both 'image' and 'image/0'", ""),
        ({"image": np.zeros((1, 3, 2), np.float32)}, "array 'image' has shape [1, 3, 2], input 'image' is float32 [1, 2, 3]", "several are [N, 1, 2, 3]"),
        ({"image": np.zeros((0, 2, 3), np.float32)}, "has shape [0, 2, 3]", "one sample is [1, 2, 3]"),
        ({"image": np.zeros((1, 2, 3), np.uint8)}, "array 'image' is uint8 [1, 2, 3], input 'image' is float32 [1, 2, 3]", "x / 255"),
        ({"image": np.zeros((1, 2, 3), bool)}, "is bool", "save it as float32"),
        ({"image": np.zeros((1, 2, 3), np.float32), "labels": [1, 2]}, "labels [2] for 1 sample", "first axis"),
        ({"image": np.array([None])}, "pickle", "fixed-width"),
    ],
    ids=["name", "gap", "both", "shape", "no sample", "pixels", "bool", "labels", "objects"],
)  # fmt: skip
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str, hint: str) -> None:
    error = refusal(save(tmp_path, **arrays), names=("image",))
    assert message in str(error)
    assert hint in error.hint


def test_missing_input_is_named_with_its_type(tmp_path: Path) -> None:
    error = refusal(save(tmp_path, x=np.zeros((1, 2, 3), np.float32)), tensor(), tensor("int32", (1, 5)))
    assert "no array for 'y' (int32 [1, 5])" in str(error)
    assert "it has x" in error.hint


def test_different_numbers_of_samples(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.zeros((2, 2, 3), np.float32), y=np.zeros((3, 1), np.int32))
    assert "'x' has 2, 'y' has 3" in str(refusal(path, tensor(), tensor("int32", (1,))))


def test_input_that_may_be_resized_says_how(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.zeros((1, 7, 3), np.float32))
    error = refusal(path, tensor(shape_signature=(1, -1, 3)))
    assert "--shape x=1x7x3" in error.hint


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (np.zeros((1, 2, 3), np.float32), "quantize it: round(x / 0.5) + 10, clipped to int8"),
        (np.full((1, 2, 3), 200), "do not fit into int8"),
        (np.zeros((1, 2, 3), np.uint8), "x - 128"),
    ],
)
def test_quantized_input_says_how_to_quantize(tmp_path: Path, array: np.ndarray[Any, Any], hint: str) -> None:
    path = save(tmp_path, x=array)
    error = refusal(path, tensor("int8", quantization=Quantization((0.5,), (10,))))
    assert hint in error.hint


def test_numbers_for_text_are_refused(tmp_path: Path) -> None:
    assert "astype('S')" in refusal(save(tmp_path, x=np.zeros(1)), tensor("string", (1,))).hint


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("inputs.npz", b"", "not an .npz file: it is empty"),
        ("inputs.npz", b"hello world", "not an .npz file: it begins with other bytes"),
        ("inputs.npz", b"\x93NUMPY\x01\x00", "it holds a single array"),
        ("inputs.npz", b"PK\x03\x04broken", "not a readable .npz file"),
        ("inputs.npy", b"PK\x03\x04", "it holds several arrays"),
        ("inputs.npy", b"\x93NUMPY\x01\x00\x10", "cannot be read"),
        ("inputs.npy", b"\x80\x04pickle", "begins with other bytes"),
        ("inputs.csv", b"1,2", "'.csv' is no kind of input file"),
        ("inputs", b"1,2", "'inputs' is no kind of input file"),
        ("inputs.png", b"not a picture", "not a readable image"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert message in str(refusal(path, IMAGE))


def test_object_array_in_npy_is_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}]), allow_pickle=True)
    assert "never loaded" in str(refusal(path))


def test_npy_and_image_need_a_model_with_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1))
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    assert "has 2: x, y" in str(refusal(tmp_path / "x.npy", tensor(), tensor()))
    assert "an image is one input" in str(refusal(tmp_path / "x.png", IMAGE, tensor()))


@settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    position=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    cut=st.booleans(),
    suffix=st.sampled_from([".npz", ".npy", ".png"]),
)
def test_damaged_file_is_refused_or_read_and_nothing_else(
    tmp_path: Path, position: float, byte: int, cut: bool, suffix: str
) -> None:
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, x=np.zeros(IMAGE.shape, np.float32))
    elif suffix == ".npy":
        np.save(path, np.zeros(IMAGE.shape, np.float32))
    else:
        Image.new("RGB", (6, 4)).save(path)
    data = bytearray(path.read_bytes())
    place = int(position * len(data))
    data[place:] = b"" if cut else bytes([byte]) + data[place + 1 :]
    path.write_bytes(data)
    try:
        found = load(path, IMAGE)
    except InputError:
        return
    assert found.samples[0][0].shape == IMAGE.shape


# --- folders ----------------------------------------------------------------------------------------------------


def test_each_file_of_a_folder_is_a_sample_in_order_of_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, name in enumerate(["b.npy", "a.npy", "c.npy"]):
        np.save(folder / name, np.full((1, 2, 3), number, np.float32))
    (folder / ".hidden.npy").write_bytes(b"")
    (folder / "README.txt").write_text("mine")
    (folder / "labels.csv").write_text("c.npy,dog\nb.npy,cat\n\na.npy, cow\n")
    found = load(folder)
    assert [sample[0][0, 0, 0] for sample in found.samples] == [1, 0, 2]
    assert found.labels == ("cow", "cat", "dog")
    assert found.source == "samples/ (3 samples)"
    assert "README.txt" in caplog.text
    assert "hidden" not in caplog.text


def test_folder_of_pictures(tmp_path: Path) -> None:
    for name, grey in (("1.png", 0), ("2.jpg", 255)):
        Image.new("RGB", (9, 9), (grey, grey, grey)).save(tmp_path / name)
    found = load(tmp_path, IMAGE)
    assert [float(sample[0].max()) for sample in found.samples] == [0, 1]


def test_folder_without_samples(tmp_path: Path) -> None:
    assert "it is empty" in str(refusal(tmp_path))
    (tmp_path / "notes.txt").write_text("")
    assert "it has notes.txt" in str(refusal(tmp_path))


def test_folder_refuses_files_with_several_samples(tmp_path: Path) -> None:
    path = save(tmp_path, x=np.zeros((2, 2, 3), np.float32))
    with pytest.raises(InputError, match="2 samples in one file") as caught:
        load(tmp_path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [("a.npy,cat,1\n", "3 columns, expected two", ":1"), ("b.npy,cat\n", "no label for a.npy", "")],
)
def test_labels_that_do_not_fit(tmp_path: Path, text: str, message: str, line: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((1, 2, 3), np.float32))
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path)
    assert caught.value.where == f"{tmp_path / 'labels.csv'}{line}"


# --- pictures ---------------------------------------------------------------------------------------------------


def picture(
    folder: Path, colour: tuple[int, ...] = (255, 51, 0), mode: str = "RGB", name: str = "x.png"
) -> Path:
    path = folder / name
    Image.new(mode, (12, 8), colour).save(path)
    return path


def pixel(found: InputSet) -> list[float]:
    return [round(float(value), 4) for value in found.samples[0][0].reshape(-1, 3)[0]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 0.2, 0]),
        ({"channel_order": "bgr"}, [0, 0.2, 1]),
        ({"mean": (127.5,), "std": (127.5,)}, [1, -0.6, -1]),
        ({"mean": (5.0, 1.0, 0.0)}, [250, 50, 0]),
        ({"std": (1.0,)}, [255, 51, 0]),
    ],
    ids=["default", "bgr", "centred", "mean alone", "raw"],
)
def test_float_pixels(tmp_path: Path, options: dict[str, Any], expected: list[float]) -> None:
    found = load(picture(tmp_path), IMAGE, image=ImageOptions(**options))
    assert found.samples[0][0].dtype == np.float32
    assert found.samples[0][0].shape == (1, 4, 6, 3)
    assert pixel(found) == expected


def test_quantized_pixels(tmp_path: Path) -> None:
    path = picture(tmp_path)
    scale = Quantization((1 / 128,), (0,))
    assert pixel(load(path, tensor("uint8", IMAGE.shape, quantization=scale))) == [255, 51, 0]
    int8 = tensor("int8", IMAGE.shape, quantization=scale)
    assert pixel(load(path, int8)) == [127, -77, -128]
    centred = ImageOptions(mean=(127.5,), std=(127.5,))
    assert pixel(load(path, int8, image=centred)) == [
        127,
        -77,
        -128,
    ]  # 1, -0.6, -1 in steps of 1/128, clipped


def test_channels_first(tmp_path: Path) -> None:
    found = load(picture(tmp_path), tensor(shape=(1, 3, 8, 12)))
    assert found.samples[0][0][0, :, 0, 0].tolist() == pytest.approx([1, 0.2, 0])


@pytest.mark.parametrize(("channels", "value"), [(1, 0.8), (4, 1.0)])
def test_grey_and_alpha(tmp_path: Path, channels: int, value: float) -> None:
    found = load(picture(tmp_path, (204, 204, 204)), tensor(shape=(1, 4, 6, channels)))
    assert found.samples[0][0].shape == (1, 4, 6, channels)
    assert float(found.samples[0][0][0, 0, 0, -1]) == pytest.approx(value)


def test_picture_is_turned_upright(tmp_path: Path) -> None:
    """EXIF orientation 6: the stored picture's left column is the upright picture's top row."""
    stored = Image.new("RGB", (4, 4))
    stored.paste((255, 255, 255), (0, 0, 2, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    stored.save(tmp_path / "x.png", exif=exif)
    upright = load(tmp_path / "x.png", tensor(shape=(1, 4, 4, 3))).samples[0][0]
    assert upright[0, 0].min() == 1
    assert upright[0, 3].max() == 0


@pytest.mark.parametrize(
    ("model_input", "options", "message"),
    [
        (tensor(shape=(1, 10)), ImageOptions(), "float32 [1, 10], which is no image"),
        (tensor(shape=(2, 4, 4, 3)), ImageOptions(), "no image"),
        (tensor(shape=(1, 5, 6, 3)), ImageOptions(layout="nchw"), "no image in layout nchw"),
        (tensor("int32", IMAGE.shape), ImageOptions(), "without a quantization"),
        (IMAGE, ImageOptions(mean=(1.0, 2.0)), "2 values for the image's mean, and 3 channels"),
    ],
)
def test_pictures_that_do_not_fit(
    tmp_path: Path, model_input: Tensor, options: ImageOptions, message: str
) -> None:
    assert message in str(refusal(picture(tmp_path), model_input, image=options))


@pytest.mark.parametrize("wrong", [{"channel_order": "gbr"}, {"layout": "hwc"}, {"std": (0.0,)}])
def test_wrong_image_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ImageOptions(**wrong)


def test_without_pillow_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def import_without_pillow(name: str, *arguments: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real_import(name, *arguments)

    path = picture(tmp_path)
    monkeypatch.setattr(builtins, "__import__", import_without_pillow)
    assert "pip install pillow" in refusal(path, IMAGE).hint


# --- seeded -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", 0, 1), ("float16", 0, 1), ("float64", 0, 1), ("int8", -128, 127), ("uint8", 0, 255),
        ("int16", 0, 1), ("int32", 0, 1), ("int64", 0, 1), ("uint32", 0, 1), ("bool", 0, 1), ("int4", -8, 7),
    ],
)  # fmt: skip
def test_seeded_numbers_fill_their_range(dtype: str, low: float, high: float) -> None:
    array = random_inputs([tensor(dtype, (1000,))], ["x"], samples=1).samples[0][0]
    assert array.dtype.name == ("int8" if dtype == "int4" else dtype)
    margin = (high - low) * 0.02 if dtype != "int4" else 0
    assert low <= array.min() <= low + margin
    assert high - margin <= array.max() <= high


def test_quantized_int16_gets_its_whole_range() -> None:
    spec = tensor("int16", (1000,), quantization=Quantization((0.1,), (0,)))
    assert random_inputs([spec], ["x"]).samples[0][0].max() > 30_000


def test_seeded_text_and_complex() -> None:
    text, numbers = random_inputs([tensor("string", (2, 2)), tensor("complex64", (3,))], ["s", "c"]).samples[
        0
    ]
    assert (text.dtype.kind, text.shape) == ("S", (2, 2))
    assert (numbers.dtype.name, numbers.shape) == ("complex64", (3,))


def test_seeded_inputs_are_the_same_everywhere_and_do_not_depend_on_how_many() -> None:
    few = random_inputs([tensor(), tensor()], ["x", "y"], samples=2)
    many = random_inputs([tensor(), tensor()], ["x", "y"])
    assert few.sha256 == random_inputs([tensor(), tensor()], ["a", "b"], samples=2).sha256
    assert few.sha256 == hash_samples(many.samples[:2])
    assert len(many.samples) == 8
    assert not np.array_equal(*few.samples[0])
    assert few.sha256 != random_inputs([tensor(), tensor()], ["x", "y"], samples=2, seed=1).sha256
    assert few.source == "seeded random (seed 0, 2 samples)"


def test_scalar_and_empty_seeded_inputs_and_a_model_without_inputs() -> None:
    scalar, empty = random_inputs([tensor(shape=()), tensor(shape=(0, 3))], ["x", "y"]).samples[0]
    assert (scalar.shape, empty.shape) == ((), (0, 3))
    assert random_inputs([], []).samples[0] == ()


def test_types_without_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="of type resource"):
        random_inputs([tensor("resource", ())], ["state"])


# --- shapes -----------------------------------------------------------------------------------------------------


def shapes(*texts: str, names: tuple[str, ...] = ("image", "mask")) -> dict[str, tuple[int, ...]]:
    return parse_shapes(texts, [tensor(shape=(1, 2, 2, 3))] * len(names), names)


def test_shapes_by_name() -> None:
    assert shapes("image=1x224x224x3", "mask=1,8,8,1") == {"image": (1, 224, 224, 3), "mask": (1, 8, 8, 1)}
    assert shapes("a=b=1x2x3x4", names=("a=b",)) == {"a=b": (1, 2, 3, 4)}
    assert shapes("[1, 2, 3, 4]", names=("only",)) == {"only": (1, 2, 3, 4)}
    assert shapes() == {}


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (("imgae=1x2x2x3",), "no input named 'imgae'", "did you mean 'image'?"),
        (("1x2x2x3",), "which input? the model has 2", "known: image, mask"),
        (("image=1x2xx3",), "'1x2xx3' is no shape", "like 1x224x224x3"),
        (("image=1x2x2x-1",), "above 0", "cannot be left open"),
        (("image=1x0x2x3",), "above 0", ""),
        (("image=1x99999x99999x99999",), "at most 2^31", ""),
        (("image=224x224x3",), "3 dimensions, and the input has 4", "it is 1x2x2x3 now"),
        (("image=",), "0 dimensions", ""),
        (("image=1x2x2x3", "image=1x4x4x3"), "two shapes: [1, 2, 2, 3] and 1x4x4x3", ""),
    ],
)
def test_wrong_shapes(texts: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        shapes(*texts)
    assert message in str(caught.value)
    assert hint in caught.value.hint

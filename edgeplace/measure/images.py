"""Pictures as the input of a model (Pillow reads them; it is optional)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeplace.errors import InputError
from edgeplace.measure.input_spec import InputSpec, counted, first_line

Array = npt.NDArray[Any]

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".gif", ".tif", ".tiff"}
)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How a picture becomes a tensor.

    The picture is turned upright (EXIF), converted to the input's number of channels (1 grey, 3 colours, 4 with
    alpha) and resized as a whole to the input's height and width (bilinear; no cropping, the aspect ratio may change).

    A pixel ``p`` (0..255) of a float input becomes ``(p - mean) / std``; the defaults, mean 0 and std 255, give 0..1. An
    8-bit input without mean and std gets the pixels over its whole range (uint8: ``p``, int8: ``p - 128``), which is
    what a network quantized on pictures expects; with mean or std the float value is quantized with the input's scale. A mean alone has std 1.

    Attributes:
        mean: One value, or one per channel in ``channel_order``; ``None`` means the default.
        std: The same for the divisor.
        channel_order: ``rgb`` or ``bgr``.
        layout: ``nhwc``, ``nchw``, or ``auto``: NCHW only when the shape cannot be NHWC.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channel_order: str = "rgb"
    layout: str = "auto"

    def __post_init__(self) -> None:
        if self.channel_order not in ("rgb", "bgr"):
            raise InputError(f"no channel order '{self.channel_order}'", hint="known: bgr, rgb")
        if self.layout not in ("auto", "nhwc", "nchw"):
            raise InputError(f"no image layout '{self.layout}'", hint="known: auto, nchw, nhwc")
        if self.std is not None and any(value == 0 for value in self.std):
            raise InputError("an image's std divides; it cannot be 0")


def read_image(path: Path, spec: InputSpec, options: ImageOptions) -> Array:
    """The picture as the array of the input ``spec``, with its shape and type.

    Raises:
        InputError: It is no readable picture, the input is none, or Pillow is not installed (the hint has the cure).
    """
    layout, height, width, channels = _image_geometry(path, spec, options.layout)
    pixels = _decode_image(path, height, width, channels)
    if options.channel_order == "bgr" and channels >= 3:
        pixels = pixels[:, :, [2, 1, 0, *range(3, channels)]]
    values = _scale_pixels(path, pixels, spec, options)
    if layout == "nchw":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values).reshape(spec.shape)


def _image_geometry(path: Path, spec: InputSpec, layout: str) -> tuple[str, int, int, int]:
    """Layout, height, width and channels of an image input."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3:
        if layout in ("auto", "nhwc") and shape[2] in (1, 3, 4):
            return "nhwc", shape[0], shape[1], shape[2]
        if layout in ("auto", "nchw") and shape[0] in (1, 3, 4):
            return "nchw", shape[1], shape[2], shape[0]
    raise InputError(
        f"input '{spec.name}' is {spec}, which is no image"
        + ("" if layout == "auto" else f" in layout {layout}"),
        hint="an image input is [1, height, width, 1 | 3 | 4], or the channels first; use .npz for others",
        where=str(path),
    )


def _decode_image(path: Path, height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """The picture as uint8 [height, width, channels]."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError(
            "reading images needs Pillow, which is not installed",
            hint="python -m pip install pillow",
            where=str(path),
        ) from None
    try:
        with Image.open(path) as file:
            upright = ImageOps.exif_transpose(file) or file
            picture = upright.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    except Exception as error:  # noqa: BLE001 - on damaged files the decoders raise all kinds
        raise InputError(f"not a readable image: {first_line(error)}", where=str(path)) from None
    return np.asarray(picture, dtype=np.uint8).reshape(height, width, channels)


def _scale_pixels(path: Path, pixels: npt.NDArray[np.uint8], spec: InputSpec, options: ImageOptions) -> Array:
    """Pixels [height, width, channels] as the numbers the input takes; see :class:`ImageOptions`."""
    dtype = spec.dtype
    plain = options.mean is None and options.std is None
    if plain and dtype == "uint8":
        return pixels
    if plain and dtype == "int8":
        return np.asarray(pixels.astype(np.int16) - 128, dtype=np.int8)
    mean = _per_channel(path, "mean", options.mean or (0.0,), pixels.shape[2])
    std = _per_channel(
        path, "std", options.std or ((255.0,) if options.mean is None else (1.0,)), pixels.shape[2]
    )
    real = (pixels.astype(np.float64) - mean) / std
    if dtype in ("float32", "float16", "float64"):
        return real.astype(dtype)
    quantization = spec.tensor.quantization
    if dtype in ("int8", "uint8", "int16") and quantization is not None and quantization.scales:
        limits = np.iinfo(dtype)
        steps = np.rint(real / quantization.scales[0]) + (*quantization.zero_points, 0)[0]
        return np.asarray(np.clip(steps, limits.min, limits.max), dtype=dtype)
    raise InputError(
        f"input '{spec.name}' is {spec} without a quantization: pixels cannot be turned into it",
        hint="use .npz with the numbers the model expects",
        where=str(path),
    )


def _per_channel(path: Path, what: str, values: tuple[float, ...], channels: int) -> npt.NDArray[np.float64]:
    if len(values) not in (1, channels):
        raise InputError(
            f"{len(values)} values for the image's {what}, and {counted(channels, 'channel')}",
            hint="give one value, or one per channel",
            where=str(path),
        )
    return np.asarray(values, dtype=np.float64)

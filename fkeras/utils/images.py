"""Conversion of images between files, Pillow's images and arrays."""

from __future__ import annotations

import io
import os
import pathlib
import types
import warnings
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from jax.typing import DTypeLike

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine.config.converters import (
    boolean,
    choice,
    data_format_name,
    dtype_name,
    sizes,
)
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.argument_types import FilePath, Numbers

if TYPE_CHECKING:
    from PIL import Image

# Formats that are safe for untrusted files: Pillow's reader of EPS starts another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MODES = types.MappingProxyType({"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"})
# Pillow's modes of gray images with 8, 16 and 32 bits; `convert("L")` would clip 16 and 32 bits
_GRAY_MODES = ("L", "I;16", "I")
_COLOR = choice(*_MODES)
_SIZE = sizes(2, optional=True)
_FILTER = choice("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


def pillow(where: str) -> Any:
    """Imports and returns Pillow's module `PIL.Image`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package(where, "PIL", error) from error
    return Image


def load_img(
    path: FilePath | IO[bytes],
    color_mode: str = "rgb",
    target_size: Sequence[int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Image.Image:
    """Reads an image file and resizes the image.

    Args:
        path: path of a BMP, GIF, JPEG, PNG, PPM, TIFF or WebP file, or an open binary file.
        color_mode: "rgb", "rgba" or "grayscale", which keeps the values of 16-bit and 32-bit images.
        target_size: `(height, width)` of the result, or None for the size in the file.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos", "box" or "hamming".
        keep_aspect_ratio: whether to crop the borders instead of distorting the image.

    Returns:
        An image of Pillow (`pip install pillow`).

    Raises:
        ValueError: for a file in another format, and for arguments out of range.
        TypeError: if `path` is neither a path nor a file.
        ImportError: if Pillow is missing.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "red.png")
        >>> save_img(path, np.full((2, 3, 3), [255, 0, 0]), scale=False)
        >>> load_img(path, target_size=(4, 6)).size
        (6, 4)
    """
    color_mode = _COLOR.check("load_img: color_mode", color_mode)
    size = _SIZE.check("load_img: target_size", target_size)
    method = _FILTER.check("load_img: interpolation", interpolation)
    crop = boolean.check("load_img: keep_aspect_ratio", keep_aspect_ratio)
    image = read_image(path, color_mode, "load_img")
    if size is None or image.size == size[::-1]:
        return image
    box = _center_box(image.size, size) if crop else None
    return image.resize(size[::-1], pillow("load_img").Resampling[method.upper()], box=box)


def read_image(path: FilePath | IO[bytes], color_mode: str, where: str) -> Image.Image:
    """Reads an image file completely and converts the image to a color mode.

    Args:
        path: the path, or an open binary file.
    """
    module = pillow(where)
    source = path if hasattr(path, "read") else _checked_path(path, where)
    try:
        with module.open(source, formats=FORMATS) as image:
            image.load()
            is_gray = color_mode == "grayscale" and image.mode in _GRAY_MODES
            # a copy in both cases, since the end of the block closes the image
            return image.copy() if is_gray else image.convert(_MODES[color_mode])
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    # Pillow's readers also raise struct.error, SyntaxError and others for damaged files
    except Exception as error:
        raise ValueError(
            f"{where}: {_display_name(path)}: expected an image in the format {', '.join(FORMATS)}, "
            f"received a file that Pillow cannot read ({type(error).__name__}). Convert or remove "
            "the file."
        ) from error


def _display_name(path: Any) -> str:
    return type(path).__name__ if hasattr(path, "read") else os.fsdecode(os.fspath(path))


def _checked_path(path: object, where: str) -> str:
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(
            f"{where}: expected a path or an open binary file, received {describe_value(path)}. "
            "Write 'image.png', or open('image.png', 'rb')."
        )
    return as_path(path)


def _center_box(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """Returns the largest centered box (left, top, right, bottom) with the target's aspect ratio."""
    (width, height), (rows, columns) = size, target
    crop_height = max(1, min(height, width * rows // columns))
    crop_width = max(1, min(width, height * columns // rows))
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    return left, top, left + crop_width, top + crop_height


def img_to_array(
    img: Image.Image | Numbers, data_format: str | None = None, dtype: DTypeLike | None = None
) -> np.ndarray:
    """Converts an image of Pillow to an array.

    Args:
        img: the image, or an array of shape (h, w) or (h, w, c).
        data_format: "channels_last" or "channels_first"; None for "channels_last".
        dtype: dtype of the array; None for float32.

    Returns:
        An array of shape (h, w, c), or (c, h, w) for "channels_first".

    Raises:
        ValueError: for an array of another rank, and for an unknown dtype.

    Example:
        >>> img_to_array(np.zeros((4, 6), "uint8")).shape
        (4, 6, 1)
    """
    channels_first = data_format_name(data_format) == "channels_first"
    dtype = _dtype("img_to_array", dtype)
    try:
        array = np.asarray(img, dtype)
    except (TypeError, ValueError):
        raise ValueError(
            f"img_to_array: expected an image of Pillow, received {describe_value(img)}. Read a "
            "file with load_img(path)."
        ) from None
    if array.ndim not in (2, 3):
        raise ValueError(
            f"img_to_array: expected an image of shape (h, w) or (h, w, c), received "
            f"{array.shape}. For a batch, convert each image: [img_to_array(x) for x in batch]."
        )
    array = array[:, :, None] if array.ndim == 2 else array
    return array.transpose(2, 0, 1) if channels_first else array


def array_to_img(
    x: Numbers,
    data_format: str | None = None,
    scale: bool = True,
    dtype: DTypeLike | None = None,
) -> Image.Image:
    """Converts an array to an image of Pillow.

    Unlike Keras, the function rejects values that the image cannot hold: NaN, and with
    `scale=False` numbers below 0, or above 255 in color images.

    Args:
        x: array of shape (h, w, c) with 1, 3 or 4 channels, or (c, h, w) for "channels_first".
        data_format: "channels_last" or "channels_first"; None for "channels_last".
        scale: whether to map the smallest number to 0 and the largest to 255.
        dtype: dtype of the computation; None for float32.

    Returns:
        A gray, RGB or RGBA image with 8 bits per channel; with `scale=False`, gray numbers above 255
        give an image with 32 bits.

    Raises:
        ValueError: for another shape, and for numbers that the image cannot hold.
        ImportError: if Pillow is missing.

    Example:
        >>> array_to_img(np.zeros((4, 6, 3))).size
        (6, 4)
    """
    channels_first = data_format_name(data_format) == "channels_first"
    scale = boolean.check("array_to_img: scale", scale)
    module = pillow("array_to_img")
    dtype = _dtype("array_to_img", dtype)
    try:
        array = np.array(x, dtype)
    except (TypeError, ValueError):
        raise ValueError(
            f"array_to_img: expected an array of numbers, received {describe_value(x)}. Read a file "
            "with load_img(path)."
        ) from None
    array = array.transpose(1, 2, 0) if channels_first and array.ndim == 3 else array
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or array.size == 0:
        raise ValueError(
            "array_to_img: expected an image with 1, 3 or 4 channels, (h, w, c) or with "
            f'data_format="channels_first" (c, h, w), received {np.asarray(x).shape}. Add a channel '
            "axis to a gray image: x[:, :, None]."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            "array_to_img: expected finite numbers, received NaN or infinity. Replace the "
            "numbers first: np.nan_to_num(x)."
        )
    if scale:
        array = array - array.min()
        # `or 1`: a constant image becomes black instead of NaN
        array = array / (array.max() or 1) * 255
    max_value = 255 if array.shape[2] > 1 else np.iinfo("int32").max
    if array.min() < 0 or array.max() > max_value:
        raise ValueError(
            f"array_to_img: expected numbers from 0 to {max_value}, received numbers from "
            f"{array.min():.6g} to {array.max():.6g}. Write scale=True to map the "
            "numbers to 0 to 255."
        )
    pixels = array[:, :, 0] if array.shape[2] == 1 else array
    return module.fromarray(pixels.astype("int32" if array.max() > 255 else "uint8"))


def save_img(
    path: FilePath | IO[bytes],
    x: Numbers,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Writes an array as an image file; if writing fails, an existing file stays unchanged.

    Args:
        path: path of the file, or an open binary file.
        x: array as in `array_to_img`.
        data_format: "channels_last" or "channels_first"; None for "channels_last".
        file_format: format such as "png"; None for the format of the file extension.
        scale: whether to map the smallest number to 0 and the largest to 255.
        **kwargs: options of Pillow's writer, such as `quality=90` for JPEG.

    Raises:
        ValueError: for an unknown format, and in the cases of `array_to_img`.
        ImportError: if Pillow is missing.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> save_img(file, np.zeros((4, 6, 3)), file_format="png")
        >>> load_img(file).size
        (6, 4)
    """
    stream: Any = path if hasattr(path, "write") else None
    if file_format is None and stream is None:
        file_format = pathlib.Path(_checked_path(path, "save_img")).suffix[1:]
    if not isinstance(file_format, str) or not file_format:
        raise ValueError(
            f"save_img: expected a format such as 'png', received {describe_value(file_format)}. "
            "Pass file_format='png', or a path with an extension."
        )
    pillow_format = {"jpg": "JPEG", "tif": "TIFF"}.get(file_format.lower(), file_format.upper())
    module = pillow("save_img")
    module.init()
    if pillow_format not in module.SAVE:
        raise ValueError(
            f"save_img: expected a format that Pillow writes, such as 'png' or 'jpeg', received "
            f"{file_format!r}. Pass file_format='png'."
        )
    image = array_to_img(x, data_format=data_format, scale=scale)
    if image.mode == "RGBA" and pillow_format == "JPEG":
        warnings.warn(
            "save_img: JPEG has no transparency; the image is saved as RGB.", stacklevel=2
        )
        image = image.convert("RGB")
    # Pillow writes to memory first, so that an error leaves no incomplete file
    data = io.BytesIO()
    image.save(data, format=pillow_format, **kwargs)
    if stream is not None:
        stream.write(data.getvalue())
        return
    with replacing(_checked_path(path, "save_img")) as file:
        file.write(data.getvalue())


def _dtype(where: str, dtype: DTypeLike | None) -> str:
    name = "float32" if dtype is None else dtype_name(dtype)
    if name is None:
        raise ValueError(
            f"{where}: dtype: expected a dtype such as 'float32', received {describe_value(dtype)}."
        )
    return name

"""Preprocessing of images for ImageNet models, and class names of their predictions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import ops
from fkeras.atomic_files.atomic import as_path
from fkeras.engine import KerasTensor, is_symbolic, suggest
from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.arrays import is_array_like, read_array

Images = TypeVar("Images", np.ndarray, jax.Array, KerasTensor)

_MODES = ("caffe", "tf", "torch")
_FORMATS = ("channels_first", "channels_last")
# mean color of ImageNet's training images: blue, green, red, from 0 to 255
_BGR_MEAN = (103.939, 116.779, 123.68)
# mean and standard deviation of the colors: red, green, blue, from 0 to 1
_RGB_MEAN = (0.485, 0.456, 0.406)
_RGB_DEVIATION = (0.229, 0.224, 0.225)
_CLASS_INDEX_URL = (
    "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
)


def preprocess_input(x: Images, data_format: str | None = None, mode: str = "caffe") -> Images:
    """Scales pixels from 0 to 255 to the range with which an ImageNet model was trained.

    Integers become float32, and floats keep their dtype. The argument is unchanged, whereas Keras
    overwrites NumPy arrays of floats.

    Args:
        x: images (b, h, w, 3) or one image (h, w, 3): a NumPy array, a JAX array or a symbolic tensor.
        data_format: "channels_last" (also None) or "channels_first".
        mode: "caffe" reverses the channels and subtracts the mean color; "tf" scales to [-1, 1];
            "torch" scales to [0, 1], subtracts the mean color and divides by the standard deviation.

    Returns:
        Images of the same shape and type.

    Raises:
        ValueError: for an unknown mode or data format, and for images without three channels where
            the mode needs them.
        TypeError: if `x` is not an array.

    Example:
        >>> import numpy as np
        >>> preprocess_input(np.array([[[0, 127.5, 255]]]), mode="tf")
        array([[[-1.,  0.,  1.]]])
    """
    if mode not in _MODES:
        raise ValueError(
            f"preprocess_input: mode: expected 'caffe', 'tf' or 'torch', received "
            f"{describe_value(mode)}.{suggest(str(mode), _MODES)} Choose the mode with which the model "
            "was trained."
        )
    if data_format is not None and data_format not in _FORMATS:
        raise ValueError(
            "preprocess_input: data_format: expected None, 'channels_last' or 'channels_first', "
            f"received {describe_value(data_format)}.{suggest(str(data_format), _FORMATS)} "
            "Choose the axis order of the images."
        )
    pixels: Any = _float_pixels(x)
    if mode == "tf":
        return pixels / 127.5 - 1.0
    axis = -3 if data_format == "channels_first" else -1
    if pixels.ndim < 3 or pixels.shape[axis] != 3:
        raise ValueError(
            f"preprocess_input: expected images with 3 channels on axis {axis}, received "
            f"{tuple(pixels.shape)}. Repeat the channel of gray images: np.repeat(x, 3, axis={axis})."
        )
    if mode == "caffe":
        bgr = pixels[..., ::-1] if axis == -1 else pixels[..., ::-1, :, :]
        return bgr - _channel_values(_BGR_MEAN, axis, pixels)
    centered = pixels / 255.0 - _channel_values(_RGB_MEAN, axis, pixels)
    return centered / _channel_values(_RGB_DEVIATION, axis, pixels)


def _float_pixels(x: Any) -> Any:
    if is_symbolic(x):
        return x if jnp.issubdtype(x.dtype, jnp.floating) else ops.cast(x, "float32")
    if not is_array_like(x):
        raise TypeError(
            f"preprocess_input: expected an array of images, received {describe_value(x)}. Write "
            "np.asarray(images)."
        )
    if not isinstance(x, jax.Array):
        x = read_array(x, "preprocess_input")
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype("float32")


def _channel_values(values: Sequence[float], axis: int, pixels: Any) -> Any:
    """Returns a number for each channel, in a shape and dtype that broadcast with the pixels."""
    shape = [1] * pixels.ndim
    shape[axis] = 3
    array = np.asarray(values, np.dtype(pixels.dtype)).reshape(shape)
    return jnp.asarray(array) if isinstance(pixels, jax.Array) else array


def preprocess_caffe(x: Images, data_format: str | None = None) -> Images:
    """Reverses the channels from RGB to BGR and subtracts ImageNet's mean color.

    Args:
        x: images (b, h, w, 3) or one image (h, w, 3) with pixels from 0 to 255.
        data_format: "channels_last" (also None) or "channels_first".

    Returns:
        Images of the same shape and type; the argument is unchanged.

    Raises:
        ValueError: for an unknown data format, and for images without three channels.

    Example:
        >>> import numpy as np
        >>> preprocess_caffe(np.array([[[123.68, 116.779, 103.939]]]))
        array([[[0., 0., 0.]]])
    """
    return preprocess_input(x, data_format, "caffe")


def preprocess_tf(x: Images, data_format: str | None = None) -> Images:
    """Scales pixels from [0, 255] to [-1, 1].

    Args:
        x: images with pixels from 0 to 255.
        data_format: "channels_last" (also None) or "channels_first"; the result is the same.

    Returns:
        Images of the same shape and type; the argument is unchanged.

    Raises:
        ValueError: for an unknown data format.
    """
    return preprocess_input(x, data_format, "tf")


def preprocess_torch(x: Images, data_format: str | None = None) -> Images:
    """Scales pixels to [0, 1] and standardizes each channel with ImageNet's statistics.

    Args:
        x: images (b, h, w, 3) or one image (h, w, 3) with pixels from 0 to 255.
        data_format: "channels_last" (also None) or "channels_first".

    Returns:
        Images of the same shape and type; the argument is unchanged.

    Raises:
        ValueError: for an unknown data format, and for images without three channels.

    Example:
        >>> import numpy as np
        >>> preprocess_torch(np.full((1, 1, 3), 255.0)).round(2)
        array([[[2.25, 2.43, 2.64]]])
    """
    return preprocess_input(x, data_format, "torch")


def preprocess_nothing(x: Images, data_format: str | None = None) -> Images:
    """Returns the images unchanged: the model scales pixels from 0 to 255 itself.

    Args:
        x: images.
        data_format: ignored.

    Example:
        >>> preprocess_nothing(3)
        3
    """
    return x


def decode_predictions(
    preds: Any, top: int = 5, *, class_index: str | os.PathLike[str] | None = None
) -> list[list[tuple[str, str, Any]]]:
    """Returns the classes with the highest scores for each sample, in descending order.

    Args:
        preds: scores (b, classes).
        top: number of classes for each sample.
        class_index: path of a JSON file of the class names, in the form of Keras's
            `imagenet_class_index.json`: {"0": ["n01440764", "tench"], ...}.

    Returns:
        For each sample, a list of (id, name, score).

    Raises:
        ValueError: if `class_index` is None, for a file in another form, and for scores of another
            number of classes.
        FileNotFoundError: if the file is missing.

    Example:
        >>> import json, pathlib, tempfile, numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp(), "index.json")
        >>> _ = path.write_text(json.dumps({"0": ["n1", "cat"], "1": ["n2", "dog"]}))
        >>> [[(_, name, score)]] = decode_predictions(np.array([[0.25, 0.75]]), 1, class_index=path)
        >>> name, float(score)
        ('dog', 0.75)
    """
    if class_index is None:
        raise ValueError(
            "decode_predictions: class_index: expected the path of a file with the class names, "
            f"received None. Download Keras's file for ImageNet, {_CLASS_INDEX_URL}, and write "
            'decode_predictions(preds, class_index="imagenet_class_index.json").'
        )
    top = integer(minimum=1).check("decode_predictions: top", top)
    classes = _read_classes(as_path(class_index))
    scores = np.asarray(preds)
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        raise ValueError(
            f"decode_predictions: expected scores (samples, {len(classes)}), as the file has "
            f"{len(classes)} classes, received {scores.shape}. Write preds[None] for one sample."
        )
    return [
        # stable, so that equal scores give the same order everywhere: the later class first, as in Keras
        [(*classes[index], row[index]) for index in row.argsort(kind="stable")[-top:][::-1]]
        for row in scores
    ]


def _read_classes(path: str) -> list[tuple[str, str]]:
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"decode_predictions: class_index: expected the path of a file, received {path!r}, which is "
            f"missing. Download Keras's file for ImageNet, {_CLASS_INDEX_URL}."
        )
    with open(path, encoding="utf-8") as file:
        try:
            entries = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"decode_predictions: class_index: expected a JSON file, received {path!r} ({error}). "
                f"Download Keras's file for ImageNet, {_CLASS_INDEX_URL}."
            ) from None
    classes: list[tuple[str, str]] = []
    table = entries if isinstance(entries, Mapping) else {}
    for number in range(max(len(table), 1)):
        match table.get(str(number)):
            case [str(identifier), str(name)]:
                classes.append((identifier, name))
            case entry:
                raise ValueError(
                    "decode_predictions: class_index: expected an object with the keys '0', '1', ... "
                    f'and entries such as ["n01440764", "tench"] in {path!r}, received '
                    f"{describe_value(entry)} for class {number}. Number the classes from 0."
                )
    return classes

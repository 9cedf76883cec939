"""Images before a model of ImageNet, and class names after it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import ops
from fkeras.engine import KerasTensor, is_symbolic, suggest
from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.arrays import is_array_like, read_array
from fkeras.files.atomic import as_path

Images = TypeVar("Images", np.ndarray, jax.Array, KerasTensor)

_MODES = ("caffe", "tf", "torch")
_FORMATS = ("channels_first", "channels_last")
# of ImageNet's training images: pixels from 0 to 255 in the order blue, green, red
_BGR_MEAN = (103.939, 116.779, 123.68)
# pixels from 0 to 1 in the order red, green, blue
_RGB_MEAN = (0.485, 0.456, 0.406)
_RGB_DEVIATION = (0.229, 0.224, 0.225)
_INDEX = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"


def preprocess_input(x: Images, data_format: str | None = None, mode: str = "caffe") -> Images:
    """Scales pixels from 0 to 255 as the models of ImageNet were trained.

    Integers become float32, and floats keep their dtype. The argument stays unchanged; Keras
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
        TypeError: for a value that is no array.

    Example:
        >>> import numpy as np
        >>> preprocess_input(np.array([[[0, 127.5, 255]]]), mode="tf")
        array([[[-1.,  0.,  1.]]])
    """
    if mode not in _MODES:
        raise ValueError(
            f"preprocess_input: mode: expected 'caffe', 'tf' or 'torch', received "
            f"{describe_value(mode)}.{suggest(str(mode), _MODES)}"
        )
    if data_format is not None and data_format not in _FORMATS:
        raise ValueError(
            "preprocess_input: data_format: expected None, 'channels_last' or 'channels_first', "
            f"received {describe_value(data_format)}.{suggest(str(data_format), _FORMATS)}"
        )
    pixels: Any = _float_pixels(x)
    if mode == "tf":
        return pixels / 127.5 - 1.0
    axis = -3 if data_format == "channels_first" else -1
    if pixels.ndim < 3 or pixels.shape[axis] != 3:
        raise ValueError(
            f"preprocess_input: expected images with 3 channels on axis {axis}, received "
            f"{tuple(pixels.shape)}. Gray images: repeat the channel, np.repeat(x, 3, axis={axis})."
        )
    if mode == "caffe":
        flipped = pixels[..., ::-1] if axis == -1 else pixels[..., ::-1, :, :]
        return flipped - _along(_BGR_MEAN, axis, pixels)
    scaled = pixels / 255.0 - _along(_RGB_MEAN, axis, pixels)
    return scaled / _along(_RGB_DEVIATION, axis, pixels)


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


def _along(values: Sequence[float], axis: int, pixels: Any) -> Any:
    """Returns a number for each channel with the rank and the dtype of the pixels."""
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
        Images of the same shape and type; the argument stays unchanged.

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
        data_format: "channels_last" (also None) or "channels_first", which compute the same.

    Returns:
        Images of the same shape and type; the argument stays unchanged.

    Raises:
        ValueError: for an unknown data format.

    Example:
        >>> import numpy as np
        >>> preprocess_tf(np.array([[[0.0, 127.5, 255.0]]]))
        array([[[-1.,  0.,  1.]]])
    """
    return preprocess_input(x, data_format, "tf")


def preprocess_torch(x: Images, data_format: str | None = None) -> Images:
    """Scales pixels to [0, 1] and standardizes each channel with ImageNet's statistics.

    Args:
        x: images (b, h, w, 3) or one image (h, w, 3) with pixels from 0 to 255.
        data_format: "channels_last" (also None) or "channels_first".

    Returns:
        Images of the same shape and type; the argument stays unchanged.

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
    """Returns the classes with the highest scores of each sample, highest first.

    Args:
        preds: scores (b, classes).
        top: number of classes for each sample.
        class_index: path of a JSON file of the class names, in the form of Keras's
            `imagenet_class_index.json`: {"0": ["n01440764", "tench"], ...}.

    Returns:
        For each sample a list of (id, name, score).

    Raises:
        ValueError: without a file, for a file in another form, and for scores of another number of
            classes.
        FileNotFoundError: for a path without a file.

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
            f"received None. Keras's file for ImageNet is {_INDEX}; pass its path: "
            'decode_predictions(preds, class_index="imagenet_class_index.json").'
        )
    top = integer(minimum=1).check("decode_predictions: top", top)
    classes = _read_classes(as_path(class_index))
    scores = np.asarray(preds)
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        raise ValueError(
            f"decode_predictions: expected scores (samples, {len(classes)}), as the file has "
            f"{len(classes)} classes, received {scores.shape}. One sample: preds[None]."
        )
    return [
        # a stable order: of equal scores the later class comes first, as in Keras
        [(*classes[index], row[index]) for index in row.argsort(kind="stable")[-top:][::-1]]
        for row in scores
    ]


def _read_classes(path: str) -> list[tuple[str, str]]:
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"decode_predictions: class_index: there is no file {path!r}. Keras's file for ImageNet "
            f"is {_INDEX}."
        )
    with open(path, encoding="utf-8") as file:
        try:
            entries = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"decode_predictions: class_index: {path!r} is no JSON file ({error})."
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
                    f'and entries such as ["n01440764", "tench"] in {path!r}; class {number} is '
                    f"{describe_value(entry)}."
                )
    return classes

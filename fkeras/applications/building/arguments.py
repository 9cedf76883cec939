"""Checks of the arguments that all architectures share, and the symbolic images they describe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from fkeras.atomic_files.atomic import as_path
from fkeras.engine import Input, KerasTensor, Node, is_symbolic, suggest
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import AnyInteger
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.symbolic.input import is_input

Path: TypeAlias = str | os.PathLike[str]
ImageShape: TypeAlias = Sequence[AnyInteger | None]
Activation: TypeAlias = str | Mapping[str, Any] | Callable[[jax.Array], jax.Array] | None

POOLINGS = (None, "avg", "max")


class Options(NamedTuple):
    """Arguments of an architecture's function, as passed by the caller.

    Example:
        >>> Options(weights=None, classes=10).include_top
        True
    """

    include_top: bool = True
    weights: Path | None = "imagenet"
    input_tensor: Any = None
    input_shape: Any = None
    pooling: str | None = None
    classes: Any = 1000
    classifier_activation: Any = "softmax"
    name: str | None = None


class Sizes(NamedTuple):
    """The image sizes of an architecture.

    Args:
        default: height and width if `input_shape` is None; None for unknown sizes.
        minimum: smallest height and width.
        static: whether a network with the classifier needs a fixed height and width.
        features: like `default`, for a network without the classifier.
        fixed: whether a network without the classifier also needs a fixed height and width.

    Example:
        >>> Sizes(224).minimum
        32
    """

    default: int | None
    minimum: int = 32
    static: bool = True
    features: int | None = None
    fixed: bool = False


def check_options(where: str, options: Options, url: str) -> Options:
    """Checks and converts all options except input shape and tensor, which `input_images` checks.

    Raises:
        ValueError: for a value out of range, and for the weights "imagenet", which are not downloaded.
        TypeError: for a value of another type.
        FileNotFoundError: for a path without a file.
    """
    if options.pooling not in POOLINGS:
        raise ValueError(
            f"{where}: pooling: expected None, 'avg' or 'max', received "
            f"{describe_value(options.pooling)}.{suggest(str(options.pooling), ('avg', 'max'))} Write "
            "pooling='avg' for the mean of each channel."
        )
    if options.name is not None and not isinstance(options.name, str):
        raise TypeError(
            f"{where}: name: expected a string or None, received {describe_value(options.name)}. "
            "Write name='backbone'."
        )
    return options._replace(
        include_top=boolean.check(f"{where}: include_top", options.include_top),
        classes=integer(minimum=1).check(f"{where}: classes", options.classes),
        weights=_weights_path(where, options.weights, url),
    )


def _weights_path(where: str, weights: Any, url: str) -> str | None:
    if weights is None:
        return None
    if not isinstance(weights, str | os.PathLike):
        check_not_keras(weights, f"{where}: weights")
        raise TypeError(
            f"{where}: weights: expected None or the path of a file, received "
            f"{describe_value(weights)}. Pass arrays to model.set_weights."
        )
    path = as_path(weights)
    if os.path.exists(path):
        return path
    if path == "imagenet":
        raise ValueError(
            f"{where}: weights: expected None or the path of a file, received 'imagenet': fkeras "
            f"downloads nothing. Download {url} and write "
            f'model, state = fk.applications.{where}(weights="{url.rpartition("/")[2]}"), or use random '
            f"weights: fk.applications.{where}(weights=None).build(jax.random.key(0))."
        )
    raise FileNotFoundError(
        f"{where}: weights: expected the path of a file, received {path!r}, which is missing. Pass a "
        "file of Keras or fkeras (.h5, .weights.h5, .keras), or None for random weights."
    )


def input_images(where: str, options: Options, sizes: Sizes) -> tuple[KerasTensor, Any]:
    """Returns the symbolic images that the network processes, and the inputs of the model.

    The two differ if `input_tensor` was computed from other inputs.
    """
    if options.input_tensor is None:
        x = Input(_input_shape(where, options, sizes))
        return x, x
    tensor = options.input_tensor
    if not is_symbolic(tensor):
        check_not_keras(tensor, f"{where}: input_tensor")
        raise TypeError(
            f"{where}: input_tensor: expected a symbolic tensor, received {describe_value(tensor)}. "
            "Write input_tensor=fk.Input((224, 224, 3)), and pass arrays to the model."
        )
    shape = tensor.shape[1:]
    _check_shape(where, "input_tensor", shape, sizes)
    if options.input_shape is not None:
        input_shape = _check_shape(where, "input_shape", options.input_shape, sizes)
        if len(input_shape) != len(shape) or any(
            a != b for a, b in zip(input_shape, shape, strict=True) if None not in (a, b)
        ):
            raise ValueError(
                f"{where}: input_shape: expected the shape {shape} of input_tensor, received "
                f"{input_shape}. Leave out input_shape."
            )
    inputs = _source_inputs(tensor)
    return tensor, inputs[0] if len(inputs) == 1 else inputs


def image_height(x: KerasTensor) -> int | None:
    """Returns the height of images (b, h, w, c), which is part of some default model names."""
    return x.shape[1]


def _input_shape(where: str, options: Options, sizes: Sizes) -> tuple[int | None, ...]:
    if options.input_shape is None:
        size = sizes.default if options.include_top else sizes.features
        return size, size, 3
    shape = _check_shape(where, "input_shape", options.input_shape, sizes)
    if options.include_top and sizes.static and None in shape:
        raise ValueError(
            f"{where}: input_shape: expected fixed sizes with include_top=True, received {shape}. "
            f"Write height and width, such as ({sizes.default}, {sizes.default}, 3)"
            f"{'' if sizes.fixed else ', or include_top=False'}."
        )
    return shape


_DIMENSION = integer(minimum=1, optional=True)


def _check_shape(where: str, argument: str, shape: Any, sizes: Sizes) -> tuple[int | None, ...]:
    minimum = sizes.minimum
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) != 3:
        raise ValueError(
            f"{where}: {argument}: expected (height, width, channels), received "
            f"{describe_value(shape)}. Write ({sizes.default or 224}, {sizes.default or 224}, 3), "
            "without the batch axis."
        )
    shape = tuple(_DIMENSION.check(f"{where}: {argument}", size) for size in shape)
    if shape[2] is None:
        raise ValueError(
            f"{where}: {argument}: expected a fixed number of channels, received {shape}. Write "
            "3 for color images."
        )
    if any(size is not None and size < minimum for size in shape[:2]):
        is_channels_first = shape[0] in (1, 3) and (shape[1] or minimum) >= minimum
        remedy = (
            "Transpose the images to (height, width, channels): channels are the last axis."
            if is_channels_first
            else "Enlarge the images: layers.Resizing(height, width)."
        )
        raise ValueError(
            f"{where}: {argument}: expected height and width of {minimum} or more, received {shape}. "
            f"{remedy}"
        )
    if sizes.fixed and None in shape:
        raise ValueError(
            f"{where}: {argument}: expected a fixed height and width, since the padding of the cells "
            f"depends on them, received {shape}. Write ({sizes.default}, {sizes.default}, 3)."
        )
    return shape


def _source_inputs(tensor: Any) -> list[Any]:
    """Returns the `fk.Input` tensors from which a tensor is computed, in the order of the calls."""
    source_inputs: dict[Node, Any] = {}
    visited: set[Node] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if current.node in visited:
            continue
        visited.add(current.node)
        if is_input(current):
            source_inputs[current.node] = current
        # reversed, so that `pop` returns the first input of a call first
        stack.extend(reversed(current.node.inputs))
    return list(source_inputs.values())

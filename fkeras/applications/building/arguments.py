"""The arguments that all architectures take: checks, and the symbolic input that they describe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from fkeras.engine import Input, KerasTensor, Node, is_symbolic, suggest
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import AnyInteger
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.symbolic.input import is_input
from fkeras.files.atomic import as_path

Path: TypeAlias = str | os.PathLike[str]
ImageShape: TypeAlias = Sequence[AnyInteger | None]
Activation: TypeAlias = str | Mapping[str, Any] | Callable[[jax.Array], jax.Array] | None

POOLINGS = (None, "avg", "max")


class Options(NamedTuple):
    """The arguments of a call of an architecture, as the caller passes them.

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
        default: height and width without `input_shape`, with the classifier; None for unknown sizes.
        minimum: the smallest height and width.
        static: whether the classifier needs a fixed height and width.
        features: height and width without `input_shape` and classifier; None for unknown sizes.
        fixed: whether the features need a fixed height and width too.

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
    """Returns the options with checked types; input shape and tensor are checked by `start`.

    Args:
        where: name of the architecture, for messages.
        options: the arguments of the caller.
        url: address of Keras's file of ImageNet weights.

    Raises:
        ValueError: for a value out of range, and for the weights "imagenet", which are not downloaded.
        TypeError: for a value of another type.
        FileNotFoundError: for a path without a file.
    """
    if options.pooling not in POOLINGS:
        raise ValueError(
            f"{where}: pooling: expected None, 'avg' or 'max', received "
            f"{describe_value(options.pooling)}.{suggest(str(options.pooling), ('avg', 'max'))}"
        )
    if options.name is not None and not isinstance(options.name, str):
        raise TypeError(
            f"{where}: name: expected a string or None, received {describe_value(options.name)}."
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
            f"{describe_value(weights)}. Arrays are set by model.set_weights."
        )
    path = as_path(weights)
    if os.path.exists(path):
        return path
    if path == "imagenet":
        raise ValueError(
            f"{where}: weights='imagenet' is the name of a download, and fkeras downloads nothing. "
            f"Get the file from {url} and pass its path: "
            f'model, state = fk.applications.{where}(weights="{url.rpartition("/")[2]}"). Random '
            f"weights: fk.applications.{where}(weights=None).build(jax.random.key(0))."
        )
    raise FileNotFoundError(
        f"{where}: weights: there is no file {path!r}. Pass the path of a file that Keras or fkeras "
        "wrote (.h5, .weights.h5, .keras), or None for random weights."
    )


def start(where: str, options: Options, sizes: Sizes) -> tuple[KerasTensor, Any]:
    """Returns the images that the architecture begins with, and the inputs of the model.

    Args:
        where: name of the architecture, for messages.
        options: the arguments of the caller.
        sizes: the image sizes of the architecture.

    Raises:
        ValueError: for a shape that the architecture cannot take.
        TypeError: for values of other types.
    """
    if options.input_tensor is None:
        x = Input(_input_shape(where, options, sizes))
        return x, x
    tensor = options.input_tensor
    if not is_symbolic(tensor):
        check_not_keras(tensor, f"{where}: input_tensor")
        raise TypeError(
            f"{where}: input_tensor: expected a symbolic tensor, received {describe_value(tensor)}. "
            "Write input_tensor=fk.Input((224, 224, 3)); arrays are passed to the model."
        )
    shape = tensor.shape[1:]
    _check_shape(where, "input_tensor", shape, sizes)
    if options.input_shape is not None:
        other = _check_shape(where, "input_shape", options.input_shape, sizes)
        if len(other) != len(shape) or any(
            a != b for a, b in zip(other, shape, strict=True) if None not in (a, b)
        ):
            raise ValueError(
                f"{where}: input_shape {other} differs from the shape {shape} of input_tensor. "
                "Leave out input_shape."
            )
    inputs = _sources(tensor)
    return tensor, inputs[0] if len(inputs) == 1 else inputs


def image_rows(x: KerasTensor) -> int | None:
    """Returns the height of images (b, h, w, c), for names of models."""
    return x.shape[1]


def _input_shape(where: str, options: Options, sizes: Sizes) -> tuple[int | None, ...]:
    if options.input_shape is None:
        size = sizes.default if options.include_top else sizes.features
        return size, size, 3
    shape = _check_shape(where, "input_shape", options.input_shape, sizes)
    if options.include_top and sizes.static and None in shape:
        raise ValueError(
            f"{where}: input_shape: expected fixed sizes with include_top=True, received {shape}. "
            f"Give height and width, such as ({sizes.default}, {sizes.default}, 3)"
            f"{'' if sizes.fixed else ', or include_top=False'}."
        )
    return shape


_size = integer(minimum=1, optional=True)


def _check_shape(where: str, argument: str, shape: Any, sizes: Sizes) -> tuple[int | None, ...]:
    least = sizes.minimum
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) != 3:
        raise ValueError(
            f"{where}: {argument}: expected (height, width, channels), received "
            f"{describe_value(shape)}. Write ({sizes.default or 224}, {sizes.default or 224}, 3), "
            "without the batch axis."
        )
    shape = tuple(_size.check(f"{where}: {argument}", size) for size in shape)
    if shape[2] is None:
        raise ValueError(
            f"{where}: {argument}: expected a fixed number of channels, received {shape}. Color "
            "images have 3."
        )
    if any(size is not None and size < least for size in shape[:2]):
        channels_first = shape[0] in (1, 3) and (shape[1] or least) >= least
        remedy = (
            "The channels are the last axis: transpose the images to (height, width, channels)."
            if channels_first
            else "Enlarge the images: layers.Resizing(height, width)."
        )
        raise ValueError(
            f"{where}: {argument}: expected height and width of {least} or more, received {shape}. "
            f"{remedy}"
        )
    if sizes.fixed and None in shape:
        raise ValueError(
            f"{where}: {argument}: expected a fixed height and width, since the padding of the cells "
            f"depends on them, received {shape}. Write ({sizes.default}, {sizes.default}, 3)."
        )
    return shape


def _sources(tensor: Any) -> list[Any]:
    """Returns the tensors from `fk.Input` that a tensor is computed from, in the order of calls."""
    sources: dict[Node, Any] = {}
    seen: set[Node] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if current.node in seen:
            continue
        seen.add(current.node)
        if is_input(current):
            sources[current.node] = current
        # reversed, since a stack pops the last entry first
        stack.extend(reversed(current.node.inputs))
    return list(sources.values())

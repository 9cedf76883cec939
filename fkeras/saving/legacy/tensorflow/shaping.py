"""Converts TensorFlow functions to Keras 3: reshaping, joining, splitting, creation of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fkeras.saving.legacy.tensorflow.builder import MOST, Builder, Row
from fkeras.saving.legacy.tensorflow.folding import Arg, has_tensor, is_size, is_tensor, to_array


def same(b: Builder, x: Arg) -> Any:
    """Returns x without its mask: every TensorFlow function drops the mask."""
    return b("Copy", x) if is_tensor(x) else x


def convert(b: Builder, x: Arg, dtype: Arg = None) -> Any:
    """Returns x, cast if a dtype is given."""
    return same(b, x) if dtype is None else b("Cast", x, dtype=b.kind(dtype))


# -- sizes ----------------------------------------------------------------------------------------


def shape(b: Builder, x: Arg, out_type: Arg = None) -> Any:
    """Returns the sizes of the axes as a constant, which may contain symbolic sizes."""
    return to_array(list(b.dims(x)))


def size(b: Builder, x: Arg, out_type: Arg = None) -> Any:
    """Returns the number of elements."""
    return b("Prod", to_array([1, *b.dims(x)]))


def reshape(b: Builder, x: Arg, shape: Arg) -> Any:
    """Reshapes x."""
    # Keras's Reshape allows one unknown size, written as -1; more need the equations below.
    target = b.numbers(shape, "the shape")
    unknown_axes = [i for i, n in enumerate(target) if is_size(n) or n == -1]
    if len(unknown_axes) > 1:
        target = _resolve_unknown_size(b, x, target)
        unknown_axes = [i for i, n in enumerate(target) if is_size(n)]
    if len(unknown_axes) > 1:
        return _split_last(b, x, target)
    for axis in unknown_axes:
        target[axis] = -1
    return b("Reshape", x, newshape=target)


def _resolve_unknown_size(b: Builder, x: Arg, target: list[Any]) -> list[Any]:
    """Replaces -1 in the target by the size that keeps the number of elements."""
    if -1 not in target:
        return target
    element_count, known_product = (
        _product(b.dims(x)),
        _product([n for n in target if is_size(n) or n != -1]),
    )
    # JAX may fail to divide symbolic sizes: the error below then shows both shapes.
    try:
        inferred_size, remainder = divmod(element_count, known_product)
    except Exception:
        remainder, inferred_size = 1, -1
    if not (isinstance(remainder, int) and remainder == 0):
        raise b.error(
            f"expected a shape from which the size -1 can be inferred, received "
            f"{_format_sizes(target)} for a tensor of shape {_format_sizes(b.dims(x))}. Give "
            "keras.Input all sizes except the batch size, " + b.instead
        )
    return [inferred_size if not is_size(n) and n == -1 else n for n in target]


def _split_last(b: Builder, x: Arg, target: list[Any]) -> Any:
    """Joins and splits the axes after a common prefix of unknown sizes, by einops patterns."""
    dims = list(b.dims(x))
    prefix_length = 0
    while (
        prefix_length < min(len(dims), len(target)) and dims[prefix_length] == target[prefix_length]
    ):
        prefix_length += 1
    source_sizes, target_sizes = dims[prefix_length:], target[prefix_length:]
    if any(map(is_size, [*source_sizes, *target_sizes])) or len(dims) + len(target) > 20:
        raise b.error(
            f"expected at most one unknown size in the shape {_format_sizes(target)}, after the "
            f"leading axes that it shares with the tensor's shape {_format_sizes(dims)}. Give "
            "keras.Input all sizes except the batch size, " + b.instead
        )
    prefix = " ".join(f"k{i}" for i in range(prefix_length))
    if len(source_sizes) != 1:
        axis_names = " ".join(f"r{i}" for i in range(len(source_sizes)))
        x = b("Rearrange", x, f"{prefix} {axis_names} -> {prefix} ({axis_names})")
    if len(target_sizes) != 1:
        axis_names = " ".join(f"r{i}" for i in range(len(target_sizes)))
        lengths = {f"r{i}": n for i, n in enumerate(target_sizes)}
        x = b("Rearrange", x, f"{prefix} ({axis_names}) -> {prefix} {axis_names}", **lengths)
    return x


def _product(sizes: Iterable[Any]) -> Any:
    total: Any = 1
    for n in sizes:
        total = total * n
    return total


def _format_sizes(sizes: Iterable[Any]) -> str:
    return f"({', '.join(map(str, sizes))})"


def squeeze(b: Builder, x: Arg, axis: Arg = None) -> Any:
    """Removes axes of size 1."""
    axis = b.axes(axis)
    if isinstance(axis, list) and not axis:
        axis = None
    if axis is None:
        # Axes of unknown size stay: the rank must be known before the model runs.
        axis = [i for i, n in enumerate(b.dims(x)) if not is_size(n) and n == 1]
        if not axis:
            return same(b, x)
    return b("Squeeze", x, axis=axis)


def batch_flatten(b: Builder, x: Arg) -> Any:
    """Flattens all axes except the first."""
    return b("Reshape", x, newshape=[-1, _static_product(b, b.dims(x)[1:])])


def _static_product(b: Builder, sizes: Iterable[Any]) -> int:
    return _product(b.wholes(list(sizes), "sizes"))


# -- joining and taking apart ---------------------------------------------------------------------


def concat(b: Builder, values: Arg, axis: Arg) -> Any:
    """Concatenates tensors along an axis."""
    values = values if isinstance(values, list) else [values]
    axis = b.whole(axis, "an axis")
    return same(b, values[0]) if len(values) == 1 else b("Concatenate", values, axis=axis)


def stack(b: Builder, values: Arg, axis: Arg = 0) -> Any:
    """Stacks tensors along a new axis."""
    axis = b.whole(axis, "an axis")
    # Keras saves a list of one tensor as the tensor.
    if not isinstance(values, list):
        return b("ExpandDims", values, axis=axis)
    return b("Stack", values, axis=axis)


def unstack(b: Builder, x: Arg, num: Arg = None, axis: Arg = 0) -> Any:
    """Returns the slices along an axis as a list."""
    axis = b.whole(axis, "an axis")
    if not has_tensor(x):
        return b("Unstack", x, num=None, axis=axis)
    count = b.whole(num if num is not None else b.dims(x)[axis], "the number of slices")
    _check_count(b, count)
    return b("Unstack", x, num=count, axis=axis, outputs=count)


def _check_count(b: Builder, count: int) -> None:
    if not 0 < count < 10_000:
        raise b.error(f"expected 1 to 9999 parts, received {count}. The file is damaged.")


def split(b: Builder, x: Arg, num_or_size_splits: Arg, axis: Arg = 0, num: Arg = None) -> Any:
    """Splits x along an axis."""
    axis = b.whole(axis, "an axis")
    if not isinstance(num_or_size_splits, list | np.ndarray):
        count = b.whole(num_or_size_splits, "the number of parts")
        _check_count(b, count)
        return b("Split", x, indices_or_sections=count, axis=axis, outputs=count)
    sizes = b.wholes(num_or_size_splits, "the sizes of the parts")
    # The sum contains the -1, hence one less.
    if -1 in sizes:
        axis_size = b.whole(b.dims(x)[axis], "the size of the axis")
        sizes[sizes.index(-1)] = axis_size - sum(sizes) - 1
    if len(sizes) == 1:
        return [same(b, x)]
    # Keras takes the indices between the parts, TensorFlow their sizes.
    split_indices = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return b("Split", x, indices_or_sections=split_indices, axis=axis, outputs=len(sizes))


def tile(b: Builder, x: Arg, multiples: Arg) -> Any:
    """Repeats x along each axis."""
    counts = b.numbers(multiples, "multiples")
    # A constant tiled to the batch size cannot be folded: add it to a tensor of that size.
    if not has_tensor(x) and any(map(is_size, counts)):
        return _broadcast_batch(
            b, x, [n * d for n, d in zip(counts, to_array(x).shape, strict=True)]
        )
    return b("Tile", x, repeats=counts)


def repeat(b: Builder, x: Arg, repeats: Arg, axis: Arg = None) -> Any:
    """Repeats each element along an axis."""
    counts = b.wholes(repeats, "repeats")
    if len(counts) == 1:
        return b("Repeat", x, repeats=counts[0], axis=b.axes(axis))
    # The indices become a constant of the model: a few bytes must not demand gigabytes.
    if sum(counts) > MOST:
        raise b.error(f"expected at most {MOST} repeated elements, received {sum(counts)}.")
    return b("Take", x, np.repeat(np.arange(len(counts)), counts), axis=b.whole(axis, "an axis"))


def pad(b: Builder, x: Arg, paddings: Arg, mode: Arg = "CONSTANT", constant_values: Arg = 0) -> Any:
    """Pads each axis at both ends."""
    pairs = np.reshape(b.wholes(paddings, "paddings"), (-1, 2)).tolist()
    keras_mode = mode.lower() if isinstance(mode, str) else mode
    if keras_mode not in ("constant", "reflect", "symmetric"):
        raise b.error(f"expected the mode CONSTANT, REFLECT or SYMMETRIC, received {mode!r:.40}.")
    # Keras accepts `constant_values` only in constant mode, where the default is 0.
    if keras_mode != "constant" or (
        isinstance(constant_values, int | float) and constant_values == 0
    ):
        return b("Pad", x, pad_width=pairs, mode=keras_mode)
    return b("Pad", x, pad_width=pairs, mode=keras_mode, constant_values=constant_values)


def where(b: Builder, condition: Arg, x: Arg = None, y: Arg = None) -> Any:
    """Returns elements of x where the condition is true, and of y elsewhere."""
    if x is None or y is None:
        raise b.error(
            "expected x and y, received none: without them the shape of the result depends on "
            "values, and JAX needs static shapes. Save the model with tf.where(condition, x, y)."
        )
    return b("Where", condition, x, y)


# -- new tensors ----------------------------------------------------------------------------------


def fill(b: Builder, dims: Arg, value: Arg) -> Any:
    """Returns an array filled with a constant."""
    if has_tensor(value):
        raise b.error(
            "expected a constant as value, received a tensor. Multiply ones by it, " + b.instead
        )
    return _filled(b, dims, value, b.dtype(value))


def _filled(b: Builder, shape: Arg, value: Arg, dtype: str) -> Any:
    sizes = b.numbers(shape, "the shape")
    if not any(map(is_size, sizes)):
        return b("Full", sizes, value, dtype)
    # Only the known sizes make a constant; `_broadcast_batch` adds the batch when the model runs.
    known_sizes = [1 if is_size(n) else n for n in sizes]
    return _broadcast_batch(b, b("Full", known_sizes, value, dtype), sizes)


def broadcast_to(b: Builder, x: Arg, shape: Arg) -> Any:
    """Broadcasts x to a shape."""
    sizes = b.numbers(shape, "the shape")
    if any(map(is_size, sizes)):
        return _broadcast_batch(b, x, sizes)
    return b("BroadcastTo", x, shape=sizes)


def _broadcast_batch(b: Builder, x: Arg, sizes: list[Any]) -> Any:
    """Broadcasts x to sizes with an unknown batch: adds x to zeros taken from an input."""
    input_tensor = next((t for t, dims in b.sizes.inputs() if dims and dims[0] == sizes[0]), None)
    if input_tensor is None or any(map(is_size, sizes[1:])):
        raise b.error(
            "expected a shape of known sizes, apart from the batch size on the first axis, received "
            f"{_format_sizes(sizes)}. Give keras.Input the other sizes, " + b.instead
        )
    # One element of each sample: a vector of the batch's size.
    index = [slice(None)] + [0] * (len(b.dims(input_tensor)) - 1)
    batch_vector = b("ZerosLike", b("GetItem", input_tensor, index))
    batch_zeros = b("Reshape", batch_vector, newshape=[-1] + [1] * (len(sizes) - 1))
    dtype = b.dtype(x)
    batch_zeros = (
        batch_zeros if b.dtype(batch_zeros) == dtype else b("Cast", batch_zeros, dtype=dtype)
    )
    if dtype == "bool":
        return b("LogicalOr", batch_zeros, x)
    inner_dims = list(b.dims(x))[-(len(sizes) - 1) :] if len(sizes) > 1 else []
    # The zeros only broadcast the batch axis: the other axes are tiled to their known sizes.
    if inner_dims != sizes[1:]:
        padded_dims = [1] * (len(sizes) - len(b.dims(x))) + list(b.dims(x))
        counts = [1] + [n // m for n, m in zip(sizes[1:], padded_dims[1:], strict=True)]
        x = b("Tile", b("Reshape", x, newshape=padded_dims), repeats=counts)
    return b("Add", batch_zeros, x)


def one_hot(
    b: Builder,
    indices: Arg,
    depth: Arg,
    on_value: Arg = None,
    off_value: Arg = None,
    axis: Arg = -1,
    dtype: Arg = None,
) -> Any:
    """Returns one-hot vectors, with other values than 1 and 0 if given."""
    count, checked_axis = b.whole(depth, "depth"), b.whole(axis, "an axis")
    explicit_values = [v for v in (on_value, off_value) if v is not None]
    dtype_name = (
        b.kind(dtype)
        if dtype is not None
        else b.dtype(explicit_values[0])
        if explicit_values
        else "float32"
    )
    if not explicit_values or (on_value in (None, 1) and off_value in (None, 0)):
        return b("OneHot", indices, num_classes=count, axis=checked_axis, dtype=dtype_name)
    is_hot = b("OneHot", indices, num_classes=count, axis=checked_axis, dtype="bool")
    return b("Where", is_hot, 1 if on_value is None else on_value, off_value or 0)


def sequence_mask(b: Builder, lengths: Arg, maxlen: Arg = None, dtype: Arg = "bool") -> Any:
    """Returns a mask that is true at positions before each length."""
    if maxlen is None:
        raise b.error("expected maxlen, received None. Pass maxlen: the shape must be static.")
    # TensorFlow's default for `maxlen` is the longest length, a shape that JAX cannot compile.
    positions = b("Arange", b.whole(maxlen, "maxlen"))
    mask = b("Greater", b("ExpandDims", lengths, axis=-1), positions)
    return mask if dtype == "bool" else b("Cast", mask, dtype=b.kind(dtype))


def like(kind: str) -> Any:
    """Returns the function for an array of the shape of x, by the operation of Keras."""

    def make(b: Builder, x: Arg, dtype: Arg = None) -> Any:
        y = b(kind, x)
        return y if dtype is None else b("Cast", y, dtype=b.kind(dtype))

    return make


def filled(number: int) -> Any:
    """Returns the function for an array of one number."""
    return lambda b, shape, dtype="float32": _filled(b, shape, number, b.kind(dtype))


_LIKE = "input dtype? optimize~ layout~"
ROWS: tuple[Row, ...] = (
    ("identity", "input", same, "Identity Snapshot"),
    ("convert_to_tensor", "value dtype? dtype_hint~ preferred_dtype~", convert),
    ("constant", "value dtype?", convert),
    ("ensure_shape", "x shape?", lambda b, x, shape=None: same(b, x)),
    ("shape", "input out_type? optimize~", shape, "Shape"),
    ("size", "input out_type?", size, "Size"),
    ("rank", "input", lambda b, x: len(b.dims(x)), "Rank"),
    ("reshape", "tensor shape", reshape, "Reshape"),
    ("squeeze", "input axis?", squeeze),
    ("keras.backend.batch_flatten", "x", batch_flatten),
    ("concat", "values axis", concat),
    ("stack", "values axis?", stack),
    ("unstack", "value num? axis?", unstack),
    ("split", "value num_or_size_splits axis? num?", split),
    ("tile", "input multiples", tile, "Tile"),
    ("repeat", "input repeats axis?", repeat),
    ("pad", "tensor paddings mode? constant_values?", pad, "Pad"),
    ("where", "condition x? y?", where),
    ("zeros_like", _LIKE, like("ZerosLike"), "ZerosLike"),
    ("ones_like", _LIKE, like("OnesLike"), "OnesLike"),
    ("zeros", "shape dtype? layout~", filled(0)),
    ("ones", "shape dtype? layout~", filled(1)),
    ("fill", "dims value layout~", fill, "Fill"),
    ("broadcast_to", "input shape", broadcast_to, "BroadcastTo"),
    ("one_hot", "indices depth on_value? off_value? axis? dtype?", one_hot),
    ("sequence_mask", "lengths maxlen? dtype?", sequence_mask),
)

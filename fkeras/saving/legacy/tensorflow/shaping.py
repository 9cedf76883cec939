"""Converts TensorFlow functions to Keras 3: reshaping, joining, splitting, creation of tensors."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.saving.legacy.tensorflow.builder import MOST, Builder
from fkeras.saving.legacy.tensorflow.folding import has_tensor, is_size, is_tensor, to_array


def same(b: Builder, x: Any) -> Any:
    """Returns x without its mask: every TensorFlow function drops the mask."""
    return b("Copy", x) if is_tensor(x) else x


def cast(b: Builder, x: Any, dtype: Any) -> Any:
    """Returns x in another dtype."""
    return b("Cast", x, dtype=b.kind(dtype))


def convert(b: Builder, x: Any, dtype: Any = None) -> Any:
    """Returns x, cast if a dtype is given."""
    return same(b, x) if dtype is None else cast(b, x, dtype)


def checked(b: Builder, x: Any, shape: Any = None) -> Any:
    """Returns x, without a check of the shape."""
    return same(b, x)


# -- sizes ----------------------------------------------------------------------------------------


def shape(b: Builder, x: Any, out_type: Any = None) -> Any:
    """Returns the sizes of the axes as a constant, which may contain symbolic sizes."""
    return to_array(list(b.dims(x)))


def size(b: Builder, x: Any, out_type: Any = None) -> Any:
    """Returns the number of elements."""
    return b("Prod", to_array([1, *b.dims(x)]))


def rank(b: Builder, x: Any) -> Any:
    """Returns the number of axes."""
    return len(b.dims(x))


def arange(b: Builder, start: Any, limit: Any = None, delta: Any = None, dtype: Any = None) -> Any:
    """Returns evenly spaced numbers."""
    kind = None if dtype is None else b.kind(dtype)
    return b("Arange", start, limit, delta, kind)


def reshape(b: Builder, x: Any, shape: Any) -> Any:
    """Reshapes x."""
    # Keras's Reshape allows one unknown size, written as -1; more need the equations below.
    target = b.numbers(shape, "the shape")
    open_places = [i for i, n in enumerate(target) if is_size(n) or n == -1]
    if len(open_places) > 1:
        target = _settled(b, x, target)
        open_places = [i for i, n in enumerate(target) if is_size(n)]
    if len(open_places) > 1:
        return _split_last(b, x, target)
    for place in open_places:
        target[place] = -1
    return b("Reshape", x, newshape=target)


def _settled(b: Builder, x: Any, target: list[Any]) -> list[Any]:
    """Replaces -1 in the target by the size that keeps the number of elements."""
    if -1 not in target:
        return target
    total, known = _product(b.dims(x)), _product([n for n in target if is_size(n) or n != -1])
    # JAX may fail to divide symbolic sizes: the error below then shows both shapes.
    try:
        rest, left = divmod(total, known)
    except Exception:
        left, rest = 1, -1
    if not (isinstance(left, int) and left == 0):
        raise b.refuse(
            f"cannot tell the size that -1 stands for in {_shown(target)} of a tensor of shape "
            f"{_shown(b.dims(x))}. Give keras.Input all sizes but the batch's, " + b.instead
        )
    return [rest if not is_size(n) and n == -1 else n for n in target]


def _split_last(b: Builder, x: Any, target: list[Any]) -> Any:
    """Joins and splits the axes after a common prefix of unknown sizes, by einops patterns."""
    dims = list(b.dims(x))
    kept = 0
    while kept < min(len(dims), len(target)) and dims[kept] == target[kept]:
        kept += 1
    rest, wanted = dims[kept:], target[kept:]
    if any(map(is_size, [*rest, *wanted])) or len(dims) + len(target) > 20:
        raise b.refuse(
            f"expected at most one size of {_shown(target)} to be known only when the model runs, "
            f"but for axes that stay where they are in {_shown(dims)}. Give keras.Input all sizes "
            "but the batch's, " + b.instead
        )
    first = " ".join(f"k{i}" for i in range(kept))
    if len(rest) != 1:
        many = " ".join(f"r{i}" for i in range(len(rest)))
        x = b("Rearrange", x, f"{first} {many} -> {first} ({many})")
    if len(wanted) != 1:
        many = " ".join(f"r{i}" for i in range(len(wanted)))
        lengths = {f"r{i}": n for i, n in enumerate(wanted)}
        x = b("Rearrange", x, f"{first} ({many}) -> {first} {many}", **lengths)
    return x


def _product(sizes: Any) -> Any:
    total: Any = 1
    for n in sizes:
        total = total * n
    return total


def _shown(sizes: Any) -> str:
    return f"({', '.join(map(str, sizes))})"


def squeeze(b: Builder, x: Any, axis: Any = None) -> Any:
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


def expand_dims(b: Builder, x: Any, axis: Any) -> Any:
    """Inserts an axis of size 1."""
    return b("ExpandDims", x, axis=b.whole(axis, "an axis"))


def batch_flatten(b: Builder, x: Any) -> Any:
    """Flattens all axes except the first."""
    return b("Reshape", x, newshape=[-1, _static(b, b.dims(x)[1:])])


def _static(b: Builder, sizes: Any) -> int:
    return _product(b.wholes(list(sizes), "sizes"))


# -- joining and taking apart ---------------------------------------------------------------------


def concat(b: Builder, values: Any, axis: Any) -> Any:
    """Concatenates tensors along an axis."""
    values = values if isinstance(values, list) else [values]
    axis = b.whole(axis, "an axis")
    return same(b, values[0]) if len(values) == 1 else b("Concatenate", values, axis=axis)


def stack(b: Builder, values: Any, axis: Any = 0) -> Any:
    """Stacks tensors along a new axis."""
    axis = b.whole(axis, "an axis")
    # Keras saves a list of one tensor as the tensor.
    if not isinstance(values, list):
        return b("ExpandDims", values, axis=axis)
    return b("Stack", values, axis=axis)


def unstack(b: Builder, x: Any, num: Any = None, axis: Any = 0) -> Any:
    """Returns the slices along an axis as a list."""
    axis = b.whole(axis, "an axis")
    if not has_tensor(x):
        return b("Unstack", x, num=None, axis=axis)
    count = b.whole(num if num is not None else b.dims(x)[axis], "the number of slices")
    _countable(b, count)
    return b("Unstack", x, num=count, axis=axis, outputs=count)


def _countable(b: Builder, count: int) -> None:
    if not 0 < count < 10_000:
        raise b.refuse(f"expected 1 to 9999 parts, received {count}. The file is damaged.")


def split(b: Builder, x: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None) -> Any:
    """Splits x along an axis."""
    axis = b.whole(axis, "an axis")
    if not isinstance(num_or_size_splits, list | np.ndarray):
        count = b.whole(num_or_size_splits, "the number of parts")
        _countable(b, count)
        return b("Split", x, indices_or_sections=count, axis=axis, outputs=count)
    sizes = b.wholes(num_or_size_splits, "the sizes of the parts")
    # The sum contains the -1, hence one less.
    if -1 in sizes:
        whole = b.whole(b.dims(x)[axis], "the size of the axis")
        sizes[sizes.index(-1)] = whole - sum(sizes) - 1
    if len(sizes) == 1:
        return [same(b, x)]
    # Keras takes the indices between the parts, TensorFlow their sizes.
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return b("Split", x, indices_or_sections=ends, axis=axis, outputs=len(sizes))


def tile(b: Builder, x: Any, multiples: Any) -> Any:
    """Repeats x along each axis."""
    counts = b.numbers(multiples, "multiples")
    # A constant tiled to the batch size cannot be folded: add it to a tensor of that size.
    if not has_tensor(x) and any(map(is_size, counts)):
        return _spread(b, x, [n * d for n, d in zip(counts, to_array(x).shape, strict=True)])
    return b("Tile", x, repeats=counts)


def repeat(b: Builder, x: Any, repeats: Any, axis: Any = None) -> Any:
    """Repeats each element along an axis."""
    counts = b.wholes(repeats, "repeats")
    if len(counts) == 1:
        return b("Repeat", x, repeats=counts[0], axis=b.axes(axis))
    # The indices become a constant of the model: a few bytes must not demand gigabytes.
    if sum(counts) > MOST:
        raise b.refuse(f"repeats elements {sum(counts)} times, expected {MOST} times at most.")
    return b("Take", x, np.repeat(np.arange(len(counts)), counts), axis=b.whole(axis, "an axis"))


def pad(b: Builder, x: Any, paddings: Any, mode: Any = "CONSTANT", constant_values: Any = 0) -> Any:
    """Pads each axis at both ends."""
    pairs = np.reshape(b.wholes(paddings, "paddings"), (-1, 2)).tolist()
    word = mode.lower() if isinstance(mode, str) else mode
    if word not in ("constant", "reflect", "symmetric"):
        raise b.refuse(f"expected the mode CONSTANT, REFLECT or SYMMETRIC, received {mode!r:.40}.")
    # Keras accepts `constant_values` only in constant mode, where the default is 0.
    if word != "constant" or (isinstance(constant_values, int | float) and constant_values == 0):
        return b("Pad", x, pad_width=pairs, mode=word)
    return b("Pad", x, pad_width=pairs, mode=word, constant_values=constant_values)


def where(b: Builder, condition: Any, x: Any = None, y: Any = None) -> Any:
    """Returns elements of x where the condition is true, and of y elsewhere."""
    if x is None or y is None:
        raise b.refuse(
            "without x and y the size of its result depends on the numbers, which arrays here "
            "cannot have. Save the model with tf.where(condition, x, y)."
        )
    return b("Where", condition, x, y)


# -- new tensors ----------------------------------------------------------------------------------


def zeros_like(b: Builder, x: Any, dtype: Any = None) -> Any:
    """Returns zeros with the shape of x."""
    return _like(b, "ZerosLike", x, dtype)


def ones_like(b: Builder, x: Any, dtype: Any = None) -> Any:
    """Returns ones with the shape of x."""
    return _like(b, "OnesLike", x, dtype)


def _like(b: Builder, kind: str, x: Any, dtype: Any) -> Any:
    y = b(kind, x)
    return y if dtype is None else cast(b, y, dtype)


def zeros(b: Builder, shape: Any, dtype: Any = "float32") -> Any:
    """Returns zeros."""
    return _filled(b, shape, 0, b.kind(dtype))


def ones(b: Builder, shape: Any, dtype: Any = "float32") -> Any:
    """Returns ones."""
    return _filled(b, shape, 1, b.kind(dtype))


def fill(b: Builder, dims: Any, value: Any) -> Any:
    """Returns an array filled with a constant."""
    if has_tensor(value):
        raise b.refuse(
            "expected a constant as value, received a tensor. Multiply ones by it, " + b.instead
        )
    return _filled(b, dims, value, b.dtype(value))


def _filled(b: Builder, shape: Any, value: Any, dtype: str) -> Any:
    sizes = b.numbers(shape, "the shape")
    if not any(map(is_size, sizes)):
        return b("Full", sizes, value, dtype)
    # Only the known sizes make a constant; `_spread` adds the batch when the model runs.
    small = [1 if is_size(n) else n for n in sizes]
    return _spread(b, b("Full", small, value, dtype), sizes)


def broadcast_to(b: Builder, x: Any, shape: Any) -> Any:
    """Broadcasts x to a shape."""
    sizes = b.numbers(shape, "the shape")
    if any(map(is_size, sizes)):
        return _spread(b, x, sizes)
    return b("BroadcastTo", x, shape=sizes)


def _spread(b: Builder, x: Any, sizes: list[Any]) -> Any:
    """Broadcasts x to sizes with an unknown batch: adds x to zeros taken from an input."""
    source = next((t for t, dims in b.sizes.inputs() if dims and dims[0] == sizes[0]), None)
    if source is None or any(map(is_size, sizes[1:])):
        raise b.refuse(
            f"makes a tensor of sizes {_shown(sizes)}, of which only the first, if it is the batch's, "
            "may be known only when the model runs. Give keras.Input the other sizes, " + b.instead
        )
    # One element of each sample: a vector of the batch's size.
    first = [slice(None)] + [0] * (len(b.dims(source)) - 1)
    column = b("ZerosLike", b("GetItem", source, first))
    zero = b("Reshape", column, newshape=[-1] + [1] * (len(sizes) - 1))
    dtype = b.dtype(x)
    zero = zero if b.dtype(zero) == dtype else b("Cast", zero, dtype=dtype)
    if dtype == "bool":
        return b("LogicalOr", zero, x)
    inner = list(b.dims(x))[-(len(sizes) - 1) :] if len(sizes) > 1 else []
    # The zeros only broadcast the batch axis: the other axes are tiled to their known sizes.
    if inner != sizes[1:]:
        lead = [1] * (len(sizes) - len(b.dims(x))) + list(b.dims(x))
        counts = [1] + [n // m for n, m in zip(sizes[1:], lead[1:], strict=True)]
        x = b("Tile", b("Reshape", x, newshape=lead), repeats=counts)
    return b("Add", zero, x)


def one_hot(
    b: Builder,
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: Any = -1,
    dtype: Any = None,
) -> Any:
    """Returns one-hot vectors, with other values than 1 and 0 if given."""
    count, place = b.whole(depth, "depth"), b.whole(axis, "an axis")
    given = [v for v in (on_value, off_value) if v is not None]
    kind = b.kind(dtype) if dtype is not None else b.dtype(given[0]) if given else "float32"
    if not given or (on_value in (None, 1) and off_value in (None, 0)):
        return b("OneHot", indices, num_classes=count, axis=place, dtype=kind)
    hot = b("OneHot", indices, num_classes=count, axis=place, dtype="bool")
    return b("Where", hot, 1 if on_value is None else on_value, off_value or 0)


def sequence_mask(b: Builder, lengths: Any, maxlen: Any = None, dtype: Any = "bool") -> Any:
    """Returns a mask that is true at positions before each length."""
    if maxlen is None:
        raise b.refuse("expected maxlen, received none. Give it, so that the shape is known.")
    # TensorFlow's default for `maxlen` is the longest length, a shape that JAX cannot compile.
    places = b("Arange", b.whole(maxlen, "maxlen"))
    mask = b("Greater", b("ExpandDims", lengths, axis=-1), places)
    return mask if dtype == "bool" else cast(b, mask, dtype)


ROWS: Mapping[str, tuple[str, Any]] = types.MappingProxyType(
    {
        "identity": ("input", same),
        "cast": ("x dtype", cast),
        "saturate_cast": (
            "value dtype",
            lambda b, x, dtype: b("SaturateCast", x, dtype=b.kind(dtype)),
        ),
        "convert_to_tensor": ("value dtype? dtype_hint~ preferred_dtype~", convert),
        "constant": ("value dtype?", convert),
        "ensure_shape": ("x shape?", checked),
        "shape": ("input out_type? optimize~", shape),
        "size": ("input out_type?", size),
        "rank": ("input", rank),
        "range": ("start limit? delta? dtype?", arange),
        "reshape": ("tensor shape", reshape),
        "squeeze": ("input axis?", squeeze),
        "expand_dims": ("input axis", expand_dims),
        "keras.backend.batch_flatten": ("x", batch_flatten),
        "concat": ("values axis", concat),
        "stack": ("values axis?", stack),
        "unstack": ("value num? axis?", unstack),
        "split": ("value num_or_size_splits axis? num?", split),
        "tile": ("input multiples", tile),
        "repeat": ("input repeats axis?", repeat),
        "pad": ("tensor paddings mode? constant_values?", pad),
        "where": ("condition x? y?", where),
        "zeros_like": ("input dtype? optimize~ layout~", zeros_like),
        "ones_like": ("input dtype? optimize~ layout~", ones_like),
        "zeros": ("shape dtype? layout~", zeros),
        "ones": ("shape dtype? layout~", ones),
        "fill": ("dims value layout~", fill),
        "broadcast_to": ("input shape", broadcast_to),
        "one_hot": ("indices depth on_value? off_value? axis? dtype?", one_hot),
        "sequence_mask": ("lengths maxlen? dtype?", sequence_mask),
    }
)

"""Converts TensorFlow functions to Keras 3: slices, gathering by index, images, windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from fkeras.saving.legacy.tensorflow.builder import Builder, Row
from fkeras.saving.legacy.tensorflow.folding import Arg, has_tensor, is_size, is_tensor, to_array

# -- slices ---------------------------------------------------------------------------------------


def getitem(b: Builder, x: Arg, slice_spec: Arg) -> Any:
    """Returns x[...] with slices, indices, new axes and the ellipsis in TensorFlow's form."""
    entries = slice_spec if isinstance(slice_spec, list) else [slice_spec]
    if not is_tensor(x) and not has_tensor(x):
        return b("GetItem", x, [_entry(b, e, None) for e in entries])
    ellipsis_index = next((i for i, e in enumerate(entries) if _is_dots(e)), len(entries))
    # A new axis consumes no axis of x; after the ellipsis axes count from the end.
    consumes_axis = [e is not None for e in entries]
    indices = []
    for i, entry in enumerate(entries):
        axis = sum(consumes_axis[:i]) if i <= ellipsis_index else -sum(consumes_axis[i:])
        if _has_sizes(entry):
            entry = _offsets_from_end(b, entry, b.dims(x)[axis])
        indices.append(_entry(b, entry, x))
    return b("GetItem", x, indices)


def _is_dots(entry: Arg) -> bool:
    return isinstance(entry, Mapping) and entry.get("class_name") == "__ellipsis__"


def _has_sizes(entry: Arg) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(entry, Mapping) and any(map(is_size, entry.values()))


def _offsets_from_end(b: Builder, entry: Mapping, size: Arg) -> dict[str, Any]:
    """Rewrites symbolic ends of a slice as offsets from the end of the axis."""
    slice_ends = dict(entry)
    for key in ("start", "stop"):
        if is_size(entry.get(key)):
            distance = entry[key] - size
            if not isinstance(distance, int):
                continue
            # `x[:n - 1]` with the symbolic size n is `x[:-1]`: offsets need no size when the model
            # runs. Ends at or past the axis select all (stop) or nothing (a start past any end).
            slice_ends[key] = distance if distance < 0 else None if key == "stop" else 1 << 30
    return slice_ends


def _entry(b: Builder, entry: Arg, x: Arg) -> Any:
    if _is_dots(entry):
        return Ellipsis
    if is_tensor(entry):
        dims, dtype = b.dims(entry), b.dtype(entry)
        if dtype == "bool":
            raise b.error(
                "expected an index, received a boolean mask: the shape of the result depends on "
                "values, and JAX needs static shapes. Save the model with tf.where(mask, x, 0.0)."
            )
        # TensorFlow also takes only scalars as indices.
        if dims:
            raise b.error(f"expected a scalar index, received a tensor with {len(dims)} axes.")
        return entry
    if isinstance(entry, Mapping):
        if set(entry) != {"start", "stop", "step"}:
            raise b.error(
                f"expected a slice, received an object with {', '.join(map(repr, entry))}. The file "
                "is damaged."
            )
        parts = [entry[k] for k in ("start", "stop", "step")]
        return slice(*(None if p is None else b.whole(p, "an end of a slice") for p in parts))
    return None if entry is None else b.whole(entry, "an index")


def slice_(b: Builder, x: Arg, begin: Arg, size: Arg) -> Any:
    """Returns `size` elements of each axis from `begin`; -1 means all remaining elements."""
    starts, counts = b.numbers(begin, "begin"), b.numbers(size, "size")
    entries = []
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        # A whole axis of symbolic size needs no number.
        if is_size(count) and isinstance(start, int) and start == 0 and count == b.dims(x)[axis]:
            count = -1
        start, count = b.whole(start, "begin"), b.whole(count, "size")
        entries.append(slice(start, None if count == -1 else start + count))
    return b("GetItem", x, entries)


def strided_slice(
    b: Builder,
    x: Arg,
    begin: Arg,
    end: Arg,
    strides: Arg = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:
    """Returns x[...] from lists of starts, ends and steps; bit i of a mask refers to entry i."""
    starts, stops = b.numbers(begin, "begin"), b.numbers(end, "end")
    steps = [1] * len(starts) if strides is None else b.numbers(strides, "strides")
    spec: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        bit = 1 << i
        # TensorFlow's priority of the masks: ellipsis, new axis, shrink, then begin and end.
        if ellipsis_mask & bit:
            spec.append({"class_name": "__ellipsis__"})
        elif new_axis_mask & bit:
            spec.append(None)
        elif shrink_axis_mask & bit:
            spec.append(start)
        else:
            first = None if begin_mask & bit else start
            spec.append({"start": first, "stop": None if end_mask & bit else stop, "step": step})
    return getitem(b, x, spec)


# -- elements at indices --------------------------------------------------------------------------


def gather(b: Builder, x: Arg, indices: Arg, axis: Arg = None, batch_dims: Arg = 0) -> Any:
    """Returns elements at indices along an axis, with separate indices for each batch entry."""
    batch = b.whole(batch_dims, "batch_dims")
    # TensorFlow's default axis follows the batch axes.
    checked_axis = batch if axis is None else b.whole(axis, "an axis")
    if batch == 0:
        return b("Take", x, indices, axis=checked_axis)
    dims, index_dims = b.dims(x), b.dims(indices)
    batch = batch + len(index_dims) if batch < 0 else batch
    checked_axis = checked_axis + len(dims) if checked_axis < 0 else checked_axis
    if checked_axis != batch or len(index_dims) - batch > 1:
        raise b.error(
            "expected axis=batch_dims and at most one further axis of the indices, received "
            f"axis={checked_axis}, batch_dims={batch} and indices with {len(index_dims)} axes. "
            "Flatten the indices, " + b.instead
        )
    single = len(index_dims) == batch
    indices = b("ExpandDims", indices, axis=-1) if single else indices
    # TakeAlongAxis needs the rank of x; size 1 broadcasts over the axes after the index.
    for _ in range(len(dims) - batch - 1):
        indices = b("ExpandDims", indices, axis=-1)
    elements = b("TakeAlongAxis", x, indices, axis=batch)
    return b("Squeeze", elements, axis=batch) if single else elements


def gather_nd(b: Builder, x: Arg, indices: Arg, batch_dims: Arg = 0) -> Any:
    """Returns elements at index tuples, which are on the last axis of `indices`."""
    if b.whole(batch_dims, "batch_dims") != 0:
        raise b.error("expected batch_dims=0. Use tf.gather with batch_dims, " + b.instead)
    count = b.whole(b.dims(indices)[-1], "the number of indices")
    if not has_tensor(indices):
        table = to_array(b.plain(indices))
        return b("GetItem", x, [table[..., i] for i in range(count)])
    return b("GetItem", x, [b("GetItem", indices, [Ellipsis, i]) for i in range(count)])


def embedding_lookup(b: Builder, params: Arg, ids: Arg, max_norm: Arg = None) -> Any:
    """Returns rows of a table at indices."""
    if max_norm is not None:
        raise b.error("max_norm is not supported. Use keras.layers.Embedding, " + b.instead)
    table = params[0] if isinstance(params, list) and has_tensor(params) else params
    return b("Take", table, ids, axis=0)


# -- images and windows ---------------------------------------------------------------------------


def resize(
    b: Builder,
    images: Arg,
    size: Arg,
    method: Arg = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> Any:
    """Resizes images."""
    # Without antialias, TensorFlow's cubic method reads its weights from a rounded table, which
    # Keras 3's resize does not reproduce.
    methods = ("bilinear", "nearest", "lanczos3", "lanczos5", *(["bicubic"] if antialias else []))
    if preserve_aspect_ratio or method not in methods:
        raise b.error(
            f"expected the method {', '.join(methods)} without preserve_aspect_ratio, received "
            f"{method!r:.40}. Use keras.layers.Resizing, " + b.instead
        )
    # TensorFlow interpolates integers in float32 and returns float32.
    if method != "nearest" and not b.dtype(images).startswith(("float", "bfloat")):
        images = b("Cast", images, dtype="float32")
    return b(
        "Resize",
        images,
        size=b.wholes(size, "the size"),
        interpolation=method,
        # TensorFlow ignores `antialias` for the nearest neighbor.
        antialias=bool(antialias) and method != "nearest",
        data_format="channels_last",
    )


def standardized(b: Builder, image: Arg) -> Any:
    """Scales each image to mean 0 and variance 1."""
    axes = [-1, -2, -3]
    count = math.prod(b.wholes(list(b.dims(image)[-3:]), "the sizes of the images"))
    deviation = b("Std", image, axis=axes, keepdims=True)
    # TensorFlow's lower bound for the deviation, in float32: uniform images become 0, not NaN.
    lower = float(np.float32(1.0) / np.sqrt(np.float32(max(count, 1))))
    centered = b("Subtract", image, b("Mean", image, axis=axes, keepdims=True))
    return b("TrueDivide", centered, b("Maximum", deviation, lower))


def _window(b: Builder, value: Arg, rank: int, what: str) -> list[int]:
    """Expands a window size: one number, one for each image axis, or one for every axis of x."""
    sizes = b.wholes(value, what)
    # Sizes for the batch and channel axes must be 1 and carry no information.
    if len(sizes) == rank + 2 and sizes[0] == sizes[-1] == 1:
        sizes = sizes[1:-1]
    sizes = sizes * rank if len(sizes) == 1 else sizes
    if len(sizes) != rank:
        raise b.error(f"expected {rank} numbers as {what}, received {sizes!r:.60}.")
    return sizes


def _collapse_equal(sizes: list[int]) -> int | list[int]:
    """Returns one number for equal sizes, the only form in which Keras 3 reloads its pooling."""
    return sizes[0] if len(set(sizes)) == 1 else sizes


def _options(b: Builder, padding: str, data_format: str | None) -> dict[str, Any]:
    if padding not in ("SAME", "VALID"):
        raise b.error(f"expected the padding SAME or VALID, received {padding!r:.40}. Use tf.pad.")
    if isinstance(data_format, str) and data_format.startswith("NC"):
        raise b.error(
            f"expected channels last, received {data_format!r:.20}. Transpose the tensor."
        )
    return {"padding": padding.lower(), "data_format": "channels_last"}


def pooling(kind: str, rank: int | None) -> Any:
    """Returns the function for the maximum or the mean of each window."""

    def make(
        b: Builder, x: Arg, ksize: Arg, strides: Arg, padding: str, data_format: str | None = None
    ) -> Any:
        axes = len(b.dims(x)) - 2 if rank is None else rank
        options = _options(b, padding, data_format)
        size = _collapse_equal(_window(b, ksize, axes, "ksize"))
        step = _collapse_equal(_window(b, strides, axes, "strides"))
        return b(kind, x, pool_size=size, strides=step, **options)

    return make


def convolution(kind: str, rank: int) -> Any:
    """Returns the function that convolves x with a kernel that the file holds as a constant."""

    def make(
        b: Builder,
        x: Arg,
        filter: Arg,
        strides: Arg,
        padding: str,
        data_format: str | None = None,
        dilations: Arg = None,
        rate: Arg = None,
    ) -> Any:
        dilation_option = dilations if dilations is not None else rate
        dilation = (
            [1] * rank
            if dilation_option is None
            else _window(b, dilation_option, rank, "dilations")
        )
        options = _options(b, padding, data_format)
        step = _window(b, strides, rank, "strides")
        return b(kind, x, filter, strides=step, dilation_rate=dilation, **options)

    return make


def blocks(kind: str) -> Any:
    """Returns the function that rearranges channels into blocks of pixels, or blocks into channels."""

    def make(b: Builder, x: Arg, block_size: Arg, data_format: str = "NHWC") -> Any:
        data_format = _options(b, "SAME", data_format)["data_format"]
        return b(kind, x, block_size=b.whole(block_size, "a size"), data_format=data_format)

    return make


_MASKS = "begin_mask? end_mask? ellipsis_mask? new_axis_mask? shrink_axis_mask?"
_POOLED = "input ksize strides padding data_format?"
_CONVOLVED = "input filter strides padding data_format? dilations? use_cudnn_on_gpu~"
ROWS: tuple[Row, ...] = (
    ("getitem", "tensor slice_spec", getitem),
    ("slice", "input_ begin size", slice_, "Slice"),
    ("strided_slice", f"input_ begin end strides? {_MASKS}", strided_slice),
    ("gather", "params indices axis? batch_dims? validate_indices~", gather),
    ("gather_nd", "params indices batch_dims?", gather_nd, "GatherNd"),
    (
        "embedding_lookup",
        "params ids max_norm? partition_strategy~ validate_indices~",
        embedding_lookup,
    ),
    ("image.resize", "images size method? preserve_aspect_ratio? antialias?", resize),
    ("image.per_image_standardization", "image", standardized),
    ("max_pool", _POOLED, pooling("MaxPool", None)),
    ("max_pool1d", _POOLED, pooling("MaxPool", 1)),
    ("max_pool2d", _POOLED, pooling("MaxPool", 2)),
    ("max_pool3d", _POOLED, pooling("MaxPool", 3)),
    ("avg_pool", _POOLED, pooling("AveragePool", None)),
    ("avg_pool1d", _POOLED, pooling("AveragePool", 1)),
    ("avg_pool2d", _POOLED, pooling("AveragePool", 2)),
    ("avg_pool3d", _POOLED, pooling("AveragePool", 3)),
    ("conv1d", _CONVOLVED, convolution("Conv", 1)),
    ("conv2d", _CONVOLVED, convolution("Conv", 2)),
    ("conv3d", _CONVOLVED, convolution("Conv", 3)),
    ("depthwise_conv2d", f"{_CONVOLVED} rate?", convolution("DepthwiseConv", 2)),
    ("depth_to_space", "input block_size data_format?", blocks("DepthToSpace")),
    ("space_to_depth", "input block_size data_format?", blocks("SpaceToDepth")),
)

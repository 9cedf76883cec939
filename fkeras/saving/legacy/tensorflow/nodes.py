"""Reads `TensorFlowOpLayer` of tf.keras 2.0 to 2.3: an operation of a graph with constants."""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Mapping
from typing import Any

from fkeras.authoring.saving import Origin
from fkeras.host.containers.strict_json import ParsedJson, check, field, parse
from fkeras.saving.legacy.tensorflow import table

_REDUCED = "input_tensor axis"
_PIXELS = "align_corners half_pixel_centers"
_WINDOW = "ksize strides padding data_format"
_KERNEL = "strides padding data_format dilations"
#: dtypes of graphs whose names differ from NumPy's
_KINDS = types.MappingProxyType({"float": "float32", "double": "float64", "half": "float16"})
# operations with other inputs than the required parameters of their function, or with attributes that
# change the result: parameters of the inputs, and `attribute=parameter` where the names differ
_ROWS = (
    ("LeakyRelu", "leaky_relu", "features", "alpha"),
    *(
        (op, f"reduce_{op.lower()}", _REDUCED, "keep_dims=keepdims")
        for op in ("Sum", "Mean", "Max", "Min", "Prod", "Any", "All")
    ),
    ("EuclideanNorm", "reduce_euclidean_norm", _REDUCED, "keep_dims=keepdims"),
    ("ArgMax", "argmax", "input axis", "output_type"),
    ("ArgMin", "argmin", "input axis", "output_type"),
    ("Cumsum", "cumsum", "x axis", "exclusive reverse"),
    ("Cumprod", "cumprod", "x axis", "exclusive reverse"),
    ("TopKV2", "top_k", "input k", "sorted"),
    ("MatMul", "matmul", "a b", "transpose_a transpose_b"),
    ("BatchMatMul BatchMatMulV2", "matmul", "a b", "adj_x=adjoint_a adj_y=adjoint_b"),
    ("Einsum", "einsum", "*", "equation"),
    ("MatrixDiagPartV2", "diag_part", "input k", ""),
    ("BiasAdd", "bias_add", "value bias", "data_format"),
    ("Cast", "cast", "x", "DstT=dtype"),
    ("Range", "range", "start limit delta", ""),
    ("Squeeze", "squeeze", "input", "squeeze_dims=axis"),
    ("ExpandDims", "expand_dims", "input axis", ""),
    ("Transpose", "transpose", "a perm", ""),
    ("ConcatV2", "concat", "*values axis", ""),
    ("Pack", "stack", "*values", "axis"),
    ("AddN", "add_n", "*inputs", ""),
    ("Unpack", "unstack", "value", "num axis"),
    ("Split", "split", "axis value", "num_split=num_or_size_splits"),
    ("SplitV", "split", "value num_or_size_splits axis", ""),
    ("PadV2", "pad", "tensor paddings constant_values", ""),
    ("MirrorPad", "pad", "tensor paddings", "mode"),
    ("GatherV2", "gather", "params indices axis", "batch_dims"),
    ("SelectV2 Select", "where", "condition x y", ""),
    ("OneHot", "one_hot", "indices depth on_value off_value", "axis"),
    (
        "StridedSlice",
        "strided_slice",
        "input_ begin end strides",
        "begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask",
    ),
    ("ResizeBilinear", "image.resize", "images size", _PIXELS),
    ("ResizeNearestNeighbor", "image.resize", "images size", _PIXELS),
    ("MaxPool", "max_pool", "input", _WINDOW),
    ("AvgPool", "avg_pool", "input", _WINDOW),
    ("Conv2D", "conv2d", "input filter", _KERNEL),
    ("DepthwiseConv2dNative", "depthwise_conv2d", "input filter", _KERNEL),
    ("DepthToSpace", "depth_to_space", "input", "block_size data_format"),
    ("SpaceToDepth", "space_to_depth", "input", "block_size data_format"),
)
OPERATIONS = types.MappingProxyType(
    {
        op: (name, " ".join(table.FUNCTIONS[name].required), "")
        for op, name in table.OPERATIONS.items()
    }
    | {op: row[1:] for row in _ROWS for op in row[0].split()}
)


def read(config: Mapping, tensors: list[Any], origin: Origin, layer: str) -> tuple[str, list, dict]:
    """Converts a node to `(function, arguments, options)` with keys of the table of functions."""
    where = origin.place(layer)
    node = field(config, "node_def", (dict, str), **where)
    node = check(parse(node) if isinstance(node, str) else node, dict, "a node", **where)
    op = field(node, "op", str, **where)
    if op not in OPERATIONS:
        raise origin.error(
            f"unknown TensorFlow operation {op!r:.60}. Pass a function of the same tensors that "
            f"computes the same result: custom_objects={{{op[:60]!r}: lambda x: ...}}, or build the "
            "model in tf.keras 2.4 or later and save it again.",
            layer,
        )
    function, inputs, attributes = OPERATIONS[op]
    constants = field(config, "constants", (dict, type(None)), None, **where) or {}
    # "^name" is a control dependency, which carries no tensor.
    names = [n for n in field(node, "input", list, [], **where) if not str(n).startswith("^")]
    remaining_tensors = list(tensors)
    values = []
    for index in range(len(names)):
        # Keras stores constant inputs apart, by index; the call's tensors are the other inputs.
        if str(index) in constants:
            values.append(constants[str(index)])
        elif remaining_tensors:
            values.append(remaining_tensors.pop(0))
        else:
            raise origin.error(f"input {index} of {op!r} is missing. The file is damaged.", layer)
    options = _by_parameter(inputs, values)
    node_attributes = field(node, "attr", dict, {}, **where)
    arguments: list[Any] = []
    for pair in attributes.split():
        key, _, name = pair.partition("=")
        if key in node_attributes:
            options[name or key] = _attribute(node_attributes[key], origin, layer)
    if function == "einsum":
        arguments = [options.pop("equation", None), *options.pop("*")]
    # Only half-pixel centers equal Keras 3's resize; other sampling grids shift the image.
    if op.startswith("Resize"):
        corners, centers = (
            options.pop("align_corners", False),
            options.pop("half_pixel_centers", False),
        )
        if corners or not centers:
            raise origin.error(
                f"{op}: expected align_corners=False and half_pixel_centers=True, as in TensorFlow "
                f"2's tf.image.resize, received {corners} and {centers}. Pass a function of the same "
                f"tensors: custom_objects={{{op!r}: lambda images: ...}}.",
                layer,
            )
        options["method"] = "bilinear" if op == "ResizeBilinear" else "nearest"
    return function, arguments, options


def _by_parameter(inputs: str, values: list[Any]) -> dict[str, Any]:
    names = inputs.split()
    if inputs == "*":
        return {"*": values}
    # "*values axis": the variadic parameter takes all but the last inputs.
    if not names[0].startswith("*"):
        return dict(zip(names, values, strict=False))
    last_count = len(names) - 1
    parts = values[: len(values) - last_count]
    return {names[0][1:]: parts, **dict(zip(names[1:], values[len(parts) :], strict=False))}


def _attribute(value: ParsedJson, origin: Origin, layer: str) -> Any:
    """Converts an attribute of a node such as `{"i": "3"}`."""
    where = origin.place(layer)
    attribute = check(value, dict, "an attribute of a node", **where)
    kind: str = next(iter(attribute), "none")
    content: Any = attribute.get(kind)
    if kind == "list":
        parts = check(content, dict, "a list", **where)
        pairs = [(k, v) for k, vs in parts.items() for v in check(vs, list, "a list", **where)]
        return [_attribute({k: v}, origin, layer) for k, v in pairs]
    # The JSON form of protocol buffers writes int64 as strings and bytes as base64.
    try:
        if kind == "i":
            return int(content)
        if kind == "s":
            return base64.b64decode(content, validate=True).decode("ascii")
    except (TypeError, ValueError, binascii.Error, UnicodeDecodeError):
        raise origin.error(
            f"cannot decode the node attribute {content!r:.40}. The file is damaged.", layer
        ) from None
    if kind == "type":
        dtype_name = check(content, str, "a dtype", **where).removeprefix("DT_").lower()
        return _KINDS.get(dtype_name, dtype_name)
    if kind in ("b", "f"):
        return check(content, (bool, float), "an attribute of a node", **where)
    raise origin.error(
        f"unknown kind {kind!r:.20} of a node attribute. The file is damaged.", layer
    )

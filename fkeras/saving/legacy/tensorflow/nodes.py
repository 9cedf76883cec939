"""Reads `TensorFlowOpLayer` of tf.keras 2.0 to 2.3: an operation of a graph with constants."""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Mapping
from typing import Any

from fkeras.saving.containers.strict_json import check, field, parse
from fkeras.saving.quirks.origin import Origin

_TWO = "x y"
_REDUCED = "input_tensor axis"
_PIXELS = "align_corners=align_corners half_pixel_centers=half_pixel_centers"
_WINDOW = "ksize=ksize strides=strides padding=padding data_format=data_format"
_KERNEL = "strides=strides padding=padding data_format=data_format dilations=dilations"
#: dtypes of graphs whose names differ from NumPy's
_KINDS = types.MappingProxyType({"float": "float32", "double": "float64", "half": "float16"})
# operations, function, parameters of the inputs, and `attribute=parameter` for relevant attributes
_ROWS = (
    ("Add AddV2", "add", _TWO, ""),
    ("Sub", "subtract", _TWO, ""),
    ("Mul", "multiply", _TWO, ""),
    ("RealDiv", "divide", _TWO, ""),
    ("DivNoNan", "divide_no_nan", _TWO, ""),
    ("FloorDiv", "floordiv", _TWO, ""),
    ("FloorMod", "floormod", _TWO, ""),
    ("Pow", "pow", _TWO, ""),
    ("Maximum", "maximum", _TWO, ""),
    ("Minimum", "minimum", _TWO, ""),
    ("SquaredDifference", "squared_difference", _TWO, ""),
    ("MulNoNan", "multiply_no_nan", _TWO, ""),
    ("Xlogy", "xlogy", _TWO, ""),
    ("Xdivy", "xdivy", _TWO, ""),
    ("Atan2", "atan2", "y x", ""),
    ("Equal", "equal", _TWO, ""),
    ("NotEqual", "not_equal", _TWO, ""),
    ("Greater", "greater", _TWO, ""),
    ("GreaterEqual", "greater_equal", _TWO, ""),
    ("Less", "less", _TWO, ""),
    ("LessEqual", "less_equal", _TWO, ""),
    ("LogicalAnd", "logical_and", _TWO, ""),
    ("LogicalOr", "logical_or", _TWO, ""),
    ("LogicalNot", "logical_not", "x", ""),
    ("Abs", "abs", "x", ""),
    ("Neg", "negative", "x", ""),
    ("Sign", "sign", "x", ""),
    ("Reciprocal Inv", "reciprocal", "x", ""),
    ("Square", "square", "x", ""),
    ("Sqrt", "sqrt", "x", ""),
    ("Rsqrt", "rsqrt", "x", ""),
    ("Exp", "exp", "x", ""),
    ("Expm1", "expm1", "x", ""),
    ("Log", "log", "x", ""),
    ("Log1p", "log1p", "x", ""),
    ("Sin", "sin", "x", ""),
    ("Cos", "cos", "x", ""),
    ("Tan", "tan", "x", ""),
    ("Asin", "asin", "x", ""),
    ("Acos", "acos", "x", ""),
    ("Atan", "atan", "x", ""),
    ("Sinh", "sinh", "x", ""),
    ("Cosh", "cosh", "x", ""),
    ("Tanh", "tanh", "x", ""),
    ("Asinh", "asinh", "x", ""),
    ("Acosh", "acosh", "x", ""),
    ("Atanh", "atanh", "x", ""),
    ("Erf", "erf", "x", ""),
    ("Erfc", "erfc", "x", ""),
    ("Floor", "floor", "x", ""),
    ("Ceil", "ceil", "x", ""),
    ("Round Rint", "round", "x", ""),
    ("IsNan", "is_nan", "x", ""),
    ("IsInf", "is_inf", "x", ""),
    ("IsFinite", "is_finite", "x", ""),
    ("Sigmoid", "sigmoid", "x", ""),
    ("Softplus", "softplus", "features", ""),
    ("Softsign", "softsign", "features", ""),
    ("Relu", "relu", "features", ""),
    ("Relu6", "relu6", "features", ""),
    ("Elu", "elu", "features", ""),
    ("Selu", "selu", "features", ""),
    ("LeakyRelu", "leaky_relu", "features", "alpha=alpha"),
    ("Softmax", "softmax", "logits", ""),
    ("LogSoftmax", "log_softmax", "logits", ""),
    ("Sum", "reduce_sum", _REDUCED, "keep_dims=keepdims"),
    ("EuclideanNorm", "reduce_euclidean_norm", _REDUCED, "keep_dims=keepdims"),
    ("Mean", "reduce_mean", _REDUCED, "keep_dims=keepdims"),
    ("Max", "reduce_max", _REDUCED, "keep_dims=keepdims"),
    ("Min", "reduce_min", _REDUCED, "keep_dims=keepdims"),
    ("Prod", "reduce_prod", _REDUCED, "keep_dims=keepdims"),
    ("Any", "reduce_any", _REDUCED, "keep_dims=keepdims"),
    ("All", "reduce_all", _REDUCED, "keep_dims=keepdims"),
    ("ArgMax", "argmax", "input axis", "output_type=output_type"),
    ("ArgMin", "argmin", "input axis", "output_type=output_type"),
    ("Cumsum", "cumsum", "x axis", "exclusive=exclusive reverse=reverse"),
    ("Cumprod", "cumprod", "x axis", "exclusive=exclusive reverse=reverse"),
    ("L2Loss", "l2_loss", "t", ""),
    ("ClipByValue", "clip_by_value", "t clip_value_min clip_value_max", ""),
    ("TopKV2", "top_k", "input k", "sorted=sorted"),
    ("MatMul", "matmul", "a b", "transpose_a=transpose_a transpose_b=transpose_b"),
    ("BatchMatMul BatchMatMulV2", "matmul", "a b", "adj_x=adjoint_a adj_y=adjoint_b"),
    ("Einsum", "einsum", "*", "equation=equation"),
    ("MatrixBandPart", "band_part", "input num_lower num_upper", ""),
    ("MatrixDiagPart", "diag_part", "input", ""),
    ("MatrixDiagPartV2", "diag_part", "input k", ""),
    ("MatrixDeterminant", "det", "input", ""),
    ("MatrixInverse", "inv", "input", ""),
    ("Cholesky", "cholesky", "input", ""),
    ("Cross", "cross", "a b", ""),
    ("Roll", "roll", "input shift axis", ""),
    ("BiasAdd", "bias_add", "value bias", "data_format=data_format"),
    ("Identity Snapshot", "identity", "input", ""),
    ("StopGradient", "stop_gradient", "input", ""),
    ("Cast", "cast", "x", "DstT=dtype"),
    ("Shape", "shape", "input", ""),
    ("Size", "size", "input", ""),
    ("Rank", "rank", "input", ""),
    ("Range", "range", "start limit delta", ""),
    ("Reshape", "reshape", "tensor shape", ""),
    ("Squeeze", "squeeze", "input", "squeeze_dims=axis"),
    ("ExpandDims", "expand_dims", "input axis", ""),
    ("Transpose", "transpose", "a perm", ""),
    ("ConcatV2", "concat", "*values axis", ""),
    ("Pack", "stack", "*values", "axis=axis"),
    ("AddN", "add_n", "*inputs", ""),
    ("Unpack", "unstack", "value", "num=num axis=axis"),
    ("Split", "split", "axis value", "num_split=num_or_size_splits"),
    ("SplitV", "split", "value num_or_size_splits axis", ""),
    ("Tile", "tile", "input multiples", ""),
    ("Pad", "pad", "tensor paddings", ""),
    ("PadV2", "pad", "tensor paddings constant_values", ""),
    ("MirrorPad", "pad", "tensor paddings", "mode=mode"),
    ("ReverseV2", "reverse", "tensor axis", ""),
    ("GatherV2", "gather", "params indices axis", "batch_dims=batch_dims"),
    ("GatherNd", "gather_nd", "params indices", ""),
    ("SelectV2 Select", "where", "condition x y", ""),
    ("ZerosLike", "zeros_like", "input", ""),
    ("OnesLike", "ones_like", "input", ""),
    ("Fill", "fill", "dims value", ""),
    ("BroadcastTo", "broadcast_to", "input shape", ""),
    ("OneHot", "one_hot", "indices depth on_value off_value", "axis=axis"),
    ("Slice", "slice", "input_ begin size", ""),
    (
        "StridedSlice",
        "strided_slice",
        "input_ begin end strides",
        "begin_mask=begin_mask end_mask=end_mask ellipsis_mask=ellipsis_mask "
        "new_axis_mask=new_axis_mask shrink_axis_mask=shrink_axis_mask",
    ),
    ("ResizeBilinear", "image.resize", "images size", _PIXELS),
    ("ResizeNearestNeighbor", "image.resize", "images size", _PIXELS),
    ("MaxPool", "max_pool", "input", _WINDOW),
    ("AvgPool", "avg_pool", "input", _WINDOW),
    ("Conv2D", "conv2d", "input filter", _KERNEL),
    ("DepthwiseConv2dNative", "depthwise_conv2d", "input filter", _KERNEL),
    ("DepthToSpace", "depth_to_space", "input", "block_size=block_size data_format=data_format"),
    ("SpaceToDepth", "space_to_depth", "input", "block_size=block_size data_format=data_format"),
)


def _table() -> Mapping[str, tuple[str, str, str]]:
    return types.MappingProxyType(
        {
            op: (function, inputs, attributes)
            for ops, function, inputs, attributes in _ROWS
            for op in ops.split()
        }
    )


OPERATIONS = _table()


def read(config: Mapping, tensors: list[Any], origin: Origin, layer: str) -> tuple[str, list, dict]:
    """Converts a node to `(function, arguments, options)` with keys of the table of functions.

    Args:
        config: configuration of the layer.
        tensors: input tensors of the layer's call.
        origin: the program that wrote the file.
        layer: name of the layer.

    Raises:
        FileError: for an unknown operation or a malformed node.
    """
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
            options[name] = _attribute(node_attributes[key], origin, layer)
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


def _attribute(value: Any, origin: Origin, layer: str) -> Any:
    """Converts an attribute of a node such as `{"i": "3"}`."""
    where = origin.place(layer)
    check(value, dict, "an attribute of a node", **where)
    kind: str = next(iter(value), "none")
    content: Any = value.get(kind)
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

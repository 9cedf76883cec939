"""Table of the supported TensorFlow functions, by their names in files.

A row holds the names of a function in files, TensorFlow's parameters, the operations of Keras 3, and
the equal operations of TensorFlow's graphs, whose inputs are the required parameters. Signatures
write `axis?` for an optional and `name~` for an ignored parameter. The operations of Keras 3 are

- a class, which takes the parameters in this order,
- a formula of classes; its signature gives optional parameters a value, `axis=0`, and names how a
  value is checked, `axis:axes` for `Builder.axes`,
- or a function of the builder and the arguments.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fkeras.saving.legacy.tensorflow import elementwise, selecting, shaping
from fkeras.saving.legacy.tensorflow.builder import Builder, Row

_REDUCED = "input_tensor axis? keepdims?"


def _named_alike(parameters: str, names: str) -> Iterator[Row]:
    """Yields rows of functions that Keras and TensorFlow's graphs name alike: `less_equal`, LessEqual."""
    for name in names.split():
        class_name = "".join(word.capitalize() for word in name.split("_"))
        yield name, parameters, class_name, class_name


_ROWS: tuple[Row, ...] = (
    *_named_alike(
        "x y",
        "maximum minimum equal not_equal greater greater_equal less less_equal "
        "logical_and logical_or",
    ),
    *_named_alike(
        "x",
        "logical_not sign square sqrt rsqrt exp expm1 log log1p sin cos tan sinh cosh "
        "tanh erf erfc floor ceil sigmoid",
    ),
    *_named_alike("features", "softplus softsign relu relu6 elu selu"),
    ("add", "x y", "Add", "Add AddV2"),
    ("subtract", "x y", "Subtract", "Sub"),
    ("multiply", "x y", "Multiply", "Mul"),
    ("scalar_mul", "scalar x", "Multiply"),
    ("divide truediv realdiv", "x y", "TrueDivide", "RealDiv"),
    ("divide_no_nan div_no_nan", "x y", "DivideNoNan", "DivNoNan"),
    ("floormod mod", "x y", "Mod", "FloorMod"),
    ("pow", "x y", "Power", "Pow"),
    # Keras calls the parameters x1 and x2: TensorFlow's y is the first.
    ("atan2", "y x", "Arctan2", "Atan2"),
    ("logical_xor", "x y", "LogicalXor"),
    ("squared_difference", "x y", "Square(Subtract(x, y))", "SquaredDifference"),
    ("multiply_no_nan", "x y", "Where(Equal(y, 0), 0, Multiply(x, y))", "MulNoNan"),
    ("xlogy", "x y", "Where(Equal(x, 0), 0, Multiply(x, Log(y)))", "Xlogy"),
    ("xlog1py", "x y", "Where(Equal(x, 0), 0, Multiply(x, Log1p(y)))"),
    ("xdivy", "x y", "Where(Equal(x, 0), 0, TrueDivide(x, y))", "Xdivy"),
    ("abs", "x", "Absolute", "Abs"),
    ("negative neg", "x", "Negative", "Neg"),
    ("reciprocal", "x", "Reciprocal", "Reciprocal Inv"),
    ("asin", "x", "Arcsin", "Asin"),
    ("acos", "x", "Arccos", "Acos"),
    ("atan", "x", "Arctan", "Atan"),
    ("asinh", "x", "Arcsinh", "Asinh"),
    ("acosh", "x", "Arccosh", "Acosh"),
    ("atanh", "x", "Arctanh", "Atanh"),
    ("erfinv", "x", "Erfinv"),
    ("round rint", "x", "Round", "Round Rint"),
    ("is_nan", "x", "Isnan", "IsNan"),
    ("is_inf", "x", "Isinf", "IsInf"),
    ("is_finite", "x", "Isfinite", "IsFinite"),
    ("log_sigmoid", "x", "LogSigmoid"),
    ("gelu", "features approximate=False", "Gelu(features, approximate=approximate)"),
    ("leaky_relu", "features alpha=0.2", "LeakyRelu(features, negative_slope=alpha)"),
    (
        "crelu",
        "features axis:axis=-1",
        "Concatenate([Relu(features), Relu(Negative(features))], axis=axis)",
    ),
    ("softmax", "logits axis:axes=-1", "Softmax(logits, axis=axis)", "Softmax"),
    ("log_softmax", "logits axis:axes=-1", "LogSoftmax(logits, axis=axis)", "LogSoftmax"),
    # The exponent is never positive: no overflow for large logits.
    (
        "sigmoid_cross_entropy_with_logits",
        "labels logits",
        "Add(Subtract(Relu(logits), Multiply(logits, labels)), "
        "Log1p(Exp(Negative(Absolute(logits)))))",
    ),
    ("reduce_sum", _REDUCED, "Sum"),
    ("reduce_max", _REDUCED, "Max"),
    ("reduce_min", _REDUCED, "Min"),
    ("reduce_prod", _REDUCED, "Prod"),
    ("reduce_any", _REDUCED, "Any"),
    ("reduce_all", _REDUCED, "All"),
    ("reduce_std", _REDUCED, "Std"),
    ("reduce_variance", _REDUCED, "Var"),
    ("reduce_logsumexp", _REDUCED, "Logsumexp"),
    ("l2_loss", "t", "TrueDivide(Sum(Square(t)), 2)", "L2Loss"),
    # Epsilon bounds the square as in TensorFlow: 1e-12 bounds the norm by 1e-6.
    (
        "l2_normalize",
        "x axis:axes=None epsilon=1e-12",
        "Multiply(x, Rsqrt(Maximum(Sum(Square(x), axis=axis, keepdims=True), epsilon)))",
    ),
    (
        "count_nonzero",
        "input axis:axes=None keepdims=False dtype:kind='int64'",
        "Sum(Cast(NotEqual(input, 0), dtype=dtype), axis=axis, keepdims=keepdims)",
    ),
    ("top_k", "input k:whole=1 sorted=True", "TopK(input, k=k, sorted=sorted, outputs=2)"),
    ("reverse", "tensor axis", "Flip", "ReverseV2"),
    ("roll", "input shift axis", "Roll", "Roll"),
    ("stop_gradient", "input", "StopGradient", "StopGradient"),
    ("transpose", "a perm? conjugate~", "Transpose"),
    ("cross", "a b", "Cross", "Cross"),
    ("det", "input", "Det", "MatrixDeterminant"),
    ("cholesky", "input", "Cholesky", "Cholesky"),
    ("tensordot", "a b axes:plain", "Tensordot(a, b, axes=axes)"),
    ("trace", "x", "Trace(x, offset=0, axis1=-2, axis2=-1)"),
    (
        "diag_part",
        "input k:whole=0",
        "Diagonal(input, offset=k, axis1=-2, axis2=-1)",
        "MatrixDiagPart",
    ),
    ("cast", "x dtype:kind", "Cast(x, dtype=dtype)"),
    ("saturate_cast", "value dtype:kind", "SaturateCast(value, dtype=dtype)"),
    ("range", "start limit=None delta=None dtype:kind=None", "Arange(start, limit, delta, dtype)"),
    ("expand_dims", "input axis:axis", "ExpandDims(input, axis=axis)"),
    ("image.flip_left_right", "image", "Flip(image, axis=-2)"),
    ("image.flip_up_down", "image", "Flip(image, axis=-3)"),
    ("image.grayscale_to_rgb", "images", "Concatenate([images, images, images], axis=-1)"),
    (
        "image.rgb_to_grayscale",
        "images",
        "Sum(Multiply(images, [0.2989, 0.5870, 0.1140]), axis=[-1], keepdims=True)",
    ),
    *elementwise.ROWS,
    *shaping.ROWS,
    *selecting.ROWS,
)
#: parameter names of TensorFlow 1 by their present names
_RENAMED: Mapping[str, str] = types.MappingProxyType(
    {
        "keep_dims": "keepdims",
        "reduction_indices": "axis",
        "dimension": "axis",
        "squeeze_dims": "axis",
        "dim": "axis",
        "filters": "filter",
        "stride": "strides",
    }
)
#: TensorFlow modules whose prefix is dropped; functions of `image` and others keep the prefix
_PLACES = ("", "math.", "nn.", "linalg.", "dtypes.", "__operators__.")


class Function(NamedTuple):
    """A function of TensorFlow.

    Attributes:
        required: required parameters, the tensor first.
        silent: parameters that do not change the result, and are ignored.
        make: builds the operations from a builder and the arguments.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    silent: tuple[str, ...]
    make: Callable[..., Any]


def _function(signature: str, form: str | Callable[..., Any]) -> Function:
    required, optional, silent, checks = [], {}, [], {}
    for parameter in signature.split():
        head, has_default, default = parameter.partition("=")
        head, _, check = head.partition(":")
        name = head.rstrip("?~")
        if check:
            checks[name] = check
        if head.endswith("~"):
            silent.append(name)
        elif head.endswith("?") or has_default:
            optional[name] = ast.literal_eval(default) if has_default else None
        else:
            required.append(name)
    make = form if callable(form) else _operations(form, tuple(required), optional, checks)
    return Function(tuple(required), tuple(optional), tuple(silent), make)


def _operations(
    form: str, required: tuple[str, ...], optional: Mapping[str, Any], checks: Mapping[str, str]
) -> Callable[..., Any]:
    """Returns the function that builds a class or a formula of classes."""
    formula = ast.parse(form, mode="eval").body

    def make(builder: Builder, *args: Any, **options: Any) -> Any:
        values = {**dict(zip(required, args, strict=True)), **optional, **options}
        if isinstance(formula, ast.Call):
            for name, check in checks.items():
                if values[name] is not None:
                    values[name] = _CHECKS[check](builder, values[name], name)
            return _evaluated(builder, formula, values)
        # Drop trailing missing arguments, so that the operation's defaults apply.
        arguments = list(values.values())
        while arguments[-1] is None:
            arguments.pop()
        return builder(form, *arguments)

    return make


_CHECKS: Mapping[str, Callable[[Builder, Any, str], Any]] = types.MappingProxyType(
    {
        "axes": lambda builder, value, name: builder.axes(value),
        "axis": lambda builder, value, name: builder.whole(value, "an axis"),
        "kind": lambda builder, value, name: builder.kind(value),
        "plain": lambda builder, value, name: builder.plain(value),
        "whole": lambda builder, value, name: builder.whole(value, name),
    }
)


def _evaluated(builder: Builder, formula: ast.expr, values: Mapping[str, Any]) -> Any:
    match formula:
        case ast.Call(func=ast.Name(id=class_name), args=args, keywords=keywords):
            parts = [_evaluated(builder, part, values) for part in args]
            options = {str(k.arg): _evaluated(builder, k.value, values) for k in keywords}
            return builder(class_name, *parts, **options)
        case ast.Name(id=name):
            return values[name]
        case ast.List(elts=parts):
            return [_evaluated(builder, part, values) for part in parts]
        case _:
            return ast.literal_eval(formula)


FUNCTIONS: Mapping[str, Function] = types.MappingProxyType(
    {name: _function(row[1], row[2]) for row in _ROWS for name in row[0].split()}
)
#: functions by the operations of graphs whose inputs are the required parameters
OPERATIONS: Mapping[str, str] = types.MappingProxyType(
    {op: row[0].split()[0] for row in _ROWS for op in " ".join(row[3:]).split()}
)


def key_of(word: str) -> str | None:
    """Returns the table's key for a function's name in a file, or None for an unknown function."""
    word = word.removeprefix("compat.v1.").removeprefix("compat.v2.")
    if word in FUNCTIONS:
        return word
    prefix, _, last = word.rpartition(".")
    return last if f"{prefix}." in _PLACES and last in FUNCTIONS else None


def call(builder: Builder, key: str, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Builds the operations of a function and returns the result.

    Args:
        options: arguments by name; None means missing.
    """
    function = FUNCTIONS[key]
    names = (*function.required, *function.optional)
    values_by_name = dict(zip(names, arguments, strict=False))
    # Extra positional arguments are the operands of `einsum`.
    extra_arguments = arguments[len(names) :]
    for name, value in options.items():
        current_name = name if name in names else _RENAMED.get(name, name)
        if value is None or name == "name" or name in function.silent:
            continue
        # An ignored argument would change the result silently.
        if current_name not in names:
            raise builder.error(
                f"unsupported argument {name!r:.40}; the supported arguments are "
                f"{', '.join(names)}. Save the model without it, {builder.instead}"
            )
        if current_name in values_by_name:
            raise builder.error(
                f"received the argument {current_name!r} twice. The file is damaged."
            )
        values_by_name[current_name] = value
    missing = [name for name in function.required if name not in values_by_name]
    if missing:
        raise builder.error(f"the argument {missing[0]!r} is missing. The file is damaged.")
    required_values = [values_by_name.pop(name) for name in function.required]
    return function.make(builder, *required_values, *extra_arguments, **values_by_name)

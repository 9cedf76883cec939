"""Table of TensorFlow functions that each equal one operation of Keras 3.

A row holds TensorFlow's parameters in the order of the Keras operation's parameters, the class of
the Keras operation, and the names of the functions. `axis?` is optional; `name~` is ignored.
"""

from __future__ import annotations

import types
from collections.abc import Mapping

_REDUCED = "input_tensor axis? keepdims?"
ROWS = (
    ("x y", "Add", "add"),
    ("x y", "Subtract", "subtract"),
    ("x y", "Multiply", "multiply"),
    ("scalar x", "Multiply", "scalar_mul"),
    ("x y", "TrueDivide", "divide truediv realdiv"),
    ("x y", "DivideNoNan", "divide_no_nan div_no_nan"),
    ("x y", "Mod", "floormod mod"),
    ("x y", "Power", "pow"),
    ("x y", "Maximum", "maximum"),
    ("x y", "Minimum", "minimum"),
    # Keras calls the parameters x1 and x2: TensorFlow's y is the first.
    ("y x", "Arctan2", "atan2"),
    ("x y", "Equal", "equal"),
    ("x y", "NotEqual", "not_equal"),
    ("x y", "Greater", "greater"),
    ("x y", "GreaterEqual", "greater_equal"),
    ("x y", "Less", "less"),
    ("x y", "LessEqual", "less_equal"),
    ("x y", "LogicalAnd", "logical_and"),
    ("x y", "LogicalOr", "logical_or"),
    ("x y", "LogicalXor", "logical_xor"),
    ("x", "LogicalNot", "logical_not"),
    ("x", "Absolute", "abs"),
    ("x", "Negative", "negative neg"),
    ("x", "Sign", "sign"),
    ("x", "Reciprocal", "reciprocal"),
    ("x", "Square", "square"),
    ("x", "Sqrt", "sqrt"),
    ("x", "Rsqrt", "rsqrt"),
    ("x", "Exp", "exp"),
    ("x", "Expm1", "expm1"),
    ("x", "Log", "log"),
    ("x", "Log1p", "log1p"),
    ("x", "Sin", "sin"),
    ("x", "Cos", "cos"),
    ("x", "Tan", "tan"),
    ("x", "Arcsin", "asin"),
    ("x", "Arccos", "acos"),
    ("x", "Arctan", "atan"),
    ("x", "Sinh", "sinh"),
    ("x", "Cosh", "cosh"),
    ("x", "Tanh", "tanh"),
    ("x", "Arcsinh", "asinh"),
    ("x", "Arccosh", "acosh"),
    ("x", "Arctanh", "atanh"),
    ("x", "Erf", "erf"),
    ("x", "Erfc", "erfc"),
    ("x", "Erfinv", "erfinv"),
    ("x", "Floor", "floor"),
    ("x", "Ceil", "ceil"),
    ("x", "Round", "round rint"),
    ("x", "Isnan", "is_nan"),
    ("x", "Isinf", "is_inf"),
    ("x", "Isfinite", "is_finite"),
    ("x", "Sigmoid", "sigmoid"),
    ("x", "LogSigmoid", "log_sigmoid"),
    ("features", "Softplus", "softplus"),
    ("features", "Softsign", "softsign"),
    ("features", "Relu", "relu"),
    ("features", "Relu6", "relu6"),
    ("features", "Elu", "elu"),
    ("features", "Selu", "selu"),
    (_REDUCED, "Sum", "reduce_sum"),
    (_REDUCED, "Max", "reduce_max"),
    (_REDUCED, "Min", "reduce_min"),
    (_REDUCED, "Prod", "reduce_prod"),
    (_REDUCED, "Any", "reduce_any"),
    (_REDUCED, "All", "reduce_all"),
    (_REDUCED, "Std", "reduce_std"),
    (_REDUCED, "Var", "reduce_variance"),
    (_REDUCED, "Logsumexp", "reduce_logsumexp"),
    ("tensor axis", "Flip", "reverse"),
    ("input shift axis", "Roll", "roll"),
    ("input", "StopGradient", "stop_gradient"),
    ("a perm? conjugate~", "Transpose", "transpose"),
    ("a b", "Cross", "cross"),
    ("input", "Det", "det"),
    ("input", "Cholesky", "cholesky"),
)
#: parameter names of TensorFlow 1 by their present names
RENAMED: Mapping[str, str] = types.MappingProxyType(
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

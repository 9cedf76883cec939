"""Functions of arrays that take symbolic tensors too: `fk.ops.mean(x, axis=1)`.

On arrays they compute, on symbolic tensors they record a node. `lift` makes any other function
such a one. Functions that work element by element keep the mask of their input; the others refuse
a masked input, and `unmask` drops a mask where you mean to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.context import Context, Output
from fkeras.engine.layer import Layer
from fkeras.engine.operation import (
    Op,
    Operation,
    absolute,
    add,
    equal,
    floor_divide,
    getitem,
    greater,
    greater_equal,
    less,
    less_equal,
    lift,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    matmul,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    subtract,
    true_divide,
)


class Unmask(Layer):
    """Gives its input as it is, without the mask."""

    keras_module = "fkeras.ops"
    supports_masking = True

    def forward(self, context: Context, x: Any) -> Output:
        return Output(x)


def unmask(x: Any) -> Any:
    """x itself, whose mask goes no further.

    Example:
        >>> import fkeras as fk
        >>> ids = fk.Input((5,), dtype="int32")
        >>> words = fk.layers.Embedding(10, 4, mask_zero=True)(ids)
        >>> fk.layers.Flatten()(fk.ops.unmask(words)).shape
        (None, 20)
    """
    return Unmask()(x)


def _cast(x: Any, dtype: str) -> Any:
    """x in another dtype."""
    return jnp.asarray(x, dtype)


def _concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays one after the other along an axis."""
    return jnp.concatenate(xs, axis=axis)


def _stack(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays along a new axis."""
    return jnp.stack(xs, axis=axis)


def _clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """x, at least x_min and at most x_max."""
    return jnp.clip(x, x_min, x_max)


def _one_hot(x: Any, num_classes: int, axis: int = -1, dtype: str = "float32") -> Any:
    """A one at each index, zeros elsewhere."""
    return jax.nn.one_hot(x, num_classes, axis=axis, dtype=dtype)


def _rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return jax.lax.rsqrt(x)


def _shape_keeping(name: str, function: Any) -> Op:
    return Op(name, function, elementwise=True)


# element by element: the mask goes through
abs = absolute
divide = Op("divide", jnp.true_divide, elementwise=True)
exp = _shape_keeping("exp", jnp.exp)
expm1 = _shape_keeping("expm1", jnp.expm1)
log = _shape_keeping("log", jnp.log)
log1p = _shape_keeping("log1p", jnp.log1p)
log2 = _shape_keeping("log2", jnp.log2)
log10 = _shape_keeping("log10", jnp.log10)
sqrt = _shape_keeping("sqrt", jnp.sqrt)
rsqrt = _shape_keeping("rsqrt", _rsqrt)
square = _shape_keeping("square", jnp.square)
reciprocal = _shape_keeping("reciprocal", jnp.reciprocal)
sin = _shape_keeping("sin", jnp.sin)
cos = _shape_keeping("cos", jnp.cos)
tan = _shape_keeping("tan", jnp.tan)
arcsin = _shape_keeping("arcsin", jnp.arcsin)
arccos = _shape_keeping("arccos", jnp.arccos)
arctan = _shape_keeping("arctan", jnp.arctan)
arctan2 = _shape_keeping("arctan2", jnp.arctan2)
sinh = _shape_keeping("sinh", jnp.sinh)
cosh = _shape_keeping("cosh", jnp.cosh)
tanh = _shape_keeping("tanh", jnp.tanh)
sign = _shape_keeping("sign", jnp.sign)
floor = _shape_keeping("floor", jnp.floor)
ceil = _shape_keeping("ceil", jnp.ceil)
round = _shape_keeping("round", jnp.round)
isnan = _shape_keeping("isnan", jnp.isnan)
isfinite = _shape_keeping("isfinite", jnp.isfinite)
maximum = _shape_keeping("maximum", jnp.maximum)
minimum = _shape_keeping("minimum", jnp.minimum)
where = _shape_keeping("where", jnp.where)
clip = _shape_keeping("clip", _clip)
cast = _shape_keeping("cast", _cast)
zeros_like = _shape_keeping("zeros_like", jnp.zeros_like)
ones_like = _shape_keeping("ones_like", jnp.ones_like)
stop_gradient = _shape_keeping("stop_gradient", jax.lax.stop_gradient)
relu = _shape_keeping("relu", jax.nn.relu)
sigmoid = _shape_keeping("sigmoid", jax.nn.sigmoid)
softplus = _shape_keeping("softplus", jax.nn.softplus)
silu = _shape_keeping("silu", jax.nn.silu)
gelu = _shape_keeping("gelu", jax.nn.gelu)
elu = _shape_keeping("elu", jax.nn.elu)
selu = _shape_keeping("selu", jax.nn.selu)
leaky_relu = _shape_keeping("leaky_relu", jax.nn.leaky_relu)
log_sigmoid = _shape_keeping("log_sigmoid", jax.nn.log_sigmoid)

# over axes, or of another shape: a mask would have to change with them
sum = Op("sum", jnp.sum)
mean = Op("mean", jnp.mean)
var = Op("var", jnp.var)
std = Op("std", jnp.std)
prod = Op("prod", jnp.prod)
max = Op("max", jnp.max)
min = Op("min", jnp.min)
argmax = Op("argmax", jnp.argmax)
argmin = Op("argmin", jnp.argmin)
any = Op("any", jnp.any)
all = Op("all", jnp.all)
cumsum = Op("cumsum", jnp.cumsum)
logsumexp = Op("logsumexp", jax.nn.logsumexp)
softmax = Op("softmax", jax.nn.softmax)
log_softmax = Op("log_softmax", jax.nn.log_softmax)
reshape = Op("reshape", jnp.reshape)
transpose = Op("transpose", jnp.transpose)
swapaxes = Op("swapaxes", jnp.swapaxes)
moveaxis = Op("moveaxis", jnp.moveaxis)
expand_dims = Op("expand_dims", jnp.expand_dims)
squeeze = Op("squeeze", jnp.squeeze)
broadcast_to = Op("broadcast_to", jnp.broadcast_to)
repeat = Op("repeat", jnp.repeat)
tile = Op("tile", jnp.tile)
flip = Op("flip", jnp.flip)
roll = Op("roll", jnp.roll)
pad = Op("pad", jnp.pad)
take = Op("take", jnp.take)
take_along_axis = Op("take_along_axis", jnp.take_along_axis)
concatenate = Op("concatenate", _concatenate)
stack = Op("stack", _stack)
split = Op("split", jnp.split)
sort = Op("sort", jnp.sort)
argsort = Op("argsort", jnp.argsort)
tril = Op("tril", jnp.tril)
triu = Op("triu", jnp.triu)
dot = Op("dot", jnp.dot)
tensordot = Op("tensordot", jnp.tensordot)
einsum = Op("einsum", jnp.einsum)
one_hot = Op("one_hot", _one_hot)

__all__ = (
    "Op",
    "Operation",
    "Unmask",
    "abs",
    "absolute",
    "add",
    "all",
    "any",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "argmax",
    "argmin",
    "argsort",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cosh",
    "cumsum",
    "divide",
    "dot",
    "einsum",
    "elu",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "flip",
    "floor",
    "floor_divide",
    "gelu",
    "getitem",
    "greater",
    "greater_equal",
    "isfinite",
    "isnan",
    "leaky_relu",
    "less",
    "less_equal",
    "lift",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "moveaxis",
    "multiply",
    "negative",
    "not_equal",
    "one_hot",
    "ones_like",
    "pad",
    "power",
    "prod",
    "reciprocal",
    "relu",
    "repeat",
    "reshape",
    "roll",
    "round",
    "rsqrt",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "unmask",
    "var",
    "where",
    "zeros_like",
)

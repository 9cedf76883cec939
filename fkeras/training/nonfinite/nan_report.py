"""Messages of `find_nan`: which values are not finite, the operation, and a remedy."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.values.frozen import is_array

GROWN = (
    "Usual causes of values this large are a too large learning rate, unscaled inputs, and layers "
    "without normalization: lower the learning rate, clip the gradients (clipnorm=1.0 in the "
    "optimizer), or scale the inputs."
)
SLOPE = (
    "Its derivative is infinite at zero, and a `where` after the operation does not help, since "
    "0 * inf is nan: add an epsilon to the input, such as sqrt(x + 1e-7), or replace the input by "
    "`where` before the operation."
)
# Remedies by the name of the JAX primitive: for the forward pass, and for the gradient.
REMEDY = types.MappingProxyType(
    {
        "log": ("The logarithm of zero or less: write log(maximum(x, 1e-7)).", SLOPE),
        "log1p": ("The logarithm of zero or less: keep x above -1 in log1p(x).", SLOPE),
        "sqrt": ("The square root of a negative number: write sqrt(maximum(x, 0)).", SLOPE),
        "rsqrt": ("1 / sqrt(x) for x of zero or less: add an epsilon, rsqrt(x + 1e-7).", SLOPE),
        "div": (
            "A division by zero: add an epsilon to the denominator, or replace zeros in it by "
            "`where` before the division.",
            "A division by zero, as in the derivative of a square root, a norm or a logarithm at "
            "zero: add an epsilon to the input, such as sqrt(x + 1e-7). A `where` after the "
            "operation does not help, since 0 * inf is nan.",
        ),
        "pow": ("A power of zero or less: keep the base above zero, maximum(x, 1e-7).", SLOPE),
        "exp": (
            "An exponential that overflows: subtract the maximum first, or use softmax, "
            "log_softmax or softplus, which do.",
            "An exponential that overflows: bound its input.",
        ),
        **{name: (GROWN, GROWN) for name in ("dot_general", "conv_general_dilated")},
        **{name: (GROWN, GROWN) for name in ("reduce_sum", "integer_pow", "add", "square")},
        "mul": (GROWN, SLOPE),
    }
)
BATCH = (
    "Drop these rows, x[np.isfinite(x).all(axis=1)] for x of two axes, or fill the values with "
    "np.nan_to_num(x)."
)
WEIGHTS = (
    "An earlier step made them nan or infinite. Go back to an earlier run, and search for the step "
    "with find_nan on that run and its batch; a lower learning rate or clipnorm=1.0 in the "
    "optimizer often helps."
)
LOSS = (
    "Common causes: the logarithm of a prediction of 0 or less (an output without softmax or "
    "sigmoid), the square of a large value, the division by a target of 0."
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """First NaN or infinity of a step.

    Attributes:
        where: the place, in words.
        path: the array of the batch, the weight, the layer ("encoder/dense_1", "" for the model)
            or the output of the loss.
        phase: "batch", "weights", "forward", "loss" or "backward".
        message: the place, the values and a remedy.

    Example:
        >>> print(Finding("batch, x", "x", "batch", "batch, x: 1 nan. Take the row out."))
        batch, x: 1 nan. Take the row out.
    """

    where: str
    path: str
    phase: str
    message: str

    def __str__(self) -> str:
        return self.message


def check_arrays(tree: object, kind: str) -> Iterator[Finding]:
    """Yields findings for a tree of arrays; `kind` is "batch, ", "weight " or "state "."""
    for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
        report = count(leaf)
        if not report:
            continue
        first, *rest = (str(getattr(key, "key", getattr(key, "idx", key))) for key in keys)
        if kind == "batch, ":
            path = first + "".join(f"[{part!r}]" for part in rest)
            yield Finding(f"{kind}{path}", path, "batch", f"{kind}{path}: {report}. {BATCH}")
        else:
            path = "/".join((first, *rest))
            where = f"{kind}{path!r}"
            yield Finding(where, path, "weights", f"{where}: {report}. {WEIGHTS}")


def first_operation(compute: Callable[[], Any]) -> str | None:
    """Returns the first operation whose result is not finite, if a remedy is known; else None."""
    # First look for infinity, too. If the first infinite result has no remedy (an infinity may be
    # intended, as in a mask of logits), look for NaN alone.
    for infinite in (True, False):
        try:
            with jax.disable_jit(), jax.debug_nans(True), jax.debug_infs(infinite):
                compute()
        except FloatingPointError as error:
            name = re.search(r"encountered in (\w+)", str(error))
            if name is not None and name[1] in REMEDY:
                return name[1]
    return None


def _host(array: jax.Array | np.ndarray) -> np.ndarray | None:
    if not is_array(array) or not jnp.issubdtype(array.dtype, jnp.inexact):
        return None
    # float32 holds all values of the small floats (float16, bfloat16, float8) exactly, and NumPy
    # sums and formats it reliably.
    wide = "complex64" if jnp.issubdtype(array.dtype, jnp.complexfloating) else "float32"
    host = np.asarray(array)
    return host if host.dtype.itemsize >= 8 else host.astype(wide)


def count(array: jax.Array | np.ndarray) -> str:
    """Returns the number and position of NaN and infinity in an array, or "" if all are finite."""
    host = _host(array)
    if host is None or np.isfinite(host).all():
        return ""
    nans, infs = int(np.isnan(host).sum()), int(np.isinf(host).sum())
    kinds = [f"{n} {kind}" for n, kind in ((nans, "nan"), (infs, "inf")) if n]
    if host.ndim == 0:
        return f"{host}"
    place = [int(i) for i in np.argwhere(~np.isfinite(host))[0]]
    return f"{' and '.join(kinds)} among {host.size} numbers, the first at {place}"


def span(tree: object) -> str:
    """Returns the smallest and largest finite number of each array in a tree, as text."""
    spans = []
    for host in map(_host, jax.tree.leaves(tree)):
        if host is not None and host.size and not np.iscomplexobj(host):
            finite = host[np.isfinite(host)]
            spans.append(
                f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "none finite"
            )
    return "; ".join(spans)

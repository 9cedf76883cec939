"""`rearrange`, which splits, transposes and merges axes by a pattern, and `unstack`."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import few, op, to_array

__all__ = ("rearrange", "unstack")


@op
def rearrange(tensor: TensorLike, pattern: str, **axes_lengths: int) -> jax.Array:
    """Splits, transposes and merges axes by a pattern of names: "b (h w) c -> b c h w".

    Names in parentheses denote one axis, which is split on the left and merged on the right.

    Args:
        tensor: an array.
        pattern: names of the array's axes, "->", and names of the result's axes.
        **axes_lengths: sizes of axes that are split; one per parenthesis may be omitted.

    Raises:
        ValueError: if the pattern and the array have different numbers of axes, or the two sides
            have different names.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.rearrange(jnp.arange(4), "(h w) -> w h", h=2).tolist()
        [[0, 2], [1, 3]]
    """
    tensor = to_array(tensor)
    left, right = (_groups(side) for side in pattern.split("->"))
    names = [name for group in left for name in group]
    if len(left) != tensor.ndim or sorted(names) != sorted(n for g in right for n in g):
        raise ValueError(
            f"rearrange: expected a pattern of {tensor.ndim} axes with the same names on both "
            f"sides, received {pattern!r}. Write for example 'b h w c -> b (h w) c'."
        )
    sizes: dict[str, Any] = {}
    for group, size in zip(left, tensor.shape, strict=True):
        for name in group:
            if name in axes_lengths:
                sizes[name] = axes_lengths[name]
                size = size // axes_lengths[name]
        # one omitted size per group follows from the size of the axis
        unknown = [name for name in group if name not in axes_lengths]
        if len(unknown) > 1:
            raise ValueError(
                f"rearrange: expected the sizes of all but one of the axes {group} in {pattern!r}. "
                f"Give them by name: {unknown[0]}=2."
            )
        sizes.update({name: size for name in unknown})
    # split all axes, transpose the named axes, then merge: any pattern is these three steps
    x = jnp.reshape(tensor, [sizes[name] for name in names])
    x = jnp.transpose(x, [names.index(name) for group in right for name in group])
    return jnp.reshape(x, [_product(sizes[name] for name in group) for group in right])


def _groups(side: str) -> list[list[str]]:
    return [re.findall(r"\w+", part) for part in re.findall(r"\w+|\([^()]*\)", side)]


def _product(sizes: Any) -> Any:
    product = 1
    for size in sizes:  # sizes may be symbolic; math.prod expects numbers
        product = product * size
    return product


@op
def unstack(x: TensorLike, num: int | None = None, axis: int = 0) -> list[jax.Array]:
    """Returns a list of the slices of x along an axis, without that axis.

    Args:
        num: number of slices; None for the size of the axis. Required if the size is unknown.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.unstack([[1, 2], [3, 4]], axis=1)]
        [[1, 3], [2, 4]]
    """
    x = to_array(x)
    size = x.shape[axis]
    if num is not None and isinstance(size, int) and num != size:
        raise ValueError(
            f"unstack: expected num={size}, the size of axis {axis}, received {num!r}."
        )
    count = size if num is None else num
    # one slice operation per element in the compiled program; `few` limits their number
    return [jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(few(count))]

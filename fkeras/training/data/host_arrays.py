"""Arrays on the host: conversion, lengths, splitting, and the order of the rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.values import arrays

_BLOCK = 1 << 24


def as_host(tree: Any, what: str) -> Any:
    """The tree with NumPy arrays for its leaves, in their own dtypes.

    The dtypes stay, so that labels and ids are checked before they are cast; `canonical` casts. An
    array that a file is mapped to stays one: its rows are cast as they are read.

    Raises:
        TypeError: for leaves that are no arrays of numbers.
    """

    def convert(leaf: Any) -> np.ndarray:
        if isinstance(leaf, Tracer):
            raise TypeError(
                f"{what}: expected arrays with numbers, received one that is being traced by a JAX "
                "transformation. Inside jit, grad or vmap use trainer.run(run, (x, y), epochs), or "
                "trainer.step(run, (x, y))."
            )
        array = arrays.read_array(leaf, what)
        if isinstance(array, jax.Array):
            array = arrays.read_array(np.asarray(array), what)
        return array

    return jax.tree.map(convert, tree, is_leaf=_is_leaf)


def check_fits(tree: Any, what: str) -> None:
    """Raises where integers do not fit the dtype that JAX computes in, naming the row."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        arrays.check_fits(leaf, f"{what}{jax.tree_util.keystr(path)}")


def canonical(array: np.ndarray) -> np.ndarray:
    """The array in the dtype that JAX computes in, the same array where it has this dtype.

    `check_fits` has to run before: integers that do not fit would wrap.
    """
    return arrays.narrow(array, "", checked=True)


def as_weights(tree: Any, what: str) -> Any:
    """Sample weights as `as_host` gives them, in float32."""
    with np.errstate(over="ignore"):  # infinity is what the check of finite numbers looks for
        return jax.tree.map(lambda w: w.astype("float32"), as_host(tree, what))


def in_memory(tree: Any) -> Any:
    """The tree with `canonical` arrays; an array that a file is mapped to stays one."""
    return jax.tree.map(lambda a: a if isinstance(a, np.memmap) else canonical(a), tree)


def blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """`(first row, rows)` of parts of an array, of about 16 MB each.

    A check that casts its rows then needs no copy of the whole array.
    """
    row = max(array[:1].nbytes, 1)
    size = max(_BLOCK // row, 1)
    for start in range(0, len(array), size):
        yield start, array[start : start + size]


def _is_leaf(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping | list | tuple)


def length(tree: Any) -> int:
    """The number of rows of the first array."""
    return jax.tree.leaves(tree)[0].shape[0]


def take(tree: Any, rows: Any) -> Any:
    """The rows of every array."""
    return jax.tree.map(lambda a: a[rows], tree)


def split(tree: Any, fraction: float) -> tuple[Any, Any]:
    """The first rows, and the last `fraction` of them."""
    count = length(tree)
    cut = int(count * (1 - fraction))
    if not 0 < cut < count:
        raise ValueError(
            f"validation_split: {fraction} of {count} rows leaves nothing on one side. Choose a "
            "share between 0 and 1, or pass validation_data=(x, y)."
        )
    return take(tree, slice(0, cut)), take(tree, slice(cut, None))


def room_for(count: int) -> int:
    """How many rows arrays of `count` rows are given room for: at most an eighth more, and 64.

    Arrays of about the same length get the same room, and so the same program.

    Example:
        >>> room_for(7), room_for(1000), room_for(1024), room_for(1025)
        (64, 1024, 1024, 1152)
    """
    unit = max(1 << max(count.bit_length() - 4, 0), 64)
    return -(-count // unit) * unit


def order_of(count: Any, room: int, key: jax.Array, step: Any) -> jax.Array:
    """The order of the rows in the epoch that begins at a step, a function of key and step.

    Args:
        count: how many rows there are, below or equal to `room`.
        room: the length of the result; what is behind `count` begins the order again.
        key: a typed key.
        step: how many steps were taken before the epoch.

    Example:
        >>> import jax
        >>> order_of(4, 5, jax.random.key(0), 0)[:4].sort()
        Array([0, 1, 2, 3], dtype=int32)
    """
    # a step's own key is folded in once; the order of the epoch must differ from its first step's
    own = jax.random.fold_in(jax.random.fold_in(key, step), 0x0D0E)
    places = jnp.arange(room, dtype="int32")
    behind = (places >= count).astype("int32")
    draws = jax.random.bits(own, (room,), "uint32")
    _, _, order = jax.lax.sort((behind, draws, places), num_keys=2)
    return jnp.take(order, places % jnp.asarray(count, "int32"))


@functools.partial(jax.jit, static_argnums=(1, 4))
def compiled_order(count: Any, room: int, key_data: Any, step: Any, impl: str) -> jax.Array:
    """`order_of` as one program, the key in its plain form."""
    return order_of(count, room, jax.random.wrap_key_data(key_data, impl=impl), step)

"""Converts and splits arrays on the host, and computes the order of the rows of an epoch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.values import arrays, random

_SHUFFLE = 0x0D0E  # folded into the key of the step at which the epoch begins
_BLOCK = 1 << 24  # bytes of a part of an array that a check casts at once


def as_host(tree: object, what: str) -> Any:
    """Returns the tree with its leaves as NumPy arrays, without casting.

    A list of numbers, or of such lists, is one array. Labels and ids are checked in their original dtypes; `canonical` casts later. A memory-mapped
    array stays memory-mapped: its rows are cast when a batch reads them.

    Raises:
        TypeError: for leaves other than arrays of numbers.
    """

    def convert(leaf: object) -> np.ndarray:
        if isinstance(leaf, Tracer):
            raise TypeError(
                f"{what}: expected arrays with values, received a tracer of a JAX transformation. "
                "Inside jit, grad or vmap use trainer.run(run, (x, y), epochs), or "
                "trainer.step(run, (x, y))."
            )
        array = arrays.read_array(listed(leaf, what), what)
        if isinstance(array, jax.Array):
            array = arrays.read_array(np.asarray(array), what)
        return array

    return jax.tree.map(convert, tree, is_leaf=is_leaf)


def check_fits(tree: object, what: str) -> None:
    """Rejects integers that overflow JAX's dtype; the message names the row."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        arrays.check_fits(leaf, f"{what}{jax.tree_util.keystr(path)}")


def canonical(array: np.ndarray) -> np.ndarray:
    """Returns the array in JAX's dtype; the same array if the dtype is right already.

    Call `check_fits` before: integers that overflow would wrap.
    """
    return arrays.narrow(array, "", checked=True)


def as_weights(tree: object, what: str) -> Any:
    """Returns sample weights as float32 arrays on the host."""
    with np.errstate(over="ignore"):  # `check_weights` reports the infinity of an overflow
        return jax.tree.map(lambda w: w.astype("float32"), as_host(tree, what))


def in_memory(tree: object) -> Any:
    """Returns the tree with `canonical` arrays; memory-mapped arrays stay memory-mapped."""
    return jax.tree.map(lambda a: a if isinstance(a, np.memmap) else canonical(a), tree)


def blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields `(first row, rows)` for parts of an array of about 16 MB each.

    A check that casts the rows of one part needs no copy of the whole array.
    """
    row_bytes = max(array[:1].nbytes, 1)
    size = max(_BLOCK // row_bytes, 1)
    for start in range(0, len(array), size):
        yield start, array[start : start + size]


def is_leaf(value: object) -> bool:
    """Returns whether a part of a batch is one array: no tree, or a list of numbers or strings."""
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    is_element = isinstance(first, bool | int | float | np.number | str | bytes)
    is_tree = isinstance(value, Mapping | list | tuple)
    return is_element if is_tree else value is not None


def listed(leaf: object, what: str) -> Any:
    """Returns a list of numbers, or of such lists, as an array; other values unchanged.

    Raises:
        TypeError: for lists of different lengths, or of other values.
    """
    if not isinstance(leaf, list | tuple):
        return leaf
    try:
        array = np.asarray(leaf)
    except (ValueError, OverflowError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise TypeError(
            f"{what}: expected numbers in rows of one length, received a list that cannot be "
            f"converted: {reason:.200}. Pad the rows to one length: fk.utils.pad_sequences(rows)."
        ) from error
    return array


def length(tree: object) -> int:
    """Returns the number of rows of the first array."""
    return jax.tree.leaves(tree)[0].shape[0]


def is_even(tree: object) -> bool:
    """Returns whether all arrays have the same number of rows."""
    return len({array.shape[:1] for array in jax.tree.leaves(tree)}) < 2


def take(tree: object, rows: slice | np.ndarray | jax.Array) -> Any:
    """Returns the rows of every array."""
    return jax.tree.map(lambda a: a[rows], tree)


def split(tree: object, fraction: float) -> tuple[Any, Any]:
    """Splits the rows into the first rows and the last `fraction` of the rows, as Keras does."""
    count = length(tree)
    first_count = int(count * (1 - fraction))
    if not 0 < first_count < count:
        raise ValueError(
            f"validation_split: splitting {count} rows at {fraction} leaves one part empty. Choose "
            "another fraction between 0 and 1, or pass validation_data=(x, y)."
        )
    return take(tree, slice(0, first_count)), take(tree, slice(first_count, None))


def room_for(count: int) -> int:
    """Returns the padded length of arrays of `count` rows: at least 64, at most an eighth more.

    Arrays of similar length have the same padded length, and share one compiled program.
    """
    unit = max(1 << max(count.bit_length() - 4, 0), 64)
    return -(-count // unit) * unit


def order_of(
    count: int | np.integer | jax.Array,
    room: int,
    key: jax.Array,
    step: int | np.integer | jax.Array,
) -> jax.Array:
    """Returns the order of the rows in the epoch that begins at a step.

    Args:
        count: number of rows, at most `room`.
        room: length of the result; entries after `count` repeat the last row of the order.
        step: number of steps before the epoch.
    """
    # The key of a step folds in the step's number once. The second `fold_in` keeps the shuffle
    # independent of the random numbers (dropout) of the epoch's first step.
    shuffle_key = jax.random.fold_in(jax.random.fold_in(key, step), _SHUFFLE)
    indices = jnp.arange(room, dtype="int32")
    is_padding = (indices >= count).astype("int32")
    draws = jax.random.bits(shuffle_key, (room,), "uint32")
    # `jax.random.permutation` needs a static count, so data sets of each length would compile.
    # Sorting random draws works with a traced `count`: `is_padding` moves the padding to the end.
    _, _, order = jax.lax.sort((is_padding, draws, indices), num_keys=2)
    return jnp.take(order, jnp.minimum(indices, jnp.asarray(count, "int32") - 1))


def host_order(count: int, room: int, key_data: jax.Array | np.ndarray, step: int) -> np.ndarray:
    """Computes `order_of` for a threefry key on the host.

    To compile the draws and the sort takes longer than the first epoch of a small model.

    Args:
        key_data: the words of a key, or rows of words for the orders of several keys.
    """
    draws = random.host_bits(key_data, (step, _SHUFFLE), count)
    order = np.argsort(draws, kind="stable").astype("int32")
    return np.concatenate([order, np.repeat(order[..., -1:], room - count, axis=-1)], axis=-1)


@functools.partial(jax.jit, static_argnums=(1, 4))
def compiled_order(
    count: np.integer, room: int, key_data: jax.Array, step: np.integer, impl: str
) -> jax.Array:
    """Returns `order_of` from one compiled program; takes the key, or rows of keys, as plain data."""

    def order(data: jax.Array) -> jax.Array:
        return order_of(count, room, jax.random.wrap_key_data(data, impl=impl), step)

    return order(key_data) if key_data.ndim == 1 else jax.vmap(order)(key_data)

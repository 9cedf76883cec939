"""Converts a pytree to arrays by name, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.core import Tracer

from fkeras.host.processes.arrays import is_key
from fkeras.training.checkpoint.storage.disk import checksum
from fkeras.training.checkpoint.storage.errors import CheckpointError

_SHOWN = 10


def named_leaves(tree: object) -> dict[str, Any]:
    """Returns the leaves by path, such as "model/dense/kernel"; a number makes equal paths unique."""
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = unique = jax.tree_util.keystr(path, simple=True, separator="/") or "value"
        number = 1
        while unique in named:
            number += 1
            unique = f"{name}#{number}"
        named[unique] = leaf
    return named


def host_arrays(tree: object) -> dict[str, np.ndarray]:
    """Returns host copies of the arrays of a tree by name; the originals may then be donated.

    Raises:
        TypeError: for a leaf that is neither an array nor a number.
        CheckpointError: for a donated array, or an array spread over several processes.
    """
    leaves = named_leaves(tree)
    for name, leaf in leaves.items():
        check_leaf(name, leaf)
    leaf_data = {name: plain(leaf) for name, leaf in leaves.items()}
    # Start all transfers before waiting for the first one, so that the transfers overlap.
    for leaf in leaf_data.values():
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()
    return {name: host_copy(leaf) for name, leaf in leaf_data.items()}


def check_leaf(name: str, leaf: jax.Array | np.ndarray, joint: bool = False) -> None:
    """Rejects a leaf that cannot be saved.

    Args:
        joint: whether the other processes save the rest of an array that several processes hold.
    """
    if isinstance(leaf, jax.Array):
        if isinstance(leaf, Tracer):
            problem = "is being traced. Save outside of jit, grad and vmap"
        elif leaf.is_deleted():
            problem = "was donated to a compiled function. Save the result of that function"
        elif not joint and not leaf.is_fully_addressable:
            problem = "is spread over several processes. Gather the array in a single process first"
        else:
            return
        raise CheckpointError(f"Store.save: expected an array with values, but {name!r} {problem}.")
    array = np.asarray(leaf)
    # The small floats of ml_dtypes have kind "V" as structured dtypes do, but another name.
    if array.dtype.kind in "OUSMmT" or array.dtype.names or array.dtype.name.startswith("void"):
        raise TypeError(
            f"Store.save: expected arrays and numbers in the tree, received {leaf!r:.80} at "
            f"{name!r}. Store other values in info."
        )


def plain(leaf: jax.Array | np.ndarray) -> Any:
    """Returns the leaf; for a typed key, the data of the key."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def generator(leaf: jax.Array | np.ndarray) -> Any:
    """Returns the generator of a typed key, or of the spec of a typed key."""
    if isinstance(leaf, jax.Array):
        return jax.random.key_impl(leaf)
    names = ("threefry2x32", "rbg", "unsafe_rbg")
    return next(name for name in names if jax.random.key(0, impl=name).dtype == leaf.dtype)


def host_copy(leaf: jax.Array | np.ndarray) -> np.ndarray:
    """Returns a copy of a leaf as a NumPy array in C order, in the byte order of the machine."""
    # A copy even of NumPy arrays: the caller may change them while the save is written.
    array = np.array(leaf, order="C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def facts_of(array: np.ndarray) -> dict[str, Any]:
    """Returns the shape, dtype and checksum of an array, for the manifest."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "crc32": f"{array_checksum(array):08x}",
    }


def dtype_of(name: str) -> np.dtype:
    """Returns the dtype of a name, including the small floats and integers of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def array_checksum(array: np.ndarray) -> int:
    """Returns the checksum of an array's bytes in C order."""
    return checksum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def kind_of(leaf: jax.Array | np.ndarray) -> tuple[str, list[int]]:
    """Returns `(dtype, shape)` of the array that is stored for a leaf."""
    if is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    elif not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    return np.dtype(leaf.dtype).name, list(leaf.shape)


def check_structure(where: str, saved: Mapping[str, Any], like: object) -> None:
    """Rejects a save whose arrays differ from those of a tree in name, shape or dtype.

    Raises:
        CheckpointError: with the missing, unexpected and different arrays.
    """
    expected_kinds = {name: kind_of(leaf) for name, leaf in named_leaves(like).items()}
    saved_kinds = {name: (facts["dtype"], facts["shape"]) for name, facts in saved.items()}
    differences = [
        f"{name} is {_text(saved_kinds[name])}, expected {_text(kind)}"
        for name, kind in expected_kinds.items()
        if name in saved_kinds and saved_kinds[name] != kind
    ]
    parts = [
        _listed("missing in the save", [n for n in expected_kinds if n not in saved_kinds]),
        _listed("unexpected in the save", [n for n in saved_kinds if n not in expected_kinds]),
        _listed("of another shape or dtype", differences),
    ]
    if any(parts):
        raise CheckpointError(
            f"{where}: expected a save of the same structure; these arrays differ.\n"
            + "".join(f"  {part}\n" for part in parts if part)
            + "Restore with the model, optimizer and callbacks of the save, or use another folder."
        )


def _text(kind: tuple[str, list[int]]) -> str:
    return f"{kind[0]}{kind[1]}"


def _listed(what: str, entries: Sequence[str]) -> str:
    if not entries:
        return ""
    more = f", and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return f"{what} ({len(entries)}): {', '.join(entries[:_SHOWN])}{more}"


def loses_bits(dtype: np.dtype) -> bool:
    """Returns whether a JAX array would lose bits of a dtype: 64 bits without x64 mode."""
    return jax.dtypes.canonicalize_dtype(dtype) != dtype


def sharding_of(leaf: jax.Array | np.ndarray) -> Any:
    """Returns the sharding that a restored leaf must have, or None."""
    # An uncommitted array must stay uncommitted: a committed one could not be combined with arrays
    # on other devices.
    committed = not isinstance(leaf, jax.Array) or leaf.committed
    return getattr(leaf, "sharding", None) if committed else None


def put_leaf(leaf: jax.Array | np.ndarray, array: np.ndarray) -> Any:
    """Returns an array as the type of a leaf and on its devices.

    The leaf is a JAX array, a NumPy array, a Python number, or a `ShapeDtypeStruct`, for which the
    result is a JAX array with the sharding of the struct, if any.
    """
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return type(leaf)(array.item())
    if isinstance(leaf, np.generic):
        return array[()]
    if isinstance(leaf, np.ndarray):
        return array.astype(leaf.dtype, copy=False)  # the same dtype, in the leaf's byte order
    if loses_bits(array.dtype):
        return array
    sharding = sharding_of(leaf)
    if is_key(leaf):
        data = jax.device_put(array)
        key = jax.random.wrap_key_data(data, impl=generator(leaf))
        return key if sharding is None else jax.device_put(key, sharding)
    # A separate buffer: a step may donate the array.
    return jax.device_put(array, sharding, may_alias=False)

"""A pytree as arrays by name, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.core import Tracer

from fkeras.training.checkpoint.files.disk import checksum
from fkeras.training.checkpoint.files.errors import CheckpointError

_SHOWN = 10


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves by the path to each, such as "model/dense/kernel"; two equal paths get a number.

    Example:
        >>> named_leaves({"a": [1, 2], "b": None})
        {'a/0': 1, 'a/1': 2}
    """
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = unique = jax.tree_util.keystr(path, simple=True, separator="/") or "value"
        number = 1
        while unique in named:
            number += 1
            unique = f"{name}#{number}"
        named[unique] = leaf
    return named


def host_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Copies of the arrays of a tree on the host, by name; the tree's own may then be donated.

    Raises:
        TypeError: for a leaf that is no array and no number.
        CheckpointError: for an array that was donated before, or is not in this process.
    """
    named = named_leaves(tree)
    for name, leaf in named.items():
        _check_leaf(name, leaf)
    plain = {name: _plain(leaf) for name, leaf in named.items()}
    for leaf in plain.values():
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()
    return {name: _copy(leaf) for name, leaf in plain.items()}


def _check_leaf(name: str, leaf: Any) -> None:
    if isinstance(leaf, jax.Array):
        if isinstance(leaf, Tracer):
            problem = "is being traced. Save outside of jit, grad and vmap"
        elif leaf.is_deleted():
            problem = "was donated to a compiled function. Save what that function returned"
        elif not leaf.is_fully_addressable:
            problem = "is spread over several processes. Gather it in one first"
        else:
            return
        raise CheckpointError(
            f"Store.save: expected an array with numbers, and {name!r} {problem}."
        )
    array = np.asarray(leaf)
    # small floats of ml_dtypes are of kind "V", with a name of their own
    if array.dtype.kind in "OUSMmT" or array.dtype.names or array.dtype.name.startswith("void"):
        raise TypeError(
            f"Store.save: expected arrays and numbers in the tree, received {leaf!r:.80} at "
            f"{name!r}. Put what is no number into info."
        )


def _plain(leaf: Any) -> Any:
    """An array of numbers: of a typed key its data."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _generator(leaf: Any) -> Any:
    """The generator of a typed key, also of one that is but a shape and a dtype."""
    if isinstance(leaf, jax.Array):
        return jax.random.key_impl(leaf)
    names = ("threefry2x32", "rbg", "unsafe_rbg")
    return next(name for name in names if jax.random.key(0, impl=name).dtype == leaf.dtype)


def _copy(leaf: Any) -> np.ndarray:
    array = np.array(leaf, order="C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def facts_of(array: np.ndarray) -> dict[str, Any]:
    """Shape, dtype and checksum of an array, for the manifest."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "crc32": f"{array_checksum(array):08x}",
    }


def dtype_of(name: str) -> np.dtype:
    """The dtype of a name, those of small floats and whole numbers too.

    Example:
        >>> dtype_of("bfloat16").itemsize
        2
    """
    return np.dtype(getattr(ml_dtypes, name, name))


def array_checksum(array: np.ndarray) -> int:
    """The checksum of an array's bytes in C order.

    Example:
        >>> array_checksum(np.zeros(2, "int8")) == checksum(bytes(2))
        True
    """
    return checksum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _kind(leaf: Any) -> tuple[str, list[int]]:
    """`(dtype, shape)` of what is stored for a leaf."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    elif not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    return np.dtype(leaf.dtype).name, list(leaf.shape)


def check_structure(where: str, saved: Mapping[str, Any], like: Any) -> None:
    """Raises where the arrays of a save are not those of a tree.

    Args:
        where: the save, for the message.
        saved: shape and dtype of each array of the save, by name.
        like: the tree that asks for them.

    Raises:
        CheckpointError: it lists what is missing, what is unexpected and what differs.
    """
    wanted = {name: _kind(leaf) for name, leaf in named_leaves(like).items()}
    kinds = {name: (facts["dtype"], facts["shape"]) for name, facts in saved.items()}
    others = [
        f"{name} is {_text(kinds[name])}, expected {_text(kind)}"
        for name, kind in wanted.items()
        if name in kinds and kinds[name] != kind
    ]
    parts = [
        _listed("missing in the save", [n for n in wanted if n not in kinds]),
        _listed("unexpected in the save", [n for n in kinds if n not in wanted]),
        _listed("of another shape or dtype", others),
    ]
    if any(parts):
        raise CheckpointError(
            f"{where}: expected a save of the same structure, received another.\n"
            + "".join(f"  {part}\n" for part in parts if part)
            + "Restore into what was saved (the same model, optimizer and callbacks), or use "
            "another folder."
        )


def _text(kind: tuple[str, list[int]]) -> str:
    return f"{kind[0]}{kind[1]}"


def _listed(what: str, entries: Sequence[str]) -> str:
    if not entries:
        return ""
    more = f", and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return f"{what} ({len(entries)}): {', '.join(entries[:_SHOWN])}{more}"


def put_into(arrays: Mapping[str, np.ndarray], like: Any) -> Any:
    """The tree `like` with these arrays for its leaves.

    Each is what the leaf is: a JAX array where the leaf's lies, a NumPy array or a Python number. A
    `ShapeDtypeStruct` gives a JAX array, in its sharding where it has one.
    """
    leaves = [_as(leaf, arrays[name]) for name, leaf in named_leaves(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _as(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return type(leaf)(array.item())
    if isinstance(leaf, np.generic):
        return array[()]
    if isinstance(leaf, np.ndarray):
        return array.astype(leaf.dtype, copy=False)  # the same dtype, in the leaf's byte order
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        return array  # 64 bits, where JAX has but 32
    settled = not isinstance(leaf, jax.Array) or leaf.committed
    sharding = getattr(leaf, "sharding", None) if settled else None
    if _is_key(leaf):
        data = jax.device_put(array)
        key = jax.random.wrap_key_data(data, impl=_generator(leaf))
        return key if sharding is None else jax.device_put(key, sharding)
    # a buffer of its own, which may be donated
    return jax.device_put(array, sharding, may_alias=False)

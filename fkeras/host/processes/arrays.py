"""Arrays on the devices of several processes: placing values that every process has.

`jax.device_put` to devices of other processes compares the values of all processes, and asks for
communication where none is needed. Every process has the whole value here, and takes its own shards.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Sharding


def put(array: Any, layout: Sharding) -> jax.Array:
    """Returns an array with a layout, as `jax.device_put`, also on devices of other processes.

    Args:
        array: a NumPy array, a number or an array of this process, with the same value in every
            process; or an array that is spread over the processes. Typed keys are allowed.
        layout: a sharding. If its devices belong to several processes, each process places its
            shards without communication; a spread array changes its layout on the devices.

    Raises:
        ValueError: for an array whose shards lie on other processes than those of the layout.

    Example:
        >>> import numpy as np
        >>> from jax.sharding import SingleDeviceSharding
        >>> put(np.ones(2, "float32"), SingleDeviceSharding(jax.devices()[0]))
        Array([1., 1.], dtype=float32)
    """
    if isinstance(array, Tracer):
        return jax.device_put(array, layout)
    spread = isinstance(array, jax.Array) and not array.is_fully_addressable
    if layout.is_fully_addressable and not spread:
        return jax.device_put(array, layout)
    if spread:
        return _moved(array, layout)
    if isinstance(jax.lax.full((), 0, "int32"), Tracer):
        # a constant of a trace, for whose devices the process may have no more than the compiler
        return jax.device_put(array, layout)
    if is_key(array):
        data = put(jax.random.key_data(array), layout)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
    host = np.asarray(array)
    # the 64 bits of NumPy's default dtypes become 32, as in `jax.device_put`
    host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)
    return jax.make_array_from_callback(host.shape, layout, lambda index: host[index])


def is_key(array: Any) -> bool:
    """Returns whether an array, or a spec, is of typed keys."""
    return hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def on_host(array: Any) -> Any:
    """Returns an array as a NumPy array; returns typed keys, which NumPy lacks, unchanged."""
    return array if is_key(array) else np.asarray(array)


def with_key_data(tree: Any) -> Any:
    """Replaces the typed keys in a tree by their data."""
    return jax.tree.map(lambda a: jax.random.key_data(a) if is_key(a) else a, tree)


def with_keys(like: Any, tree: Any) -> Any:
    """Inverts `with_key_data`: wraps the data in the places where `like` has typed keys."""

    def key(old: Any, new: Any) -> Any:
        return jax.random.wrap_key_data(new, impl=jax.random.key_impl(old)) if is_key(old) else new

    return jax.tree.map(key, like, tree)


def _moved(array: jax.Array, layout: Sharding) -> jax.Array:
    """Returns an array of several processes with another layout."""
    if array.sharding.is_equivalent_to(layout, array.ndim):
        return array
    if array.sharding.device_set == layout.device_set:
        # All processes make this call, so that XLA may move the shards between them.
        return jax.jit(_same, out_shardings=layout)(array)
    if array.is_fully_replicated:
        return put(array.addressable_data(0), layout)
    raise ValueError(
        f"expected an array on the devices of the layout, {layout}, received an array "
        f"{array.dtype.name}{list(array.shape)} that is split over other processes. Gather the "
        "array in those processes first, for example with fk.save_weights."
    )


def _same(array: jax.Array) -> jax.Array:
    return array

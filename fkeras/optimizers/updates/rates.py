"""Access to the learning rate in an optimizer's state: reading and replacing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.typing import ArrayLike

_INSTEAD = (
    "Use an optimizer of fkeras with a number, such as fk.optimizers.Adam(1e-3), or "
    "optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)"
)


def learning_rate(opt_state: optax.OptState) -> jax.Array:
    """Returns the learning rate in an optimizer's state.

    Args:
        opt_state: the state of an optimizer of `fk.optimizers`, or an optax state that contains a
            state of `optax.inject_hyperparams`, for example in a chain.

    Returns:
        A float array: of shape (), or with the axes of a population of runs.

    Raises:
        ValueError: if a schedule computes the rate, or if the state holds several rates or no rate.
            States of plain optax transformations hold no rate.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> import fkeras as fk
        >>> state = fk.optimizers.Adam(0.25).transformation().init({"w": jnp.ones(2)})
        >>> learning_rate(state)
        Array(0.25, dtype=float32)
        >>> optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)
        >>> learning_rate(optax.chain(optax.clip(1.0), optimizer).init(jnp.ones(2)))
        Array(0.5, dtype=float32)
    """
    return _rate(_holder("learning_rate", opt_state))


def with_learning_rate(opt_state: optax.OptState, value: ArrayLike) -> Any:
    """Returns a copy of an optimizer's state with another learning rate.

    The new rate has the dtype, shape and device placement of the old rate, so that the new state
    does not cause a recompilation.

    Args:
        opt_state: a state as in `learning_rate`.
        value: the rate, a non-negative number or an array of such numbers.

    Raises:
        ValueError: in the cases of `learning_rate`, for a rate that optax computes from a schedule,
            and for a value that is not a finite non-negative number.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> state = fk.optimizers.Adam(0.25).transformation().init({"w": jnp.ones(2)})
        >>> with_learning_rate(state, 1e-4).learning_rate
        Array(0.0001, dtype=float32)
    """
    where = "with_learning_rate"
    holder = _holder(where, opt_state)
    # optax would overwrite the new rate with the schedule's rate in the next update
    if "learning_rate" in (getattr(holder, "hyperparams_states", None) or {}):
        raise _schedule_error(where)
    new_rate = _like(_rate(holder), value)
    return jax.tree.map(
        lambda node: _replaced(node, new_rate) if _holds(node) else node, opt_state, is_leaf=_holds
    )


def _holds(node: object) -> bool:
    return _is_optimizer_state(node) or "learning_rate" in _hyperparams(node)


def _is_optimizer_state(node: object) -> bool:
    return isinstance(node, tuple) and "learning_rate" in getattr(node, "_fields", ())


def _hyperparams(node: object) -> Mapping[str, Any]:
    hyperparams = getattr(node, "hyperparams", None)
    return hyperparams if isinstance(hyperparams, Mapping) else {}


def _rate(node: Any) -> jax.Array:
    return node.learning_rate if _is_optimizer_state(node) else node.hyperparams["learning_rate"]


def _replaced(node: Any, rate: jax.Array) -> Any:
    if _is_optimizer_state(node):
        return node._replace(learning_rate=rate)
    return node._replace(hyperparams={**node.hyperparams, "learning_rate": rate})


def _holder(where: str, opt_state: optax.OptState) -> Any:
    """Returns the single node of the state that holds a learning rate."""
    pairs = jax.tree_util.tree_flatten_with_path(opt_state, is_leaf=_holds)[0]
    holders = [(path, node) for path, node in pairs if _holds(node)]
    if not holders:
        kind = type(opt_state).__name__
        raise ValueError(
            f"{where}: expected an optimizer state with a learning rate, received {kind} without: "
            f"a plain optax transformation compiles the rate in as a constant. {_INSTEAD}."
        )
    if len(holders) > 1:
        shown = ", ".join(jax.tree_util.keystr(path) for path, _ in holders[:4])
        raise ValueError(
            f"{where}: expected a single learning rate, but the optimizer state has "
            f"{len(holders)}, at {shown}. Replace them in run.opt_state in a custom Callback."
        )
    if _rate(holders[0][1]) is None:
        raise _schedule_error(where)
    return holders[0][1]


def _schedule_error(where: str) -> ValueError:
    return ValueError(
        f"{where}: expected a constant learning rate, but this optimizer has a schedule, a "
        f"function of the step. {_INSTEAD}; or let only the schedule change the rate."
    )


def _like(old: jax.Array, value: ArrayLike) -> jax.Array:
    """Converts a value to the dtype, shape and placement of the old rate."""
    dtype = old.dtype
    if isinstance(value, Tracer) or isinstance(old, Tracer):
        return jnp.broadcast_to(jnp.asarray(value).astype(dtype), old.shape)
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf" or not np.all(np.isfinite(numbers) & (numbers >= 0)):
        raise ValueError(
            f"with_learning_rate: expected a number of 0 or more, received {value!r}. For example "
            "1e-4."
        )
    if numbers.ndim and numbers.shape != old.shape:
        raise ValueError(
            f"with_learning_rate: expected a number or an array of shape {tuple(old.shape)}, "
            f"received shape {numbers.shape}. Give one rate for each run of the population."
        )
    rate = np.full(old.shape, numbers).astype(dtype)
    # an uncommitted array stays uncommitted: committing it to a device would cause a recompilation
    sharding = old.sharding if isinstance(old, jax.Array) and old.committed else None
    return jax.device_put(rate, sharding)

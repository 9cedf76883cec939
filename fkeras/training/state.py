"""`TrainState`: everything that training changes, as one pytree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class TrainState:
    """Weights, state, optimizer, metric sums, step and key of a training.

    The key is a leaf in its plain form, two words of uint32: a typed key is put together in
    Python at every call of a compiled function. `run.key` is the typed key.

    Args:
        model: the model with its weights.
        state: what no gradient reaches: moving statistics, carries of recurrent layers.
        opt_state: the optimizer's state, over the trainable weights.
        metrics: the sums of the running epoch, by name.
        step: how many steps were taken, int32.
        key: the key that every step's own key is derived from, by the step's number; typed, or
            its data.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
        >>> int(run.step), run.model.count_params(), bool(run.key == jax.random.key(0))
        (0, 4, True)
    """

    __slots__ = ("impl", "key_data", "metrics", "model", "opt_state", "state", "step")

    def __init__(
        self,
        model: Any,
        state: Any,
        opt_state: Any,
        metrics: Any,
        step: Any,
        key: Any = None,
        impl: str = "threefry2x32",
        *,
        key_data: Any = None,
    ):
        if key is not None:
            key_data = key
            if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
                impl, key_data = str(jax.random.key_impl(key)), jax.random.key_data(key)
        put = object.__setattr__
        put(self, "model", model)
        put(self, "state", state)
        put(self, "opt_state", opt_state)
        put(self, "metrics", metrics)
        put(self, "step", step)
        put(self, "key_data", key_data)
        put(self, "impl", impl)

    @property
    def key(self) -> jax.Array:
        """The typed key of the training."""
        return jax.random.wrap_key_data(self.key_data, impl=self.impl)

    def replace(self, **fields: Any) -> TrainState:
        """A copy with other values in some fields."""
        old = {name: getattr(self, name) for name in (*_DATA, "impl")}
        return TrainState(**{**old, **fields})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"TrainState: a run is a value, so {name!r} cannot be set. Make a copy: "
            f"run = run.replace({name}=...)."
        )

    def __repr__(self) -> str:
        where = getattr(self.model, "where", type(self.model).__name__)
        return f"<TrainState of {where}, step {self.step}>"

    def __reduce__(self):
        return (TrainState, tuple(getattr(self, name) for name in (*_DATA, "impl")))


_DATA = ("model", "state", "opt_state", "metrics", "step", "key_data")
jax.tree_util.register_dataclass(TrainState, data_fields=list(_DATA), meta_fields=["impl"])


def own_copy(tree: Any) -> Any:
    """The tree in buffers of its own, which may be donated; compiles nothing."""

    def copy(leaf: Any) -> jax.Array:
        # a weak type would make the first step another program than the second
        if not isinstance(leaf, jax.Array) or leaf.weak_type:
            return jax.device_put(np.array(leaf))
        return jax.device_put(leaf, may_alias=False)

    return jax.tree.map(copy, tree)

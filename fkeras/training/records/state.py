"""`TrainState`: everything that training changes, as one pytree."""

from __future__ import annotations

import operator
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Layer, suggest

_FIELDS = ("model", "state", "opt_state", "metrics", "step", "key_data", "position", "memory")
_values = operator.attrgetter(*_FIELDS)

M = TypeVar("M", bound=Layer)  # the class of the model


class TrainState(Generic[M]):
    """Weights, state, optimizer, metric sums, step, key and place in the data of a training.

    The key is a leaf in its plain form, two words of uint32: a typed key is put together in
    Python at every call of a compiled function. `run.key` is the typed key.

    Args:
        model: the model with its weights.
        state: what no gradient reaches: moving statistics, carries of recurrent layers.
        opt_state: the optimizer's state, over the trainable weights by path.
        metrics: the sums of the running epoch, by name.
        step: how many steps were taken, int32.
        key: the key that every step's own key is derived from, by the step's number; typed, or
            its data.
        impl: the name of the key's generator, where `key` is its data.
        position: the epoch that runs and how many of its batches are done, int32 of shape (2,).
        memory: what callbacks remember, a pytree by the callback's name.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
        >>> int(run.step), run.model.count_params(), bool(run.key == jax.random.key(0))
        (0, 4, True)
    """

    __slots__ = (*_FIELDS, "impl")

    model: M
    state: dict[str, Any]
    opt_state: Any
    metrics: dict[str, Any]
    step: jax.Array
    key_data: jax.Array
    position: jax.Array | np.ndarray
    memory: dict[str, Any]
    impl: str

    def __init__(
        self,
        model: M,
        state: Any,
        opt_state: Any,
        metrics: Any,
        step: Any,
        key: Any,
        impl: str = "threefry2x32",
        *,
        position: Any = None,
        memory: Any = None,
    ):
        impl, key = _plain(key, impl)
        position = np.zeros(2, "int32") if position is None else position
        memory = {} if memory is None else dict(memory)
        _fill(self, impl, (model, state, opt_state, metrics, step, key, position, memory))

    @property
    def key(self) -> jax.Array:
        """The typed key of the training."""
        return jax.random.wrap_key_data(self.key_data, impl=self.impl)

    def replace(self, **fields: Any) -> TrainState[M]:
        """A copy with other values in some fields."""
        impl = self.impl
        if "key" in fields:
            impl, fields["key_data"] = _plain(fields.pop("key"), impl)
        unknown = next((name for name in fields if name not in _FIELDS), None)
        if unknown is not None:
            raise TypeError(
                f"TrainState.replace: there is no field {unknown!r}.{suggest(unknown, _FIELDS)} "
                f"The fields are: {', '.join(_FIELDS)}."
            )
        values = (fields.get(name, old) for name, old in zip(_FIELDS, _values(self), strict=True))
        return _fill(object.__new__(TrainState), impl, values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"TrainState: a run is a value, so {name!r} cannot be set. Make a copy: "
            f"run = run.replace({name}=...)."
        )

    def __repr__(self) -> str:
        where = getattr(self.model, "where", type(self.model).__name__)
        return f"<TrainState of {where}, step {self.step}>"

    def __reduce__(self):
        return (_unflatten, (self.impl, _values(self)))


def _plain(key: Any, impl: str) -> tuple[str, Any]:
    """`(impl, data)` of a typed key, or of a key's data."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(key)), jax.random.key_data(key)
    return impl, key


def _fill(run: TrainState[M], impl: str, values: Any) -> TrainState[M]:
    put = object.__setattr__
    put(run, "impl", impl)
    for name, value in zip(_FIELDS, values, strict=True):
        put(run, name, value)
    return run


def _unflatten(impl: str, values: Any) -> TrainState:
    return _fill(object.__new__(TrainState), impl, values)


def _flatten(run: TrainState) -> tuple[tuple, str]:
    return _values(run), run.impl


def _flatten_with_keys(run: TrainState) -> tuple[list, str]:
    keys = (jax.tree_util.GetAttrKey(name) for name in _FIELDS)
    return list(zip(keys, _values(run), strict=True)), run.impl


jax.tree_util.register_pytree_with_keys(TrainState, _flatten_with_keys, _unflatten, _flatten)


def own_copy(tree: Any) -> Any:
    """The tree in buffers of its own, which may be donated; compiles nothing."""

    def copy(leaf: Any) -> jax.Array:
        one = strong(leaf)
        return jax.device_put(one, may_alias=False) if one is leaf else one

    return jax.tree.map(copy, tree)


def strong(leaf: Any) -> jax.Array:
    """The array on the device, and of no weak type, which would make another program."""
    if not isinstance(leaf, jax.Array) or leaf.weak_type:
        return jax.device_put(np.array(leaf))
    return leaf


def split(run: TrainState) -> tuple[Any, tuple]:
    """`(structure, leaves)` of what a compiled step needs: all but place and memory."""
    leaves, structure = jax.tree.flatten(
        _fill(object.__new__(TrainState), run.impl, (*_values(run)[:-2], None, {}))
    )
    return structure, tuple(leaves)


def join(structure: Any, leaves: tuple, outer: TrainState) -> TrainState:
    """The run of these leaves, with the place and memory of `outer`."""
    inner = jax.tree.unflatten(structure, leaves)
    return inner.replace(position=outer.position, memory=outer.memory)

"""`TrainState`: all values that training changes, as one pytree."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine import Layer, suggest
from fkeras.engine.messages.html import html_table
from fkeras.engine.migration_hints.attributes import MissingAttributeError
from fkeras.engine.values.argument_types import ArrayLike

# The order of the leaves. `split` relies on `position` and `memory` being the last two fields.
_FIELDS = ("model", "state", "opt_state", "metrics", "step", "key_data", "position", "memory")
_values = operator.attrgetter(*_FIELDS)

M = TypeVar("M", bound=Layer)  # the class of the model


class TrainState(Generic[M]):
    """Weights, state, optimizer state, metric sums, step, key and data position of a training.

    The pytree holds the data of the key, two uint32 words, because JAX wraps and unwraps a typed
    key in Python at every call of a compiled function. `run.key` returns the typed key.

    Args:
        model: the model with its weights.
        state: values without gradients: moving statistics, carries of recurrent layers.
        opt_state: the optimizer's state, by paths of the trainable weights.
        metrics: the sums of the current epoch, by name.
        step: number of steps, int32.
        key: the key from which the key of every step is derived, with the step's number; a typed
            key or its data.
        impl: name of the key's generator, if `key` is data.
        position: the current epoch and the number of its finished batches, int32 of shape (2,).
        memory: memory of the callbacks, a pytree by the callback's name.

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
        state: Mapping[str, Any],
        opt_state: object,
        metrics: Mapping[str, Any],
        step: ArrayLike,
        key: jax.Array,
        impl: str = "threefry2x32",
        *,
        position: jax.Array | np.ndarray | None = None,
        memory: Mapping[str, Any] | None = None,
    ):
        impl, key = _plain(key, impl)
        position = np.zeros(2, "int32") if position is None else position
        memory = {} if memory is None else dict(memory)
        _fill(self, impl, (model, state, opt_state, metrics, step, key, position, memory))

    @property
    def key(self) -> jax.Array:
        """Typed key of the training."""
        return jax.random.wrap_key_data(self.key_data, impl=self.impl)

    def replace(self, **fields: Any) -> TrainState[M]:
        """Returns a copy with new values in some fields."""
        impl = self.impl
        if "key" in fields:
            impl, fields["key_data"] = _plain(fields.pop("key"), impl)
        unknown = next((name for name in fields if name not in _FIELDS), None)
        if unknown is not None:
            raise TypeError(
                f"TrainState.replace: unknown field {unknown!r}.{suggest(unknown, _FIELDS)} "
                f"The fields are: {', '.join(_FIELDS)}."
            )
        values = (fields.get(name, old) for name, old in zip(_FIELDS, _values(self), strict=True))
        return _fill(object.__new__(TrainState), impl, values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"TrainState: a run is immutable, so {name!r} cannot be set. Create a copy: "
            f"run = run.replace({name}=...)."
        )

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)

        def __call__(self, *inputs: Any, **options: Any) -> Any:
            raise TypeError(
                "TrainState: holds a model and cannot be called. Write `run.model(x, state=run.state)`, or "
                "`trainer.predict(run, x)`."
            )

    def __repr__(self) -> str:
        where = getattr(self.model, "_where", type(self.model).__name__)
        return f"<TrainState of {where}, step {self.step}>"

    def _repr_html_(self) -> str:
        """Returns the contents as a table and the model, folded, which notebooks show."""
        rows = [(name, *_contents(getattr(self, name))) for name in _FIELDS]
        table = html_table(("field", "contents", "arrays", "numbers"), rows, (2, 3))
        shown = getattr(self.model, "_repr_html_", None)
        model = f"<details><summary>model</summary>{shown()}</details>" if shown else ""
        return table + model

    def __reduce__(self):
        return (_unflatten, (self.impl, _values(self)))


def _contents(value: object) -> tuple[str, str, str]:
    """Returns a description of a field, the number of its arrays and the number of their elements."""
    leaves = [leaf for leaf in jax.tree.leaves(value) if hasattr(leaf, "shape")]
    size = sum(int(np.prod(leaf.shape)) for leaf in leaves)
    deleted = any(isinstance(leaf, jax.Array) and _is_deleted(leaf) for leaf in leaves)
    if deleted:
        text = "donated: the arrays no longer exist"
    elif isinstance(value, Layer):
        text = value._where
    elif isinstance(value, Mapping):
        text = ", ".join(map(str, value))
    elif len(leaves) == 1 and leaves[0] is value and size <= 4:
        text = str(value)
    else:
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}...", f"{len(leaves):,}", f"{size:,}"


def _is_deleted(array: jax.Array) -> bool:
    return not isinstance(array, Tracer) and array.is_deleted()


def _plain(key: jax.Array, impl: str) -> tuple[str, Any]:
    """Returns `(impl, data)` of a typed key, or of a key's data."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(key)), jax.random.key_data(key)
    return impl, key


def _fill(run: TrainState[M], impl: str, values: Iterable[Any]) -> TrainState[M]:
    # JAX unflattens a run with placeholder leaves (None, objects), so nothing is converted here.
    set_field = object.__setattr__
    set_field(run, "impl", impl)
    for name, value in zip(_FIELDS, values, strict=True):
        set_field(run, name, value)
    return run


def _unflatten(impl: str, values: Iterable[Any]) -> TrainState:
    return _fill(object.__new__(TrainState), impl, values)


def _flatten(run: TrainState) -> tuple[tuple, str]:
    return _values(run), run.impl


# With keys, messages and checkpoints name each leaf by its field and path.
def _flatten_with_keys(run: TrainState) -> tuple[list, str]:
    keys = (jax.tree_util.GetAttrKey(name) for name in _FIELDS)
    return list(zip(keys, _values(run), strict=True)), run.impl


jax.tree_util.register_pytree_with_keys(TrainState, _flatten_with_keys, _unflatten, _flatten)


def own_copy(tree: object) -> Any:
    """Returns a copy of the tree in new buffers, which may be donated; compiles nothing."""

    def copy(leaf: ArrayLike) -> jax.Array:
        array = strong(leaf)
        if array is not leaf:
            return array
        if isinstance(array, Tracer) or array.is_fully_addressable:
            return jax.device_put(array, may_alias=False)
        # each process copies its shards of an array of several processes
        shards = [jax.device_put(s.data, may_alias=False) for s in array.addressable_shards]
        return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)

    return jax.tree.map(copy, tree)


def strong(leaf: ArrayLike) -> jax.Array:
    """Returns the leaf on the device, strongly typed: a weak type would trigger recompilation."""
    # `np.array` copies: on CPUs `device_put` may alias the memory of a NumPy array. Typed keys, as in
    # states of optax, have no weak type.
    if not isinstance(leaf, jax.Array) or getattr(leaf, "weak_type", False):
        return jax.device_put(np.array(leaf))
    return leaf


def split(run: TrainState) -> tuple[Any, tuple]:
    """Returns `(structure, leaves)` for a compiled step: all fields but position and memory."""
    # Callbacks may change the structure of `memory` at any time, which would recompile the step.
    leaves, structure = jax.tree.flatten(
        _fill(object.__new__(TrainState), run.impl, (*_values(run)[:-2], None, {}))
    )
    return structure, tuple(leaves)


def without_arrays(run: TrainState) -> TrainState:
    """Returns the position, the memory and the key of a run alone."""
    return run.replace(model=None, state={}, opt_state=None, metrics={}, step=0)


def join(structure: Any, leaves: tuple, outer: TrainState) -> TrainState:
    """Returns the run of these leaves, with the position and memory of `outer`."""
    inner = jax.tree.unflatten(structure, leaves)
    return inner.replace(position=outer.position, memory=outer.memory)

"""Optimizer state in Keras's files: the order of the arrays, and conversion to and from JAX trees.

Keras numbers the variables of an optimizer: iterations, learning rate, then the slots of the
trainable weights, in an order specific to the optimizer. In this package the state is a tree with
names. A `layout` lists Keras's variables with their paths in the tree, for the reader and for the
writer.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Layer, snake_case, trainable_weights
from fkeras.engine.tree.weight_lists import weight_order
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.stored import Stored
from fkeras.optimizers import (
    Adafactor,
    Adam,
    AdamW,
    LossScaleOptimizer,
    MultiOptimizer,
    Nadam,
    Optimizer,
    RMSprop,
    transformation,
)
from fkeras.optimizers.by_pattern import keras_map
from fkeras.optimizers.updates.state import ACCUMULATOR, AVERAGE
from fkeras.saving.trained.nadam import product_after
from fkeras.saving.weights.filling import plain
from fkeras.training import TrainState
from fkeras.training.trainer import Optimizer as AnyOptimizer

STEP = "step"
# Keras stores most slots weight by weight (m and v of a weight, then of the next weight). These
# slots follow as a whole, as their optimizers create them in a second loop over the weights.
_APART = types.MappingProxyType(
    {
        Adam: ("velocity_hat",),
        AdamW: ("velocity_hat",),
        RMSprop: ("momentum", "average_gradient"),
    }
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """An array of an optimizer in a file.

    Attributes:
        what: name for messages, such as "momentum".
        weight: path of the weight that the array belongs to, or None.
        keys: leaves of the JAX state that hold the array, as `jax.tree_util.keystr` names them, or
            "step"; empty for an array without a leaf.
        value: number to write for an array without a leaf.
        whole: whether the array is an integer count.
    """

    what: str
    weight: str | None
    shape: tuple[int, ...]
    keys: tuple[str, ...] = ()
    value: float = 0.0
    whole: bool = False


# path of a group, and the arrays in the group "vars" inside
Groups = list[tuple[str, list[Entry]]]


def layout(
    optimizer: AnyOptimizer,
    config: Mapping[str, Any],
    weights: Mapping[str, Any],
    built: bool = True,
    at: str = "",
    scaled: bool = False,
) -> Groups:
    """Returns the groups of an optimizer in a file; the first group holds all arrays.

    Args:
        config: JSON form of the optimizer in the file, which orders the parts of a MultiOptimizer.
        weights: trainable weights, or their shapes, by path in Keras's order.
        built: whether the optimizer is built; for an unbuilt optimizer Keras stores scalars only.
        scaled: whether the optimizer is inside a LossScaleOptimizer. Keras does not store variables
            other than slots, such as Nadam's product, for these optimizers.

    Example:
        >>> import jax, fkeras as fk
        >>> weights = {"kernel": jax.ShapeDtypeStruct((3, 2), "float32")}
        >>> adam = fk.optimizers.Adam()
        >>> [entry.what for entry in layout(adam, fk.optimizers.serialize(adam), weights)[0][1]]
        ['iterations', 'learning rate', 'momentum', 'velocity']
    """
    if isinstance(optimizer, LossScaleOptimizer):
        # Keras's wrapper stores both too; the inner optimizer has the values in use
        scalars = [_count("iterations"), _number("learning rate")]
        if built:
            scalars.append(_count("step counter", f"{at}.step_counter"))
            scalars.append(_number("loss scale", f"{at}.scale"))
        inner_config = config["config"]["inner_optimizer"]
        inner = layout(optimizer.inner_optimizer, inner_config, weights, built, f"{at}.inner", True)
        return _with_outer(scalars, [("inner_optimizer", inner)])
    if isinstance(optimizer, MultiOptimizer):
        scalars = [_count("iterations", STEP), _number("learning rate")]
        return _with_outer(
            scalars, _members(optimizer, config["config"], weights, built, at, scaled)
        )
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{type(optimizer).__name__}: Keras's files have no known order for the state of this "
            "optimizer. Use an optimizer of fk.optimizers, or a subclass of fk.optimizers.Optimizer."
        )
    return [("", _own_entries(optimizer, weights if built else {}, at, scaled))]


def _count(what: str, *keys: str) -> Entry:
    return Entry(what, None, (), keys, whole=True)


def _number(what: str, *keys: str) -> Entry:
    return Entry(what, None, (), keys)


def _with_outer(scalars: list[Entry], members: list[tuple[str, Groups]]) -> Groups:
    """Returns the groups of an outer optimizer, whose first group repeats the inner arrays."""
    all_entries = [*scalars, *(entry for _, groups in members for entry in groups[0][1])]
    inner_groups = [
        (f"{name}/{group}" if group else name, entries)
        for name, groups in members
        for group, entries in groups
    ]
    return [("", all_entries), *inner_groups]


def _members(
    optimizer: MultiOptimizer,
    config: Mapping[str, Any],
    weights: Mapping[str, Any],
    built: bool,
    at: str,
    scaled: bool,
) -> list[tuple[str, Groups]]:
    map_config = config["optimizer_map"]["config"]
    inner = dict(optimizer.optimizer_map)
    patterns = [pattern for pattern, _ in optimizer.optimizer_map]
    # the key "patterns" is an extension of this package: a file without it was written by Keras,
    # which stores the default last
    if "patterns" not in map_config:
        patterns = [f"re:{key}" for key in map_config["optimizer_map"]] + ["*"]
    # a weight belongs to the first pattern that matches, whatever the order in the file
    ordered_patterns = [pattern for pattern, _ in optimizer.optimizer_map]
    pattern_by_path = {
        path: next((p for p in ordered_patterns if keras_map.fits(p, path)), None)
        for path in weights
    }
    members, names = [], []
    for pattern in patterns:
        matching_weights = {
            path: weight for path, weight in weights.items() if pattern_by_path[path] == pattern
        }
        state_path = f"{at}.states[{pattern!r}]"
        members.append(
            layout(
                inner[pattern],
                {},
                matching_weights,
                built and bool(matching_weights),
                state_path,
                scaled,
            )
        )
        names.append(snake_case(type(inner[pattern]).__name__))
    # Keras has a default optimizer besides the patterns: for Keras, the writer repeats the last
    # optimizer as the default, without weights
    if "patterns" in map_config:
        default_entries = layout(inner[patterns[-1]], {}, {}, False, at="-")[0][1]
        members.append([("", [dataclasses.replace(entry, keys=()) for entry in default_entries])])
        names.append(snake_case(type(inner[patterns[-1]]).__name__))
    groups = []
    for number, (name, group_entries) in enumerate(zip(names, members, strict=True)):
        previous_count = names[:number].count(name)
        groups.append(
            (
                f"optimizers/{name}_{previous_count}" if previous_count else f"optimizers/{name}",
                group_entries,
            )
        )
    return groups


def _own_entries(
    optimizer: Optimizer, weights: Mapping[str, Any], at: str, scaled: bool
) -> list[Entry]:
    # `iterations` is also the step of the run, unless a MultiOptimizer outside has a count
    step_keys = (STEP,) if ".states[" not in at else ()
    entries = [_count("iterations", f"{at}.count", *step_keys)]
    # Keras has no variable for a schedule
    if not callable(optimizer.learning_rate):
        rate = _number("learning rate", f"{at}.learning_rate")
        entries.append(dataclasses.replace(rate, value=optimizer.learning_rate))
    slots = _slots(optimizer, weights) if weights else {}

    def slot_entry(name: str, path: str) -> Entry:
        leaf, key = slots[name][path], f"{at}.slots[{name!r}][{path!r}]"
        if isinstance(optimizer, Adafactor) and name == "velocity" and len(weights[path].shape) > 1:
            # Keras overwrites this array at each step before reading it
            return Entry(name, path, tuple(weights[path].shape))
        return Entry(name, path, tuple(leaf.shape), (key,))

    # subclasses included, with the order of their base class
    separate_names = next((v for k, v in _APART.items() if isinstance(optimizer, k)), ())
    if isinstance(optimizer, Nadam):
        separate_names = ("product",)
    first_names = [name for name in (AVERAGE, ACCUMULATOR) if name in slots]
    interleaved_names = [name for name in slots if name not in (*first_names, *separate_names)]
    entries += [slot_entry(name, path) for name in first_names for path in weights]
    for path, weight in weights.items():
        names = [name for name in interleaved_names if slots[name][path] is not None]
        # the factors of such weights are placeholders, which Keras does not store in this case
        if isinstance(optimizer, Adafactor) and scaled and len(weight.shape) < 2:
            names = ["velocity"]
        entries += [slot_entry(name, path) for name in names]
    separate_entries = [
        [slot_entry(name, path) for path in weights] for name in separate_names if name in slots
    ]
    # Keras has one product for all weights; the state here has a leaf per weight
    if isinstance(optimizer, Nadam) and separate_entries:
        keys = tuple(key for entry in separate_entries[0] for key in entry.keys)
        return entries if scaled else [*entries, Entry("product", None, (), keys)]
    return entries + [entry for row in separate_entries for entry in row]


def _slots(optimizer: Optimizer, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the shapes of the slots, in the order in which the optimizer names them."""
    names: list[str] = []

    def init(weights: dict[str, Any]) -> dict[str, Any]:
        state: Any = optimizer.transformation().init(weights)
        slots = state.slots
        names.extend(slots)  # eval_shape returns dictionaries with sorted keys
        return slots

    shapes = jax.eval_shape(init, dict(weights))
    return {name: shapes[name] for name in names}


def trained(model: Layer) -> dict[str, Any]:
    """Returns the trainable weights by path, in the order of Keras's `trainable_variables`."""
    weights = trainable_weights(model)
    order = {path: number for number, path in enumerate(weight_order(plain(model)))}
    return dict(sorted(weights.items(), key=lambda item: order.get(item[0], len(order))))


def as_trained(optimizer: AnyOptimizer, opt_state: Any) -> Any:
    """Returns the optimizer with the weight decay of its state, stored as an option only.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> adam = fk.optimizers.AdamW()
        >>> state = adam.transformation().init({"w": jnp.ones(2)})
        >>> as_trained(adam, state._replace(weight_decay=jnp.float32(0.5)))
        AdamW(0.001, 0.5)
    """
    if isinstance(optimizer, LossScaleOptimizer):
        inner = as_trained(optimizer.inner_optimizer, opt_state.inner)
        return dataclasses.replace(optimizer, inner_optimizer=inner)
    if isinstance(optimizer, MultiOptimizer):
        pairs = tuple((p, as_trained(o, opt_state.states[p])) for p, o in optimizer.optimizer_map)
        return dataclasses.replace(optimizer, optimizer_map=pairs)
    if not isinstance(optimizer, Optimizer):
        return optimizer
    decay = getattr(opt_state, "weight_decay", None)
    # compare in float32: the option is a Python float, and the state holds its rounded value
    if decay is None or np.shape(decay) or np.float32(decay) == np.float32(optimizer.weight_decay):
        return optimizer
    return dataclasses.replace(optimizer, weight_decay=float(decay))


def with_products(optimizer: AnyOptimizer, opt_state: Any, scaled: bool = False) -> Any:
    """Returns the state with Nadam's products computed from the step count, if files lack them.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> nadam = fk.optimizers.Nadam(beta_1=0.5)
        >>> state = nadam.transformation().init({"w": jnp.ones(2)})
        >>> state = with_products(nadam, state._replace(count=jnp.int32(1)), scaled=True)
        >>> state.slots["product"]["w"].round(2)
        Array(0.26, dtype=float32)
    """
    if isinstance(optimizer, LossScaleOptimizer):
        return opt_state._replace(
            inner=with_products(optimizer.inner_optimizer, opt_state.inner, True)
        )
    if isinstance(optimizer, MultiOptimizer):
        inner = opt_state.states
        states = {p: with_products(o, inner[p], scaled) for p, o in optimizer.optimizer_map}
        return opt_state._replace(states=states)
    # only inside a LossScaleOptimizer: other files store the product
    if not scaled or not isinstance(optimizer, Optimizer) or "product" not in opt_state.slots:
        return opt_state
    product = product_after(optimizer, int(opt_state.count))
    full = jax.tree.map(lambda leaf: jnp.full_like(leaf, product), opt_state.slots["product"])
    return opt_state._replace(slots={**opt_state.slots, "product": full})


def leaves_of_state(opt_state: Any, step: jax.Array | np.ndarray | None) -> dict[str, Any]:
    """Returns the leaves of an optimizer's state, by the keys that a layout uses."""
    pairs = jax.tree_util.tree_flatten_with_path(opt_state)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs} | {STEP: step}


def written(
    groups: Groups, opt_state: Any, step: jax.Array | np.ndarray | None
) -> list[tuple[str, np.ndarray]]:
    """Returns `(path, array)` for all arrays of an optimizer in Keras's file."""
    leaves = leaves_of_state(opt_state, step)
    # one transfer of all leaves, which the device can overlap
    host = dict(zip(leaves, jax.device_get(list(leaves.values())), strict=True))
    arrays = []
    for group, entries in groups:
        vars_group = f"optimizer/{group}/vars" if group else "optimizer/vars"
        for number, entry in enumerate(entries):
            value = host[entry.keys[0]] if entry.keys else np.full(entry.shape, entry.value)
            array = np.asarray(value).astype("int32" if entry.whole else "float32")
            arrays.append((f"{vars_group}/{number}", array))
    return arrays


def restored(
    run: TrainState,
    optimizer: AnyOptimizer,
    weights: Mapping[str, Any],
    pairs: Sequence[tuple[Entry, Stored]],
    lacks_products: bool = False,
) -> TrainState:
    """Returns the run with the optimizer state and the step count of a file.

    Args:
        pairs: the optimizer's arrays in the file, which are read after a check of their shapes.
        lacks_products: whether the file lacks Nadam's products, see `with_products`.
    """
    init = transformation(optimizer).init
    arrays_by_key: dict[str, Any] = {}
    for entry, stored in pairs:
        if stored.shape != entry.shape:
            raise _mismatch(entry, f"of shape {entry.shape}, received shape {stored.shape}")
        if not entry.keys:
            continue
        array = stored.read()
        is_integer = jnp.issubdtype(array.dtype, np.integer)
        if not is_integer and (entry.whole or not jnp.issubdtype(array.dtype, np.floating)):
            raise _mismatch(entry, f"as numbers, received {array.dtype}")
        # the state holds counts as int32, and the next step adds 1
        if entry.whole and not 0 <= array < 2**31 - 1:
            raise _mismatch(entry, f"from 0 to {2**31 - 2}, received {array}")
        arrays_by_key |= dict.fromkeys(entry.keys, array)
    # shapes and dtypes of the initial state: leaves that the file replaces are never allocated
    step = np.asarray(arrays_by_key.pop(STEP, 0), "int32")
    paths, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(init, dict(weights)))
    dtypes = {jax.tree_util.keystr(path): leaf.dtype for path, leaf in paths}
    leaves = [
        arrays_by_key[key].astype(dtype) for key, dtype in dtypes.items() if key in arrays_by_key
    ]
    leaves_by_key = dict(
        zip([k for k in dtypes if k in arrays_by_key], jax.device_put(leaves), strict=True)
    )
    leaves_by_key |= _initial_leaves(
        [key for key in dtypes if key not in arrays_by_key], init, weights
    )
    opt_state = structure.unflatten([leaves_by_key[key] for key in dtypes])
    opt_state = with_products(optimizer, opt_state, lacks_products)
    return run.replace(opt_state=opt_state, step=jax.device_put(step))


def _initial_leaves(
    keys: Sequence[str], init: Callable[[Any], Any], weights: Mapping[str, Any]
) -> dict[str, Any]:
    """Computes only those leaves of an initial state that no file stores."""

    def requested_leaves(weights: dict[str, Any]) -> dict[str, Any]:
        leaves = leaves_of_state(init(weights), None)
        return {key: leaves[key] for key in keys}

    # under jit, XLA removes the computation of the leaves that `requested_leaves` does not return
    return jax.jit(requested_leaves)(dict(weights)) if keys else {}


def _mismatch(entry: Entry, problem: str) -> FileError:
    owner = f" of {entry.weight!r}" if entry.weight else ""
    return FileError(
        f"expected the {entry.what}{owner} {problem}. The state belongs to another optimizer or model, "
        "or is damaged; fk.load_model loads the model alone.",
        layer=entry.weight.rpartition("/")[0] or None if entry.weight else None,
    )

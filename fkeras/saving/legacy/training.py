"""A training out of a legacy file, where it stopped: optimizer, losses, metrics and their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.optimizers import Optimizer, OptimizerState
from fkeras.saving.errors import reading
from fkeras.saving.hdf5 import Store
from fkeras.saving.legacy.compiled import trainer_of
from fkeras.saving.legacy.opening import document, opened
from fkeras.saving.legacy.order import Orders, listed, ordered, trained
from fkeras.saving.legacy.origin import Origin, origin_of
from fkeras.saving.legacy.weights import stored_layers, words
from fkeras.saving.limits import Limits
from fkeras.saving.nadam import product_after
from fkeras.training import Trainer, TrainState
from fkeras.training.objective import output_specs

_GROUP = "optimizer_weights"
#: the names that files give to what is kept for each weight, and ours
_SLOTS = (
    ("velocity_hat", ("vhat", "velocity_hat", "v_hat")),
    ("accumulated_grad", ("accum_grad", "accumulated_grad")),
    ("accumulated_delta_var", ("accum_var", "accumulated_delta_var")),
    ("average_gradient", ("mg", "average_gradient")),
    ("momentum", ("m", "momentum", "momentums")),
    ("velocity", ("v", "velocity", "rms")),
    ("norm", ("u", "norm")),
    ("accumulator", ("accumulator",)),
    ("linear", ("linear",)),
)


def load_training(
    store: Store,
    file: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Trainer, TrainState]:
    """`(trainer, run)` of a legacy file of a compiled model; the next step is the one Keras takes.

    It is that of the run that was saved. Where a file lacks a part of the optimizer's state that the
    number of steps tells, as TensorFlow 2.11's lack Nadam's product, it is computed: Keras itself,
    opening that file, starts it anew.

    Args:
        store: the file.
        file: its path, for messages.
        custom_objects: the user's own classes and functions by name.
        limits: the greatest sizes.

    Raises:
        FileError: where the model was not compiled, or its optimizer cannot be made.
    """
    limits = limits or Limits()
    model, state, orders = opened(store, file, custom_objects, limits)
    origin = origin_of(store, "", file).at("/training_config")
    config = document(store, "training_config", origin, limits)
    if config is None:
        raise origin.error(
            "no training: the file has no attribute 'training_config', so the model was not "
            "compiled. Load it with fk.load_model, and make a Trainer."
        )
    with reading(origin.file, origin.member):
        names = [str(name) for name in output_specs(model)]
        trainer = trainer_of(config, names, origin, custom_objects or {})
        run = trainer.init(model, jax.random.key(0), state=state)
    if _GROUP in store.groups():
        run = _resumed(store, trainer, run, orders, origin.at(f"/{_GROUP}"))
    return trainer, run


def _resumed(
    store: Store, trainer: Trainer, run: TrainState, orders: Orders, origin: Origin
) -> TrainState:
    names = words(store, _GROUP, "weight_names", origin)
    if not names:
        return run
    if not isinstance(trainer.optimizer, Optimizer):
        raise origin.error(
            f"the state of an optimizer that is not known here, {type(trainer.optimizer).__name__}. "
            "Load the model with fk.load_model, and make a Trainer of your own."
        )
    values = [store.read(f"{_GROUP}/{name}") for name in names]
    paths = trainable_paths(store, run, orders, origin)
    opt_state = opt_state_of(trainer.optimizer, run.opt_state, names, values, paths, origin)
    return run.replace(opt_state=opt_state, step=jax.device_put(np.asarray(opt_state.count)))


def trainable_paths(store: Store, run: TrainState, orders: Orders, origin: Origin) -> list[str]:
    """The paths of the trainable weights in the order in which the file's optimizer has them.

    Until 2.0.5 Keras sorted them by the names of their variables, such as "dense_10/bias:0".

    Args:
        store: the file.
        run: the run with its model.
        orders: the names of the layers of networks in the file's order.
        origin: who wrote the file.
    """
    model = run.model
    if not model.trainable:
        return []
    if origin.version >= (2, 0, 6):
        return [
            path
            for name in ordered(model, (), orders)
            for path in trained(model.layers[name], (name,), orders)
        ]
    found: list[tuple[str, str]] = []
    for name, group, stored in stored_layers(store, model, run.state, orders):
        layer, below = model.layers[name], run.state.get(name, {})
        names = [n for unit in listed(layer, below, (name,), orders) for n in unit.names]
        wanted = set(trained(layer, (name,), orders))
        pairs = zip((path.removeprefix(f"{group}/") for path in stored), names, strict=False)
        found += [(word, path) for word, path in pairs if path in wanted]
    return [path for _, path in sorted(found)]


def opt_state_of(
    optimizer: Optimizer,
    state: OptimizerState,
    names: Sequence[str],
    values: Sequence[np.ndarray],
    paths: Sequence[str],
    origin: Origin,
) -> OptimizerState:
    """An optimizer's state with the arrays of a file.

    Args:
        optimizer: the optimizer.
        state: the state before the first step.
        names: the file's names of the arrays.
        values: the arrays.
        paths: the paths of the trainable weights in the file's order.
        origin: who wrote the file.

    Raises:
        FileError: where the arrays are those of another optimizer or model.
    """
    scalars, rest = _split(names, values, len(paths))
    count = scalars[0] if scalars else 0.0
    if not 0 <= count < 2**31 - 1:
        raise origin.error(f"expected a number of steps, received {count}. The file is damaged.")
    groups = _groups(rest, len(paths))
    slots = {}
    wanted = [n for n in state.slots if n != "product"]
    for number, slot in enumerate(wanted):
        found = groups.get(slot, groups.get(number))
        if found is None:
            raise origin.error(
                f"expected {len(wanted)} arrays for each of {len(paths)} weights ("
                f"{', '.join(wanted) or 'none'}), received {len(values)} in all. It is the state "
                "of another optimizer; load the model with fk.load_model, and make a Trainer."
            )
        slots[slot] = _filled(state.slots[slot], slot, dict(zip(paths, found, strict=True)), origin)
    if "product" in state.slots:
        product = scalars[1] if len(scalars) > 1 else product_after(optimizer, int(count))
        slots["product"] = jax.tree.map(
            lambda leaf: jnp.full_like(leaf, product), state.slots["product"]
        )
    return state._replace(count=jnp.asarray(int(count), state.count.dtype), slots=slots)


def _split(
    names: Sequence[str], values: Sequence[np.ndarray], weights: int
) -> tuple[list[float], list[tuple[str, np.ndarray]]]:
    """The numbers at the start, such as the count of steps, and the arrays of the weights."""
    scalars: list[float] = []
    rest = list(zip(names, values, strict=True))
    known = ("iter", "learning_rate", "m_schedule", "momentum_cache", "variable")
    while (
        rest
        and rest[0][1].shape == ()
        and (
            not weights
            or len(rest) % weights
            or any(word in rest[0][0].rsplit("/", 1)[-1].lower() for word in known)
        )
    ):
        name, value = rest.pop(0)
        if "learning_rate" not in name.lower():
            scalars.append(float(value))
    if rest and rest[-1][1].shape == () and weights and len(rest) % weights == 1:
        scalars.append(float(rest.pop()[1]))  # Keras 3's Nadam keeps its product at the end
    return scalars, rest


def _groups(rest: Sequence[tuple[str, np.ndarray]], weights: int) -> dict[Any, list[np.ndarray]]:
    """Arrays by slot: by the words in their names, and by number where they stand in groups."""
    made: dict[Any, list[np.ndarray]] = {}
    if weights and len(rest) % weights == 0:
        for number in range(len(rest) // weights):
            made[number] = [v for _, v in rest[number * weights : (number + 1) * weights]]
    named: dict[str, list[np.ndarray]] = {}
    for name, value in rest:
        slot = _slot(name)
        if slot is not None:
            named.setdefault(slot, []).append(value)
    if sum(map(len, named.values())) == len(rest):
        made |= {slot: found for slot, found in named.items() if len(found) == weights}
    return made


def _slot(name: str) -> str | None:
    """The slot that a name such as "Adam/m/dense/kernel:0" or "adam/dense_kernel_momentum" tells."""
    parts = name.split(":")[0].split("/")
    for slot, marks in _SLOTS:
        if parts[-1] in marks or (len(parts) > 2 and parts[1] in marks):
            return slot
    for slot, marks in _SLOTS:
        if any(parts[-1].endswith(f"_{mark}") for mark in marks if len(mark) > 3):
            return slot
    return None


def _filled(
    slot: Mapping[str, Any], word: str, found: Mapping[str, np.ndarray], origin: Origin
) -> dict[str, Any]:
    made = {}
    for path, leaf in slot.items():
        value = found.get(path)
        if value is None or value.shape != leaf.shape:
            got = "none" if value is None else f"shape {tuple(value.shape)}"
            raise origin.error(
                f"expected {word!r} of {path!r} of shape {tuple(leaf.shape)}, received {got}. It is "
                "the state of another optimizer or model; load the model with fk.load_model, and "
                "make a Trainer.",
                path.rpartition("/")[0] or None,
            )
        made[path] = jnp.asarray(value, leaf.dtype)
    return made

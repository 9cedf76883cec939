"""Resumes the training of a legacy HDF5 file: optimizer, losses, metrics and their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.authoring.engine import CustomObjects
from fkeras.authoring.saving import Entry, Origin, check_training, layout, origin_of, restored
from fkeras.authoring.training import output_specs
from fkeras.engine import trainable_weights
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.stored import Stored, loaded, unread
from fkeras.optimizers import Optimizer
from fkeras.saving.legacy.opening import document, load
from fkeras.saving.legacy.trained.compiled import trainer_of
from fkeras.saving.legacy.weights.order import Orders, listed, ordered, trained
from fkeras.saving.legacy.weights.weights import stored_layers, words
from fkeras.training import Trainer, TrainState

_GROUP = "optimizer_weights"
#: slot names in fkeras, and the names of the same slots in files of different Keras versions
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

_Arrays = Sequence[tuple[str, Stored]]
_Pairs = list[tuple[Entry, Stored]]


def load_training(
    store: Store,
    file: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Trainer, TrainState]:
    """Returns `(trainer, run)` of a compiled model in a legacy file, at the file's step count.

    The next step equals the next step of the saved run. State that the file lacks but that follows
    from the step count, such as Nadam's product in files of TensorFlow 2.11, is computed from the
    step count; Keras resets this state when it opens the file.

    Raises:
        FileError: if the model was not compiled, or the optimizer cannot be built.
    """
    limits = limits or Limits()
    model, state, orders = load(store, file, custom_objects, limits)
    origin = origin_of(store, "", file).at("/training_config")
    config = document(store, "training_config", origin, limits)
    if config is None:
        raise origin.error(
            "no training: the file has no attribute 'training_config', so the model was not "
            "compiled. Load it with fk.load_model, and make a Trainer."
        )
    with reading(origin.file, origin.member):
        names = [str(name) for name in output_specs(model)]
        trainer = trainer_of(config, names, origin, CustomObjects(custom_objects or {}))
        # `init` allocates the metrics' sums and matches patterns, both of which the file controls.
        check_training(trainer, model, list(trainable_weights(model)), limits)
        run = trainer.init(model, jax.random.key(0), state=state)
    if _GROUP in store.groups():
        run = _with_optimizer_state(store, trainer, run, orders, origin.at(f"/{_GROUP}"))
    return trainer, run


def _with_optimizer_state(
    store: Store, trainer: Trainer, run: TrainState, orders: Orders, origin: Origin
) -> TrainState:
    names = words(store, _GROUP, "weight_names", origin)
    if not names:
        return run
    optimizer = trainer.optimizer
    if not isinstance(optimizer, Optimizer):
        raise origin.error(
            f"expected an optimizer of fk.optimizers, received {type(optimizer).__name__}, whose "
            "state fkeras cannot read. Load the model with fk.load_model, and make your own Trainer."
        )
    # Keras 3 writes its optimizer arrays in a fixed order; older versions changed the order.
    arrays = [(name, unread(store, f"{_GROUP}/{name}")) for name in names]
    with reading(origin.file, origin.member):
        all_weights = trainable_weights(run.model)
        weights = {path: all_weights[path] for path in trainable_paths(store, run, orders, origin)}
        entries = layout(optimizer, {}, weights)[0][1]
        pair = _in_order if origin.major == 3 else _by_name
        pairs = pair(entries, arrays, list(weights))
        has_product = any(entry.what == "product" for entry, _ in pairs)
        return restored(run, optimizer, weights, pairs, lacks_products=not has_product)


def trainable_paths(store: Store, run: TrainState, orders: Orders, origin: Origin) -> list[str]:
    """Returns the paths of the trainable weights in the order of the file's optimizer.

    Until version 2.0.5, Keras sorted the weights by variable name, such as "dense_10/bias:0".
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
    named_paths: list[tuple[str, str]] = []
    for name, group, stored in stored_layers(store, model, run.state, orders):
        layer, layer_state = model.layers[name], run.state.get(name, {})
        names = [n for unit in listed(layer, layer_state, (name,), orders) for n in unit.names]
        trainable = set(trained(layer, (name,), orders))
        # Sort by the names in the file: the same layer has another variable name in fkeras.
        pairs = zip((path.removeprefix(f"{group}/") for path in stored), names, strict=False)
        named_paths += [(stored_name, path) for stored_name, path in pairs if path in trainable]
    return [path for _, path in sorted(named_paths)]


def _in_order(entries: Sequence[Entry], arrays: _Arrays, paths: Sequence[str]) -> _Pairs:
    """Pairs entries with arrays of Keras 3, which have the order of its `.keras` files."""
    if len(arrays) != len(entries):
        raise _mismatch(f"{len(entries)} arrays for {len(paths)} weights", arrays)
    return [(entry, array) for entry, (_, array) in zip(entries, arrays, strict=True)]


def _by_name(entries: Sequence[Entry], arrays: _Arrays, paths: Sequence[str]) -> _Pairs:
    """Pairs entries with arrays of Keras 1 and 2 by slot name, because their order varies."""
    scalars, slot_arrays = _split(arrays, len(paths))
    count = scalars[0] if scalars else 0.0
    if not 0 <= count < 2**31 - 1:
        raise FileError(f"expected a number of steps, received {count}. The file is damaged.")
    pairs = [(entry, loaded(np.asarray(int(count)))) for entry in entries if entry.whole]
    # A second scalar is Nadam's momentum product, the only other scalar besides the step count.
    products = [entry for entry in entries if entry.what == "product"]
    if len(scalars) > 1:
        pairs += [(entry, loaded(np.asarray(scalars[1], "float32"))) for entry in products]
    slot_entries = [
        entry for entry in entries if entry.weight and entry.keys and entry not in products
    ]
    slots = list(dict.fromkeys(entry.what for entry in slot_entries))
    groups = _groups(slot_arrays, len(paths))
    for number, slot in enumerate(slots):
        # Positions are the fallback for files whose names contain no known slot.
        group = groups.get(slot, groups.get(number))
        if group is None:
            expected_arrays = f"{len(slots)} arrays for each of {len(paths)} weights"
            raise _mismatch(f"{expected_arrays} ({', '.join(slots)})", arrays)
        by_path: dict[str | None, Stored] = dict(zip(paths, group, strict=True))
        pairs += [(entry, by_path[entry.weight]) for entry in slot_entries if entry.what == slot]
    return pairs


def _mismatch(expected: str, arrays: _Arrays) -> FileError:
    return FileError(
        f"expected {expected}, received {len(arrays)} in all. The state belongs to another "
        "optimizer; load the model with fk.load_model, and make a Trainer."
    )


def _split(arrays: _Arrays, weights: int) -> tuple[list[float], list[tuple[str, Stored]]]:
    """Splits off the leading scalars, such as the step count, from the slots of the weights."""
    scalars: list[float] = []
    slot_arrays = list(arrays)
    scalar_names = ("iter", "learning_rate", "m_schedule", "momentum_cache", "variable")
    # A slot of a scalar weight has shape () too: a leading scalar counts as a scalar of the
    # optimizer only if its name says so, or if the rest does not divide into whole slots.
    while (
        slot_arrays
        and slot_arrays[0][1].shape == ()
        and (
            not weights
            or len(slot_arrays) % weights
            or any(
                scalar_name in slot_arrays[0][0].rsplit("/", 1)[-1].lower()
                for scalar_name in scalar_names
            )
        )
    ):
        name, value = slot_arrays.pop(0)
        if "learning_rate" not in name.lower():
            scalars.append(float(value.read()))
    if (
        slot_arrays
        and slot_arrays[-1][1].shape == ()
        and weights
        and len(slot_arrays) % weights == 1
    ):
        scalars.append(
            float(slot_arrays.pop()[1].read())
        )  # some versions of Nadam store the product last
    return scalars, slot_arrays


def _groups(arrays: _Arrays, weights: int) -> dict[Any, list[Stored]]:
    """Groups arrays by slot name, and by position if the file lists one slot after another."""
    groups: dict[Any, list[Stored]] = {}
    if weights and len(arrays) % weights == 0:
        for number in range(len(arrays) // weights):
            groups[number] = [v for _, v in arrays[number * weights : (number + 1) * weights]]
    named: dict[str, list[Stored]] = {}
    for name, value in arrays:
        slot = _slot(name)
        if slot is not None:
            named.setdefault(slot, []).append(value)
    # Use names only if every array has a known slot name; otherwise the positions decide.
    if sum(map(len, named.values())) == len(arrays):
        groups |= {
            slot: slot_arrays for slot, slot_arrays in named.items() if len(slot_arrays) == weights
        }
    return groups


def _slot(name: str) -> str | None:
    """Returns the slot in a name like "Adam/m/dense/kernel:0" or "adam/dense_kernel_momentum"."""
    parts = name.split(":")[0].split("/")
    for slot, marks in _SLOTS:
        if parts[-1] in marks or (len(parts) > 2 and parts[1] in marks):
            return slot
    for slot, marks in _SLOTS:
        # Short marks such as "m" are too ambiguous as suffixes of a weight's name.
        if any(parts[-1].endswith(f"_{mark}") for mark in marks if len(mark) > 3):
            return slot
    return None

"""Bad input, told before the first step: which array, which row, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import structure, sublayers
from fkeras.training import objective
from fkeras.training.state import TrainState


def check_run(run: Any, call: str) -> None:
    """Raises where `run` is no `TrainState`, with the line to write."""
    if not isinstance(run, TrainState):
        raise TypeError(
            f"Trainer.{call}: expected a TrainState first, received {type(run).__name__}. Write "
            f"`run = trainer.init(model, jax.random.key(0))`, then trainer.{call}(run, ...)."
        )


def check_size(name: str, value: Any) -> int:
    """A whole number above 0."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{name}: expected a whole number above 0, received {value!r}.")
    return int(value)


def named(tree: Any, what: str) -> list[tuple[str, np.ndarray]]:
    """The arrays of a tree with their places: `x`, `x[0]`, `x['left']`."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(f"{what}{jax.tree_util.keystr(path)}", leaf) for path, leaf in pairs]


def check_lengths(x: Any, y: Any = None, weights: Any = None) -> int:
    """The number of rows that all arrays share.

    Raises:
        ValueError: where they differ, or there are none.
    """
    arrays = [*named(x, "x"), *named(y, "y"), *named(weights, "sample_weight")]
    for name, array in arrays:
        if array.ndim == 0:
            raise ValueError(
                f"{name}: expected an array with a row for each example, received a single number."
            )
    rows = {name: len(array) for name, array in arrays}
    if len(set(rows.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise ValueError(
            f"The arrays differ in their number of rows: {shown}. Every array needs one row for "
            "each example."
        )
    count = next(iter(rows.values()), 0)
    if count == 0:
        raise ValueError("The data are empty: there is no row to work on. Pass at least one.")
    return count


def check_finite(tree: Any, what: str) -> None:
    """Raises where a number is nan or infinite: which array, which row, how many."""
    for name, array in named(tree, what):
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            continue
        with np.errstate(all="ignore"):
            if np.isfinite(np.sum(array)):  # one pass without a temporary; it may overflow
                continue
        wrong = ~np.isfinite(array)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            rows = np.unique(np.nonzero(wrong)[0]).size
            raise ValueError(
                f"{name}, row {place[0]}: expected finite numbers, received {array[place]} at "
                f"{list(place)}; {rows} of {len(array)} rows are concerned. Drop these rows or "
                "fill the numbers in."
            )


def check_inputs(model: Any, x: Any, size: int) -> None:
    """Raises where batches of `size` rows do not fit the model, before anything is compiled."""
    graph = model.graph
    given = structure.match(graph.inputs, _alone(graph, x))
    if given is not None:
        pairs = zip((graph.specs[slot] for slot in graph.input_slots), given, strict=True)
        if all(_fits(spec, value, size) for spec, value in pairs):
            return
    # something is wrong: the engine says what, without computing
    fixed = any(isinstance(graph.specs[slot].dims[0], int) for slot in graph.input_slots)
    first = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((size if fixed else len(a), *a.shape[1:]), a.dtype), x
    )
    state = jax.eval_shape(model.init_state)
    jax.eval_shape(lambda m, s, v: m.apply(v, state=s).value, model, state, first)


def check_ids(model: Any, x: Any) -> None:
    """Raises where numbers that go into a table (an Embedding) have no row in it.

    JAX would take the nearest row in silence.
    """
    graph = model.graph
    given = structure.match(graph.inputs, _alone(graph, x))
    for slot, array in zip(graph.input_slots, given or (), strict=False):
        if not jnp.issubdtype(array.dtype, jnp.integer) or array.size == 0:
            continue
        for call in graph.calls:
            size = getattr(model.layers[call.layer], "input_dim", None)
            if not isinstance(size, int) or not _takes(call, slot):
                continue
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= size:
                wrong = np.argwhere((array < 0) | (array >= size))[0]
                place = tuple(map(int, wrong))
                raise ValueError(
                    f"x, row {place[0]}: {call.layer!r} expected ids from 0 to {size - 1}, "
                    f"received {int(array[place])} at {list(place)}. Give the layer "
                    f"input_dim={high + 1} rows or more, or map the ids into its range."
                )


def is_single_batch(model: Any, x: Any, size: int) -> bool:
    """Whether `x` is one array of at most `size` rows in which every check finds nothing."""
    template = model.graph.inputs
    if type(x) is not np.ndarray or type(template) is not structure.Ref:
        return False
    spec = model.graph.specs[template.index]
    return (
        x.dtype == spec.dtype == "float32"
        and x.shape[1:] == spec.dims[1:]
        and 0 < x.shape[0] <= size
        and not isinstance(spec.dims[0], int)
        and bool(np.isfinite(x).all())
    )


def _takes(call: Any, slot: int) -> bool:
    leaves = structure.leaves(call.args) if call.args is not None else ()
    return any(isinstance(leaf, structure.Ref) and leaf.index == slot for leaf in leaves)


def _alone(graph: Any, x: Any) -> Any:
    # a list of one array serves a model of one input, as it does in the engine
    one = isinstance(graph.inputs, structure.Ref) and isinstance(x, list | tuple) and len(x) == 1
    return x[0] if one else x


def _fits(spec: Any, value: Any, size: int) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim != spec.ndim:
        return False
    whole = jnp.issubdtype(spec.dtype, jnp.integer)
    if whole and not jnp.issubdtype(value.dtype, jnp.integer):
        return False
    shape = (size, *value.shape[1:])
    pairs = zip(spec.dims, shape, strict=True)
    return all(want == have for want, have in pairs if isinstance(want, int))


def check_targets(trainer: Any, model: Any, y: Any) -> None:
    """Raises where targets do not fit their losses: labels out of range, one-hot or not, nan."""
    names = list(objective.output_specs(model))
    arrays = objective.by_output(y, names, "targets")
    heads = objective.heads(trainer, model, y)
    require_loss(heads)
    for head, array in zip(heads, arrays, strict=True):
        if head.loss is not None:
            shape = (len(array), *head.spec.shape[1:])
            head.loss.check_targets(array, jax.ShapeDtypeStruct(shape, "float32"))
    check_finite(y, "y")


def require_loss(heads: tuple) -> None:
    """Raises where no output has a loss."""
    if all(head.loss is None for head in heads):
        raise ValueError(
            "Trainer: there is no loss to optimize. Give one: fk.Trainer(optimizer='adam', "
            "loss='mse')."
        )


def check_weights(weights: Any) -> None:
    """Raises where sample weights are negative or not finite."""
    check_finite(weights, "sample_weight")
    for name, array in named(weights, "sample_weight"):
        if (array < 0).any():
            place = tuple(map(int, np.argwhere(array < 0)[0]))
            raise ValueError(
                f"{name}, row {place[0]}: expected a weight of 0 or more, received "
                f"{array[place]}. Use 0 for rows that shall not count."
            )


def class_weights(class_weight: Any, y: Any, model: Any) -> np.ndarray:
    """A weight for each example out of a weight for each class; 1 for a class without one.

    Raises:
        ValueError: for several outputs, or a class that the model's output does not have.
    """
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            "class_weight: expected a dictionary of weights by class number, received "
            f"{type(class_weight).__name__}. Write class_weight={{0: 1.0, 1: 2.5}}."
        )
    leaves, specs = jax.tree.leaves(y), list(objective.output_specs(model).values())
    if len(specs) != 1:
        raise ValueError(
            f"class_weight: expected a model with one output, received one with {len(specs)}. Pass "
            "sample_weight, one array for each output."
        )
    labels, units = leaves[0], specs[0].shape[-1]
    one_hot = labels.ndim == specs[0].ndim and units != 1 and labels.shape[-1] == units
    labels = labels.argmax(-1) if one_hot else labels
    if labels.size != len(labels):
        raise ValueError(
            f"class_weight: expected one class for each example, received targets of shape "
            f"{leaves[0].shape}. Pass sample_weight of shape {labels.shape}."
        )
    labels = labels.reshape(len(labels)).astype("int64")
    classes = 2 if units == 1 else units or int(labels.max()) + 1
    table = np.ones(classes, "float32")
    for number, weight in class_weight.items():
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or not 0 <= number < classes:
            raise ValueError(
                f"class_weight: there is no class {number!r}; the model's output has {classes} "
                f"classes (0..{classes - 1}). Give each class its weight by its number."
            )
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"class_weight: expected a weight of 0 or more for class {number}, received "
                f"{weight!r}."
            )
        table[number] = weight
    return table[labels]


def check_stateful(model: Any, count: int, batch_size: int, shuffle: bool) -> None:
    """Raises where layers carry state from batch to batch and batches do not fit together."""
    if not model.stateful:
        return
    # the layers that read sequences; the statistics of others have no rows
    stateful = [
        path or layer.where
        for path, layer in sublayers(model)
        if hasattr(type(layer), "return_sequences") and layer.stateful
    ]
    if not stateful:
        return
    if shuffle:
        raise ValueError(
            f"{stateful[0]!r} is stateful: row i of a batch goes on where row i of the batch before "
            "ended, so the order of rows has a meaning. Pass shuffle=False."
        )
    if count % batch_size:
        raise ValueError(
            f"{stateful[0]!r} is stateful: expected a number of rows that the batch size "
            f"{batch_size} divides, received {count}. Drop {count % batch_size} rows."
        )

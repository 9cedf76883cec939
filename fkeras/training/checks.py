"""Bad input, told before the first step: which array, which row, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import sublayers
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


def _named(tree: Any, what: str) -> list[tuple[str, np.ndarray]]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(f"{what}{jax.tree_util.keystr(path)}", leaf) for path, leaf in pairs]


def check_lengths(x: Any, y: Any = None, weights: Any = None) -> int:
    """The number of rows that all arrays share.

    Raises:
        ValueError: where they differ, or there are none.
    """
    arrays = [*_named(x, "x"), *_named(y, "y"), *_named(weights, "sample_weight")]
    for name, array in arrays:
        if array.ndim == 0:
            raise ValueError(f"{name}: expected an array with rows, received a single number.")
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
    for name, array in _named(tree, what):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            continue
        wrong = ~np.isfinite(array.astype("float32") if array.dtype.itemsize < 4 else array)
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
    fixed = any(isinstance(graph.specs[slot].dims[0], int) for slot in graph.input_slots)
    first = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((size if fixed else len(a), *a.shape[1:]), a.dtype), x
    )
    state = jax.eval_shape(model.init_state)
    jax.eval_shape(lambda m, s, v: m.apply(v, state=s).value, model, state, first)


def check_targets(trainer: Any, model: Any, y: Any) -> None:
    """Raises where targets do not fit their losses: labels out of range, one-hot or not, nan."""
    heads = objective.heads(trainer, model)
    if all(h.loss is None for h in heads):
        raise ValueError(
            "Trainer: there is no loss to optimize. Give one: fk.Trainer(optimizer='adam', "
            "loss='mse')."
        )
    arrays = objective.by_output(y, [h.name for h in heads], "targets")
    for head, array in zip(heads, arrays, strict=True):
        if head.loss is not None:
            shape = (len(array), *head.spec.shape[1:])
            head.loss.check_targets(array, jax.ShapeDtypeStruct(shape, "float32"))


def check_weights(weights: Any) -> None:
    """Raises where sample weights are negative or not finite."""
    check_finite(weights, "sample_weight")
    for name, array in _named(weights, "sample_weight"):
        if (array < 0).any():
            row = int(np.argwhere(array < 0)[0][0])
            raise ValueError(
                f"{name}, row {row}: expected a weight of 0 or more, received {array[row]}. Use 0 "
                "for rows that shall not count."
            )


def class_weights(class_weight: Mapping[int, float], y: Any) -> np.ndarray:
    """A weight for each example out of a weight for each class.

    Raises:
        ValueError: for several outputs, or a class without a weight.
    """
    leaves = jax.tree.leaves(y)
    if len(leaves) != 1:
        raise ValueError(
            f"class_weight: expected a model with one output, received {len(leaves)} arrays of "
            "targets. Pass sample_weight, one array for each output."
        )
    labels = leaves[0]
    if labels.ndim == 2 and labels.shape[1] > 1:
        labels = labels.argmax(-1)
    labels = labels.reshape(len(labels), -1)[:, 0].astype("int64")
    table = {int(k): float(v) for k, v in class_weight.items()}
    found = np.unique(labels)
    extra = sorted(set(table) - set(map(int, found)))
    if extra and (min(extra) < 0 or not set(map(int, found)) <= set(table)):
        raise ValueError(
            f"class_weight: there is no class {extra[0]} in the targets (classes "
            f"{', '.join(map(str, found[:10]))}). Give each class its weight by its number."
        )
    lookup = np.array([table.get(int(c), 1.0) for c in found], "float32")
    return lookup[np.searchsorted(found, labels)]


def check_stateful(model: Any, count: int, batch_size: int, shuffle: bool) -> None:
    """Raises where layers carry state from batch to batch and batches do not fit together."""
    stateful = [
        path or layer.where
        for path, layer in sublayers(model)
        if getattr(layer, "return_sequences", None) is not None and layer.stateful
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

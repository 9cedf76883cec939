"""Rejects bad data before the first step; messages name the array, the row and a remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine import Layer, Network, sublayers
from fkeras.engine.call.network_inputs import in_order
from fkeras.engine.config.converters import integer, real
from fkeras.engine.network.id_tables import id_tables
from fkeras.engine.tree.donated import check_donated
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.engine.values import structure
from fkeras.engine.values.argument_types import Arrays
from fkeras.engine.values.spec import Spec
from fkeras.training.data import batch_parts, host_arrays
from fkeras.training.data.stream_feed import specs
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs, step

if TYPE_CHECKING:
    from fkeras.training.trainer import Trainer


def check_run(run: object, call: str) -> None:
    """Rejects a `run` that is not a `TrainState`; the message shows the correct call."""
    if isinstance(run, tuple) and run and isinstance(run[0], TrainState):
        raise TypeError(
            f"Trainer.{call}: expected a TrainState first, received a tuple that begins with one: `step` and "
            "`fit` return two values. Write `run, logs = trainer.step(run, batch)` or `run, history = "
            "trainer.fit(run, x, y)`."
        )
    if not isinstance(run, TrainState):
        raise TypeError(
            f"Trainer.{call}: expected a TrainState first, received {type(run).__name__}. Write "
            f"`run = trainer.init(model, jax.random.key(0))`, then trainer.{call}(run, ...)."
        )


def check_outside_jit(run: object) -> None:
    """Rejects `fit` inside a transformation of JAX; the message shows the pure method."""
    if isinstance(getattr(run, "step", None), Tracer):
        raise TypeError(
            "Trainer.fit: reads data and calls callbacks, and cannot be traced by jax.jit, jax.grad or "
            "jax.vmap. Call fit outside, or the pure method: `run, logs = trainer.run(run, (x, y), "
            "epochs=2)`."
        )


def check_alive(run: TrainState, call: str) -> None:
    """Rejects a run with donated arrays; the message shows which run to use instead."""
    check_donated(
        run,
        f"Trainer.{call}: the run",
        "Use the run that the function returned: run, logs = step(run, batch); to keep the old run "
        "too, donate a copy: jax.tree.map(jnp.copy, run).",
    )


def named(tree: object, what: str) -> list[tuple[str, np.ndarray]]:
    """Returns the arrays of a tree with their names: `x`, `x[0]`, `x['left']`."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(f"{what}{jax.tree_util.keystr(path)}", leaf) for path, leaf in pairs]


def check_lengths(x: object, y: object = None, weights: object = None, equal: bool = True) -> int:
    """Returns the number of rows that all arrays have.

    Args:
        equal: whether different numbers of rows are an error; if False, the first number is returned.

    Raises:
        ValueError: if the numbers of rows differ, or there are no rows.
    """
    arrays = [*named(x, "x"), *named(y, "y"), *named(weights, "sample_weight")]
    for name, array in arrays:
        if array.ndim == 0:
            raise ValueError(
                f"{name}: expected an array with a row for each sample, received a scalar."
            )
    rows = {name: len(array) for name, array in arrays}
    if equal and len(set(rows.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise ValueError(
            f"The arrays differ in their number of rows: {shown}. Every array needs a row for each "
            "sample. If the arrays of a batch have no common rows, as in a graph, pass a list of "
            "batches: [(x, y)], or predict(run, [(x,)])."
        )
    if not rows or 0 in rows.values():
        raise ValueError("The data are empty: expected at least one row, received none.")
    return next(iter(rows.values()))


def count_rows(batch: object, equal: bool = True) -> int:
    """Returns the row count of a batch: `(x, y, sample_weight)` or any tree of arrays."""
    # `type(...) is tuple`: a named tuple is a tree of an objective, not `(x, y, sample_weight)`.
    parts = batch if type(batch) is tuple and len(batch) <= 3 else (batch,)
    return check_lengths(*parts, equal=equal)


def check_output_rows(model: Network, state: Mapping[str, Any], rows: tuple) -> None:
    """Rejects targets and weights whose number of rows differs from that of their output.

    The inputs of a batch may have different numbers of rows; a loss would broadcast such targets.
    """
    x, y, weights = rows
    if y is None:
        return
    names = list(outputs.output_specs(model))
    values = outputs.by_output(
        jax.eval_shape(step.predict, model, state, specs(x))[1], names, "outputs"
    )
    targets = outputs.by_output(y, names, "targets")
    by_output = zip(names, values, targets, outputs.each_weight(weights, names), strict=True)
    for name, value, *arrays in by_output:
        for what, array in zip(("y", "sample_weight"), arrays, strict=True):
            if array is not None and value.ndim and len(array) != value.shape[0]:
                shown = ", ".join(f"{key} {len(a)}" for key, a in named(x, "x"))
                raise ValueError(
                    f"The arrays differ in their number of rows: {what} {len(array)}, the output "
                    f"{name!r} {value.shape[0]} for {shown}. Targets and weights need a row for each "
                    "row of their output."
                )


def check_finite(tree: object, what: str, removed: np.ndarray | None = None) -> None:
    """Rejects NaN and infinity; the message names the array, the first row and the row count.

    The check uses JAX's dtypes: a float64 beyond the range of float32 is infinite.

    Args:
        removed: mask (b,) of rows that may hold any value; None if rows have no weights.
    """
    for name, array in named(tree, what):
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            continue
        mask = None if removed is None or len(removed) != len(array) else removed
        for start, block in host_arrays.blocks(array):
            _check_block(name, array, start, host_arrays.canonical(block), mask)


def _check_block(
    name: str, array: np.ndarray, start: int, block: np.ndarray, removed: np.ndarray | None
) -> None:
    # A finite sum proves that all numbers are finite, in one pass without a temporary array. The
    # sum of finite numbers may overflow, so an infinite sum decides nothing.
    with np.errstate(all="ignore"):
        if np.isfinite(np.sum(block)):
            return
    nonfinite = _nonfinite_mask(block, start, removed)
    if not nonfinite.any():
        return
    position = tuple(map(int, np.argwhere(nonfinite)[0]))
    shown_position = [start + position[0], *position[1:]]
    rows = sum(
        np.unique(np.nonzero(_nonfinite_mask(host_arrays.canonical(part), first, removed))[0]).size
        for first, part in host_arrays.blocks(array)
    )
    weight_remedy = "" if removed is None else ", or give them a sample_weight of 0"
    raise ValueError(
        f"{name}, row {shown_position[0]}: expected finite numbers, received "
        f"{array[tuple(shown_position)]} at {shown_position}; {rows} of {len(array)} rows are "
        f"affected. Drop these rows, or fill in the values{weight_remedy}."
    )


def _nonfinite_mask(block: np.ndarray, start: int, removed: np.ndarray | None) -> np.ndarray:
    """Returns the mask of numbers that are not finite, outside of removed rows."""
    nonfinite = ~np.isfinite(block)
    if removed is not None:
        nonfinite[removed[start : start + len(block)]] = False
    return nonfinite


def check_inputs(model: Network, x: Arrays, size: int | None) -> None:
    """Rejects batches of `size` rows, or of the rows of `x`, before any compilation."""
    graph = model.graph
    values = in_order(graph, x)
    if values is not None:
        pairs = zip((graph.specs[slot] for slot in graph.input_slots), values, strict=True)
        if all(_fits(spec, value, size) for spec, value in pairs):
            return
    # The data do not fit: trace the model on specs, so that the engine's own error names the
    # layer and the axis, without computing.
    fixed = any(isinstance(graph.specs[slot].dims[0], int) for slot in graph.input_slots)
    batch_specs = specs(x, size if fixed else None)
    state = jax.eval_shape(model.init_state)
    jax.eval_shape(lambda m, s, v: m.apply(v, state=s).value, model, state, batch_specs)


def is_single_batch(model: Network, x: object, size: int) -> bool:
    """Returns whether `x` is one array of at most `size` rows that passes every check."""
    if type(x) is not np.ndarray or x.dtype != np.float32:
        return False
    dims = skeleton_of(model).derive(_dims_of_floats)
    return (
        x.shape[1:] == dims
        and x.ndim > 0
        and 0 < x.shape[0] <= size
        # one pass without a temporary array; if the squares overflow, the slow path decides
        and math.isfinite(np.vdot(x, x))
    )


def _dims_of_floats(skeleton: Skeleton) -> tuple[int | None, ...] | None:
    """Returns the sizes of a row if the only input is a float array of any number of rows."""
    # only the graph matters here, so a model without arrays is enough
    model = skeleton.join((None,) * len(skeleton.names))
    template = model.graph.inputs
    if type(template) is not structure.Ref or id_tables(model):
        return None
    spec = model.graph.specs[template.index]
    if spec.dtype != "float32" or isinstance(spec.dims[0], int):
        return None
    return spec.dims[1:]


def _fits(spec: Spec, value: object, size: int | None) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim != spec.ndim:
        return False
    integer_spec = jnp.issubdtype(spec.dtype, jnp.integer)
    if integer_spec and not jnp.issubdtype(value.dtype, jnp.integer):
        return False
    shape = value.shape if size is None else (size, *value.shape[1:])
    pairs = zip(spec.dims, shape, strict=True)
    return all(expected == received for expected, received in pairs if isinstance(expected, int))


def removed_rows(trainer: Trainer, model: Network, y: Arrays, weights: object) -> np.ndarray:
    """Returns the mask (b,) of rows that have weight 0 in the loss of every output.

    Args:
        weights: sample weights on the host, or None; or one entry for each output.
    """
    heads = outputs.heads(trainer, model, y)
    used = outputs.loss_weights(heads, weights)
    none = np.zeros(len(jax.tree.leaves(y)[0]), bool)
    return none if used is None else np.logical_and.reduce([objective.weightless(w) for w in used])


def _without_removed(array: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Returns the targets, with rows of weight 0 replaced by the first row of positive weight."""
    if weight is None or weight.shape != array.shape[: weight.ndim] or not (weight > 0).any():
        return array
    is_removed = weight == 0
    if not is_removed.any():
        return array
    array = np.array(array)
    array[is_removed] = array[~is_removed][0]
    return array


def check_targets(trainer: Trainer, model: Network, y: Arrays, weights: object = None) -> None:
    """Rejects targets that do not fit their losses: labels out of range, one-hot or not, NaN.

    Targets of weight 0 may have any value.
    """
    require_loss(trainer, model)
    if y is None:
        batch_parts.require_targets(trainer)
        return None
    # Check without weights first: replacing rows copies the targets, and few data sets need it.
    try:
        return _check_targets(trainer, model, y)
    except ValueError:
        if weights is None:
            raise
    names = list(outputs.output_specs(model))
    arrays = outputs.by_output(y, names, "targets")
    weights_by_output = outputs.each_weight(weights, names)
    counted_targets = [
        _without_removed(*pair) for pair in zip(arrays, weights_by_output, strict=True)
    ]
    _check_targets(trainer, model, dict(zip(names, counted_targets, strict=True)))


def _check_targets(trainer: Trainer, model: Network, y: Arrays) -> None:
    names = list(outputs.output_specs(model))
    arrays = outputs.by_output(y, names, "targets")
    heads = outputs.heads(trainer, model, y)
    for head, array in zip(heads, arrays, strict=True):
        if head.loss is not None:
            shape = (len(array), *head.spec.shape[1:])
            head.loss.check_targets(array, jax.ShapeDtypeStruct(shape, "float32"))
    if not any(head.loss is not None and head.loss._takes_missing for head in heads):
        check_finite(y, "y")
    else:  # such a loss has checked its targets
        pairs = zip(names, heads, arrays, strict=True)
        others = {
            name: array
            for name, head, array in pairs
            if array is not None and not (head.loss is not None and head.loss._takes_missing)
        }
        check_finite(others, "y")


def require_loss(trainer: Trainer, model: Layer) -> None:
    """Rejects a trainer without a loss to minimize: no loss, no objective, no loss in the graph."""
    if trainer.objective is not None:
        return
    heads = outputs.heads(trainer, model)
    if any(head.loss is not None for head in heads):
        return
    effects = outputs.require_network(model).graph.effects
    if any(call.losses for call in effects):
        return
    penalties = " Weight regularizers alone are not a loss." * any(e.penalties for e in effects)
    raise ValueError(
        f"Trainer: no loss to minimize: the trainer has no loss, and {model._where} records no "
        f"loss.{penalties} Pass a loss, fk.Trainer(optimizer='adam', loss='mse'); return a loss "
        "from the forward method of a layer, fk.Output(value, losses=(loss,)); or pass an "
        "objective, fk.Trainer(optimizer='adam', objective=objective)."
    )


def check_weighted(trainer: Trainer, weights: object) -> None:
    """Rejects sample weights without effect: no loss and no metric uses them."""
    if weights is None or batch_parts.has_loss(trainer.loss) or trainer.weighted_metrics:
        return
    raise ValueError(
        "sample_weight: expected a trainer with a loss, received one without; the losses that "
        "layers return are not weighted. Make the weights an input of the model, or use "
        "fk.Trainer(optimizer='adam', objective=objective), which receives (x, y, sample_weight)."
    )


def check_weights(weights: object) -> None:
    """Rejects sample weights that are negative or not finite."""
    check_finite(weights, "sample_weight")
    for name, array in named(weights, "sample_weight"):
        if (array < 0).any():
            position = tuple(map(int, np.argwhere(array < 0)[0]))
            raise ValueError(
                f"{name}, row {position[0]}: expected a weight of 0 or more, received "
                f"{array[position]}. Use 0 to exclude a row."
            )


_weight = real(minimum=0)


def class_weights(
    class_weight: Mapping[int, float],
    y: Arrays,
    model: Network,
    weights: object = None,
    ignore: int | None = None,
) -> np.ndarray:
    """Returns a weight for each sample from the weights of the classes; 1 for other classes.

    Args:
        y: the targets: class numbers, or one-hot vectors.
        weights: the sample weights; a sample of weight 0 may have any target.
        ignore: the label of the loss's `ignore_class`, or None.

    Raises:
        ValueError: for several outputs, an unknown class, or a target that is not a class.
    """
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            "class_weight: expected a dictionary of weights by class number, received "
            f"{type(class_weight).__name__}. Write class_weight={{0: 1.0, 1: 2.5}}."
        )
    leaves, specs = jax.tree.leaves(y), list(outputs.output_specs(model).values())
    if len(specs) != 1:
        raise ValueError(
            f"class_weight: expected a model with one output, received a model with {len(specs)} "
            "outputs. Pass sample_weight, one array for each output."
        )
    labels, units = leaves[0], specs[0].shape[-1]
    one_hot = labels.ndim == specs[0].ndim and units != 1 and labels.shape[-1] == units
    labels = labels.argmax(-1) if one_hot else labels
    if labels.size != len(labels):
        raise ValueError(
            f"class_weight: expected one class for each sample, received targets of shape "
            f"{leaves[0].shape}. Pass sample_weight of shape {labels.shape}."
        )
    labels = labels.reshape(len(labels))
    classes = 2 if units == 1 else units or int(labels.max()) + 1
    labels = _classes(labels, classes, weights, ignore)
    table = np.ones(classes, "float32")
    for number, weight in class_weight.items():
        if not integer(minimum=0, maximum=classes - 1).accepts(number):
            raise ValueError(
                f"class_weight: unknown class {number!r}; the model's output has {classes} classes "
                f"(0..{classes - 1}). Use class numbers as keys."
            )
        table[number] = _weight.check(f"Trainer.fit: class_weight: class {number}", weight)
    return table[labels]


def _classes(labels: np.ndarray, classes: int, weights: object, ignore: int | None) -> np.ndarray:
    """Returns the labels as int64; an invalid label in a row of weight 0 becomes class 0."""
    with np.errstate(invalid="ignore"):
        fits = (labels >= 0) & (labels < classes)
        fits &= labels == np.floor(labels) if labels.dtype != bool else True
    invalid = ~fits if ignore is None else ~fits & (labels != ignore)
    for weight in jax.tree.leaves(weights):
        invalid &= (weight != 0).reshape(len(weight), -1).any(axis=1)
    if invalid.any():
        row = int(np.argmax(invalid))
        raise ValueError(
            f"class_weight, y, row {row}: expected a class from 0 to {classes - 1}, received "
            f"{labels[row].item()}. Class weights need integer class numbers; pass sample_weight, "
            "one number for each row."
        )
    return np.where(fits, labels, np.zeros_like(labels)).astype("int64")


def check_stateful(model: Network, count: int, batch_size: int, shuffle: bool) -> None:
    """Rejects data whose batches cannot continue each other, for layers with carried state."""
    if not model.stateful:
        return
    # Only recurrent layers have state per row; moving statistics have no batch axis.
    stateful = [
        path or layer._where
        for path, layer in sublayers(model)
        if hasattr(type(layer), "return_sequences") and layer.stateful
    ]
    if not stateful:
        return
    if shuffle:
        raise ValueError(
            f"{stateful[0]!r} is stateful: row i of a batch continues row i of the previous batch, "
            "so the order of rows matters. Pass shuffle=False."
        )
    if count % batch_size:
        raise ValueError(
            f"{stateful[0]!r} is stateful: expected a number of rows that the batch size "
            f"{batch_size} divides, received {count}. Drop {count % batch_size} rows."
        )

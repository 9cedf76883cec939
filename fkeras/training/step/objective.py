"""Computes the loss of a batch and the sums behind its logs, from losses and metrics or an objective."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine import Layer, Output
from fkeras.engine.values.argument_types import Batch
from fkeras.metrics import exact
from fkeras.nn.numerics.indices import equals
from fkeras.training.data import batch_parts
from fkeras.training.data.features import Features
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective_call
from fkeras.training.step.logits import with_logits
from fkeras.training.step.outputs import (
    Head,
    by_output,
    each_weight,
    heads,
    loss_weights,
    named_metrics,
    require_network,
)


def _several(all_heads: tuple[Head, ...]) -> bool:
    """Returns whether the loss of each output is logged; a single loss equals "loss"."""
    return sum(head.loss is not None for head in all_heads) > 1


def init_metrics(all_heads: tuple[Head, ...], layer_metrics: tuple[str, ...]) -> dict[str, Any]:
    """Returns empty sums for the losses, the metrics and the metrics of layers."""
    mean = _empty_mean()
    sums = {"loss": mean}
    if _several(all_heads):
        sums |= {f"{h.name}_loss": mean for h in all_heads if h.loss is not None}
    sums |= {name: metric.init(spec) for name, metric, spec in named_metrics(all_heads)}
    return sums | {name: mean for name in layer_metrics if name not in sums}


# Cached: each call of `fit` needs these sums, and creating an array with a JAX operation costs
# more than a step of a small model. The key includes x64, on which default dtypes depend.
@functools.lru_cache(maxsize=64)
def _host_sums(all_heads: tuple[Head, ...], layer_metrics: tuple[str, ...], x64: bool) -> Any:
    return jax.tree.map(np.asarray, init_metrics(all_heads, layer_metrics))


def _owned(sums: dict[str, Any]) -> dict[str, Any]:
    """Returns the sums in new buffers, which a step may donate; tracers stay unchanged."""
    # Under `jax.eval_shape` nothing may be computed: a process that forks must not start XLA.
    # `np.array` copies, because on CPUs `device_put` may alias the memory of a NumPy array.
    return jax.tree.map(
        lambda array: array if isinstance(array, Tracer) else jax.device_put(np.array(array)), sums
    )


def empty(
    trainer: Trainer,
    model: Layer,
    state: Mapping[str, Any] | None = None,
    batch: object = None,
    training: bool = True,
) -> dict[str, Any]:
    """Returns empty sums for a trainer and a model, on the device.

    Args:
        batch: a batch or its specs, used to trace an objective for the names of its metrics;
            None for the sum of the loss alone.
        training: whether to trace the objective for training.
    """
    return _owned(init_metrics(*_logged(trainer, model, state, batch, training)))


def empty_on_host(
    trainer: Trainer,
    model: Layer,
    state: Mapping[str, Any] | None = None,
    batch: object = None,
    training: bool = True,
) -> dict[str, Any]:
    """Returns the sums of `empty` as read-only NumPy arrays; the arguments are the same.

    Call the function outside of traces only.
    """
    config: Any = jax.config  # JAX declares its flags at run time
    logged = _logged(trainer, model, state, batch, training)
    return _host_sums(*logged, config.jax_enable_x64)


def _logged(
    trainer: Trainer, model: Layer, state: Mapping[str, Any] | None, batch: object, training: bool
) -> tuple[tuple[Head, ...], tuple[str, ...]]:
    """Returns the heads, and the names of other values with a log."""
    if trainer.objective is None:
        effects = require_network(model).graph.effects
        names = tuple(name for effect in effects for name in effect.metrics)
        return heads(trainer, model), names
    if batch is None:
        return (), ()
    return (), objective_call.metric_names(trainer.objective, model, state, batch, training)


def emptied(trainer: Trainer, run: TrainState) -> dict[str, Any]:
    """Returns empty sums with the names of a run's sums."""
    if trainer.objective is None:
        return empty(trainer, run.model)
    return _owned(init_metrics((), tuple(run.metrics)))


def compute(
    trainer: Trainer,
    all_heads: tuple[Head, ...],
    model: Layer,
    state: Mapping[str, Any],
    batch: Batch,
    key: jax.Array | None,
    training: bool,
    valid: jax.Array | None,
) -> tuple[jax.Array, dict[str, Any], dict[str, Any]]:
    """Returns `(loss, updates, sums)` of one batch.

    Args:
        all_heads: the outputs with their losses, from `heads`; empty for an objective.
        batch: any tree of arrays for an objective, otherwise `(x, y, sample_weight)`.
        valid: mask of the real rows, or None if all are real; an objective only receives real
            rows.
    """
    if trainer.objective is None:
        x, y, weights = batch_parts.unpack(trainer, batch)
        x = without_removed(all_heads, x, weights)
        model, all_heads, last = with_logits(model, all_heads)
        inputs: Any = {}
        if isinstance(x, Features):
            x, inputs = x.values, {} if x.masks is None else {"mask": x.masks}
        out = model.apply(x, state=state, training=training, key=key, **inputs)
        loss, sums = measure(all_heads, out, y, weights, valid, last)
        return loss, out.updates, sums
    loss, updates, metrics = objective_call.call_objective(
        trainer.objective, model, state, batch, key, training
    )
    rows = jnp.int32(objective_call.rows_of(batch))
    means = {name: _mean_state(value, rows) for name, value in {"loss": loss, **metrics}.items()}
    return loss, updates, means


def _empty_mean() -> dict[str, jax.Array]:
    # An integer count is exact up to 2**31; a float32 count would need a second array for its
    # rounding errors, as `exact` keeps for the total.
    return exact.zeros(["total"], (), "float32") | {"count": jnp.zeros((), "int32")}


def _mean_state(value: jax.Array, count: jax.Array) -> dict[str, jax.Array]:
    # Keras weighs the mean of a batch by its rows, so that a smaller last batch counts less.
    total = value.astype("float32") * count.astype("float32")
    return {"total": total, "count": count}


def measure(
    all_heads: tuple[Head, ...],
    out: Output,
    targets: object,
    weights: object,
    valid: jax.Array | None,
    last: tuple[Callable | None, ...] = (),
) -> tuple[jax.Array, dict[str, Any]]:
    """Returns `(loss, sums)`: the loss of a batch, and the sums of its losses and metrics.

    Args:
        targets: arrays in the structure of the outputs; None if no output has a loss.
        weights: a weight for each sample (or each element of the loss), or None; or one entry for
            each output.
        valid: mask of the real rows, or None if all are real.
        last: for each output, None or the activation that makes probabilities for the metrics of the
            logits in `out`; see `with_logits`.
    """
    names = [head.name for head in all_heads]
    predictions = jax.tree.leaves(out.value) if len(names) > 1 else [_only(out.value)]
    if isinstance(out.value, Mapping):
        predictions = [out.value[n] for n in names]
    masks = [None] * len(names) if out.mask is None else by_output(out.mask, names, "masks")
    size = jnp.int32(predictions[0].shape[0]) if valid is None else jnp.sum(valid, dtype="int32")
    y_true = [None] * len(names) if targets is None else by_output(targets, names, "targets")
    total = jnp.float32(0)
    sums: dict[str, Any] = {}
    metric_names, logs_output_losses = named_metrics(all_heads), _several(all_heads)
    weights_by_output = each_weight(weights, names)
    last = last or (None,) * len(names)
    rows = zip(all_heads, y_true, predictions, weights_by_output, masks, last, strict=True)
    for head, y, y_pred, weight, mask, activation in rows:
        metric_mask = _both(mask, valid)
        if head.loss is not None:
            numerator, denominator = head.loss.total(y, y_pred, weight, mask, valid)
            # A batch of weight 0 has the loss 0. Both operands are replaced before the division:
            # with a `where` around the quotient, the gradient would still be 0 * NaN = NaN.
            weightless_batch = denominator == 0
            loss = jnp.where(weightless_batch, jnp.zeros_like(numerator), numerator)
            loss = loss / jnp.where(weightless_batch, jnp.ones_like(denominator), denominator)
            total = total + head.weight * loss.astype("float32")
            if logs_output_losses:
                sums[f"{head.name}_loss"] = _mean_state(loss, size)
        if activation is not None:
            y_pred = activation(y_pred)
        for metric, metric_weight in [
            *((m, None) for m in head.metrics),
            *((m, weight) for m in head.weighted_metrics),
        ]:
            # `named_metrics` lists metrics, then weighted metrics, head by head, as this loop.
            name = metric_names.pop(0)[0]
            empty = exact.plain(metric.init(head.spec))
            sums[name] = metric.update(
                empty, y, y_pred, sample_weight=metric_weight, mask=metric_mask
            )
    # The losses of layers (regularizers) are added unweighted, as in Keras.
    for loss in out.losses:
        total = total + loss.astype("float32")
    sums["loss"] = _mean_state(total, size)
    for name, value in out.metrics.items():
        # A metric of the trainer wins over a metric of the same name that a layer reports.
        sums.setdefault(name, _mean_state(value, size))
    return total, sums


def weightless(weights: jax.Array) -> Any:
    """Returns True for rows whose weights are all 0: (b, ...) -> (b,)."""
    return equals(weights, 0).all(axis=tuple(range(1, weights.ndim)))


def without_removed(all_heads: tuple[Head, ...], x: object, weights: object) -> Any:
    """Returns the inputs with NaN and infinity set to 0 in rows that have weight 0 in every loss.

    Such a row must not affect the weights. But the gradient of a kernel multiplies the inputs by
    the row's gradient of 0, and 0 times NaN is NaN.

    Args:
        weights: the sample weights of the batch, or None; or one entry for each output.
    """
    row_weights = loss_weights(all_heads, weights)
    if row_weights is None:
        return x
    weightless_rows = [weightless(w) for w in row_weights]
    rows = functools.reduce(jnp.logical_and, weightless_rows)

    def clean(array: jax.Array) -> Any:
        if not jnp.issubdtype(array.dtype, jnp.inexact) or array.shape[:1] != rows.shape:
            return array
        # Finite values stay: statistics over a batch (BatchNormalization) see them, as in Keras.
        replaced = jnp.reshape(rows, (-1, *(1,) * (array.ndim - 1))) & ~jnp.isfinite(array)
        return jnp.where(replaced, jnp.zeros_like(array), array)

    return jax.tree.map(clean, x)


def _only(value: object) -> Any:
    leaves = jax.tree.leaves(value)
    return leaves[0]


def _both(mask: jax.Array | None, valid: jax.Array | None) -> Any:
    """Returns the mask of the metrics: real rows, and in them the steps of the model's mask."""
    if valid is None or mask is None:
        return valid if mask is None else mask
    return mask & jnp.reshape(valid, (-1,) + (1,) * (mask.ndim - 1))


def merge(all_heads: tuple[Head, ...], one: Mapping, two: Mapping) -> dict[str, Any]:
    """Returns the merged sums of two batches."""
    by_name = {name: metric for name, metric, _ in named_metrics(all_heads)}
    # `one` lacks the metrics that an objective reports for the first time.
    old_sums = {name: _empty_mean() for name in two if name not in by_name} | dict(one)
    merged = dict(old_sums)
    for name in [name for name in old_sums if name in two]:
        add = by_name[name].merge if name in by_name else exact.merge
        merged[name] = add(old_sums[name], two[name])
    return merged


def log_names(all_heads: tuple[Head, ...], sums: Mapping) -> tuple[str, ...]:
    """Returns the names of the logs: loss, losses of outputs, metrics, metrics of layers."""
    parts = [f"{head.name}_loss" for head in all_heads]
    order = ["loss", *parts, *(name for name, *_ in named_metrics(all_heads)), *sums]
    return tuple(name for name in dict.fromkeys(order) if name in sums)


def results(all_heads: tuple[Head, ...], sums: Mapping) -> dict[str, jax.Array]:
    """Returns the logs that the sums result in."""
    by_name = {name: metric for name, metric, _ in named_metrics(all_heads)}
    return {
        name: by_name[name].result(sums[name])
        if name in by_name
        else sums[name]["total"] / jnp.maximum(exact.as_float(sums[name], "count"), 1e-12)
        for name in log_names(all_heads, sums)
    }

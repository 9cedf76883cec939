"""Losses and metrics of a model's outputs: which belongs to which, and their sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import losses, metrics
from fkeras.engine import FKerasError, Network, snake_case, suggest
from fkeras.engine.spec import Spec

# losses whose targets are class numbers: they lack the last axis of the predictions
_SPARSE = ("SparseCategoricalCrossentropy",)


@dataclasses.dataclass(frozen=True)
class Head:
    """One output of a model with what is computed on it."""

    name: str
    spec: Any
    loss: Any
    weight: float
    metrics: tuple
    weighted_metrics: tuple


def output_specs(model: Any) -> dict[Any, Spec]:
    """The outputs' specs by name (a key where outputs come in a dictionary, else a layer name)."""
    if not isinstance(model, Network) or model.graph is None:
        raise TypeError(
            f"Trainer: expected a model whose inputs are known, received {model.where}. Start it "
            "with fk.Input: fk.Sequential([fk.Input((8,)), layer]) or fk.Model(inputs, outputs)."
        )
    graph = model.graph
    template = graph.outputs
    if getattr(template, "kind", None) == "dict":
        names = [str(k) for k in template.keys]
    else:
        names = []
        for name in graph.output_names:
            taken = sum(n == name or n.startswith(f"{name}_") for n in names)
            names.append(name if name not in names else f"{name}_{taken}")
    specs = [graph.specs[slot] for slot in graph.output_slots]
    return dict(zip(names, specs, strict=True))


def heads(trainer: Any, model: Any, y: Any = None) -> tuple[Head, ...]:
    """The outputs with their losses and metrics.

    Args:
        trainer: the trainer.
        model: the model.
        y: targets, which decide what "accuracy" and "crossentropy" mean. Without them the loss
            decides; the sums have the same structure.

    Raises:
        ValueError: for a loss or metric of an output that the model does not have.
    """
    specs = output_specs(model)
    names = list(specs)
    loss = spread(trainer.loss, names, "loss")
    weights = spread(trainer.loss_weights, names, "loss_weights")
    plain = spread_lists(trainer.metrics, names, "metrics")
    weighted = spread_lists(trainer.weighted_metrics, names, "weighted_metrics")
    targets = [None] * len(names) if y is None else by_output(y, names, "targets")
    made = []
    for (name, spec), target in zip(specs.items(), targets, strict=True):
        known = spec if target is None else target
        found = losses.resolve(loss[name], known, spec) if loss[name] is not None else None
        target = _target_spec(spec, found) if target is None else target
        chosen = [
            tuple(metrics.resolve(m, target, spec, found) for m in each[name])
            for each in (plain, weighted)
        ]
        weight = weights[name]
        made.append(Head(name, spec, found, 1.0 if weight is None else float(weight), *chosen))
    return tuple(made)


def _target_spec(spec: Spec, loss: Any) -> Spec:
    if type(loss).__name__ in _SPARSE:
        return Spec(spec.dims[:-1], "int32")
    return spec


def spread(value: Any, names: list[str], what: str) -> dict[str, Any]:
    """One entry an output, out of one entry, a list of them or a dictionary by name."""
    if isinstance(value, Mapping) and "class_name" not in value:
        unknown = next((n for n in value if n not in names), None)
        if unknown is not None:
            raise ValueError(
                f"Trainer: {what} names an output {unknown!r} that the model does not have."
                f"{suggest(str(unknown), names)} Its outputs are: {', '.join(names)}."
            )
        return {name: value.get(name) for name in names}
    if isinstance(value, tuple | list):
        if len(value) != len(names):
            raise ValueError(
                f"Trainer: expected one entry of {what} for each of {len(names)} outputs "
                f"({', '.join(names)}), received {len(value)}. Use a dictionary by output name."
            )
        return dict(zip(names, value, strict=True))
    return {name: value for name in names}


def spread_lists(value: Any, names: list[str], what: str) -> dict[str, tuple]:
    """A tuple of metrics an output, out of a list for one output or a dictionary by name."""
    if isinstance(value, tuple | list) and len(names) == 1:
        return {names[0]: tuple(value)}
    if isinstance(value, tuple | list) and not any(isinstance(v, tuple | list) for v in value):
        if len(value) == 0:
            return {name: () for name in names}
        if len(value) != len(names):
            return {name: tuple(value) for name in names}
    found = spread(value, names, what)
    return {
        n: () if v is None else tuple(v) if isinstance(v, tuple | list) else (v,)
        for n, v in found.items()
    }


def by_output(tree: Any, names: list[str], what: str) -> list[Any]:
    """The leaves of targets, predictions or weights in the order of the outputs."""
    if isinstance(tree, Mapping):
        unknown = next((n for n in tree if n not in names), None)
        missing = next((n for n in names if n not in tree), None)
        if unknown is not None or missing is not None:
            raise FKerasError(
                f"{what}: expected a dictionary with the keys {', '.join(names)}; "
                + (
                    f"{unknown!r} is no output."
                    if unknown is not None
                    else f"{missing!r} is missing."
                )
                + suggest(str(unknown), names)
            )
        return [tree[n] for n in names]
    if isinstance(tree, tuple | list):
        if len(tree) != len(names):
            raise FKerasError(
                f"{what}: expected {len(names)} arrays ({', '.join(names)}), received {len(tree)}. "
                "Pass one for each output of the model."
            )
        return list(tree)
    if len(names) != 1:
        raise FKerasError(
            f"{what}: expected {len(names)} arrays ({', '.join(names)}), received one. Pass a "
            "list, or a dictionary by output name."
        )
    return [tree]


def metric_names(all_heads: tuple[Head, ...]) -> list[tuple[str, Any, Spec]]:
    """`(name in the logs, metric, spec of its predictions)` for every metric; names are unique."""
    found: dict[str, tuple[str, Any, Spec]] = {}
    for head in all_heads:
        prefix = f"{head.name}_" if len(all_heads) > 1 else ""
        for number, metric in enumerate((*head.metrics, *head.weighted_metrics)):
            own = metric.name or snake_case(type(metric).__name__)
            if number >= len(head.metrics) and f"{prefix}{own}" in found:
                own = f"weighted_{own}"
            name, count = f"{prefix}{own}", 1
            while name in found:
                name, count = f"{prefix}{own}_{count}", count + 1
            found[name] = name, metric, head.spec
    return list(found.values())


def _several(all_heads: tuple[Head, ...]) -> bool:
    """Whether the losses of outputs are logged too: a single one is the loss."""
    return sum(head.loss is not None for head in all_heads) > 1


def init_metrics(all_heads: tuple[Head, ...], layer_metrics: tuple[str, ...]) -> dict[str, Any]:
    """Empty sums for the losses, the metrics and what layers report."""
    mean = {"total": jnp.zeros((), "float32"), "count": jnp.zeros((), "float32")}
    sums = {"loss": mean}
    if _several(all_heads):
        sums |= {f"{h.name}_loss": mean for h in all_heads if h.loss is not None}
    sums |= {name: metric.init(spec) for name, metric, spec in metric_names(all_heads)}
    sums |= {name: mean for name in layer_metrics if name not in sums}
    # every entry owns its buffers, so that a step may donate them
    return jax.tree.map(_owned, sums)


def _owned(array: Any) -> Any:
    return array if isinstance(array, jax.core.Tracer) else jax.device_put(np.array(array))


def empty(trainer: Any, model: Any) -> dict[str, Any]:
    """Empty sums for a trainer and a model."""
    names = tuple(name for call in model.graph.calls for name in call.metrics)
    return init_metrics(heads(trainer, model), names)


def _mean_state(value: jax.Array, count: jax.Array) -> dict[str, jax.Array]:
    return {"total": value.astype("float32") * count, "count": count}


def measure(
    all_heads: tuple[Head, ...], out: Any, targets: Any, weights: Any, valid: Any
) -> tuple[jax.Array, dict[str, Any]]:
    """`(loss, sums)`: the loss of a batch, and the sums of its losses and metrics.

    Args:
        all_heads: the outputs.
        out: the model's `Output`.
        targets: arrays in the structure of the outputs.
        weights: a weight for each example (or each loss), or None; likewise for each output.
        valid: which rows are real, or None for all.
    """
    names = [head.name for head in all_heads]
    predictions = jax.tree.leaves(out.value) if len(names) > 1 else [_only(out.value)]
    if isinstance(out.value, Mapping):
        predictions = [out.value[n] for n in names]
    masks = [None] * len(names) if out.mask is None else by_output(out.mask, names, "masks")
    y_true = by_output(targets, names, "targets")
    each_weight = [weights] * len(names)
    if isinstance(weights, Mapping | tuple | list):
        each_weight = by_output(weights, names, "sample_weight")
    size = (
        jnp.float32(predictions[0].shape[0]) if valid is None else jnp.sum(valid, dtype="float32")
    )
    total = jnp.float32(0)
    sums: dict[str, Any] = {}
    ordered, several = metric_names(all_heads), _several(all_heads)
    rows = zip(all_heads, y_true, predictions, each_weight, masks, strict=True)
    for head, y, y_pred, weight, mask in rows:
        mask = _both(mask, valid)
        if head.loss is not None:
            numerator, denominator = head.loss.total(y, y_pred, weight, mask)
            zero = denominator == 0
            loss = jnp.where(zero, jnp.zeros_like(numerator), numerator)
            loss = loss / jnp.where(zero, jnp.ones_like(denominator), denominator)
            total = total + head.weight * loss.astype("float32")
            if several:
                sums[f"{head.name}_loss"] = _mean_state(loss, size)
        for metric, used in [
            *((m, None) for m in head.metrics),
            *((m, weight) for m in head.weighted_metrics),
        ]:
            name = ordered.pop(0)[0]
            empty = metric.init(head.spec)
            sums[name] = metric.update(empty, y, y_pred, sample_weight=used, mask=mask)
    for loss in out.losses:
        total = total + loss.astype("float32")
    sums["loss"] = _mean_state(total, size)
    for name, value in out.metrics.items():
        sums.setdefault(name, _mean_state(value, size))
    return total, sums


def _only(value: Any) -> Any:
    leaves = jax.tree.leaves(value)
    return leaves[0]


def _both(mask: Any, valid: Any) -> Any:
    """Which losses count: real rows, and of them the steps that the model's mask keeps."""
    if valid is None or mask is None:
        return valid if mask is None else mask
    return mask & jnp.reshape(valid, (-1,) + (1,) * (mask.ndim - 1))


def merge(all_heads: tuple[Head, ...], one: Mapping, two: Mapping) -> dict[str, Any]:
    """The sums of two batches together."""
    by_name = {name: metric for name, metric, _ in metric_names(all_heads)}
    return {
        name: by_name[name].merge(one[name], two[name])
        if name in by_name
        else jax.tree.map(jnp.add, one[name], two[name])
        for name in one
    }


def log_names(all_heads: tuple[Head, ...], sums: Mapping) -> tuple[str, ...]:
    """The names in the logs: the loss, the outputs' losses, the metrics, what layers report."""
    parts = [f"{head.name}_loss" for head in all_heads]
    order = ["loss", *parts, *(name for name, *_ in metric_names(all_heads)), *sums]
    return tuple(name for name in dict.fromkeys(order) if name in sums)


def results(all_heads: tuple[Head, ...], sums: Mapping) -> dict[str, jax.Array]:
    """The logs of some sums."""
    by_name = {name: metric for name, metric, _ in metric_names(all_heads)}
    return {
        name: by_name[name].result(sums[name])
        if name in by_name
        else sums[name]["total"] / jnp.maximum(sums[name]["count"], 1e-12)
        for name in log_names(all_heads, sums)
    }

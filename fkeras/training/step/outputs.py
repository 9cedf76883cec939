"""Assigns losses, metrics, targets and sample weights to the outputs of a model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from fkeras import losses, metrics
from fkeras.engine import FKerasError, Layer, Network, snake_case, suggest
from fkeras.engine.values.spec import STRING, Spec
from fkeras.training.records.annotations import Trainer

# Losses whose targets are class indices: the targets lack the last axis of the predictions.
_SPARSE = ("SparseCategoricalCrossentropy",)


@dataclasses.dataclass(frozen=True)
class Head:
    """Output of a model with its loss, loss weight and metrics."""

    name: str
    spec: Any
    loss: Any
    weight: float
    metrics: tuple
    weighted_metrics: tuple


def output_specs(model: Layer) -> dict[Any, Spec]:
    """Returns the specs of the outputs by name: the key in a dictionary, else the layer's name."""
    graph = require_network(model).graph
    strings = next(
        (
            n
            for n, s in zip(graph.output_names, graph.output_slots, strict=True)
            if graph.specs[s].dtype == STRING
        ),
        None,
    )
    if strings is not None:
        raise FKerasError(
            f"Trainer: the output {strings!r} of {model._where} holds strings, which have no loss. Train "
            "a model of the other outputs, such as fk.Model(model.inputs, model.tensor('scores')), "
            "and compute the strings from its predictions.",
            layer=strings,
        )
    template = graph.outputs
    if getattr(template, "kind", None) == "dict":
        names = [str(k) for k in template.keys]
    else:
        names = []
        for name in graph.output_names:
            # One layer may make several outputs: a number keeps their names unique.
            used_count = sum(n == name or n.startswith(f"{name}_") for n in names)
            names.append(name if name not in names else f"{name}_{used_count}")
    specs = [graph.specs[slot] for slot in graph.output_slots]
    return dict(zip(names, specs, strict=True))


def require_network(model: Layer) -> Network:
    """Returns the model; raises a `TypeError` for a layer without a graph of inputs and outputs."""
    if not isinstance(model, Network) or model.graph is None:
        raise TypeError(
            f"Trainer: expected a model with known inputs, received {model._where}. Start the model "
            "with fk.Input: fk.Sequential([fk.Input((8,)), layer]) or fk.Model(inputs, outputs)."
        )
    return model


def heads(trainer: Trainer, model: Layer, y: object = None) -> tuple[Head, ...]:
    """Returns the outputs with their losses and metrics.

    Args:
        y: targets; their shapes select the class for "accuracy" and "crossentropy". Without
            targets the loss selects the class; the sums have the same structure.

    Returns:
        A head for each output; an empty tuple for a trainer with an objective.

    Raises:
        ValueError: for a loss or metric of an unknown output.
    """
    if trainer.objective is not None:
        return ()
    specs = output_specs(model)
    if y is None:
        return _heads_of_specs(trainer, tuple(specs.items()))
    return _heads(trainer, specs, by_output(y, list(specs), "targets"))


# Cached: a call of `fit` needs the heads seven times, and resolving names is slow Python code.
@functools.lru_cache(maxsize=64)
def _heads_of_specs(trainer: Trainer, specs: tuple) -> tuple[Head, ...]:
    return _heads(trainer, dict(specs), [None] * len(specs))


def _heads(trainer: Trainer, specs: dict[str, Spec], targets: list) -> tuple[Head, ...]:
    names = list(specs)
    loss = {n: _only(v) for n, v in spread(trainer.loss, names, "loss").items()}
    weights = spread(trainer.loss_weights, names, "loss_weights")
    plain = spread_lists(trainer.metrics, names, "metrics")
    weighted = spread_lists(trainer.weighted_metrics, names, "weighted_metrics")
    heads_by_output = []
    for (name, spec), target in zip(specs.items(), targets, strict=True):
        labels_spec = spec if target is None else target
        resolved_loss = (
            losses.resolve(loss[name], labels_spec, spec) if loss[name] is not None else None
        )
        target = _target_spec(spec, resolved_loss) if target is None else target
        resolved_metrics = [
            tuple(metrics.resolve(m, target, spec, resolved_loss) for m in metric_lists[name])
            for metric_lists in (plain, weighted)
        ]
        weight = 1.0 if weights[name] is None else float(weights[name])
        heads_by_output.append(Head(name, spec, resolved_loss, weight, *resolved_metrics))
    return tuple(heads_by_output)


def _only(loss: Any) -> Any:
    """Returns the loss in a list of one loss, which Keras accepts for an output."""
    return loss[0] if isinstance(loss, tuple | list) and len(loss) == 1 else loss


def _target_spec(spec: Spec, loss: object) -> Spec:
    if type(loss).__name__ in _SPARSE:
        return Spec(spec.dims[:-1], "int32")
    return spec


def spread(value: object, names: list[str], what: str) -> dict[str, Any]:
    """Returns one entry per output, from a single entry, a list, or a dictionary by name."""
    # A dictionary with "class_name" is the config of one loss, not a dictionary by output.
    if isinstance(value, Mapping) and "class_name" not in value:
        unknown = next((n for n in value if n not in names), None)
        if unknown is not None:
            raise ValueError(
                f"Trainer: {what} has an unknown output {unknown!r}.{suggest(str(unknown), names)} "
                f"The outputs of the model are: {', '.join(names)}."
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


def spread_lists(value: object, names: list[str], what: str) -> dict[str, tuple]:
    """Returns a tuple of metrics per output, from a list, nested lists, or a dictionary by name."""
    if isinstance(value, tuple | list) and len(names) == 1:
        return {names[0]: tuple(value)}
    # A flat list of as many metrics as outputs has one metric per output, as in Keras. A flat list
    # of another length, which Keras rejects, applies to every output.
    if isinstance(value, tuple | list) and not any(isinstance(v, tuple | list) for v in value):
        if len(value) == 0:
            return {name: () for name in names}
        if len(value) != len(names):
            return {name: tuple(value) for name in names}
    metrics_by_output = spread(value, names, what)
    return {
        n: () if v is None else tuple(v) if isinstance(v, tuple | list) else (v,)
        for n, v in metrics_by_output.items()
    }


def by_output(tree: object, names: list[str], what: str) -> list[Any]:
    """Returns targets, predictions, masks or weights as a list in the order of the outputs."""
    if isinstance(tree, Mapping):
        unknown = next((n for n in tree if n not in names), None)
        missing = next((n for n in names if n not in tree), None)
        if unknown is not None or missing is not None:
            raise FKerasError(
                f"{what}: expected a dictionary with the keys {', '.join(names)}; "
                + (
                    f"{unknown!r} is unexpected."
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
                "Pass an array for each output of the model."
            )
        return list(tree)
    if len(names) != 1:
        raise FKerasError(
            f"{what}: expected {len(names)} arrays ({', '.join(names)}), received one. Pass a "
            "list, or a dictionary by output name."
        )
    return [tree]


def named_metrics(all_heads: tuple[Head, ...]) -> list[tuple[str, Any, Spec]]:
    """Returns `(unique name in the logs, metric, spec of its predictions)` for every metric."""
    metrics_by_name: dict[str, tuple[str, Any, Spec]] = {}
    for head in all_heads:
        prefix = f"{head.name}_" if len(all_heads) > 1 else ""
        for number, metric in enumerate((*head.metrics, *head.weighted_metrics)):
            metric_name = metric.name or snake_case(type(metric).__name__)
            # As in Keras: the same metric in `metrics` and `weighted_metrics` has two log names.
            if number >= len(head.metrics) and f"{prefix}{metric_name}" in metrics_by_name:
                metric_name = f"weighted_{metric_name}"
            name, count = f"{prefix}{metric_name}", 1
            while name in metrics_by_name:
                name, count = f"{prefix}{metric_name}_{count}", count + 1
            metrics_by_name[name] = name, metric, head.spec
    return list(metrics_by_name.values())


def each_weight(weights: object, names: list[str]) -> list[Any]:
    """Returns the sample weights of each output, or None for an output without weights."""
    if isinstance(weights, Mapping | tuple | list):
        return by_output(weights, names, "sample_weight")
    return [weights] * len(names)


def loss_weights(all_heads: tuple[Head, ...], weights: object) -> list[Any] | None:
    """Returns the sample weights of outputs with a loss; None if any of them has no row weights."""
    weights_by_output = each_weight(weights, [head.name for head in all_heads])
    row_weights = [
        w for head, w in zip(all_heads, weights_by_output, strict=True) if head.loss is not None
    ]
    return (
        None
        if not row_weights or any(w is None or w.ndim == 0 for w in row_weights)
        else row_weights
    )

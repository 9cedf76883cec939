"""`adapt`: gives layers of a model adapters, and freezes the model."""

from __future__ import annotations

import functools
from typing import Any, TypeVar, overload

import jax

from fkeras.engine.layer.layer import Layer
from fkeras.engine.layer.trainable import set_trainable
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.partition import require_layer
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.walk import join_path
from fkeras.engine.tree.weights import subkey
from fkeras.engine.values.random import check_key
from fkeras.layers.adapters.adapter import Adapter
from fkeras.layers.adapters.bottleneck import Bottleneck
from fkeras.layers.adapters.kernels import (
    LOGITS,
    Logits,
    adapted_layers,
    float_layer,
    has_logits,
)
from fkeras.transforms.adapting.places import ROOT, put_in, take_out
from fkeras.transforms.graph.selecting import Pattern, matcher, require_match

Model = TypeVar("Model", bound=Network)


@overload
def adapt(model: Model, pattern: Pattern, adapter: Adapter, key: jax.Array) -> Model: ...


@overload
def adapt(model: Layer, pattern: Pattern, adapter: Adapter, key: jax.Array) -> Any: ...


@hides_internal_frames
def adapt(model: Layer, pattern: Pattern, adapter: Adapter, key: jax.Array) -> Any:
    """Returns a model whose matching layers have adapters; everything else is frozen.

    Each adapted layer keeps its name and its place in the graph: a wrapper with this name holds the
    frozen layer and the adapter. `fk.partition`, `fk.Trainer` and optax then train the adapters only.
    A selected layer is adapted with all layers inside: "attention" adapts the projections of a
    `MultiHeadAttention`. Layers that the adapter cannot adapt stay frozen. Call `adapt` again for other
    layers or with another adapter.

    Vectors and logits of a `ReversibleEmbedding` with untied weights have an adapter each:
    "embedding" selects both, "embedding/embeddings" the vectors, and "embedding/reverse_embeddings" the
    logits.

    Args:
        model: a built layer or model, with float or quantized weights.
        pattern: selects layers, with all layers inside, as for `fk.freeze`.
        adapter: `LoRA`, `DoRA`, `IA3`, `Bottleneck` or `SoftPrompt`.
        key: a PRNG key; each adapter derives its own key by the path of its layer.

    Raises:
        TypeError: for another value than an adapter.
        ValueError: if no layer matches the pattern or a pattern of a list, if the adapter can adapt
            none of the matching layers or not a layer that is named, for a layer that has an adapter
            already, and for a model without weights.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> x = fk.Input((4,), name="x")
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(8, name="body")(x)))
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "b*", transforms.LoRA(rank=2, alpha=4), jax.random.key(1))
        >>> list(fk.engine.trainable_weights(adapted))
        ['body/adapters/layer/a', 'body/adapters/layer/b']
    """
    require_layer(model, "transforms.adapt")
    if not isinstance(adapter, Adapter):
        received = adapter.__name__ if isinstance(adapter, type) else type(adapter).__name__
        raise TypeError(
            f"transforms.adapt: expected an adapter, received {received}. Pass one: "
            "transforms.adapt(model, pattern, transforms.LoRA(rank=8), key)."
        )
    check_key(key, "transforms.adapt")
    if not model.built:
        raise ValueError(
            f"transforms.adapt, {model._where}: has no weights yet. Build it first: model = "
            "model.build(jax.random.key(0)); or load its weights."
        )
    base, present = take_out(model)
    base = set_trainable(base, False)
    targets = _targets(base, pattern, adapter)
    for path in targets:
        if path in present:
            raise ValueError(
                f"transforms.adapt: {path!r} has an adapter already, {present[path]!r}. Select other "
                "layers, or merge that adapter first: transforms.merge_adapters(model)."
            )
    fitted = {path: own.fitted(subkey(key, path), layer) for path, (own, layer) in targets.items()}
    line = "model = transforms.adapt(model, pattern, adapter, key)"
    return returned(put_in(base, {**present, **fitted}), "transforms.adapt", line, depth=2)


def _targets(base: Layer, pattern: Pattern, adapter: Adapter) -> dict[str, tuple[Adapter, Any]]:
    """Returns the adapter and the layer of each path that is to be adapted."""
    everything = pattern == "*"
    matches = matcher(pattern, "transforms.adapt")
    selected: list[str] = []
    candidates: list[tuple[str, Layer]] = []
    refused: dict[str, str] = {}
    targets: dict[str, tuple[Adapter, Any]] = {}
    for path, layer in adapted_layers(base):
        is_logits = isinstance(layer, Logits)
        inside = any(path.startswith(f"{outer}/") for outer in selected)
        owner = layer.layer if is_logits else layer
        is_named = bool(path) and matches(path, owner)
        # the vectors alone, without the logits behind them
        table = join_path(path, "embeddings")
        candidates += [(path, owner), *[(table, owner)] * has_logits(layer)]
        is_table = not is_logits and has_logits(layer) and matches(table, layer)
        if not (everything or inside or is_named or is_table):
            continue
        selected += [path] if is_named and not inside else []
        # logits are adapted beside their vectors, which are the layer around them
        around = path.rpartition("/")[0] or ROOT if is_logits else None
        within = any(at != around and (at == ROOT or path.startswith(f"{at}/")) for at in targets)
        if (
            within
            or isinstance(layer, InputLayer | Operation)
            or (not path and isinstance(layer, Network))
        ):
            continue
        own = _with_features(base, path, layer, adapter)
        part: Any = layer  # a layer, or the logits of an embedding
        reason = own.refusal(part)
        if reason is None:
            targets[path or ROOT] = (own, layer)
        else:
            refused[table if is_table and not is_named else path or ROOT] = reason
    if not everything:
        require_match(base, pattern, candidates, lambda selector: _tied_hint(base, selector))
    names = [pattern] if isinstance(pattern, str) else pattern if isinstance(pattern, list) else ()
    for path in [name for name in names if isinstance(name, str) and name in refused]:
        if not any(at.startswith(f"{path}/") for at in targets):
            raise ValueError(f"transforms.adapt: {path!r} cannot be adapted: {refused[path]}.")
    if not targets:
        reasons = "; ".join(f"{path!r}: {reason}" for path, reason in list(refused.items())[:4])
        raise ValueError(
            f"transforms.adapt, {base._where}: {type(adapter).__name__} adapts no layer that matches "
            f"{pattern!r}. {reasons}."
        )
    return targets


def _tied_hint(base: Layer, pattern: Any) -> str:
    """Returns a sentence for a pattern of vectors or logits that are tied."""
    parent, _, last = str(pattern).rpartition("/")
    tied = {
        path for path, layer in adapted_layers(base) if hasattr(float_layer(layer), "tie_weights")
    }
    if parent not in tied or last not in ("embeddings", LOGITS):
        return ""
    return f" Vectors and logits of {parent!r} have the same weights: pass {parent!r}."


def _with_features(base: Layer, path: str, layer: Any, adapter: Adapter) -> Adapter:
    """Returns the adapter with the size of the layer's output in the graph around the layer."""
    if not isinstance(adapter, Bottleneck) or adapter.features is not None:
        return adapter
    *outer, name = path.split("/") if path else [""]
    around = functools.reduce(
        lambda network, part: getattr(network, "layers", {}).get(part), outer, base
    )
    graph = getattr(around, "graph", None)
    if graph is None or name not in graph.layers:
        return adapter
    spec = graph.specs[graph.slot(name)]
    size = spec.shape[-1] if spec.ndim > 1 and "float" in spec.dtype else None
    return adapter.replace(features=size) if isinstance(size, int) else adapter

"""Quantizes models: layers with integer or float8 codes instead of floats, and back."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.argument_types import Inputs
from fkeras.layers.attention.projected import PROJECTIONS, ProjectedAttention
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.embedding import QuantizedEmbedding
from fkeras.layers.quantized.experts import QuantizedMixtureOfExperts
from fkeras.quantizers import get
from fkeras.transforms.comparison.checking import require_agreement
from fkeras.transforms.deployment.calibrating import calibrate
from fkeras.transforms.graph.selecting import Pattern, matcher, require_match
from fkeras.transforms.replacing import replace_layers

_KINDS: Mapping[type, type[Quantized]] = types.MappingProxyType(
    {
        twin: kind
        for kind in (QuantizedDense, QuantizedEmbedding, QuantizedMixtureOfExperts)
        for twin in kind.twins
    }
)
_CALIBRATED = ("gptq", "awq")


@hides_internal_frames
def quantize(
    model: Layer,
    quantization: Any = "int8",
    pattern: Pattern = "*",
    *,
    samples: Tree = None,
    state: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
    tolerance: float = 0.05,
) -> Any:
    """Returns a copy with quantized weights.

    The function quantizes `Dense`, `EinsumDense`, `Embedding`, `ReversibleEmbedding`, the projections
    of `MultiHeadAttention` and `GroupQueryAttention`, and the kernels of `MixtureOfExperts`, whose
    inputs stay floats. User-defined classes stay unchanged, and with "float8" embeddings too; "int8" and
    "int4" alone quantize experts. The state stays the same. Build the model first; a model without
    weights is quantized when it is built.

    Args:
        model: a layer or model.
        quantization: "int8", "int4", "float8", "int4/64" with the size of a block, "gptq/4/128" or
            "awq/4/128" with bits and the size of a group, or a configuration of `fk.quantizers`.
        pattern: selects layers, with all layers inside, as for `fk.freeze`.
        samples: one batch of inputs of the model, which "gptq" and "awq" need: the codes of each
            layer are chosen for its inputs, which the quantized layers before compute. Some hundred
            rows or tokens are enough. A shared layer is calibrated at its first call.
        state: the state of the model, if it has state, for the calls on `samples` and `check`.
        check: inputs on which every call of the result is compared with the call of the model, as by
            `transforms.agree`; None for no comparison.
        tolerance: the error that `check` allows, relative to the largest value of an output.

    Raises:
        ValueError: if no layer matches or can be quantized, for a layer that is quantized already,
            for missing, empty or infinite samples, samples without need, and for a selected layer
            that the samples do not reach; if the result disagrees on `check`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(8), fk.layers.Dense(2)])
        >>> small = fk.quantize(model.build(jax.random.key(0)), "int8")
        >>> small.layers["dense"].kernel.dtype, small(jnp.ones((1, 4))).shape
        (dtype('int8'), (1, 2))
    """
    config = get(quantization)
    calibrates = config.mode in _CALIBRATED
    if calibrates and samples is None:
        raise ValueError(
            f"quantize: {config.policy_mode!r} chooses codes for the inputs of each layer and needs "
            f"samples. Write fk.quantize(model, {config.policy_mode!r}, samples=x) with a batch of "
            "inputs."
        )
    if not calibrates and samples is not None:
        raise ValueError(
            f"quantize: {config.policy_mode!r} uses no samples: scales of weights follow from the "
            "weights, scales of inputs from each call. Leave out `samples`, or use 'gptq' or 'awq'."
        )
    paths: list[str] = []
    calibrated: dict[str, Quantized] = {}

    def quantize_layer(path: str, layer: Layer) -> Layer | None:
        if isinstance(layer, Quantized):
            raise ValueError(
                f"quantize: {path or layer._where!r} is quantized already, "
                f"{layer.quantization.policy_mode!r}. Convert the layer to floats first: fk.dequantize("
                f"model, {path or '*'!r}); or select other layers by `pattern`."
            )
        kind = _KINDS.get(type(layer))
        if kind is None:
            return None
        kind = kind.kind_for(config)
        # as in Keras, embeddings have no float8 form; experts have no calibrated form either
        if config.mode not in kind.modes:
            return layer
        paths.append(path)
        if not calibrates:
            return kind.of(layer, config) if layer.built else kind(layer, config)
        if not layer.built:
            raise ValueError(
                f"quantize: {path or layer._where!r} has no weights to choose codes for. Build the model first."
            )
        # the first walk collects the paths, the second takes the layers
        coded = calibrated.get(path)
        # an adapted layer calls its frozen layer without the activation
        return layer if coded is None else coded.replace(layer=kind(layer, config).layer)

    quantized = _replace_selected(model, quantize_layer, pattern, paths, config)
    if not paths:
        raise ValueError(
            f"{model._where}: quantize found no layer for {config.mode!r} (pattern {pattern!r}). It "
            "quantizes Dense, EinsumDense, the projections of attention, except for 'float8' "
            "embeddings, and with 'int8' and 'int4' mixtures of experts."
        )
    if calibrates:
        targets = frozenset(paths)
        calibrated |= calibrate(model, targets, config, samples, state)
        missed = [path for path in paths if path not in calibrated]
        if missed:
            raise ValueError(
                f"quantize: the samples do not reach {', '.join(map(repr, missed))}. Select other layers "
                "by `pattern`."
            )
        quantized = _replace_selected(model, quantize_layer, pattern, [], config)
    if check is not None:
        require_agreement(
            "fk.quantize", (model, state), (quantized, state), check, tolerance=tolerance
        )
    return returned(quantized, "fk.quantize", "model = fk.quantize(model)", depth=2)


@hides_internal_frames
def dequantize(model: Layer, pattern: Pattern = "*") -> Any:
    """Returns a copy with floats in the place of codes, with the values that the codes represent.

    Args:
        model: a layer or model.
        pattern: selects layers, with all layers inside, as for `fk.freeze`.

    Raises:
        ValueError: if no layer matches.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> fk.dequantize(fk.quantize(layer, "int8")).kernel.dtype
        dtype('float32')
    """

    def dequantize_layer(_: str, layer: Layer) -> Layer | None:
        if not isinstance(layer, Quantized):
            return None
        return layer.dequantize() if layer.built else layer.floating()

    dequantized = _replace_selected(model, dequantize_layer, pattern, [], None)
    return returned(dequantized, "fk.dequantize", "model = fk.dequantize(model)", depth=2)


def _replace_selected(
    model: Layer,
    replace_layer: Callable[[str, Layer], Layer | None],
    pattern: Pattern,
    paths: list[str],
    config: Any,
) -> Any:
    """Returns the model with `replace_layer` applied to matching layers and the layers inside them.

    Args:
        model: a layer or model.
        replace_layer: returns the new layer, or None to visit the layers inside.
    """
    if not isinstance(model, Layer):
        check_not_keras(model, "quantize")
        raise TypeError(
            f"quantize: expected a layer or model, received {type(model).__name__}. For single weights "
            "use fk.quantizers.AbsMaxQuantizer()."
        )
    matches = matcher(pattern)
    if pattern != "*":
        require_match(model, pattern)

    def replace_attention(path: str, layer: Any, matches: Callable) -> Layer:
        children, configs = {}, dict(layer.quantization or {})
        for name in PROJECTIONS:
            child, child_path = getattr(layer, name), f"{path}/{name}" if path else name
            if (name == "gate_dense" and not layer.use_gate) or not matches(child_path, child):
                continue
            if not layer.built:
                # projections are made in `build`, so the attention keeps their quantization
                paths.append(child_path)
                configs[name] = config
                continue
            children[name] = replace_layer(child_path, child) or child
            is_quantized = isinstance(children[name], Quantized)
            configs[name] = children[name].quantization if is_quantized else None
        configs = {name: value for name, value in configs.items() if value is not None}
        return layer.replace(quantization=configs or None, **children)

    def replace_any(path: str, layer: Layer) -> Layer | None:
        if isinstance(layer, ProjectedAttention):
            return replace_attention(path, layer, lambda *_: True)
        return replace_layer(path, layer)

    def replace_matching(path: str, layer: Layer) -> Layer | None:
        if pattern == "*" or (path and matches(path, layer)):
            return replace_layers(layer, replace_any, path)
        if isinstance(layer, ProjectedAttention):
            return replace_attention(path, layer, matches)
        return None

    return replace_layers(model, replace_matching)

"""`merge_adapters`: a plain model that computes what an adapted model computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import jax
import numpy as np

from fkeras.engine.config.converters import dtype_name
from fkeras.engine.config.policy import DTypePolicy
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.partition import require_layer
from fkeras.engine.network.network import Network
from fkeras.engine.tree.donated import check_donated
from fkeras.engine.tree.walk import join_path
from fkeras.engine.tree.weight_dtypes import with_policy_dtypes
from fkeras.engine.values.argument_types import DTypeLike, Inputs
from fkeras.layers.adapters.adapted import Adapted, inner_path
from fkeras.layers.adapters.adapter import Adapter, check_float
from fkeras.layers.adapters.kernels import LOGITS, Logits, has_logits
from fkeras.transforms.comparison.checking import require_agreement
from fkeras.transforms.replacing import replace_layers

Model = TypeVar("Model", bound=Network)


@overload
def merge_adapters(
    model: Model,
    dtype: DTypeLike | None = None,
    *,
    state: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
) -> Model: ...


@overload
def merge_adapters(
    model: Layer,
    dtype: DTypeLike | None = None,
    *,
    state: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
) -> Any: ...


@hides_internal_frames
def merge_adapters(
    model: Layer,
    dtype: DTypeLike | None = None,
    *,
    state: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
) -> Any:
    """Returns a plain model: the kernels include the adapters.

    Each sum is computed in float64 on the host and rounded once. The layers have their first classes
    and names again; all of them stay frozen until `fk.unfreeze(model)`.

    Layers with quantized weights are refused: rounding the sum to codes would lose a part of the
    adapter. Merge the floats, then quantize:
    `fk.quantize(transforms.merge_adapters(fk.dequantize(model)), "int4")`.

    Args:
        model: a model with adapters.
        dtype: dtype of the merged weights; None for the dtype of the frozen weights. Adapters of a
            bfloat16 model are often smaller than half a unit in the last place of its weights:
            `dtype="float32"` keeps them, and the layers compute in bfloat16 as before. Layers with
            weights of any other dtype compute in that dtype.
        state: the state of the model, if it has state, for the calls on `check`.
        check: inputs on which every call of the result is compared with the call of the model, as by
            `transforms.agree`; None for no comparison.

    Raises:
        ValueError: for a model without adapters, for an adapter that no weights can replace
            (`Bottleneck`), for quantized weights, for sums that are not finite, and if the result
            disagrees on `check`.
        FKerasError: for weights that are being traced.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(rank=2), jax.random.key(1))
        >>> transforms.merge_adapters(adapted) == fk.freeze(model)
        True
    """
    require_layer(model, "transforms.merge_adapters")
    name = None if dtype is None else dtype_name(dtype)
    if dtype is not None and name not in ("float32", "bfloat16", "float16", "float64"):
        raise ValueError(
            f"transforms.merge_adapters: dtype: expected a floating-point dtype such as 'float32', "
            f"received {dtype!r}."
        )
    check_donated(model, "transforms.merge_adapters", "Use the new model.")
    merged: list[str] = []

    def merge(path: str, layer: Layer) -> Layer | None:
        if not isinstance(layer, Adapted):
            return None
        base: Any = layer.layer
        # layers inside first: an adapter of the layer itself then finds their new weights
        for key in sorted(layer.adapters, key=len, reverse=True):
            inner = inner_path(key)
            adapter, at = layer.adapters[key], join_path(path, inner) or layer._where
            merged.append(at)
            base = _merged_inside(base, inner, adapter, at, name)
        return base

    plain = replace_layers(model, merge)
    if not merged:
        raise ValueError(
            f"transforms.merge_adapters, {model._where}: has no adapters to merge. The result of "
            "transforms.adapt has them."
        )
    plain = plain.replace(trainable=False) if plain.trainable else plain
    if check is not None:
        require_agreement("transforms.merge_adapters", (model, state), (plain, state), check)
    return returned(
        plain, "transforms.merge_adapters", "model = transforms.merge_adapters(model)", depth=2
    )


def _merged_inside(base: Layer, inner: str, adapter: Adapter, path: str, dtype: str | None) -> Any:
    """Returns a frozen layer with an adapter merged into the layer or logits at the path `inner`."""

    def merge(place: str, layer: Layer) -> Layer | None:
        if place == inner:
            return _merged(layer, layer, adapter, path, dtype)
        if has_logits(layer) and join_path(place, LOGITS) == inner:
            return _merged(layer, Logits(layer), adapter, path, dtype)
        return None

    return replace_layers(base, merge)


def _merged(layer: Any, view: Any, adapter: Adapter, path: str, dtype: str | None) -> Layer:
    check_float(layer, path)
    fields: dict[str, Any] = {}
    for field, value in adapter.merged(view).items():
        if not isinstance(value, np.ndarray):
            fields[field] = value
            continue
        old = getattr(layer, field)
        with np.errstate(all="ignore"):  # checked below
            array = value.astype(dtype or old.dtype)
        if not np.isfinite(array.astype("float64")).all():
            raise ValueError(
                f"transforms.merge_adapters: {path!r}: {field!r} is not finite in {array.dtype}. Check "
                "the adapter, or merge in another dtype: merge_adapters(model, dtype='float32')."
            )
        same_shape = array.shape == old.shape
        fields[field] = jax.device_put(array, old.sharding if same_shape else None)
    if dtype is None or dtype == layer.policy.variable_dtype:
        return layer.replace(**fields)
    # other weights of the layer, such as the bias, follow the new policy
    return with_policy_dtypes(layer.replace(dtype=_policy(layer.policy, dtype), **fields))


def _policy(policy: DTypePolicy, dtype: str) -> DTypePolicy:
    """Returns the policy with weights in `dtype` that computes as before, where a policy does."""
    mixed = dtype == "float32" and policy.compute_dtype in ("bfloat16", "float16")
    return DTypePolicy(f"mixed_{policy.compute_dtype}" if mixed else dtype)

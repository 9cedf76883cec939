"""Casts a model to another dtype: the weights and the dtype policies of all layers together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from fkeras.engine.config.policy import NAMES, DTypePolicy, get_policy
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import replace_children, sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.tree.weight_dtypes import with_policy_dtypes
from fkeras.transforms.graph.surgery import replace

SomeLayer = TypeVar("SomeLayer", bound=Layer)


@hides_internal_frames
def cast(layer: SomeLayer, dtype: str | DTypePolicy) -> SomeLayer:
    """Returns a layer or model with the weights and the dtype policies of all layers in `dtype`.

    A model of a class with `call` becomes a plain `fk.Model`, as in other transforms of graphs.
    Layers with an integer policy, such as lookups, keep it, and so do weights with a declared dtype,
    such as the routers of `MixtureOfExperts` and the codes of quantized kernels. Make the state anew, or cast it:
    `jax.tree.map(lambda old, new: old.astype(new.dtype), state, model.init_state(x))`.

    Args:
        layer: a layer or model, with or without weights.
        dtype: a dtype such as "bfloat16", or a policy such as "mixed_bfloat16" (float32 weights).

    Raises:
        TypeError: for a value that is no layer.
        ValueError: for a policy that is no policy of floats, and for float64 without `jax_enable_x64`.

    Example:
        >>> import jax, fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2, "relu", name="a")(x)).build(jax.random.key(0))
        >>> half = fk.cast(model, "bfloat16")
        >>> half.layers["a"].kernel.dtype.name, half.layers["a"].dtype.name, half.outputs.dtype
        ('bfloat16', 'bfloat16', 'bfloat16')
    """
    if not isinstance(layer, Layer):
        raise TypeError(
            f"fk.cast: expected a layer or model, received {describe_value(layer)}. Cast arrays with "
            "fk.ops.cast, and a pytree with jax.tree.map."
        )
    policy = float_policy("fk.cast", dtype)

    def change(path: str, layer: Layer) -> DTypePolicy:
        return policy if layer.dtype.name in NAMES else layer.dtype

    return with_policies(layer, change)


def float_policy(where: str, dtype: object) -> DTypePolicy:
    """Returns the policy of a dtype of floats, or raises a ValueError; `where` names the function."""
    policy = get_policy(dtype)
    if dtype is None or policy.name not in NAMES:
        raise ValueError(
            f"{where}: expected one of {', '.join(NAMES)} as dtype, received {describe_value(dtype)}. "
            'fk.quantize(model, "int8") stores weights as integers.'
        )
    if policy.name == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f'{where}: JAX has no float64 now. Call `jax.config.update("jax_enable_x64", True)` at the '
            "start of the program."
        )
    return policy


def with_policies(layer: Any, policies: Callable[[str, Layer], DTypePolicy], path: str = "") -> Any:
    """Returns the layer with other dtype policies inside, and their weights in the policies' dtypes.

    The graphs are recorded again.

    Args:
        policies: returns the policy of a layer from its path and the layer; called for `layer` only
            if `layer` is no network.
        path: the path of `layer`.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.Dense(2))
        >>> with_policies(layer, lambda path, layer: fk.DTypePolicy("float16")).layer.dtype.name
        'float16'
    """
    inside = [
        (join_path(path, at), sublayer)
        for at, sublayer in sublayers(layer)
        if not isinstance(sublayer, InputLayer) and (at or not isinstance(sublayer, Network))
    ]
    if all(sublayer.dtype == policies(at, sublayer) for at, sublayer in inside):
        return layer
    if not isinstance(layer, Network) or layer.graph is None:
        new = replace_children(
            layer, lambda at, sublayer: _changed(sublayer, policies, at, {}), path
        )
        if isinstance(layer, Network):
            return new
        return with_policy_dtypes(new.replace(dtype=policies(path, layer)))
    # equal blocks without weights are recorded once
    recorded: dict[Any, Layer] = {}

    def change(sublayer: Layer) -> Layer:
        return _changed(sublayer, policies, join_path(path, sublayer.name or ""), recorded)

    return replace(layer, {"*": change})


def _changed(
    layer: Layer,
    policies: Callable[[str, Layer], DTypePolicy],
    path: str,
    recorded: dict[Any, Layer],
) -> Layer:
    if not isinstance(layer, Network):
        return with_policies(layer, policies, path)
    layer = layer.replace(dtype=policies(path, layer))
    wanted = tuple(
        policies(join_path(path, at), sublayer) for at, sublayer in sublayers(layer) if at
    )
    # the weights of equal blocks differ
    weights = tuple(map(id, leaves_of(layer)))
    block = skeleton_of(layer.replace(name=None)), weights, wanted
    if block not in recorded:
        recorded[block] = with_policies(layer, policies, path)
    return recorded[block].replace(name=layer.name)

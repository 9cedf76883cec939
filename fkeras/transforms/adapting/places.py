"""Puts adapters into a model, and takes them out again, by the paths of the model without adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.sublayers import map_children
from fkeras.engine.tree.walk import join_path
from fkeras.layers.adapters.adapted import BASE, Adapted, inner_path
from fkeras.transforms.replacing import replace_layers

#: the path of an adapter of the whole layer, which has no name in a layer around it
ROOT = "."


def take_out(model: Layer) -> tuple[Any, dict[str, Any]]:
    """Returns the model without adapters, and the adapters by path.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = fk.freeze(model.build(jax.random.key(0)))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(2), jax.random.key(1))
        >>> base, adapters = take_out(adapted)
        >>> fk.freeze(base) == model, list(adapters)
        (True, ['head'])
    """
    adapters: dict[str, Any] = {}

    def remove(path: str, layer: Layer) -> Layer | None:
        if not isinstance(layer, Adapted):
            return None
        for key, adapter in layer.adapters.items():
            adapters[join_path(path, inner_path(key)) or ROOT] = adapter
        return layer.layer

    return replace_layers(model, remove), adapters


def put_in(model: Layer, adapters: Mapping[str, Any], path: str = "") -> Any:
    """Returns a frozen model with adapters by path; networks around adapters become trainable.

    A network stays a network. Each other layer with adapters, its own or those of layers inside, is
    wrapped in an `Adapted` under its name.

    Args:
        model: a layer or model without adapters.
        path: the path of `model`.
    """
    inside = {
        at: adapter
        for at, adapter in adapters.items()
        if at == (path or ROOT) or not path or at.startswith(f"{path}/")
    }
    if not inside:
        # files store no flag of an input
        return model.replace(trainable=True) if isinstance(model, InputLayer) else model
    if isinstance(model, Network) and (path or ROOT) not in adapters:
        fields = map_children(model, lambda at, child: put_in(child, inside, at), path)
        # the fields are passed too: a frozen network opens without its other layers
        return model.replace(**fields, trainable=True)
    keys = {
        at: "" if at in (path, ROOT) else at.removeprefix(path).removeprefix("/") for at in inside
    }
    own = {join_path(BASE, keys[at]): adapter for at, adapter in inside.items()}
    # the mark that `build` sets, so that a model from a file equals the model that was saved
    return Adapted(model, own, name=model.name, dtype=model.dtype).replace(_built=True)

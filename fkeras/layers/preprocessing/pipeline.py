"""`Pipeline`: a sequence of layers as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax

from fkeras.engine.config.field_types import Converted
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.wrapper import wrapped_layer


def _layers(value: fk.Field) -> tuple[fk.Layer, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"Pipeline: layers: expected a list of layers, received {type(value).__name__}. Write "
            "Pipeline([layer])."
        )
    return tuple(map(wrapped_layer, value))


class Pipeline(fk.Layer):
    """Applies layers in sequence, as one preprocessing layer.

    The layers may take and return arrays, lists or dictionaries of arrays. `training` is the
    argument of the call, by default False. (Keras's default here is True; in fkeras a call that
    draws random numbers needs a key, and states that it trains.) Each layer draws separate random
    numbers, and a mask passes from layer to layer.

    Args:
        layers: the layers to apply, in order.

    Shapes:
        Those of the first layer's input -> those of the last layer's output.

    Raises:
        TypeError: if `layers` is not a list.
        ValueError: for an entry that is not a layer.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layers = fk.layers
        >>> steps = layers.Pipeline([layers.Rescaling(1 / 255), layers.GaussianNoise(0.1)])
        >>> steps(jnp.array([[0, 255]], "uint8"))
        Array([[0., 1.]], dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(training_default=True)

    layers: Converted[Sequence[fk.Layer], tuple[fk.Layer, ...]] = fk.option(convert=_layers)

    @property
    def supports_masking(self) -> bool:
        """Returns whether the first layer supports masks; other layers check masks in their calls."""
        return not self.layers or self.layers[0].supports_masking

    @property
    def built(self) -> bool:
        return all(layer.built for layer in self.layers)

    @property
    def stateful(self) -> bool:
        return any(layer.stateful for layer in self.layers)

    def build(self, key: jax.Array, x: fk.Tree) -> Self:
        built = []
        for index, layer in enumerate(self.layers):
            if not layer.built:
                layer = layer.build(fk.subkey(key, f"layers/{index}"), self._spec_at(index, x))
            built.append(layer)
        return self.replace(layers=tuple(built))

    def init_state(self, x: fk.Tree) -> dict[str, Any]:
        states = {
            f"layers/{index}": layer.init_state(self._spec_at(index, x))
            for index, layer in enumerate(self.layers)
            if layer.stateful
        }
        return {name: state for name, state in states.items() if state}

    def forward(self, context: fk.Context, x: fk.Tree) -> fk.Output:
        mask, state, losses, metrics = context.mask, dict(context.state), [], {}
        has_changed = False
        for index, layer in enumerate(self.layers):
            name = f"layers/{index}"
            out = context.child(name, mask=mask).run(layer, x)
            x, mask = out.value, out.mask
            losses.extend(out.losses)
            metrics.update(out.metrics)
            if out.updates:
                # an update replaces the whole entry of a child
                state[name], has_changed = out.updates, True
        return fk.Output(x, state if has_changed else {}, tuple(losses), metrics, mask)

    def _spec_at(self, index: int, x: fk.Tree) -> fk.Tree:
        """Returns the input spec of layer `index` for the pipeline's input `x`."""
        if index == 0:
            return x
        # symbolic calls propagate the specs without computing values
        symbols = jax.tree.map(
            lambda s: fk.Input(batch_shape=s.dims, dtype=s.dtype),
            x,
            is_leaf=lambda s: isinstance(s, fk.Spec),
        )
        for layer in self.layers[:index]:
            symbols = layer(symbols)
        return fk.as_specs(symbols)

    def get_config(self) -> dict[str, Any]:
        """Returns layers and name, as Keras does; `trainable` and `dtype` only if not default."""
        config = super().get_config()
        if self.trainable:
            del config["trainable"]
        if config["dtype"] == "float32":
            del config["dtype"]
        return config

"""`Bottleneck`: a two-layer network with few units after a frozen layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax

from fkeras.layers.adapters.adapter import Adapter
from fkeras.layers.adapters.kernels import Logits, float_layer, kernel_of
from fkeras.layers.common import authoring as fk


class Bottleneck(Adapter):
    """Adds `activation(y @ down + down_bias) @ up + up_bias` to the output `y` of a frozen layer.

    Adapts every layer with one floating-point output, and blocks that are models. `up` starts at zero,
    so the outputs of an adapted model equal those of its base before training. `merge_adapters` rejects
    the adapter, whose activation the weights of the base cannot compute. The state of an adapted layer
    is one level deeper: `{"block": {"layer": state["block"]}}`.

    Args:
        units: number of columns of `down`.
        activation: activation function between the two products.
        features: size of the last axis of the output; None to read the size from the graph of the model.
        down_initializer: draws `down`.
        down_bias_initializer: draws the bias of `down`.
        up_initializer: draws `up`.
        up_bias_initializer: draws the bias of `up`.

    Shapes:
        those of the frozen layer; down (d, units), down_bias (units,), up (units, d), up_bias (d,).

    Raises:
        ValueError: where `units` or `features` is not a positive integer.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapter = transforms.Bottleneck(2, activation="gelu")
        >>> adapted = transforms.adapt(model, "head", adapter, jax.random.key(1))
        >>> adapted.layers["head"].adapters["layer"].down.shape
        (3, 2)

    References:
        Houlsby et al., Parameter-efficient transfer learning for NLP (2019),
        https://arxiv.org/abs/1902.00751
    """

    units: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default="relu", convert=fk.activation)
    features: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    down_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    down_bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    up_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    up_bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)

    down: jax.Array = fk.weight(axes="du")
    down_bias: jax.Array = fk.weight(axes="u")
    up: jax.Array = fk.weight(axes="ud")
    up_bias: jax.Array = fk.weight(axes="d")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    @property
    def changes_end(self) -> bool:
        return True

    def refusal(self, layer: Any) -> str | None:
        if isinstance(layer, Logits):
            return "a Bottleneck follows the vectors of an embedding, not its logits"
        if self.features is None and self._size(layer) is None:
            return (
                "the size of the last axis of its output is unknown: give "
                "Bottleneck(units, features=...)"
            )
        return None

    def _size(self, layer: Any) -> int | None:
        if self.features is not None:
            return self.features
        kernel, config = kernel_of(layer), float_layer(layer)
        units = getattr(config, "units", getattr(config, "filters", None))
        return kernel.shape[-1] if kernel is not None and units is None else units

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        size = self._size(layer)
        assert size is not None
        down, up = (size, self.units), (self.units, size)
        return {"down": down, "down_bias": down[1:], "up": up, "up_bias": up[1:]}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        return self.replace(features=self._size(layer)).with_weights(key, **self.expects(layer))

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        if reverse:  # logits have another size than the vectors
            return y
        weights = (self.down, self.down_bias, self.up, self.up_bias)
        down, down_bias, up, up_bias = (w.astype(y.dtype) for w in weights)
        inner = y @ down + fk.align(down_bias, y.ndim)
        inner = inner if self.activation is None else self.activation(inner)
        return y + inner @ up + fk.align(up_bias, y.ndim)

    def merged(self, layer: Any) -> dict[str, Any]:
        raise ValueError(
            "merge_adapters: a Bottleneck has an activation of its own, which no weights of the base "
            "can compute. Keep the adapted model."
        )

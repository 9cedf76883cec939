"""`IA3`: learned factors of the inputs or outputs of a frozen layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.adapters.adapter import Adapter, as_float64
from fkeras.layers.adapters.kernels import (
    Kernel,
    float_layer,
    floats_of,
    kernel_of,
    own_kernel,
    spread,
)
from fkeras.layers.common import authoring as fk


class IA3(Adapter):
    """Multiplies the outputs, or the inputs, of a frozen layer by learned factors.

    The paper scales the outputs of the projections to keys and values, and the inputs of the last
    layer of the feed-forward block. Outputs are scaled with their bias and before the activation.

    Adapts `Dense`, `EinsumDense` and `Conv1D` to `Conv3D`, and the untied logits of
    `ReversibleEmbedding`, with float or quantized weights.

    Args:
        scales: "outputs" or "inputs".
        factors_initializer: draws the factors.

    Shapes:
        those of the frozen layer; factors have the output axes of the kernel, or its input axes
        without the window of a convolution.

    Raises:
        ValueError: for another value of `scales`.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="value")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "value", transforms.IA3(), jax.random.key(1))
        >>> adapted.layers["value"].adapters["layer"].factors
        Array([1., 1., 1.], dtype=float32)

    References:
        Liu et al., Few-shot parameter-efficient fine-tuning is better and cheaper than in-context
        learning (2022), https://arxiv.org/abs/2205.05638
    """

    scales: str = fk.option(default="outputs", convert=fk.choice("outputs", "inputs"))
    factors_initializer: fk.Initializer = fk.option(default="ones", convert=fk.initializer)

    factors: jax.Array = fk.weight()

    def refusal(self, layer: Any) -> str | None:
        config = float_layer(layer)
        kernel = kernel_of(layer)
        if kernel is None or kernel.is_table:
            return "IA3 scales the outputs or inputs of Dense, EinsumDense and convolutions"
        if getattr(config, "groups", 1) != 1 and self.scales == "inputs":
            return "the kernel of a grouped convolution spans only a part of the inputs"
        return None if self._axes(kernel) else f"its kernel has no {self.scales}"

    def _axes(self, kernel: Kernel) -> str:
        if kernel.equation is None:
            return "o" if self.scales == "outputs" else "i"
        return kernel.outputs if self.scales == "outputs" else kernel.inputs

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        kernel = own_kernel(layer)
        return {"factors": kernel.sizes(self._axes(kernel))}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        return self.with_weights(key, **self.expects(layer))

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        return {"factors": kernel.named(self._axes(kernel), names)}

    def before(self, layer: fk.Layer, x: Any) -> Any:
        if self.scales == "outputs":
            return x
        kernel = own_kernel(layer)
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            x = x.astype(self.factors.dtype)
        return x * spread(layer, kernel, self.factors, self._axes(kernel), x)

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        if self.scales == "inputs":
            return y
        kernel = own_kernel(layer)
        return y * spread(layer, kernel, self.factors, self._axes(kernel), y)

    def merged(self, layer: Any) -> dict[str, Any]:
        kernel = own_kernel(layer)
        axes = self._axes(kernel)
        shape = kernel.broadcast_shape(axes)
        # `axes` has the order of the kernel, so a reshape puts each axis in its place
        values = as_float64(floats_of(layer, kernel.name))
        weights = {kernel.name: values * as_float64(self.factors).reshape(shape)}
        if self.scales == "outputs" and getattr(layer, "bias", None) is not None:
            weights["bias"] = as_float64(layer.bias) * self._bias_factors(layer, kernel)
        return weights

    def _bias_factors(self, layer: Any, kernel: Kernel) -> np.ndarray:
        """Returns the factors with the axes of the bias, which are the last axes of the output."""
        if kernel.equation is None:
            return as_float64(self.factors)
        shape = (1,) * len(kernel.equation.output)
        spelled = np.zeros(shape)
        factors = spread(
            layer, kernel, self.factors, self._axes(kernel), jnp.asarray(spelled, "float32")
        )
        return as_float64(factors).reshape(factors.shape[factors.ndim - layer.bias.ndim :])

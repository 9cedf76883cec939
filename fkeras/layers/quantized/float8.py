"""`Float8Dense`: `Dense` and `EinsumDense` with float8 products."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.products import equation_of, finished
from fkeras.quantizers.float8 import round_gradients, round_values

_METERS = ("inputs", "kernel", "outputs_grad")


def _meter() -> Any:
    return fk.weight(overwritten=True, dtype="float32")


class Float8Dense(Quantized):
    """Computes `Dense` and `EinsumDense` with float8 inputs, kernel and gradients.

    Kernel and bias are trainable floats. Inputs, kernel and gradients have a scale each, which
    follows the largest magnitudes of the last steps. The gradients of scales and histories are
    defined as their next values, which a `Trainer` assigns to them. Only reverse-mode
    differentiation (`jax.grad`) is supported, not `jax.jvp`.

    Args:
        layer: the `Dense` or `EinsumDense` to quantize.
        quantization: "float8", or a `fk.quantizers.Float8QuantizationConfig`.

    Shapes:
        Those of the layer; scales (), histories (length,).

    Raises:
        ValueError: for another class of layer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(1, kernel_initializer="ones").build(jax.random.key(0), (None, 2))
        >>> fk.quantize(layer, "float8")(jnp.array([[0.3, 1.0]]))
        Array([[1.3125]], dtype=float32)

    References:
        Micikevicius et al., FP8 formats for deep learning (2022), https://arxiv.org/abs/2209.05433
    """

    twins: ClassVar[tuple[type, ...]] = (Dense, EinsumDense)
    modes: ClassVar[tuple[str, ...]] = ("float8",)

    kernel: jax.Array = fk.weight()
    bias: jax.Array | None = fk.weight()
    inputs_scale: jax.Array = _meter()
    inputs_amax_history: jax.Array = _meter()
    kernel_scale: jax.Array = _meter()
    kernel_amax_history: jax.Array = _meter()
    outputs_grad_scale: jax.Array = _meter()
    outputs_grad_amax_history: jax.Array = _meter()

    @property
    def input_spec(self) -> Any:
        return self._shaped.input_spec

    @property
    def _shaped(self) -> Any:
        return self.layer.replace(kernel=self.kernel)

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the weights of a built layer, and initial scales and histories."""
        length = self.quantization.amax_history_length
        meters = {f"{name}_scale": np.ones((), "float32") for name in _METERS}
        meters |= {f"{name}_amax_history": np.zeros(length, "float32") for name in _METERS}
        return self._coded(kernel=layer.kernel, bias=layer.bias, **meters)

    def dequantize(self) -> fk.Layer:
        return self.floating(kernel=self.kernel, bias=self.bias)

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            x = x.astype(self.kernel.dtype)
        # scales follow the data in training only; inference is a pure function of the weights
        updates_scales = context.training
        y = jnp.einsum(
            equation_of(self.layer).spelled(x.ndim).text,
            round_values(x, self.inputs_scale, self.inputs_amax_history, updates_scales),
            round_values(self.kernel, self.kernel_scale, self.kernel_amax_history, updates_scales),
        )
        # the identity, whose backward pass rounds the gradient to float8
        y = round_gradients(y, self.outputs_grad_scale, self.outputs_grad_amax_history)
        bias = self.bias
        if bias is not None and self.policy.compute_dtype == "float32":
            bias = bias.astype("bfloat16").astype(bias.dtype)  # the fused addition is in bfloat16
        return fk.Output(finished(self.layer, y, bias), mask=context.mask)

"""Low-rank adapters: `LoRA` and `DoRA`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.adapters.adapter import Adapter, as_float64
from fkeras.layers.adapters.kernels import (
    RANK,
    Kernel,
    factored,
    factored_kernel,
    float_layer,
    floats_of,
    kernel_of,
    own_kernel,
    spread,
    without_bias,
)
from fkeras.layers.common import authoring as fk
from fkeras.nn.noise import dropout


class LoRA(Adapter):
    """Adds a low-rank product to the kernel of a frozen layer: `W + scale * A @ B`.

    The scale is `alpha / rank`, and `alpha / sqrt(rank)` with `rank_stabilized`. `A` spans the input
    axes of the kernel and `B` the output axes; for `EinsumDense` both follow from the equation. A call
    computes `(x @ A) @ B` and never the kernel `A @ B`. `B` starts at zero, so the outputs of an
    adapted model equal those of its base before training.

    Adapts `Dense`, `EinsumDense`, `Conv1D` to `Conv3D` with one group, `Embedding` and
    `ReversibleEmbedding`, with float or quantized weights (QLoRA). In an embedding with tied weights
    the adapter changes both the vectors and the logits. Untied vectors and logits have an adapter each.

    Args:
        rank: number of columns of A.
        alpha: numerator of the scale; None for `rank`, a scale of 1.
        dropout: probability of dropping an input of A in training; no effect on embeddings.
        rank_stabilized: whether the scale is `alpha / sqrt(rank)` (rsLoRA).
        last_axis: whether B spans the last axis of the kernel only, and A the other axes, as in Keras.
        a_initializer: draws A.
        b_initializer: draws B.

    Shapes:
        those of the frozen layer; a (inputs..., rank), b (rank, outputs...), float32.

    Raises:
        ValueError: for a rank or alpha that is not positive, and a dropout outside of [0, 1].

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(rank=2), jax.random.key(1))
        >>> adapted.layers["head"].adapters["layer"].a.shape
        (4, 2)

    References:
        Hu et al., LoRA: low-rank adaptation of large language models (2021),
        https://arxiv.org/abs/2106.09685

        Kalajdzievski, A rank stabilization scaling factor for fine-tuning with LoRA (2023),
        https://arxiv.org/abs/2312.03732
    """

    rank: fk.Integer = fk.option(default=8, convert=fk.integer(minimum=1))
    alpha: fk.OptionalReal = fk.option(default=None, convert=fk.real(above=0, optional=True))
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    rank_stabilized: bool = fk.option(default=False, convert=fk.boolean)
    last_axis: bool = fk.option(default=False, convert=fk.boolean)
    a_initializer: fk.Initializer = fk.option(default="he_uniform", convert=fk.initializer)
    b_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)

    a: jax.Array = fk.weight()
    b: jax.Array = fk.weight()

    @property
    def scale(self) -> float:
        """Factor of the product of A and B."""
        alpha = self.rank if self.alpha is None else self.alpha
        return alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)

    def refusal(self, layer: Any) -> str | None:
        kernel = kernel_of(layer)
        if kernel is None:
            return "its class has no kernel that LoRA adapts"
        if getattr(float_layer(layer), "groups", 1) != 1:
            return "a grouped convolution has no single matrix of inputs and outputs"
        if not (kernel.inputs and kernel.outputs):
            return f"its kernel {kernel.letters!r} has no input axes or no output axes"
        return None

    def axes(self, kernel: Kernel) -> tuple[str, str]:
        """Returns the letters of the axes of A and B, with "_" for the rank."""
        if self.last_axis:
            return kernel.letters[:-1] + RANK, RANK + kernel.letters[-1]
        return kernel.shared + kernel.inputs + RANK, kernel.shared + RANK + kernel.outputs

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        kernel = own_kernel(layer)
        a, b = self.axes(kernel)
        return {"a": kernel.sizes(a, self.rank), "b": kernel.sizes(b, self.rank)}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        return self.with_weights(key, **self.expects(layer))

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        a, b = self.axes(kernel)
        return {"a": kernel.named(a, names), "b": kernel.named(b, names)}

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        return y + self.delta(context, layer, x, y, reverse)

    def delta(self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool) -> jax.Array:
        """Returns the term that the adapter adds."""
        kernel = own_kernel(layer)
        a, b = (w.astype(y.dtype) for w in (self.a, self.b))
        if reverse:
            return (x.astype(y.dtype) @ b.T) @ a.T * self.scale
        if self.dropout and context.training and not kernel.is_table:
            x = dropout(context.child("adapter").key, x.astype(y.dtype), self.dropout)
        return factored(layer, kernel, x, a, b, self.axes(kernel)) * self.scale

    def merged(self, layer: Any) -> dict[str, Any]:
        kernel = own_kernel(layer)
        delta = factored_kernel(kernel, as_float64(self.a), as_float64(self.b), self.axes(kernel))
        return {kernel.name: as_float64(floats_of(layer, kernel.name)) + self.scale * delta}


class DoRA(LoRA):
    """Adapts the direction of a kernel by `LoRA`, and its magnitude by a factor for each output.

    The kernel becomes `magnitude * V / |V|` with `V = W + scale * A @ B`, where `|V|` is the norm over
    the input axes. The norm is a constant in the gradient, as in the paper. `magnitude` starts at the
    norms of the frozen kernel.

    Adapts the layers of `LoRA` except embeddings; untied logits are adapted.

    Args:
        Other arguments: those of `LoRA`.

    Shapes:
        those of the frozen layer; a (inputs..., rank), b (rank, outputs...), magnitude (outputs...).

    Raises:
        ValueError: as for `LoRA`.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.DoRA(rank=2), jax.random.key(1))
        >>> adapted.layers["head"].adapters["layer"].magnitude.shape
        (3,)

    References:
        Liu et al., DoRA: weight-decomposed low-rank adaptation (2024),
        https://arxiv.org/abs/2402.09353
    """

    magnitude: jax.Array = fk.weight(initializer=jax.nn.initializers.ones)

    def refusal(self, layer: Any) -> str | None:
        kernel = kernel_of(layer)
        if kernel is not None and kernel.is_table:
            return "DoRA adapts no embeddings: use LoRA"
        return super().refusal(layer)

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        kernel = own_kernel(layer)
        return {**super().expects(layer), "magnitude": kernel.sizes(_unsummed(kernel))}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        fitted = super().fitted(key, layer)
        if isinstance(key, fk.ShapeKey):
            return fitted
        norms = fitted._norms(layer).astype(fitted.magnitude.dtype)
        return fitted.replace(magnitude=norms)

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        magnitude = kernel.named(_unsummed(kernel), names)
        return {**super().letters(kernel, names), "magnitude": magnitude}

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        kernel = own_kernel(layer)
        delta = self.delta(context, layer, x, y, reverse)
        factor = self.magnitude / jax.lax.stop_gradient(self._norms(layer))
        factor = spread(layer, kernel, factor, _unsummed(kernel), y)
        y = factor * (without_bias(layer, kernel, y) + delta)
        return without_bias(layer, kernel, y, sign=1)

    def merged(self, layer: Any) -> dict[str, Any]:
        kernel = own_kernel(layer)
        merged = super().merged(layer)[kernel.name]
        norms = np.sqrt(np.square(merged).sum(_axes(kernel), keepdims=True))
        magnitude = as_float64(self.magnitude).reshape(kernel.broadcast_shape(_unsummed(kernel)))
        return {kernel.name: magnitude * merged / norms}

    def _norms(self, layer: Any) -> jax.Array:
        kernel = own_kernel(layer)
        a, b = (w.astype("float32") for w in (self.a, self.b))
        product = factored_kernel(kernel, a, b, self.axes(kernel))
        kernel_sum = floats_of(layer, kernel.name).astype("float32") + self.scale * product
        return jnp.sqrt(jnp.square(kernel_sum).sum(_axes(kernel)))


def _unsummed(kernel: Kernel) -> str:
    """Returns the letters of the axes that are not summed over."""
    return "".join(n for n in kernel.letters if n not in kernel.inputs)


def _axes(kernel: Kernel) -> tuple[int, ...]:
    return tuple(i for i, letter in enumerate(kernel.letters) if letter in kernel.inputs)

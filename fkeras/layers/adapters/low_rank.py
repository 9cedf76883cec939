"""Low-rank adapters: `LoRA` and `DoRA`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.adapters.adapter import Adapter, wide
from fkeras.layers.adapters.kernels import (
    EMBEDDINGS,
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
    """Adds a product of two thin matrices to the kernel of a frozen layer: `W + scale * A @ B`.

    The scale is `alpha / rank`, and `alpha / sqrt(rank)` with `rank_stabilized`. `A` spans the input
    axes of the kernel and `B` the output axes; for `EinsumDense` both follow from the equation. The
    product `A @ B` is not computed: a call costs `rank` columns. `B` starts at zero, so an adapted
    model first computes what its base computes.

    Adapts `Dense`, `EinsumDense`, `Conv1D` to `Conv3D` with one group, `Embedding` and
    `ReversibleEmbedding`, with float or quantized weights (QLoRA). In an embedding with tied weights
    the adapter changes the vectors and the logits, as the shared table does.

    Args:
        rank: number of columns of A.
        alpha: numerator of the scale; None for `rank`, so a scale of 1.
        dropout: probability of dropping an input of A in training; embeddings have none.
        rank_stabilized: whether the scale is `alpha / sqrt(rank)` (rsLoRA).
        last_axis: whether B spans only the last axis of the kernel, and A the others, as in Keras.
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
            return "a convolution in groups has no single matrix of inputs and outputs"
        if not (kernel.inputs and kernel.outputs):
            return f"its kernel {kernel.letters!r} has no input axes or no output axes"
        return None

    def axes(self, kernel: Kernel) -> tuple[str, str]:
        """Returns the letters of the axes of A and B, without the axis of the rank."""
        if self.last_axis:
            return kernel.letters[:-1], kernel.letters[-1]
        return kernel.shared + kernel.inputs, kernel.shared + kernel.outputs

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        kernel = own_kernel(layer)
        left, right = self.axes(kernel)
        shared = "".join(n for n in left if n in right)
        own = "".join(n for n in right if n not in shared)
        return {
            "a": (*kernel.sizes(left), self.rank),
            "b": (*kernel.sizes(shared), self.rank, *kernel.sizes(own)),
        }

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        return self.with_weights(key, **self.expects(layer))

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        left, right = self.axes(kernel)
        shared = "".join(n for n in left if n in right)
        own = "".join(n for n in right if n not in shared)
        b = f"{kernel.named(shared, names)}_{kernel.named(own, names)}"
        return {"a": f"{kernel.named(left, names)}_", "b": b}

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        delta = self.delta(context, layer, x, y, reverse)
        return y if delta is None else y + delta

    def delta(self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool) -> Any:
        """Returns the term of the output; None for logits of separate weights."""
        kernel = own_kernel(layer)
        a, b = (w.astype(y.dtype) for w in (self.a, self.b))
        if reverse:
            if not float_layer(layer).tie_weights:
                return None
            return (x.astype(y.dtype) @ b.T) @ a.T * self.scale
        if self.dropout and context.training and kernel.name != "embeddings":
            x = dropout(context.child("adapter").key, x.astype(y.dtype), self.dropout)
        return factored(layer, kernel, x, a, b, self.axes(kernel)) * self.scale

    def merged(self, layer: Any) -> dict[str, Any]:
        kernel = own_kernel(layer)
        delta = factored_kernel(kernel, wide(self.a), wide(self.b), self.axes(kernel))
        return {kernel.name: wide(getattr(layer, kernel.name)) + self.scale * delta}


class DoRA(LoRA):
    """Adapts the direction of a kernel by `LoRA`, and its magnitude by a factor for each output.

    The kernel becomes `magnitude * V / |V|` with `V = W + scale * A @ B`, where `|V|` is the norm over
    the input axes. The norm is a constant in the gradient, as in the paper. `magnitude` starts at the
    norms of the frozen kernel.

    Adapts the layers of `LoRA` except embeddings.

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
        if type(float_layer(layer)) in EMBEDDINGS:
            return "DoRA adapts no embeddings: use LoRA"
        return super().refusal(layer)

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        kernel = own_kernel(layer)
        return {**super().expects(layer), "magnitude": kernel.sizes(self._kept(kernel))}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        fitted = super().fitted(key, layer)
        if isinstance(key, fk.ShapeKey):
            return fitted
        norms = fitted._norms(layer).astype(fitted.magnitude.dtype)
        return fitted.replace(magnitude=norms)

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        magnitude = kernel.named(self._kept(kernel), names)
        return {**super().letters(kernel, names), "magnitude": magnitude}

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        kernel = own_kernel(layer)
        delta = self.delta(context, layer, x, y, reverse)
        factor = self.magnitude / jax.lax.stop_gradient(self._norms(layer))
        factor = spread(layer, kernel, factor, self._kept(kernel), y)
        y = factor * (without_bias(layer, kernel, y) + delta)
        return without_bias(layer, kernel, y, sign=1)

    def merged(self, layer: Any) -> dict[str, Any]:
        kernel = own_kernel(layer)
        merged = super().merged(layer)["kernel"]
        norms = np.sqrt(np.square(merged).sum(_axes(kernel), keepdims=True))
        shape = [size if n in self._kept(kernel) else 1 for n, size in _pairs(kernel)]
        return {"kernel": wide(self.magnitude).reshape(shape) * merged / norms}

    def _kept(self, kernel: Kernel) -> str:
        return "".join(n for n in kernel.letters if n not in kernel.inputs)

    def _norms(self, layer: Any) -> jax.Array:
        kernel = own_kernel(layer)
        a, b = (w.astype("float32") for w in (self.a, self.b))
        product = factored_kernel(kernel, a, b, self.axes(kernel))
        whole = floats_of(layer, kernel.name).astype("float32") + self.scale * product
        return jnp.sqrt(jnp.square(whole).sum(_axes(kernel)))


def _pairs(kernel: Kernel) -> list[tuple[str, int]]:
    return list(zip(kernel.letters, kernel.shape, strict=True))


def _axes(kernel: Kernel) -> tuple[int, ...]:
    return tuple(i for i, letter in enumerate(kernel.letters) if letter in kernel.inputs)

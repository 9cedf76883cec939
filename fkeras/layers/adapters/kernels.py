"""The kernel of a layer as adapters read it: which axes are inputs, and which are outputs."""

from __future__ import annotations

import dataclasses
import string
import types
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import window_letters
from fkeras.layers.convolution.convolution import Conv1D, Conv2D, Conv3D
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import EinsumDense, Equation, add_bias
from fkeras.layers.core.embedding import Embedding, embed
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding, soft_cap
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.products import arrange, equation_of
from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import channel_axis

PRODUCTS: tuple[type, ...] = (Dense, EinsumDense)
CONVOLUTIONS: tuple[type, ...] = (Conv1D, Conv2D, Conv3D)
EMBEDDINGS: tuple[type, ...] = (Embedding, ReversibleEmbedding)
#: what a layer computes after the product, by field: adapters change the product
_AFTER: Mapping[str, Any] = types.MappingProxyType(
    {"activation": lambda y, activation: activation(y), "logit_soft_cap": soft_cap}
)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The axes of a kernel, or of a table of embeddings.

    Attributes:
        name: the name of the weight.
        shape: the sizes of the axes.
        letters: a letter for each axis.
        inputs: the letters that the layer sums over; of a table the letter of the ids.
        outputs: the letters that only the output has.
        equation: the product with an input, for `Dense` and `EinsumDense`.
    """

    name: str
    shape: tuple[int, ...]
    letters: str
    inputs: str
    outputs: str
    equation: Equation | None = None

    @property
    def shared(self) -> str:
        """The letters of axes that input and output have: one matrix for each index."""
        return "".join(n for n in self.letters if n not in self.inputs + self.outputs)

    @property
    def is_window(self) -> bool:
        """Whether the kernel is that of a convolution."""
        return self.name == "kernel" and self.equation is None

    def sizes(self, letters: str) -> tuple[int, ...]:
        """Returns the sizes of axes."""
        by_letter = dict(zip(self.letters, self.shape, strict=True))
        return tuple(by_letter[letter] for letter in letters)

    def named(self, letters: str, names: str) -> str:
        """Returns the names of axes, where `names` has a name for each axis of the kernel."""
        by_letter = dict(zip(self.letters, names, strict=True))
        return "".join(by_letter[letter] for letter in letters)


def float_layer(layer: Any) -> Any:
    """Returns the configuration of a layer as a float layer."""
    plain = layer._computed_layer
    return plain.layer if isinstance(plain, Quantized) else plain


def kernel_of(layer: Any) -> Kernel | None:
    """Returns the kernel of a built layer; None for a layer whose kernel no adapter changes.

    Example:
        >>> import jax, fkeras as fk
        >>> kernel = kernel_of(fk.layers.Dense(2).build(jax.random.key(0), (None, 3)))
        >>> kernel.inputs, kernel.outputs, kernel.shape
        ('x', 'y', (3, 2))
    """
    plain = layer._computed_layer
    config = float_layer(layer)
    # a subclass may compute something else
    kind = type(config)
    if kind in EMBEDDINGS:
        return Kernel("embeddings", (config.input_dim, config.output_dim), "vd", "v", "d")
    if kind not in (*PRODUCTS, *CONVOLUTIONS):
        return None
    shape = getattr(plain, "kernel_shape", None) or tuple(plain.kernel.shape)
    if kind in CONVOLUTIONS:
        window = window_letters(config.rank)
        return Kernel("kernel", shape, f"{window}io", f"{window}i", "o")
    equation = equation_of(config)
    inputs = "".join(n for n in equation.kernel if n not in equation.output)
    outputs = "".join(n for n in equation.kernel if n not in equation.input)
    return Kernel("kernel", shape, equation.kernel, inputs, outputs, equation)


def own_kernel(layer: Any) -> Kernel:
    """Returns the kernel of a layer that `Adapter.refusal` accepted."""
    kernel = kernel_of(layer)
    assert kernel is not None
    return kernel


def floats_of(layer: Any, name: str) -> jax.Array:
    """Returns a kernel as floats: of a quantized layer the values that the codes represent."""
    plain = layer._computed_layer
    return getattr(plain.dequantize() if isinstance(plain, Quantized) else plain, name)


def without_end(layer: Any) -> Any:
    """Returns the layer without activation, bound of logits and penalty of the output.

    Example:
        >>> import fkeras as fk
        >>> without_end(fk.layers.Dense(2, activation="relu"))
        Dense(2)
    """
    plain = layer._computed_layer
    if plain is not layer:  # the layer inside an interception
        return layer.replace(layer=without_end(layer.layer))
    config = float_layer(layer)
    names = (*_AFTER, "activity_regularizer")
    ends = {name: None for name in names if getattr(config, name, None) is not None}
    if not ends:
        return layer
    if isinstance(layer, Quantized):
        return layer.replace(layer=config.replace(**ends))
    return layer.replace(**ends)


def finish(layer: Any, y: jax.Array, reverse: bool = False) -> tuple[jax.Array, tuple]:
    """Returns what `without_end` removed: the output after the activation, and the penalties."""
    config = float_layer(layer)
    for name, function in _AFTER.items():
        value = getattr(config, name, None)
        if value is not None and (reverse or name != "logit_soft_cap"):
            y = function(y, value)
    penalty = getattr(config, "activity_regularizer", None)
    return y, () if penalty is None else (penalty(y) / jnp.asarray(y.shape[0], y.dtype),)


def factored(
    layer: Any, kernel: Kernel, x: jax.Array, a: jax.Array, b: jax.Array, axes: tuple[str, str]
) -> jax.Array:
    """Computes the product of an input with the kernel `a @ b`, without the kernel itself.

    Args:
        axes: the letters of the axes of `a` and `b`, without the axis of the rank, which is the last
            axis of `a` and the first of `b`, after the shared letters.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> a, b = jnp.ones((3, 1)), jnp.ones((1, 2))
        >>> factored(layer, kernel_of(layer), jnp.ones((1, 3)), a, b, ("x", "y"))
        Array([[3., 3.]], dtype=float32)
    """
    config = float_layer(layer)
    if kernel.name == "embeddings":
        return embed(x, a) @ b
    x = x.astype(a.dtype)
    if kernel.equation is not None:
        equation = kernel.equation.spelled(x.ndim)
        left, right = _with_rank(axes, _unused(equation.text))
        return jnp.einsum(f"{equation.input},{left},{right}->{equation.output}", x, a, b)
    y = convolve(x, a, config.strides, config.padding, config.data_format, config.dilation_rate)
    axis = channel_axis(config.data_format)
    return jnp.moveaxis(jnp.moveaxis(y, axis, -1) @ b, -1, axis)


def factored_kernel(kernel: Kernel, a: Any, b: Any, axes: tuple[str, str]) -> Any:
    """Computes the kernel `a @ b`, on NumPy arrays or on JAX's.

    Example:
        >>> import numpy as np
        >>> a, b = np.ones((3, 1)), np.ones((1, 2))
        >>> factored_kernel(Kernel("kernel", (3, 2), "io", "i", "o"), a, b, ("i", "o")).shape
        (3, 2)
    """
    left, right = _with_rank(axes, _unused(kernel.letters))
    einsum = jnp.einsum if isinstance(a, jax.Array) else np.einsum
    return einsum(f"{left},{right}->{kernel.letters}", a, b)


def spread(layer: Any, kernel: Kernel, vector: jax.Array, axes: str, y: jax.Array) -> jax.Array:
    """Returns a vector of a layer's inputs or outputs with the axes of an input or output.

    Args:
        axes: the letters of the vector: those of the inputs or of the outputs of the kernel.
        y: the input or output.
    """
    vector = vector.astype(y.dtype)
    if kernel.equation is None:
        return fk.align(vector, y.ndim, channel_axis(float_layer(layer).data_format))
    # the ellipsis stands for equally many axes in the input and in the output
    own = kernel.equation.input if axes == kernel.inputs else kernel.equation.output
    equation = kernel.equation.spelled(y.ndim - len(own) + len(kernel.equation.input))
    return arrange(vector, axes, equation.input if axes == kernel.inputs else equation.output)


def without_bias(layer: Any, kernel: Kernel, y: jax.Array, sign: int = -1) -> jax.Array:
    """Returns an output minus the bias of the layer; with `sign=1` plus the bias."""
    bias = getattr(layer, "bias", None)
    if bias is None:
        return y
    bias = sign * bias.astype(y.dtype)
    if kernel.equation is not None:
        return add_bias(y, bias)
    return y + fk.align(bias, y.ndim, channel_axis(float_layer(layer).data_format))


def _with_rank(axes: tuple[str, str], rank: str) -> tuple[str, str]:
    """Returns the letters of both factors with the letter of the rank."""
    left, right = axes
    shared = "".join(n for n in left if n in right)
    return left + rank, shared + rank + "".join(n for n in right if n not in shared)


def _unused(letters: str) -> str:
    return next(letter for letter in string.ascii_letters if letter not in letters)

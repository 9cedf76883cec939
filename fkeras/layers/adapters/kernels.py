"""The kernel of a layer as adapters see it: its input axes and output axes, and products with it."""

from __future__ import annotations

import dataclasses
import string
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.layer.intercepted import computed_layer
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
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
from fkeras.nn.cpu.products import row_product
from fkeras.nn.numerics.axes import channel_axis

PRODUCTS: tuple[type, ...] = (Dense, EinsumDense)
CONVOLUTIONS: tuple[type, ...] = (Conv1D, Conv2D, Conv3D)
EMBEDDINGS: tuple[type, ...] = (Embedding, ReversibleEmbedding)
#: the letter of the rank among the letters of a low-rank factor
RANK = "_"
#: the weight of untied logits, and the last part of the path of its adapter
LOGITS = "reverse_embeddings"
#: functions that a layer applies after its product, by the field that configures them
_AFTER: Mapping[str, Any] = types.MappingProxyType(
    {"activation": lambda y, activation: activation(y), "logit_soft_cap": soft_cap}
)


@dataclasses.dataclass(frozen=True)
class Logits:
    """The logits of a `ReversibleEmbedding` with untied weights, which adapters see as a layer.

    Attributes:
        layer: the embedding, with float or quantized weights.
    """

    layer: Any

    @property
    def built(self) -> bool:
        """Whether the embedding has weights."""
        return self.layer.built


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The axes of a kernel, or of a table of embeddings.

    Attributes:
        name: the name of the weight.
        shape: the sizes of the axes.
        letters: a letter for each axis.
        inputs: the letters that the layer sums over; for a table, the letter of the ids.
        outputs: the letters that only the output has.
        equation: the product with an input, for `Dense`, `EinsumDense` and `Logits`.
    """

    name: str
    shape: tuple[int, ...]
    letters: str
    inputs: str
    outputs: str
    equation: Equation | None = None

    @property
    def shared(self) -> str:
        """The letters of batch axes of the product, each index of which has its own matrix."""
        return "".join(n for n in self.letters if n not in self.inputs + self.outputs)

    @property
    def is_window(self) -> bool:
        """Whether the kernel belongs to a convolution."""
        return self.name == "kernel" and self.equation is None

    @property
    def is_table(self) -> bool:
        """Whether the kernel is a table of embeddings, which are looked up by ids."""
        return self.name == "embeddings"

    def sizes(self, letters: str, rank: int = 0) -> tuple[int, ...]:
        """Returns the sizes of axes; `rank` is the size of the axis "_"."""
        by_letter = {**dict(zip(self.letters, self.shape, strict=True)), RANK: rank}
        return tuple(by_letter[letter] for letter in letters)

    def broadcast_shape(self, letters: str) -> tuple[int, ...]:
        """Returns the shape of the kernel with 1 for the axes that are not in `letters`."""
        pairs = zip(self.letters, self.shape, strict=True)
        return tuple(size if letter in letters else 1 for letter, size in pairs)

    def named(self, letters: str, names: str) -> str:
        """Returns the names of axes, where `names` has a name for each axis of the kernel."""
        by_letter = {**dict(zip(self.letters, names, strict=True)), RANK: "_"}
        return "".join(by_letter[letter] for letter in letters)


def _plain(layer: Any) -> Any:
    """Returns the layer that holds the weights: without `Logits` around it, and without an interception."""
    return computed_layer(layer.layer if isinstance(layer, Logits) else layer)


def float_layer(layer: Any) -> Any:
    """Returns the float layer whose configuration a quantized layer holds; other layers unchanged."""
    plain = _plain(layer)
    return plain.layer if isinstance(plain, Quantized) else plain


def kernel_of(layer: Any) -> Kernel | None:
    """Returns the kernel of a built layer; None for a class of layers without a kernel for adapters.

    Example:
        >>> import jax, fkeras as fk
        >>> kernel = kernel_of(fk.layers.Dense(2).build(jax.random.key(0), (None, 3)))
        >>> kernel.inputs, kernel.outputs, kernel.shape
        ('x', 'y', (3, 2))
    """
    plain = _plain(layer)
    config = float_layer(layer)
    # a subclass may compute something else
    kind = type(config)
    if isinstance(layer, Logits):
        equation = Equation.parse("...d,dv->...v")
        return Kernel(LOGITS, (config.output_dim, config.input_dim), "dv", "d", "v", equation)
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


def has_logits(layer: Any) -> bool:
    """Returns whether a layer is a `ReversibleEmbedding` with untied weights of the logits."""
    config = float_layer(layer)
    return type(config) is ReversibleEmbedding and not config.tie_weights


def adapted_layers(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields the pairs of `fk.engine.sublayers`, and `Logits` behind the embeddings that have them.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.ReversibleEmbedding(9, 4, tie_weights=False)
        >>> [(path, type(inner).__name__) for path, inner in adapted_layers(layer)]
        [('', 'ReversibleEmbedding'), ('reverse_embeddings', 'Logits')]
    """
    for path, inner in sublayers(layer):
        yield path, inner
        if has_logits(inner):
            yield join_path(path, LOGITS), Logits(inner)


def own_kernel(layer: Any) -> Kernel:
    """Returns the kernel of a layer that `Adapter.refusal` accepted."""
    kernel = kernel_of(layer)
    assert kernel is not None
    return kernel


def floats_of(layer: Any, name: str) -> jax.Array:
    """Returns a kernel as floats, dequantized if the layer is quantized."""
    plain = _plain(layer)
    return getattr(plain.dequantize() if isinstance(plain, Quantized) else plain, name)


def without_activation(layer: Any) -> Any:
    """Returns the layer without activation, soft cap of logits and activity regularizer.

    Example:
        >>> import fkeras as fk
        >>> without_activation(fk.layers.Dense(2, activation="relu"))
        Dense(2)
    """
    plain = _plain(layer)
    if plain is not layer:  # the layer inside an interception
        return layer.replace(layer=without_activation(layer.layer))
    config = float_layer(layer)
    names = (*_AFTER, "activity_regularizer")
    removed = {name: None for name in names if getattr(config, name, None) is not None}
    if not removed:
        return layer
    if isinstance(layer, Quantized):
        return layer.replace(layer=config.replace(**removed))
    return layer.replace(**removed)


def apply_activation(layer: Any, y: jax.Array, reverse: bool = False) -> tuple[jax.Array, tuple]:
    """Applies everything that `without_activation` removes; returns the output and the losses."""
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
    """Computes the product of an input with the kernel `a @ b`, without computing `a @ b`.

    Args:
        axes: the letters of the axes of `a` and `b`, with "_" for the rank.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> a, b = jnp.ones((3, 1)), jnp.ones((1, 2))
        >>> factored(layer, kernel_of(layer), jnp.ones((1, 3)), a, b, ("x_", "_y"))
        Array([[3., 3.]], dtype=float32)
    """
    config = float_layer(layer)
    if kernel.is_table:
        return embed(x, a) @ b
    x = x.astype(a.dtype)
    if kernel.equation is not None:
        equation = kernel.equation.spelled(x.ndim)
        inputs, outputs = axes[0].removesuffix(RANK), axes[1].removeprefix(RANK)
        rows = equation.input.removesuffix(inputs)
        # a letter before the rank belongs to an axis with one matrix for each index
        if axes[1][0] == RANK and (equation.input, equation.output) == (
            rows + inputs,
            rows + outputs,
        ):
            return row_product(row_product(x, a, len(inputs)), b, 1)
        left, right = _with_rank(axes, equation.text)
        return jnp.einsum(f"{equation.input},{left},{right}->{equation.output}", x, a, b)
    y = convolve(x, a, config.strides, config.padding, config.data_format, config.dilation_rate)
    axis = channel_axis(config.data_format)
    return jnp.moveaxis(jnp.moveaxis(y, axis, -1) @ b, -1, axis)


def factored_kernel(kernel: Kernel, a: Any, b: Any, axes: tuple[str, str]) -> Any:
    """Computes the kernel `a @ b` of NumPy arrays or JAX arrays."""
    left, right = _with_rank(axes, kernel.letters)
    einsum = jnp.einsum if isinstance(a, jax.Array) else np.einsum
    return einsum(f"{left},{right}->{kernel.letters}", a, b)


def spread(layer: Any, kernel: Kernel, vector: jax.Array, axes: str, y: jax.Array) -> jax.Array:
    """Reshapes a vector over input or output axes so that it broadcasts to an input or output.

    Args:
        axes: the letters of the vector: those of the inputs or of the outputs of the kernel.
        y: the input or output.
    """
    vector = vector.astype(y.dtype)
    if kernel.equation is None:
        return fk.align(vector, y.ndim, channel_axis(float_layer(layer).data_format))
    # an ellipsis has the same number of axes in input and output
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


def _with_rank(axes: tuple[str, str], used: str) -> list[str]:
    """Returns the letters of both factors for `einsum`, with an unused letter for the rank."""
    rank = next(letter for letter in string.ascii_letters if letter not in used)
    return [letters.replace(RANK, rank) for letters in axes]

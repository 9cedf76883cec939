"""`ConvLSTM1D`, `ConvLSTM2D` and `ConvLSTM3D`, which only say over how many axes they go."""

from __future__ import annotations

from typing import ClassVar

from fkeras.engine import option
from fkeras.engine.config.converters import sizes
from fkeras.engine.config.field_types import Sizes
from fkeras.layers.recurrent.conv_lstm import ConvLSTM


class ConvLSTM1D(ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step, itself a sequence, and of the state h; see `conv_lstm_step`.

    Args:
        kernel_size: length of the window.
        data_format: "channels_last" (also None) for inputs (b, t, s, c), "channels_first" for
            (b, t, c, s).
        Other arguments: those of `ConvLSTM2D`.

    Call:
        initial_state: the states to start from, two arrays (b, s2, f).

    Shapes:
        (b, t, s, c) -> (b, s2, f), or (b, t, s2, f) with return_sequences;
        with return_state a tuple of it and the states h and c, both (b, s2, f).
        kernel (k, c, 4f), recurrent_kernel (k, f, 4f), bias (4f,).

    Raises:
        ValueError: as in `ConvLSTM2D`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM1D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8, 3))
        >>> layer(jnp.ones((2, 5, 8, 3))).shape
        (2, 5, 8, 4)

    References:
        Shi et al., 2015, Convolutional LSTM network, https://arxiv.org/abs/1506.04214 (here
        without the products of the gates with c).
    """

    kernel_size: Sizes = option(convert=sizes(1))
    strides: Sizes = option(default=1, convert=sizes(1))
    dilation_rate: Sizes = option(default=1, convert=sizes(1))

    rank: ClassVar[int] = 1


class ConvLSTM2D(ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step, an image, and of the state h; see `conv_lstm_step`.

    Args:
        filters: number `f` of channels of the two states and the output.
        kernel_size: height and width of the window; one integer sets both.
        strides: steps of the kernel over the input along height and width.
        padding: "valid" or "same", for the input. The state is always padded as "same".
        data_format: "channels_last" (also None) for inputs (b, t, h, w, c), "channels_first" for
            (b, t, c, h, w).
        dilation_rate: distance between the input cells that the kernel sees; above 1 only with
            strides of 1.
        dropout: share of the input cells to drop in training, drawn for each gate apart, the same
            cells at every step.
        recurrent_dropout: share of the cells of the state h to drop, drawn in the same way.
        Other arguments: those of `LSTM`, without `use_cudnn` and `implementation`.

    Call:
        initial_state: the states to start from, two arrays (b, h2, w2, f).

    Shapes:
        (b, t, h, w, c) -> (b, h2, w2, f), or (b, t, h2, w2, f) with return_sequences;
        with return_state a tuple of it and the states h and c, both (b, h2, w2, f).
        kernel (kh, kw, c, 4f), recurrent_kernel (kh, kw, f, 4f), bias (4f,).

    Raises:
        ValueError: for strides and dilation together, inputs without a channel axis or smaller
            than the kernel with padding "valid", masks that are not (b, t), and states of other
            shapes.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8, 8, 3))
        >>> layer(jnp.ones((2, 5, 8, 8, 3))).shape
        (2, 5, 8, 8, 4)

    References:
        Shi et al., 2015, Convolutional LSTM network, https://arxiv.org/abs/1506.04214 (here
        without the products of the gates with c).
    """

    kernel_size: Sizes = option(convert=sizes(2))
    strides: Sizes = option(default=1, convert=sizes(2))
    dilation_rate: Sizes = option(default=1, convert=sizes(2))

    rank: ClassVar[int] = 2


class ConvLSTM3D(ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step, a volume, and of the state h; see `conv_lstm_step`.

    Args:
        kernel_size: three sizes of the window; one integer sets all.
        data_format: "channels_last" (also None) for inputs (b, t, d1, d2, d3, c), "channels_first"
            for (b, t, c, d1, d2, d3).
        Other arguments: those of `ConvLSTM2D`.

    Call:
        initial_state: the states to start from, two arrays (b, e1, e2, e3, f).

    Shapes:
        (b, t, d1, d2, d3, c) -> (b, e1, e2, e3, f), or (b, t, e1, e2, e3, f) with return_sequences;
        with return_state a tuple of it and the states h and c, both (b, e1, e2, e3, f).
        kernel (k1, k2, k3, c, 4f), recurrent_kernel (k1, k2, k3, f, 4f), bias (4f,).

    Raises:
        ValueError: as in `ConvLSTM2D`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM3D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 4, 4, 4, 3))
        >>> layer(jnp.ones((2, 3, 4, 4, 4, 3))).shape
        (2, 3, 4, 4, 4, 4)

    References:
        Shi et al., 2015, Convolutional LSTM network, https://arxiv.org/abs/1506.04214 (here
        without the products of the gates with c).
    """

    kernel_size: Sizes = option(convert=sizes(3))
    strides: Sizes = option(default=1, convert=sizes(3))
    dilation_rate: Sizes = option(default=1, convert=sizes(3))

    rank: ClassVar[int] = 3

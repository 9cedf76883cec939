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
        filters: the number `f` of channels of the two states and the output.
        kernel_size: the length of the window.
        strides: the step of the kernel over the input.
        padding: "valid" for windows inside the input, "same" for as many cells as the input has at
            stride 1. The state is always padded as "same".
        data_format: "channels_last" (None means the same) for inputs (b, t, s, c),
            or "channels_first" for (b, t, c, s).
        dilation_rate: the distance of the input's cells that the kernel sees; above 1 only where
            the strides are 1.
        activation: a function or its name; None for none.
        recurrent_activation: the same for the gates.
        use_bias: whether a bias is added.
        kernel_initializer: makes `kernel`.
        recurrent_initializer: makes `recurrent_kernel`.
        bias_initializer: makes `bias`.
        unit_forget_bias: whether the bias of the forget gate begins at one.
        kernel_regularizer: a penalty on `kernel`.
        recurrent_regularizer: a penalty on `recurrent_kernel`.
        bias_regularizer: a penalty on `bias`.
        kernel_constraint: projects `kernel` after an update.
        recurrent_constraint: projects `recurrent_kernel` after an update.
        bias_constraint: projects `bias` after an update.
        dropout: the share of the input's cells to drop in training, drawn for each gate apart,
            the same at every step.
        recurrent_dropout: the share of the cells of the state h to drop, in the same way.
        seed: folded into the key of each call.
        return_sequences: whether the outputs of all steps are returned, or the last one.
        return_state: whether the last states are returned beside the output.
        go_backwards: whether the sequence is read from its end; outputs come in that order.
        stateful: whether a call goes on from the states of the call before it; see `RNN`.
        unroll: whether the loop over time becomes straight code.
        zero_output_for_mask: whether the output is 0 at masked steps (the last output, where the
            last step is masked). Has no effect with unroll, as in Keras.
        activity_regularizer: a penalty on the output.

    Call:
        initial_state: the states to start from, two arrays (b, s2, f).

    Shapes:
        (b, t, s, c) -> (b, s2, f), or (b, t, s2, f) with return_sequences;
        with return_state a tuple of it and the states h and c, both (b, s2, f).
        kernel (k, c, 4f), recurrent_kernel (k, f, 4f), bias (4f,).

    Raises:
        ValueError: for strides and dilation together, inputs without a channel axis or smaller
            than the kernel with padding "valid", masks that are not (b, t), and states of other
            shapes.

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
        filters: the number `f` of channels of the two states and the output.
        kernel_size: height and width of the window, one integer where they are equal.
        strides: the steps of the kernel over the input along height and width.
        padding: "valid" for windows inside the input, "same" for as many cells as the input has at
            stride 1. The state is always padded as "same".
        data_format: "channels_last" (None means the same) for inputs (b, t, h, w, c),
            or "channels_first" for (b, t, c, h, w).
        dilation_rate: the distance of the input's cells that the kernel sees; above 1 only where
            the strides are 1.
        activation: a function or its name; None for none.
        recurrent_activation: the same for the gates.
        use_bias: whether a bias is added.
        kernel_initializer: makes `kernel`.
        recurrent_initializer: makes `recurrent_kernel`.
        bias_initializer: makes `bias`.
        unit_forget_bias: whether the bias of the forget gate begins at one.
        kernel_regularizer: a penalty on `kernel`.
        recurrent_regularizer: a penalty on `recurrent_kernel`.
        bias_regularizer: a penalty on `bias`.
        kernel_constraint: projects `kernel` after an update.
        recurrent_constraint: projects `recurrent_kernel` after an update.
        bias_constraint: projects `bias` after an update.
        dropout: the share of the input's cells to drop in training, drawn for each gate apart,
            the same at every step.
        recurrent_dropout: the share of the cells of the state h to drop, in the same way.
        seed: folded into the key of each call.
        return_sequences: whether the outputs of all steps are returned, or the last one.
        return_state: whether the last states are returned beside the output.
        go_backwards: whether the sequence is read from its end; outputs come in that order.
        stateful: whether a call goes on from the states of the call before it; see `RNN`.
        unroll: whether the loop over time becomes straight code.
        zero_output_for_mask: whether the output is 0 at masked steps (the last output, where the
            last step is masked). Has no effect with unroll, as in Keras.
        activity_regularizer: a penalty on the output.

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
        filters: the number `f` of channels of the two states and the output.
        kernel_size: the three sizes of the window, one integer where they are equal.
        strides: the steps of the kernel over the input along the three axes.
        padding: "valid" for windows inside the input, "same" for as many cells as the input has at
            stride 1. The state is always padded as "same".
        data_format: "channels_last" (None means the same) for inputs (b, t, d1, d2, d3, c),
            or "channels_first" for (b, t, c, d1, d2, d3).
        dilation_rate: the distance of the input's cells that the kernel sees; above 1 only where
            the strides are 1.
        activation: a function or its name; None for none.
        recurrent_activation: the same for the gates.
        use_bias: whether a bias is added.
        kernel_initializer: makes `kernel`.
        recurrent_initializer: makes `recurrent_kernel`.
        bias_initializer: makes `bias`.
        unit_forget_bias: whether the bias of the forget gate begins at one.
        kernel_regularizer: a penalty on `kernel`.
        recurrent_regularizer: a penalty on `recurrent_kernel`.
        bias_regularizer: a penalty on `bias`.
        kernel_constraint: projects `kernel` after an update.
        recurrent_constraint: projects `recurrent_kernel` after an update.
        bias_constraint: projects `bias` after an update.
        dropout: the share of the input's cells to drop in training, drawn for each gate apart,
            the same at every step.
        recurrent_dropout: the share of the cells of the state h to drop, in the same way.
        seed: folded into the key of each call.
        return_sequences: whether the outputs of all steps are returned, or the last one.
        return_state: whether the last states are returned beside the output.
        go_backwards: whether the sequence is read from its end; outputs come in that order.
        stateful: whether a call goes on from the states of the call before it; see `RNN`.
        unroll: whether the loop over time becomes straight code.
        zero_output_for_mask: whether the output is 0 at masked steps (the last output, where the
            last step is masked). Has no effect with unroll, as in Keras.
        activity_regularizer: a penalty on the output.

    Call:
        initial_state: the states to start from, two arrays (b, e1, e2, e3, f).

    Shapes:
        (b, t, d1, d2, d3, c) -> (b, e1, e2, e3, f), or (b, t, e1, e2, e3, f) with return_sequences;
        with return_state a tuple of it and the states h and c, both (b, e1, e2, e3, f).
        kernel (k1, k2, k3, c, 4f), recurrent_kernel (k1, k2, k3, f, 4f), bias (4f,).

    Raises:
        ValueError: for strides and dilation together, inputs without a channel axis or smaller
            than the kernel with padding "valid", masks that are not (b, t), and states of other
            shapes.

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

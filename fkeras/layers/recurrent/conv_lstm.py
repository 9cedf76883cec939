"""Convolutional LSTM over any number of spatial axes.

Each step of a sequence is itself a sequence, an image or a volume, and so are the states.

Differences from Keras: Keras's loop broadcasts a mask (b, 1) along the wrong axes of the states,
which fails, or mixes samples if sizes happen to agree (its unrolled loop is correct). Keras ignores
dropout=1, and rejects steps of unknown sizes.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import window_letters
from fkeras.layers.common.ranks import Spatial
from fkeras.layers.convolution.sliding import (
    Windows1D,
    Windows2D,
    Windows3D,
    check_kernel_fits,
    check_steps,
    known_channels,
)
from fkeras.layers.recurrent.base import DROPOUT, PENALTIES, SEQUENCES, Recurrent
from fkeras.layers.recurrent.gates import open_forget_gate
from fkeras.layers.recurrent.unit_steps import ForgetBias, Gates, Kernels, Penalties
from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import channel_axis
from fkeras.nn.recurrence import Step, conv_lstm_step, draw_mask


class _ConvSteps(Recurrent, Spatial):
    """Scans convolutions of the steps of a sequence.

    Args of the family:
        filters: number `f` of channels of the two states and of the output.
        strides: steps of the kernel over the input along each axis.
        padding: "valid" or "same", for the input. The state is always padded as "same".
        dilation_rate: distance between the input cells that the kernel reads; above 1 only with
            strides of 1.
        activation: function or its name; None is the identity.
    """

    filters: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    kernel_size: fk.Sizes = fk.option()
    strides: fk.Sizes = fk.option(default=1)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    dilation_rate: fk.Sizes = fk.option(default=1)
    activation: fk.Activation = fk.option(default="tanh", convert=fk.activation)

    kernel: jax.Array = fk.weight()
    recurrent_kernel: jax.Array = fk.weight(prefix="recurrent")
    bias: jax.Array | None = fk.weight()


class _ConvLSTM(Penalties, ForgetBias, Kernels, Gates, _ConvSteps):
    """Scans `conv_lstm_step` along time, over `rank` spatial axes.

    Args of the family:
        dropout: probability of dropping an input cell in training, drawn separately for each gate
            and once for all steps.
        recurrent_dropout: probability of dropping a cell of the state h, drawn in the same way.

    Raises of the family:
        ValueError: for strides with dilation, inputs without a channel axis or smaller than the
            kernel with padding "valid", masks that are not (b, t), and initial states of a wrong
            shape.

    References of the family:
        Shi et al., 2015, Convolutional LSTM network, https://arxiv.org/abs/1506.04214 (here
        without the products of the gates with c).
    """

    # Keras's classes have no `unroll`
    _positional: ClassVar[tuple[str, ...]] = (*PENALTIES, *DROPOUT, "seed", *SEQUENCES[:-1])

    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    @property
    def axis_names(self) -> fk.AxisNames:
        # "g" holds the filters of all gates in turn: a device with a part of the axis would lack gates
        kernel, recurrent = (f"{window_letters(self.rank)}{n}g" for n in "iu")
        return fk.AxisNames(
            fk.FrozenDict({"kernel": kernel, "recurrent_kernel": recurrent, "bias": "g"})
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self._where, self.strides, self.dilation_rate)

    @property
    def input_spec(self) -> fk.InputSpec:
        axes = {} if self.kernel is None else {self._channel_axis: self.kernel.shape[-2]}
        return fk.InputSpec(ndim=self.rank + 3, axes=axes)

    @property
    def _channel_axis(self) -> int:
        """Returns the channel axis of the sequences, after batch and time."""
        return -1 if self.data_format == "channels_last" else 2

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        channels = known_channels(self._where, x, self._channel_axis)
        f = self.filters
        layer = self.with_weights(
            key,
            kernel=(*self.kernel_size, channels, 4 * f),
            recurrent_kernel=(*self.kernel_size, f, 4 * f),
            bias=(4 * f,) if self.use_bias else None,
        )
        if layer.bias is None or not self.unit_forget_bias:
            return layer
        return layer.replace(bias=open_forget_gate(key, layer.bias, f))

    def first_states(self, x: fk.Tree) -> list[jax.Array]:
        """Returns zeros of the shape of a step's convolution, for h and c."""
        dims = tuple(x.shape)
        if any(d is None for d in dims[2:]):
            raise ValueError(
                f"{self._where}: stateful=True needs known sizes, received sequences of shape {x}. "
                "The state has one array per sample: give fk.Input the sizes of a step."
            )
        dtype = self.policy.compute_dtype
        step = jax.ShapeDtypeStruct((dims[0], *dims[2:]), dtype)
        check_kernel_fits(self, step)
        kernel = jax.ShapeDtypeStruct(
            (*self.kernel_size, step.shape[channel_axis(self.data_format)], self.filters), dtype
        )
        # trace the convolution abstractly instead of duplicating its shape rules
        shape = jax.eval_shape(lambda x, k: convolve(x, k, *self._sliding), step, kernel).shape
        return [jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)]

    @property
    def _sliding(self) -> tuple[Any, ...]:
        """Arguments of `convolve` for the kernel over a step."""
        return self.strides, self.padding, self.data_format, self.dilation_rate

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        strides, padding, data_format, dilation_rate = self._sliding
        input_mask, recurrent_mask = self._dropout_masks(context, x)
        return functools.partial(
            conv_lstm_step,
            kernel=self.kernel,
            recurrent_kernel=self.recurrent_kernel,
            bias=self.bias,
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            input_mask=input_mask,
            recurrent_mask=recurrent_mask,
        )

    def _dropout_masks(
        self, context: fk.Context, x: jax.Array
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """Draws the dropout masks of the four gates for a step and for the state; or None."""
        if not context.training or (self.dropout == 0 and self.recurrent_dropout == 0):
            return None, None
        key = context.seeded_key(self.seed)

        def draw(name: str, rate: float, shape: tuple) -> jax.Array | None:
            if rate == 0:
                return None
            axis = channel_axis(self.data_format) % len(shape)
            # the masks of the four gates are concatenated along the channels
            wide = (*shape[:axis], 4 * shape[axis], *shape[axis + 1 :])
            return draw_mask(fk.subkey(key, name), rate, wide, x.dtype)

        step, state = (x.shape[0], *x.shape[2:]), self.first_states(x)[0].shape
        return (
            draw("dropout", self.dropout, step),
            draw("recurrent_dropout", self.recurrent_dropout, state),
        )


class ConvLSTM1D(Windows1D, _ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step (a sequence) and of the state h; see `conv_lstm_step`.

    Args:
        data_format: "channels_last" (also None) for inputs (b, t, s, c), "channels_first" for
            (b, t, c, s).

    Call:
        initial_state: initial states, two arrays (b, s2, f).

    Shapes:
        (b, t, s, c) -> (b, s2, f), or (b, t, s2, f) with return_sequences;
        with return_state a tuple of the output and the states h and c, both (b, s2, f).
        kernel (k, c, 4f), recurrent_kernel (k, f, 4f), bias (4f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM1D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8, 3))
        >>> layer(jnp.ones((2, 5, 8, 3))).shape
        (2, 5, 8, 4)
    """


class ConvLSTM2D(Windows2D, _ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step (an image) and of the state h; see `conv_lstm_step`.

    Args:
        data_format: "channels_last" (also None) for inputs (b, t, h, w, c), "channels_first" for
            (b, t, c, h, w).

    Call:
        initial_state: initial states, two arrays (b, h2, w2, f).

    Shapes:
        (b, t, h, w, c) -> (b, h2, w2, f), or (b, t, h2, w2, f) with return_sequences;
        with return_state a tuple of the output and the states h and c, both (b, h2, w2, f).
        kernel (kh, kw, c, 4f), recurrent_kernel (kh, kw, f, 4f), bias (4f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8, 8, 3))
        >>> layer(jnp.ones((2, 5, 8, 8, 3))).shape
        (2, 5, 8, 8, 4)
    """


class ConvLSTM3D(Windows3D, _ConvLSTM):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` by convolutions along time.

    The gates are convolutions of a step (a volume) and of the state h; see `conv_lstm_step`.

    Args:
        data_format: "channels_last" (also None) for inputs (b, t, d1, d2, d3, c), "channels_first"
            for (b, t, c, d1, d2, d3).

    Call:
        initial_state: initial states, two arrays (b, e1, e2, e3, f).

    Shapes:
        (b, t, d1, d2, d3, c) -> (b, e1, e2, e3, f), or (b, t, e1, e2, e3, f) with return_sequences;
        with return_state a tuple of the output and the states h and c, both (b, e1, e2, e3, f).
        kernel (k1, k2, k3, c, 4f), recurrent_kernel (k1, k2, k3, f, 4f), bias (4f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ConvLSTM3D(4, 3, padding="same", return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 4, 4, 4, 3))
        >>> layer(jnp.ones((2, 3, 4, 4, 4, 3))).shape
        (2, 3, 4, 4, 4, 4)
    """

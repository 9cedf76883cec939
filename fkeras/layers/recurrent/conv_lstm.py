"""An LSTM whose products are convolutions, over any number of axes.

Each step of a sequence is itself a sequence, an image or a volume, and so are the states.

Where Keras differs: its loop lays a mask (b, 1) along the wrong axes of such states, which fails, or
mixes rows where sizes happen to agree (unrolled it does not); it ignores dropout=1; and it refuses
steps of unknown sizes.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import Context, InputSpec, Spec, option, subkey, weight
from fkeras.engine.config.converters import boolean, choice, data_format_name, integer, probability
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    DataFormat,
    Initializer,
    Integer,
    OptionalInteger,
    Real,
    Regularizer,
    Sizes,
)
from fkeras.layers.convolution.sliding import check_kernel_fits, check_steps, known_channels
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.gates import open_forget_gate
from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import channel_axis
from fkeras.nn.recurrence import Step, conv_lstm_step, draw_mask


class ConvLSTM(Recurrent):
    """Computes `conv_lstm_step` along time, over `rank` axes."""

    filters: Integer = option(convert=integer(minimum=1))
    kernel_size: Sizes = option()
    strides: Sizes = option(default=1)
    padding: str = option(default="valid", convert=choice("valid", "same"))
    data_format: DataFormat = option(default=None, convert=data_format_name)
    dilation_rate: Sizes = option(default=1)
    activation: Activation = option(default="tanh", convert=activations.get)
    recurrent_activation: Activation = option(default="sigmoid", convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    recurrent_initializer: Initializer = option(default="orthogonal", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    unit_forget_bias: bool = option(default=True, convert=boolean)
    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    recurrent_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    recurrent_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)
    dropout: Real = option(default=0.0, convert=probability)
    recurrent_dropout: Real = option(default=0.0, convert=probability)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    kernel: jax.Array | None = weight()
    recurrent_kernel: jax.Array | None = weight(prefix="recurrent")
    bias: jax.Array | None = weight()

    rank: ClassVar[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self.where, self.strides, self.dilation_rate)

    @property
    def input_spec(self) -> InputSpec:
        axes = {} if self.kernel is None else {self._channel_axis: self.kernel.shape[-2]}
        return InputSpec(ndim=self.rank + 3, axes=axes)

    @property
    def _channel_axis(self) -> int:
        """The axis of the channels in the sequences, behind batch and time."""
        return -1 if self.data_format == "channels_last" else 2

    def build(self, key: jax.Array, x: Spec) -> Self:
        channels = known_channels(self.where, x, self._channel_axis)
        f = self.filters
        made = self.with_weights(
            key,
            kernel=(*self.kernel_size, channels, 4 * f),
            recurrent_kernel=(*self.kernel_size, f, 4 * f),
            bias=(4 * f,) if self.use_bias else None,
        )
        if not self.use_bias or not self.unit_forget_bias:
            return made
        return made.replace(bias=open_forget_gate(key, made.bias, f))

    def first_states(self, x: Any) -> list[jax.Array]:
        """Zeros of the shape that a step's convolution gives, for h and c."""
        dims = tuple(x.shape)
        if any(d is None for d in dims[2:]):
            raise ValueError(
                f"{self.where}: stateful=True needs known sizes, received sequences of shape {x}. "
                "The state holds an array a sample: give fk.Input the sizes of a step."
            )
        dtype = self.policy.compute_dtype
        step = jax.ShapeDtypeStruct((dims[0], *dims[2:]), dtype)
        check_kernel_fits(self, step)
        kernel = jax.ShapeDtypeStruct(
            (*self.kernel_size, step.shape[channel_axis(self.data_format)], self.filters), dtype
        )
        shape = jax.eval_shape(lambda x, k: convolve(x, k, *self._sliding), step, kernel).shape
        return [jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)]

    @property
    def _sliding(self) -> tuple[Any, ...]:
        """How the kernel goes over a step, as `convolve` takes it."""
        return self.strides, self.padding, self.data_format, self.dilation_rate

    def step_function(self, context: Context, x: jax.Array) -> Step:
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
        self, context: Context, x: jax.Array
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """The dropout masks of the four gates for a step and the state; None for no dropout."""
        if not context.training or (self.dropout == 0 and self.recurrent_dropout == 0):
            return None, None
        key = context.key if self.seed is None else subkey(context.key, self.seed)

        def draw(name: str, rate: float, shape: tuple) -> jax.Array | None:
            if rate == 0:
                return None
            axis = channel_axis(self.data_format) % len(shape)
            wide = (*shape[:axis], 4 * shape[axis], *shape[axis + 1 :])
            return draw_mask(subkey(key, name), rate, wide, x.dtype)

        step, state = (x.shape[0], *x.shape[2:]), self.first_states(x)[0].shape
        return (
            draw("dropout", self.dropout, step),
            draw("recurrent_dropout", self.recurrent_dropout, state),
        )

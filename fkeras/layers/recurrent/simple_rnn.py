"""`SimpleRNN`: a dense layer whose output is fed back, and its cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import Context, InputSpec, Layer, Output, Spec, option, weight
from fkeras.engine.config.converters import boolean, integer, probability
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    Initializer,
    Integer,
    OptionalInteger,
    Real,
    Regularizer,
)
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.gates import dropout_masks
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step, simple_rnn_step


def _build(layer: Any, key: jax.Array, x: Spec) -> Any:
    u = layer.units
    bias = (u,) if layer.use_bias else None
    return layer.with_weights(key, kernel=(x.shape[-1], u), recurrent_kernel=(u, u), bias=bias)


def _step(layer: Any, context: Context, x: jax.Array) -> Step:
    input_mask, recurrent_mask = dropout_masks(layer, context, x, 1)
    return functools.partial(
        simple_rnn_step,
        kernel=layer.kernel,
        recurrent_kernel=layer.recurrent_kernel,
        bias=layer.bias,
        activation=layer.activation,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
    )


class SimpleRNNCell(Layer):
    """Computes one step of `SimpleRNN`: `(x, [h]) -> (h, [h])`.

    Args:
        units: the size `u` of the state and output.
        activation: a function or its name; None for none.
        use_bias: whether a bias is added.
        kernel_initializer: makes `kernel`.
        recurrent_initializer: makes `recurrent_kernel`.
        bias_initializer: makes `bias`.
        kernel_regularizer: a penalty on `kernel`.
        recurrent_regularizer: a penalty on `recurrent_kernel`.
        bias_regularizer: a penalty on `bias`.
        kernel_constraint: projects `kernel` after an update.
        recurrent_constraint: projects `recurrent_kernel` after an update.
        bias_constraint: projects `bias` after an update.
        dropout: the share of the inputs to drop, the same at every step.
        recurrent_dropout: the share of the state to drop, the same at every step.
        seed: folded into the key of each call.

    Shapes:
        (b, d), [(b, u)] -> (b, u), [(b, u)]; kernel (d, u), recurrent_kernel (u, u), bias (u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> cell = fk.layers.SimpleRNNCell(3).build(jax.random.key(0), (None, 2))
        >>> h, states = cell(jnp.ones((1, 2)), [jnp.zeros((1, 3))])
        >>> h.shape, len(states)
        ((1, 3), 1)
    """

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("sequence", "states"))

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default="tanh", convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    recurrent_initializer: Initializer = option(default="orthogonal", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
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

    #: the output of a step is its first new state
    output_is_state: ClassVar[bool] = True

    @property
    def state_size(self) -> int:
        return self.units

    @property
    def output_size(self) -> int:
        return self.units

    def get_initial_state(self, batch_size: Any) -> list[jax.Array]:
        """Zeros for a batch of this size."""
        return zero_states(self.units, batch_size, self.policy.compute_dtype)

    def build(self, key: jax.Array, x: Spec, states: Any = None) -> Self:
        return _build(self, key, x)

    def forward(self, context: Context, x: jax.Array, states: Any) -> Output:
        return Output(_step(self, context, x)(x, states))


class SimpleRNN(Recurrent):
    """Computes `h = activation(x_t @ kernel + h @ recurrent_kernel + bias)` along time.

    Args:
        units: the size `u` of the state and output.
        activation: a function or its name; None for none.
        use_bias: whether a bias is added.
        kernel_initializer: makes `kernel`.
        recurrent_initializer: makes `recurrent_kernel`.
        bias_initializer: makes `bias`.
        kernel_regularizer: a penalty on `kernel`.
        recurrent_regularizer: a penalty on `recurrent_kernel`.
        bias_regularizer: a penalty on `bias`.
        kernel_constraint: projects `kernel` after an update.
        recurrent_constraint: projects `recurrent_kernel` after an update.
        bias_constraint: projects `bias` after an update.
        dropout: the share of the inputs to drop in training; one draw a sequence.
        recurrent_dropout: the share of the state to drop in training; one draw a sequence.
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
        initial_state: the state to start from, (b, u).

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of it
        and the state (b, u). kernel (d, u), recurrent_kernel (u, u), bias (u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SimpleRNN(4).build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape
        (2, 4)
    """

    cell_class: ClassVar[str | None] = "SimpleRNNCell"

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default="tanh", convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    recurrent_initializer: Initializer = option(default="orthogonal", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
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

    @property
    def input_spec(self) -> InputSpec:
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return InputSpec(ndim=3, axes=axes)

    def zero_states(self, batch: Any) -> list[jax.Array]:
        return zero_states(self.units, batch, self.policy.compute_dtype)

    def build(self, key: jax.Array, x: Spec) -> Self:
        return _build(self, key, x)

    def step_function(self, context: Context, x: jax.Array) -> Step:
        return _step(self, context, x)

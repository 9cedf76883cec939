"""`LSTM`: long short-term memory, and its cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

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
from fkeras.engine.values.random import ShapeKey
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.gates import dropout_masks, implementation, use_cudnn, without_defaults
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step, lstm_step


def _build(layer: Any, key: jax.Array, x: Spec) -> Any:
    u = layer.units
    bias = (4 * u,) if layer.use_bias else None
    made = layer.with_weights(
        key, kernel=(x.shape[-1], 4 * u), recurrent_kernel=(u, 4 * u), bias=bias
    )
    if bias is None or not layer.unit_forget_bias:
        return made
    # of shapes alone, which may be of any size, no numbers are made
    lanes = jnp.arange(4 * u) if isinstance(key, ShapeKey | Tracer) else np.arange(4 * u)
    forget = lanes // u == 1
    return made.replace(bias=jnp.where(forget, 1.0, made.bias))


def _step(layer: Any, context: Context, x: jax.Array) -> Step:
    input_mask, recurrent_mask = dropout_masks(layer, context, x, 4)
    return functools.partial(
        lstm_step,
        kernel=layer.kernel,
        recurrent_kernel=layer.recurrent_kernel,
        bias=layer.bias,
        activation=layer.activation,
        recurrent_activation=layer.recurrent_activation,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
    )


class LSTMCell(Layer):
    """Computes one step of `LSTM`: `(x, [h, c]) -> (h, [h, c])`.

    Args:
        units: the size `u` of the two states and the output.
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
        dropout: the share of the inputs to drop, the same at every step.
        recurrent_dropout: the share of the state h to drop, the same at every step.
        seed: folded into the key of each call.
        implementation: 1 draws dropout for each gate apart, 2 once for all of them; with
            recurrent_dropout it is always 1.

    Shapes:
        (b, d), [(b, u), (b, u)] -> (b, u), [(b, u), (b, u)]; kernel (d, 4u),
        recurrent_kernel (u, 4u), bias (4u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> cell = fk.layers.LSTMCell(3).build(jax.random.key(0), (None, 2))
        >>> h, states = cell(jnp.ones((1, 2)), [jnp.zeros((1, 3)), jnp.zeros((1, 3))])
        >>> h.shape, len(states)
        ((1, 3), 2)
    """

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("inputs", "states"))

    units: Integer = option(convert=integer(minimum=1))
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
    implementation: Integer = option(default=2, convert=implementation, kw_only=True)

    kernel: jax.Array | None = weight()
    recurrent_kernel: jax.Array | None = weight(prefix="recurrent")
    bias: jax.Array | None = weight()

    #: the output of a step is its first new state
    output_is_state: ClassVar[bool] = True

    @property
    def state_size(self) -> list[int]:
        return [self.units, self.units]

    @property
    def output_size(self) -> int:
        return self.units

    def get_initial_state(self, batch_size: Any) -> list[jax.Array]:
        """Zeros for a batch of this size."""
        return zero_states(self.state_size, batch_size, self.policy.compute_dtype)

    def build(self, key: jax.Array, x: Spec, states: Any = None) -> Self:
        return _build(self, key, x)

    def forward(self, context: Context, x: jax.Array, states: Any) -> Output:
        return Output(_step(self, context, x)(x, states))

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2})


class LSTM(Recurrent):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` along time.

    Args:
        units: the size `u` of the two states and the output.
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
        dropout: the share of the inputs to drop in training; one draw a sequence.
        recurrent_dropout: the share of the state h to drop in training; one draw a sequence.
        seed: folded into the key of each call.
        use_cudnn: taken for Keras's sake and without effect: XLA compiles the same loop always.
        implementation: 1 draws dropout for each gate apart, 2 once for all of them; with
            recurrent_dropout it is always 1.
        return_sequences: whether the outputs of all steps are returned, or the last one.
        return_state: whether the last states are returned beside the output.
        go_backwards: whether the sequence is read from its end; outputs come in that order.
        stateful: whether a call goes on from the states of the call before it; see `RNN`.
        unroll: whether the loop over time becomes straight code.
        zero_output_for_mask: whether the output is 0 at masked steps (the last output, where the
            last step is masked). Has no effect with unroll, as in Keras.
        activity_regularizer: a penalty on the output.

    Call:
        initial_state: the states to start from, [(b, u), (b, u)].

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of it
        and the states h and c, both (b, u). kernel (d, 4u), recurrent_kernel (u, 4u), bias (4u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LSTM(4, return_state=True).build(jax.random.key(0), (None, None, 3))
        >>> y, h, c = layer(jnp.ones((2, 5, 3)))
        >>> y.shape, bool((y == h).all())
        ((2, 4), True)

    References:
        Hochreiter and Schmidhuber, Long short-term memory (1997).
        Jozefowicz et al., An empirical exploration of recurrent network architectures (2015),
        for `unit_forget_bias`.
    """

    cell_class: ClassVar[str | None] = "LSTMCell"

    units: Integer = option(convert=integer(minimum=1))
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
    use_cudnn: bool | str = option(default="auto", convert=use_cudnn, kw_only=True)
    implementation: Integer = option(default=2, convert=implementation, kw_only=True)

    kernel: jax.Array | None = weight()
    recurrent_kernel: jax.Array | None = weight(prefix="recurrent")
    bias: jax.Array | None = weight()

    @property
    def input_spec(self) -> InputSpec:
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return InputSpec(ndim=3, axes=axes)

    def zero_states(self, batch: Any) -> list[jax.Array]:
        return zero_states((self.units, self.units), batch, self.policy.compute_dtype)

    def build(self, key: jax.Array, x: Spec) -> Self:
        return _build(self, key, x)

    def step_function(self, context: Context, x: jax.Array) -> Step:
        return _step(self, context, x)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2, "use_cudnn": "auto"})

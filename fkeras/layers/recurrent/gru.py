"""`GRU`: gated recurrent unit, and its cell."""

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
from fkeras.layers.recurrent.gates import dropout_masks, implementation, use_cudnn, without_defaults
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step, gru_step


def _build(layer: Any, key: jax.Array, x: Spec) -> Any:
    u = layer.units
    bias = (2, 3 * u) if layer.reset_after else (3 * u,)
    return layer.with_weights(
        key,
        kernel=(x.shape[-1], 3 * u),
        recurrent_kernel=(u, 3 * u),
        bias=bias if layer.use_bias else None,
    )


def _step(layer: Any, context: Context, x: jax.Array) -> Step:
    input_mask, recurrent_mask = dropout_masks(layer, context, x, 3)
    return functools.partial(
        gru_step,
        kernel=layer.kernel,
        recurrent_kernel=layer.recurrent_kernel,
        bias=layer.bias,
        activation=layer.activation,
        recurrent_activation=layer.recurrent_activation,
        reset_after=layer.reset_after,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
    )


class GRUCell(Layer):
    """Computes one step of `GRU`: `(x, [h]) -> (h, [h])`.

    Args:
        units: the size `u` of the state and output.
        activation: a function or its name; None for none.
        recurrent_activation: the same for the gates.
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
        reset_after: whether the reset gate comes after the product with `recurrent_kernel`.
        seed: folded into the key of each call.
        implementation: 1 draws dropout for each gate apart, 2 once for all of them; with
            recurrent_dropout it is always 1.

    Shapes:
        (b, d), [(b, u)] -> (b, u), [(b, u)]; kernel (d, 3u), recurrent_kernel (u, 3u),
        bias (2, 3u), or (3u,) without reset_after.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> cell = fk.layers.GRUCell(3).build(jax.random.key(0), (None, 2))
        >>> h, states = cell(jnp.ones((1, 2)), [jnp.zeros((1, 3))])
        >>> h.shape, len(states)
        ((1, 3), 1)
    """

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("inputs", "states"))

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default="tanh", convert=activations.get)
    recurrent_activation: Activation = option(default="sigmoid", convert=activations.get)
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
    reset_after: bool = option(default=True, convert=boolean)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    implementation: Integer = option(default=2, convert=implementation, kw_only=True)

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

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2})


class GRU(Recurrent):
    """Computes `h = z * h + (1 - z) * activation(g)` along time.

    Args:
        units: the size `u` of the state and output.
        activation: a function or its name; None for none.
        recurrent_activation: the same for the gates.
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
        reset_after: whether the reset gate comes after the product with `recurrent_kernel`.
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
        initial_state: the state to start from, (b, u).

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of it
        and the state (b, u). kernel (d, 3u), recurrent_kernel (u, 3u), bias (2, 3u), or (3u,)
        without reset_after.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.GRU(4, return_sequences=True)
        >>> layer = layer.build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape
        (2, 5, 4)

    References:
        Cho et al., Learning phrase representations using RNN encoder-decoder (2014),
        https://arxiv.org/abs/1406.1078 (version 1 with reset_after, version 3 without).
    """

    cell_class: ClassVar[str | None] = "GRUCell"

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default="tanh", convert=activations.get)
    recurrent_activation: Activation = option(default="sigmoid", convert=activations.get)
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
    reset_after: bool = option(default=True, convert=boolean, kw_only=True)
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
        return zero_states(self.units, batch, self.policy.compute_dtype)

    def build(self, key: jax.Array, x: Spec) -> Self:
        return _build(self, key, x)

    def step_function(self, context: Context, x: jax.Array) -> Step:
        return _step(self, context, x)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2, "use_cudnn": "auto"})

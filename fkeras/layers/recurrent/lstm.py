"""`LSTM`: long short-term memory, and its cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import Context, option
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
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.recurrent.gates import (
    dropout_masks,
    implementation,
    open_forget_gate,
    use_cudnn,
    without_defaults,
)
from fkeras.layers.recurrent.unit_steps import UnitCell, UnitRecurrent, UnitStep
from fkeras.nn.recurrence import Step, lstm_step


class _LSTM(UnitStep):
    """Fields, weights and step that `LSTM` and `LSTMCell` share."""

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

    @property
    def _state_sizes(self) -> list[int]:
        return [self.units, self.units]

    def build(self, key: jax.Array, x: SpecLike, states: Any = None) -> Self:
        u = self.units
        bias = (4 * u,) if self.use_bias else None
        layer = self.with_weights(
            key, kernel=(x.shape[-1], 4 * u), recurrent_kernel=(u, 4 * u), bias=bias
        )
        if layer.bias is None or not self.unit_forget_bias:
            return layer
        # Jozefowicz et al.: a forget gate that starts open preserves gradients over long sequences
        return layer.replace(bias=open_forget_gate(key, layer.bias, u))

    def step_function(self, context: Context, x: jax.Array) -> Step:
        input_mask, recurrent_mask = dropout_masks(self, context, x, 4)
        return functools.partial(
            lstm_step,
            kernel=self.kernel,
            recurrent_kernel=self.recurrent_kernel,
            bias=self.bias,
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            input_mask=input_mask,
            recurrent_mask=recurrent_mask,
        )


class LSTMCell(_LSTM, UnitCell):
    """Computes one step of `LSTM`: `(x, [h, c]) -> (h, [h, c])`.

    Args:
        Arguments: those of `LSTM` up to `seed`, and `implementation`.

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

    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    implementation: Integer = option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2})


class LSTM(_LSTM, UnitRecurrent):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` along time.

    Args:
        units: size `u` of the two states and of the output.
        activation: function or its name; None is the identity.
        recurrent_activation: function or its name, for the gates.
        use_bias: whether to add a bias.
        kernel_initializer: draws `kernel`.
        recurrent_initializer: draws `recurrent_kernel`.
        bias_initializer: draws `bias`.
        unit_forget_bias: whether the bias of the forget gate starts at one.
        kernel_regularizer: penalty on `kernel`.
        recurrent_regularizer: penalty on `recurrent_kernel`.
        bias_regularizer: penalty on `bias`.
        kernel_constraint: projection of `kernel` after each update.
        recurrent_constraint: projection of `recurrent_kernel` after each update.
        bias_constraint: projection of `bias` after each update.
        dropout: probability of dropping an input entry in training, drawn once for all steps.
        recurrent_dropout: probability of dropping an entry of the state h in training, drawn once
            for all steps.
        seed: folded into the key of each call; None uses the key alone.
        use_cudnn: accepted for compatibility with Keras, without effect: XLA compiles the loop.
        implementation: 1 draws dropout separately for each gate, 2 once for all gates; always 1
            with recurrent_dropout.
        Other arguments: those of `RNN`, without `cell`.

    Call:
        initial_state: initial states, [(b, u), (b, u)].

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of the
        output and the states h and c, both (b, u). kernel (d, 4u), recurrent_kernel (u, 4u), bias
        (4u,).

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

    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    use_cudnn: bool | str = option(default="auto", convert=use_cudnn, kw_only=True)
    implementation: Integer = option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2, "use_cudnn": "auto"})

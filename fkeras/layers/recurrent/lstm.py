"""`LSTM`: long short-term memory, and its cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.base import DROPOUT, PENALTIES, SEQUENCES
from fkeras.layers.recurrent.gates import (
    dropout_masks,
    implementation,
    open_forget_gate,
    use_cudnn,
    without_defaults,
)
from fkeras.layers.recurrent.unit_steps import (
    ForgetBias,
    Gates,
    Kernels,
    Penalties,
    UnitCell,
    UnitRecurrent,
    UnitStep,
)
from fkeras.nn.recurrence import Step, lstm_step


class _LSTM(Penalties, ForgetBias, Kernels, Gates, UnitStep):
    """Fields, weights and step that `LSTM` and `LSTMCell` share."""

    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    @property
    def _state_sizes(self) -> list[int]:
        return [self.units, self.units]

    def build(self, key: jax.Array, x: fk.SpecLike, states: fk.Tree = None) -> Self:
        u = self.units
        bias = (4 * u,) if self.use_bias else None
        layer = self.with_weights(
            key, kernel=(x.shape[-1], 4 * u), recurrent_kernel=(u, 4 * u), bias=bias
        )
        if layer.bias is None or not self.unit_forget_bias:
            return layer
        # Jozefowicz et al.: a forget gate that starts open preserves gradients over long sequences
        return layer.replace(bias=open_forget_gate(key, layer.bias, u))

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
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

    implementation: fk.Integer = fk.option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2})


class LSTM(_LSTM, UnitRecurrent):
    """Computes `c = f * c + i * activation(g)`, `h = o * activation(c)` along time.

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

    _positional: ClassVar[tuple[str, ...]] = (
        *PENALTIES,
        *DROPOUT,
        "seed",
        *SEQUENCES,
        "use_cudnn",
    )

    cell_class: ClassVar[str | None] = "LSTMCell"

    use_cudnn: bool | str = fk.option(default="auto", convert=use_cudnn, kw_only=True)
    implementation: fk.Integer = fk.option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2, "use_cudnn": "auto"})

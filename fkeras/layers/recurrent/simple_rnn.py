"""`SimpleRNN`: a dense layer with a recurrent connection, and its cell."""

from __future__ import annotations

import functools
from typing import ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.base import DROPOUT, PENALTIES, SEQUENCES
from fkeras.layers.recurrent.gates import dropout_masks
from fkeras.layers.recurrent.unit_steps import Kernels, Penalties, UnitCell, UnitRecurrent, UnitStep
from fkeras.nn.recurrence import Step, simple_rnn_step


class _SimpleRNN(Penalties, Kernels, UnitStep):
    """Fields, weights and step that `SimpleRNN` and `SimpleRNNCell` share."""

    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def build(self, key: jax.Array, x: fk.SpecLike, states: fk.Tree = None) -> Self:
        u = self.units
        bias = (u,) if self.use_bias else None
        return self.with_weights(key, kernel=(x.shape[-1], u), recurrent_kernel=(u, u), bias=bias)

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        input_mask, recurrent_mask = dropout_masks(self, context, x, 1)
        return functools.partial(
            simple_rnn_step,
            kernel=self.kernel,
            recurrent_kernel=self.recurrent_kernel,
            bias=self.bias,
            activation=self.activation,
            input_mask=input_mask,
            recurrent_mask=recurrent_mask,
        )


class SimpleRNNCell(_SimpleRNN, UnitCell):
    """Computes one step of `SimpleRNN`: `(x, [h]) -> (h, [h])`.

    Shapes:
        (b, d), [(b, u)] -> (b, u), [(b, u)]; kernel (d, u), recurrent_kernel (u, u), bias (u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> cell = fk.layers.SimpleRNNCell(3).build(jax.random.key(0), (None, 2))
        >>> h, states = cell(jnp.ones((1, 2)), [jnp.zeros((1, 3))])
        >>> h.shape, len(states)
        ((1, 3), 1)
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(input_names=("sequence", "states"))


class SimpleRNN(_SimpleRNN, UnitRecurrent):
    """Computes `h = activation(x_t @ kernel + h @ recurrent_kernel + bias)` along time.

    Call:
        initial_state: initial state, (b, u).

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of the
        output and the state (b, u). kernel (d, u), recurrent_kernel (u, u), bias (u,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SimpleRNN(4).build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape
        (2, 4)
    """

    _positional: ClassVar[tuple[str, ...]] = (*PENALTIES, *DROPOUT, *SEQUENCES, "seed")

    cell_class: ClassVar[str | None] = "SimpleRNNCell"

"""`GRU`: gated recurrent unit, and its cell."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.base import DROPOUT, PENALTIES, SEQUENCES
from fkeras.layers.recurrent.gates import dropout_masks, implementation, use_cudnn, without_defaults
from fkeras.layers.recurrent.unit_steps import (
    Gates,
    Kernels,
    Penalties,
    UnitCell,
    UnitRecurrent,
    UnitStep,
)
from fkeras.nn.recurrence import Step, gru_step


class _GRU(Penalties, Kernels, Gates, UnitStep):
    """Fields, weights and step that `GRU` and `GRUCell` share.

    Args of the family:
        reset_after: whether to apply the reset gate after the product with `recurrent_kernel`.
    """

    reset_after: bool = fk.option(default=True, convert=fk.boolean)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def build(self, key: jax.Array, x: fk.SpecLike, states: fk.Tree = None) -> Self:
        u = self.units
        # two biases with reset_after: cuDNN's variant also adds a bias after the recurrent product
        bias = (2, 3 * u) if self.reset_after else (3 * u,)
        return self.with_weights(
            key,
            kernel=(x.shape[-1], 3 * u),
            recurrent_kernel=(u, 3 * u),
            bias=bias if self.use_bias else None,
        )

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        input_mask, recurrent_mask = dropout_masks(self, context, x, 3)
        bias, recurrent_bias = self.bias, None
        if bias is not None and self.reset_after:
            # outside of the loop, whose gradients of the rows would be whole arrays
            bias, recurrent_bias = bias[0], bias[1]
        return functools.partial(
            gru_step,
            kernel=self.kernel,
            recurrent_kernel=self.recurrent_kernel,
            bias=bias,
            recurrent_bias=recurrent_bias,
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            reset_after=self.reset_after,
            input_mask=input_mask,
            recurrent_mask=recurrent_mask,
        )


class GRUCell(_GRU, UnitCell):
    """Computes one step of `GRU`: `(x, [h]) -> (h, [h])`.

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

    implementation: fk.Integer = fk.option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2})


class GRU(_GRU, UnitRecurrent):
    """Computes `h = z * h + (1 - z) * activation(g)` along time.

    Call:
        initial_state: initial state, (b, u).

    Shapes:
        (b, t, d) -> (b, u), or (b, t, u) with return_sequences; with return_state a tuple of the
        output and the state (b, u). kernel (d, 3u), recurrent_kernel (u, 3u), bias (2, 3u), or
        (3u,) without reset_after.

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

    _positional: ClassVar[tuple[str, ...]] = (
        *PENALTIES,
        *DROPOUT,
        "seed",
        *SEQUENCES,
        "reset_after",
        "use_cudnn",
    )

    cell_class: ClassVar[str | None] = "GRUCell"

    reset_after: bool = fk.option(default=True, convert=fk.boolean, kw_only=True)
    use_cudnn: bool | str = fk.option(default="auto", convert=use_cudnn, kw_only=True)
    implementation: fk.Integer = fk.option(default=2, convert=implementation, kw_only=True)

    def get_config(self) -> dict[str, Any]:
        return without_defaults(super().get_config(), {"implementation": 2, "use_cudnn": "auto"})

"""`RNN`: applies any cell along time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import jax

from fkeras.engine.config.field_types import Converted
from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.base import SEQUENCES, Recurrent
from fkeras.layers.recurrent.cells import (
    StackedRNNCells,
    check_cell,
    first_states,
    output_reader,
    run_cell,
)
from fkeras.nn.recurrence import Step


def _cell(cell: fk.Layer) -> fk.Layer:
    return (
        StackedRNNCells(tuple(cell))
        if isinstance(cell, list | tuple)
        else check_cell(cell, "RNN: cell")
    )


class RNN(Recurrent):
    """Scans a cell along time, with the cell's states as carry.

    A masked step leaves states and output unchanged.

    Args:
        cell: a layer with a `state_size` that is called as
            `cell(x_t, states) -> (output, new_states)`; or a list of cells, which are stacked.

    Call:
        initial_state: initial states, a list with one array or tensor for each state.

    Shapes:
        (b, t, ...) -> the cell's output (b, u), or (b, t, u) with return_sequences; with
        return_state a tuple of the output and the states.

    Raises:
        ValueError: for a cell without state_size; for stateful=True with an unknown batch size;
            for unroll=True with an unknown length; for initial states of a wrong shape.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> class Sum(fk.Layer):
        ...     state_size = 3
        ...     def call(self, x, states):
        ...         total = states[0] + x
        ...         return total, [total]
        >>> layer = fk.layers.RNN(Sum()).build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((1, 4, 3)))
        Array([[4., 4., 4.]], dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = (*SEQUENCES, "zero_output_for_mask")

    cell: Converted[fk.Layer | Sequence[fk.Layer], fk.Layer] = fk.option(convert=_cell)

    @property
    def built(self) -> bool:
        return self.cell.built

    @property
    def state_size(self) -> list:
        cell: Any = self.cell  # `check_cell` requires the attribute
        size = cell.state_size
        return [size] if isinstance(size, int) else list(size)

    @property
    def output_of(self) -> Callable[[Any], jax.Array] | None:
        return output_reader(self.cell)

    def zero_states(self, batch: fk.Tree) -> list:
        return first_states(self.cell, batch)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        if self.cell.built:
            return self
        step = fk.Spec((x.dims[0], *x.dims[2:]), x.dtype)
        return self.replace(cell=self.cell.build(fk.subkey(key, "cell"), step))

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        # a new child context per trace: keys derived in the loop's body must not escape from it
        return lambda x_t, states: run_cell(self.cell, context.child("cell"), x_t, states)

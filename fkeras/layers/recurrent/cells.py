"""Protocol of cells, and `StackedRNNCells`, which combines several cells into one.

A cell is a layer called as `cell(x_t, states) -> (output, new_states)` with a list of states. It
has a `state_size`: an integer, or a list with the size of each state. It may have an `output_size`
(default: the size of the first state) and a `get_initial_state(batch_size)` (default: zeros). It
may declare `output_is_state = True` if its output is its first new state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeAlias

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.states import zero_states

#: a layer that follows the protocol of this file
Cell: TypeAlias = Any


def check_cell(cell: Cell, where: str) -> Cell:
    """Checks that a cell follows the protocol, and returns the cell."""
    if not isinstance(cell, fk.Layer) or getattr(cell, "state_size", None) is None:
        received = type(cell).__name__
        reason = "has no state_size" if isinstance(cell, fk.Layer) else "is no layer"
        raise ValueError(
            f"{where}: expected a cell, received {received}, which {reason}. A cell is a layer with a "
            "state_size whose call takes (x_t, states) and returns (output, new_states), such as "
            "fk.layers.LSTMCell(8)."
        )
    return cell


def first_states(cell: Cell, batch: fk.Tree) -> list:
    """Returns the states of a cell before the first step."""
    initial_state_of = getattr(cell, "get_initial_state", None)
    if initial_state_of is None:
        return zero_states(cell.state_size, batch, cell.policy.compute_dtype)
    states = initial_state_of(batch_size=batch)
    return list(states) if isinstance(states, list | tuple) else [states]


def output_size(cell: Cell) -> int:
    """Returns the size of a cell's output."""
    size = getattr(cell, "output_size", None)
    if size is None:
        size = cell.state_size if isinstance(cell.state_size, int) else cell.state_size[0]
    return size


def output_reader(cell: Cell) -> Callable[[Any], jax.Array] | None:
    """Returns the function that reads a cell's last output from its states, or None."""
    # reading the output from the states saves the loop a second carry
    if isinstance(cell, StackedRNNCells):
        inner = output_reader(cell.cells[-1])
        return None if inner is None else lambda states: inner(states[-1])
    return (lambda states: states[0]) if getattr(cell, "output_is_state", False) else None


def run_cell(cell: Cell, context: fk.Context, x: jax.Array, states: list) -> tuple[jax.Array, list]:
    """Runs one step of a cell; the new states have the structure of the old states.

    Raises:
        ValueError: for other return values, and for a cell that returns updates, losses or metrics.
    """
    out = context.run(cell, x, states)
    # losses and updates are tracers of the scan's body, which must not escape from it
    if out.updates or out.losses or out.metrics:
        raise ValueError(
            f"{cell._where}: expected a cell without updates, losses and metrics, because cells run "
            "inside of the loop over time. Keep carried values in the cell's states, and put "
            "regularizers on the layer around it."
        )
    if not isinstance(out.value, tuple | list) or len(out.value) != 2:
        raise ValueError(
            f"{cell._where}: expected a cell to return (output, new_states), received "
            f"{type(out.value).__name__}. Write `return output, [new_state]`."
        )
    output, new = out.value
    # a scan requires the same pytree as carry in and out; cells may return tuples or one array
    leaves, structure = jax.tree.leaves(new), jax.tree.structure(states)
    if len(leaves) != structure.num_leaves:
        raise ValueError(
            f"{cell._where}: expected {structure.num_leaves} new states, as state_size="
            f"{cell.state_size} has, received {len(leaves)}. Return one for each."
        )
    return output, jax.tree.unflatten(structure, leaves)


def _cells(cells: fk.Tree) -> tuple[fk.Layer, ...]:
    if not isinstance(cells, list | tuple) or not cells:
        raise ValueError(
            f"StackedRNNCells: expected a list of cells, received {cells!r}. Write "
            "StackedRNNCells([LSTMCell(8), LSTMCell(4)])."
        )
    return tuple(check_cell(c, f"StackedRNNCells: cells[{i}]") for i, c in enumerate(cells))


class StackedRNNCells(fk.Layer):
    """Computes one step of several cells; each cell receives the output of the previous cell.

    Args:
        cells: the cells; the first cell receives the input.

    Shapes:
        (b, d), a list of each cell's states -> (b, u) of the last cell, new states.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RNN([fk.layers.LSTMCell(3), fk.layers.GRUCell(2)])
        >>> layer = layer.build(jax.random.key(0), (None, None, 4))
        >>> layer(jnp.ones((1, 5, 4))).shape
        (1, 2)
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(input_names=("inputs", "states"))

    cells: tuple[fk.Layer, ...] = fk.option(convert=_cells)

    @property
    def built(self) -> bool:
        return all(cell.built for cell in self.cells)

    @property
    def state_size(self) -> list[Any]:
        cells: tuple[Any, ...] = self.cells  # `check_cell` requires the attribute
        return [cell.state_size for cell in cells]

    @property
    def output_size(self) -> int:
        return output_size(self.cells[-1])

    def get_initial_state(self, batch_size: int | None) -> list[list]:
        """Returns the initial states of each cell."""
        return [first_states(cell, batch_size) for cell in self.cells]

    def build(self, key: jax.Array, x: fk.SpecLike, states: fk.Tree = None) -> Self:
        built = []
        for index, cell in enumerate(self.cells):
            built.append(cell if cell.built else cell.build(fk.subkey(key, f"cells/{index}"), x))
            # the next cell receives this cell's output
            x = fk.Spec((x.dims[0], output_size(cell)), x.dtype)
        return self.replace(cells=tuple(built))

    def forward(self, context: fk.Context, x: jax.Array, states: fk.Tree) -> fk.Output:
        new_states = []
        for index, (cell, cell_states) in enumerate(zip(self.cells, states, strict=True)):
            x, new = run_cell(cell, context.child(f"cells/{index}"), x, list(cell_states))
            new_states.append(new)
        return fk.Output((x, new_states))

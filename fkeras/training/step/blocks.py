"""Runs with stacked blocks: the form in which the calls of one `fit` pass a run to each other.

A step over stacked blocks takes, updates and returns one array for each weight of a block, so neither the
program nor its compilation grows with the number of blocks. See `fkeras.engine.network.stacking`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fkeras.engine import Network, trainable_weights
from fkeras.engine.network.stacking import Stacking
from fkeras.optimizers import transformation
from fkeras.training.data.features import with_front, without_front
from fkeras.training.records.annotations import Optimizer, Trainer
from fkeras.training.records.state import TrainState, split
from fkeras.training.step.changes import joined, parted
from fkeras.training.step.elementwise import updates_stacks
from fkeras.training.step.masters import optimizer_of
from fkeras.transforms.depth import with_depth
from fkeras.transforms.splitting import Cut


def stacking_of(trainer: Trainer, run: TrainState) -> Stacking | None:
    """Returns the stacking of the repeated blocks of a run, or None if the blocks stay single.

    Blocks stay single for an objective, which may read the layers of the model; on a mesh, where the
    rules of the trainer shard the weights of each block; and for an optimizer that reads more than
    one element of a weight at once.
    """
    if trainer.depth == "unroll" or trainer.objective is not None or trainer.mesh is not None:
        return None
    weights = trainable_weights(run.model)
    specs = tuple((path, weight.shape, weight.dtype) for path, weight in weights.items())
    leaves, structure = jax.tree.flatten(run.model)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    stacking = _stacking(structure, shapes, trainer.depth, trainer.remat)
    optimizer = optimizer_of(trainer)
    if not stacking.layers or not _is_elementwise(optimizer, stacking, specs):
        return None
    opt_leaves, opt_structure = jax.tree.flatten(run.opt_state)
    opt_shapes = tuple((leaf.shape, leaf.dtype) for leaf in opt_leaves)
    matches = _matches(optimizer, stacking, specs, opt_structure, opt_shapes)
    return stacking if matches else None


def stacked(stacking: Stacking | None, run: TrainState) -> TrainState:
    """Returns the run with stacked blocks; the same run for None."""
    if stacking is None:
        return run
    return run.replace(
        model=stacking.stack(run.model),
        state=stacking.stack_state(run.state),
        opt_state=stacking.stack_weights(run.opt_state),
    )


def unstacked(stacking: Stacking | None, run: TrainState) -> TrainState:
    """Returns the run with single blocks, the inverse of `stacked`.

    Args:
        run: a run from `stacked`, or from a step that began with one.
    """
    if stacking is None:
        return run
    return run.replace(
        model=stacking.unstack(run.model),
        state=stacking.unstack_state(run.state),
        opt_state=stacking.unstack_weights(run.opt_state),
    )


class FlatRun(NamedTuple):
    """A run in the form that the compiled functions of a loop take.

    Attributes:
        structure: tree structure of the run, with stacked blocks.
        leaves: arrays of the run that a step changes.
        fixed: the other arrays, such as frozen weights.
        stacking: how the arrays hold repeated blocks; None for single blocks.
        partial: whether weights are missing that only the front of the model reads.
    """

    structure: Any
    leaves: tuple
    fixed: tuple
    stacking: Stacking | None
    partial: bool = False

    def joined(self, outer: TrainState) -> TrainState:
        """Returns the run of the arrays, with the position and memory of `outer`."""
        run = joined(self.structure, self.leaves, self.fixed)
        run = run.replace(position=outer.position, memory=outer.memory)
        run = unstacked(self.stacking, run)
        return run.replace(model=with_front(run.model, outer.model)) if self.partial else run


def flat(trainer: Trainer, run: TrainState, cut: Cut | None = None) -> FlatRun:
    """Returns a run as arrays; `FlatRun.joined` is the inverse.

    Args:
        cut: where the model is split, for batches of features.
    """
    partial, stacking = cut is not None, None
    if partial:
        run = run.replace(model=without_front(run.model, cut))
    else:
        stacking = stacking_of(trainer, run)
    structure, leaves = split(stacked(stacking, run))
    return FlatRun(structure, *parted(structure, leaves), stacking, partial)


# cached: every epoch asks for the stacking of the same model
@functools.lru_cache(maxsize=16)
def _stacking(
    structure: Any, shapes: tuple, depth: str, remat: str | Callable[..., Any] | None
) -> Stacking:
    model: Network = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    )
    return Stacking(with_depth(model, depth, remat), model)


@functools.lru_cache(maxsize=16)
def _is_elementwise(optimizer: Optimizer, stacking: Stacking, specs: tuple) -> bool:
    try:
        stacks = jax.eval_shape(stacking.stack_weights, _weights(specs))
    except ValueError:  # the weights of the blocks have different dtypes
        return False
    return updates_stacks(optimizer, stacking, stacks)


@functools.lru_cache(maxsize=16)
def _matches(
    optimizer: Optimizer,
    stacking: Stacking,
    specs: tuple,
    opt_structure: Any,
    opt_shapes: tuple,
) -> bool:
    """Returns whether the optimizer's state for stacked weights is the stack of the state."""
    opt_state = opt_structure.unflatten([jax.ShapeDtypeStruct(*shape) for shape in opt_shapes])
    try:
        weights, opt_state = jax.eval_shape(stacking.stack_weights, (_weights(specs), opt_state))
    except ValueError:  # a rule of the optimizer treats the weights of one block otherwise
        return False
    expected = jax.eval_shape(transformation(optimizer).init, weights)
    same_structure = jax.tree.structure(expected) == jax.tree.structure(opt_state)
    return same_structure and all(
        a.shape == b.shape
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(opt_state), strict=True)
    )


def _weights(specs: tuple) -> dict[str, jax.ShapeDtypeStruct]:
    return {path: jax.ShapeDtypeStruct(shape, dtype) for path, shape, dtype in specs}

"""The part of a run that a step with `Rowwise` changes: rows of embedding tables, and all other weights.

The step sees a run whose tables hold only the distinct ids of the batch. Its model finds an id at the place
of the id in this list. Gradients, optimizer and checks of this run therefore concern these rows alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from fkeras.engine import (
    FKerasError,
    FrozenDict,
    Layer,
    Output,
    replace_weights,
    sublayers,
    trainable_weights,
)
from fkeras.engine.call.context import Context
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import replace_children
from fkeras.engine.tree.walk import join_path
from fkeras.layers import Embedding
from fkeras.layers.core.masking import both_masks
from fkeras.nn.numerics.indices import unsigned_indices
from fkeras.optimizers import Rowwise
from fkeras.optimizers.updates.paths import mentions
from fkeras.programs.walk import depends
from fkeras.training.records.state import TrainState
from fkeras.training.step import optimizer_state
from fkeras.training.step.changes import changed_weights
from fkeras.training.step.masters import MasterWeights
from fkeras.training.step.transformations import specs_of
from fkeras.transforms.intercepting import Intercepted

#: `(model) -> loss` of the batch of a step
Loss = Callable[[Layer], jax.Array]
_FIELD = "embeddings"


@dataclasses.dataclass(frozen=True)
class View:
    """A run for one step.

    Attributes:
        run: the run whose tables hold the rows that the batch reads.
        ids: the sorted ids of these rows, by path of the table.
        whole: the complete run.
        places: for each array of the optimizer's state the path of its table, or None.
    """

    run: TrainState
    ids: Mapping[str, jax.Array] = FrozenDict({})
    whole: TrainState | None = None
    places: tuple[str | None, ...] = ()

    def mapped(self, model: Layer) -> Layer:
        """Returns the model of the run with calls of its tables that find the rows of ids."""
        if self.whole is None:
            return model
        counts = trainable_weights(self.whole.model)

        def around(path: str, layer: Any, context: Context, inputs: tuple, options: Any) -> Output:
            table = _table_of(path)
            count, known = counts[table].shape[0], self.ids[table]
            ids = unsigned_indices(inputs[0], count)
            place = jnp.searchsorted(known, ids.astype(known.dtype))
            # an invalid id finds no row, and gives NaN as in the complete table
            place = jnp.where(ids < count, place, known.size).astype("int32")
            out = context.run(layer, place, *inputs[1:], **options)
            return dataclasses.replace(
                out, mask=both_masks(context.mask, layer.compute_mask(inputs[0]))
            )

        return _intercepted(model, self.ids, around)

    def written(self, new: TrainState) -> TrainState:
        """Returns the complete run with the values of `run` after a step."""
        whole: Any = self.whole
        old, weights = trainable_weights(whole.model), changed_weights(new.model)
        weights |= {path: _with_rows(old[path], self.ids[path], weights[path]) for path in self.ids}
        leaves, structure = jax.tree.flatten(new.opt_state)
        leaves = [
            small if path is None else _with_rows(large, self.ids[path], small)
            for small, large, path in zip(
                leaves, jax.tree.leaves(whole.opt_state), self.places, strict=True
            )
        ]
        return new.replace(
            model=replace_weights(whole.model, weights), opt_state=structure.unflatten(leaves)
        )


def view_of(optimizer: Rowwise | MasterWeights, run: TrainState, loss: Loss) -> View:
    """Returns the run for one step of an optimizer: the rows that the batch reads, and all other weights.

    Args:
        loss: the loss of the batch; its calls of the tables decide which rows the step reads.

    Raises:
        FKerasError: for tables whose rows alone cannot be updated.
    """
    rowwise = optimizer.optimizer if isinstance(optimizer, MasterWeights) else optimizer
    tables = _tables(rowwise, run.model)
    weights = trainable_weights(run.model)
    ids = {}
    for path, calls in _looked_up(run, loss, tables).items():
        count, total = weights[path].shape[0], sum(array.size for array in calls)
        if calls and total < count:
            flat = jnp.concatenate([unsigned_indices(a, count) for a in calls])
            inside = jnp.where(flat < count, flat, count).astype("int32")
            ids[path] = jnp.unique(inside, size=total, fill_value=count)
    if not ids:
        return View(run)
    small = {p: jnp.take(weights[p], i, axis=0, mode="fill", fill_value=0) for p, i in ids.items()}
    places = _places(optimizer, run, ids)
    leaves, structure = jax.tree.flatten(run.opt_state)
    leaves = [
        leaf if path is None else jnp.take(leaf, ids[path], axis=0, mode="clip")
        for leaf, path in zip(leaves, places, strict=True)
    ]
    part = run.replace(
        model=replace_weights(run.model, small), opt_state=structure.unflatten(leaves)
    )
    return View(part, ids, run, places)


def _tables(optimizer: Rowwise, model: Layer) -> Mapping[str, Layer]:
    """Returns the layers whose tables the optimizer updates by rows, by path of the table."""
    trainable = trainable_weights(model)
    layers = {
        join_path(path, _FIELD): layer
        for path, layer in sublayers(model)
        if isinstance(layer, Embedding) and type(layer).forward is Embedding.forward
    }
    layers = {path: layer for path, layer in layers.items() if path in trainable}
    for pattern in optimizer.tables:
        if not any(mentions(pattern, path) for path in layers):
            raise FKerasError(
                f"Rowwise: expected tables of Embedding layers, but {pattern!r} matches none. The trainable "
                f"tables of the model are: {', '.join(layers) or 'none'}."
            )
    chosen = {
        path: layer
        for path, layer in layers.items()
        if any(mentions(pattern, path) for pattern in optimizer.tables)
    }
    for path, layer in chosen.items():
        for option in ("embeddings_regularizer", "embeddings_constraint"):
            if getattr(layer, option) is not None:
                raise FKerasError(
                    f"Rowwise: the table {path!r} has {option}={getattr(layer, option)!r}, which concerns "
                    "all rows in each step. Leave the option out, or name the other tables in "
                    "Rowwise(..., tables=...)."
                )
    return chosen


def _looked_up(
    run: TrainState, loss: Loss, tables: Mapping[str, Layer]
) -> dict[str, list[jax.Array]]:
    """Returns the ids (n,) of each call of each table, computed by the part of the loss that leads to them."""
    weights = trainable_weights(run.model)
    given = {path: weights[path] for path in tables}
    numbers: dict[str, int] = {}

    def compute(replaced: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, list]]:
        calls: dict[str, list] = {path: [] for path in tables}

        def around(path: str, layer: Any, context: Context, inputs: tuple, options: Any) -> Output:
            table = _table_of(path)
            calls[table].append(inputs[0])
            return context.run(layer.replace(embeddings=given[table]), *inputs, **options)

        model = _intercepted(replace_weights(run.model, replaced), tables, around)
        value = loss(model)
        numbers.update({path: len(ids) for path, ids in calls.items()})
        # raises for ids that belong to a transformation inside of the loss
        return value, {path: [jnp.ravel(ids) for ids in arrays] for path, arrays in calls.items()}

    try:
        program = jax.make_jaxpr(compute)(given)
    except jax.errors.UnexpectedTracerError as error:
        raise FKerasError(
            f"Rowwise: a table of {', '.join(map(repr, tables))} is called inside jax.vmap, a loop or "
            "jax.checkpoint, which hides its ids. Call the layer outside, or name the other tables in "
            "Rowwise(..., tables=...)."
        ) from error
    if depends(program, len(given)):
        raise FKerasError(
            f"Rowwise: a table of {', '.join(map(repr, tables))} is used outside of the calls of its "
            "layer, as in tied weights, so that each row has a gradient. Name the other tables in "
            "Rowwise(..., tables=...)."
        )
    wanted = [False] + [True] * sum(numbers.values())
    jaxpr, _ = dce_jaxpr(program.jaxpr, wanted, instantiate=True)
    arrays = iter(jax.core.eval_jaxpr(jaxpr, program.consts, *given.values()))
    # dictionaries are flattened in the order of their keys
    return {path: [next(arrays) for _ in range(numbers[path])] for path in sorted(tables)}


def _places(
    optimizer: Rowwise | MasterWeights, run: TrainState, ids: Mapping[str, jax.Array]
) -> tuple[str | None, ...]:
    """Returns for each array of the optimizer's state the path of the table whose rows it follows."""
    skeleton, specs = skeleton_of(run.model), specs_of(run.model)
    whole = optimizer_state.state_specs(optimizer, skeleton, specs)
    pairs, structure = jax.tree_util.tree_flatten_with_path(whole)
    places: list[str | None] = [None] * len(pairs)
    for path, known in ids.items():
        small_specs = tuple(
            (p, (known.size, *shape[1:]) if p == path else shape, dtype)
            for p, shape, dtype in specs
        )
        small = optimizer_state.state_specs(optimizer, skeleton, small_specs)
        follows = jax.tree.structure(small) == structure
        for number, ((key, one), other) in enumerate(
            zip(pairs, jax.tree.leaves(small), strict=False)
        ):
            if one.shape != other.shape:
                places[number] = path
                follows &= other.shape == (known.size, *one.shape[1:])
            elif repr(path) in jax.tree_util.keystr(key):
                # such as the means over all rows of Adafactor
                follows &= one.size == 1
        if not follows:
            raise FKerasError(
                f"Rowwise: {optimizer!r} has a state that is no row for each row of the table {path!r}. "
                "Use an optimizer whose state has the shapes of the weights, such as Adagrad or Adam."
            )
    return tuple(places)


def _with_rows(whole: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    return whole.at[ids].set(rows, mode="drop", indices_are_sorted=True)


def _intercepted(model: Layer, tables: Mapping[str, Any], around: Any, path: str = "") -> Layer:
    """Returns the model in which `around` computes the calls of the layers with these tables."""
    if join_path(path, _FIELD) in tables:
        return Intercepted(
            model, around, path, name=model.name, trainable=model.trainable, dtype=model.dtype
        )
    return replace_children(model, lambda at, child: _intercepted(child, tables, around, at), path)


def _table_of(path: str) -> str:
    return join_path(path, _FIELD)

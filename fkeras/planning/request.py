"""Arguments of `plan` as shapes: the run, the batch and the trainer, checked and without arrays."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import check_not_keras, describe_value
from fkeras.authoring.training import batch_entry, batch_parts, parts_of, sharding, texts
from fkeras.authoring.transforms import with_depth
from fkeras.engine import FKerasError, Layer
from fkeras.training import Trainer, TrainState


class Request(NamedTuple):
    """The step to plan.

    Attributes:
        trainer: the trainer.
        run: a run with shapes in the place of arrays.
        batch: `(x, y, sample_weight)` as shapes; the tree of the objective, if the trainer has one.
    """

    trainer: Trainer
    run: TrainState
    batch: Any

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return next(leaf.shape[0] for leaf in jax.tree.leaves(self.batch) if leaf.shape)

    @property
    def has_open_rows(self) -> bool:
        """Whether the model accepts other batch sizes."""
        graph = getattr(self.run.model, "graph", None)
        return graph is None or all("b" in graph.specs[slot].words for slot in graph.input_slots)

    def resized(self, rows: int) -> Request:
        """Returns the request for another number of rows.

        Args:
            rows: number of rows; arrays with another leading axis than the batch stay.
        """
        old = self.rows

        def resize(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            if leaf.shape[:1] != (old,):
                return leaf
            return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype)

        return self._replace(batch=jax.tree.map(resize, self.batch))

    def executed_model(self) -> Any:
        """Returns the model with its repeated blocks as the step computes them."""
        trainer = self.trainer
        return with_depth(self.run.model, trainer.depth, trainer.remat, mesh=trainer.mesh)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return 1 if self.trainer.mesh is None else self.trainer.mesh.size

    @property
    def parts(self) -> int:
        """Number of parts in which the devices divide the rows."""
        mesh = self.trainer.mesh
        return 1 if mesh is None else parts_of(mesh, batch_entry(mesh, self.trainer.sharding))


def request(model: Any, batch: Any, trainer: Any) -> Request:
    """Returns the checked arguments of `plan` as shapes.

    Args:
        model: a model, built or not, or a run.
        batch: a batch of arrays or of their shapes.

    Raises:
        TypeError: for arguments of other types.
        ValueError: for a batch without rows, or a number of rows that the mesh cannot share.
        FKerasError: for a model with unknown inputs.
    """
    if not isinstance(trainer, Trainer):
        check_not_keras(trainer, "plan")
        raise TypeError(
            f"plan: expected a Trainer as the third argument, received {describe_value(trainer)}. "
            'Write fk.plan(model, (x, y), fk.Trainer("adam", "mse")).'
        )
    if trainer.objective is None:
        x, *others = batch_parts.unpack(trainer, batch)
        batch = (texts.numbers(getattr(model, "model", model), x, "plan: x"), *others)
    shapes = jax.tree.map(_shape, batch)
    made = Request(trainer, _run(model, trainer, shapes), shapes)
    check_rows(made)
    return made


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise TypeError(
            f"plan: expected arrays or shapes in the batch, received {describe_value(leaf)}. Write "
            'shapes as jax.ShapeDtypeStruct((32, 784), "float32").'
        )
    if not all(isinstance(size, int | np.integer) and size >= 0 for size in leaf.shape):
        raise ValueError(
            f"plan: expected a batch with known sizes, received an array of shape {leaf.shape}. "
            "Give the batch size too: a plan depends on the number of rows."
        )
    dtype = leaf.dtype
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        dtype = jax.dtypes.canonicalize_dtype(np.dtype(dtype))
    return jax.ShapeDtypeStruct(leaf.shape, dtype)


def _run(model: Any, trainer: Trainer, batch: Any) -> TrainState:
    if isinstance(model, TrainState):
        return jax.tree.map(_shape, model)
    if not isinstance(model, Layer):
        check_not_keras(model, "plan")
        raise TypeError(
            f"plan: expected a model or a run, received {describe_value(model)}. Write "
            "fk.plan(fk.Model(inputs, outputs), (x, y), trainer)."
        )
    if getattr(model, "graph", None) is None:
        raise FKerasError(
            f"plan: {model._where} has unknown inputs, so no shapes. Start the model with fk.Input, "
            "or build it first.",
            layer=model._where,
        )
    plain = dataclasses.replace(trainer, mesh=None, sharding=None)
    key = jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
    if not model.built:
        return jax.eval_shape(lambda key: plain.init(model, key, batch=batch), key)
    shapes = jax.tree.map(_shape, model)
    return jax.eval_shape(lambda model, key: plain.init(model, key, batch=batch), shapes, key)


def check_rows(made: Request) -> None:
    """Raises a `ValueError` for a batch without rows, and for rows or weights that a mesh cannot share."""
    leaves = [leaf for leaf in jax.tree.leaves(made.batch) if leaf.shape]
    if not leaves or not leaves[0].shape[0]:
        raise ValueError(
            "plan: expected a batch with at least one row, received "
            f"{'no arrays' if not leaves else f'shape {leaves[0].shape}'}. Pass a batch as "
            "trainer.step receives it, for example (x[:32], y[:32])."
        )
    if made.trainer.mesh is not None:
        sharding.check(made.trainer, made.run.model)
        sharding.check_rows(made.trainer, made.rows)

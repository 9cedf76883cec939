"""Compiled functions that train and evaluate all members of a population.

The arrays of a population have the members as their first axis. Members are computed in groups: the
members of a group at once, by `jax.vmap`, and the groups one after the other. A group of one member
suits convolutions on CPUs, which vmap would compute as slow grouped convolutions; groups of a few small
members keep their arrays in the cache of the processor.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from fkeras.authoring.engine import with_fields
from fkeras.authoring.training import StepForm, evaluation_key, objective, outputs, step

if TYPE_CHECKING:
    from fkeras.training import Trainer

# bytes of the arrays of a group on CPUs, about half of the second cache of a core; measured with dense
# networks by `benchmarks/populating.py`
_GROUP_BYTES = 1 << 19
# a group of fewer members is not faster than single members
_SMALLEST_GROUP = 4


@dataclasses.dataclass(frozen=True)
class Program:
    """The static part of a population's program.

    Attributes:
        trainer: the trainer, without a mesh.
        group: number of members that are computed at once.
        mesh: the devices that share the members, or None.
        orders: whether each member has its own order of the rows.
    """

    trainer: Trainer
    group: int
    mesh: Mesh | None = None
    orders: bool = False

    def member_trainer(self, values: Mapping[str, jax.Array]) -> Trainer:
        """Returns the trainer with the traced fields of a member's loss."""
        if not values:
            return self.trainer
        loss = with_fields(self.trainer.loss, values)
        return with_fields(self.trainer, {"loss": loss})

    def each(self, function: Callable[[Any, Any], Any], mapped: Any, shared: Any) -> Any:
        """Applies `function(mapped, shared)` to each member.

        Args:
            mapped: arrays with the members as first axis; the last entry tells who is active.
                Groups without active members are skipped, and their results are undefined.
        """

        def local(mapped: Any, shared: Any) -> Any:
            count, size = mapped[-1].shape[0], self.group
            of_group = jax.vmap(lambda one: function(one, shared))
            if size >= count:
                return of_group(mapped)
            groups = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), mapped)
            results = jax.lax.map(functools.partial(_unless_idle, of_group), groups)
            return jax.tree.map(lambda a: a.reshape(count, *a.shape[2:]), results)

        if self.mesh is None:
            return local(mapped, shared)
        split, whole = PartitionSpec(self.mesh.axis_names), PartitionSpec()
        return jax.shard_map(
            local, mesh=self.mesh, in_specs=(split, whole), out_specs=split, check_vma=False
        )(mapped, shared)


def _unless_idle(of_group: Callable[[Any], Any], part: Any) -> Any:
    """Computes a group; returns zeros if no member of the group is active."""
    specs = jax.eval_shape(of_group, part)

    def idle(_: Any) -> Any:
        return jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), specs)

    return jax.lax.cond(part[-1].any(), of_group, idle, part)


def _train(
    program: Program,
    structure: Any,
    guard: str,
    leaves: tuple,
    values: dict[str, jax.Array],
    active: jax.Array,
    rows: tuple,
    steps: jax.Array,
) -> tuple[tuple, dict[str, jax.Array], jax.Array]:
    """Returns `(leaves, logs, fine)` of all members after the first `steps` batches.

    Args:
        guard: "" to apply all updates; "skip" to leave out steps that are not finite; "halt" to
            leave out the first of them and all later steps of that member.
        values: the fields of the loss, by name.
        active: the members to train; the arrays of the others do not change.
        rows: the data, in the form that `step.batch_at` reads; with `program.orders`, the order has a
            row for each member.
    """
    order = rows[1] if program.orders else None
    shared_rows = (rows[0], None, *rows[2:]) if program.orders else rows

    def member(mapped: tuple, shared: tuple) -> tuple:
        leaves, values, order, _ = mapped
        rows, steps = shared
        rows = (rows[0], order, *rows[2:]) if program.orders else rows
        trainer = program.member_trainer(values)
        begin = jax.tree.unflatten(structure, leaves).step

        def body(number: jax.Array, leaves: tuple) -> tuple:
            run = jax.tree.unflatten(structure, leaves)
            batch, valid = step.batch_at(rows, number)
            new, _ = step.train_step(trainer, run, batch, valid)
            if guard:
                expected = begin + number if guard == "halt" else None
                new, _ = step.guarded(run, new, expected)
            return tuple(jax.tree.leaves(new))

        leaves = jax.lax.fori_loop(jnp.zeros((), steps.dtype), steps, body, leaves)
        run = jax.tree.unflatten(structure, leaves)
        logs = objective.results(outputs.heads(program.trainer, run.model), run.metrics)
        # a halted member has made fewer steps
        return leaves, logs, step.is_finite(run) & (run.step == begin + steps)

    mapped = (leaves, values, order, active)
    new, logs, fine = program.each(member, mapped, (shared_rows, steps))

    def select(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(active.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    return jax.tree.map(select, new, leaves), logs, fine


train = jax.jit(_train, static_argnums=(0, 1, 2))


@functools.partial(jax.jit, static_argnums=(0, 1))
def test(
    program: Program,
    structure: Any,
    leaves: tuple,
    carry: tuple,
    values: dict[str, jax.Array],
    active: jax.Array,
    rows: tuple,
    steps: jax.Array,
) -> tuple[tuple, dict[str, jax.Array]]:
    """Returns `((state, sums), logs)` of all members after some batches of an evaluation.

    Args:
        leaves: the arrays of the model.
        carry: state and sums before the batches.
    """

    def member(mapped: tuple, shared: tuple) -> tuple:
        leaves, carry, values, _ = mapped
        rows, steps = shared
        trainer = program.member_trainer(values)
        model = jax.tree.unflatten(structure, leaves)
        form = StepForm(trainer, training=False)
        computed = form.model(model)

        def body(number: jax.Array, carry: tuple) -> tuple:
            state, sums = carry
            batch, valid = step.batch_at(rows, number)
            key = None if trainer.objective is None else evaluation_key(sums["loss"]["count"])
            heads = step.heads_of(trainer, model, batch)
            _, updates, new = objective.compute(
                trainer, heads, computed, state, batch, key, False, valid
            )
            return state | updates, objective.merge(heads, sums, new)

        carry = jax.lax.fori_loop(jnp.zeros((), steps.dtype), steps, body, carry)
        return carry, objective.results(outputs.heads(program.trainer, model), carry[1])

    return program.each(member, (leaves, carry, values, active), (rows, steps))


@jax.jit
def take(tree: Any, members: jax.Array) -> Any:
    """Returns the arrays of some members."""
    return jax.tree.map(lambda a: a[members], tree)


@jax.jit
def put(tree: Any, members: jax.Array, new: Any) -> Any:
    """Returns arrays with new values for some members; indices out of range are left out."""
    return jax.tree.map(lambda a, b: a.at[members].set(b, mode="drop"), tree, new)


def group_limit(bytes_of_member: int, convolves: bool) -> int | None:
    """Returns the largest group on this backend; None for no limit.

    Example:
        >>> group_limit(20_000, False), group_limit(20_000, True), group_limit(1 << 20, False)
        (26, 1, 1)
    """
    if jax.default_backend() != "cpu":
        return None
    limit = _GROUP_BYTES // max(bytes_of_member, 1)
    return 1 if convolves or limit < _SMALLEST_GROUP else limit

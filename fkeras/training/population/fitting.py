"""Runs the epochs of `Population.fit`: device calls, stopped members, validation and rules."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fkeras.authoring.training import (
    Batches,
    CallSize,
    Feed,
    Interrupts,
    Options,
    join,
    masters,
    objective,
    optimizer_state,
    outputs,
    split,
    step,
)
from fkeras.engine import Layer
from fkeras.training import Progress, TrainState
from fkeras.training.population import memory, program
from fkeras.training.population.feeding import MemberEpoch, orders_of, share_order
from fkeras.training.population.history import MemberHistory
from fkeras.training.population.hyperparameters import traced_trainer
from fkeras.training.population.injected import InjectedState
from fkeras.training.population.lanes import everywhere, lanes_of, layout_of
from fkeras.training.population.rules import Rule

if TYPE_CHECKING:
    from fkeras.training.population.population import Population

#: key of a population's values in `run.memory`
MEMORY = "population"


class NewestRuns:
    """The newest runs of a call of `Population.fit`.

    Attributes:
        received: the runs that `fit` received.
        interrupts: the signals of the training.
        training: the training, after its checks.
        fitted: the result, after the last epoch.
    """

    def __init__(self, received: TrainState):
        self.received, self.interrupts = received, Interrupts()
        self.training: Training | None = None
        self.fitted: TrainState | None = None

    def run(self) -> TrainState:
        """Returns the runs after the last finished device call."""
        if self.fitted is not None:
            return self.fitted
        return self.received if self.training is None else self.training.newest()


class Training:
    """One call of `Population.fit`.

    Args:
        runs: the runs before the training, with the members as first axis.
        feed: the batches of the training data.
        held: the batches of the validation data, or None.
        rules: the rules.
        interrupts: the signals, held back while the runs and their lanes change together.
    """

    def __init__(
        self,
        population: Population,
        runs: TrainState,
        feed: Feed | Batches,
        held: Feed | Batches | None,
        options: Options,
        rules: Sequence[Rule],
        interrupts: Interrupts,
    ):
        self.population, self.options, self.rules = population, options, rules
        self.interrupts = interrupts
        self.mesh = population.trainer.mesh
        plain = dataclasses.replace(population.trainer, mesh=None, sharding=None)
        self.trainer, self.traced = plain, traced_trainer(plain, population.hyperparameters)
        self.shared = share_order(population.order, feed, runs, options.shuffle)
        self.feed, self.held = self._resident(feed), self._resident(held)
        count = len(population.members)
        self.active, self.stopped = np.ones(count, bool), {}
        self.left_out = np.zeros(count, bool)
        self.kept: tuple | None = None
        self.history: dict[str, list[Any]] = {}
        self.epochs: list[int] = []
        self.runs = self._entered(runs)
        self.limit = population.group_size or program.group_limit(
            memory.size_of(split(self.runs)[1]) // count, self._convolves()
        )
        self.program = program.Program(
            step.training_form(self.traced), 1, self.mesh, orders=not self.shared
        )
        self.checked: set[tuple] = set()
        self._choose(np.arange(count))

    def _resident(self, feed: Any) -> Any:
        if self.mesh is None or getattr(feed, "resident", None) is None:
            return feed
        return dataclasses.replace(feed, resident=everywhere(self.mesh, feed.resident))

    def _entered(self, runs: TrainState) -> TrainState:
        """Returns the runs with the varying fields of the optimizer in the optimizer's state."""
        optimizer = masters.optimizer_of(self.trainer)
        follow = functools.partial(optimizer_state.follow, optimizer)
        # layers may have been frozen since the last `fit`
        opt_state = jax.vmap(lambda run: follow(run.opt_state, run.model))(runs.replace(memory={}))
        values = runs.memory[MEMORY]
        self.loss_values = {p.field: values[p.name] for p in self._fields("loss")}
        injected = {p.field: values[p.name] for p in self._fields("optimizer")}
        sums = jax.tree.map(
            lambda a: np.broadcast_to(a, (len(self.active), *np.shape(a))), self.feed.sums
        )
        if injected:
            inner = InjectedState(injected, masters.inner_state(opt_state))
            opt_state = masters.with_inner_state(opt_state, inner)
        return runs.replace(opt_state=opt_state, metrics=sums)

    def _left(self, runs: TrainState) -> TrainState:
        """Returns the runs in the form of `Population.init`, the inverse of `_entered`."""
        opt_state, values = runs.opt_state, dict(runs.memory[MEMORY])
        inner = masters.inner_state(opt_state)
        if isinstance(inner, InjectedState):
            values |= {p.name: inner.values[p.field] for p in self._fields("optimizer")}
            opt_state = masters.with_inner_state(opt_state, inner.state)
        values |= {p.name: self.loss_values[p.field] for p in self._fields("loss")}
        return runs.replace(opt_state=opt_state, memory={**runs.memory, MEMORY: values})

    def _fields(self, home: str) -> list[Any]:
        return [p for p in self.population.hyperparameters if p.home == home]

    def _convolves(self) -> bool:
        """Returns whether the model convolves on a CPU; unknown for the batch of an objective."""
        if jax.default_backend() != "cpu" or self.trainer.objective is not None:
            return False
        tree = (self.runs.model, self.runs.state)
        leaves, structure = jax.tree.flatten((tree, self.feed.example(0)[0]))
        count = len(jax.tree.leaves(tree))
        shapes = [a.shape[1:] if n < count else a.shape for n, a in enumerate(leaves)]
        dtypes = [np.dtype(a.dtype) for a in leaves]
        return _model_convolves(structure, tuple(zip(shapes, dtypes, strict=True)))

    def _choose(self, members: np.ndarray) -> None:
        """Computes some members from now on: takes their arrays into lanes."""
        self.lanes = lanes_of(members, self.limit, 1 if self.mesh is None else self.mesh.size)
        self.program = dataclasses.replace(self.program, group=self.lanes.group)
        self.structure, leaves = split(self.runs)
        if len(self.lanes.members) != len(self.active):
            leaves = program.take(leaves, self.lanes.members)
        layout = layout_of(self.mesh, len(self.lanes.members))
        self.leaves = leaves if layout is None else jax.device_put(leaves, layout)

    def _written(self) -> TrainState:
        """Returns the runs with the arrays of the lanes."""
        _, old = split(self.runs)
        new = self.leaves
        if len(self.lanes.members) != len(self.active):
            # a lane that fills up is written nowhere
            places = np.where(self.lanes.active, self.lanes.members, len(self.active))
            if self.mesh is not None:  # the runs may be on one device
                new, old = jax.device_get((new, old))
            new = program.put(old, places, new)
        self.runs = join(self.structure, new, self.runs)
        return self.runs

    def newest(self) -> TrainState:
        """Returns the runs after the last finished call, in the form of `Population.init`."""
        return self._left(self._written())

    def train(self) -> tuple[TrainState, MemberHistory]:
        """Trains all epochs."""
        options, feed = self.options, self.feed
        names = [p.name for p in self.population.hyperparameters if p.is_number]
        memories = [rule.begin(len(self.active), names) for rule in self.rules]
        progress = Progress(options.verbose, options.epochs, feed.steps)
        sizes, batches = (CallSize(), CallSize()), 0
        for epoch in range(options.initial_epoch, options.epochs):
            if not self.active.any():
                break
            trained = self.active.copy()
            progress.start(epoch)
            logs, batches = self._epoch(epoch, sizes[0], progress)
            progress.stop()
            if self.held is not None and (epoch + 1) % options.validation_freq == 0:
                held = self._validated(sizes[1])
                logs |= {f"val_{name}": values for name, values in held.items()}
            for name, values in logs.items():
                self.history.setdefault(name, []).append(values)
            self.epochs.append(epoch)
            progress.end(_medians(logs, trained), feed.rows(batches), batches)
            for number, rule in enumerate(self.rules):
                memories[number] = self._decide(rule, epoch, logs, memories[number])
            if 0 < 2 * self.active.sum() <= self.lanes.count:
                with self.interrupts.held():
                    self._written()
                    self._choose(np.flatnonzero(self.active))
        self._warn()
        params = {
            "epochs": options.epochs,
            "steps": batches if feed.steps is None else feed.steps,
            "batch_size": feed.rows(1),
            "samples": feed.rows(batches if feed.steps is None else feed.steps),
            "stopped": self.stopped,
        }
        return self._final(), MemberHistory(self.history, self.epochs, params)

    def _final(self) -> TrainState:
        runs = self.newest()
        optimizer = masters.optimizer_of(self.trainer)
        model = jax.vmap(lambda run: optimizer_state.finalized(optimizer, run).model)(
            runs.replace(memory={})
        )
        runs = runs.replace(model=model)
        if self.kept is not None:
            model, state = self.kept
            runs = runs.replace(model=model, state=state)
        return runs

    def _epoch(
        self, epoch: int, call_size: CallSize, progress: Progress
    ) -> tuple[dict[str, np.ndarray], int]:
        """Trains an epoch; returns the logs and the number of batches."""
        run = jax.tree.unflatten(self.structure, self.leaves)
        place = int(np.argmax(self.lanes.of(self.active)))  # halted members have other steps
        begin, member = int(np.asarray(run.step)[place]), int(self.lanes.members[place])
        run = run.replace(
            metrics=jax.tree.map(
                lambda a: np.broadcast_to(a, (len(self.lanes.members), *np.shape(a))),
                self.feed.sums,
            )
        )
        self.leaves = tuple(jax.tree.leaves(run))
        if self.shared:
            first = self.runs.replace(key_data=self.runs.key_data[member])
            batches: Any = self.feed.epoch(first if self.options.shuffle else None, begin)
        else:
            orders = orders_of(self.feed, self.runs, self.lanes.members, begin)
            layout = layout_of(self.mesh, len(orders))
            batches = MemberEpoch(self.feed, jax.device_put(orders, layout))
        logs: Mapping[str, Any] = {}
        call_size.start()
        while self.active.any():
            chunk = batches.take(call_size.batches)
            if chunk is None:
                break
            if call_size.fresh:
                progress.compile_starts()
            logs = self._call(epoch, *chunk)
            call_size.measured(chunk[1])
            if call_size.calls == 1:
                progress.compiled()
            shown, trained = logs, self.active.copy()
            progress.step(
                batches.done,
                self.feed.rows(batches.done),
                lambda: _medians(self._by_member(shown), trained),  # noqa: B023 - called at once
            )
        return self._by_member(logs, self.active), batches.done

    def _call(self, epoch: int, rows: tuple, number: int) -> Mapping[str, Any]:
        """Trains all active members on some batches; stops those that are not finite."""
        active = self.lanes.active & self.lanes.of(self.active)
        values = {name: self.lanes.of(np.asarray(v)) for name, v in self.loss_values.items()}
        arguments = (self.leaves, values, active, rows, np.int32(number))
        train = functools.partial(_explained, program.train, self.population)
        self._check_memory(arguments)
        leaves, logs, fine = train(self.program, self.structure, "", *arguments)
        mode = self.trainer.on_nonfinite
        if mode != "ignore" and not np.asarray(fine)[active].all():
            # Steps are pure: the call is repeated with a check of each step.
            guard = "skip" if mode == "skip" else "halt"
            wrong = self.lanes.members[active & ~np.asarray(fine)]
            self.left_out[wrong] = True
            leaves, logs, fine = train(self.program, self.structure, guard, *arguments)
            for member in self.lanes.members[active & ~np.asarray(fine)]:
                self.active[member] = False
                self.stopped[int(member)] = f"epoch {epoch + 1}: nan or infinity"
        self.leaves = leaves
        return logs

    def _validated(self, call_size: CallSize) -> dict[str, np.ndarray]:
        """Returns the logs of the validation data."""
        assert self.held is not None
        run = jax.tree.unflatten(self.structure, self.leaves)
        leaves, structure = jax.tree.flatten(run.model)
        lanes = len(self.lanes.members)
        sums = jax.tree.map(lambda a: np.broadcast_to(a, (lanes, *np.shape(a))), self.held.sums)
        carry, leaves = (run.state, sums), tuple(leaves)
        active = self.lanes.active & self.lanes.of(self.active)
        values = {name: self.lanes.of(np.asarray(v)) for name, v in self.loss_values.items()}
        evaluation = dataclasses.replace(
            self.program, trainer=step.evaluation_form(self.traced), orders=False
        )
        batches, logs = self.held.epoch(None), {}
        call_size.start()
        while (chunk := batches.take(call_size.batches)) is not None:
            rows, number = chunk
            carry, logs = program.test(
                evaluation, structure, leaves, carry, values, active, rows, np.int32(number)
            )
            jax.block_until_ready(logs)
            call_size.measured(number)
        return self._by_member(logs, self.active)

    def _by_member(
        self, logs: Mapping[str, Any], active: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the logs of the lanes as arrays of all members; NaN for members without a value."""
        run = jax.tree.unflatten(self.structure, self.leaves)
        names = objective.log_names(outputs.heads(self.trainer, run.model), logs)
        result = {}
        for name in names:
            values = np.asarray(logs[name])[: self.lanes.count]
            array = np.full((len(self.active), *values.shape[1:]), np.nan, values.dtype)
            array[self.lanes.members[: self.lanes.count]] = values
            if active is not None:
                array[~active] = np.nan
            result[name] = array
        return result

    def _decide(
        self, rule: Rule, epoch: int, logs: Mapping[str, np.ndarray], memory: dict[str, Any]
    ) -> dict[str, Any]:
        """Applies a rule after an epoch, and returns its new memory."""
        if rule.monitor not in logs or not self.active.any():  # an epoch without validation
            return memory
        decision = rule.decide(epoch, logs[rule.monitor], self.active.copy(), memory)
        if decision.best is not None:
            self._keep(decision.best)
        if decision.parents is not None:
            with self.interrupts.held():
                self._replace(np.asarray(decision.parents), decision.factors)
        for member in np.flatnonzero(self.active & ~decision.active):
            self.stopped[int(member)] = f"epoch {epoch + 1}: {type(rule).__name__}"
        self.active &= decision.active
        return decision.memory

    def _keep(self, members: np.ndarray) -> None:
        """Keeps the weights and state of some members, which they have at the end."""
        runs = self._written()
        new = (runs.model, runs.state)
        old = new if self.kept is None else self.kept
        self.kept = jax.tree.map(
            lambda a, b: np.where(members.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old
        )

    def _replace(self, parents: np.ndarray, factors: Mapping[str, np.ndarray]) -> None:
        """Gives members the training of their parents, and multiplies hyperparameters."""
        runs = self._written()
        population = self.population
        copied = program.take((runs.model, runs.state, runs.opt_state, self.loss_values), parents)
        model, state, opt_state, loss_values = copied
        self.loss_values = loss_values
        self.runs = self._left(runs.replace(model=model, state=state, opt_state=opt_state))
        for parameter in population.hyperparameters:
            if parameter.name not in factors or not parameter.is_number:
                continue
            old = np.asarray(population.values(self.runs)[parameter.name])
            new = (old * factors[parameter.name]).astype(old.dtype)
            for member in np.flatnonzero(new != old):
                try:
                    parameter.applied(self.trainer, parameter.value(new[member]))
                except ValueError:  # out of range
                    new[member] = old[member]
            self.runs = population.with_values(self.runs, parameter, new)
        self.runs = self._entered(self.runs)
        self._choose(self.lanes.members[: self.lanes.count])

    def _check_memory(self, arguments: tuple) -> None:
        """Compares the memory of a new program with that of the device, before the first call."""
        leaves, rows = arguments[0], arguments[3]
        shapes = tuple(a.shape for a in jax.tree.leaves((leaves[:1], rows)))
        if shapes in self.checked:
            return
        self.checked.add(shapes)
        limit = memory.capacity()
        compiled = _explained(
            lambda *a: program.train.lower(*a).compile(),
            self.population,
            self.program,
            self.structure,
            "",
            *arguments,
        )
        analysis = compiled.memory_analysis()
        if analysis is None:
            return
        required = sum(
            getattr(analysis, f"{part}_size_in_bytes") for part in ("argument", "output", "temp")
        )
        members = len(self.lanes.members) // (1 if self.mesh is None else self.mesh.size)
        memory.check("Population.fit", members, required, limit, "arrays of a step")

    def _warn(self) -> None:
        numbers = np.flatnonzero(self.left_out)
        if not len(numbers):
            return
        shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
        skips = self.trainer.on_nonfinite == "skip"
        outcome = (
            "Their steps with nan or infinity were skipped."
            if skips
            else "They stopped before that step; the other members continued."
        )
        warnings.warn(
            f"Population.fit: {len(numbers)} of {len(self.active)} members returned nan or infinity "
            f"(member {shown}). {outcome}",
            stacklevel=4,
        )


def _medians(logs: Mapping[str, np.ndarray], active: np.ndarray) -> dict[str, Any]:
    """Returns the medians of the members' logs, for the progress line."""
    medians = {}
    for name, values in logs.items():
        numbers = values[active & ~np.isnan(values).reshape(len(values), -1).any(axis=1)]
        medians[name] = np.median(numbers, axis=0).tolist() if len(numbers) else float("nan")
    return medians


def _explained(function: Any, population: Population, *arguments: Any) -> Any:
    """Calls a function; names the hyperparameter if the program needs its value to be traced."""
    try:
        return function(*arguments)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        fields = [p.name for p in population.hyperparameters if p.home in ("optimizer", "loss")]
        if not fields:
            raise
        raise ValueError(
            f"Population.fit: the program depends on the value of {' or '.join(map(repr, fields))}: "
            "a Python condition or a shape needs a constant. Make one population for each value."
        ) from error


# cached: each call of `fit` asks for the same model
@functools.lru_cache(maxsize=64)
def _model_convolves(structure: Any, specs: tuple) -> bool:
    (model, state), x = structure.unflatten([jax.ShapeDtypeStruct(*spec) for spec in specs])

    def compute(model: Layer, state: Any, x: Any) -> Any:
        return model.apply(x, state=state).value

    return step.convolves(jax.make_jaxpr(compute)(model, state, x).jaxpr, forms=True)

"""`Population`: a trainer with the hyperparameters of several members, trained in one program."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import (
    Arrays,
    Data,
    check_key,
    choice,
    explains_arguments,
    hides_internal_frames,
    integer,
)
from fkeras.authoring.training import M, Options, Rescued, checks, objective, outputs, sources
from fkeras.host.processes.arrays import is_key, on_host
from fkeras.host.processes.calls import members_of
from fkeras.training import Trainer, TrainState
from fkeras.training.population import hyperparameters as names_of
from fkeras.training.population import memory
from fkeras.training.population.fitting import MEMORY, NewestRuns, Training
from fkeras.training.population.history import FittedMembers
from fkeras.training.population.hyperparameters import Hyperparameter
from fkeras.training.population.lanes import layout_of
from fkeras.training.population.rules import Rule

_order = choice("member", "shared")
_group_size = integer(minimum=1, optional=True)


@dataclasses.dataclass(frozen=True)
class Population:
    """Several trainings in one program, made by `fk.populate`.

    Attributes:
        trainer: the trainer with the hyperparameters of the first member.
        hyperparameters: the names that vary, with a value for each member.
        order: "member" if each member has the order of the rows of its own key, or "shared".
        group_size: number of members that a device computes at once, or None.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> population = fk.populate(trainer, {"learning_rate": [1e-2, 1e-3], "seed": range(2)})
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> runs = population.init(model, jax.random.key(0))
        >>> x, y = np.ones((8, 3), "float32"), np.zeros((8, 1), "float32")
        >>> runs, history = population.fit(runs, x, y, epochs=2, batch_size=4, verbose=0)
        >>> np.shape(history.history["loss"])
        (2, 4)
        >>> best = int(history.history["loss"][-1].argmin())
        >>> population.members[best]["learning_rate"]
        0.01
        >>> run, _ = trainer.fit(population.member(runs, best), x, y, verbose=0)
    """

    trainer: Trainer
    hyperparameters: tuple[Hyperparameter, ...]
    order: str = "member"
    group_size: int | None = None

    def __len__(self) -> int:
        return len(self.hyperparameters[0].values)

    def __repr__(self) -> str:
        names = ", ".join(p.name for p in self.hyperparameters)
        return f"<Population of {len(self)} members: {names}>"

    @property
    def members(self) -> list[dict[str, Any]]:
        """The hyperparameters of each member at the start, as dictionaries."""
        return [{p.name: p.values[n] for p in self.hyperparameters} for n in range(len(self))]

    def init(
        self,
        model: M,
        key: jax.Array,
        *,
        state: Mapping[str, Any] | None = None,
        batch: object = None,
    ) -> TrainState[M]:
        """Returns the runs of all members before the first step, as one `TrainState`.

        The arrays of the runs have the members as first axis. The key of a member is
        `jax.random.fold_in(key, seed)`, or `key` if the population has no seeds. A model that is
        built already is the start of all members.

        Args:
            model: a model with known inputs.
            key: a PRNG key.
            state: the model's state; `model.init_state()` by default.
            batch: for an objective, a batch or its specs, as in `Trainer.init`.

        Raises:
            MemoryError: if the runs need more memory than the devices have.
            Other exceptions: those of `Trainer.init`.
        """
        check_key(key, "Population.init")
        trainer = dataclasses.replace(self.trainer, mesh=None, sharding=None)
        seeds = next((p.values for p in self.hyperparameters if p.home == "seed"), None)
        keys = {
            seed: key if seed is None else jax.random.fold_in(key, seed)
            for seed in dict.fromkeys((None,) if seeds is None else seeds)
        }
        mesh, count = self.trainer.mesh, len(self)
        started: dict[Any, Any] = {}
        for seed, each in keys.items():
            run = trainer.init(model, each, state=state, batch=batch)
            if not started:
                on_device = -(-count // (1 if mesh is None else mesh.size))
                size = memory.size_of(run) * on_device
                # a step needs the runs before and after it
                memory.check("Population.init", on_device, 2 * size, memory.capacity(), "runs")
            started[seed] = jax.tree.map(on_host, run)
        each_run = [started[None if seeds is None else seeds[n]] for n in range(count)]
        runs = jax.tree.map(_stack, *each_run)
        opt_state = runs.opt_state
        for parameter in self.hyperparameters:
            if parameter.home == "state":
                opt_state = names_of.with_state_values(
                    opt_state, parameter.field, parameter.array()
                )
        values = {
            p.name: p.array() for p in self.hyperparameters if p.home in ("optimizer", "loss")
        }
        runs = runs.replace(opt_state=opt_state, memory={MEMORY: values})
        return jax.device_put(runs, layout_of(mesh, count))

    @explains_arguments
    def fit(
        self,
        runs: TrainState[M],
        x: Data,
        y: Arrays | None = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        rules: Sequence[Rule] = (),
        validation_split: float = 0.0,
        validation_data: Data | None = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Arrays | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
    ) -> FittedMembers[M]:
        """Trains all members for some epochs and returns `(runs, history)` as a named tuple.

        Each member computes what `trainer_of(runs, n).fit(member(runs, n), ...)` computes. A member
        whose step returns NaN or infinity stops alone, with the run before that step, if the trainer's
        `on_nonfinite` is "raise"; the other members continue, and `fit` warns at the end.

        Args:
            runs: the result of `init` or of an earlier `fit`. All members train, also those that an
                earlier `fit` stopped; `select` returns some of them.
            rules: values that stop or replace members between two epochs, such as
                `fk.training.population.EarlyStopping("val_loss", patience=3)`.
            x: as in `Trainer.fit`. The members share the batches of a source.
            y: as in `Trainer.fit`.
            batch_size: as in `Trainer.fit`.
            epochs: as in `Trainer.fit`.
            verbose: as in `Trainer.fit`. The line of an epoch shows the medians of the members.
            validation_split: as in `Trainer.fit`.
            validation_data: as in `Trainer.fit`.
            shuffle: as in `Trainer.fit`.
            class_weight: as in `Trainer.fit`.
            sample_weight: as in `Trainer.fit`.
            initial_epoch: as in `Trainer.fit`.
            steps_per_epoch: as in `Trainer.fit`.
            validation_steps: as in `Trainer.fit`.
            validation_batch_size: as in `Trainer.fit`.
            validation_freq: as in `Trainer.fit`.

        Returns:
            The runs, and the history. A log is a list with an array of shape (members,) for each
            epoch, with NaN for members that had stopped. `history.params["stopped"]` tells when and
            why, by number of the member.

        Raises:
            TypeError: for runs of another population, or a rule that is a callback.
            ValueError: for bad data, or a hyperparameter that the program needs as a constant.
            MemoryError: if the arrays of a step need more memory than a device has.

        An exception that leaves `fit` after the checks carries the newest runs as `error.run`.
        """
        self._check(runs, "fit")
        checks.check_outside_jit(runs)
        checks.check_alive(runs, "fit")
        options = Options(
            epochs=epochs,
            initial_epoch=initial_epoch,
            batch_size=32 if batch_size is None else batch_size,
            shuffle=shuffle,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_batch_size=validation_batch_size,
            validation_freq=validation_freq,
            validation_split=validation_split,
            steps_per_execution=None,
            verbose=verbose,
            checkpoint=None,
        )
        trainer = dataclasses.replace(self.trainer, mesh=None, sharding=None)
        first, data = self.member(runs, 0), (x, y, sample_weight)
        with Rescued(NewestRuns(runs), "Population.fit") as newest:
            feed, held = sources.training_feeds(
                trainer, first, data, class_weight, validation_data, options
            )
            self._check_rules(rules, feed, held, first)
            training = Training(self, runs, feed, held, options, rules, newest.interrupts)
            newest.training = training
            fitted, history = training.train()
            newest.fitted = fitted
        return FittedMembers(fitted, history)

    def member(self, runs: TrainState[M], number: int) -> TrainState[M]:
        """Returns the run of a member, for `trainer` or `trainer_of(runs, number)`.

        Args:
            runs: the result of `init` or `fit`.
            number: the number of the member; negative numbers count from the end.

        Raises:
            IndexError: if the population has fewer members.
        """
        self._check(runs, "member")
        number = self._number(number)
        run = runs.replace(memory={})
        if self.trainer.mesh is not None:
            return jax.tree.map(lambda a: jnp.asarray(on_host(a[number])), run)
        return _member(run, number)

    def trainer_of(self, runs: TrainState, number: int) -> Trainer:
        """Returns the trainer with the present hyperparameters of a member.

        Learning rate and weight decay are in the run of the member, so the trainer of the population
        continues with them. Other hyperparameters, such as `clipnorm` or `label_smoothing`, are in
        this trainer alone.

        Args:
            runs: the result of `init` or `fit`.
            number: the number of the member.
        """
        self._check(runs, "trainer_of")
        number, trainer = self._number(number), self.trainer
        present = self.values(runs)
        for parameter in self.hyperparameters:
            if parameter.home == "seed":
                continue
            value, now = parameter.values[number], np.asarray(present[parameter.name])[number]
            # the start as written, not rounded to float32; after a rule, the changed value
            if parameter.array()[number] != now:
                value = parameter.value(now)
            trainer = parameter.applied(trainer, value)
        return trainer

    def select(
        self, runs: TrainState[M], members: Iterable[int]
    ) -> tuple[Population, TrainState[M]]:
        """Returns `(population, runs)` of some members, which continue to train.

        Args:
            runs: the result of `init` or `fit`.
            members: the numbers of the members.

        Raises:
            ValueError: for no members.
        """
        self._check(runs, "select")
        numbers = [self._number(number) for number in members]
        if not numbers:
            raise ValueError("Population.select: expected at least one member, received none.")
        chosen = tuple(
            dataclasses.replace(p, values=tuple(p.values[n] for n in numbers))
            for p in self.hyperparameters
        )
        # the state of schedules holds indices among the choices of all members
        population = dataclasses.replace(self, hyperparameters=chosen)
        runs = jax.tree.map(lambda a: jnp.asarray(on_host(a)[np.asarray(numbers)]), runs)
        for before, after in zip(self.hyperparameters, chosen, strict=True):
            if before.choices:
                indices = np.asarray(runs.memory[MEMORY][before.name])
                indices = [after.choices.index(before.choices[n]) for n in indices]
                runs = population.with_values(runs, after, np.asarray(indices, "int32"))
        layout = layout_of(self.trainer.mesh, len(numbers))
        return population, runs if layout is None else jax.device_put(runs, layout)

    def values(self, runs: TrainState) -> dict[str, Any]:
        """Returns the present hyperparameters as arrays of shape (members,), without the seeds.

        A schedule is the index of the member's schedule among the different schedules.

        Args:
            runs: the result of `init` or `fit`.
        """
        stored = runs.memory[MEMORY]
        return {
            p.name: stored[p.name]
            if p.name in stored
            else names_of.state_values(runs.opt_state, p.field)
            for p in self.hyperparameters
            if p.home != "seed"
        }

    def with_values(
        self, runs: TrainState[M], parameter: Hyperparameter, values: np.ndarray
    ) -> TrainState[M]:
        """Returns the runs with new values of a hyperparameter.

        Args:
            runs: the result of `init` or `fit`.
            parameter: one of `hyperparameters`, other than the seed.
            values: a value for each member, in the form of `values(runs)`.
        """
        if parameter.home == "state":
            opt_state = names_of.with_state_values(runs.opt_state, parameter.field, values)
            return runs.replace(opt_state=opt_state)
        stored = {**runs.memory[MEMORY], parameter.name: jnp.asarray(values)}
        return runs.replace(memory={**runs.memory, MEMORY: stored})

    def _number(self, number: int) -> int:
        index = operator.index(number)
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"Population: expected a member from 0 to {len(self) - 1}, received {index}."
            )
        return index % len(self)

    def _check(self, runs: object, call: str) -> None:
        if not isinstance(runs, TrainState) or MEMORY not in runs.memory:
            received = (
                "the run of one training" if isinstance(runs, TrainState) else type(runs).__name__
            )
            raise TypeError(
                f"Population.{call}: expected the runs of all members first, received {received}. Write "
                "runs = population.init(model, jax.random.key(0))."
            )
        if runs.step.shape != (len(self),):
            raise TypeError(
                f"Population.{call}: expected runs of {len(self)} members, received runs of "
                f"{runs.step.shape[0]}. Use the population that made the runs."
            )

    def _check_rules(self, rules: object, feed: Any, held: Any, run: TrainState) -> None:
        heads = outputs.heads(self.trainer, run.model)
        logs = list(objective.log_names(heads, feed.sums))
        if held is not None:
            logs += [f"val_{name}" for name in objective.log_names(heads, held.sums)]
        if not isinstance(rules, Sequence):
            raise TypeError(f"Population.fit: expected a list of rules, received {rules!r}.")
        for rule in rules:
            if not isinstance(rule, Rule):
                name = getattr(rule, "__name__", type(rule).__name__)
                raise TypeError(
                    f"Population.fit: expected rules of fk.training.population, received {name}. A "
                    "callback belongs to one training: use a rule such as "
                    'fk.training.population.EarlyStopping("val_loss", patience=3), or '
                    "trainer.fit(population.member(runs, 0), ..., callbacks=[...])."
                )
            rule.check_logs(logs)


_member = jax.jit(lambda run, number: jax.tree.map(lambda a: a[number], run))


@hides_internal_frames
def populate(
    trainer: Trainer,
    hyperparameters: Mapping[str, Iterable[Any]] | None = None,
    *,
    members: Iterable[Mapping[str, Any]] | None = None,
    order: str = "member",
    group_size: int | None = None,
) -> Population:
    """Returns a population: trainings with different hyperparameters, computed in one program.

    The names are "seed"; the learning rate, as numbers or as schedules; other numbers among the fields of
    the optimizer, such as "weight_decay", "beta_1" or "clipnorm", and of the loss, such as
    "label_smoothing"; and the names of `optax.inject_hyperparams`. "optimizer.name" and "loss.name" tell
    equal names apart. With a mesh, its devices share the members.

    Args:
        trainer: the trainer.
        hyperparameters: a list of values for each name; the members are all combinations.
        members: instead of `hyperparameters`, a dictionary of values for each member.
        order: "member": each member shuffles the rows by its own key, as its own `fit` does; "shared":
            all members see the batches of the first, which reads each batch once.
        group_size: number of members that a device computes at once. By default all of them; on CPUs, one
            for models with convolutions, and as many as a core's cache holds for others.

    Raises:
        TypeError: for values other than numbers and schedules.
        ValueError: for an unknown name, an empty list, or a value out of range.

    Example:
        >>> import fkeras as fk
        >>> population = fk.populate(fk.Trainer("adam", "mse"), {"beta_1": [0.8, 0.9], "seed": range(2)})
        >>> population.members[1]
        {'beta_1': 0.8, 'seed': 1}
        >>> fk.populate(fk.Trainer("adam", "mse"), members=[{"learning_rate": 0.1}, {"learning_rate": 0.2}])
        <Population of 2 members: learning_rate>
    """
    if not isinstance(trainer, Trainer):
        raise TypeError(
            f"populate: expected a Trainer first, received {type(trainer).__name__}. Write "
            'fk.populate(fk.Trainer("adam", "mse"), {"seed": range(4)}).'
        )
    if (hyperparameters is None) == (members is None):
        raise TypeError(
            "populate: expected either values by name or members, received "
            f"{'none' if members is None else 'both'}. Write fk.populate(trainer, "
            '{"seed": range(4)}).'
        )
    if trainer.sharding is not None:
        raise ValueError(
            "populate: expected a trainer without sharding: the devices of a mesh share the members, "
            "and each member is whole on one device. Remove sharding from the trainer."
        )
    if trainer.cache_frozen:
        raise ValueError(
            "populate: expected a trainer without cache_frozen: the steps of a population compute whole "
            "models. Remove cache_frozen, or compute the features once and train a population of heads."
        )
    if len(members_of(trainer.mesh)) > 1:
        raise ValueError(
            "populate: expected a mesh of the devices of one process, received devices of several. Make "
            "a population in each process, with a mesh of jax.local_devices()."
        )
    chosen = (
        names_of.as_members(members) if members is not None else names_of.product(hyperparameters)
    )
    parameters = names_of.resolve(trainer, chosen)
    base = names_of.base_trainer(trainer, parameters)
    return Population(
        base,
        parameters,
        _order.check("populate: order", order),
        _group_size.check("populate: group_size", group_size),
    )


def _stack(*arrays: Any) -> Any:
    return jnp.stack(arrays) if is_key(arrays[0]) else np.stack(arrays)

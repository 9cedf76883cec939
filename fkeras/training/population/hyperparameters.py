"""Hyperparameters of a population: the meaning of a name, and checks of the values.

A hyperparameter is a leaf of the optimizer's state, such as the learning rate; or a number among the
fields of the optimizer or of the loss, which the program then takes as an argument; or the seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import losses, optimizers
from fkeras.authoring.engine import integer
from fkeras.engine import suggest
from fkeras.training.population import injected

if TYPE_CHECKING:
    from fkeras.training import Trainer

_SEED = integer(minimum=0, maximum=2**32 - 1)
# limit far beyond the memory of a device: larger lists are rejected before they are built
_LARGEST = 1 << 20
# fields that are leaves of the state of an `optimizers.Optimizer`
_LEAVES = ("learning_rate", "weight_decay")
_LAYERS = (
    "Values of layers, such as the rate of Dropout, are constants of the program: make one population "
    "for each model."
)


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """A name with a value for each member.

    Attributes:
        name: the name, as in the arguments of `populate`.
        home: "seed"; "state", a leaf of the optimizer's state; "optimizer" or "loss", a field.
        field: the name without a prefix.
        values: the value of each member.
    """

    name: str
    home: str
    field: str
    values: tuple[Any, ...]

    @property
    def is_number(self) -> bool:
        """Whether a rule may multiply the value."""
        return self.home != "seed" and not callable(self.values[0])

    @property
    def choices(self) -> tuple[Any, ...]:
        """The different schedules of the members; empty for numbers."""
        return tuple(dict.fromkeys(self.values)) if callable(self.values[0]) else ()

    def array(self) -> np.ndarray:
        """Returns the values as an array; schedules as indices among the choices."""
        if self.choices:
            return np.asarray([self.choices.index(value) for value in self.values], "int32")
        are_integers = all(isinstance(value, int) for value in self.values)
        return np.asarray(self.values, "int32" if are_integers else "float32")

    def value(self, number: Any) -> Any:
        """Returns the value for an element of `array`."""
        return self.choices[int(number)] if self.choices else np.asarray(number).item()

    def applied(self, trainer: Trainer, value: Any) -> Trainer:
        """Returns the trainer with a value in the field; unchanged if only the state has the value.

        Raises:
            ValueError: for a value that the field does not accept.
        """
        owner = {"seed": None, "loss": trainer.loss}.get(self.home, trainer.optimizer)
        if owner is None or self.field not in _field_names(owner):
            return trainer
        changed = dataclasses.replace(owner, **{self.field: value})
        place = "loss" if self.home == "loss" else "optimizer"
        return dataclasses.replace(trainer, **{place: changed})


def product(values: object) -> tuple[dict[str, Any], ...]:
    """Returns the members of all combinations of values by name; the last name varies fastest."""
    if not isinstance(values, Mapping):
        raise TypeError(
            f"populate: expected values by name, received {type(values).__name__}. Write "
            'fk.populate(trainer, {"learning_rate": [1e-2, 1e-3], "seed": range(4)}), or '
            'fk.populate(trainer, members=[{"learning_rate": 1e-2}, ...]).'
        )
    lists = {name: _listed(f"{name!r}", each) for name, each in values.items()}
    count = math.prod(map(len, lists.values()))
    if count > _LARGEST:
        sizes = ", ".join(f"{name} {len(each)}" for name, each in lists.items())
        raise ValueError(
            f"populate: expected at most {_LARGEST} members, received {count} combinations ({sizes} "
            "values). Make several populations, or pass chosen combinations: members=[...]."
        )
    return tuple(dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values()))


def _listed(name: str, values: Any) -> list[Any]:
    is_array = isinstance(values, np.ndarray | jax.Array) and values.ndim == 1
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(
            f"populate: {name}: expected a list of values, received {values!r}. Write "
            f"{{{name}: [{values!r}]}}."
        )
    listed = np.asarray(values).tolist() if is_array else _limited(name, values)
    if not listed:
        raise ValueError(f"populate: {name}: expected at least one value, received none.")
    return listed


def _limited(name: str, values: Iterable[Any]) -> list[Any]:
    """Returns the values as a list; rejects more values than a population may have members."""
    listed = list(itertools.islice(values, _LARGEST + 1))
    if len(listed) > _LARGEST:
        raise ValueError(
            f"populate: {name}: expected at most {_LARGEST} values, received more. Make several "
            "populations."
        )
    return listed


def as_members(members: object) -> tuple[dict[str, Any], ...]:
    """Returns members, checked to be dictionaries with the same names."""
    if isinstance(members, Mapping | str) or not isinstance(members, Iterable):
        raise TypeError(
            f"populate: members: expected a list of dictionaries, received {type(members).__name__}. "
            'Write members=[{"learning_rate": 1e-2}, {"learning_rate": 1e-3}].'
        )
    listed = _limited("members", members)
    for number, member in enumerate(listed):
        if not isinstance(member, Mapping):
            raise TypeError(
                f"populate: member {number}: expected a dictionary of values by name, received "
                f"{type(member).__name__}."
            )
        if member.keys() != listed[0].keys():
            expected, received = ", ".join(map(str, listed[0])), ", ".join(map(str, member))
            raise ValueError(
                f"populate: member {number}: expected the names of member 0 ({expected}), received "
                f"{received or 'none'}. Give each member a value for every name."
            )
    return tuple({name: member[name] for name in listed[0]} for member in listed)


def resolve(trainer: Trainer, members: Sequence[Mapping[str, Any]]) -> tuple[Hyperparameter, ...]:
    """Returns the hyperparameters of members.

    Raises:
        TypeError: for values other than numbers, and schedules of the learning rate.
        ValueError: for no members, an unknown or ambiguous name, or a value out of range.
    """
    if not members or not members[0]:
        raise ValueError(
            "populate: expected at least one hyperparameter with values, received none. Write "
            'fk.populate(trainer, {"seed": range(4)}) for members that differ in their seed alone.'
        )
    return tuple(_resolved(trainer, name, [m[name] for m in members]) for name in members[0])


def _resolved(trainer: Trainer, name: str, values: list[Any]) -> Hyperparameter:
    home, field = _home(trainer, name)
    if home == "seed":
        return Hyperparameter(
            name, home, field, tuple(_SEED.check("populate: 'seed'", v) for v in values)
        )
    schedules = field == "learning_rate" and home == "optimizer"
    if schedules and any(map(callable, values)):
        if not all(map(callable, values)):
            raise ValueError(
                f"populate: {name!r}: expected numbers or schedules, received both. Write `lambda "
                "step: 1e-3` for a constant rate beside schedules."
            )
    else:
        schedules = False
        for value in values:
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(
                    f"populate: {name!r}: expected numbers, received {value!r}. Only numbers vary "
                    "within one program: make one population for each other value."
                )
    if home == "optimizer" and field in _LEAVES and not schedules:
        home = "state"
    parameter = Hyperparameter(name, home, field, tuple(values))
    converted = []
    for number, value in enumerate(values):
        changed = _applied(parameter, trainer, number)
        owner = changed.loss if home == "loss" else changed.optimizer
        converted.append(value if schedules else getattr(owner, field, float(value)))
    return dataclasses.replace(parameter, values=tuple(converted))


def _applied(parameter: Hyperparameter, trainer: Trainer, number: int) -> Trainer:
    """Returns the trainer with the value of a member; an error names the member."""
    try:
        return parameter.applied(trainer, parameter.values[number])
    except (TypeError, ValueError) as error:
        raise type(error)(f"populate: member {number}: {error}") from error


def _home(trainer: Trainer, name: object) -> tuple[str, str]:
    """Returns where a hyperparameter is declared ("seed", "optimizer" or "loss"), and its field there."""
    if name == "seed":
        return "seed", "seed"
    homes = {
        "optimizer": _optimizer_names(trainer.optimizer),
        "loss": _field_names(trainer.loss) if isinstance(trainer.loss, losses.Loss) else (),
    }
    prefix, _, field = str(name).rpartition(".")
    matching = [home for home, names in homes.items() if prefix in ("", home) and field in names]
    if len(matching) == 2:
        raise ValueError(
            f"populate: {name!r} is a field of both the optimizer and the loss. Write "
            f"'optimizer.{name}' or 'loss.{name}'."
        )
    if not matching:
        known = ["seed", *homes["optimizer"], *homes["loss"]]
        raise ValueError(
            f"populate: unknown hyperparameter {name!r}.{suggest(str(name), known)} The names are: "
            f"{', '.join(dict.fromkeys(known))}. {_LAYERS}"
        )
    home = matching[0]
    is_state = home == "optimizer" and field not in _field_names(trainer.optimizer)
    return ("state" if is_state else home), field


def _field_names(owner: Any) -> tuple[str, ...]:
    if not isinstance(owner, optimizers.BaseOptimizer | losses.Loss):
        return ()
    return tuple(f.name for f in dataclasses.fields(owner) if f.name not in ("name", "dtype"))


def _optimizer_names(optimizer: Any) -> tuple[str, ...]:
    if isinstance(optimizer, optimizers.BaseOptimizer):
        return tuple(dict.fromkeys(("learning_rate", *_field_names(optimizer))))
    # the names in the states of `optax.inject_hyperparams`
    try:
        state = jax.eval_shape(optimizer.init, {"weight": jnp.zeros((2, 2))})
    except Exception:  # labels or masks for weights of other paths
        return ("learning_rate",)
    nodes = jax.tree.leaves(state, is_leaf=_has_hyperparameters)
    found = [n for n in nodes if _has_hyperparameters(n)]
    names = dict.fromkeys(name for node in found for name in node.hyperparams)
    computed = {name for node in found for name in getattr(node, "hyperparams_states", None) or ()}
    return tuple(name for name in names if name not in computed)


def _has_hyperparameters(node: Any) -> bool:
    return isinstance(getattr(node, "hyperparams", None), Mapping)


def state_values(opt_state: Any, field: str) -> jax.Array:
    """Returns the values of a hyperparameter in the optimizer's state."""
    if field == "learning_rate":
        return optimizers.learning_rate(opt_state)
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: _holds(node, field))
    node = next(n for n in nodes if _holds(n, field))
    return node.hyperparams[field] if _has_hyperparameters(node) else getattr(node, field)


def with_state_values(opt_state: Any, field: str, values: np.ndarray | jax.Array) -> Any:
    """Returns the optimizer's state of all members with new values of a hyperparameter."""
    if field == "learning_rate":
        return optimizers.with_learning_rate(opt_state, values)

    def put(node: Any) -> Any:
        if not _holds(node, field):
            return node
        if _has_hyperparameters(node):
            new = jnp.asarray(values, node.hyperparams[field].dtype)
            return node._replace(hyperparams={**node.hyperparams, field: new})
        return node._replace(**{field: jnp.asarray(values, getattr(node, field).dtype)})

    return jax.tree.map(put, opt_state, is_leaf=lambda node: _holds(node, field))


def _holds(node: Any, field: str) -> bool:
    if _has_hyperparameters(node):
        return field in node.hyperparams
    return isinstance(node, optimizers.OptimizerState)


def base_trainer(trainer: Trainer, parameters: Sequence[Hyperparameter]) -> Trainer:
    """Returns the trainer with the values of the first member.

    Raises:
        ValueError: if the states of the members' optimizers differ in their structure.
    """
    trainers = [trainer] * len(parameters[0].values)
    for parameter in parameters:
        trainers = [_applied(parameter, each, n) for n, each in enumerate(trainers)]
    weights = {"weight": jnp.zeros((2, 2))}
    fields = [p for p in parameters if p.home in ("optimizer", "state")]
    first: Any = trainers[0].optimizer
    if fields and isinstance(first, optimizers.Optimizer):
        members: list[Any] = [each.optimizer for each in trainers]
        for optimizer in {each._canonical(): each for each in members}.values():
            states = [
                jax.tree.structure(jax.eval_shape(each.transformation().init, weights))
                for each in (first, optimizer)
            ]
            if states[0] != states[1]:
                raise ValueError(
                    f"populate: {first} and {optimizer} keep different states, which one program "
                    "cannot hold. Use values above 0 for "
                    f"{', '.join(repr(p.name) for p in fields)}, or make two populations."
                )
    return trainers[0]


def traced_trainer(trainer: Trainer, parameters: Sequence[Hyperparameter]) -> Trainer:
    """Returns the trainer of the program, without the numbers that vary between the members.

    Its optimizer reads the varying fields from its state.
    """
    loss_fields = [p.field for p in parameters if p.home == "loss"]
    if loss_fields:
        loss = injected.with_placeholders(trainer.loss, loss_fields)
        trainer = dataclasses.replace(trainer, loss=loss)
    fields = [p for p in parameters if p.home == "optimizer"]
    if not fields:
        return trainer
    schedules = next((p.choices for p in fields if p.choices), ())
    optimizer = injected.Injected(trainer.optimizer, tuple(p.field for p in fields), schedules)
    return dataclasses.replace(trainer, optimizer=optimizer)

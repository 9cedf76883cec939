"""Rules that stop members of a population, or replace them, between two epochs.

A rule is a value. `begin` returns the rule's memory, and `decide` maps the logs of an epoch and the memory
to a `Decision`. A rule of a user is a subclass with these two methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fkeras.authoring.engine import Integer, Real, boolean, choice, integer, real, text
from fkeras.authoring.training import monitor as watch
from fkeras.engine import Configurable, option


class Decision(NamedTuple):
    """What a rule decides after an epoch, as arrays with an entry for each member.

    Attributes:
        active: booleans, False for members that stop.
        memory: the memory of the rule for the next epoch.
        parents: the number of the member whose weights, state, optimizer state and hyperparameters each
            member takes over; None if all members keep their own.
        factors: by name of a hyperparameter, the factors that multiply its values.
        best: booleans, True for members whose weights and state are the best so far; the members have
            these weights at the end of `fit`. None if the last weights stay.

    Example:
        >>> import numpy as np
        >>> Decision(np.array([True, False]), {}).parents is None
        True
    """

    active: np.ndarray
    memory: dict[str, Any]
    parents: np.ndarray | None = None
    factors: dict[str, np.ndarray] = {}
    best: np.ndarray | None = None


class Rule(Configurable):
    """Base class of rules for the members of a population.

    Args of the family:
        monitor: name of the log.
        mode: "min" or "max", the direction of better values; "auto" decides by the name of the log.

    Example:
        >>> import numpy as np
        >>> from fkeras.training.population import Decision, Rule
        >>> class StopAbove(Rule):
        ...     def decide(self, epoch, values, active, memory):
        ...         return Decision(active & ~(values > 10.0), memory)
        >>> rule = StopAbove("loss")
        >>> rule.decide(0, np.array([1.0, 99.0]), np.array([True, True]), rule.begin(2, ())).active
        array([ True, False])
    """

    monitor: str = option(default="val_loss", convert=text())
    mode: str = option(default="auto", convert=choice("auto", "min", "max"), kw_only=True)

    def begin(self, members: int, names: Sequence[str]) -> dict[str, Any]:
        """Returns the memory before the first epoch.

        Args:
            members: number of members.
            names: the hyperparameters that `Decision.factors` may change.
        """
        return {}

    def decide(
        self, epoch: int, values: np.ndarray, active: np.ndarray, memory: dict[str, Any]
    ) -> Decision:
        """Returns the decision after an epoch.

        Args:
            epoch: number of the epoch, from 0.
            values: the monitored log of each member; NaN for members that are not active.
            active: booleans, True for members that trained in this epoch.
            memory: the memory after the epoch before.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: missing method decide(epoch, values, active, memory). Define a "
            "method that returns a Decision."
        )

    def check_logs(self, names: Sequence[str]) -> None:
        """Rejects a monitored log that the training does not have, before the first epoch."""
        watch.check(type(self).__name__, self.monitor, names)
        watch.direction(type(self).__name__, self.monitor, self.mode)

    def scores(self, values: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Returns values of which larger ones are better; NaN and stopped members are the worst."""
        sign = (
            1.0 if watch.direction(type(self).__name__, self.monitor, self.mode) == "max" else -1.0
        )
        return np.where(active & ~np.isnan(values), sign * values, -np.inf)


class EarlyStopping(Rule):
    """Stops each member after `patience` consecutive epochs without an improvement of its log.

    Decides for each member as `fk.callbacks.EarlyStopping` decides for one training.

    Args:
        patience: number of epochs without an improvement before a member stops.
        min_delta: minimum change that counts as an improvement.
        restore_best_weights: whether each member has the weights and state of its best epoch at the
            end.
        start_from_epoch: number of epochs before monitoring starts.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.population import EarlyStopping
        >>> population = fk.populate(fk.Trainer("sgd", "mse"), {"learning_rate": [0.0, 0.1]})
        >>> model = fk.Sequential([fk.Input((1,)), fk.layers.Dense(1)])
        >>> x = np.linspace(-1, 1, 8, dtype="float32")[:, None]
        >>> runs, history = population.fit(population.init(model, jax.random.key(0)), x, x, epochs=4,
        ...                                rules=[EarlyStopping("loss", min_delta=1e-3)],
        ...                                verbose=0)
        >>> np.isnan(history.history["loss"]).sum(axis=0).tolist()
        [2, 0]
    """

    patience: Integer = option(default=0, convert=integer(minimum=0))
    min_delta: Real = option(default=0.0, convert=real())
    restore_best_weights: bool = option(default=False, convert=boolean)
    start_from_epoch: Integer = option(default=0, convert=integer(minimum=0))

    def begin(self, members: int, names: Sequence[str]) -> dict[str, Any]:
        return {
            "best": np.full(members, math.nan),
            "wait": np.zeros(members, "int32"),
            "seen": False,
        }

    def decide(
        self, epoch: int, values: np.ndarray, active: np.ndarray, memory: dict[str, Any]
    ) -> Decision:
        if epoch < self.start_from_epoch:
            return Decision(active, memory)
        way = watch.direction(type(self).__name__, self.monitor, self.mode)
        pairs = zip(values, memory["best"], strict=True)
        improved = active & [watch.improves(way, v, b, self.min_delta) for v, b in pairs]
        wait = np.where(improved, 0, memory["wait"] + 1)
        best = np.where(improved, values, memory["best"])
        # as in Keras: the first epoch stops no training, and its weights are kept even for NaN
        stops = ~improved & (wait >= self.patience) & (epoch > 0)
        kept = improved | (active & (not memory["seen"])) if self.restore_best_weights else None
        memory = {"best": best, "wait": wait, "seen": True}
        return Decision(active & ~stops, memory, best=kept)


class SuccessiveHalving(Rule):
    """Keeps the best members: after `every`, `every * factor`, `every * factor**2`, ... epochs.

    Each time, the best of the active members continue, one in `factor`. The others stop, and the
    program continues with fewer members.

    Args:
        every: number of epochs before the first selection.
        factor: the factor between the numbers of members before and after a selection.

    Example:
        >>> import numpy as np
        >>> from fkeras.training.population import SuccessiveHalving
        >>> rule = SuccessiveHalving("loss", every=1)
        >>> losses, active = np.array([3.0, 1.0, 2.0, 4.0]), np.ones(4, bool)
        >>> rule.decide(0, losses, active, rule.begin(4, ())).active
        array([False,  True,  True, False])

    References:
        Jamieson and Talwalkar, 2015, Non-stochastic best arm identification and hyperparameter
        optimization, https://arxiv.org/abs/1502.07943
    """

    every: Integer = option(default=1, convert=integer(minimum=1))
    factor: Integer = option(default=2, convert=integer(minimum=2))

    def begin(self, members: int, names: Sequence[str]) -> dict[str, Any]:
        return {"epochs": 0, "next": self.every}

    def decide(
        self, epoch: int, values: np.ndarray, active: np.ndarray, memory: dict[str, Any]
    ) -> Decision:
        epochs, due = memory["epochs"] + 1, memory["next"]
        if epochs < due:
            return Decision(active, {"epochs": epochs, "next": due})
        memory = {"epochs": epochs, "next": due * self.factor}
        count = -(-int(active.sum()) // self.factor)
        order = np.argsort(-self.scores(values, active), kind="stable")
        chosen = np.zeros_like(active)
        chosen[order[:count]] = True
        return Decision(active & chosen, memory)


class PopulationBased(Rule):
    """Population-based training: the worst members continue from the best, with changed values.

    After every `every` epochs, the worst `fraction` of the members take over weights, state, optimizer
    state and hyperparameters of the best `fraction`. Each number among the hyperparameters is then
    multiplied by one of the factors; a value that the optimizer or the loss does not accept stays.

    Args:
        every: number of epochs between two exchanges.
        fraction: the share of the members that are replaced.
        factors: the factors, of which each change draws one.
        seed: the seed of the draws.

    Example:
        >>> import numpy as np
        >>> from fkeras.training.population import PopulationBased
        >>> rule = PopulationBased("loss")
        >>> losses, active = np.array([3.0, 1.0, 2.0, 4.0]), np.ones(4, bool)
        >>> decision = rule.decide(0, losses, active, rule.begin(4, ("learning_rate",)))
        >>> decision.parents, decision.factors["learning_rate"]
        (array([0, 1, 2, 1]), array([1.  , 1.  , 1.  , 1.25]))

    References:
        Jaderberg et al., 2017, Population based training of neural networks,
        https://arxiv.org/abs/1711.09846
    """

    every: Integer = option(default=1, convert=integer(minimum=1))
    fraction: Real = option(default=0.25, convert=real(above=0, maximum=0.5))
    factors: tuple[float, ...] = option(default=(0.8, 1.25), convert=lambda v: _factors(v))
    seed: Integer = option(default=0, convert=integer(minimum=0))

    def begin(self, members: int, names: Sequence[str]) -> dict[str, Any]:
        return {"names": tuple(names), "epochs": 0}

    def decide(
        self, epoch: int, values: np.ndarray, active: np.ndarray, memory: dict[str, Any]
    ) -> Decision:
        memory = {**memory, "epochs": memory["epochs"] + 1}
        count = int(active.sum() * self.fraction)
        if memory["epochs"] % self.every or not count:
            return Decision(active, memory)
        draws = np.random.default_rng((self.seed, epoch))
        order = np.argsort(-self.scores(values, active), kind="stable")[: active.sum()]
        best, worst = order[:count], order[-count:]
        parents = np.arange(len(active))
        parents[worst] = draws.permutation(best)
        factors = {name: np.ones(len(active)) for name in memory["names"]}
        for array in factors.values():
            array[worst] = draws.choice(self.factors, count)
        return Decision(active, memory, parents, factors)


_positive = real(above=0)


def _factors(value: Any) -> tuple[float, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise TypeError(f"expected a list of factors such as (0.8, 1.25), received {value!r}.")
    return tuple(_positive(each) for each in value)

"""`MemberHistory`: the logs that `Population.fit` returns together with the runs."""

from __future__ import annotations

import dataclasses
from typing import Generic, NamedTuple

import numpy as np

from fkeras.authoring.training import M
from fkeras.training import History, TrainState


@dataclasses.dataclass(frozen=True)
class MemberHistory(History):
    """Logs of all epochs, with a value for each member.

    Attributes:
        history: for each name a list with an array of shape (members, ...) for each epoch, NaN for
            members that had stopped.
        epoch: the numbers of the epochs, from 0.
        params: arguments of `fit`, and "stopped": when and why members stopped, by their numbers.

    Example:
        >>> import numpy as np
        >>> logs = MemberHistory({"loss": [np.array([2.0, 1.0])]}, [0], {"stopped": {}})
        >>> logs["loss"][-1].argmin().item()
        1
    """

    history: dict[str, list[np.ndarray]]  # type: ignore[assignment]

    def __getitem__(self, name: str) -> list[np.ndarray]:  # type: ignore[override]
        """Returns the values of one log."""
        values: list = super().__getitem__(name)
        return values

    def _repr_html_(self) -> str:
        lists = {name: [a.tolist() for a in arrays] for name, arrays in self.history.items()}
        return History(lists, self.epoch, self.params)._repr_html_()


class FittedMembers(NamedTuple, Generic[M]):
    """Result of `Population.fit`: the runs after the training, and the logs of its epochs.

    Attributes:
        runs: the `TrainState` whose arrays have the members as first axis.
        history: the `MemberHistory` of the training.

    Example:
        >>> FittedMembers._fields
        ('runs', 'history')
    """

    runs: TrainState[M]
    history: MemberHistory

"""`TrainState`: everything that training changes, as one pytree."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class TrainState:
    """Weights, state, optimizer, metric sums, step and key of a training.

    Attributes:
        model: the model with its weights.
        state: what no gradient reaches: moving statistics, carries of recurrent layers.
        opt_state: the optimizer's state, over the trainable weights.
        metrics: the sums of the running epoch, by name.
        step: how many steps were taken, int32.
        key: the key that every step's own key is derived from, by the step's number.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
        >>> int(run.step), run.model.count_params()
        (0, 4)
    """

    model: Any
    state: Any
    opt_state: Any
    metrics: Any
    step: Any
    key: Any

    def replace(self, **fields: Any) -> TrainState:
        """A copy with other values in some fields."""
        return dataclasses.replace(self, **fields)


jax.tree_util.register_dataclass(
    TrainState,
    data_fields=["model", "state", "opt_state", "metrics", "step", "key"],
    meta_fields=[],
)

"""The training run of an opened file, before the optimizer's state is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.engine import Network
from fkeras.host.containers.limits import Limits
from fkeras.saving.trained.resource_limits import check_training
from fkeras.training import Trainer, TrainState
from fkeras.training.inputs import checks
from fkeras.training.step import objective


def first_run(
    trainer: Trainer,
    model: Network,
    state: Mapping[str, Any],
    weights: Sequence[str],
    limits: Limits,
) -> TrainState:
    """Returns a run at step 0 without optimizer state, after the resource limits are checked."""
    checks.require_loss(trainer, model)
    # before `objective.empty`, which allocates the accumulators of the metrics
    check_training(trainer, model, list(weights), limits)
    return TrainState(
        model=model,
        state=state,
        opt_state=(),
        metrics=objective.empty(trainer, model),
        step=np.zeros((), "int32"),
        # Keras's files store no JAX key
        key=jax.random.key(0),
    )

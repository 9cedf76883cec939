"""Starts a training: builds the model and creates the run before the first step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fkeras import optimizers
from fkeras.engine import Layer, trainable_weights, unfreeze
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.values.random import check_key
from fkeras.host.processes.alone import Alone
from fkeras.host.processes.calls import together
from fkeras.host.processes.facts import array_facts
from fkeras.training.data import texts
from fkeras.training.inputs import checks
from fkeras.training.inputs.model_state import check_model_state
from fkeras.training.inputs.suitability import (
    warn_if_not_adapted,
    warn_if_unscaled,
    warn_if_unsuitable,
)
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import M, TrainState, own_copy
from fkeras.training.step import objective, objective_call, optimizer_state, sharding
from fkeras.training.step.masters import optimizer_of


def start(
    trainer: Trainer, model: M, key: jax.Array, state: Mapping[str, Any] | None, batch: object
) -> TrainState[M]:
    """Returns the run before the first step; see `Trainer.init`."""
    if not isinstance(model, Layer):
        check_not_keras(model, "Trainer.init")
        raise TypeError(
            f"Trainer.init: expected a model, received {type(model).__name__}. Write "
            "trainer.init(fk.Model(inputs, outputs), jax.random.key(0))."
        )
    check_key(key, "Trainer.init")
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((key, model)))
    with together(None if traced else trainer.mesh, "Trainer.init") as group:
        run = _start(trainer, model, key, state, batch, group)
    warn_if_unsuitable(trainer, run.model, stacklevel=4)
    warn_if_unscaled(trainer, run.model, stacklevel=4)
    if state is None:
        warn_if_not_adapted(run.model, stacklevel=4)
    return run


def _start(
    trainer: Trainer,
    model: M,
    key: jax.Array,
    state: Mapping[str, Any] | None,
    batch: object,
    group: Alone,
) -> TrainState[M]:
    texts.check_model(model, trainer.objective is not None)
    checks.require_loss(trainer, model)
    # before the build: an error of the rules takes no memory
    sharding.check(trainer, model)
    if group.count > 1:
        # each process builds its shards from its own values
        facts = array_facts({"key": key, "model": model, "state": {} if state is None else state})
        group.require_equal("key, weights and state", facts)
    built = sharding.build(trainer, model, key)
    objective_call.check_model(built)
    if state is None:
        state = built.init_state()
    else:
        check_model_state(built, state)
    if isinstance(trainer.optimizer, optimizers.BaseOptimizer):
        paths = tuple(trainable_weights(unfreeze(built)))
        trainer.optimizer._check_paths(paths)
        for message in trainer.optimizer._idle_names(paths):
            warnings.warn(message, stacklevel=5)
    run = TrainState(
        model=built,
        state=state,
        opt_state=optimizer_state.start(optimizer_of(trainer), built),
        metrics=objective.empty(trainer, built, state, batch),
        # `device_put` of a NumPy array is strongly typed, and compiles nothing.
        step=jax.device_put(np.zeros((), "int32")),
        key=key,
    )
    # Donating the run would otherwise delete the caller's key, too.
    run = run.replace(key_data=own_copy(run.key_data))
    return sharding.place(trainer, run)

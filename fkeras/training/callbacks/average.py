"""`SwapEMAWeights`: an exponential moving average of the weights, for validation and as result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import option, replace_weights, trainable_weights
from fkeras.engine.config.converters import boolean, choice, probability
from fkeras.engine.config.field_types import Real
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.records.state import TrainState


class SwapEMAWeights(Callback):
    """Averages the trainable weights: average = momentum * average + (1 - momentum) * weights.

    `run.memory` keeps the average in float32. Validation uses the average, and so does the run that
    `fit` returns; training continues with the original weights. Another `fit` of the returned run
    also continues with the original weights, unless the model has changed in the meantime: then a
    new average starts.

    In Keras the optimizer keeps the average (`use_ema=True, ema_momentum=0.99`) and updates it
    after every step. Here one device call may take several steps: the weights after a call of n
    steps count for all n steps, with `momentum ** n`. For exactly Keras's average, set
    `trainer.fit(..., steps_per_execution=1)`, which is slower for small models.

    Args:
        momentum: factor of the old average in each step.
        swap_on_epoch: whether `run.model` holds the average from the end of an epoch to the
            beginning of the next epoch, for later callbacks such as `ModelCheckpoint`.
        update_freq: "batch" updates after every device call; "epoch" once per epoch, so that the
            device does not wait for the callback.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import SwapEMAWeights
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
        >>> swap = SwapEMAWeights(0.9)
        >>> run, _ = trainer.fit(run, x, y, epochs=2, callbacks=[swap], verbose=0)
        >>> sorted(run.memory["swap_ema_weights"])
        ['average', 'step', 'updates', 'weights']
    """

    momentum: Real = option(default=0.99, convert=probability)
    swap_on_epoch: bool = option(default=False, convert=boolean)
    update_freq: str = option(default="batch", convert=choice("batch", "epoch"))

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the average is updated after every device call."""
        return self.update_freq == "batch"

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        # "weights" in the memory: an earlier `fit` returned the average in the model. If the model
        # no longer holds that average, the user replaced the weights
        memory = self.recall(run)
        if memory is None or ("weights" in memory and not _is_in(run, memory["average"])):
            return self._begin(run)
        run = self._swapped_back(run)
        weights = trainable_weights(run.model)
        if weights.keys() == memory["average"].keys():
            return run
        # the user froze or unfroze layers: a new average starts at the value of its weight
        memory = dict(self.recall(run))
        old_average = memory["average"]
        memory["average"] = {path: old_average.get(path, _wide(w)) for path, w in weights.items()}
        return self.remember(run, memory)

    def on_epoch_begin(self, epoch: int, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self._swapped_back(run)

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        return self._updated(run, step) if self.update_freq == "batch" else None

    def on_test_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        # no swap back: the loop uses the returned run for this validation only
        memory = self.recall(run)
        return None if memory is None or "weights" in memory else _with(run, memory["average"])

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.update_freq == "epoch":
            run = self._updated(run, None)
        return self._swapped(run) if self.swap_on_epoch else run

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self._swapped(run)

    def _begin(self, run: TrainState[Any]) -> Any:
        average = {path: _wide(weight) for path, weight in trainable_weights(run.model).items()}
        return self.remember(run, {"average": average, "step": int(run.step), "updates": 0})

    def _updated(self, run: TrainState[Any], step: int | None) -> Any:
        """Returns the run with an updated average; `step` None counts as one update."""
        if self.recall(run) is None:
            run = self._begin(run)
        memory = self.recall(run)
        steps = 1 if step is None else max(step - int(memory["step"]), 1)
        # the first update replaces the initial average by the weights, as in Keras
        share = self.momentum**steps if int(memory["updates"]) else 0.0
        weights = trainable_weights(run.model)
        average = _average(memory["average"], weights, np.float32(share))
        current_step = int(run.step) if step is None else step
        updates = min(int(memory["updates"]) + 1, 1)
        return self.remember(run, {"average": average, "step": current_step, "updates": updates})

    def _swapped(self, run: TrainState[Any]) -> Any:
        """Returns the run with the average in the model and the weights in the memory."""
        memory = self.recall(run)
        if memory is None or "weights" in memory:
            return run
        weights = trainable_weights(run.model)
        return self.remember(_with(run, memory["average"]), {**memory, "weights": weights})

    def _swapped_back(self, run: TrainState[Any]) -> Any:
        """Returns the run with its weights back in the model, unless the model has changed."""
        memory = self.recall(run)
        if memory is None or "weights" not in memory:
            return run
        remaining = {name: value for name, value in memory.items() if name != "weights"}
        if _is_in(run, memory["average"]):
            run = run.replace(model=replace_weights(run.model, memory["weights"]))
        return self.remember(run, remaining)


@jax.jit
def _average(
    average: jax.Array | np.ndarray, weights: jax.Array | np.ndarray, momentum: jax.Array
) -> Any:
    def mix(old: jax.Array, new: jax.Array) -> jax.Array:
        share = momentum.astype(old.dtype)
        return share * old + (1 - share) * new.astype(old.dtype)

    return jax.tree.map(mix, average, weights)


def _wide(weight: jax.Array) -> jax.Array:
    """Converts a weight to the precision of the average."""
    # in bfloat16, rounding would lose small changes of the average
    return weight if weight.dtype == "float64" else jnp.asarray(weight).astype("float32")


def _narrow(run: TrainState[Any], average: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the average to the dtypes of the weights."""
    weights = trainable_weights(run.model)
    return {path: jnp.asarray(average[path]).astype(w.dtype) for path, w in weights.items()}


def _with(run: TrainState[Any], average: Mapping[str, Any]) -> Any:
    return run.replace(model=replace_weights(run.model, _narrow(run, average)))


def _is_in(run: TrainState[Any], average: Mapping[str, Any]) -> bool:
    """Returns whether the model holds the average."""
    weights = trainable_weights(run.model)
    shapes = {path: weight.shape for path, weight in weights.items()}
    if shapes != {path: array.shape for path, array in average.items()}:
        return False
    narrow = _narrow(run, average)
    return all(np.array_equal(weights[path], narrow[path]) for path in weights)

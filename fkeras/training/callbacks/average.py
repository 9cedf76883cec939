"""`SwapEMAWeights`: an exponential average of the weights, for validation and for the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import option, replace_weights, trainable_weights
from fkeras.engine.config.converters import boolean, choice, probability
from fkeras.engine.config.field_types import Real
from fkeras.training.callbacks.base.callback import Callback


class SwapEMAWeights(Callback):
    """average = momentum * average + (1 - momentum) * weights, used in the place of the weights.

    The average, in float32, is kept in `run.memory`. A validation sees it, and the run that `fit`
    returns has it; training goes on with the weights themselves. Fitting that run again goes on
    from the weights too, unless its model was changed since: then the average begins anew.

    In Keras the optimizer keeps the average (`use_ema=True, ema_momentum=0.99`); here this
    callback does all of it, over the weights that are trainable. Keras averages after every step.
    Here the loop may take several steps in one call of the device: the weights at its end then
    count for all n of them, with `momentum ** n`. For Keras's numbers to the last digit write
    `trainer.fit(..., steps_per_execution=1)`, one step a call, which costs speed for small models.

    Args:
        momentum: the share of the average that each step keeps.
        swap_on_epoch: whether the average stands in `run.model` from the end of an epoch to the
            beginning of the next, for the callbacks that come after this one, such as
            `ModelCheckpoint`.
        update_freq: "batch", after every call of the device, or "epoch", once an epoch, which
            keeps the device from waiting.

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
    def watches_batches(self) -> bool:
        """Whether the average follows every call of the device."""
        return self.update_freq == "batch"

    def on_train_begin(self, run: Any) -> Any:
        kept = self.recall(run)
        if kept is None or ("weights" in kept and not _is_in(run, kept["average"])):
            return self._begin(run)
        run = self._swapped_back(run)
        weights = trainable_weights(run.model)
        if weights.keys() == kept["average"].keys():
            return run
        # some were frozen or unfrozen since
        kept = dict(self.recall(run))
        old = kept["average"]
        kept["average"] = {path: old.get(path, _wide(w)) for path, w in weights.items()}
        return self.remember(run, kept)

    def on_epoch_begin(self, epoch: int, run: Any) -> Any:
        return self._swapped_back(run)

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        return self._updated(run, step) if self.update_freq == "batch" else None

    def on_test_begin(self, run: Any) -> Any:
        kept = self.recall(run)
        return None if kept is None or "weights" in kept else _with(run, kept["average"])

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        if self.update_freq == "epoch":
            run = self._updated(run, None)
        return self._swapped(run) if self.swap_on_epoch else run

    def on_train_end(self, run: Any) -> Any:
        return self._swapped(run)

    def _begin(self, run: Any) -> Any:
        average = {path: _wide(weight) for path, weight in trainable_weights(run.model).items()}
        return self.remember(run, {"average": average, "step": int(run.step), "updates": 0})

    def _updated(self, run: Any, step: int | None) -> Any:
        """The run whose average has followed the weights: to a step, or by one update."""
        if self.recall(run) is None:
            run = self._begin(run)
        kept = self.recall(run)
        steps = 1 if step is None else max(step - int(kept["step"]), 1)
        # the first average is the weights after the first step, as in Keras
        share = self.momentum**steps if int(kept["updates"]) else 0.0
        weights = trainable_weights(run.model)
        average = _average(kept["average"], weights, np.float32(share))
        now = int(run.step) if step is None else step
        updates = min(int(kept["updates"]) + 1, 1)
        return self.remember(run, {"average": average, "step": now, "updates": updates})

    def _swapped(self, run: Any) -> Any:
        """The run with the average in its model, and the weights remembered."""
        kept = self.recall(run)
        if kept is None or "weights" in kept:
            return run
        weights = trainable_weights(run.model)
        return self.remember(_with(run, kept["average"]), {**kept, "weights": weights})

    def _swapped_back(self, run: Any) -> Any:
        """The run with its weights where the average stood, unless the model was changed since."""
        kept = self.recall(run)
        if kept is None or "weights" not in kept:
            return run
        rest = {name: value for name, value in kept.items() if name != "weights"}
        if _is_in(run, kept["average"]):
            run = run.replace(model=replace_weights(run.model, kept["weights"]))
        return self.remember(run, rest)


@jax.jit
def _average(average: Any, weights: Any, momentum: jax.Array) -> Any:
    def one(old: jax.Array, new: jax.Array) -> jax.Array:
        share = momentum.astype(old.dtype)
        return share * old + (1 - share) * new.astype(old.dtype)

    return jax.tree.map(one, average, weights)


def _wide(weight: jax.Array) -> jax.Array:
    """A weight in the precision of its average."""
    return weight if weight.dtype == "float64" else jnp.asarray(weight).astype("float32")


def _narrow(run: Any, average: Mapping[str, Any]) -> dict[str, Any]:
    """The average in the precision of the weights that it stands for."""
    weights = trainable_weights(run.model)
    return {path: jnp.asarray(average[path]).astype(w.dtype) for path, w in weights.items()}


def _with(run: Any, average: Mapping[str, Any]) -> Any:
    return run.replace(model=replace_weights(run.model, _narrow(run, average)))


def _is_in(run: Any, average: Mapping[str, Any]) -> bool:
    """Whether the average stands in the model."""
    weights = trainable_weights(run.model)
    shapes = {path: weight.shape for path, weight in weights.items()}
    if shapes != {path: array.shape for path, array in average.items()}:
        return False
    narrow = _narrow(run, average)
    return all(np.array_equal(weights[path], narrow[path]) for path in weights)

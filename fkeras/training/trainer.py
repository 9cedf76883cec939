"""`Trainer`: optimizer, loss and metrics as one value, and the loops over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras import losses, metrics, optimizers
from fkeras.engine import Configurable, Layer, option, partition
from fkeras.training import checks, data, objective, step
from fkeras.training.history import History
from fkeras.training.progress import Progress
from fkeras.training.state import TrainState


def _loss(value: Any) -> Any:
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: _loss(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_loss(v) for v in value)
    if isinstance(value, str) and value.lower() in ("crossentropy", "ce"):
        return value
    return losses.get(value)


def _metrics(value: Any) -> Any:
    if value is None:
        return ()
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: _metrics(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_metrics(v) if isinstance(v, list | tuple) else _metric(v) for v in value)
    return (_metric(value),)


def _metric(value: Any) -> Any:
    # these take their meaning from the loss and the shapes
    if isinstance(value, str) and value.lower() in ("accuracy", "acc", "crossentropy", "ce"):
        return value.lower()
    return metrics.get(value)


class Trainer(Configurable):
    """Trains a model: optimizer, loss and metrics as one static value.

    What training changes is a `TrainState`, a pytree beside it. Equal trainers over equal models
    share every compiled program.

    Args:
        optimizer: Keras's name of an optimizer, a value of `fk.optimizers`, or any optax
            transformation.
        loss: Keras's name of a loss, a value of `fk.losses` or a function of targets and
            predictions; for several outputs a list or a dictionary by output name.
        metrics: names or values of `fk.metrics`; for several outputs a dictionary by output name.
        loss_weights: the factor of each output's loss.
        weighted_metrics: metrics that count examples by their sample weight.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> trainer = fk.Trainer(optimizer="adam", loss="mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> x, y = np.ones((8, 3), "float32"), np.zeros((8, 1), "float32")
        >>> run, history = trainer.fit(run, x, y, epochs=2, verbose=0)
        >>> history.history["loss"][1] < history.history["loss"][0]
        True
    """

    keras_module: ClassVar[str] = "fkeras"

    optimizer: Any = option("rmsprop", convert=optimizers.get)
    loss: Any = option(None, convert=_loss)
    metrics: Any = option((), convert=_metrics)
    loss_weights: Any = option(None, kw_only=True)
    weighted_metrics: Any = option((), convert=_metrics, kw_only=True)

    def init(self, model: Layer, key: jax.Array) -> TrainState:
        """The state before the first step; builds the model where it is not built.

        Args:
            model: a model that knows its inputs.
            key: a PRNG key, for the weights, and for the keys of all steps.

        Raises:
            ValueError: without a loss, or where a loss or metric names no output.
        """
        if not isinstance(model, Layer):
            raise TypeError(
                f"Trainer.init: expected a model, received {type(model).__name__}. Write "
                "trainer.init(fk.Model(inputs, outputs), jax.random.key(0))."
            )
        heads = objective.heads(self, model)
        if all(head.loss is None for head in heads):
            raise ValueError(
                "Trainer: there is no loss to optimize. Give one: fk.Trainer(optimizer='adam', "
                "loss='mse')."
            )
        built = model if model.built else model.build(key)
        trainable, _ = partition(built)
        names = tuple(n for call in built.graph.calls for n in call.metrics)
        return TrainState(
            model=built,
            state=built.init_state(),
            opt_state=optimizers.transformation(self.optimizer).init(trainable),
            metrics=objective.init_metrics(heads, names),
            step=jax.device_put(np.zeros((), "int32")),
            key=key,
        )

    def step(self, run: TrainState, batch: tuple) -> tuple[TrainState, dict[str, jax.Array]]:
        """`(run, logs)`: one step on a batch `(x, y)` or `(x, y, sample_weight)`.

        Pure: compile, scan and donate it as you like. The logs are those of this batch; the sums of
        the epoch go on in `run.metrics`.
        """
        checks.check_run(run, "step")
        new, sums = step.train_step(self, run, batch)
        return new, objective.results(objective.heads(self, run.model), sums)

    def reset_metrics(self, run: TrainState) -> TrainState:
        """The run with empty metric sums."""
        return run.replace(
            metrics=jax.tree.map(lambda a: jax.device_put(np.zeros(a.shape, a.dtype)), run.metrics)
        )

    def fit(
        self,
        run: TrainState,
        x: Any,
        y: Any = None,
        *,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: Any = "auto",
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
    ) -> tuple[TrainState, History]:
        """`(run, history)` after training on arrays.

        The run that is passed in stays as it is. The order of the rows is a function of the run's
        key and the number of the epoch.

        Args:
            run: what `init` or an earlier `fit` returned.
            x: an array, or a list or dictionary of arrays for several inputs.
            y: the targets likewise.
            batch_size: rows a step. The last batch is filled up with rows that count nowhere.
            epochs: the number of the last epoch.
            verbose: 0, 1, 2 or "auto"; see `Progress`.
            validation_split: the share of the last rows that is kept for validation.
            validation_data: `(x, y)` or `(x, y, sample_weight)`.
            shuffle: whether each epoch has its own order.
            class_weight: a weight for each class number.
            sample_weight: a weight for each row; with class_weight the product counts.
            initial_epoch: the epoch to begin with, counted from 0.
            steps_per_epoch: how many steps an epoch has at most.
            validation_batch_size: rows a batch of validation.
            validation_freq: validate every so many epochs.

        Raises:
            ValueError: for bad data, before the first step; it names the array and the row.
        """
        checks.check_run(run, "fit")
        size = checks.check_size("batch_size", batch_size)
        checks.check_size("epochs", epochs)
        rows = _host(x, y, sample_weight, "fit")
        if validation_split:
            if validation_data is not None:
                raise ValueError("Pass either validation_split or validation_data, not both.")
            rows, held = data.split(rows, validation_split)
            validation_data = tuple(v for v in held if v is not None)
        count = _check_data(self, run.model, rows, size)
        rows = _weighted(rows, class_weight)
        checks.check_stateful(run.model, count, size, shuffle)
        size = min(size, count)
        steps = -(-count // size)
        if steps_per_epoch is not None:
            steps = min(steps, checks.check_size("steps_per_epoch", steps_per_epoch))
        if validation_data is not None:
            held = _host(*validation_data[:2], *validation_data[2:3], call="fit")
            _check_data(self, run.model, held, validation_batch_size or size)
        key_data, impl = jax.random.key_data(run.key), str(jax.random.key_impl(run.key))
        run = self.reset_metrics(run)
        empty = run.metrics
        carry = step.copied((run.model, run.state, run.opt_state, run.metrics, run.step))
        history: dict[str, list[float]] = {}
        numbers = []
        progress = Progress(verbose, epochs, steps)
        fresh = True
        for epoch in range(initial_epoch, epochs):
            progress.start(epoch)
            order = data.order_of(count, run.key, epoch) if shuffle else None
            done = 0
            for number, (batch, valid) in enumerate(data.batches(rows, size, order, steps), 1):
                if fresh:
                    progress.compile_starts()
                carry = step.compiled_train(self, impl, carry, key_data, batch, valid)
                if fresh:
                    jax.block_until_ready(carry[-1])
                    progress.compiled()
                    fresh = False
                done += int(valid.sum())
                progress.step(number, done, lambda carry=carry: self._logs(carry[0], carry[3]))
            logs = self._logs(carry[0], carry[3])
            progress.stop()
            if validation_data is not None and (epoch + 1) % validation_freq == 0:
                sums = self._test(carry[0], carry[1], empty, held, validation_batch_size or size)[1]
                logs |= {f"val_{n}": v for n, v in self._logs(carry[0], sums).items()}
            progress.end(logs, done)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            numbers.append(epoch)
            if epoch + 1 < epochs:
                carry = (*carry[:3], step.copied(empty), carry[4])
        model, state, opt_state, sums, count_steps = carry
        run = TrainState(model, state, opt_state, sums, count_steps, run.key)
        params = {"epochs": epochs, "steps": steps, "batch_size": size, "samples": count}
        return run, History(history, numbers, params)

    def evaluate(
        self,
        run: TrainState,
        x: Any,
        y: Any = None,
        *,
        batch_size: int = 32,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
    ) -> dict[str, float]:
        """The loss and metrics on arrays, as floats by name.

        Moving statistics stay as they are; a stateful layer's carry advances from batch to batch
        within the call.

        Args:
            run: the run; only its model and state are used.
            x: an array, or a list or dictionary of arrays.
            y: the targets likewise.
            batch_size: rows a batch.
            verbose: 0, 1, 2 or "auto".
            sample_weight: a weight for each row.
            steps: how many batches at most.
        """
        checks.check_run(run, "evaluate")
        size = checks.check_size("batch_size", batch_size)
        rows = _host(x, y, sample_weight, "evaluate")
        count = _check_data(self, run.model, rows, size)
        checks.check_stateful(run.model, count, size, False)
        progress = Progress(verbose, 1, -(-count // min(size, count)), title="Evaluation")
        progress.start(0)
        empty = self.reset_metrics(run).metrics
        sums = self._test(run.model, run.state, empty, rows, size, steps)[1]
        logs = self._logs(run.model, sums)
        progress.stop()
        progress.end(logs, count)
        return logs

    def predict(
        self,
        run: TrainState,
        x: Any,
        *,
        batch_size: int = 32,
        verbose: Any = 0,
        steps: int | None = None,
    ) -> Any:
        """The model's outputs on arrays, as NumPy arrays in the outputs' structure.

        Args:
            run: the run; only its model and state are used.
            x: an array, or a list or dictionary of arrays.
            batch_size: rows a batch.
            verbose: accepted as in `fit`; a prediction writes nothing.
            steps: how many batches at most.
        """
        checks.check_run(run, "predict")
        size = checks.check_size("batch_size", batch_size)
        rows = data.as_host(x, "predict: x")
        count = checks.check_lengths(rows)
        checks.check_finite(rows, "x")
        checks.check_inputs(run.model, rows, min(size, count))
        checks.check_stateful(run.model, count, size, False)
        state, parts = run.state, []
        for batch, valid in data.batches(rows, min(size, count), None, steps):
            state, value = step.compiled_predict(run.model, state, batch)
            parts.append(jax.tree.map(lambda a, v=valid: np.asarray(a)[: int(v.sum())], value))
        return jax.tree.map(lambda *a: np.concatenate(a), *parts)

    def _test(
        self, model: Any, state: Any, sums: Any, rows: tuple, size: int, steps: int | None = None
    ) -> tuple[Any, Any]:
        size = min(size, data.length(rows))
        for batch, valid in data.batches(rows, size, None, steps):
            state, sums = step.compiled_test(self, model, state, sums, batch, valid)
        return state, sums

    def _logs(self, model: Any, sums: Any) -> dict[str, float]:
        found = step.compiled_results(self, model, sums)
        order = ["loss", *(n for n in sums if n.endswith("_loss")), *self._metric_order(model)]
        names = [n for n in dict.fromkeys([*order, *found]) if n in found]
        return {name: float(found[name]) for name in names}

    def _metric_order(self, model: Any) -> list[str]:
        return [name for name, *_ in objective.metric_names(objective.heads(self, model))]


def _host(x: Any, y: Any, sample_weight: Any = None, call: str = "fit") -> tuple:
    if y is None:
        raise TypeError(
            f"Trainer.{call}: expected inputs and targets as arrays, received no targets. Write "
            f"trainer.{call}(run, x, y)."
        )
    weights = None
    if sample_weight is not None:
        weights = data.as_host(sample_weight, f"{call}: sample_weight")
        weights = jax.tree.map(lambda w: w.astype("float32"), weights)
    return data.as_host(x, f"{call}: x"), data.as_host(y, f"{call}: y"), weights


def _check_data(trainer: Trainer, model: Any, rows: tuple, size: int) -> int:
    x, y, weights = rows
    count = checks.check_lengths(x, y, weights)
    checks.check_finite(x, "x")
    checks.check_inputs(model, x, min(size, count))
    checks.check_targets(trainer, model, y)
    if weights is not None:
        checks.check_weights(weights)
    return count


def _weighted(rows: tuple, class_weight: Mapping[int, float] | None) -> tuple:
    if class_weight is None:
        return rows
    x, y, weights = rows
    own = checks.class_weights(class_weight, y)
    return x, y, own if weights is None else weights * own

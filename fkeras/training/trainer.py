"""`Trainer`: optimizer, loss and metrics as one value, and the loops over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras import losses, metrics, optimizers
from fkeras.engine import Configurable, Layer, option, partition
from fkeras.training import callbacks as hooks
from fkeras.training import checks, data, loops, objective, optimizer_state, step
from fkeras.training.history import History
from fkeras.training.progress import Progress
from fkeras.training.state import TrainState, own_copy


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
        return value
    found = metrics.get(value)
    # the name that was written is the name in the logs
    return value if isinstance(value, str) else found


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

    def init(self, model: Layer, key: jax.Array, *, state: Any = None) -> TrainState:
        """The state before the first step; builds the model where it is not built.

        Args:
            model: a model that knows its inputs.
            key: a PRNG key, for the weights, and for the keys of all steps.
            state: the model's state, such as the moving statistics of a model that was trained;
                `model.init_state()` where it is not given.

        Raises:
            ValueError: without a loss, or where a loss or metric names no output.
        """
        if not isinstance(model, Layer):
            raise TypeError(
                f"Trainer.init: expected a model, received {type(model).__name__}. Write "
                "trainer.init(fk.Model(inputs, outputs), jax.random.key(0))."
            )
        heads = objective.heads(self, model)
        checks.require_loss(heads)
        built = model if model.built else model.build(key)
        trainable, _ = partition(built)
        names = tuple(n for call in built.graph.calls for n in call.metrics)
        return TrainState(
            model=built,
            state=built.init_state() if state is None else state,
            opt_state=optimizers.transformation(self.optimizer).init(trainable),
            metrics=objective.init_metrics(heads, names),
            step=jax.device_put(np.zeros((), "int32")),
            key=key,
        )

    def step(self, run: TrainState, batch: tuple) -> tuple[TrainState, dict[str, jax.Array]]:
        """`(run, logs)`: one step on a batch `(x, y)` or `(x, y, sample_weight)`.

        Pure: compile, scan and donate it as you like. By itself it runs as one compiled program.
        The logs are those of this batch; the sums of the epoch go on in `run.metrics`.
        """
        checks.check_run(run, "step")
        step.unpack(batch)
        traced = any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves((run, batch)))
        new, logs = (step.train_logs if traced else step.compiled_step)(self, run, batch)
        # a compiled function returns its dictionaries sorted
        names = objective.log_names(objective.heads(self, run.model), new.metrics)
        return new, {name: logs[name] for name in names}

    def reset_metrics(self, run: TrainState) -> TrainState:
        """The run with empty metric sums."""
        names = tuple(n for call in run.model.graph.calls for n in call.metrics)
        return run.replace(metrics=objective.init_metrics(objective.heads(self, run.model), names))

    def fit(
        self,
        run: TrainState,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Sequence[hooks.Callback] = (),
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
    ) -> tuple[TrainState, History]:
        """`(run, history)` after training on arrays.

        The run that is passed in stays as it is: its arrays are copied once. The order of the
        rows is a function of the run's key and the number of the epoch. A model that was frozen
        or unfrozen since (`run.replace(model=fk.freeze(run.model, "body*"))`) goes on with the
        optimizer's state of what stays trainable.

        Args:
            run: what `init` or an earlier `fit` returned.
            x: an array, or a list or dictionary of arrays for several inputs.
            y: the targets likewise.
            batch_size: rows a step, 32 by default. The last batch is filled up with rows that
                count nowhere; see `fkeras.training.data`.
            epochs: the number of the last epoch.
            verbose: 0, 1, 2 or "auto"; see `Progress`.
            callbacks: values of `Callback`.
            validation_split: the share of the last rows that is kept for validation.
            validation_data: `(x, y)` or `(x, y, sample_weight)`.
            shuffle: whether each epoch has its own order.
            class_weight: a weight for each class number, 1 for the others.
            sample_weight: a weight for each row; with class_weight the product counts.
            initial_epoch: the epoch to begin with, counted from 0.
            steps_per_epoch: how many steps an epoch has at most.
            validation_steps: how many batches a validation has at most.
            validation_batch_size: rows a batch of validation.
            validation_freq: validate every so many epochs.

        Raises:
            ValueError: for bad data, before the first step; it names the array and the row.
        """
        checks.check_run(run, "fit")
        size = checks.check_size("batch_size", 32 if batch_size is None else batch_size)
        checks.check_size("epochs", epochs)
        every = checks.check_size("validation_freq", validation_freq)
        if initial_epoch:
            checks.check_size("initial_epoch", initial_epoch)
        if steps_per_epoch is not None:
            checks.check_size("steps_per_epoch", steps_per_epoch)
        callbacks = hooks.check_callbacks(callbacks)
        rows = _host(x, y, sample_weight, "fit")
        if validation_split:
            if validation_data is not None:
                raise ValueError("Pass either validation_split or validation_data, not both.")
            checks.check_lengths(*rows)
            rows, held = data.split(rows, validation_split)
            validation_data = tuple(v for v in held if v is not None)
        count = _check_data(self, run.model, rows, size)
        rows = _weighted(rows, class_weight, run.model)
        checks.check_stateful(run.model, count, min(size, count), shuffle)
        feed = data.feed_of(rows, size, steps_per_epoch)
        held = None
        if validation_data is not None:
            held = self._feed(
                run, _validation(validation_data), validation_batch_size or size, validation_steps
            )
        key_data = np.asarray(run.key_data)
        empty = self.reset_metrics(run).metrics
        history: dict[str, list[float]] = {}
        numbers: list[int] = []
        progress = Progress(verbose, epochs, feed.steps)
        pace = loops.Pace(feed)
        run, stop = hooks.call(callbacks, "on_train_begin", run)
        owned = False  # whether nobody else holds the buffers of `run`
        for epoch in range(initial_epoch, epochs):
            if stop:
                break
            run, _ = hooks.call(callbacks, "on_epoch_begin", run, epoch)
            progress.start(epoch)
            own = run if owned else own_copy(self._ready(run))
            own = own.replace(metrics=own_copy(empty))
            order = data.order_of(count, key_data if shuffle else None, epoch)
            run, logs = loops.train_epoch(self, own, order, progress, pace)
            owned = not callbacks
            progress.stop()
            if held is not None and (epoch + 1) % every == 0:
                logs |= {f"val_{n}": v for n, v in loops.evaluate(self, run, empty, held).items()}
            progress.end(logs, feed.rows(feed.steps))
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            numbers.append(epoch)
            run, stop = hooks.call(callbacks, "on_epoch_end", run, epoch, logs)
        run, _ = hooks.call(callbacks, "on_train_end", run)
        params = {
            "epochs": epochs,
            "steps": feed.steps,
            "batch_size": feed.size,
            "samples": count,
        }
        return run, History(history, numbers, params)

    def evaluate(
        self,
        run: TrainState,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
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
            batch_size: rows a batch, 32 by default.
            verbose: 0, 1, 2 or "auto".
            sample_weight: a weight for each row.
            steps: how many batches at most.
        """
        checks.check_run(run, "evaluate")
        feed = self._feed(run, _host(x, y, sample_weight, "evaluate"), batch_size, steps)
        progress = Progress(verbose, 1, feed.steps, title="Evaluation")
        progress.start(0)
        logs = loops.evaluate(self, run, self.reset_metrics(run).metrics, feed, progress)
        progress.stop()
        progress.end(logs, feed.rows(feed.steps))
        return logs

    def predict(
        self,
        run: TrainState,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = 0,
        steps: int | None = None,
    ) -> Any:
        """The model's outputs on arrays, as NumPy arrays in the outputs' structure.

        Args:
            run: the run; only its model and state are used.
            x: an array, or a list or dictionary of arrays.
            batch_size: rows a batch, 32 by default.
            verbose: accepted as in `fit`; a prediction writes nothing.
            steps: how many batches at most.
        """
        checks.check_run(run, "predict")
        size = checks.check_size("batch_size", 32 if batch_size is None else batch_size)
        rows = data.as_host(x, "predict: x")
        count = checks.check_lengths(rows)
        size = min(size, count)
        checks.check_inputs(run.model, rows, size)
        checks.check_finite(rows, "x")
        checks.check_stateful(run.model, count, size, False)
        return loops.predict(run, data.feed_of(rows, size, steps))

    def _ready(self, run: TrainState) -> TrainState:
        """The run with an optimizer state that follows what was frozen or unfrozen since."""
        followed = optimizer_state.follow(self.optimizer, run.opt_state, run.model)
        return run.replace(opt_state=followed)

    def _feed(self, run: TrainState, rows: tuple, size: int | None, steps: Any) -> data.Feed:
        size = checks.check_size("batch_size", 32 if size is None else size)
        if steps is not None:
            checks.check_size("steps", steps)
        count = _check_data(self, run.model, rows, size)
        checks.check_stateful(run.model, count, min(size, count), False)
        return data.feed_of(rows, size, steps)


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


def _validation(given: Any) -> tuple:
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        found = len(given) if isinstance(given, tuple | list) else type(given).__name__
        raise TypeError(
            "fit: expected validation_data as (x, y) or (x, y, sample_weight), received "
            f"{found}. Write validation_data=(x_test, y_test)."
        )
    return _host(*given, call="fit")


def _check_data(trainer: Trainer, model: Any, rows: tuple, size: int) -> int:
    x, y, weights = rows
    count = checks.check_lengths(x, y, weights)
    checks.check_inputs(model, x, min(size, count))
    checks.check_finite(x, "x")
    checks.check_targets(trainer, model, y)
    if weights is not None:
        checks.check_weights(weights)
    return count


def _weighted(rows: tuple, class_weight: Mapping[int, float] | None, model: Any) -> tuple:
    if class_weight is None:
        return rows
    x, y, weights = rows
    own = checks.class_weights(class_weight, y, model)
    if weights is None:
        return x, y, own

    def weigh(array: np.ndarray) -> np.ndarray:
        return array * own.reshape(len(own), *[1] * (array.ndim - 1))

    return x, y, jax.tree.map(weigh, weights)

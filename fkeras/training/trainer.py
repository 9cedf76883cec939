"""`Trainer`: optimizer, loss and metrics as one value, and the loops over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras import losses, metrics, optimizers
from fkeras.engine import Configurable, Layer, option, trainable_weights, unfreeze
from fkeras.training import callbacks as hooks
from fkeras.training import (
    checks,
    data,
    feeds,
    fitting,
    loops,
    objective,
    pure,
    sharding,
    sources,
    step,
)
from fkeras.training.history import History
from fkeras.training.progress import Progress
from fkeras.training.remat import get_policy
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
        return value
    found = metrics.get(value)
    # the name that was written is the name in the logs
    return value if isinstance(value, str) else found


def _on_nonfinite(value: Any) -> str:
    if value not in ("raise", "skip", "ignore"):
        raise ValueError(
            f"Trainer: expected on_nonfinite as 'raise', 'skip' or 'ignore', received {value!r}."
        )
    return value


def _remat(value: Any) -> Any:
    get_policy(value)
    return value


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
        mesh: the devices to train on, a `jax.sharding.Mesh`; the rows of a batch are split over
            its axis "data" (or "batch", or the first).
        sharding: how weights are split over the mesh, `PartitionSpec`s by pattern of their paths:
            `{"*/kernel": PartitionSpec(None, "model")}`. The first that fits counts; a weight
            without one is on every device.
        remat: what a step keeps for its backward pass: None for everything, "dots" for the
            products with weights, "full" for the borders between segments of the graph, or a
            policy of `jax.checkpoint_policies`. What is not kept is computed again. For GPUs and
            TPUs: XLA's compiler for CPUs undoes it.
        on_nonfinite: what `fit` does about a step that gives nan or infinity, whose update is
            never applied: "raise" an error that carries the run and the batch, "skip" it with a
            warning at the end of the epoch, or "ignore" it as JAX and Keras do, applied.

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
    mesh: Any = option(None, convert=sharding.as_mesh, kw_only=True)
    sharding: Any = option(None, convert=sharding.as_rules, kw_only=True)
    remat: Any = option(None, convert=_remat, kw_only=True)
    on_nonfinite: str = option("raise", convert=_on_nonfinite, kw_only=True)

    def init(self, model: Layer, key: jax.Array, *, state: Any = None) -> TrainState:
        """The state before the first step; builds the model where it is not built.

        Args:
            model: a model that knows its inputs.
            key: a PRNG key, for the weights, and for the keys of all steps.
            state: the model's state, such as the moving statistics of a model that was trained;
                `model.init_state()` where it is not given.

        Raises:
            ValueError: without a loss, where a loss or metric names no output, or where the optimizer
                names no weight.
        """
        if not isinstance(model, Layer):
            raise TypeError(
                f"Trainer.init: expected a model, received {type(model).__name__}. Write "
                "trainer.init(fk.Model(inputs, outputs), jax.random.key(0))."
            )
        heads = objective.heads(self, model)
        checks.require_loss(heads)
        built = model if model.built else model.build(key)
        if isinstance(self.optimizer, optimizers.BaseOptimizer):
            self.optimizer.check_paths(tuple(trainable_weights(unfreeze(built))))
        run = TrainState(
            model=built,
            state=built.init_state() if state is None else state,
            opt_state=optimizers.transformation(self.optimizer).init(trainable_weights(built)),
            metrics=objective.empty(self, built),
            step=jax.device_put(np.zeros((), "int32")),
            key=key,
        )
        return sharding.place(self, run)

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
        return run.replace(metrics=objective.empty(self, run.model))

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
        steps_per_execution: int | None = None,
        checkpoint: Any = None,
    ) -> tuple[TrainState, History]:
        """`(run, history)` after training.

        The run that is passed in stays as it is. The order of the rows is a function of the run's
        key and the number of the step. A model that was frozen or unfrozen since
        (`run.replace(model=fk.freeze(run.model, "body*"))`) goes on with the optimizer's state of
        what stays trainable.

        Args:
            run: what `init` or an earlier `fit` returned.
            x: an array, or a list or dictionary of arrays for several inputs; or, without `y`, a
                source of batches `(x, y)` or `(x, y, sample_weight)`: any iterable, a loader of
                grain, or a function of the number of the step.
            y: the targets likewise.
            batch_size: rows a step, 32 by default. The last batch is filled up with rows that
                count nowhere; see `fkeras.training.feeds`.
            epochs: the number of the last epoch.
            verbose: 0, 1, 2 or "auto"; see `Progress`.
            callbacks: values of `Callback`.
            validation_split: the share of the last rows that is kept for validation.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or a source of batches.
            shuffle: whether each epoch has its own order.
            class_weight: a weight for each class number, 1 for the others.
            sample_weight: a weight for each row; with class_weight the product counts.
            initial_epoch: the epoch to begin with, counted from 0.
            steps_per_epoch: how many steps an epoch has at most.
            validation_steps: how many batches a validation has at most.
            validation_batch_size: rows a batch of validation.
            validation_freq: validate every so many epochs.
            steps_per_execution: how many steps one call of the device takes; by itself as many as
                fit into a tenth of a second.
            checkpoint: a folder, or a `Checkpoint` that also says how often: where the training
                is saved, and from where the same call goes on.

        Raises:
            ValueError: for bad data, before the first step; it names the array and the row.
            NonFiniteError: where a step gives nan or infinity; `error.run` is the run before it.
            CheckpointError: where another run holds the folder, or it holds another training.
            Interrupted: where Ctrl-C or SIGTERM ended it; `error.run` is the run so far.
        """
        checks.check_run(run, "fit")
        options = fitting.Options(
            epochs=epochs,
            initial_epoch=initial_epoch,
            batch_size=32 if batch_size is None else batch_size,
            shuffle=shuffle,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_batch_size=validation_batch_size,
            validation_freq=validation_freq,
            validation_split=validation_split,
            steps_per_execution=steps_per_execution,
            verbose=verbose,
            checkpoint=checkpoint,
        )
        feed, held = sources.training_feeds(
            self, run, (x, y, sample_weight), class_weight, validation_data, options
        )
        return fitting.fit(self, run, feed, held, hooks.check_callbacks(callbacks), options)

    def run(
        self,
        run: TrainState,
        data: tuple,
        epochs: int,
        batch_size: int = 32,
        shuffle: bool = True,
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """`(run, logs)` after epochs on arrays, as one pure function: what `fit` computes.

        `jax.jit` compiles all of it, `jax.vmap` over a batch of runs trains a population, and
        `jax.grad` through it gives hypergradients, since learning rate and weight decay are
        leaves of `run.opt_state`. Nothing is checked that needs the numbers.

        Args:
            run: what `init` returned.
            data: `(x, y)` or `(x, y, sample_weight)`, arrays or trees of them.
            epochs: how many epochs.
            batch_size: rows a step.
            shuffle: whether each epoch has its own order, a function of key and step.

        Returns:
            The run and the logs, an array with a value for each epoch by name.
        """
        checks.check_run(run, "run")
        return pure.run(self, run, data, epochs, batch_size, shuffle)

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
        rows = (x, y, sample_weight)
        feed = sources.feed(self, run, rows, batch_size or 32, steps, "evaluate")
        progress = Progress(verbose, 1, feed.steps, title="Evaluation")
        progress.start(0)
        empty = objective.empty(self, run.model)
        logs, done = loops.evaluate(self, run, empty, feed, progress)
        progress.stop()
        progress.end(logs, feed.rows(done), done)
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
        if steps is None and self.mesh is None and checks.is_single_batch(run.model, x, size):
            return loops.predict_batch(run, x)
        rows = data.as_host(x, "predict: x")
        count = checks.check_lengths(rows)
        size = sharding.rows_for(self, min(size, count))
        checks.check_inputs(run.model, rows, size)
        checks.check_finite(rows, "x")
        checks.check_stateful(run.model, count, size, False)
        feed = dataclasses.replace(feeds.feed_of(rows, size, steps), size=size)
        return loops.predict(run, feed, lambda batch: sharding.split_rows(self, batch))

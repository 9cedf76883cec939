"""`Trainer`: optimizer, loss and metrics as one value, with the methods that train and evaluate."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import jax
import optax
from jax.core import Tracer

from fkeras import metrics, optimizers
from fkeras.engine import Configurable, Output, option
from fkeras.engine.config.converters import choice
from fkeras.engine.config.field_types import Converted
from fkeras.engine.messages.html import html_table
from fkeras.engine.migration_hints.arguments import explains_arguments
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.migration_hints.overrides import check_trainer_methods
from fkeras.engine.values.argument_types import Arrays, Data, FilePath
from fkeras.host.processes.calls import together
from fkeras.training import callbacks as hooks
from fkeras.training.checkpoint.plan import Checkpoint
from fkeras.training.inputs import arguments, checks, fields, sources
from fkeras.training.loop import batch_loops, fitting, predicting, pure, starting
from fkeras.training.loop.agreement import compare_call
from fkeras.training.loop.rescue import Allowed, Rescue
from fkeras.training.records.history import Fitted
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import M, TrainState
from fkeras.training.step import (
    objective,
    objective_call,
    outputs,
    sharding,
    sharding_rules,
    step,
    transformations,
)
from fkeras.training.step.donation import without_repeats
from fkeras.training.step.shares import share_of

#: types of arguments: names, configurations, functions, and values of fkeras
Optimizer: TypeAlias = optimizers.BaseOptimizer | optax.GradientTransformation
OptimizerLike: TypeAlias = str | Mapping[str, Any] | Optimizer
LossLike: TypeAlias = str | Callable[..., Any] | Mapping[str, Any] | None
MetricLike: TypeAlias = str | metrics.Metric | Callable[..., Any] | Mapping[str, Any]
Metrics: TypeAlias = (
    MetricLike | Sequence[MetricLike | Sequence[MetricLike]] | Mapping[str, Any] | None
)
Factors: TypeAlias = float | Sequence[float | None] | Mapping[str, float | None] | None


def _shown(value: object) -> str:
    """Returns a value of an argument as text: names without quotes, functions by name."""
    if isinstance(value, tuple):  # transformations of optax are named tuples of functions
        return f"optax.{type(value).__name__}"
    return str(getattr(value, "__name__", value))


class Trainer(Configurable):
    """Trains a model: optimizer, loss and metrics as one static value.

    All values that training changes are in a `TrainState`, a pytree. Equal trainers share the
    compiled programs of equal models.

    A trainer minimizes one of: a `loss` of targets and outputs, an `objective`, or the losses that
    the model's layers return (`fk.Output(value, losses=(loss,))`). A model of the last kind is
    trained without targets: `trainer.fit(run, x)`.

    Args:
        optimizer: Keras's name of an optimizer, a value of `fk.optimizers`, or an optax
            transformation, which may read the loss of the batch (`optax.lbfgs`).
        loss: Keras's name of a loss, a value of `fk.losses` or a function of targets and
            predictions; for several outputs a list or a dictionary by output name. If the model ends
            in the softmax or sigmoid of the class's cross-entropy, the loss is computed from the
            logits: the same number, without the clip of probabilities to 1e-7.
        metrics: names or values of `fk.metrics`; for several outputs a dictionary by output name.
        loss_weights: the factor of each output's loss.
        weighted_metrics: metrics that apply the sample weights.
        mesh: the devices to train on, as `jax.make_mesh` returns them; the mesh axis "data" (or
            "batch", or the first axis) splits the rows of a batch. With devices of several
            processes, all of them make the same calls: see the guide "Train in several processes".
        sharding: the layout of the weights on the mesh: roles of axes, `{"heads": "model", "hidden":
            "model"}`, also "batch" for rows and "fsdp" for the largest free axis of each weight;
            patterns of weight paths, which contain "/" or "*" and go before roles,
            `{"*/kernel": PartitionSpec(None, "model")}`; or "fsdp" alone. See the guide "Shard a
            model". Other weights are replicated on every device.
        master: "float32" for a float32 copy of each trainable weight of 16 bits in `run.opt_state`, which
            the optimizer updates; the weights of the model are the rounded copies. A weight that a
            callback or `run.replace` changes is copied anew. See the guide "Mixed precision".
        remat: the intermediate results that a step stores for its backward pass: None for all,
            "dots" for the products with weights, "full" for the borders between segments of the
            graph, or a policy of `jax.checkpoint_policies`. The backward pass recomputes the
            others. XLA's compiler for CPUs undoes rematerialization outside of loops.
        depth: how a compiled step computes repeated blocks of a model: "scan" as one loop, which
            compiles once for all blocks, "unroll" one after the other, or "auto" as a loop where
            the loop compiles faster and runs as fast.
        objective: a function `(model, state, batch, key, training) -> fk.Output` that replaces
            loss and metrics. `value` plus `losses` is the scalar to minimize; `updates` holds the
            changed entries of the state, and is required if calls of the model change the state
            (`updates={}` keeps the state); the scalars in `metrics` are logged. A log is the mean
            over the batches of an epoch, weighted by the rows of their first array. The batch has the
            structure of the data: `x`, `(x, y)` or `(x, y, sample_weight)` of `fit`, or the tree that
            a source yields. The last batch has only the remaining rows. In an evaluation
            `training` is False, and the key depends only on the number of rows before the batch.
        on_nonfinite: reaction of `fit` to a step that returns NaN or infinity: "raise" an error
            with the run and the batch, "skip" the update with a warning at the end of the epoch,
            or "ignore" NaN and apply the update, as JAX and Keras do.

        cache_frozen: whether `fit` computes the frozen part of the model once for each sample and
            trains the rest on the results, which stay on the device if they fit, otherwise in memory;
            or a folder for the results, which later calls of `fit` read again. The frozen part ends
            before each trained weight, each random layer and each layer that computes other values
            in training. `fit` then takes arrays only; the results equal those without a cache up to
            rounding. Other methods compute the whole model.

    Raises:
        ValueError: for an unknown name, with the nearest known name; for both a loss and an
            objective; for `cache_frozen` and an objective.
        TypeError: for an optax transformation that no training of one set of weights can call, such
            as `optax.lookahead`.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> x, y = np.ones((8, 3), "float32"), np.zeros((8, 1), "float32")
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> trainer = fk.Trainer("adam", "mse", metrics=["mae"])
        >>> run = trainer.init(model, jax.random.key(0))
        >>> run, history = trainer.fit(run, x, y, epochs=2, verbose=0)
        >>> trainer.predict(run, x).shape
        (8, 1)

        An objective that reconstructs the input; `fit` then needs no targets:

        >>> def objective(model, state, batch, key, training):
        ...     out = model.apply(batch, state=state, training=training, key=key)
        ...     error = jax.numpy.abs(out.value - batch)
        ...     logs = {"error": error.mean()}
        ...     return fk.Output((error**2).mean(), out.updates, out.losses, metrics=logs)
        >>> trainer = fk.Trainer("adam", objective=objective)
        >>> run = trainer.init(fk.Sequential([fk.Input((3,)), fk.layers.Dense(3)]), jax.random.key(0))
        >>> sorted(trainer.fit(run, x, verbose=0).history.history)
        ['error', 'loss']
    """

    _keras_module: ClassVar[str] = "fkeras"

    optimizer: Converted[OptimizerLike, Optimizer] = option(
        default="rmsprop", convert=optimizers.get
    )
    loss: Converted[LossLike | Sequence[LossLike] | Mapping[str, LossLike], Any] = option(
        default=None, convert=fields.as_loss
    )
    metrics: Converted[Metrics, Any] = option(default=(), convert=fields.as_metrics)
    loss_weights: Converted[Factors, Any] = option(
        default=None, convert=fields.as_loss_weights, kw_only=True
    )
    weighted_metrics: Converted[Metrics, Any] = option(
        default=(), convert=fields.as_metrics, kw_only=True
    )
    mesh: jax.sharding.Mesh | None = option(
        default=None, convert=sharding_rules.as_mesh, kw_only=True
    )
    sharding: str | Mapping[str, Any] | None = option(
        default=None, convert=sharding_rules.as_rules, kw_only=True
    )
    objective: Callable[..., Output] | None = option(
        default=None, convert=objective_call.check_objective, kw_only=True
    )
    master: str | None = option(
        default=None, convert=choice("float32", optional=True), kw_only=True
    )
    remat: str | Callable[..., Any] | None = option(
        default=None, convert=fields.as_remat, kw_only=True
    )
    depth: str = option(default="auto", convert=choice("auto", "scan", "unroll"), kw_only=True)
    on_nonfinite: str = option(
        default="raise", convert=choice("raise", "skip", "ignore"), kw_only=True
    )
    cache_frozen: Converted[bool | FilePath, bool | str] = option(
        default=False, convert=fields.as_cache, kw_only=True
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        check_trainer_methods(cls, Trainer)
        super().__init_subclass__(**kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        objective_call.refuse_beside(
            self.objective,
            loss=self.loss,
            metrics=self.metrics,
            loss_weights=self.loss_weights,
            weighted_metrics=self.weighted_metrics,
        )
        try:
            transformations.refuse_unusable(self.optimizer)
        except TypeError as error:
            raise TypeError(f"Trainer: optimizer: {error}") from error.__cause__
        if self.cache_frozen and self.objective is not None:
            raise ValueError(
                "Trainer: expected either objective= or cache_frozen=, received both. An objective "
                "calls the model itself: compute the features once, and pass them to fit as inputs."
            )

    def _repr_html_(self) -> str:
        """Returns the arguments as a table, which notebooks show; omitted arguments are left out."""
        default = Trainer()
        rows = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != getattr(default, field.name, None) or field.name == "optimizer":
                values = value if type(value) is tuple else (value,)
                rows.append((field.name, ", ".join(map(_shown, values))))
        return f"<div>{type(self).__name__}</div>{html_table(('argument', 'value'), rows)}"

    @explains_arguments
    def init(
        self,
        model: M,
        key: jax.Array,
        *,
        state: Mapping[str, Any] | None = None,
        batch: object = None,
    ) -> TrainState[M]:
        """Returns the run before the first step; builds the model if necessary.

        Args:
            model: a model with known inputs.
            key: a PRNG key, for the weights and for the keys of all steps.
            state: the model's state, such as the moving statistics of a trained model;
                `model.init_state()` by default.
            batch: for an objective, a batch or its specs: the run then holds sums for all metrics
                of the objective, which `jax.lax.scan` over `step` needs. `fit` and `run` create
                the sums without this argument.

        Raises:
            TypeError: if the key is not a single typed key.
            ValueError: if there is no loss to minimize, if a loss or metric names an unknown
                output or a class that the output lacks, if the optimizer names an unknown weight,
                or if the state does not belong to the model.

        Warns:
            UserWarning: if a loss cannot train with the last activation of the model, such as a
                cross-entropy of logits without `from_logits=True`, if a model trains in float16
                without a loss scale, or if a name of the optimizer excludes no weight. The
                warning shows the line to write.
        """
        started = starting.start(self, model, key, state, batch)
        return returned(started, "Trainer.init", "run = trainer.init(model, key)", depth=2)

    @explains_arguments
    def step(
        self, run: TrainState[M], batch: Any, *, donate: bool = False
    ) -> tuple[TrainState[M], dict[str, jax.Array]]:
        """Returns `(run, logs)` after one step on a batch `(x, y)` or `(x, y, sample_weight)`.

        An objective receives the batch unchanged, any tree of arrays; a trainer without a loss
        also accepts `x` alone. Outside of a transformation `x` may hold strings, as in `fit`.

        The method is pure: `jax.jit`, `jax.lax.scan` and donation work. Outside of a transformation
        the step runs as one compiled program. The logs are those of this batch; `run.metrics`
        accumulates the sums of the epoch.

        A step applies every update, also NaN and infinity, whatever `on_nonfinite` is: `fit`
        rejects such an update afterwards. A custom training loop can do the same: keep the run
        before the step if the loss or the new weights are not finite.

        `fit` and `run` end with the averaged weights of an optimizer with `use_ema`. After a loop over
        `step`, `trainer.optimizer.finalize(run.opt_state, trainable)` returns them, where `trainable`
        is the model or, with frozen weights, the first part of `fk.partition(model)`.

        Args:
            run: the run before the step.
            batch: the rows of the step.
            donate: whether the new run takes the memory of `run`, which can then not be used any more.
                Inside of a transformation the outer program decides: `jax.jit(step, donate_argnums=0)`.
        """
        checks.check_run(run, "step")
        donate = arguments.convert("step", "donate", donate)
        batch = step.as_arrays(self, run.model, batch)
        # Inside a transformation the step becomes a part of the outer program.
        leaves, structure = jax.tree.flatten((run, batch))
        form = step.training_form(self)
        try:
            if any(isinstance(a, Tracer) for a in leaves):
                new, logs = step.train_logs(form, run, batch)
            else:
                compiled = step.donating_step if donate else step.compiled_step
                key = form, hash(structure), tuple(a.shape for a in jax.tree.leaves(batch))
                new, logs = compiled(key, form, without_repeats(run) if donate else run, batch)
        except (RuntimeError, ValueError):  # JAX raises either for a donated array
            checks.check_alive(run, "step")
            raise
        # A compiled function returns dictionaries sorted by key: restore the order of the logs.
        names = objective.log_names(outputs.heads(self, run.model), new.metrics)
        result = new, {name: logs[name] for name in names}
        return returned(result, "Trainer.step", "run, logs = trainer.step(run, batch)", depth=2)

    @property
    def share(self) -> tuple[int, int]:
        """`(index, count)`: the share of the rows of each batch that sources of this process yield.

        `(0, 1)` without a mesh of several processes. Processes that split only weights have the same
        share.
        """
        return share_of(self)

    @explains_arguments
    def reset_metrics(self, run: TrainState[M]) -> TrainState[M]:
        """Returns the run with empty metric sums."""
        emptied = run.replace(metrics=objective.emptied(self, run))
        return returned(
            emptied, "Trainer.reset_metrics", "run = trainer.reset_metrics(run)", depth=2
        )

    @explains_arguments
    def fit(
        self,
        run: TrainState[M],
        x: Data,
        y: Arrays | None = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[hooks.Callback] = (),
        validation_split: float = 0.0,
        validation_data: Data | None = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Arrays | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
        steps_per_execution: int | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        donate: bool = False,
        workers: int = 0,
    ) -> Fitted[M]:
        """Trains a run for some epochs and returns `(run, history)` as a named tuple.

        The run that is passed in does not change, unless it is donated. The order of the rows is a function of the run's
        key and the number of the step. If layers were frozen or unfrozen between two calls
        (`run.replace(model=fk.freeze(run.model, "body*"))`), the weights that stay trainable keep
        their optimizer state.

        Args:
            run: the result of `init` or of an earlier `fit`.
            x: an array, or a list or dictionary of arrays for several inputs; or, without `y`, a
                source of batches `(x, y)` or `(x, y, sample_weight)`, or of dictionaries with these
                names: any iterable, a loader of grain, PyTorch or TensorFlow, a function of the step
                number, or a `datasets.Dataset` with columns of these names. The arrays of such a batch may have different
                numbers of rows, as nodes and edges of a graph. Each combination of numbers compiles
                another program, and the logs weight the batch by the rows of its first output.
                An input of the dtype "string" takes lists, arrays and columns of strings: the layers
                of strings run on the host, for arrays once before the first step, and the run keeps
                the whole model.
            y: the targets, in the same forms; None for an objective of `x` alone, or for a model
                whose layers return their losses.
            batch_size: rows of a step, 32 by default. The last batch has the remaining rows:
                results equal those of `step` on batches of exactly these rows. If the rows of a
                batch depend on each other, as in BatchNormalization, a short last batch compiles
                a second program; see "What fit guarantees".
            epochs: the number of the last epoch.
            verbose: 0, 1, 2 or "auto"; see `Progress`.
            callbacks: values of `Callback`.
            validation_split: the share of the last rows to hold out for validation.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or a source of batches; `x` alone
                if `fit` receives `x` alone.
            shuffle: whether each epoch shuffles the rows.
            class_weight: weights by class number; other classes have weight 1.
            sample_weight: a weight for each row; multiplied by the class weight.
            initial_epoch: the first epoch, counted from 0.
            steps_per_epoch: largest number of steps of an epoch.
            validation_steps: number of batches of a validation. Each validation reads the first
                batches, so that a source must begin again.
            validation_batch_size: rows of a validation batch.
            validation_freq: number of epochs from one validation to the next.
            steps_per_execution: number of steps per device call; by default as many as run in a
                tenth of a second. On a GPU, a program for exactly this number runs without reading
                a condition between steps; a shorter last call of an epoch has another program.
            checkpoint: a folder, or a `Checkpoint` with intervals: `fit` saves the training there,
                and the same call resumes from there.
            donate: whether the training takes the memory of `run`, which can then not be used any
                more: `run, history = trainer.fit(run, x, y, donate=True)` holds one run instead of
                the run that was passed in and a copy of the arrays that change.
            workers: number of threads that read a source while the training computes. Several threads
                call a function of the step, or an object with `__getitem__` and `__len__` alone; one
                thread reads another iterable, up to `workers` batches ahead. 0 reads between two steps.

        Raises:
            ValueError: for bad data, before the first step; the message names the array and row.
            NonFiniteError: if a step returns NaN or infinity; `error.run` is the run before it.
            CheckpointError: if another run uses the folder, or the folder holds another training.
            Interrupted: if Ctrl-C or SIGTERM ended the training.
            ProcessError: in several processes, if another process has ended or makes another call.

        Every exception carries the run after the last finished step as `error.run`: also an
        exception of a callback, a data source, a metric or the file system, and SystemExit.
        Before the first step, `error.run` is the run that was passed in. For exception classes with
        a read-only attribute `run`, `fk.training.run_of(error)` returns the run. If one hook of an
        event raises, such as `on_epoch_end`, the run is the run before all hooks of the event.
        With `checkpoint`, `fit` saves that run and its position in the data before the exception
        leaves. The same call then resumes there: no step is repeated or left out, and all hooks of
        the event are called again.

        Example:
            >>> import jax, numpy as np, fkeras as fk
            >>> x, y = np.ones((8, 3), "float32"), np.zeros((8, 1), "float32")
            >>> trainer = fk.Trainer("adam", "mse")
            >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
            >>> run = trainer.init(model, jax.random.key(0))
            >>> run, history = trainer.fit(run, x, y, epochs=2, validation_split=0.25, verbose=0)
            >>> sorted(history.history), len(history.history["loss"])
            (['loss', 'val_loss'], 2)

            More epochs, from the weights and optimizer state of the run:

            >>> run, _ = trainer.fit(run, x, y, epochs=3, initial_epoch=2, verbose=0)
        """
        checks.check_outside_jit(run)
        # Entered before the checks: from the first line on, every exception carries the run.
        # The loop sends its data to the device on purpose, also where JAX_TRANSFER_GUARD forbids to
        # send NumPy arrays as arguments: that takes less time than `device_put`.
        with Allowed(), Rescue(run) as journal, together(self.mesh, "Trainer.fit") as group:
            checks.check_run(run, "fit")
            checks.check_alive(run, "fit")
            donate = arguments.convert("fit", "donate", donate)
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
                workers=workers,
            )
            feed, held = sources.training_feeds(
                self, run, (x, y, sample_weight), class_weight, validation_data, options, group
            )
            checked = hooks.check_callbacks(callbacks)
            stores = any(isinstance(hook, hooks.ModelCheckpoint) for hook in checked)
            if checkpoint is None and not stores:  # before the first step: a training takes hours
                returned(run, "Trainer.fit", "run, history = trainer.fit(run, x, y)", depth=2)
            run, history = fitting.fit(
                self,
                run.replace(metrics=feed.sums),
                feed,
                held,
                checked,
                options,
                journal,
                group,
                donate,
            )
            return Fitted(run, history)

    @explains_arguments
    def run(
        self,
        run: TrainState[M],
        data: tuple,
        epochs: int,
        batch_size: int = 32,
        shuffle: bool = True,
    ) -> tuple[TrainState[M], dict[str, jax.Array]]:
        """Trains for some epochs on arrays as one pure function; computes the same as `fit`.

        `jax.jit` compiles the whole training, `jax.vmap` over a batch of runs trains a population,
        and `jax.grad` computes hypergradients, since learning rate and weight decay are leaves of
        `run.opt_state`. The values in the data are not checked, and every update is applied, also NaN.

        Args:
            run: the result of `init`.
            data: `(x, y)` or `(x, y, sample_weight)`, arrays or trees of arrays; any tree of arrays
                for an objective.
            epochs: number of epochs.
            batch_size: rows of a step.
            shuffle: whether each epoch shuffles the rows, by a function of key and step.

        Returns:
            The run, and the logs by name: arrays with one value per epoch.
        """
        checks.check_run(run, "run")
        epochs = arguments.convert("run", "epochs", epochs)
        batch_size = arguments.convert("run", "batch_size", batch_size)
        shuffle = arguments.convert("run", "shuffle", shuffle)
        checks.check_alive(run, "run")
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((run, data)))
        with together(None if traced else self.mesh, "Trainer.run") as group:
            result = pure.run(self, run, data, epochs, batch_size, shuffle, group)
        return returned(
            result, "Trainer.run", "run, logs = trainer.run(run, data, epochs)", depth=2
        )

    @explains_arguments
    def evaluate(
        self,
        run: TrainState,
        x: Data,
        y: Arrays | None = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Arrays | None = None,
        steps: int | None = None,
    ) -> dict[str, float]:
        """Returns the loss and metrics on arrays, as floats by name.

        Moving statistics do not change; the carry of a stateful layer advances from batch to batch
        within the call. The run does not change, so exceptions carry no run.

        Args:
            run: the run; only its model and state are used.
            x: an array, or a list or dictionary of arrays; or a source of batches; strings as in
                `fit`.
            y: the targets, in the same forms.
            batch_size: rows of a batch, 32 by default.
            verbose: 0, 1, 2 or "auto".
            sample_weight: a weight for each row.
            steps: number of batches, from the first on.
        """
        checks.check_run(run, "evaluate")
        checks.check_alive(run, "evaluate")
        rows = (x, y, sample_weight)
        size = arguments.convert("evaluate", "batch_size", 32 if batch_size is None else batch_size)
        steps = arguments.convert("evaluate", "steps", steps)
        verbose = arguments.convert("evaluate", "verbose", verbose)
        with Allowed(), together(self.mesh, "Trainer.evaluate") as group:
            feed = sources.evaluation_feed(self, run, rows, size, steps, group)
            compare_call(group, self, run, {"data": feed}, batch_size=size)
            run = sharding.place(self, run) if group.count > 1 else run
            progress = Progress(verbose if group.leads else 0, 1, feed.steps, title="Evaluation")
            progress.start(0)
            logs, done = batch_loops.evaluate(self, run, feed.sums, feed, progress, group=group)
            progress.stop()
            progress.end(logs, feed.rows(done), done)
            return logs

    @explains_arguments
    def predict(
        self,
        run: TrainState,
        x: Data,
        batch_size: int | None = None,
        verbose: int | str = 0,
        steps: int | None = None,
    ) -> Any:
        """Returns the outputs of all batches, joined along their first axis, as NumPy arrays.

        Args:
            run: the run; only its model and state are used.
            x: an array, or a list or dictionary of arrays; or a source of batches as in `fit`, whose
                batches are `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`; strings as in `fit`.
            batch_size: rows of a batch of arrays, 32 by default. Fewer rows are filled up to a
                power of two, if the outputs of a row depend on no other row.
            verbose: accepted as in `fit`; `predict` writes no output.
            steps: number of batches of a source; largest number of batches of arrays.
        """
        checks.check_run(run, "predict")
        # A prediction of one row takes microseconds: skip the checks of default arguments.
        size = 32
        if not (batch_size is None is steps and verbose == 0):
            size = arguments.convert(
                "predict", "batch_size", 32 if batch_size is None else batch_size
            )
            arguments.convert("predict", "verbose", verbose)
            steps = arguments.convert("predict", "steps", steps)
        outputs.require_network(run.model)
        try:
            with Allowed(), together(self.mesh, "Trainer.predict") as group:
                return predicting.predict(self, run, x, size, steps, group)
        except (RuntimeError, ValueError):  # JAX raises either for a donated array
            checks.check_alive(run, "predict")
            raise

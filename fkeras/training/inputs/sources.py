"""Checks the data of `fit` and `evaluate`, and converts them to feeds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fkeras.engine import Network
from fkeras.engine.call.network_inputs import check_ranges
from fkeras.engine.strings.network import device_part
from fkeras.engine.values.argument_types import Arrays, Data
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.training.data import array_feed, batch_parts, host_arrays, texts
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.joint_feed import JointBatches
from fkeras.training.data.sample_tables import as_batches
from fkeras.training.data.stream_feed import Batches, is_batches
from fkeras.training.inputs import checks, ids
from fkeras.training.inputs.padding import fills_up, predicts_by_row
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs, sharding, shares
from fkeras.training.step.objective_call import refuse_class_weight

if TYPE_CHECKING:
    from fkeras.training.loop.fitting import Options
    from fkeras.training.trainer import Trainer


def training_feeds(
    trainer: Trainer,
    run: TrainState,
    rows: tuple,
    class_weight: Mapping[int, float] | None,
    validation_data: Data | None,
    options: Options,
    group: Alone = ALONE,
) -> tuple[Feed | Batches, Feed | Batches | None]:
    """Returns `(feed, validation feed or None)` of a training, for this process of a group."""
    call = _Call(trainer, run, "fit", True, group)
    if call.caches and group.count > 1:
        raise ValueError(
            f"Trainer.fit: expected one process for cache_frozen, received {group.count}. Train with "
            "cache_frozen=False, or with a mesh of the devices of one process."
        )
    x, y, sample_weight = rows
    size, steps = options.batch_size, options.steps_per_epoch
    if y is None:
        key_data = run.key_data if options.shuffle else None
        x = as_batches(x, size, key_data, shares.share_of(trainer))
    if class_weight is not None and batch_parts.sees_whole_batch(trainer):
        refuse_class_weight()
    if y is None and is_batches(x):
        _reject_arguments(
            "fit",
            "a source of batches",
            sample_weight=sample_weight,
            validation_split=options.validation_split,
        )
        feed = call.batches(x, steps, class_weight, options.workers)
    elif options.workers:
        raise ValueError(
            f"Trainer.fit: expected a source of batches for workers={options.workers}, received "
            f"{type(x).__name__}. Arrays are in memory, so there is nothing to read: leave workers out."
        )
    else:
        host = _host(trainer, run.model, x, y, sample_weight, "fit")
        if options.validation_split:
            if validation_data is not None:
                raise ValueError("Pass either validation_split or validation_data, not both.")
            checks.count_rows(host)  # arrays of different lengths must not be split first
            host, validation_data = host_arrays.split(host, options.validation_split)
        host = _mapped(trainer, run.model, host)
        # A class weight of 0 permits NaN in its rows: check finite numbers after the weights.
        count = check_rows(trainer, run.model, host, size, finite=class_weight is None)
        if class_weight is not None:
            host = weighted(trainer, host, class_weight, run.model)
            check_finite_rows(trainer, run.model, host)
        host = host_arrays.in_memory(host)
        checks.check_stateful(run.model, count, min(size, count), options.shuffle)
        feed = call.arrays(host, size, steps)
    feed = call.with_sums(feed)
    if validation_data is None:
        return feed, None
    size, steps = options.validation_batch_size or size, options.validation_steps
    validation = _Call(trainer, run, "fit: validation_data", False, group)
    held = validation.feed(_validation(trainer, validation_data), size, steps)
    if isinstance(held, Batches):
        held.check_passes(options.validations)
    return feed, held


def evaluation_feed(
    trainer: Trainer, run: TrainState, rows: tuple, size: int, steps: int | None, group: Alone
) -> Feed | Batches:
    """Returns the feed of an evaluation, for this process of a group."""
    return _Call(trainer, run, "evaluate", False, group).feed(rows, size, steps)


def prediction_batches(
    trainer: Trainer, run: TrainState, x: object, steps: int | None, group: Alone
) -> Batches:
    """Returns the feed of the inputs in a source of batches; drops targets and weights."""
    if group.count > 1:
        raise ValueError(
            f"Trainer.predict: expected arrays in several processes, received a source of batches "
            f"({type(x).__name__}). Call predict for each batch, with the same batches in each process: "
            "[trainer.predict(run, x) for x in batches]."
        )
    model = run.model

    def host(batch: Any, what: str) -> Any:
        batch = batch_parts.by_position(model, batch)
        if not isinstance(batch, tuple | list):
            batch = (batch,)
        if not 1 <= len(batch) <= 3:
            raise TypeError(
                f"Trainer.{what}: expected x, (x,), (x, y) or (x, y, sample_weight), received "
                f"{len(batch)} entries. Let the source yield a tuple with all inputs as its first entry."
            )
        rows = texts.as_host(model, batch[0], f"{what}: x")
        checks.check_lengths(rows, equal=False)
        return texts.mapped(model, rows), None, None

    def checked(batch: tuple, size: int | None) -> Any:
        if size is not None:
            sharding.check_rows(trainer, max(host_arrays.length(batch), size))
        check_x(model, batch[0], None)
        return batch[0]

    def fills(x: Any, count: int) -> bool:
        return predicts_by_row(model, run.state, x, host_arrays.length(x))

    feed = Batches(x, steps, "predict", checked, host, fills, training=False)
    feed.check_length()
    return feed


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a trainer that turns its data into a feed.

    Attributes:
        name: name of the call in messages.
        training: whether the batches are those of a training; otherwise of an evaluation.
    """

    trainer: Trainer
    run: TrainState
    name: str
    training: bool
    group: Alone

    @property
    def caches(self) -> bool:
        """Whether the outputs of frozen layers are computed once for each row."""
        return bool(self.trainer.cache_frozen) and self.name.startswith("fit")

    def feed(self, rows: tuple, size: int, steps: int | None) -> Feed | Batches:
        """Returns the feed of an evaluation."""
        x, y, sample_weight = rows
        x = x if y is not None else as_batches(x, size, shard=shares.share_of(self.trainer))
        if y is None and is_batches(x):
            _reject_arguments(self.name, "a source of batches", sample_weight=sample_weight)
            return self.with_sums(self.batches(x, steps))
        model = self.run.model
        host = _host(self.trainer, model, x, y, sample_weight, self.name)
        host = _mapped(self.trainer, model, host)
        count = check_rows(self.trainer, model, host, size)
        checks.check_stateful(model, count, min(size, count), False)
        return self.with_sums(self.arrays(host_arrays.in_memory(host), size, steps))

    def with_sums(self, feed: Feed | Batches) -> Feed | Batches:
        """Returns the feed with empty sums for the losses and metrics of its batches.

        The sums are NumPy arrays, which the first call of a compiled step transfers: a separate
        transfer would cost more than a step of a small model.
        """
        trainer, run = self.trainer, self.run
        if trainer.objective is None:
            return dataclasses.replace(feed, sums=objective.empty_on_host(trainer, run.model))
        example = feed.example(int(run.step))
        sums = objective.empty_on_host(trainer, run.model, run.state, example, self.training)
        return dataclasses.replace(feed, sums=sums)

    def arrays(self, host: tuple, size: int, steps: int | None) -> Feed:
        """Returns the feed of arrays on the host."""
        trainer, group = self.trainer, self.group
        sharding.check_rows(trainer, size)
        feed = array_feed.feed_of(host, size, steps)
        # the devices of a mesh share full batches evenly
        padded = dataclasses.replace(feed, size=sharding.rows_for(trainer, feed.size))
        short = len(feed) % padded.size
        reaches_short = short and (steps is None or steps * padded.size > len(feed))
        if reaches_short and not fills_up(
            trainer, self.run, padded.example(), short, self.training
        ):
            feed = dataclasses.replace(feed, exact=True)
        else:
            feed = padded
        limit = -(-len(feed) // feed.size)
        if steps is not None and steps > limit:
            raise ValueError(
                f"Trainer: expected at most {limit} steps for {len(feed)} rows in batches of "
                f"{feed.size}, received {steps}. Reduce the steps, or repeat the rows."
            )
        if self.caches:
            return feed  # its features are placed
        if group.count == 1:
            return array_feed.placed(feed, trainer.mesh)
        # devices of different memory: the arrays are resident in all processes or in none
        fits = all(group.agree(array_feed.is_small(feed), "the place of the data"))
        feed = dataclasses.replace(feed, send=functools.partial(shares.spread, trainer))
        return array_feed.placed(feed, trainer.mesh) if fits else feed

    def batches(
        self,
        x: object,
        steps: int | None,
        class_weight: Mapping[int, float] | None = None,
        workers: int = 0,
    ) -> Batches:
        """Returns the feed of a source of batches, which `workers` threads read."""
        trainer, run, group = self.trainer, self.run, self.group
        if self.caches:
            raise ValueError(
                f"Trainer.{self.name}: cache_frozen needs rows with an index, received a source of "
                f"batches ({type(x).__name__}). Pass arrays, such as a NumPy array or a np.memmap of "
                "the samples, or train with cache_frozen=False."
            )

        # In a training the device finds NaN (`on_nonfinite`): checking each batch on the host would
        # delay every step. The device does not look for NaN in an evaluation.
        def checked(batch: tuple, size: int | None) -> tuple:
            # otherwise `joined` checks the rows of all processes
            if group.count == 1 and size is not None:
                sharding.check_rows(trainer, max(host_arrays.length(batch), size))
            check_rows(trainer, run.model, batch, None, finite=not self.training)
            if size is None and group.count > 1:
                raise ValueError(
                    f"Trainer.{self.name}: expected arrays with equal numbers of rows, which several "
                    "processes share, received different numbers. Pad the arrays, or train in one process."
                )
            if size is None and trainer.objective is None:
                checks.check_output_rows(run.model, run.state, batch)
            return weighted(trainer, batch, class_weight, run.model)

        def fills(batch: object, count: int) -> bool:
            return fills_up(trainer, run, batch, count, self.training, ordered=group.count == 1)

        host = functools.partial(_host_batch, trainer, run.model)
        if group.count == 1:
            feed = Batches(
                x, steps, self.name, checked, host, fills, training=self.training, workers=workers
            )
            feed.check_length()
            return feed
        return JointBatches(
            x,
            steps,
            self.name,
            checked,
            host,
            fills,
            training=self.training,
            workers=workers,
            group=group,
            share=shares.share_of(trainer),
            join=functools.partial(shares.joined, trainer),
        )


def _reject_arguments(call: str, source_kind: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None and not (isinstance(value, float) and value == 0):
            raise ValueError(
                f"Trainer.{call}: expected either {name} or {source_kind}, received both. Let the "
                "source yield (x, y, sample_weight), and pass validation_data separately."
            )


def _host(
    trainer: Trainer, model: Network, x: object, y: object, sample_weight: object, call: str
) -> Any:
    """Returns the arrays of `fit` and `evaluate` on the host, in the structure of a batch."""
    if trainer.objective is not None:
        if sample_weight is not None:
            rows = (x, y, sample_weight)
        else:
            rows = x if y is None else (x, y)
        return host_arrays.as_host(rows, f"{call}: the batch")
    if y is None and batch_parts.has_loss(trainer.loss):
        if isinstance(x, list) and not host_arrays.is_leaf(x):
            first = f"{type(x[0]).__name__} as batch 0" if x else "an empty list"
            raise TypeError(
                f"Trainer.{call}: expected targets y, or a list of batches with a tuple (x, y) as "
                f"batch 0, received {first}. Write trainer.{call.split(':')[0]}(run, x, y), or let each "
                "batch be a tuple."
            )
        raise TypeError(
            f"Trainer.{call}: expected inputs and targets as arrays, received no targets. Write "
            f"trainer.{call.split(':')[0]}(run, x, y). A model whose layers return their losses is "
            "trained without targets by a Trainer without a loss."
        )
    return _three(model, x, y, sample_weight, call)


def _host_batch(trainer: Trainer, model: Network, batch: Any, what: str) -> Any:
    """Returns a batch of a source on the host: the tree of an objective, else three entries."""
    if trainer.objective is not None:
        return host_arrays.as_host(batch, f"{what}: the batch")
    batch = batch_parts.by_position(model, batch)
    needs_targets, is_row = batch_parts.has_loss(trainer.loss), isinstance(batch, tuple | list)
    if not (is_row and 1 + needs_targets <= len(batch) <= 3) and (needs_targets or is_row):
        raise TypeError(
            f"Trainer.{what}: expected {'' if needs_targets else 'x, '}(x, y) or (x, y, "
            f"sample_weight), received {_form(batch)}. Let the source yield tuples of this form, or "
            "dictionaries with the keys 'x', 'y' and 'sample_weight'."
        )
    rows = _three(model, *batch_parts.unpack(trainer, batch), what)
    return _mapped(trainer, model, rows, equal=False)


def _form(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dictionary of {', '.join(map(repr, list(batch)[:8]))}"
    return str(len(batch)) if isinstance(batch, tuple | list) else type(batch).__name__


def _mapped(trainer: Trainer, model: Network, rows: Any, equal: bool = True) -> Any:
    """Returns rows with the inputs of the model's device part in the place of strings."""
    if trainer.objective is not None or not texts.takes_strings(model):
        return rows
    checks.count_rows(rows, equal)  # before the inputs get the names of the device part
    return texts.mapped(model, rows[0]), *rows[1:]


def _three(model: Network, x: object, y: object, sample_weight: object, call: str) -> tuple:
    """Returns `(x, y, sample_weight)` on the host; None for missing entries."""
    inputs = texts.as_host(model, x, f"{call}: x")
    texts.check_labels(y, f"{call}: y")
    targets = None if y is None else host_arrays.as_host(y, f"{call}: y")
    if sample_weight is None:
        return inputs, targets, None
    return inputs, targets, host_arrays.as_weights(sample_weight, f"{call}: sample_weight")


def _validation(trainer: Trainer, data: Any) -> tuple:
    if is_batches(as_batches(data, 1)):
        return data, None, None
    # For an objective a list is a tree of inputs; in Keras a list may hold x, y and the weights.
    row_types = tuple if trainer.objective is not None else tuple | list
    is_row = isinstance(data, row_types) and 0 < len(data) <= 3
    if trainer.objective is not None and not is_row:
        return data, None, None
    if not batch_parts.has_loss(trainer.loss) and (is_row or not isinstance(data, tuple | list)):
        return (*data, None, None)[:3] if is_row else (data, None, None)
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        received = len(data) if isinstance(data, tuple | list) else type(data).__name__
        raise TypeError(
            "fit: expected validation_data as (x, y) or (x, y, sample_weight), received "
            f"{received}. Write validation_data=(x_test, y_test)."
        )
    return (*data, None)[:3]


def check_rows(
    trainer: Trainer, model: Network, rows: tuple, size: int | None, finite: bool = True
) -> int:
    """Checks `(x, y, sample_weight)` against the model and its losses; returns the row count.

    A batch of an objective may be any tree, so only the number of rows is checked.

    Args:
        size: row count of the batches that the rows are cut into; None for one batch of a source,
            whose arrays may have different numbers of rows.
    """
    cut = size is not None
    if trainer.objective is not None:
        host_arrays.check_fits(rows, "the batch")
        return checks.count_rows(rows, equal=cut)
    x, y, weights = rows
    count = checks.check_lengths(x, y, weights, equal=cut)
    check_x(model, x, min(size, count) if cut else None, finite=False)
    checks.check_weighted(trainer, weights)
    if weights is not None:
        checks.check_weights(weights)
    checks.check_targets(trainer, model, y, weights)
    host_arrays.check_fits(y, "y")
    if finite:
        check_finite_rows(trainer, model, rows)
    return count


def check_x(model: Network, x: Arrays, size: int | None, finite: bool = True) -> None:
    """Rejects inputs that do not fit the model, in batches of `size` rows or (None) as one batch."""
    part = outputs.require_network(device_part(model))
    checks.check_inputs(part, x, size)
    ids.check_ids(part, x)
    if part.graph.takes_integers:
        check_ranges(part, x, "x")
    host_arrays.check_fits(x, "x")
    if finite:
        checks.check_finite(x, "x")


def check_finite_rows(trainer: Trainer, model: Network, rows: tuple) -> None:
    """Rejects NaN and infinity in the inputs, except in rows of weight 0."""
    x, y, weights = rows
    removed = None if y is None else checks.removed_rows(trainer, model, y, weights)
    checks.check_finite(x, "x", removed)


def weighted(
    trainer: Trainer, rows: tuple, class_weight: Mapping[int, float] | None, model: Network
) -> tuple:
    """Returns `(x, y, sample_weight)` with sample weights multiplied by class weights."""
    if class_weight is None:
        return rows
    x, y, weights = rows
    losses = [head.loss for head in outputs.heads(trainer, model, y)]
    ignore = getattr(losses[0], "ignore_class", None)
    label_weights = checks.class_weights(class_weight, y, model, weights, ignore)
    if weights is None:
        return x, y, label_weights

    # Sample weights may have more axes (one weight per time step): broadcast over those.
    def weigh(array: np.ndarray) -> np.ndarray:
        return array * label_weights.reshape(len(label_weights), *[1] * (array.ndim - 1))

    return x, y, jax.tree.map(weigh, weights)

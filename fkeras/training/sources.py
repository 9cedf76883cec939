"""What `fit` and `evaluate` are given, checked and turned into feeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.training import checks, data, feeds, sharding
from fkeras.training.batches import Batches, is_batches


def training_feeds(
    trainer: Any,
    run: Any,
    rows: tuple,
    class_weight: Mapping[int, float] | None,
    validation_data: Any,
    options: Any,
) -> tuple[Any, Any]:
    """`(feed, validation feed or None)` of a training."""
    x, y, sample_weight = rows
    size, steps = options.batch_size, options.steps_per_epoch
    if y is None and is_batches(x):
        _refuse(
            "fit",
            "a source of batches",
            sample_weight=sample_weight,
            validation_split=options.validation_split,
        )
        feed = _batches(trainer, run.model, x, steps, "fit", class_weight)
    else:
        host = _host(x, y, sample_weight, "fit")
        if options.validation_split:
            if validation_data is not None:
                raise ValueError("Pass either validation_split or validation_data, not both.")
            checks.check_lengths(*host)
            host, held = data.split(host, options.validation_split)
            validation_data = tuple(v for v in held if v is not None)
        count = check_rows(trainer, run.model, host, size)
        host = weighted(host, class_weight, run.model)
        checks.check_stateful(run.model, count, min(size, count), options.shuffle)
        feed = _arrays(trainer, host, size, steps)
    if validation_data is None:
        return feed, None
    size, steps = options.validation_batch_size or size, options.validation_steps
    held = _validation(validation_data)
    return feed, _feed(trainer, run, held, size, steps, "fit: validation_data")


def feed(trainer: Any, run: Any, rows: tuple, size: int, steps: int | None, call: str) -> Any:
    """The feed of an evaluation."""
    size = checks.check_size("batch_size", size)
    if steps is not None:
        checks.check_size("steps", steps)
    return _feed(trainer, run, rows, size, steps, call)


def _feed(trainer: Any, run: Any, rows: tuple, size: int, steps: Any, call: str) -> Any:
    x, y, sample_weight = rows
    if y is None and is_batches(x):
        _refuse(call, "a source of batches", sample_weight=sample_weight)
        return _batches(trainer, run.model, x, steps, call, None)
    host = _host(x, y, sample_weight, call)
    count = check_rows(trainer, run.model, host, size)
    checks.check_stateful(run.model, count, min(size, count), False)
    return _arrays(trainer, host, size, steps)


def _arrays(trainer: Any, host: tuple, size: int, steps: int | None) -> feeds.Feed:
    sharding.check_rows(trainer, size)
    feed = feeds.feed_of(host, size, steps)
    feed = dataclasses.replace(feed, size=sharding.rows_for(trainer, feed.size))
    most = -(-len(feed) // feed.size)
    if steps is not None and steps > most:
        raise ValueError(
            f"Trainer: expected at most {most} steps, which {len(feed)} rows in batches "
            f"of {feed.size} make, received {steps}. Ask for fewer, or repeat the rows."
        )
    return feeds.placed(feed, trainer.mesh)


def _refuse(call: str, what: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None and not (isinstance(value, float) and value == 0):
            raise ValueError(
                f"Trainer.{call}: {name} cannot go with {what}, received both. Let "
                "the source yield (x, y, sample_weight), and keep data for validation apart."
            )


def _batches(trainer: Any, model: Any, x: Any, steps: Any, call: str, class_weight: Any) -> Batches:
    def checked(batch: tuple) -> tuple:
        sharding.check_rows(trainer, data.length(batch))
        check_rows(trainer, model, batch, data.length(batch), finite=False)
        return weighted(batch, class_weight, model)

    return Batches(x, steps, call, checked)


def _host(x: Any, y: Any, sample_weight: Any, call: str) -> tuple:
    if y is None:
        raise TypeError(
            f"Trainer.{call}: expected inputs and targets as arrays, received no targets. Write "
            f"trainer.{call.split(':')[0]}(run, x, y)."
        )
    weights = None
    if sample_weight is not None:
        weights = data.as_host(sample_weight, f"{call}: sample_weight")
        weights = jax.tree.map(lambda w: w.astype("float32"), weights)
    return data.as_host(x, f"{call}: x"), data.as_host(y, f"{call}: y"), weights


def _validation(given: Any) -> tuple:
    if is_batches(given):
        return given, None, None
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        found = len(given) if isinstance(given, tuple | list) else type(given).__name__
        raise TypeError(
            "fit: expected validation_data as (x, y) or (x, y, sample_weight), received "
            f"{found}. Write validation_data=(x_test, y_test)."
        )
    return (*given, None)[:3]


def check_rows(trainer: Any, model: Any, rows: tuple, size: int, finite: bool = True) -> int:
    """The number of rows of `(x, y, sample_weight)`, all of which fit the model and its losses."""
    x, y, weights = rows
    count = checks.check_lengths(x, y, weights)
    checks.check_inputs(model, x, min(size, count))
    checks.check_ids(model, x)
    if finite:
        checks.check_finite(x, "x")
    checks.check_targets(trainer, model, y)
    if weights is not None:
        checks.check_weights(weights)
    return count


def weighted(rows: tuple, class_weight: Mapping[int, float] | None, model: Any) -> tuple:
    """`(x, y, sample_weight)` with the weight of each row's class in its weight."""
    if class_weight is None:
        return rows
    x, y, weights = rows
    own = checks.class_weights(class_weight, y, model)
    if weights is None:
        return x, y, own

    def weigh(array: np.ndarray) -> np.ndarray:
        return array * own.reshape(len(own), *[1] * (array.ndim - 1))

    return x, y, jax.tree.map(weigh, weights)

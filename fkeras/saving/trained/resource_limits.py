"""Resource limits: rejects files whose configuration needs excessive memory or time.

The stored arrays need as much memory as the file has bytes. A few words of the configuration can
need far more: a metric with a table of a million classes, a stateful layer with a carry of a
billion rows, a regular expression that backtracks for hours. The loader rejects these before it
builds them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from fkeras.engine import Layer, Network
from fkeras.engine.values.pattern_cost import trials
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits
from fkeras.optimizers import LossScaleOptimizer, MultiOptimizer, Muon
from fkeras.optimizers.by_pattern import keras_map
from fkeras.saving.weights.weight_paths import places
from fkeras.training import Trainer
from fkeras.training.step import objective
from fkeras.training.trainer import Optimizer

# upper bound on the characters that `re` reads to match all patterns with all paths: some seconds
_TRIALS = 3e8


def check_training(trainer: Trainer, model: Layer, paths: Sequence[str], limits: Limits) -> None:
    """Rejects metrics with excessive accumulators, and patterns that backtrack catastrophically."""
    # eval_shape computes the shapes without allocating the arrays
    sums = jax.eval_shape(lambda: objective.empty(trainer, model))
    _check_size(jax.tree.leaves(sums), "the sums of the metrics need", limits)
    check_patterns(trainer.optimizer, paths)


def check_state(model: Layer, state: Mapping[str, Any], limits: Limits) -> None:
    """Rejects models whose unsaved state, such as the carry of a stateful RNN, exceeds the limit."""
    # stored arrays are as large as their bytes in the file, which other limits bound
    unsaved = [place.value for place in places(model, state) if place.path is None]
    _check_size(unsaved, "this model's unsaved state (RNN carries) needs", limits)


def check_calls(model: Layer, limits: Limits) -> None:
    """Rejects models with a call that computes an array beyond the limit."""
    if not isinstance(model, Network) or model.graph is None:
        return
    sizes = [(call.layer, call.signature.largest_bytes) for call in model.graph.calls]
    for name, size in sizes:
        if size > limits.call_bytes:
            check_calls(model.layers[name], limits)  # names the layer of an inner model
            raise FileError(
                f"the layer {name!r} computes an array of {size} bytes; the limit is "
                f"{limits.call_bytes}. If you trust the file, pass limits=fk.Limits(call_bytes=...)."
            )


def _check_size(arrays: Sequence[Any], what: str, limits: Limits) -> None:
    size = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    if size > limits.made_bytes:
        raise FileError(
            f"{what} {size} bytes; the limit is {limits.made_bytes}. If you trust the file, pass "
            "limits=fk.Limits(made_bytes=...)."
        )


def check_patterns(optimizer: Optimizer, paths: Sequence[str]) -> None:
    """Rejects an optimizer with patterns that `re` could match for longer than some seconds.

    Example:
        >>> import fkeras as fk
        >>> check_patterns(fk.optimizers.MultiOptimizer({"re:.*/bias": "sgd", "*": "adam"}), ["d/bias"])
        >>> try:
        ...     check_patterns(fk.optimizers.Muon(exclude_layers=["(a+)+$"]), ["a" * 50])
        ... except FileError as error:
        ...     print("'(a+)+$'" in str(error))
        True
    """
    # `re` cannot be interrupted, so the cost is bounded before the first match. The bound depends
    # on the length of a path only: count the paths of each length.
    lengths, total = Counter(map(len, paths)), 0.0
    for pattern, everywhere in _patterns(optimizer):
        for length, count in lengths.items():
            # a search tries every start in the path, a match only the first
            starts = length + 1 if everywhere else 1
            total += count * starts * trials(pattern, length)
        if total > _TRIALS:
            raise FileError(
                f"the pattern {pattern[:80]!r} can backtrack catastrophically on weight paths of "
                f"{max(lengths)} characters. Avoid nested quantifiers; fk.load_model opens the "
                "model without the optimizer."
            )


def _patterns(optimizer: Optimizer) -> Iterator[tuple[str, bool]]:
    """Yields the regular expressions of an optimizer, and whether `re` searches or only matches."""
    if isinstance(optimizer, LossScaleOptimizer):
        yield from _patterns(optimizer.inner_optimizer)
    elif isinstance(optimizer, MultiOptimizer):
        for pattern, inner in optimizer.optimizer_map:
            yield keras_map.expression(pattern), False
            yield from _patterns(inner)
    elif isinstance(optimizer, Muon):
        yield from ((pattern, True) for pattern in optimizer.exclude_layers)

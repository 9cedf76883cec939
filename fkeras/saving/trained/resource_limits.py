"""What opening a file would compute or allocate though no byte of the file holds it.

A file pays for its arrays with their bytes. A few words of it can ask for more than that: a metric
for a table of a million classes, a stateful layer for the carry of a billion rows, a regular
expression for more trials than anyone waits for. These are refused before they are begun.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from fkeras.engine.values.pattern_cost import trials
from fkeras.optimizers import LossScaleOptimizer, MultiOptimizer, Muon
from fkeras.optimizers.by_pattern import keras_map
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.limits import Limits
from fkeras.saving.weights.weight_paths import places
from fkeras.training import Trainer
from fkeras.training.step import objective

# how often, at most, `re` may look at a character while all patterns meet all paths: some seconds
_TRIALS = 3e8


def check_training(trainer: Trainer, model: Any, paths: Sequence[str], limits: Limits) -> None:
    """Refuses metrics whose sums are too large, and patterns that would be tried for ever.

    Args:
        trainer: what a file describes.
        model: the model that it trains.
        paths: the paths of the weights that its optimizer is to keep apart.
        limits: the greatest sizes.

    Raises:
        FileError: where there is such a metric or pattern.
    """
    sums = jax.eval_shape(lambda: objective.empty(trainer, model))
    _check_size(jax.tree.leaves(sums), "metrics whose sums take", limits)
    check_patterns(trainer.optimizer, paths)


def check_state(model: Any, state: Mapping[str, Any], limits: Limits) -> None:
    """Refuses state that no file keeps, such as the carry of a stateful layer, beyond the limit.

    Args:
        model: the model, of shapes.
        state: its state, of shapes.
        limits: the greatest sizes.

    Raises:
        FileError: where it would be larger.
    """
    made = [place.value for place in places(model, state) if place.path is None]
    _check_size(made, "layers whose state, which no file keeps, takes", limits)


def _check_size(arrays: Sequence[Any], what: str, limits: Limits) -> None:
    size = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    if size > limits.made_bytes:
        raise FileError(
            f"{what} {size} bytes, expected at most {limits.made_bytes}. If you trust the file, "
            "pass limits=fk.Limits(made_bytes=...)."
        )


def check_patterns(optimizer: Any, paths: Sequence[str]) -> None:
    """Refuses an optimizer whose patterns `re` could try on these paths for longer than seconds.

    Args:
        optimizer: one that was made, and has met no path yet.
        paths: the paths of the weights.

    Raises:
        FileError: where it could.

    Example:
        >>> import fkeras as fk
        >>> check_patterns(fk.optimizers.MultiOptimizer({"re:.*/bias": "sgd", "*": "adam"}), ["d/bias"])
        >>> try:
        ...     check_patterns(fk.optimizers.Muon(exclude_layers=["(a+)+$"]), ["a" * 50])
        ... except FileError as error:
        ...     print("'(a+)+$'" in str(error))
        True
    """
    lengths, total = Counter(map(len, paths)), 0.0
    for pattern, everywhere in _patterns(optimizer):
        for length, count in lengths.items():
            starts = length + 1 if everywhere else 1
            total += count * starts * trials(pattern, length)
        if total > _TRIALS:
            raise FileError(
                f"a pattern of weights, {pattern[:80]!r}, that Python may try for ever on paths "
                f"of {max(lengths)} characters, as what it repeats can fit in many ways. Write it "
                "without repetitions inside of repetitions; fk.load_model opens the model alone."
            )


def _patterns(optimizer: Any) -> Iterator[tuple[str, bool]]:
    """The regular expressions of an optimizer, and whether each is tried at every place of a path."""
    if isinstance(optimizer, LossScaleOptimizer):
        yield from _patterns(optimizer.inner_optimizer)
    elif isinstance(optimizer, MultiOptimizer):
        for pattern, inner in optimizer.optimizer_map:
            yield keras_map.expression(pattern), False
            yield from _patterns(inner)
    elif isinstance(optimizer, Muon):
        yield from ((pattern, True) for pattern in optimizer.exclude_layers)

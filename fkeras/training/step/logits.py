"""Cross-entropies from the logits of a model that ends in a softmax or a sigmoid.

The logarithm of a computed probability costs about twice the logarithm of the softmax, rounds in the
precision of the model, and needs a clip, above which wrong predictions have no gradient. The logits have
none of this. Keras does the same on TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from fkeras import losses
from fkeras.engine import Layer
from fkeras.engine.config.configurable import with_fields
from fkeras.training.step.outputs import Head
from fkeras.transforms.last_activation import SIGMOID, SOFTMAX, without_activation

_CATEGORICAL = (losses.CategoricalCrossentropy, losses.SparseCategoricalCrossentropy)


def with_logits(
    model: Layer, all_heads: tuple[Head, ...]
) -> tuple[Any, tuple[Head, ...], tuple[Callable | None, ...]]:
    """Returns the model without the last activations that a cross-entropy can include.

    Args:
        all_heads: the outputs with their losses.

    Returns:
        `(model, heads, activations)`: the model with logits as outputs, the heads whose losses take
        logits, and the activation that each head's metrics need, or None. An output that another call
        or another output reads, too, stays; so does an output whose loss is not exactly a
        cross-entropy of probabilities along the axis of the softmax.
    """
    new_heads, last = [], []
    for number, head in enumerate(all_heads):
        found = without_activation(model, number, functools.partial(_fits, head))
        model, activation = (model, None) if found is None else found
        last.append(activation)
        if activation is not None:
            loss = with_fields(head.loss, {"from_logits": True})
            head = dataclasses.replace(head, loss=loss)
        new_heads.append(head)
    return model, tuple(new_heads), tuple(last)


def _fits(head: Head, activation: Callable, axis: int = -1) -> bool:
    """Returns whether the loss of a head includes an activation."""
    loss, ndim = head.loss, len(head.spec.dims)
    if type(loss) is losses.BinaryCrossentropy:
        return not loss.from_logits and activation in SIGMOID
    if type(loss) not in _CATEGORICAL or loss.from_logits:
        return False
    return activation in SOFTMAX and loss.axis % ndim == axis % ndim

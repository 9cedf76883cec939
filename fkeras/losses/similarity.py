"""Metric-learning losses: embeddings of a class should be close, those of others distant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, real, text
from fkeras.engine.config.field_types import Real
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses import removing
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.regression import widened

# label that excludes a sample from all pairs: no class has this number
_REMOVED = np.iinfo("int32").min
# below every weighted similarity, but finite: without pairs, logsumexp has a gradient of 0, not NaN
_NO_PAIR = -1e30


def circle(
    y_true: Numbers,
    y_pred: Numbers,
    ref_labels: Numbers | None = None,
    ref_embeddings: Numbers | None = None,
    remove_diagonal: bool = True,
    gamma: float = 80.0,
    margin: float = 0.4,
) -> jax.Array:
    """Returns the circle loss: softplus(logsumexp(same) + logsumexp(different)).

    For the cosine distance d of two samples, `same` has gamma * (margin + d) * (d - margin) for
    each pair of the same class; `different` has gamma * (1 + margin - d) * (1 - margin - d) for
    each pair of different classes.

    Args:
        y_true: class numbers, (b,) or (b, 1).
        y_pred: embeddings of length 1, (b, d): normalize them first.
        ref_labels: class numbers to compare with, (n,) or (n, 1); None for `y_true`.
        ref_embeddings: embeddings to compare with, (n, d); None for `y_pred`.
        remove_diagonal: whether to exclude pairs of a sample and the reference of the same index.
        gamma: scale of the similarities.
        margin: tolerated cosine distance of a pair from its optimum.

    Returns:
        The losses of samples, (b,): 0 for a sample that lacks pairs of either kind.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> fk.losses.circle(jnp.array([0, 0, 1]), jnp.eye(3)).round(3)
        Array([54.4, 54.4,  0. ], dtype=float32)

    References:
        Sun et al. 2020, Circle loss, https://arxiv.org/abs/2002.10857
    """
    embeddings = widened(as_operand(y_pred, "y_pred"))
    references = (
        embeddings
        if ref_embeddings is None
        else as_operand(ref_embeddings, "ref_embeddings").astype(embeddings.dtype)
    )
    labels = as_operand(y_true, "y_true").astype("int32").reshape(-1, 1)
    if ref_labels is not None:
        reference_labels = as_operand(ref_labels, "ref_labels").astype("int32").reshape(1, -1)
    else:
        reference_labels = labels.reshape(1, -1)
    # rounding makes the distance of equal embeddings slightly negative
    distance = jnp.maximum(1.0 - embeddings @ references.T, 0.0)
    same_class, is_counted = labels == reference_labels, reference_labels != _REMOVED
    positive_pairs, negative_pairs = same_class & is_counted, ~same_class & is_counted
    if remove_diagonal:
        # only with references of the same order; `eye` allows a different number of references
        positive_pairs = positive_pairs & ~jnp.eye(*same_class.shape, dtype=bool)
    positive_terms = gamma * (margin + distance) * (distance - margin)
    negative_terms = gamma * jnp.maximum(1.0 + margin - distance, 0.0) * (1.0 - margin - distance)
    positive_terms = jax.nn.logsumexp(jnp.where(positive_pairs, positive_terms, _NO_PAIR), axis=1)
    negative_terms = jax.nn.logsumexp(jnp.where(negative_pairs, negative_terms, _NO_PAIR), axis=1)
    return jax.nn.softplus(positive_terms + negative_terms)


class Circle(FunctionLoss):
    """Mean circle loss over the samples of a batch, compared in pairs.

    Samples whose loss is 0 do not count in the mean. Samples with weight 0 or mask False still form
    pairs with other samples, unless they hold NaN or infinity: do not pad batches.

    Args:
        gamma: scale of the similarities.
        margin: tolerated cosine distance of a pair from its optimum.
        remove_diagonal: whether to exclude pairs of a sample with itself.

    Example:
        >>> import fkeras as fk, jax.numpy as jnp
        >>> fk.losses.Circle()(jnp.array([0, 0, 1]), jnp.eye(3)).round(3)
        Array(54.4, dtype=float32)

    References:
        Sun et al. 2020, Circle loss, https://arxiv.org/abs/2002.10857
    """

    _function = staticmethod(circle)
    gamma: Real = option(default=80.0, convert=real(above=0))
    margin: Real = option(default=0.4, convert=real())
    remove_diagonal: bool = option(default=True, convert=boolean)
    name: str | None = option(default="circle", convert=text(optional=True), kw_only=True)

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        # XLA merges this call with the loss's; NaN != 0, so the mean reports NaN
        return self.call(y_true, y_pred) != 0

    def _held(
        self, is_removed: jax.Array, y_true: jax.Array, y_pred: jax.Array
    ) -> tuple[jax.Array, ...]:
        # a stopped gradient is not enough: NaN would reach other samples through the pairs
        removed_nonfinite = removing.broken(is_removed, (y_true, y_pred))
        if removed_nonfinite is None:
            return y_true, y_pred
        labels = jnp.asarray(y_true).astype("int32")
        # one weight for all samples has no axis
        samples = jnp.broadcast_to(jnp.ravel(removed_nonfinite), (labels.size,))
        return (
            jnp.where(samples.reshape(labels.shape), _REMOVED, labels),
            jnp.where(samples.reshape(-1, *(1,) * (y_pred.ndim - 1)), 0.0, y_pred),
        )


LOSSES = (named(Circle, function=circle),)

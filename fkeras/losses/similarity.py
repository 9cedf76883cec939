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
from fkeras.nn.numerics.stable import unit_vectors

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


def info_nce(
    y_true: Numbers, y_pred: Numbers, temperature: float = 0.07, symmetric: bool = True
) -> jax.Array:
    """Returns -log(softmax(cosine(a, b) / temperature)) of the matching pair, among all pairs of the batch.

    The embedding a of a sample and its embedding b form a matching pair: two views of an image, a text
    and an image, a query and an item. The embeddings b of the other samples are negatives.

    Args:
        y_true: a number for the item of each sample, (b,) or (b, 1): samples with equal numbers are no
            negatives of each other. For samples without equal items, any different numbers.
        y_pred: the embeddings a and b of each sample, (b, 2, d), of any length.
        temperature: divisor of the cosines, above 0.
        symmetric: whether the loss is the mean with the loss of b among all a, as in CLIP.

    Returns:
        The losses of samples, (b,).

    Raises:
        ValueError: if the predictions are not (b, 2, d).

    Example:
        >>> import fkeras as fk, jax.numpy as jnp
        >>> pairs = jnp.stack([jnp.eye(2), jnp.eye(2)], axis=1)
        >>> [round(float(one), 3) for one in fk.losses.info_nce([0, 1], pairs, temperature=1.0)]
        [0.313, 0.313]

    References:
        van den Oord et al. 2018, Representation learning with contrastive predictive coding,
        https://arxiv.org/abs/1807.03748
        Radford et al. 2021, Learning transferable visual models, https://arxiv.org/abs/2103.00020
    """
    embeddings = widened(as_operand(y_pred, "y_pred"))
    labels = as_operand(y_true, "y_true").astype("int32").reshape(-1)
    if embeddings.ndim != 3 or embeddings.shape[1] != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"info_nce: expected numbers of items (b,) and two embeddings of each sample (b, 2, d), received "
            f"shapes {labels.shape} and {embeddings.shape}. Write fk.ops.stack([a, b], axis=1) at the end of "
            "the model."
        )
    first, second = jnp.moveaxis(unit_vectors(embeddings, -1), 1, 0)
    scores = first @ second.T / temperature
    matching = jnp.eye(labels.shape[0], dtype=bool)
    counted = labels != _REMOVED
    negative = (labels[:, None] != labels[None]) & counted[:, None] & counted[None]
    scores = jnp.where(matching | negative, scores, _NO_PAIR)
    losses = jax.nn.logsumexp(scores, axis=1) - jnp.diagonal(scores)
    if not symmetric:
        return losses
    return 0.5 * (losses + jax.nn.logsumexp(scores, axis=0) - jnp.diagonal(scores))


def _without_nonfinite(
    is_removed: jax.Array, y_true: jax.Array, y_pred: jax.Array
) -> tuple[jax.Array, ...]:
    """Returns targets and predictions in which removed samples with NaN or infinity are in no pair."""
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
        return _without_nonfinite(is_removed, y_true, y_pred)


class InfoNCE(FunctionLoss):
    """Mean contrastive loss of pairs of embeddings: the cross-entropy of the matching pair in the batch.

    The model returns both embeddings of a sample, (b, 2, d). Targets are numbers of items, (b,): samples
    with equal numbers are no negatives of each other. Samples with weight 0 or mask False are negatives
    of other samples, unless they hold NaN or infinity.

    Args:
        temperature: divisor of the cosines, above 0.
        symmetric: whether the loss is the mean of both directions.

    Raises:
        ValueError: in calls, if the predictions are not (b, 2, d).

    Example:
        >>> import fkeras as fk, jax.numpy as jnp
        >>> pairs = jnp.stack([jnp.eye(2), jnp.eye(2)], axis=1)
        >>> round(float(fk.losses.InfoNCE(temperature=1.0)([0, 1], pairs)), 3)
        0.313

    References:
        van den Oord et al. 2018, Representation learning with contrastive predictive coding,
        https://arxiv.org/abs/1807.03748
    """

    _function = staticmethod(info_nce)
    temperature: Real = option(default=0.07, convert=real(above=0))
    symmetric: bool = option(default=True, convert=boolean)
    name: str | None = option(default="info_nce", convert=text(optional=True), kw_only=True)

    def _held(
        self, is_removed: jax.Array, y_true: jax.Array, y_pred: jax.Array
    ) -> tuple[jax.Array, ...]:
        return _without_nonfinite(is_removed, y_true, y_pred)


LOSSES = (named(Circle, function=circle), named(InfoNCE, function=info_nce))

"""Loss classes for predicted probabilities: cross-entropies, KL divergence and Poisson."""

from __future__ import annotations

from typing import ClassVar

import jax
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import (
    boolean,
    either,
    integer,
    probability,
    real,
    several,
    text,
)
from fkeras.engine.config.field_types import Integer, OptionalInteger, Real, RealOrReals
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.registry import named
from fkeras.losses import checks, crossentropy
from fkeras.losses.loss import FunctionLoss
from fkeras.nn.numerics.indices import equals


class BinaryCrossentropy(FunctionLoss):
    """Mean of -(y * log(p) + (1 - y) * log(1 - p)).

    Args:
        from_logits: whether predictions are logits (before the sigmoid).
        label_smoothing: share by which targets move towards 0.5, from 0 to 1.
        axis: the axis of the mean.

    Raises:
        ValueError: if `label_smoothing` is outside of [0, 1], or `axis` is not an integer.

    Example:
        >>> import fkeras as fk
        >>> loss = fk.losses.BinaryCrossentropy(from_logits=True)
        >>> loss([[0.0], [1.0]], [[0.0], [0.0]])
        Array(0.6931472, dtype=float32)
    """

    _function = staticmethod(crossentropy.binary_crossentropy)
    _targets: ClassVar[str] = "binary"
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="binary_crossentropy", convert=text(optional=True), kw_only=True
    )


class BinaryFocalCrossentropy(FunctionLoss):
    """Mean binary focal cross-entropy: (1 - p_t)**gamma * binary cross-entropy.

    p_t is the predicted probability of the true class.


    Args:
        apply_class_balancing: whether class 1 has weight `alpha` and class 0 weight 1 - `alpha`.
        alpha: weight of class 1, from 0 to 1.
        gamma: exponent that reduces the loss of easy samples; 0 gives the plain cross-entropy.
        from_logits: whether predictions are logits (before the sigmoid).
        label_smoothing: share by which targets move towards 0.5, from 0 to 1.
        axis: the axis of the mean.

    Raises:
        ValueError: if `label_smoothing` is outside of [0, 1], or `axis` is not an integer.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.BinaryFocalCrossentropy()([[1.0], [1.0]], [[0.5], [0.9]]).round(4)
        Array(0.0872, dtype=float32)

    References:
        Lin et al. 2017, Focal loss for dense object detection, https://arxiv.org/abs/1708.02002
    """

    _function = staticmethod(crossentropy.binary_focal_crossentropy)
    _targets: ClassVar[str] = "binary"
    apply_class_balancing: bool = option(default=False, convert=boolean)
    alpha: Real = option(default=0.25, convert=probability)
    gamma: Real = option(default=2.0, convert=real(minimum=0))
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="binary_focal_crossentropy", convert=text(optional=True), kw_only=True
    )


class CategoricalCrossentropy(FunctionLoss):
    """Mean of -sum(y * log(p)) over the classes.

    Args:
        from_logits: whether predictions are logits (before the softmax).
        label_smoothing: share of each target that is distributed equally over the classes, from
            0 to 1.
        axis: the class axis.

    Raises:
        ValueError: if `label_smoothing` is outside of [0, 1], or `axis` is not an integer.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]])
        Array(0.6931472, dtype=float32)
    """

    _function = staticmethod(crossentropy.categorical_crossentropy)
    _targets: ClassVar[str] = "one_hot"
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="categorical_crossentropy", convert=text(optional=True), kw_only=True
    )


class CategoricalFocalCrossentropy(FunctionLoss):
    """Mean of -sum(alpha * (1 - p)**gamma * y * log(p)) over the classes.

    Args:
        alpha: one weight for all classes, or one per class.
        gamma: exponent that reduces the loss of easy samples; 0 gives the plain cross-entropy.
        Other arguments: those of `CategoricalCrossentropy`.

    Raises:
        ValueError: if `label_smoothing` is outside of [0, 1], or `axis` is not an integer.

    Example:
        >>> import fkeras as fk
        >>> loss = fk.losses.CategoricalFocalCrossentropy(alpha=1.0)
        >>> loss([[0.0, 1.0], [0.0, 1.0]], [[0.5, 0.5], [0.1, 0.9]]).round(4)
        Array(0.0872, dtype=float32)

    References:
        Lin et al. 2017, Focal loss for dense object detection, https://arxiv.org/abs/1708.02002
    """

    _function = staticmethod(crossentropy.categorical_focal_crossentropy)
    _targets: ClassVar[str] = "one_hot"
    alpha: RealOrReals = option(
        default=0.25,
        convert=either(real(minimum=0), several(real(minimum=0), "a list of numbers of 0 or more")),
    )
    gamma: Real = option(default=2.0, convert=real(minimum=0))
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="categorical_focal_crossentropy", convert=text(optional=True), kw_only=True
    )


class SparseCategoricalCrossentropy(FunctionLoss):
    """Mean of -log(p) for the probability p of the true class, with class numbers as targets.

    Args:
        ignore_class: a class number whose samples are excluded from the sum and the divisor.
        Other arguments: those of `CategoricalCrossentropy`.

    Raises:
        ValueError: if `axis` is not an integer; in a call, if the targets' shape does not fit.

    Example:
        >>> import fkeras as fk
        >>> loss = fk.losses.SparseCategoricalCrossentropy(ignore_class=0)
        >>> loss([1, 0], [[0.5, 0.5], [0.1, 0.9]])
        Array(0.6931472, dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("reduction", "axis", "name", "dtype")

    _function = staticmethod(crossentropy.sparse_categorical_crossentropy)
    from_logits: bool = option(default=False, convert=boolean)
    ignore_class: OptionalInteger = option(default=None, convert=integer(optional=True))
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="sparse_categorical_crossentropy", convert=text(optional=True), kw_only=True
    )

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        # the mask keeps ignored samples out of the mean's divisor as well
        if self.ignore_class is None:
            return None
        labels = crossentropy.class_numbers(y_true, y_pred, self.axis, self._label)
        return ~equals(labels, self.ignore_class)

    # overridden instead of a value of `targets`: class numbers lack the class axis
    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        checks.check_labels(
            self._label, np.asarray(y_true), y_pred.shape, self.axis, self.ignore_class
        )


class CategoricalGeneralizedCrossEntropy(FunctionLoss):
    """Mean of (1 - p**q) / q for the predicted probability p of the true class.

    Args:
        q: between 0 (the cross-entropy in the limit) and 1 (the mean absolute error).

    Raises:
        ValueError: if `q` is not between 0 and 1.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.CategoricalGeneralizedCrossEntropy()([1], [[0.75, 0.25]])
        Array(1., dtype=float32)

    References:
        Zhang and Sabuncu 2018, Generalized cross entropy loss, https://arxiv.org/abs/1805.07836
    """

    _function = staticmethod(crossentropy.categorical_generalized_cross_entropy)
    q: Real = option(default=0.5, convert=real(above=0, below=1))
    name: str | None = option(
        default="categorical_generalized_cross_entropy", convert=text(optional=True), kw_only=True
    )

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        checks.check_labels(self._label, np.asarray(y_true), y_pred.shape)


class KLDivergence(FunctionLoss):
    """Mean of sum(y * log(y / p)) over the last axis.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.KLDivergence()([[0.0, 1.0]], [[0.5, 0.5]]).round(4)
        Array(0.6931, dtype=float32)

    References:
        Kullback and Leibler 1951, On information and sufficiency,
        https://doi.org/10.1214/aoms/1177729694
    """

    _function = staticmethod(crossentropy.kl_divergence)
    _targets: ClassVar[str] = "values"
    name: str | None = option(default="kl_divergence", convert=text(optional=True), kw_only=True)


class Poisson(FunctionLoss):
    """Mean of p - y * log(p + 1e-7) for counts y and expected counts p.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Poisson()([[1.0], [2.0]], [[1.0], [1.0]]).round(4)
        Array(1., dtype=float32)
    """

    _function = staticmethod(crossentropy.poisson)
    _targets: ClassVar[str] = "counts"
    name: str | None = option(default="poisson", convert=text(optional=True), kw_only=True)


LOSSES = (
    named(BinaryCrossentropy, "bce", "BCE", function=crossentropy.binary_crossentropy),
    named(BinaryFocalCrossentropy, function=crossentropy.binary_focal_crossentropy),
    named(CategoricalCrossentropy, function=crossentropy.categorical_crossentropy),
    named(CategoricalFocalCrossentropy, function=crossentropy.categorical_focal_crossentropy),
    named(SparseCategoricalCrossentropy, function=crossentropy.sparse_categorical_crossentropy),
    named(
        CategoricalGeneralizedCrossEntropy,
        function=crossentropy.categorical_generalized_cross_entropy,
    ),
    named(KLDivergence, "kld", "KLD", function=crossentropy.kl_divergence),
    named(Poisson, function=crossentropy.poisson),
)

"""Losses by name."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.config.configurable import lookup
from fkeras.losses import crossentropy as ce
from fkeras.losses import margin as margins
from fkeras.losses import probabilistic as probable
from fkeras.losses import regression as numbers
from fkeras.losses import segmentation as regions
from fkeras.losses import sequence, similarity
from fkeras.losses.loss import Loss, LossFunctionWrapper

_CLASSES: Mapping[Callable, type[Loss]] = types.MappingProxyType(
    {
        numbers.mean_squared_error: numbers.MeanSquaredError,
        numbers.mean_absolute_error: numbers.MeanAbsoluteError,
        numbers.mean_absolute_percentage_error: numbers.MeanAbsolutePercentageError,
        numbers.mean_squared_logarithmic_error: numbers.MeanSquaredLogarithmicError,
        numbers.huber: numbers.Huber,
        numbers.log_cosh: numbers.LogCosh,
        numbers.cosine_similarity: numbers.CosineSimilarity,
        ce.binary_crossentropy: probable.BinaryCrossentropy,
        ce.binary_focal_crossentropy: probable.BinaryFocalCrossentropy,
        ce.categorical_crossentropy: probable.CategoricalCrossentropy,
        ce.categorical_focal_crossentropy: probable.CategoricalFocalCrossentropy,
        ce.sparse_categorical_crossentropy: probable.SparseCategoricalCrossentropy,
        ce.kl_divergence: probable.KLDivergence,
        ce.poisson: probable.Poisson,
        margins.hinge: margins.Hinge,
        margins.squared_hinge: margins.SquaredHinge,
        margins.categorical_hinge: margins.CategoricalHinge,
        ce.categorical_generalized_cross_entropy: probable.CategoricalGeneralizedCrossEntropy,
        regions.dice: regions.Dice,
        regions.tversky: regions.Tversky,
        similarity.circle: similarity.Circle,
        sequence.ctc: sequence.CTC,
    }
)

_ALIASES: Mapping[str, type[Loss]] = types.MappingProxyType(
    {
        "mse": numbers.MeanSquaredError,
        "mae": numbers.MeanAbsoluteError,
        "mape": numbers.MeanAbsolutePercentageError,
        "msle": numbers.MeanSquaredLogarithmicError,
        "bce": probable.BinaryCrossentropy,
        "kld": probable.KLDivergence,
        "logcosh": numbers.LogCosh,
    }
)

NAMES: Mapping[str, type[Loss]] = types.MappingProxyType(
    {
        **{function.__name__: cls for function, cls in _CLASSES.items()},
        **{cls.__name__: cls for cls in _CLASSES.values()},
        **_ALIASES,
        **{alias.upper(): cls for alias, cls in _ALIASES.items() if alias != "logcosh"},
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Loss | None:
    """The loss that a name, a function, a configuration or a loss means; None for none.

    Args:
        identifier: Keras's name of a loss or of its function, a `Loss` or its class, what
            `serialize` wrote, or any function (y_true, y_pred) that returns losses of samples.
        custom_objects: your own by name.

    Returns:
        A `Loss`; a function of your own is wrapped in a `LossFunctionWrapper`.

    Raises:
        ValueError: for an unknown name, with the nearest one.
        TypeError: for anything else.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.get("mse")
        MeanSquaredError()
        >>> fk.losses.get("mse")([[0.0], [0.0]], [[1.0], [3.0]])
        Array(5., dtype=float32)
    """
    if isinstance(identifier, Mapping) and identifier.get("class_name") == "function":
        identifier = identifier["config"]
    loss = lookup(identifier, "loss", NAMES, custom_objects)
    if loss is None or isinstance(loss, Loss):
        return loss
    if isinstance(loss, Callable) and loss in _CLASSES:
        return _CLASSES[loss]()
    return LossFunctionWrapper(loss, name=getattr(loss, "__name__", None))


def kind_of_classes(y_true: Any, y_pred: Any) -> str:
    """How targets and predictions of these shapes number classes.

    Args:
        y_true: anything with the targets' `shape`.
        y_pred: anything with the predictions' `shape`.

    Returns:
        "binary" for predictions of one unit, "sparse" for class numbers, else "categorical".

    Example:
        >>> import jax
        >>> spec = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
        >>> kind_of_classes(spec(8), spec(8, 10))
        'sparse'
    """
    true, pred = tuple(y_true.shape), tuple(y_pred.shape)
    if pred and pred[-1] == 1:
        return "binary"
    if len(true) < len(pred) or (true and true[-1] == 1 and pred[-1] != 1):
        return "sparse"
    return "categorical"


def resolve(identifier: Any, y_true: Any, y_pred: Any) -> Loss | None:
    """As `get`, and "crossentropy" (or "ce") means the one that fits the shapes.

    Args:
        identifier: what `get` takes, or "crossentropy" or "ce".
        y_true: anything with the targets' `shape`.
        y_pred: anything with the predictions' `shape`.

    Returns:
        A `Loss`, or None for None: `BinaryCrossentropy` for predictions of one unit,
        `SparseCategoricalCrossentropy` for class numbers, else `CategoricalCrossentropy`.

    Raises:
        ValueError: for an unknown name, with the nearest one.
        TypeError: for what `get` does not take.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> loss = fk.losses.resolve("crossentropy", jnp.zeros(8), jnp.zeros((8, 10)))
        >>> loss, loss([1], [[0.5, 0.5]])
        (SparseCategoricalCrossentropy(), Array(0.6931472, dtype=float32))
    """
    if not isinstance(identifier, str) or identifier.lower() not in ("crossentropy", "ce"):
        return get(identifier)
    kind = kind_of_classes(y_true, y_pred)
    if kind == "binary":
        return probable.BinaryCrossentropy()
    if kind == "sparse":
        return probable.SparseCategoricalCrossentropy()
    return probable.CategoricalCrossentropy()

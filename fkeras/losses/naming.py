"""Lookup of losses by name, function or configuration.

The `LOSSES` table at the end of each family module lists the names.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.config.config_checks import entry
from fkeras.engine.config.configurable import deserializer, lookup
from fkeras.engine.config.field_types import Named
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.registry import by_function, by_name
from fkeras.losses import (
    forecasts,
    margin,
    probabilistic,
    regression,
    segmentation,
    sequence,
    similarity,
)
from fkeras.losses.loss import Loss, LossFunctionWrapper

_ROWS = (
    *probabilistic.LOSSES,
    *margin.LOSSES,
    *regression.LOSSES,
    *segmentation.LOSSES,
    *sequence.LOSSES,
    *similarity.LOSSES,
    *forecasts.LOSSES,
)
NAMES: Mapping[str, type[Loss]] = by_name(_ROWS)
_BY_FUNCTION: Mapping[Callable[..., Any], type[Loss]] = by_function(_ROWS)
# as in Keras, all names except the name of the class are names of the function
_FUNCTIONS: Mapping[str, Callable[..., Any]] = types.MappingProxyType(
    {
        name: row.function
        for row in _ROWS
        for name in row.names
        if row.function is not None and name != row.value.__name__
    }
)


@hides_internal_frames
def get(
    identifier: Named | None, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any] | None:
    """Returns the loss for a name, a function, a class, a configuration or a loss.

    Args:
        identifier: Keras's name of a loss or of its function, a `Loss`, a subclass of `Loss`, a
            configuration from `serialize`, a function (y_true, y_pred) that returns the losses of
            samples, or None.
        custom_objects: user-defined losses and functions by name.

    Returns:
        As in Keras: for the name of a function, the function, which returns the losses of samples; for
        a class or the name of a class, a `Loss`, which reduces the losses to a scalar; None for None.

    Raises:
        ValueError: if the name is unknown; suggests the nearest name.
        TypeError: if `identifier` has an unsupported type.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.get("mse")([[0.0], [0.0]], [[1.0], [3.0]])
        Array([1., 9.], dtype=float32)
        >>> fk.losses.get("MeanSquaredError")([[0.0], [0.0]], [[1.0], [3.0]])
        Array(5., dtype=float32)
    """
    identifier = _without_class(identifier)
    if isinstance(identifier, str) and identifier in _FUNCTIONS:
        if identifier not in (custom_objects or ()):
            return _FUNCTIONS[identifier]
    if isinstance(identifier, Callable) and not isinstance(identifier, type | Loss):
        return lookup(identifier, "loss", NAMES, custom_objects)
    return as_loss(identifier, custom_objects)


deserialize = deserializer(get)


def as_loss(
    identifier: Named | None, custom_objects: Mapping[str, Any] | None = None
) -> Loss | None:
    """Returns the `Loss` for an identifier of `get`; wraps a function, as `compile` of Keras.

    Example:
        >>> as_loss("mse")([[0.0], [0.0]], [[1.0], [3.0]])
        Array(5., dtype=float32)
    """
    loss = lookup(_without_class(identifier), "loss", NAMES, custom_objects)
    if loss is None or isinstance(loss, Loss):
        return loss
    # the class instead of a wrapper: classes check targets and serialize by Keras's name
    if isinstance(loss, Callable) and loss in _BY_FUNCTION:
        return _BY_FUNCTION[loss]()
    return LossFunctionWrapper(loss, name=getattr(loss, "__name__", None))


def _without_class(identifier: Named | None) -> Any:
    # Keras serializes a plain function as {"class_name": "function", "config": its name}
    is_function = isinstance(identifier, Mapping) and identifier.get("class_name") == "function"
    return entry(identifier, "config", str) if is_function else identifier


def kind_of_classes(y_true: HasShape, y_pred: HasShape) -> str:
    """Returns how targets and predictions of these shapes encode classes.

    Returns:
        "binary" for predictions of one unit, "sparse" for class numbers, else "categorical".
    """
    true, pred = tuple(y_true.shape), tuple(y_pred.shape)
    if pred and pred[-1] == 1:
        return "binary"
    if len(true) < len(pred) or (true and true[-1] == 1 and pred[-1] != 1):
        return "sparse"
    return "categorical"


def resolve(identifier: Named | None, y_true: HasShape, y_pred: HasShape) -> Loss | None:
    """Returns the loss for an identifier; "crossentropy" or "ce" selects by the shapes.

    Args:
        identifier: an identifier for `get`, "crossentropy" or "ce".
        y_true: an object with the targets' `shape`.
        y_pred: an object with the predictions' `shape`.

    Returns:
        A `Loss`, or None for None. "crossentropy" selects `BinaryCrossentropy` for predictions of
        one unit, `SparseCategoricalCrossentropy` for class numbers, else `CategoricalCrossentropy`.

    Raises:
        ValueError: if the name is unknown; suggests the nearest name.
        TypeError: if `identifier` has an unsupported type.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> loss = fk.losses.resolve("crossentropy", jnp.zeros(8), jnp.zeros((8, 10)))
        >>> loss, loss([1], [[0.5, 0.5]])
        (SparseCategoricalCrossentropy(), Array(0.6931472, dtype=float32))
    """
    if not isinstance(identifier, str) or identifier.lower() not in ("crossentropy", "ce"):
        return as_loss(identifier)
    kind = kind_of_classes(y_true, y_pred)
    if kind == "binary":
        return probabilistic.BinaryCrossentropy()
    if kind == "sparse":
        return probabilistic.SparseCategoricalCrossentropy()
    return probabilistic.CategoricalCrossentropy()

"""Class numbers from labels, one-hot vectors, scores and names, for displays of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine.messages.errors import describe_value, suggest


def class_names_of(where: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns the checked names of the classes, or None."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise TypeError(
            f"{where}: class_names: expected a list of names, received {describe_value(names)}. Write "
            "class_names=['cat', 'dog']."
        )
    texts = tuple(str(name) for name in names)
    repeated = next((name for name in texts if texts.count(name) > 1), None)
    if not texts or repeated is not None:
        problem = "an empty list" if not texts else f"{repeated!r} twice"
        raise ValueError(
            f"{where}: class_names: expected different names, one for each class, received {problem}."
        )
    return texts


def classes_of(
    where: str, argument: str, values: Any, names: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Returns the class number of each row, the score of this class, and the number of classes.

    Args:
        where: the function that received the values.
        argument: the argument that holds the values.
        values: class numbers `(b,)`, names of classes `(b,)`, scores or one-hot vectors `(b, classes)`,
            or probabilities of the second of two classes, `(b,)` or `(b, 1)`.
        names: the names of the classes, or None.

    Returns:
        The scores are None for class numbers and names. The number of classes is the smallest that the
        values allow.

    Raises:
        TypeError: for values that are neither numbers nor names.
        ValueError: for other shapes, NaN, and a class that does not exist.
    """
    where = f"{where}: {argument}"
    array = np.asarray(values)
    if array.dtype.kind in "OSU":
        return _named(where, array, names), None, 0
    if jnp.issubdtype(array.dtype, jnp.floating):  # also bfloat16, which NumPy does not know
        array = array.astype("float64")
    elif array.dtype.kind not in "biu":
        raise TypeError(
            f"{where}: expected class numbers, names or scores, received an array of {array.dtype}."
        )
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise ValueError(
            f"{where}: expected class numbers of shape (b,) or scores of shape (b, classes), received "
            f"the shape {array.shape}. Reshape it: y.reshape(-1) makes one row for each element."
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        row = int(np.argwhere(np.isnan(array))[0][0])
        raise ValueError(f"{where}: expected numbers, received NaN in row {row}.")
    if array.ndim == 2 and array.shape[1] > 1:
        if names is not None and array.shape[1] > len(names):
            raise ValueError(
                f"{where}: expected {len(names)} columns, one for each of class_names, received "
                f"{array.shape[1]}."
            )
        numbers = array.argmax(-1)
        scores = np.take_along_axis(array, numbers[:, None], 1)[:, 0]
        return _in_range(where, numbers, names), scores, array.shape[1]
    array = array.reshape(len(array))
    if array.dtype.kind in "biu":
        return _in_range(where, array.astype("int64"), names), None, 0
    if ((array >= 0) & (array <= 1)).all():  # Keras's threshold of binary accuracy
        numbers = (array > 0.5).astype("int64")
        scores = None if (array == numbers).all() else np.where(numbers, array, 1 - array)
        return _in_range(where, numbers, names), scores, 2
    if (array == np.round(array)).all():
        return _in_range(where, array.astype("int64"), names), None, 0
    raise ValueError(
        f"{where}: expected class numbers, or probabilities from 0 to 1, received "
        f"{float(array[(array < 0) | (array > 1)][0]):.4g}. For logits of two classes write logits > 0."
    )


def _named(where: str, array: np.ndarray, names: tuple[str, ...] | None) -> np.ndarray:
    if names is None:
        raise ValueError(
            f"{where}: expected class numbers, received names without class_names. Write "
            "class_names=['cat', 'dog'], in the order of the class numbers."
        )
    if array.ndim != 1:
        raise ValueError(f"{where}: expected names of shape (b,), received {array.shape}.")
    texts = [value.decode() if isinstance(value, bytes) else str(value) for value in array]
    index = {name: number for number, name in enumerate(names)}
    unknown = next((text for text in texts if text not in index), None)
    if unknown is not None:
        raise ValueError(
            f"{where}: expected names among class_names, received {unknown!r}."
            f"{suggest(unknown, names)}"
        )
    return np.asarray([index[text] for text in texts], "int64")


def _in_range(where: str, numbers: np.ndarray, names: tuple[str, ...] | None) -> np.ndarray:
    wrong = numbers < 0
    if names is not None:
        wrong |= numbers >= len(names)
    if wrong.any():
        row = int(np.argmax(wrong))
        limit = "0 or more" if names is None else f"0 to {len(names) - 1}, as class_names has them"
        raise ValueError(
            f"{where}: expected class numbers of {limit}, received {int(numbers[row])} in row {row}."
        )
    return numbers

"""`confusion_matrix`: how often each class was predicted as each class."""

from __future__ import annotations

import dataclasses
import functools
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.migration_hints.arguments import explains_arguments
from fkeras.utils.classes import class_names_of, classes_of

# a larger table is not readable: the most frequent mistakes are shown instead
_MOST_SHOWN = 30
_RIGHT, _WRONG = "59,130,246", "220,38,38"


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ConfusionMatrix:
    """Numbers of samples by label (rows) and predicted class (columns); `confusion_matrix` makes it.

    Printed, it is a table; a notebook shows colors too. `np.asarray(matrix)` is the array `counts`.

    Attributes:
        counts: `(classes, classes)`; element `[i, j]` counts the samples of class i that were
            predicted as class j.
        class_names: the names of the classes.

    Example:
        >>> import fkeras as fk
        >>> matrix = fk.utils.confusion_matrix([0, 0, 1], [0, 1, 1])
        >>> matrix.accuracy, matrix.recall.tolist(), matrix.mistakes()
        (0.6666666666666666, [0.5, 1.0], [('0', '1', 1)])
    """

    counts: np.ndarray
    class_names: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of right predictions; NaN without samples."""
        return float(_shares(np.trace(self.counts), self.counts.sum()))

    @property
    def recall(self) -> np.ndarray:
        """The share of right predictions among the samples of each class; NaN for a missing class."""
        return _shares(np.diag(self.counts), self.counts.sum(1))

    @property
    def precision(self) -> np.ndarray:
        """The share of right predictions among the predictions of each class; NaN without predictions."""
        return _shares(np.diag(self.counts), self.counts.sum(0))

    def mistakes(self, limit: int = 10) -> list[tuple[str, str, Any]]:
        """Returns the most frequent mistakes: label, prediction and number of samples.

        Args:
            limit: largest number of mistakes.
        """
        wrong = np.where(np.eye(len(self.counts), dtype=bool), 0, self.counts)
        order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
        pairs = (divmod(int(n), len(self.counts)) for n in order)
        return [
            (self.class_names[row], self.class_names[column], wrong[row, column].item())
            for row, column in pairs
            if wrong[row, column]
        ]

    def plot(self, axes: Any = None) -> Any:
        """Draws the matrix with matplotlib.

        Args:
            axes: axes of matplotlib to draw in; a new figure by default.

        Returns:
            The figure, for example for `figure.savefig("confusion.png")`.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise missing_package("ConfusionMatrix.plot", "matplotlib", error) from error
        size = len(self.counts)
        if axes is None:
            side = min(2.0 + 0.4 * size, 16.0)
            figure: Any = Figure(figsize=(side, side), layout="constrained")
            # notebooks know matplotlib's figures only after pyplot was imported
            figure._repr_png_ = functools.partial(_png, figure)
            axes = figure.subplots()
        shares = np.nan_to_num(_shares(self.counts, self.counts.sum(1, keepdims=True)))
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if size <= _MOST_SHOWN:
            for row, column in np.argwhere(self.counts):
                color = "white" if shares[row, column] > 0.5 else "black"
                text = count_text(self.counts[row, column])
                axes.text(column, row, text, ha="center", va="center", color=color)
            turned = 90 if max(map(len, self.class_names)) > 3 else 0
            axes.set_xticks(range(size), self.class_names, rotation=turned)
            axes.set_yticks(range(size), self.class_names)
        axes.set(xlabel="prediction", ylabel="label")
        return axes.figure

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.counts.astype(self.counts.dtype if dtype is None else dtype)

    def __repr__(self) -> str:
        if len(self.counts) > _MOST_SHOWN:
            pairs = (f"  {a} as {b}: {count_text(count)}" for a, b, count in self.mistakes())
            return "\n".join(
                [f"{self._totals()}, {len(self.counts)} classes; most frequent:", *pairs]
            )
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join(
                text.rjust(width) if n else text.ljust(width)
                for n, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )
        return "\n".join([*(line.rstrip() for line in lines), self._totals()])

    def _rows(self) -> list[list[str]]:
        """Returns the cells of the table, with headings, recall and precision."""
        rows = [["label \\ prediction", *self.class_names, "recall"]]
        for name, row, share in zip(self.class_names, self.counts, self.recall, strict=True):
            rows.append([name, *map(count_text, row), _percent(share)])
        return [*rows, ["precision", *map(_percent, self.precision), ""]]

    def _totals(self) -> str:
        return f"accuracy {_percent(self.accuracy)} of {count_text(self.counts.sum())}"

    def _repr_html_(self) -> str:
        """Returns the table with a color for each share of a label's samples, for notebooks."""
        if len(self.counts) > _MOST_SHOWN:
            return f"<pre>{html.escape(repr(self))}</pre>"
        shares = np.nan_to_num(_shares(self.counts, self.counts.sum(1, keepdims=True)))
        head, *rows = self._rows()
        size = len(self.counts)
        body = []
        for r, row in enumerate(rows):
            cells = []
            for c, text in enumerate(row):
                style = "text-align:right" if c else "text-align:left"
                if r < size and 0 < c <= size and shares[r, c - 1]:
                    color = _RIGHT if r == c - 1 else _WRONG
                    style += f";background:rgba({color},{0.8 * shares[r, c - 1]:.2f})"
                cells.append(f'<td style="{style}">{html.escape(text)}</td>')
            body.append(f"<tr>{''.join(cells)}</tr>")
        headings = "".join(f"<th>{html.escape(text)}</th>" for text in head)
        return (
            f'<div style="overflow:auto"><table><thead><tr>{headings}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table><div>{html.escape(self._totals())}</div></div>"
        )


@explains_arguments
def confusion_matrix(
    labels: Any,
    predictions: Any,
    *,
    class_names: Sequence[str] | None = None,
    sample_weight: Any = None,
) -> ConfusionMatrix:
    """Counts how often each class was predicted as each class.

    Args:
        labels: class numbers `(b,)`, one-hot vectors `(b, classes)`, or names among `class_names`.
        predictions: scores `(b, classes)`, whose largest counts; class numbers `(b,)`; probabilities
            of the second of two classes, `(b,)` or `(b, 1)`; or names. `trainer.predict` and
            `model(x)` return scores.
        class_names: the names of the classes, in the order of their numbers.
        sample_weight: a weight for each sample, `(b,)`; the counts are then sums of weights.

    Returns:
        The matrix, with accuracy, recall and precision.

    Raises:
        TypeError: for values that are neither numbers nor names.
        ValueError: for different numbers of labels and predictions, no samples, and classes that do
            not exist.

    Example:
        >>> import fkeras as fk
        >>> scores = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]
        >>> fk.utils.confusion_matrix([0, 1, 0], scores, class_names=["cat", "dog"])
        label \\ prediction    cat    dog  recall
        cat                     1      1   50.0%
        dog                     0      1  100.0%
        precision          100.0%  50.0%
        accuracy 66.7% of 3
    """
    return count_pairs("confusion_matrix", labels, predictions, class_names, sample_weight)


def count_pairs(
    where: str,
    labels: Any,
    predictions: Any,
    class_names: Sequence[str] | None,
    sample_weight: Any,
) -> ConfusionMatrix:
    """Returns the matrix of `confusion_matrix`; `where` names the function in messages."""
    names = class_names_of(where, class_names)
    rows, _, first = classes_of(where, "labels", labels, names)
    columns, _, second = classes_of(where, "predictions", predictions, names)
    if len(rows) != len(columns):
        raise ValueError(
            f"{where}: expected as many predictions as labels, received {len(columns)} predictions "
            f"and {len(rows)} labels."
        )
    if not len(rows) and names is None:
        raise ValueError(
            f"{where}: expected at least one sample, received none. Pass class_names for an empty matrix."
        )
    largest = max((int(n) + 1 for n in (*rows, *columns)), default=0)
    size = max(first, second, largest) if names is None else len(names)
    counts = np.zeros((size, size), "int64" if sample_weight is None else "float64")
    np.add.at(counts, (rows, columns), _weights(where, sample_weight, len(rows)))
    counts.flags.writeable = False
    return ConfusionMatrix(counts, names or tuple(map(str, range(size))))


def _weights(where: str, weights: Any, count: int) -> Any:
    if weights is None:
        return 1
    array = np.asarray(weights, "float64")
    if array.shape != (count,) or not np.isfinite(array).all():
        received = (
            f"the shape {array.shape}" if array.shape != (count,) else describe_value(weights)
        )
        raise ValueError(
            f"{where}: sample_weight: expected a finite number for each of {count} samples, received "
            f"{received}."
        )
    return array


def _shares(part: Any, whole: Any) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.true_divide(part, whole)


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.1%}"


def count_text(count: Any) -> str:
    """Returns a number of samples, or a sum of weights, as text."""
    return f"{int(count):,}" if count == int(count) else f"{count:,.2f}"


def _png(figure: Any) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=100)
    return data.getvalue()

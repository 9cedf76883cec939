"""`classification_report`: precision, recall and F1 score of each class, as a table."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.utils.confusion import ConfusionMatrix, count_pairs, count_text


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ClassificationReport:
    """Precision, recall and F1 score of each class; `classification_report` makes it.

    Printed, it is a table with the means over the classes. A quotient without samples is 0.

    Attributes:
        matrix: the confusion matrix of all numbers.

    Example:
        >>> import fkeras as fk
        >>> report = fk.utils.classification_report([0, 0, 1], [0, 1, 1])
        >>> report.precision.tolist(), report.recall.tolist(), report.support.tolist()
        ([1.0, 0.5], [0.5, 1.0], [2, 1])
    """

    matrix: ConfusionMatrix

    @property
    def precision(self) -> np.ndarray:
        """The share of right predictions among the predictions of each class."""
        return np.nan_to_num(self.matrix.precision)

    @property
    def recall(self) -> np.ndarray:
        """The share of right predictions among the samples of each class."""
        return np.nan_to_num(self.matrix.recall)

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of precision and recall of each class."""
        counts = self.matrix.counts
        both = counts.sum(0) + counts.sum(1)
        return np.divide(2.0 * np.diag(counts), both, out=np.zeros(len(counts)), where=both != 0)

    @property
    def support(self) -> np.ndarray:
        """The number of samples of each class, or the sum of their weights."""
        return self.matrix.counts.sum(1)

    @property
    def accuracy(self) -> float:
        """The share of right predictions; NaN without samples."""
        return self.matrix.accuracy

    @property
    def macro(self) -> tuple[float, float, float]:
        """Precision, recall and F1 score as means over the classes."""
        return self._means(np.ones(len(self.support)))

    @property
    def weighted(self) -> tuple[float, float, float]:
        """Precision, recall and F1 score as means over the classes, weighted by `support`."""
        return self._means(self.support)

    def _means(self, weights: np.ndarray) -> Any:
        total = float(weights.sum()) or 1.0
        columns = self.precision, self.recall, self.f1
        return tuple(float((column * weights).sum()) / total for column in columns)

    def __repr__(self) -> str:
        samples = self.support.sum()
        rows: list[tuple[Any, ...]] = [("", "precision", "recall", "f1", "support")]
        columns = self.precision, self.recall, self.f1, self.support
        rows += zip(self.matrix.class_names, *columns, strict=True)
        rows.append(("accuracy", "", "", self.accuracy, samples))
        rows.append(("macro mean", *self.macro, samples))
        rows.append(("weighted mean", *self.weighted, samples))
        texts = [
            [
                str(row[0]),
                *map(_share, row[1:4]),
                row[4] if isinstance(row[4], str) else count_text(row[4]),
            ]
            for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in texts
        ]
        return "\n".join([*lines[: len(columns[0]) + 1], "", *lines[len(columns[0]) + 1 :]])

    def _repr_html_(self) -> str:
        """Returns the table in letters of one width, for notebooks."""
        return f"<pre>{html.escape(repr(self))}</pre>"


def classification_report(
    labels: Any,
    predictions: Any,
    *,
    class_names: Sequence[str] | None = None,
    sample_weight: Any = None,
) -> ClassificationReport:
    """Computes precision, recall, F1 score and number of samples of each class.

    Args:
        Arguments: those of `confusion_matrix`.

    Returns:
        The report, which is a table when printed, with accuracy and means.

    Raises:
        Exceptions: those of `confusion_matrix`.

    Example:
        >>> import fkeras as fk
        >>> scores = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]
        >>> fk.utils.classification_report([0, 1, 0], scores, class_names=["cat", "dog"])
                       precision  recall     f1  support
        cat                1.000   0.500  0.667        2
        dog                0.500   1.000  0.667        1
        <BLANKLINE>
        accuracy                          0.667        3
        macro mean         0.750   0.750  0.667        3
        weighted mean      0.833   0.667  0.667        3
    """
    where = "classification_report"
    return ClassificationReport(count_pairs(where, labels, predictions, class_names, sample_weight))


def _share(value: Any) -> str:
    return value if isinstance(value, str) else "-" if np.isnan(value) else f"{value:.3f}"

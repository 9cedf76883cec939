"""Classification reports: the numbers of scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics

import fkeras as fk
from fkeras.utils import classification_report

RNG = np.random.default_rng(0)
LABELS, CLASSES = RNG.integers(0, 4, (2, 50))
CLASSES[CLASSES == 2] = 1  # a class without predictions


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_equal_scikit_learn(weighted):
    weight = RNG.random(50) if weighted else None
    report = classification_report(LABELS, CLASSES, sample_weight=weight)
    expected = sklearn.metrics.precision_recall_fscore_support(
        LABELS, CLASSES, sample_weight=weight, zero_division=0
    )
    received = report.precision, report.recall, report.f1, report.support
    for ours, theirs in zip(received, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    for average, means in (("macro", report.macro), ("weighted", report.weighted)):
        expected = sklearn.metrics.precision_recall_fscore_support(
            LABELS, CLASSES, sample_weight=weight, average=average, zero_division=0
        )
        np.testing.assert_allclose(means, expected[:3], rtol=1e-6)
    accuracy = sklearn.metrics.accuracy_score(LABELS, CLASSES, sample_weight=weight)
    assert report.accuracy == pytest.approx(accuracy)
    assert "accuracy" in repr(report) and report._repr_html_().startswith("<pre>")


def test_empty_reports_and_mistakes():
    empty = classification_report([], [], class_names=["a", "b"])
    assert empty.f1.tolist() == [0, 0] and empty.macro == (0, 0, 0) and " - " in repr(empty)
    with pytest.raises(ValueError, match="classification_report: expected as many predictions"):
        classification_report([1, 0], [1])
    assert fk.utils.confusion_matrix(LABELS, CLASSES).counts.sum() == 50

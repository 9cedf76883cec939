"""Calibration error: compared with a loop over the bins."""

import jax
import numpy as np
import pytest

from fkeras import metrics

RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(60, 4)).astype("float32")
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = RNG.integers(0, 4, 60)


def compute(metric, *arguments, **options):
    return float(
        jax.jit(lambda *a: metric.result(metric.update(metric.init(), *a, **options)))(*arguments)
    )


def loop(confidence, correct, weight, bins, norm):
    gaps, shares = [], []
    for n in range(bins):
        inside = (confidence > n / bins) & (confidence <= (n + 1) / bins)
        total = weight[inside].sum()
        if total:
            means = [(a[inside] * weight[inside]).sum() / total for a in (confidence, correct)]
            gaps.append(abs(means[0] - means[1]))
            shares.append(total / weight.sum())
    gaps, shares = np.array(gaps), np.array(shares)
    if norm == "max":
        return gaps.max()
    return (shares * gaps).sum() if norm == "l1" else np.sqrt((shares * gaps**2).sum())


@pytest.mark.parametrize("norm", ["l1", pytest.param("l2", marks=pytest.mark.exhaustive), "max"])
def test_bins_equal_a_loop(norm):
    correct = (SHARES.argmax(1) == LABELS).astype("float64")
    weight = RNG.integers(0, 3, 60).astype("float32")
    expected = loop(SHARES.max(1), correct, weight, 7, norm)
    arguments = {
        "labels": (metrics.CalibrationError(7, norm), LABELS, SHARES),
        "logits": (
            metrics.CalibrationError(7, norm, True),
            np.eye(4, dtype="float32")[LABELS],
            LOGITS,
        ),
    }
    for metric, y_true, y_pred in arguments.values():
        assert compute(metric, y_true, y_pred, weight) == pytest.approx(expected, rel=1e-4)


@pytest.mark.exhaustive
def test_one_unit_compares_the_probability_of_class_1():
    p, y = SHARES[:, :1], (LABELS == 0).astype("float32")
    expected = loop(p[:, 0], y.astype("float64"), np.ones(60), 15, "l1")
    for targets in (y, y[:, None], y.astype("int32")):
        assert compute(metrics.CalibrationError(), targets, p) == pytest.approx(expected, rel=1e-4)
    logits = np.log(p / (1 - p))
    metric = metrics.CalibrationError(from_logits=True)
    assert compute(metric, y, logits) == pytest.approx(expected, rel=1e-3)
    assert compute(
        metrics.CalibrationError(), np.ones(3), np.array([[0.0], [1.0], [1.0]])
    ) == pytest.approx(1 / 3)


@pytest.mark.exhaustive
def test_nan_and_labels_out_of_range_are_nan_unless_they_weigh_nothing():
    metric = metrics.CalibrationError()
    labels, shares = np.where(np.arange(60) == 3, 9, LABELS), SHARES.copy()
    shares[4] = np.nan
    weight = np.ones(60, "float32")
    weight[3:5] = 0
    keep = weight > 0
    expected = compute(metric, LABELS[keep], SHARES[keep])
    assert compute(metric, labels, shares, weight) == pytest.approx(expected, rel=1e-5)
    assert np.isnan(compute(metric, labels, SHARES)) and np.isnan(compute(metric, LABELS, shares))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.CalibrationError(0), "bins: expected"),
        (lambda: metrics.CalibrationError(norm="l3"), "norm: expected"),
        (lambda: compute(metrics.CalibrationError(), LABELS[:5], SHARES), "expected class numbers"),
        (
            lambda: compute(metrics.CalibrationError(), SHARES[:5], SHARES),
            "targets of the predictions' shape",
        ),
    ],
)
def test_messages(call, words):
    with pytest.raises(ValueError, match=words):
        call()

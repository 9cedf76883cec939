"""Properties of metrics on data from hypothesis: states of parts merge to the state of the whole.

`merge(a, b)` is the state of the concatenation, for every metric, order and split. The exceptions, whose
numbers depend on the batch itself, are listed with reasons.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkeras import metrics
from tests.metrics.test_metrics import CASES, CLASSES, LABELS, ONE_HOT, SCORES, batches, sums

ROWS = 6
# a batch decides here, so that the state of a part depends on what else is in it
EXCEPTIONS = (
    (metrics.Hinge(), "targets that are all 0 or 1 in a batch are read as -1 and 1"),
    (metrics.SquaredHinge(), "targets that are all 0 or 1 in a batch are read as -1 and 1"),
    (metrics.CosineSimilarity(axis=0), "the vectors lie along the batch axis"),
    (metrics.PearsonCorrelation(axis=0), "the correlation goes along the batch axis"),
    (metrics.ConcordanceCorrelation(axis=0), "the correlation goes along the batch axis"),
)
# one metric of each way of gathering
DRAWN = (
    (metrics.Mean(), "values"),
    (metrics.Sum(), "values"),
    (metrics.MeanSquaredError(), "numbers"),
    (metrics.RootMeanSquaredError(), "numbers"),
    (metrics.R2Score(None), "numbers"),
    (metrics.PearsonCorrelation(), "numbers"),
    (metrics.SparseCategoricalCrossentropy(ignore_class=1), LABELS),
    (metrics.SparseTopKCategoricalAccuracy(2), LABELS),
    (metrics.AUC(num_thresholds=5), "binary"),
    (metrics.AUC(multi_label=True, thresholds=[0.3, 0.5]), "binary"),
    (metrics.Precision(top_k=2, class_id=1), "binary"),
    (metrics.FalseNegatives([0.2, 0.6]), "binary"),
    (metrics.RecallAtPrecision(0.5, num_thresholds=5), "binary"),
    (metrics.F1Score("weighted"), ONE_HOT),
    (metrics.OneHotMeanIoU(4, dtype="float32"), ONE_HOT),
    (metrics.IoU(4, [0, 1], ignore_class=2, dtype="float32"), CLASSES),
    (metrics.BinaryIoU(dtype="float32"), SCORES),
    (metrics.RecallAtK(2), LABELS),
    (metrics.NDCG(3, sparse_y_true=False), "numbers"),
    (metrics.CalibrationError(5), LABELS),
    (metrics.TokenErrorRate(), "tokens"),
)


def rows(kind, seed):
    if kind == "values":
        rng = np.random.default_rng(seed)
        return tuple(rng.normal(size=(2, ROWS)).astype("float32"))
    if kind == "tokens":
        rng = np.random.default_rng(seed)
        weight = rng.random(ROWS).astype("float32")
        return *rng.integers(0, 4, (2, ROWS, 4)).astype("int32"), weight
    (y_true, y_pred, weight), *_ = batches(kind, seed, sizes=(ROWS,))
    return y_true, y_pred, weight


@functools.cache
def program(metric, shapes):
    """The states of two masked parts merged, and that of all rows: one program for all cuts."""
    empty = metric.init(jax.ShapeDtypeStruct((ROWS, 4), "float32"))

    @jax.jit
    def run(arrays, mask, cut):
        first = jnp.arange(ROWS) < cut
        a, b = (metric.update(empty, *arrays, mask=mask & part) for part in (first, ~first))
        full_state = metric.update(empty, *arrays, mask=mask)
        forth, back = metric.merge(a, b), metric.merge(b, a)
        return forth, back, full_state, metric.merge(full_state, empty), metric.result(forth)

    return run


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("metric", "kind"), DRAWN, ids=lambda v: repr(v))
def test_merging_equals_updating_on_the_concatenation(metric, kind):
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 2**16),
        cut=st.integers(0, ROWS),
        mask=st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
    )
    def holds(seed, cut, mask):
        arrays = rows(kind, seed)
        run = program(metric, tuple(a.shape for a in arrays))
        forth, back, full_state, alone, result = run(arrays, np.array(mask), cut)
        for other in (forth, back, alone):
            for name, expected in sums(full_state).items():
                np.testing.assert_allclose(sums(other)[name], expected, 1e-5, 1e-5)
        assert np.isfinite(result).all()

    holds()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("metric", "reason"), EXCEPTIONS, ids=lambda v: repr(v)[:40])
def test_metrics_without_additive_states(metric, reason):
    assert reason
    y_true = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [0.5, 2.0, 0.0]])
    y_pred = np.array([[0.5, -1.0, 2.0], [1.0, 0.5, 0.3], [0.2, 0.7, -1.0], [2.0, 1.0, 0.4]])
    y_true, y_pred = y_true.astype("float32"), y_pred.astype("float32")

    @jax.jit
    def both(y_true, y_pred):
        rows = slice(1), slice(1, 4), slice(4)
        *parts, full_state = [metric.update(metric.init(), y_true[i], y_pred[i]) for i in rows]
        return [metric.result(state) for state in (metric.merge(*parts), full_state)]

    result, expected = map(float, both(y_true, y_pred))
    assert not np.isclose(result, expected, rtol=1e-3)


def test_every_public_metric_is_merged_somewhere():
    """In the rows of test_metrics.py, where parts merge to the whole, or above."""
    bases = {"MeanMetric", "MeanMetricWrapper", "Metric"}
    public = {getattr(metrics, name) for name in metrics.__all__}
    classes = {c.__name__ for c in public if isinstance(c, type)} - bases
    assert classes == {type(metric).__name__ for metric, _ in (*CASES, *DRAWN)}


@pytest.mark.exhaustive
def test_states_of_several_devices_merge():
    metric = metrics.AUC(num_thresholds=5)
    y_true, y_pred, weight = rows("binary", 0)
    devices, update = jax.devices()[:2], jax.jit(metric.update)
    states = [
        update(metric.init(), *(jax.device_put(a[i], d) for a in (y_true, y_pred, weight)))
        for i, d in zip((slice(3), slice(3, 6)), devices, strict=True)
    ]
    gathered = [jax.device_put(s, devices[0]) for s in states]
    full_state = update(metric.init(), y_true, y_pred, weight)
    merged = jax.jit(lambda *parts: metric.result(metric.merge(*parts)))(*gathered)
    np.testing.assert_allclose(merged, jax.jit(metric.result)(full_state), rtol=1e-6)

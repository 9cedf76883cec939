"""Retrieval metrics: compared with scikit-learn and with sets of items."""

import jax
import numpy as np
import pytest
import sklearn.metrics

import fkeras as fk
from fkeras import metrics

RNG = np.random.default_rng(0)
SCORES = RNG.permuted(np.tile(np.arange(7, dtype="float32"), (5, 1)), axis=1)
RELEVANT = np.array([[1, 3, -1], [0, 1, 2], [6, -1, -1], [-1, -1, -1], [5, 4, -1]], "int32")
GRADES = RNG.integers(0, 4, (5, 7)).astype("float32")


def compute(metric, *arguments, **options):
    return float(
        jax.jit(lambda *a: metric.result(metric.update(metric.init(), *a, **options)))(*arguments)
    )


@pytest.mark.parametrize("k", [3, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_numbers_of_items_equal_sets_and_the_formula(k):
    order = np.argsort(-SCORES, axis=1)
    first = order[:, :k]
    sets = [set(row[row >= 0].tolist()) for row in RELEVANT]
    recalls = [len(s & set(f.tolist())) / len(s) for s, f in zip(sets, first, strict=True) if s]
    matrix = np.array([[float(item in s) for item in range(7)] for s in sets], "float32")
    queries = [n for n, s in enumerate(sets) if s]
    gains = sklearn.metrics.ndcg_score(matrix[queries], SCORES[queries], k=k)
    for name, expected in (("RecallAtK", np.mean(recalls)), ("NDCG", gains)):
        cls = getattr(metrics, name)
        assert compute(cls(k), RELEVANT, SCORES) == pytest.approx(expected, rel=1e-5)
        by_ids = cls(k, from_sorted_ids=True)
        assert compute(by_ids, RELEVANT, order) == pytest.approx(expected, rel=1e-5)
        assert compute(cls(k, sparse_y_true=False), matrix, SCORES) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.exhaustive
def test_graded_relevance_equals_scikit_learn():
    expected = sklearn.metrics.ndcg_score(GRADES, SCORES, k=4)
    metric = metrics.NDCG(4, sparse_y_true=False)
    assert compute(metric, GRADES, SCORES) == pytest.approx(expected, rel=1e-5)
    weight = np.array([1, 0, 2, 0, 1], "float32")
    each = np.array(
        [sklearn.metrics.ndcg_score(GRADES[n : n + 1], SCORES[n : n + 1], k=4) for n in range(5)]
    )
    expected = (each * weight).sum() / 4
    assert compute(metric, GRADES, SCORES, weight) == pytest.approx(expected, rel=1e-5)
    bad = SCORES.copy()
    bad[1] = np.nan
    assert compute(metric, GRADES, bad, weight) == pytest.approx(expected, rel=1e-5)
    assert np.isnan(compute(metric, GRADES, bad))


@pytest.mark.exhaustive
def test_one_item_for_each_query_in_a_training():
    x = np.eye(6, dtype="float32")
    inputs = fk.Input((6,))
    model = fk.Model(inputs, fk.layers.Dense(6, kernel_initializer="identity")(inputs))
    trainer = fk.Trainer(
        "sgd", fk.losses.SparseCategoricalCrossentropy(True), [metrics.RecallAtK(1)]
    )
    run = trainer.init(model, jax.random.key(0))
    logs = trainer.evaluate(run, x, np.array([0, 1, 2, 4, 3, 5]), verbose=0)
    assert logs["recall_at_k"] == pytest.approx(4 / 6)
    population = [compute(metrics.get(name), np.arange(6), x) for name in ("recall_at_k", "ndcg")]
    assert population == [1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.RecallAtK(0), "k: expected an integer of 1 or more|k: expected"),
        (
            lambda: compute(metrics.NDCG(), RELEVANT[:4], SCORES),
            r"expected predictions \(b, items\)",
        ),
        (lambda: compute(metrics.NDCG(), RELEVANT[:, 0], SCORES[:, 0]), r"received shapes \(5,\)"),
        (lambda: compute(metrics.NDCG(), RELEVANT[..., None], SCORES), "padded with -1"),
        (
            lambda: compute(metrics.NDCG(sparse_y_true=False), RELEVANT, SCORES),
            "sparse_y_true=True",
        ),
    ],
)
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()

"""Error rates of sequences: compared with a recursion over all edits."""

import functools

import jax
import numpy as np
import pytest

from fkeras import metrics
from fkeras.metrics.error_rates import edit_distances

RNG = np.random.default_rng(0)


def edits(a, b):
    @functools.cache
    def cost(i, j):
        if not i or not j:
            return i + j
        return min(
            cost(i - 1, j) + 1, cost(i, j - 1) + 1, cost(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        )

    return cost(len(a), len(b))


def test_distances_equal_the_recursion():
    a, b = RNG.integers(1, 4, (12, 6)), RNG.integers(1, 4, (12, 8))
    lengths, found = RNG.integers(0, 7, 12), RNG.integers(0, 9, 12)
    expected = [
        edits(tuple(x[:n]), tuple(y[:m])) for x, n, y, m in zip(a, lengths, b, found, strict=True)
    ]
    arrays = [np.asarray(x, "int32") for x in (a, lengths, b, found)]
    np.testing.assert_array_equal(jax.jit(edit_distances)(*arrays), expected)


@pytest.mark.exhaustive
def test_tokens_and_scores_without_padding():
    y = np.array([[1, 2, 0, 3], [0, 0, 0, 0], [2, -1, 2, 2]], "int32")
    p = np.array([[1, 0, 2, 2, 3], [0, 1, 0, 0, 0], [-1, 2, 2, 0, 0]], "int32")
    rows = [((1, 2, 3), (1, 2, 2, 3)), ((), (1,)), ((2, 2, 2), (2, 2))]
    counts = np.array([edits(*row) for row in rows])
    metric = metrics.TokenErrorRate()
    update = jax.jit(lambda *a: metric.result(metric.update(metric.init(), *a)))
    assert update(y, p) == pytest.approx(counts.sum() / 6)
    scores = np.eye(4, dtype="float32")[np.maximum(p, 0)]
    assert update(y, scores) == pytest.approx(counts.sum() / 6)
    weight = np.array([2.0, 0.0, 1.0], "float32")
    assert update(y, p, weight) == pytest.approx((counts * weight).sum() / 9)
    other = metrics.TokenErrorRate(padding=3)
    assert other.result(other.update(other.init(), [[3, 0]], [[0, 3]])) == 0
    assert metric.result(metric.update(metric.init(), np.zeros((1, 0)), np.zeros((1, 0)))) == 0
    for shapes in (((3,), (3, 5)), ((3, 4), (2, 5)), ((3, 4), (3, 5, 4, 1))):
        with pytest.raises(ValueError, match=r"targets \(b, t\) and predictions \(b, s\)"):
            metric.update(metric.init(), *(np.ones(shape, "int32") for shape in shapes))


def test_texts():
    assert metrics.word_error_rate("a b  c", "a x c d") == 2 / 3
    assert metrics.word_error_rate(["a b", "c"], ["a b", ""]) == 1 / 3
    assert metrics.character_error_rate(["kitten", "é"], ["sitting", "é"]) == 3 / 7
    assert metrics.word_error_rate("", "") == 0 and metrics.word_error_rate("", "a") == float("inf")
    words = ["".join(row) for row in RNG.choice(list("ab "), (8, 9))]
    for a, b in zip(words, reversed(words), strict=True):
        length = max(len(a.split()), 1)
        assert metrics.word_error_rate(a, b) * length == pytest.approx(
            edits(tuple(a.split()), tuple(b.split()))
        )
    with pytest.raises(TypeError, match="y_true: expected a text, .*TokenErrorRate"):
        metrics.word_error_rate([1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="received 1 predictions and 2 targets"):
        metrics.character_error_rate(["a", "b"], "a")

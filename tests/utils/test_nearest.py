"""Nearest items of a corpus: equal to the order of all scores, in parts."""

import numpy as np
import pytest

from fkeras.utils import nearest, nearest_items

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("most", [1 << 24, 50])
def test_items_are_those_of_all_scores(most, monkeypatch):
    monkeypatch.setattr(nearest, "_MOST_SCORES", most)
    queries, corpus = RNG.normal(size=(7, 4)).astype("float32"), RNG.normal(size=(20, 4))
    order = np.argsort(-(queries @ corpus.T), axis=1)
    ids = nearest_items(queries, corpus.astype("float32"), k=5)
    assert ids.dtype == "int32"
    np.testing.assert_array_equal(ids, order[:, :5])
    assert nearest_items(queries[:0], corpus.astype("float32"), k=5).shape == (0, 5)


@pytest.mark.parametrize(
    ("shapes", "k", "words"),
    [
        (((2, 3), (4, 5)), 1, r"received the shapes \(2, 3\) and \(4, 5\)"),
        (((3,), (4, 3)), 1, "expected queries"),
        (((2, 3), (4, 3)), 5, "k from 1 to 4"),
        (((2, 3), (4, 3)), 0, "k: expected"),
    ],
)
def test_mistakes(shapes, k, words):
    with pytest.raises(ValueError, match=words):
        nearest_items(*(np.zeros(shape) for shape in shapes), k=k)

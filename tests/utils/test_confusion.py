"""Confusion matrices of labels and predictions in all forms."""

import xml.etree.ElementTree as ElementTree

import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.utils import confusion_matrix

LABELS, CLASSES = [0, 1, 2, 2, 1], [0, 2, 2, 2, 1]
COUNTS = [[1, 0, 0], [0, 1, 1], [0, 0, 2]]
SCORES = np.eye(3, dtype="float32")[CLASSES] * 5 - 2
NAMES = ["ant", "bee", "cat"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        (LABELS, CLASSES),
        (np.asarray(LABELS, "uint8"), jnp.asarray(SCORES)),
        (np.asarray(LABELS, "float32"), jnp.asarray(SCORES, "bfloat16")),
        (np.eye(3)[LABELS], SCORES.tolist()),
        (np.reshape(LABELS, (5, 1)), np.reshape(CLASSES, (5, 1))),
        ([NAMES[n] for n in LABELS], np.asarray([NAMES[n] for n in CLASSES])),
        (np.asarray([NAMES[n] for n in LABELS], object), SCORES),
    ],
)
def test_all_forms_of_classes_give_the_same_counts(labels, predictions):
    names = NAMES if isinstance(np.asarray(labels).flat[0], str) else None
    matrix = confusion_matrix(labels, predictions, class_names=names)
    np.testing.assert_array_equal(matrix.counts, COUNTS)
    np.testing.assert_array_equal(np.asarray(matrix), COUNTS)
    assert matrix.class_names == (tuple(NAMES) if names else ("0", "1", "2"))


@pytest.mark.exhaustive
def test_the_counts_are_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    labels, predictions = random.integers(0, 4, (2, 200))
    weights = random.random(200)
    expected = sklearn.confusion_matrix(labels, predictions, sample_weight=weights)
    matrix = confusion_matrix(labels, predictions, sample_weight=weights)
    np.testing.assert_allclose(matrix.counts, expected)
    matrix = confusion_matrix(labels, predictions)
    np.testing.assert_allclose(
        matrix.recall, sklearn.recall_score(labels, predictions, average=None)
    )
    precision = sklearn.precision_score(labels, predictions, average=None)
    np.testing.assert_allclose(matrix.precision, precision)
    assert matrix.accuracy == pytest.approx(sklearn.accuracy_score(labels, predictions))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_probabilities_of_two_classes_have_the_threshold_of_keras(shape):
    probabilities = np.reshape([0.5, 0.51, 0.1, 1.0], shape)
    matrix = confusion_matrix([False, True, True, True], probabilities)
    np.testing.assert_array_equal(matrix.counts, [[1, 0], [1, 2]])


def test_classes_without_samples_have_no_recall():
    matrix = confusion_matrix([0, 0], [0, 1], class_names=NAMES)
    assert matrix.recall[0] == 0.5 and np.isnan(matrix.recall[1:]).all()
    assert np.isnan(matrix.precision[2])
    assert np.isnan(confusion_matrix([], [], class_names=NAMES).accuracy)
    assert repr(matrix).splitlines()[2].split() == ["bee", "0", "0", "0", "-"]


def test_a_matrix_prints_a_table_and_its_mistakes():
    matrix = confusion_matrix(LABELS, CLASSES, class_names=["ant", "<b>", "cat"])
    lines = repr(matrix).splitlines()
    assert lines[0].split() == ["label", "\\", "prediction", "ant", "<b>", "cat", "recall"]
    assert lines[2].split() == ["<b>", "0", "1", "1", "50.0%"]
    assert lines[-1] == "accuracy 80.0% of 5"
    assert matrix.mistakes() == [("<b>", "cat", 1)] and matrix.mistakes(0) == []
    html = matrix._repr_html_()
    cells = [cell.text for cell in ElementTree.fromstring(html).iter("td")]
    assert cells[:5] == ["ant", "1", "0", "0", "100.0%"]
    assert html.count("rgba(59,130,246") == 3 and html.count("rgba(220,38,38") == 1
    assert "<b>" not in html


@pytest.mark.exhaustive
def test_many_classes_show_the_most_frequent_mistakes():
    labels = np.arange(100) % 50
    matrix = confusion_matrix(labels, np.where(labels == 7, 8, labels))
    for text in (repr(matrix), matrix._repr_html_()):
        assert "7 as 8: 2" in text and "50 classes" in text and len(text) < 300


@pytest.mark.exhaustive
def test_matplotlib_draws_the_matrix():
    pytest.importorskip("matplotlib")
    figure = confusion_matrix(LABELS, CLASSES, class_names=NAMES).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["1", "1", "1", "2"]
    axes = figure.add_subplot()
    assert confusion_matrix(np.arange(40), np.arange(40)).plot(axes) is figure


@pytest.mark.parametrize(
    ("labels", "predictions", "options", "error", "message"),
    [
        ([0, 1], [0], {}, ValueError, "received 1 predictions and 2 labels"),
        ([], [], {}, ValueError, "at least one sample"),
        (
            [0, -1],
            [0, 1],
            {},
            ValueError,
            "labels: expected class numbers of 0 or more, received -1",
        ),
        ([0, 3], [0, 1], {"class_names": NAMES}, ValueError, "0 to 2.*received 3 in row 1"),
        ([0, 1], [0.5, np.nan], {}, ValueError, "predictions: .*received NaN in row 1"),
        ([0, 1], [0.2, -3.5], {}, ValueError, "For logits of two classes write logits > 0"),
        ([0, 1], np.zeros((2, 2, 2)), {}, ValueError, r"received the shape \(2, 2, 2\)"),
        (0, 1, {}, ValueError, r"received the shape \(\)"),
        (["ant"], [0], {}, ValueError, "received names without class_names"),
        (["ent"], [0], {"class_names": NAMES}, ValueError, "Did you mean 'ant'"),
        ([0], [0], {"class_names": "ant"}, TypeError, "expected a list of names"),
        ([0], [0], {"class_names": 3}, TypeError, "expected a list of names"),
        ([0], [0], {"class_names": ["a", "a"]}, ValueError, "received 'a' twice"),
        ([0], [0], {"class_names": []}, ValueError, "received an empty list"),
        ([0], [[1, 2, 3, 4]], {"class_names": NAMES}, ValueError, "expected 3 columns.*received 4"),
        ([0], [0], {"sample_weight": [1, 2]}, ValueError, r"the shape \(2,\)"),
        ([0], [0], {"sample_weight": [np.nan]}, ValueError, "sample_weight: expected a finite"),
        ([0], [1j], {}, TypeError, "received an array of complex128"),
    ],
)
def test_invalid_arguments_are_reported(labels, predictions, options, error, message):
    with pytest.raises(error, match=message):
        confusion_matrix(labels, predictions, **options)


def test_predictions_of_a_trainer_and_labels_make_a_matrix():
    assert isinstance(confusion_matrix(LABELS, SCORES), fk.utils.ConfusionMatrix)

"""The numbers of the page "Look inside a model" are those that the methods promise."""

import ast
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from tests.support import pages

pytest.importorskip("sklearn", reason="the pages read scikit-learn's digits")
pytest.importorskip("matplotlib")
PAGE = "guides/look_inside"
METHODS = ("logit", "integrated_gradients", "grad_cam", "sample_loss", "influences")


@pytest.fixture(scope="module")
def page():
    import matplotlib

    matplotlib.use("agg")
    return SimpleNamespace(**pages.run(PAGE))


def test_each_method_of_attribution_has_at_most_ten_lines():
    lengths = {}
    for cell in pages.cells(PAGE):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef) and node.name in METHODS:
                lengths[node.name] = sum(map(bool, cell.source.splitlines()))
    assert sorted(lengths) == sorted(METHODS)
    assert max(lengths.values()) <= 10, lengths


@pytest.mark.exhaustive
def test_the_training_records_the_watched_values(page):
    logged = page.history.history
    assert [name for name in logged if name.startswith("stream")] == [
        f"stream{i}_ib-0" for i in range(3)
    ]
    assert not [name for name in page.model.layers if name.endswith("_probe")]
    same = jax.tree.leaves(page.model)[0] is jax.tree.leaves(page.run.model)[0]
    assert same and np.mean(page.model(page.held_out).argmax(-1) == page.answers) > 0.85


@pytest.mark.exhaustive
def test_values_are_those_of_the_layers(page):
    conv = page.model.layers["conv"](page.held_out)
    np.testing.assert_allclose(page.values["conv_ib-0"], conv, rtol=1e-4, atol=1e-5)
    head = page.model.layers["head"]
    np.testing.assert_allclose(
        head(page.values["stream2_ib-0"]), page.outputs, rtol=1e-4, atol=1e-3
    )
    assert [key for key in page.share(page.three)[1]] == [
        f"block{i}_ib-0/expand_ib-0" for i in range(3)
    ]


@pytest.mark.exhaustive
def test_edits_move_the_answers(page):
    def difference(name, value):
        logits = fk.transforms.edit(page.model, {name: value})(page.six)[0]
        return float(logits[3] - logits[6])

    _, streams = fk.transforms.probe(page.model, "stream?")(page.three)
    whole = page.model(page.three)[0]
    # the stream is all that later layers read
    np.testing.assert_allclose(
        difference("stream0", streams["stream0_ib-0"]), whole[3] - whole[6], rtol=1e-4
    )
    assert page.answers_of.shape == (100, 50)
    assert page.changed.max() > 0.3
    assert jnp.mean(page.steered_six.argmax(-1) == 3) > 0.8


@pytest.mark.exhaustive
def test_integrated_gradients_are_complete(page):
    np.testing.assert_allclose(page.sums, page.differences, rtol=0.01, atol=0.05)
    assert np.abs(page.differences).min() > 1


@pytest.mark.exhaustive
def test_the_saliency_is_the_slope_of_the_logit(page):
    direction = np.zeros((8, 8, 1), "float32")
    direction[4, 4] = 1e-2
    picture, label = page.held_out[0], page.answers[0]
    change = page.logit(picture + direction, label) - page.logit(picture - direction, label)
    np.testing.assert_allclose(change / 2e-2, page.saliency[0, 4, 4, 0], rtol=0.1, atol=0.05)


@pytest.mark.exhaustive
def test_the_two_sides_of_the_convolution_are_the_model(page):
    np.testing.assert_allclose(
        page.back(page.front(page.held_out[:6])), page.outputs[:6], rtol=1e-4, atol=1e-3
    )
    assert page.heat.shape == (6, 8, 8) and page.heat.min() == 0 < page.heat.max()


@pytest.mark.exhaustive
def test_the_mean_of_sample_gradients_is_the_gradient_of_the_mean(page):
    def mean_loss(model):
        logits = model(page.held_out[:100])
        return optax.softmax_cross_entropy_with_integer_labels(logits, page.answers[:100]).mean()

    expected = jax.jit(jax.grad(mean_loss))(page.model)
    means = jax.tree.map(lambda leaf: leaf.mean(0), page.gradients)
    for mean, gradient in zip(jax.tree.leaves(means), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mean, gradient, rtol=1e-2, atol=1e-4)
    assert page.norms.shape == (100,)


@pytest.mark.exhaustive
def test_influences_agree_with_trainings_without_the_sample(page):
    gradient = jax.grad(page.objective)(page.best, page.weights)
    assert np.abs(gradient).max() < 1e-3  # Newton's method has found the minimum
    assert page.correlation > 0.9
    assert np.abs(page.true).max() > 1e-4

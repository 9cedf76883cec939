"""The recipes of the page "Change a trained model" compute what the page says."""

import ast
import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support import pages

pytest.importorskip("sklearn", reason="the pages read scikit-learn's digits")
PAGE = "guides/surgery"
NOT_RECIPES = ("", "Go on training", "What goes wrong")


@pytest.fixture(scope="module")
def page():
    return SimpleNamespace(**pages.run(PAGE))


@pytest.fixture(scope="module")
def compute(page):
    def compute(model, state, inputs=None):
        inputs = page.images[:8] if inputs is None else inputs
        return np.asarray(model(inputs, state=state))

    return compute


@pytest.fixture(scope="module")
def expected(page, compute):
    return compute(page.model, page.state)


def kernels(layer):
    return [k for k in jax.tree.leaves(layer) if k.ndim == 4]


def test_each_recipe_has_at_most_three_lines():
    recipes = [cell for cell in pages.cells(PAGE) if cell.section not in NOT_RECIPES]
    titles = {cell.section for cell in recipes}
    assert len(titles) >= 20
    for cell in recipes:
        if cell.hidden:
            continue
        # a last line that shows a result belongs to no recipe
        lines = cell.source.strip().splitlines()
        shows = isinstance(ast.parse(cell.source).body[-1], ast.Expr)
        assert len(lines) - shows <= 3, cell.section
        assert max(map(len, lines)) <= 100, cell.section


@pytest.mark.exhaustive
def test_heads_and_parts(page, compute, expected):
    hidden = compute(page.body, page.body_state)
    np.testing.assert_allclose(
        compute(page.classifier, page.classifier_state, hidden), expected, rtol=1e-4, atol=1e-5
    )
    features = compute(page.features, page.features_state)
    head = page.model.layers["head"]
    np.testing.assert_allclose(head(features), expected, rtol=1e-4, atol=1e-5)
    assert page.parity.outputs.shape == (None, 2)
    assert page.parity.layers["hidden"] is page.classifier.layers["hidden"]
    logits = page.heads(page.images[:8], state=page.state)
    np.testing.assert_allclose(logits["digit"], expected, rtol=1e-4, atol=1e-5)
    assert logits["even"].shape == (8, 2)
    depths = page.pyramid(page.images[:8], state=page.pyramid_state)
    assert [d.shape[1:] for d in depths] == [(8, 8, 8), (8, 8, 8), (32,)]
    np.testing.assert_allclose(page.model.layers["hidden"](hidden), depths[2], rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_another_backbone_and_an_ensemble(page, compute, expected):
    assert page.other.layers["head"] is page.model.layers["head"]
    assert list(page.other_state) == ["norm"] and len(kernels(page.other)) == 1
    assert compute(page.other, page.other_state).shape == (8, 10)
    state = {"first": page.state, "second": page.other_state}
    mean = (expected + compute(page.other, page.other_state)) / 2
    np.testing.assert_allclose(compute(page.ensemble, state), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_inputs(page, compute):
    assert page.larger.outputs.shape == (None, 20, 12, 8)
    large = np.zeros((1, 20, 12, 1), "float32")
    assert compute(page.larger, page.convolutions_state, large).shape == (1, 20, 12, 8)
    scaled = compute(page.scaled, page.scaled_state)
    by_hand = (page.images[:8] - 0.3) / np.sqrt(0.14)
    np.testing.assert_allclose(
        scaled, compute(page.model, page.state, by_hand), rtol=1e-3, atol=1e-3
    )


@pytest.mark.exhaustive
def test_new_words_are_the_mean_and_old_words_keep_their_logits(page):
    ids = np.arange(12)[None]
    old, new = np.asarray(page.language(ids)), np.asarray(page.more(ids))
    np.testing.assert_allclose(new[..., :20], old, rtol=1e-5, atol=1e-6)
    mean = np.repeat(old.mean(-1, keepdims=True), 5, -1)
    np.testing.assert_allclose(new[..., 20:], mean, rtol=1e-4, atol=1e-6)
    words = page.more.layers["words"]
    assert words.input_dim == 25 and len(page.more.graph.calls_of["words"]) == 2
    assert page.more(np.full((1, 12), 24)).shape == (1, 12, 25)


@pytest.mark.exhaustive
def test_layers_everywhere(page, compute, expected):
    norms = [
        m for _, m in fk.engine.sublayers(page.grouped) if type(m) is layers.GroupNormalization
    ]
    assert len(norms) == 5 and page.grouped_state == {}
    assert all(norm.epsilon == 1e-3 and norm.groups == 4 for norm in norms)
    assert kernels(page.grouped)[1] is kernels(page.model)[1]
    np.testing.assert_allclose(compute(page.dropped, page.dropped_state), expected, rtol=1e-5)
    assert page.dropped.layers["encoder"].layers["dropout_3"].rate == 0.1
    np.testing.assert_array_equal(compute(page.plain, page.state), expected)
    assert "drop" not in page.plain.layers
    acts = [type(m) for _, m in fk.engine.sublayers(page.smooth)]
    assert acts.count(layers.Activation) == 5 and layers.ReLU not in acts
    same = jax.tree.map(lambda a, b: a is b, page.smooth_state, page.state)
    assert jax.tree.all(same) and not np.allclose(compute(page.smooth, page.state), expected)
    assert page.stronger.layers["drop"].rate == 0.5
    np.testing.assert_array_equal(compute(page.stronger, page.stronger_state), expected)
    trained = [name for name, layer in page.frozen.layers.items() if layer.trainable]
    assert trained == ["head"] and page.frozen.trainable


@pytest.mark.exhaustive
def test_other_wiring(page, compute, expected):
    encoder, state = page.model.layers["encoder"], page.state["encoder"]
    x = encoder.layers["stem"](page.images[:8])
    x = encoder.layers["block0"](x, state=state["block0"])
    for name in ("block1", "block2", "block3"):
        x = x + encoder.layers[name](x, state=state[name])
    residual = page.residual.layers["encoder"](
        page.images[:8], state=page.residual_state["encoder"]
    )
    np.testing.assert_allclose(residual, x, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(compute(page.adapted, page.state), expected)
    assert page.adapted.count_params() - page.model.count_params() == 32 * 4 + 4 + 4 * 32 + 32
    names = list(page.shallow.layers["encoder"].layers)
    assert names[-2:] == ["block0", "block2"] and "block1" not in page.shallow_state["encoder"]
    assert len(kernels(page.shallow)) == 3
    np.testing.assert_allclose(compute(page.flat, page.flat_state), expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_shared_blocks_have_one_set_of_weights_and_state(page, compute):
    assert page.model.count_params() - page.shared.count_params() == 8 * 8 * 9 + 16
    encoder = page.shared.layers["encoder"]
    assert len(encoder.graph.calls_of["block1"]) == 2 and "block2" not in encoder.layers
    assert "block2" not in page.shared_state["encoder"]
    old = page.state["encoder"]["block1"]["norm"]["moving_mean"]
    assert page.shared_state["encoder"]["block1"]["norm"]["moving_mean"] is old
    assert compute(page.shared, page.shared_state).shape == (8, 10)


@pytest.mark.exhaustive
def test_a_wider_network_is_the_same_function(page, compute, expected):
    assert page.wider.layers["hidden"].kernel.shape == (32, 48)
    assert len(np.unique(page.units)) == 32 and page.units.shape == (48,)
    np.testing.assert_allclose(
        compute(page.wider, page.wider_state), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.exhaustive
def test_the_widened_network_goes_on_training(page):
    losses = page.history.history["loss"]
    assert losses[-1] < losses[0] < 1.5 and page.run.model.layers["hidden"].units == 48
    assert all(a > b for a, b in itertools.pairwise(losses))


@pytest.mark.exhaustive
def test_the_statements_about_mistakes_hold(page):
    with pytest.raises(ValueError, match="state"):
        _ = page.model(page.images[:2])
    fresh = {"hidden": layers.Dense(64), "norm": fk.engine.unbuilt, "head": fk.engine.unbuilt}
    new = fk.transforms.replace(page.model, fresh).build(jax.random.key(0))
    assert new.layers["head"].kernel.shape == (64, 10)
    down, up = layers.Dense(4, "relu"), layers.Dense(32, kernel_initializer="zeros")
    both = fk.transforms.insert(page.model, lambda x: x + up(down(x)), after=["hidden", "relu"])
    assert len([n for n in both.layers if n.startswith("dense")]) == 2

"""Random compositions that Keras builds, trains and saves compute the same in fkeras.

Keras takes a step, saves a `.keras` or `.h5` file, predicts with two batch sizes, takes another step
and predicts again. fkeras opens the file with its training and repeats this.
"""

import logging
import pickle

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import fkeras as fk
from tests.support.keras_compositions import compose
from tests.support.keras_oracle import keras, keras_rules

EXAMPLES = 10
OPTIMIZERS = (
    lambda: keras.optimizers.SGD(0.05),
    lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    # a small epsilon would turn the rounding errors of gradients that are 0 into whole steps
    lambda: keras.optimizers.Adam(0.05, epsilon=0.01),
)


def _leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _draw_composition(random):
    """Draws a composition; rejects the example if Keras cannot build it."""
    try:
        composition = compose(random)
        if not composition.model.built:  # a Sequential without Input: build it by its first batch
            composition.model.build(composition.inputs(4, 0).shape)
        outputs = jax.eval_shape(lambda x: composition.model(x), composition.inputs(4, 0))
        return composition, [y.shape for y in jax.tree.leaves(outputs)]
    except Exception:
        hypothesis.reject()


def _train(model, batch, targets):
    return model.fit(batch, targets, batch_size=4, epochs=1, verbose=0)


def _assert_close(ours, expected, rtol, atol):
    for array, expected_array in zip(_leaves(ours), expected, strict=True):
        np.testing.assert_allclose(array, expected_array, rtol=rtol, atol=atol)


def check(random, folder):
    """Compares Keras's model with the model that fkeras opens from its file."""
    keras.utils.set_random_seed(0)
    path, back = folder / f"m.{random.choice(['keras', 'h5'])}", folder / "ours.keras"
    with keras_rules():
        composition, shapes = _draw_composition(random)
        model = composition.model
        batch, *others = (composition.inputs(size, seed) for seed, size in enumerate((4, 2, 3)))
        normal = np.random.default_rng(3).normal
        targets = [normal(size=shape).astype("float32") for shape in shapes]
        targets = targets if len(targets) > 1 else targets[0]
        model.compile(random.choice(OPTIMIZERS)(), "mse")
        try:
            _train(model, batch, targets)
            expected = [_leaves(model.predict_on_batch(x)) for x in others]
        except ValueError:
            hypothesis.reject()
        model.save(path)
        _train(model, batch, targets)
        after = _leaves(model.predict_on_batch(others[0]))
    hypothesis.assume(all(np.isfinite(y).all() for y in [*after, *expected[0], *expected[1]]))

    trainer, run = fk.load_training(path)
    for x, values in zip(others, expected, strict=True):
        _assert_close(trainer.predict(run, x), values, 1e-4, 1e-5)
    fk.save_model(back, run.model, run.state)
    assert fk.load_model(back)[0] == run.model == pickle.loads(pickle.dumps(run.model))
    run, _ = trainer.fit(run, batch, targets, batch_size=4, verbose=0, shuffle=False)
    _assert_close(trainer.predict(run, others[0]), after, 1e-3, 2e-4)
    if random.random() < 0.1:
        with keras_rules():
            theirs = keras.models.load_model(back, compile=False)
            _assert_close(theirs.predict_on_batch(others[0]), expected[0], 1e-4, 1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(33))
def test_compositions_compute_as_in_keras(part, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger("absl"), "disabled", True)  # warns about .h5

    @hypothesis.seed(part)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],  # an example takes too long for shrinking
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.randoms(use_true_random=False))
    def compare(random):
        check(random, tmp_path)

    compare()

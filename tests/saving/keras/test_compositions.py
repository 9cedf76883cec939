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


def _drawn(random):
    """A composition; rejected where Keras itself cannot build it."""
    try:
        made = compose(random)
        if not made.model.built:  # a row without an input, as its first batch would build it
            made.model.build(made.inputs(4, 0).shape)
        outputs = jax.eval_shape(lambda x: made.model(x), made.inputs(4, 0))
        return made, [y.shape for y in jax.tree.leaves(outputs)]
    except Exception:
        hypothesis.reject()


def _train(model, batch, targets):
    return model.fit(batch, targets, batch_size=4, epochs=1, verbose=0)


def _agree(found, wanted, rtol, atol):
    for ours, theirs in zip(_leaves(found), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def check(random, folder):
    """Compares Keras's model with the one that its file gives here."""
    keras.utils.set_random_seed(0)
    path, back = folder / f"m.{random.choice(['keras', 'h5'])}", folder / "ours.keras"
    with keras_rules():
        made, shapes = _drawn(random)
        model = made.model
        batch, *others = (made.inputs(size, seed) for seed, size in enumerate((4, 2, 3)))
        normal = np.random.default_rng(3).normal
        targets = [normal(size=shape).astype("float32") for shape in shapes]
        targets = targets if len(targets) > 1 else targets[0]
        model.compile(random.choice(OPTIMIZERS)(), "mse")
        try:
            _train(model, batch, targets)
            wanted = [_leaves(model.predict_on_batch(x)) for x in others]
        except ValueError:
            hypothesis.reject()
        model.save(path)
        _train(model, batch, targets)
        after = _leaves(model.predict_on_batch(others[0]))
    hypothesis.assume(all(np.isfinite(y).all() for y in [*after, *wanted[0], *wanted[1]]))

    trainer, run = fk.load_training(path)
    for x, values in zip(others, wanted, strict=True):
        _agree(trainer.predict(run, x), values, 1e-4, 1e-5)
    fk.save_model(back, run.model, run.state)
    assert fk.load_model(back)[0] == run.model == pickle.loads(pickle.dumps(run.model))
    run, _ = trainer.fit(run, batch, targets, batch_size=4, verbose=0, shuffle=False)
    _agree(trainer.predict(run, others[0]), after, 1e-3, 2e-4)
    if random.random() < 0.1:
        with keras_rules():
            theirs = keras.models.load_model(back, compile=False)
            _agree(theirs.predict_on_batch(others[0]), wanted[0], 1e-4, 1e-5)


@pytest.mark.parametrize(
    "part", [*range(3), *(pytest.param(p, marks=pytest.mark.exhaustive) for p in range(3, 33))]
)
def test_compositions_compute_as_in_keras(part, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger("absl"), "disabled", True)  # of the old format

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

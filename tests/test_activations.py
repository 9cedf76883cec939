"""Activations against Keras."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.nn.softmax import masked_softmax
from tests.support.keras_oracle import keras, keras_rules
from tests.support.value_data import ACTIVATIONS, X

ROWS = 12  # of a compiled program


@functools.cache
def activation_facts(part):
    """Values and gradients of some rows, ours and Keras's, by one compiled program."""

    def both(function, x, options):
        slope = jax.grad(lambda x: jnp.sum(jnp.sin(function(x, **options))))
        return function(x, **options), slope(x)

    @jax.jit
    def program(x):
        rows = ACTIVATIONS[part * ROWS : (part + 1) * ROWS]
        found = [both(getattr(fk.activations, name), x, options) for name, options in rows]
        with keras_rules():
            expected = [both(getattr(keras.activations, name), x, given) for name, given in rows]
        return list(zip(found, expected, strict=True))

    return program(X)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "options"), ACTIVATIONS, ids=lambda v: str(v)[:40])
def test_activations_equal_keras(name, options):
    ours, index = getattr(fk.activations, name), ACTIVATIONS.index((name, options))
    (value, gradient), (expected, slope) = activation_facts(index // ROWS)[index % ROWS]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)
    low = jax.eval_shape(lambda x: ours(x, **options), jax.ShapeDtypeStruct((6, 8), "bfloat16"))
    assert low.dtype == jnp.bfloat16
    config = fk.activations.serialize(ours)
    assert fk.activations.deserialize(config) is ours


def test_sparsemax_is_the_projection_on_the_simplex():
    """Keras's own numbers do not sum to 1; see the docstring."""
    both = jax.jit(lambda x: (fk.activations.sparsemax(x), fk.activations.sparsemax(x.T, axis=0)))
    value, across = map(np.asarray, both(X))
    np.testing.assert_allclose(value.sum(-1), 1.0, rtol=1e-5)
    for row, found in zip(X, value, strict=True):
        low, high = row.min() - 1, row.max()
        for _ in range(100):  # the threshold by bisection
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(row - middle, 0).sum() > 1 else (low, middle)
        np.testing.assert_allclose(found, np.maximum(row - low, 0), atol=1e-5)
    np.testing.assert_allclose(across, value.T, atol=1e-6)


def test_names_of_activations():
    assert fk.activations.get(None) is fk.activations.linear
    assert fk.activations.get("swish") is fk.activations.silu
    assert fk.activations.get(jnp.tanh) is jnp.tanh
    with pytest.raises(ValueError, match="Did you mean 'relu'"):
        fk.activations.get("rleu")
    with pytest.raises(TypeError, match="expected|Expected"):
        fk.activations.get(3)


@pytest.mark.exhaustive
def test_infinite_scores_share_the_probability():
    scores = jnp.array([[1.0, jnp.inf, 2.0], [jnp.inf, -jnp.inf, jnp.inf]])
    shares = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    mask = jnp.ones((2, 3), bool)
    softmaxes = {
        "activation": fk.activations.softmax,
        "masked": lambda x: masked_softmax(x, mask),
        "layer": fk.layers.Softmax(),
        "operation": fk.ops.softmax,
        "logarithms": lambda x: jnp.exp(fk.ops.log_softmax(x)),
    }
    for name, softmax in softmaxes.items():
        np.testing.assert_allclose(softmax(scores), shares, err_msg=name)
        gradient = jax.grad(lambda x, f=softmax: jnp.sum(f(x) ** 2))(scores)
        assert np.isfinite(gradient).all(), name
    # below every finite number times the largest
    logs = fk.activations.log_softmax(scores)
    np.testing.assert_allclose(np.exp(logs), shares)
    for softmax in (fk.activations.softmax, fk.ops.softmax, fk.ops.log_softmax):
        assert np.isnan(softmax(jnp.array([1.0, jnp.nan, jnp.inf]))).all()
    np.testing.assert_array_equal(fk.ops.log_softmax(jnp.array([0.0, -jnp.inf])), [0.0, -jnp.inf])

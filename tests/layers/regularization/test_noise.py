"""Noise and variants of dropout: distributions, keys, and rejected arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
RANDOM = (
    layers.GaussianNoise(0.5),
    layers.GaussianDropout(0.5),
    layers.AlphaDropout(0.5),
    layers.SpatialDropout1D(0.5),
)


@functools.partial(jax.jit, static_argnums=0)
def _train(layer, x, key):
    return layer(x, training=True, key=key)


def _call(layer, x, key=KEY):
    return np.asarray(_train(layer, x, key), "float64")


@pytest.mark.exhaustive
def test_gaussian_noise_is_normal_around_the_input():
    y = _call(layers.GaussianNoise(0.5), jnp.full((400, 500), 3.0))
    np.testing.assert_allclose([y.mean(), y.std()], [3.0, 0.5], rtol=0.01)
    assert abs(((y - 3.0) ** 3).mean()) < 0.01


@pytest.mark.exhaustive
def test_gaussian_dropout_has_the_variance_of_dropout():
    x = jnp.full((400, 500), 3.0)
    y = _call(layers.GaussianDropout(0.2), x)
    np.testing.assert_allclose([y.mean(), y.std()], [3.0, 3.0 * 0.5], rtol=0.01)
    np.testing.assert_allclose(y.std(), _call(layers.Dropout(0.2), x).std(), rtol=0.02)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_alpha_dropout_keeps_mean_and_variance(rate):
    x = jax.random.normal(jax.random.key(0), (500, 500))
    y = _call(layers.AlphaDropout(rate), x)
    np.testing.assert_allclose([y.mean(), y.std()], [0.0, 1.0], atol=0.01)
    # selu normalizes its outputs, so that they have the same mean and variance
    z = _call(layers.AlphaDropout(rate), fk.activations.selu(x))
    np.testing.assert_allclose([z.mean(), z.std()], [0.0, 1.0], atol=0.02)


@pytest.mark.exhaustive
def test_alpha_dropout_has_the_two_values_of_keras():
    x = np.ones((20, 20), "float32")
    ours = np.unique(_call(layers.AlphaDropout(0.3), jnp.asarray(x)))
    with keras_rules():
        theirs = np.unique(np.asarray(keras.layers.AlphaDropout(0.3, seed=1)(x, training=True)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_noise_shape_shares_draws():
    y = _call(layers.AlphaDropout(0.5, (None, 1, None)), jnp.ones((8, 5, 7)))
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    assert len(np.unique(y)) == 2
    with pytest.raises(ValueError, match=r"3 axes.*\(2, 3\).*including the batch"):
        _call(layers.AlphaDropout(0.5, (None, 1, None)), jnp.ones((2, 3)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("layer", "axes", "shape"),
    [
        (layers.SpatialDropout1D(0.4), (1,), (100, 3, 50)),
        (layers.SpatialDropout2D(0.4), (1, 2), (100, 3, 2, 50)),
        (layers.SpatialDropout2D(0.4, "channels_first"), (2, 3), (100, 50, 3, 2)),
        (layers.SpatialDropout3D(0.4), (1, 2, 3), (100, 2, 3, 2, 50)),
        (layers.SpatialDropout3D(0.4, data_format="channels_first"), (2, 3, 4), (100, 50, 2, 3, 2)),
    ],
    ids=str,
)
def test_spatial_dropout_drops_whole_channels(layer, axes, shape):
    y = _call(layer, jnp.ones(shape))
    first = y.mean(axes)  # 0 or 1 / (1 - rate): all cells of a channel are equal
    assert set(np.round(np.unique(y), 4)) == {0.0, 1.6667}
    assert set(np.round(np.unique(first), 4)) == {0.0, 1.6667}
    np.testing.assert_allclose((first == 0).mean(), 0.4, atol=0.03)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", RANDOM, ids=str)
def test_keys_and_seeds_determine_the_draws(layer):
    x = jnp.ones((4, 5, 6))
    np.testing.assert_array_equal(_call(layer, x), _call(layer, x))
    assert not np.array_equal(_call(layer, x), _call(layer, x, jax.random.key(4)))
    seeded = layer.replace(seed=7)
    assert not np.array_equal(_call(layer, x), _call(seeded, x))
    np.testing.assert_array_equal(_call(seeded, x), _call(seeded, x))
    # seeds in TensorFlow's files may exceed the 32 bits of a key
    below, above = layer.replace(seed=-1), layer.replace(seed=2**32 - 1)
    np.testing.assert_array_equal(_call(below, x), _call(above, x))
    assert not np.array_equal(_call(below, x), _call(seeded, x))
    np.testing.assert_array_equal(layer(x), x)
    with pytest.raises(ValueError, match=r"key"):
        layer(x, training=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", RANDOM, ids=str)
def test_low_precision_and_integers(layer):
    half = layer.replace(dtype="bfloat16")
    slope = jax.grad(lambda x: layer(x, training=True, key=KEY).sum())

    @jax.jit
    def compute(x, zeros):
        short = half(x.astype("bfloat16"), training=True, key=KEY)
        return short, layer(x, training=True, key=KEY), slope(zeros)

    x = np.ones((4, 5, 6), "int32")
    short, y, grad = jax.device_get(compute(x, np.zeros((4, 5, 6), "float32")))
    assert short.dtype == jnp.bfloat16
    assert np.isfinite(y).all()
    assert np.isfinite(grad).all()


def test_rate_0_needs_no_key():
    x = jnp.ones((2, 3, 4))
    for layer in RANDOM:
        name = "stddev" if isinstance(layer, layers.GaussianNoise) else "rate"
        np.testing.assert_array_equal(layer.replace(**{name: 0.0})(x, training=True), x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.GaussianNoise(1.5), r"stddev.*0 to 1.*1\.5"),
        (lambda: layers.GaussianDropout(1.0), r"GaussianDropout: rate.*below 1.*1\.0"),
        (lambda: layers.AlphaDropout(-0.1), r"AlphaDropout: rate.*-0\.1"),
        (lambda: layers.AlphaDropout(0.5, 3), r"AlphaDropout: noise_shape.*3"),
        (lambda: layers.SpatialDropout1D("0.5"), r"rate.*0 to 1.*'0\.5'"),
        (lambda: layers.SpatialDropout2D(0.5, "last"), r"channels_last.*'last'"),
        (lambda: layers.SpatialDropout2D(0.5)(jnp.ones((2, 3, 4))), r"ndim=4.*\(2, 3, 4\)"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises(ValueError, match=message):
        make()

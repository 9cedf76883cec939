"""`RotaryEmbedding` and its scalings, against numbers of transformers 5.24 and KerasHub 0.32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.layers import rotary

SHORT = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
LONG = [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
# the frequencies 0, 1, 2 and 7 of 16 channels at base 500, and the factor of cosines and sines
NUMBERS = [
    (rotary.Linear(4.0), 60, (0.25, 0.114966, 0.0528686, 0.00108728), 1.0),
    (rotary.Llama3(8.0, 1.0, 4.0, 64), 60, (1.0, 0.459863, 0.0976166, 0.00054364), 1.0),
    (rotary.Llama3(16.0, 1.0, 1.0, 64), 60, (1.0, 0.459863, 0.211474, 0.00027182), 1.0),
    (rotary.Yarn(4.0, 64), 60, (1.0, 0.344897, 0.105737, 0.00108728), 1.138629),
    (
        rotary.Yarn(4.0, 64, 16.0, 2.0, mscale=0.7, mscale_all_dim=0.4, truncate=False),
        60,
        (1.0, 0.295276, 0.0600987, 0.00108728),
        1.039404,
    ),
    (rotary.Dynamic(2.0, 256), 200, (1.0, 0.459863, 0.211474, 0.00434912), 1.0),
    (rotary.LongRope(SHORT, LONG, 64, 256), 60, (1.0, 0.418058, 0.176229, 0.0025583), 1.154701),
    (rotary.LongRope(SHORT, LONG, 64, 256), 200, (0.5, 0.183945, 0.0704914, 0.00054364), 1.154701),
]
X = np.cos(np.arange(2 * 3 * 6)).reshape(2, 3, 6).astype("float32")
P = np.array([[0, 2, 5], [1, 1, 7]])


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("scaling", "length", "expected", "factor"), NUMBERS)
def test_frequencies(scaling, length, expected, factor):
    compute = jax.jit(lambda length: scaling.frequencies(16, 500.0, length))
    frequencies = np.asarray(compute(np.int32(length)))
    np.testing.assert_allclose(frequencies[np.array([0, 1, 2, 7])], expected, rtol=1e-5)
    assert scaling.scale == pytest.approx(factor, abs=1e-6)
    layer = layers.RotaryEmbedding(500.0, scaling=scaling)
    assert layers.deserialize(layers.serialize(layer)) == layer
    # of the layer: the angle of each pair, at the last position of the text
    x = np.zeros((1, length, 16), "float32")
    x[..., :8] = 1
    turned = np.asarray(layer(x))[0, -1].astype("float64")
    angles = frequencies.astype("float64") * (length - 1)
    np.testing.assert_allclose(turned[:8], factor * np.cos(angles), atol=2e-5)
    np.testing.assert_allclose(turned[8:], factor * np.sin(angles), atol=2e-5)


@pytest.mark.exhaustive
def test_rows_have_their_own_lengths():
    scaling = rotary.Dynamic(4.0, 8)
    layer = layers.RotaryEmbedding(scaling=scaling)
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 4)).astype("float32")
    positions = np.array([[0, 1, 2], [20, 21, 22]])
    y = layer(x, positions)
    for row in range(2):
        np.testing.assert_allclose(y[row], layer(x[row:][:1], positions[row:][:1])[0], atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "scaling", [rotary.Dynamic(4.0, 8), rotary.LongRope([1.0, 1.0], [4.0, 2.0], 8, 64)]
)
def test_tokens_behind_a_cache_turn_by_their_own_positions(scaling):
    layer = layers.RotaryEmbedding(scaling=scaling)
    assert layer.init_cache(1, 32) == {}
    x = np.ones((1, 3, 1, 4), "float32")
    later = layer(x, np.array([[7, 8, 9]]))
    # the number of tokens of a call changes nothing
    for n in range(3):
        np.testing.assert_array_equal(later[:, n : n + 1], layer(x[:, :1], np.array([[7 + n]])))
    # the last token of a whole text has the same length
    text = layer(np.ones((1, 10, 1, 4), "float32"))
    np.testing.assert_allclose(later[0, 2], text[0, 9], atol=1e-6)
    # positions that are given without a row, and the axis of the heads first
    other = layers.RotaryEmbedding(scaling=scaling, sequence_axis=2)
    for positions in (np.array([7, 8, 9]), np.array([[7, 8, 9]])):
        turned = other(np.moveaxis(x, 1, 2), positions)
        np.testing.assert_array_equal(np.moveaxis(turned, 2, 1), later)


def test_numbers_of_keras_hub():
    y = np.asarray(layers.RotaryEmbedding(100.0, 2.0)(X, P))
    expected = [-0.14911, 1.2477, 0.9694, -0.04168, 0.00769, -0.75686]
    np.testing.assert_allclose(y[1, 2], expected, atol=1e-5)
    config = {
        "max_wavelength": 100.0,
        "scaling_factor": 4.0,
        "rope_type": "yarn",
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 16,
        "truncate": True,
        "sequence_axis": 1,
        "feature_axis": -1,
        "denominator_dim": None,
    }
    module = "keras_hub.src.layers.modeling.rotary_embedding"
    entry = {"module": module, "class_name": "RotaryEmbedding", "config": config}
    layer = layers.deserialize({**entry, "registered_name": "keras_hub>RotaryEmbedding"})
    assert layer == layers.RotaryEmbedding(100.0, scaling=rotary.Yarn(4.0, 16))
    expected = [0.14234, 1.32411, 1.03023, 0.10399, -0.51489, -0.94851]
    np.testing.assert_allclose(np.asarray(layer(X, P))[1, 2], expected, atol=1e-5)
    for key, value in (("rope_type", "dynamic"), ("denominator_dim", 8)):
        with pytest.raises(ValueError, match="expected rope_type 'linear' or 'yarn'"):
            layers.RotaryEmbedding.from_config({**config, key: value})
    plain = layers.serialize(layers.RotaryEmbedding(100.0))
    assert plain["module"] == module
    assert set(plain["config"]) <= {"name", "trainable", "dtype", *config}


@pytest.mark.exhaustive
def test_interleaved_pairs_are_permuted_halves():
    half = layers.RotaryEmbedding(100.0)(X, P)
    order = np.array([0, 3, 1, 4, 2, 5])
    pairs = layers.RotaryEmbedding(100.0, interleaved=True)(X[..., order], P)
    np.testing.assert_allclose(pairs, half[..., order], atol=1e-6)


def test_channels_beyond_the_share_stay():
    y = np.asarray(layers.RotaryEmbedding(100.0, partial=0.7)(X, P))
    np.testing.assert_array_equal(y[..., 4:], X[..., 4:])
    np.testing.assert_allclose(y[..., :4], layers.RotaryEmbedding(100.0)(X[..., :4], P), atol=1e-6)


@pytest.mark.exhaustive
def test_scores_depend_on_the_difference_of_positions():
    rng = np.random.default_rng(0)
    q, k = (rng.normal(size=(1, 1, 2, 8)).astype("float32") for _ in range(2))
    layer = layers.RotaryEmbedding()

    def score(query, key):
        return np.sum(layer(q, np.array([query])) * layer(k, np.array([key])))

    np.testing.assert_allclose(score(7, 3), score(107, 103), rtol=1e-4)
    assert abs(score(7, 3) - score(7, 4)) > 1e-3


def test_angles_are_float32_in_every_policy():
    layer = layers.RotaryEmbedding(dtype="bfloat16")
    x = np.ones((1, 2, 1, 2), "float32")
    y = np.asarray(layer(x, np.array([[256, 257]])))
    assert y.dtype == jnp.bfloat16
    expected = [np.cos(n) - np.sin(n) for n in (256, 257)]  # bfloat16 would round 257 to 256
    np.testing.assert_allclose(y[0, :, 0, 0].astype("float32"), expected, atol=0.01)


@pytest.mark.exhaustive
def test_axes_lists_and_start():
    x = np.random.default_rng(0).normal(size=(2, 4, 3, 5)).astype("float32")
    other = layers.RotaryEmbedding(sequence_axis=3, feature_axis=1)(x)
    plain = layers.RotaryEmbedding()(x.transpose(0, 3, 2, 1))
    np.testing.assert_allclose(other, plain.transpose(0, 3, 2, 1), atol=1e-6)
    later = layers.RotaryEmbedding()(X, start_index=3)
    np.testing.assert_allclose(later, layers.RotaryEmbedding()(X, np.arange(3) + 3), atol=1e-6)
    query, key = layers.RotaryEmbedding()([X, 2 * X], P)
    np.testing.assert_allclose(2 * query, key, atol=1e-5)


ERRORS = [
    (lambda: layers.RotaryEmbedding(scaling="linear"), "expected a scaling of fk.layers.rotary"),
    (lambda: layers.RotaryEmbedding(partial=0), "above 0 and up to 1"),
    (lambda: layers.RotaryEmbedding(0), "above 0"),
    (lambda: layers.RotaryEmbedding()(X[..., :5]), "even number of channels that turn, received 5"),
    (lambda: layers.RotaryEmbedding(partial=0.5)(X), "received 3 of 6 channels"),
    (lambda: layers.RotaryEmbedding()(X[0]), r"expected an array \(b, t, ..., d\)"),
    (lambda: layers.RotaryEmbedding(feature_axis=1)(X), "two different axes"),
    (lambda: layers.RotaryEmbedding(sequence_axis=4)(X), "after the batch"),
    (lambda: layers.RotaryEmbedding()(X, P[:, :2]), "positions"),
    (lambda: layers.RotaryEmbedding()(X, P[:1].astype("float32")), "integers"),
    (lambda: rotary.Llama3(8.0, 4.0, 1.0), "high_freq_factor of at least low_freq_factor"),
    (
        lambda: layers.RotaryEmbedding(scaling=rotary.Dynamic(2.0, 8))(X[..., :2]),
        "at least 4 chann",
    ),
    (lambda: rotary.Linear(0), "above 0"),
    (lambda: rotary.Yarn(4.0), "original_max_position_embeddings"),
    (lambda: rotary.LongRope([1.0, -1.0], LONG, 64, 256), "a list of positive numbers"),
    (
        lambda: layers.RotaryEmbedding(scaling=rotary.LongRope([1.0], [1.0], 64, 256))(X),
        "expected 3 numbers in short_factor",
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS)
def test_wrong_arguments(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_scaling_of_a_user():
    class Half(rotary.Scaling):
        def frequencies(self, size, base, length):
            return rotary.Linear(2.0).frequencies(size, base, length)

    layer = layers.RotaryEmbedding(scaling=Half())
    np.testing.assert_allclose(layer(X), layers.RotaryEmbedding(scaling_factor=2.0)(X), atol=1e-6)
    config = layers.serialize(layer)
    assert layers.deserialize(config, {"Half": Half}) == layer
    with pytest.raises(NotImplementedError, match="def frequencies"):
        layers.RotaryEmbedding(scaling=rotary.Scaling())(X)


@pytest.mark.exhaustive
def test_gradients_turn_back():
    layer = layers.RotaryEmbedding()
    _, pull = jax.vjp(lambda x: layer(x, P), jnp.asarray(X))
    np.testing.assert_allclose(pull(layer(X, P))[0], X, atol=1e-5)
    assert isinstance(fk.layers.rotary, type(rotary))

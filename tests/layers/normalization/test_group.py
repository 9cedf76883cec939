"""Group, RMS and unit normalization, and Normalization: edges, and differences from Keras."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)
EACH = (layers.GroupNormalization(2), layers.RMSNormalization(), layers.UnitNormalization())


def _data(*shape, seed=0):
    return np.random.default_rng(seed).normal(1.0, 2.0, shape).astype("float32")


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", EACH, ids=str)
def test_zeros_have_finite_values_and_gradients(layer):
    x = jnp.zeros((2, 3, 4))
    layer = layer.build(KEY, x)
    weights = jnp.asarray(_data(2, 3, 4))
    slope = jax.jit(jax.value_and_grad(lambda x: jnp.sum(weights * layer(x))))
    for point in (x, x.at[0].set(1e-25), x.at[0, 0, 0].set(1e15)):
        value, grad = slope(point)
        assert np.isfinite(value)
        assert np.isfinite(grad).all()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("policy", ["bfloat16", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("layer", EACH, ids=str)
def test_sums_have_full_precision_in_low_precision_layers(layer, policy):
    x = 300 * _data(4, 64, 8)  # squares of these overflow float16
    half = layer.replace(dtype=policy).build(KEY, x)
    built = layer.build(KEY, x)
    y, wide = jax.device_get(jax.jit(lambda x: (half(x), built(x)))(x))
    assert y.dtype == half.policy.compute_dtype
    np.testing.assert_allclose(y.astype("float32"), wide, rtol=0.03, atol=0.03)


@pytest.mark.exhaustive
def test_the_gradient_at_a_zero_vector_is_zero():
    layer = layers.UnitNormalization()
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    y, grad = jax.device_get(
        jax.jit(lambda x: (layer(x), jax.grad(lambda x: layer(x).sum())(x)))(x)
    )
    np.testing.assert_allclose(y, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_array_equal(grad[0], [0.0, 0.0])
    assert np.abs(grad[1]).max() > 0


@pytest.mark.exhaustive
def test_a_group_of_one_element_is_its_beta():
    x = _data(4, 3)
    layer = layers.GroupNormalization(-1, beta_initializer="ones").build(KEY, x)
    y, grads = jax.jit(lambda x: (layer(x), jax.grad(lambda x: layer(x).sum())(x)))(x)
    np.testing.assert_array_equal(y, np.ones((4, 3)))
    assert np.isfinite(grads).all()


def test_groups_by_hand_and_far_from_zero():
    x = _data(2, 5, 6) + np.float32(3000)
    layer = layers.GroupNormalization(3, epsilon=1e-6).build(KEY, x)
    groups = x.astype("float64").reshape(2, 5, 3, 2)
    mean, std = groups.mean((1, 3), keepdims=True), groups.std((1, 3), keepdims=True)
    expected = ((groups - mean) / std).reshape(x.shape)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-2, atol=1e-3)


def test_one_group_is_layer_normalization():
    x = _data(2, 3, 4)
    group = layers.GroupNormalization(1, center=False, scale=False).build(KEY, x)
    layer = layers.LayerNormalization((1, 2), center=False, scale=False).build(KEY, x)
    actual, expected = jax.jit(lambda x: (group(x), layer(x)))(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_the_scale_has_the_size_of_its_axis():
    x = _data(2, 3, 3)
    layer = layers.RMSNormalization(axis=1).build(KEY, x)
    layer, _ = layer.set_weights([np.array([1.0, 2.0, 3.0])])
    unscaled = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(layer(x), unscaled * [[[1.0], [2.0], [3.0]]], rtol=1e-5)
    with keras_rules():
        reference = keras.layers.RMSNormalization(axis=1)
        reference.build(x.shape)
        reference.set_weights([np.array([1.0, 2.0, 3.0])])
        # Keras scales the last axis, although the weight has the size of axis 1
        np.testing.assert_allclose(reference(x), unscaled * [1.0, 2.0, 3.0], rtol=1e-5)


@pytest.mark.exhaustive
def test_the_offset_of_the_scale_is_added_in_float32():
    x = _data(2, 4)
    layer = layers.RMSNormalization(scale_offset=1.0, dtype="bfloat16").build(KEY, x)
    assert layer.scale.tolist() == [0.0] * 4
    # the sum of 1 and 1/512 in bfloat16 is 1
    layer, _ = layer.set_weights([np.full(4, 1 / 512)])
    ones = np.full((2, 4), 2.0, "float32")
    exact = layers.RMSNormalization(scale_offset=1.0).build(KEY, x)
    exact = exact.replace(scale=layer.scale.astype("float32"))
    np.testing.assert_allclose(exact(ones), 1 + 1 / 512, rtol=1e-6)
    assert "scale_offset" not in layers.RMSNormalization().get_config()
    again = layers.deserialize(layers.serialize(layer))
    assert again.scale_offset == 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("axis", "shape"), [(-1, (20, 3)), (None, (20, 3)), ((1, -1), (10, 4, 3)), ((), (5,))]
)
def test_adapt_matches_keras(axis, shape):
    x = _data(*shape)
    layer = layers.Normalization(axis).adapt(x)
    with keras_rules():
        reference = keras.layers.Normalization(axis)
        reference.adapt(x)
        value = np.asarray(reference(x))
    np.testing.assert_allclose(layer(x), value, rtol=1e-4, atol=1e-5)
    again = layers.deserialize(layers.serialize(layer))
    assert again == layer
    # Keras does not write adapted statistics, but reads those of fkeras
    with keras_rules():
        read = keras.layers.deserialize(layers.serialize(layer))
        np.testing.assert_allclose(read(x), value, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_adapt_to_batches_equals_adapt_to_all_data():
    x = _data(23, 3) + np.float32(1000)
    adapted = layers.Normalization().adapt(x)
    np.testing.assert_allclose(adapted.mean, x.astype("float64").mean(0), rtol=1e-9)
    np.testing.assert_allclose(adapted.variance, x.astype("float64").var(0), rtol=1e-9)
    batches = [x[:5], x[5:6], x[6:6], x[6:]]
    for data in (
        batches,
        (batch for batch in batches),
        [(batch, np.zeros(len(batch))) for batch in batches],
        [jnp.asarray(batch) for batch in batches],
        jnp.asarray(x),
    ):
        layer = layers.Normalization().adapt(data)
        np.testing.assert_allclose(layer.mean, adapted.mean, rtol=1e-6)
        np.testing.assert_allclose(layer.variance, adapted.variance, rtol=1e-4)
        assert layers.Normalization().mean is None


def test_integers_and_pixels():
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3)).astype("uint8")
    layer = layers.Normalization().adapt(x)
    y = np.asarray(layer(x))
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.std((0, 1, 2)), 1.0, rtol=1e-5)


def test_a_constant_feature_becomes_zero():
    x = _data(5, 2)
    x[:, 1] = 7.0
    layer = layers.Normalization().adapt(x)
    back = layer.replace(invert=True)
    y, grads, again = jax.device_get(
        jax.jit(lambda x: (layer(x), jax.grad(lambda x: layer(x).sum())(x), back(layer(x))))(x)
    )
    np.testing.assert_array_equal(y[:, 1], 0.0)
    assert np.isfinite(grads).all()
    np.testing.assert_allclose(again, x, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_weights_of_an_adapted_keras_layer_can_be_set():
    x = _data(9, 3)
    with keras_rules():
        reference = keras.layers.Normalization()
        reference.adapt(x)
        weights, value = reference.get_weights(), np.asarray(reference(x))
    layer = layers.Normalization().build(KEY, x)
    layer, state = layer.set_weights(weights, layer.init_state(x))
    out = layer.apply(x, state=state, training=True)
    np.testing.assert_allclose(out.value, value, rtol=1e-5)
    assert out.updates == {}
    assert state["count"].dtype == jnp.int32
    # a file may contain zero variances
    state = {**state, "variance": jnp.zeros(3)}
    grads = jax.grad(lambda v: layer.apply(x, state={**state, "variance": v}).value.sum())
    assert bool(jnp.isfinite(grads(jnp.zeros(3))).all())


@pytest.mark.exhaustive
def test_low_precision_keeps_differences_far_from_zero():
    x = _data(50, 2) + np.float32(5000)
    layer = layers.Normalization(dtype="mixed_bfloat16").adapt(x)
    y = layer(x)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype("float32").std(0), 1.0, rtol=0.02)


def test_normalization_in_a_network():
    x = _data(8, 3)
    norm = layers.Normalization().adapt(x)
    model = fk.Sequential([fk.Input((3,)), norm, layers.Rescaling(2.0)]).build(KEY)
    np.testing.assert_allclose(model(x).mean(0), 0.0, atol=1e-5)
    assert model.init_state() == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.GroupNormalization(0), r"groups.*positive.*0"),
        (lambda: layers.GroupNormalization(axis=0), r"axis.*positive integer.*axis 0"),
        (
            lambda: layers.GroupNormalization(3)(fk.Input((8,))),
            r"8 channels.*groups=3.*groups=[24]",
        ),
        (lambda: layers.GroupNormalization()(fk.Input((8,))), r"groups=32.*groups=8"),
        (lambda: layers.GroupNormalization(2)(fk.Input((None,))), r"known size on axis -1"),
        (lambda: layers.RMSNormalization(axis=(1, 1)), r"different integers.*\(1, 1\)"),
        (lambda: layers.RMSNormalization(axis=2)(fk.Input((4,))), r"axes 2.*\(None, 4\)"),
        (lambda: layers.UnitNormalization(axis="last"), r"integer.*'last'"),
        (lambda: layers.UnitNormalization(axis=3)(jnp.ones((2, 4))), r"axes 3.*\(2, 4\)"),
        (lambda: layers.Normalization(mean=1.0), r"no variance.*adapt"),
        (lambda: layers.Normalization(mean=[1.0], variance=1.0), r"one shape.*\(1,\) and \(\)"),
        (lambda: layers.Normalization(None, [1.0], [1.0]), r"at most 0 axes"),
        (lambda: layers.Normalization("last"), r"axis.*'last'"),
        (lambda: layers.Normalization(mean="a", variance="b"), r"number.*'a'"),
        (lambda: layers.Normalization().adapt([]), r"expected data, received none"),
        (lambda: layers.Normalization().adapt(np.zeros((0, 3))), r"expected data"),
        (lambda: layers.Normalization().adapt([1.0, 2.0]), r"arrays.*float.*np\.asarray"),
        (lambda: layers.Normalization().adapt(5), r"iterable of batches.*int"),
        (lambda: layers.Normalization().adapt(np.array([[np.nan]])), r"finite"),
        (
            lambda: layers.Normalization().adapt([np.ones((2, 3)), np.ones((2, 4))]),
            r"sizes \(3,\).*\(2, 4\)",
        ),
        (lambda: layers.Normalization(2).adapt(np.ones((2, 3))), r"axes \(2,\).*\(2, 3\)"),
        (
            lambda: layers.Normalization(mean=[1.0, 2.0], variance=[1.0, 1.0])(jnp.ones((2, 3))),
            r"2 features.*\(2, 3\)",
        ),
        (lambda: layers.Normalization()(fk.Input((None,))), r"known sizes"),
        (lambda: layers.Rescaling("1/255"), r"scale.*number.*'1/255'"),
        (lambda: layers.Rescaling([[1.0]])(jnp.ones(3)), r"at least 2 axes.*\(3,\)"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_inputs_beyond_the_compute_dtype_are_normalized():
    x = np.array([[7e4, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 7e4]], "float32")
    layer = layers.GroupNormalization(2, dtype="mixed_float16").build(jax.random.key(0), x.shape)
    y = layer(x)
    assert y.dtype == "float16"
    np.testing.assert_allclose(y, [[1, -1, -0.998, 0.998], [-0.998, 0.998, -1, 1]], atol=1e-3)

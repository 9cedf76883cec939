"""Depthwise and separable convolutions and adaptive pooling: behavior beyond the layer table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import fkeras as fk
from fkeras import layers
from fkeras.nn.convolution import convolve, convolve_depthwise, convolve_separable
from fkeras.nn.pooling import adaptive_pool
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
FORMATS = ("channels_last", "channels_first")
# compiled as one program: running each operation alone takes much longer
pooled = jax.jit(adaptive_pool, static_argnums=(1, 2, 3))
STEPS = [((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 1), (2, 1)), ((2, 2), (2, 2))]


def _numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def _images(data_format, *sizes, channels=3):
    x = _numbers(2, *sizes, channels)
    return x if data_format == FORMATS[0] else np.moveaxis(x, -1, 1)


def _close(actual, expected, tolerance=1e-5):
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def _both(ours, theirs, *arrays):
    """Returns fkeras's and Keras's results, computed in one compiled program."""

    def program(*arrays):
        with keras_rules():
            expected = theirs(*arrays)
        return ours(*arrays), expected

    return jax.device_get(jax.jit(program)(*arrays))


@pytest.mark.exhaustive
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("strides", "rates"), STEPS)
def test_convolutions_match_keras(strides, rates, padding, data_format):
    x = _images(data_format, 7, 6)
    kernel, mix = _numbers(3, 2, 3, 2, seed=1), _numbers(1, 1, 6, 4, seed=2)
    grouped = _numbers(3, 2, 1, 6, seed=3)
    common = (strides, padding, data_format, rates)
    ours, theirs = _both(
        lambda x, kernel, mix, grouped: (
            convolve_depthwise(x, kernel, *common),
            convolve_separable(x, kernel, mix, *common),
            convolve(x, grouped, *common),
        ),
        lambda x, kernel, mix, grouped: (
            keras.ops.depthwise_conv(x, kernel, *common),
            keras.ops.separable_conv(x, kernel, mix, *common),
            keras.ops.conv(x, grouped, *common),
        ),
        *(x, kernel, mix, grouped),
    )
    for actual, expected in zip(ours, theirs, strict=True):
        _close(actual, expected)


def test_a_separable_convolution_is_a_low_rank_convolution():
    x, kernel, mix = _numbers(2, 6, 5, 3), _numbers(3, 2, 3, 2), _numbers(1, 1, 6, 4, seed=1)
    full_kernel = np.einsum("hwcm,cmf->hwcf", kernel, mix.reshape(3, 2, 4))
    separable, full = jax.jit(
        lambda x: (convolve_separable(x, kernel, mix, (1, 1)), convolve(x, full_kernel, (1, 1)))
    )(x)
    _close(separable, full, 1e-4)


@pytest.mark.exhaustive
def test_depthwise_channels_do_not_mix():
    layer = layers.DepthwiseConv1D(3, depth_multiplier=2).build(KEY, (None, 5, 3))
    jacobian = jax.jit(jax.jacobian(lambda x: layer(x)[0, 0]))(jnp.ones((1, 5, 3)))
    jacobian = np.asarray(jacobian)[:, 0].sum(1)
    expected = np.repeat(np.eye(3, dtype=bool), 2, axis=0)
    np.testing.assert_array_equal(np.asarray(jacobian) != 0, expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("output_size", [(1, 1), (3, 4), (5, 9)])
def test_adaptive_pooling_matches_keras(output_size, data_format):
    x = _images(data_format, 7, 6)
    ours, theirs = _both(
        lambda x: [adaptive_pool(x, output_size, m, data_format) for m in ("average", "max")],
        lambda x: [
            keras.ops.adaptive_average_pool(x, output_size, data_format),
            keras.ops.adaptive_max_pool(x, output_size, data_format),
        ],
        x,
    )
    for actual, expected in zip(ours, theirs, strict=True):
        _close(actual, expected)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [1, 5, 11, 14])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_adaptive_windows_match_the_definition(size, count):
    x = _numbers(1, size, 1)
    windows = [x[0, i * size // count : -(-(i + 1) * size // count), 0] for i in range(count)]
    largest, mean = jax.device_get(
        jax.jit(lambda x: [adaptive_pool(x, (count,), m) for m in ("max", "average")])(x)
    )
    _close(largest.ravel(), np.array([w.max() for w in windows]))
    _close(mean.ravel(), np.array([w.mean() for w in windows]))


@pytest.mark.parametrize("size", [7, 13, 14])
def test_one_window_per_cell_is_the_identity(size):
    # Keras computes windows in float32: with some versions of JAX the last cell is NaN here
    x = _numbers(2, size, 3)
    _close(pooled(x, (size,), "average"), x)


def test_adaptive_pooling_of_equal_windows_is_pooling():
    x = _numbers(2, 6, 8, 3)
    adaptive, fixed = jax.jit(
        lambda x: (
            (layers.AdaptiveMaxPooling2D((3, 2))(x), layers.AdaptiveAveragePooling2D((3, 2))(x)),
            (layers.MaxPooling2D((2, 4))(x), layers.AveragePooling2D((2, 4))(x)),
        )
    )(x)
    _close(adaptive[0], fixed[0])
    _close(adaptive[1], fixed[1])


@pytest.mark.exhaustive
def test_adaptive_pooling_of_integers_and_infinities():
    x = jnp.array([[[-5], [-7], [3]]], "int32")
    largest = layers.AdaptiveMaxPooling1D(2)(x)
    assert largest.dtype == jnp.int32
    np.testing.assert_array_equal(largest.ravel(), [-5, 3])
    assert layers.AdaptiveAveragePooling1D(2)(x).ravel().tolist() == [-6, -2]
    far = jnp.array([[[-jnp.inf], [-jnp.inf], [1.0], [2.0], [3.0]]])
    np.testing.assert_array_equal(pooled(far, (2,), "max").ravel(), [1, 3])
    # the second window does not contain cells of the first
    np.testing.assert_array_equal(pooled(far, (2,), "average").ravel(), [-np.inf, 2])
    slopes = jax.grad(lambda x: pooled(x, (3,), "max").sum())(jnp.ones((1, 5, 1)))
    assert float(slopes.sum()) == pytest.approx(3)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "layer",
    [
        layers.DepthwiseConv2D((3, 2), 2, "same", 2),
        layers.SeparableConv2D(4, (3, 2)),
        layers.AdaptiveAveragePooling2D((2, 5)),
        layers.AdaptiveMaxPooling2D((4, 3)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_unknown_sizes_are_accepted_and_all_sizes_run(layer):
    inputs = fk.Input((None, None, 3))
    y = layer(inputs)
    assert y.shape[0] is None
    if hasattr(layer, "output_size"):
        assert y.shape == (None, *layer.output_size, 3)
    model = fk.Model(inputs, y).build(KEY)
    built = layer.build(KEY, (None, None, None, 3))
    for sizes in ((9, 8), (12, 7)):
        x = _numbers(2, *sizes, 3)
        actual, expected = jax.eval_shape(lambda x: (model(x), built(x)), x)
        assert actual.shape == expected.shape


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["average", "max"])
def test_pooling_of_unknown_sizes_equals_pooling_of_known_sizes(mode):
    x = _numbers(1, 7, 5, 2)
    sizes = export.symbolic_shape("b, h, w, 2")
    program = export.export(jax.jit(lambda x: adaptive_pool(x, (3, 4), mode)))
    compiled = program(jax.ShapeDtypeStruct(sizes, "float32"))
    _close(compiled.call(x), pooled(x, (3, 4), mode))


def test_keras_configurations_can_be_read():
    rows = [
        ("DepthwiseConv1D", (3,), {"depth_multiplier": 2}),
        ("DepthwiseConv2D", (3,), {"padding": "same", "activation": "relu"}),
        ("SeparableConv1D", (4, 3), {"depth_multiplier": 2}),
        ("SeparableConv2D", (4, 3), {"dilation_rate": 2, "pointwise_regularizer": "l2"}),
        *((f"Adaptive{m}Pooling{r}D", (3,), {}) for m in ("Average", "Max") for r in (1, 2, 3)),
    ]
    for name, args, options in rows:
        with keras_rules():
            theirs = getattr(keras.layers, name)(*args, **options, name="a")
        ours = getattr(layers, name)(*args, **options, name="a")
        assert layers.deserialize(keras.layers.serialize(theirs)) == ours
    assert layers.SeparableConvolution1D is layers.SeparableConv1D
    assert layers.SeparableConvolution2D is layers.SeparableConv2D


def test_weights_have_the_shapes_and_order_of_keras():
    layer = layers.SeparableConv2D(5, (3, 2), depth_multiplier=2, data_format="channels_first")
    layer = layer.build(KEY, (None, 3, 8, 8))
    assert [w.shape for w in layer.get_weights()] == [(3, 2, 3, 2), (1, 1, 6, 5), (5,)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.DepthwiseConv2D(0), "DepthwiseConv2D: kernel_size: .*received 0"),
        (lambda: layers.DepthwiseConv1D(3, depth_multiplier=0), "depth_multiplier: expected a pos"),
        (lambda: layers.DepthwiseConv1D(3, padding="causal"), "'valid' or 'same'"),
        (lambda: layers.DepthwiseConv1D(3)(fk.Input((2, 3))), "at least 3 cells on axis 1"),
        (lambda: layers.DepthwiseConv1D(3)(fk.Input((8, None))), "known number of channels"),
        (lambda: layers.SeparableConv2D(-1, 3), "filters: expected a positive integer"),
        (lambda: layers.SeparableConv2D(4, 3)(fk.Input((8, 8))), "ndim=4"),
        (lambda: layers.SeparableConv1D(4, 3)(fk.Input((8, None))), "known number of channels"),
        (
            lambda: layers.SeparableConv1D(4, 3).build(KEY, (None, 8, 2))(jnp.ones((1, 8, 3))),
            "size 2",
        ),
        (lambda: layers.AdaptiveMaxPooling2D(0), "AdaptiveMaxPooling2D: output_size: .*0"),
        (lambda: layers.AdaptiveAveragePooling3D((1, 2)), "output_size: .*tuple of 3"),
        (lambda: layers.AdaptiveAveragePooling1D(2)(fk.Input((8,))), "ndim=3"),
        (lambda: adaptive_pool(jnp.ones((1, 4, 1)), (2,), "mean"), "'average' or 'max'"),
    ],
)
def test_errors_name_a_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()

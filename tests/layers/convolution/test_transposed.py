"""Transposed convolutions: behavior that the layer table does not cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.convolution import convolve, convolve_transpose
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
FORMATS = ("channels_last", "channels_first")


def _numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


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


@pytest.mark.one_in(6)
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    ("kernel_size", "strides", "rates", "extra"),
    [
        ((3, 2), (1, 1), (1, 1), None),
        ((2, 3), (2, 3), (1, 1), None),
        ((1, 2), (3, 4), (1, 1), None),
        ((4, 3), (2, 2), (1, 1), (0, 1)),
        ((2, 5), (3, 2), (1, 1), (2, 0)),
        ((3, 2), (1, 1), (2, 3), None),
        ((2, 3), (1, 1), (2, 2), (0, 0)),
    ],
)
def test_transposed_convolution_matches_keras(
    kernel_size, strides, rates, extra, padding, data_format
):
    x = _numbers(2, 4, 3, 2)
    x = x if data_format == FORMATS[0] else np.moveaxis(x, -1, 1)
    kernel = _numbers(*kernel_size, 3, 2, seed=1)
    options = (strides, padding, extra, data_format, rates)
    ours, theirs = _both(
        lambda x, kernel: convolve_transpose(x, kernel, *options),
        lambda x, kernel: keras.ops.conv_transpose(x, kernel, *options),
        x,
        kernel,
    )
    _close(ours, theirs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("size", [6, 7])
def test_transposed_convolution_is_the_gradient_of_a_convolution(size, padding):
    # with strides, "same" may put the odd zero on the other side
    stride, kernel = 2 if padding == "valid" else 1, _numbers(3, 2, 4)
    x = _numbers(2, size, 2, seed=1)

    @jax.jit
    def compute(x):
        y, pullback = jax.vjp(lambda x: convolve(x, kernel, (stride,), padding), x)
        (back,) = pullback(y)
        extra = None if padding == "same" else (size - 3 - (y.shape[1] - 1) * stride,)
        return convolve_transpose(y, kernel, (stride,), padding, extra), back

    _close(*compute(x), 1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("padding", "extra", "size"),
    [("valid", None, 15), ("valid", 0, 14), ("valid", 2, 16), ("same", None, 15), ("same", 1, 13)],
)
def test_sizes_match_the_docstring(padding, extra, size):
    layer = layers.Conv1DTranspose(2, 2, 3, padding, extra)
    y = jax.eval_shape(lambda x: layer.build(KEY, (None, 5, 2))(x), np.ones((1, 5, 2), "float32"))
    assert y.shape == (1, size, 2)
    assert layer(fk.Input((5, 2))).shape == (None, size, 2)


ALL = (
    layers.Conv2D(4, (3, 2), 2, "same", groups=2),
    layers.Conv2DTranspose(4, (3, 2), 2, "same"),
    layers.DepthwiseConv2D((3, 2), 2, "same", 2),
    layers.SeparableConv2D(4, (3, 2), 2, "same"),
    layers.AdaptiveAveragePooling2D((2, 3)),
    layers.AdaptiveMaxPooling2D((2, 3)),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
@pytest.mark.parametrize("layer", ALL, ids=lambda layer: type(layer).__name__)
def test_low_precision_is_close(layer, dtype, tolerance):
    def score(layer, x):
        y = layer(x)
        return jnp.mean(y.astype("float32")), y

    @jax.jit
    def compute(x):
        built = layer.build(KEY, x.shape)
        half = built.replace(dtype=f"mixed_{dtype}")
        (_, y), grads = jax.value_and_grad(score, argnums=(0, 1), has_aux=True)(half, x)
        return y, built(x), jax.tree.leaves(grads)

    y, wide, grads = jax.device_get(compute(_numbers(2, 5, 4, 4)))
    assert y.dtype == dtype
    _close(y.astype("float32"), wide, tolerance)
    assert all(np.isfinite(g).all() for g in grads)


@pytest.mark.exhaustive
def test_unknown_sizes_grow_and_all_sizes_run():
    inputs = fk.Input((None, None, 3))
    y = layers.Conv2DTranspose(4, (3, 2), 2, "same")(layers.Conv2D(4, 3, 2, "same")(inputs))
    assert y.shape == (None, None, None, 4)
    model = fk.Model(inputs, layers.Conv2DTranspose(2, 3, 2, output_padding=1)(y)).build(KEY)
    for sizes in ((8, 6), (4, 10)):
        output_sizes = tuple(2 * n + 2 for n in sizes)
        x = np.ones((2, *sizes, 3), "float32")
        assert jax.eval_shape(lambda x: model(x), x).shape == (2, *output_sizes, 2)


def test_keras_configurations_can_be_read():
    options = {"padding": "same", "strides": 2, "activation": "relu", "name": "a"}
    for rank in (1, 2, 3):
        name = f"Conv{rank}DTranspose"
        for extra_options in ({}, {"output_padding": 1}):
            with keras_rules():
                theirs = getattr(keras.layers, name)(4, 3, **options, **extra_options)
            ours = getattr(layers, name)(4, 3, **options, **extra_options)
            assert layers.deserialize(keras.layers.serialize(theirs)) == ours


def test_long_names_are_aliases():
    assert layers.Convolution1DTranspose is layers.Conv1DTranspose
    assert layers.Convolution2DTranspose is layers.Conv2DTranspose
    assert layers.Convolution3DTranspose is layers.Conv3DTranspose


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Conv2DTranspose(0, 3), "filters: expected a positive integer"),
        (lambda: layers.Conv2DTranspose(4, (3, 3, 3)), "Conv2DTranspose: kernel_size: .*of 2"),
        (lambda: layers.Conv1DTranspose(4, 3, 2, dilation_rate=2), "dilation_rate above 1, not"),
        (lambda: layers.Conv1DTranspose(4, 3, padding="causal"), "'valid' or 'same'"),
        (
            lambda: layers.Conv2DTranspose(4, 3, (2, 3), output_padding=2),
            r"below strides=\(2, 3\).*received output_padding=\(2, 2\)",
        ),
        (lambda: layers.Conv1DTranspose(4, 3, 2, output_padding=-1), "output_padding: .*0 or"),
        (lambda: layers.Conv1DTranspose(4, 3)(fk.Input((8, None))), "known number of channels"),
        (lambda: layers.Conv2DTranspose(4, 3)(fk.Input((8, 8))), "ndim=4"),
        (
            lambda: layers.Conv1DTranspose(4, 3).build(KEY, (None, 8, 2))(jnp.ones((1, 8, 3))),
            "size 2",
        ),
    ],
)
def test_errors_name_a_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()

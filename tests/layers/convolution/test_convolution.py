"""Convolution, pooling and resampling: behavior that the layer table does not cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.convolution import convolve
from fkeras.nn.pooling import average_pool, masked_mean, max_pool
from fkeras.nn.resampling import crop, repeat, resize, zero_pad
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
FORMATS = ("channels_last", "channels_first")
SIZES = {1: (7,), 2: (7, 5), 3: (4, 5, 3)}


def _numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def _images(rank, data_format, channels=4):
    sizes = SIZES[rank]
    return (
        _numbers(2, *sizes, channels)
        if data_format == FORMATS[0]
        else _numbers(2, channels, *sizes)
    )


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
@pytest.mark.parametrize(("stride", "rate", "groups"), [(1, 1, 1), (2, 1, 2), (1, 2, 4)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolve_matches_keras(rank, stride, rate, groups, padding, data_format):
    x = _images(rank, data_format)
    kernel = _numbers(*(2,) * rank, 4 // groups, 8, seed=1)
    strides, rates = (stride,) * rank, (rate,) * rank
    options = (strides, padding, data_format, rates)
    ours, theirs = _both(
        lambda x, kernel: convolve(x, kernel, *options),
        lambda x, kernel: keras.ops.conv(x, kernel, *options),
        x,
        kernel,
    )
    _close(ours, theirs)


@pytest.mark.one_in(36)
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 1), (2, 3)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pooling_matches_keras(rank, size, stride, padding, data_format):
    options = ((size,) * rank, (stride,) * rank, padding, data_format)
    ours, theirs = _both(
        lambda x: (max_pool(x, *options), average_pool(x, *options)),
        lambda x: (keras.ops.max_pool(x, *options), keras.ops.average_pool(x, *options)),
        _images(rank, data_format),
    )
    for actual, expected in zip(ours, theirs, strict=True):
        _close(actual, expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos3", "lanczos5"])
def test_resize_matches_keras(interpolation, data_format):
    x = _images(2, data_format)
    sizes = tuple(n * k for n, k in zip(SIZES[2], (2, 3), strict=True))
    options = {"interpolation": interpolation, "data_format": data_format}
    ours, theirs = _both(
        lambda x: resize(x, (2, 3), interpolation, data_format),
        lambda x: keras.ops.image.resize(x, sizes, **options),
        x,
    )
    _close(ours, theirs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_repeat_pad_and_crop_match_numpy(rank):
    x = _images(rank, "channels_first")
    expected = x
    for axis in range(2, rank + 2):
        expected = np.repeat(expected, axis, axis=axis)
    _close(repeat(x, range(2, rank + 2), "channels_first"), expected)
    pairs = ((1, 0), (0, 2), (1, 1))[:rank]
    padded = zero_pad(x, pairs, "channels_first")
    _close(padded, np.pad(x, ((0, 0), (0, 0), *pairs)))
    _close(crop(padded, pairs, "channels_first"), x)


@pytest.mark.exhaustive
def test_average_pooling_counts_only_cells_inside():
    x = jnp.ones((1, 5, 4, 1))
    assert bool(jnp.all(average_pool(x, (3, 3), (2, 2), "same") == 1.0))


def test_a_causal_convolution_ignores_later_steps():
    layer = layers.Conv1D(2, 3, padding="causal", dilation_rate=2).build(KEY, (None, 8, 3))
    x = jnp.asarray(_numbers(1, 8, 3))
    jacobian = jax.jit(jax.jacobian(lambda x: layer(x)[0].sum(-1)))(x)
    jacobian = np.asarray(jacobian)[:, 0].sum(-1)
    assert np.allclose(np.triu(jacobian, k=1), 0)
    assert np.abs(np.diag(jacobian)).min() > 0


def test_max_pooling_keeps_integers():
    x = jnp.array([[[-5], [-7], [3], [2]]], "int32")
    y = layers.MaxPooling1D(3, 3, "same")(x)
    assert y.dtype == jnp.int32
    np.testing.assert_array_equal(y.ravel(), [-5, 3])


@pytest.mark.exhaustive
@pytest.mark.parametrize("data_format", FORMATS)
def test_the_masked_mean_matches_keras(data_format):
    x = jnp.asarray(_images(1, data_format))
    mask = jnp.array([[1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0]], bool)
    layer = layers.GlobalAveragePooling1D(data_format)
    out = jax.jit(lambda x, mask: layer.apply(x, mask=mask))(x, mask)
    assert out.mask is None
    with keras_rules():
        reference = keras.layers.GlobalAveragePooling1D(data_format)
        expected = jax.jit(lambda x, mask: reference(x, mask=mask))(x, mask)
    _close(out.value, expected)


@pytest.mark.exhaustive
def test_a_row_without_steps_has_mean_0_and_finite_gradients():
    x, mask = jnp.asarray(_numbers(2, 3, 2)), jnp.array([[True] * 3, [False] * 3])
    value, grad = jax.jit(jax.value_and_grad(lambda x: masked_mean(x, mask)[1].sum()))(x)
    assert value == 0
    assert (np.asarray(grad) == 0).all()


def test_a_mask_with_another_number_of_steps_is_rejected():
    with pytest.raises(ValueError, match=r"expected a mask of shape \(2, 7\).*received \(2, 4\)"):
        layers.GlobalAveragePooling1D().apply(jnp.ones((2, 7, 4)), mask=jnp.ones((2, 4), bool))


OPEN = (
    layers.Conv2D(4, 3, padding="same"),
    layers.Conv2D(4, 5),
    layers.Conv2D(6, (3, 2), 2, "same", groups=3),
    layers.Conv2D(4, 2, dilation_rate=3),
    layers.MaxPooling2D(3, 2),
    layers.MaxPooling2D(2, padding="same"),
    layers.AveragePooling2D((1, 4)),
    layers.AveragePooling2D(3, 2, "same"),
    layers.ZeroPadding2D(((1, 0), (2, 3))),
    layers.Cropping2D(((4, 1), (0, 3))),
    layers.UpSampling2D((2, 3)),
    layers.UpSampling2D(2, interpolation="bicubic"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", OPEN, ids=repr)
def test_unknown_sizes_stay_unknown_and_all_sizes_run(layer):
    inputs = fk.Input((None, None, 3))
    y = layer(inputs)
    assert y.shape[:3] == (None, None, None)
    outputs = layers.GlobalMaxPooling2D()(layers.MaxPooling2D(2, padding="same")(y))
    assert outputs.shape == (None, y.shape[-1])
    model = fk.Model(inputs, outputs)
    for sizes in ((9, 8), (12, 17)):
        x = np.ones((2, *sizes, 3), "float32")
        assert jax.eval_shape(lambda x: model.build(KEY)(x), x).shape == (2, y.shape[-1])


def test_only_the_unknown_axes_are_unknown():
    y = layers.Conv2D(4, 3)(fk.Input((None, 28, 3)))
    assert y.shape == (None, None, 26, 4)
    z = layers.Conv2D(4, 3, data_format="channels_first")(fk.Input((3, 28, None)))
    assert z.shape == (None, 4, 26, None)
    assert layers.UpSampling1D(3)(fk.Input((None, 5))).shape == (None, None, 5)


def test_branches_of_one_unknown_size_can_be_added():
    x = fk.Input((None, None, 3))
    pooled = layers.MaxPooling2D(3, 1, "same")(x)
    y = layers.Add()([x, layers.Conv2D(3, 3, padding="same")(pooled)])
    assert y.shape == (None, None, None, 3)


def test_strides_default_to_the_window():
    assert layers.MaxPooling2D((2, 3)).strides == (2, 3)
    assert layers.MaxPooling2D(2) == layers.MaxPooling2D((2, 2), [2, 2])
    assert layers.Conv2D(4, 3) == layers.Conv2D(4, (3, 3), padding="VALID")


def test_keras_configurations_can_be_read():
    with keras_rules():
        theirs = [
            keras.layers.Conv2D(4, 3, padding="same", activation="relu", name="a"),
            keras.layers.Conv1D(4, 3, padding="causal", dilation_rate=2, name="a"),
            keras.layers.MaxPooling2D(name="a"),
            keras.layers.AveragePooling3D(2, name="a"),
            keras.layers.GlobalAveragePooling2D(name="a"),
            keras.layers.ZeroPadding2D((1, 2), name="a"),
            keras.layers.Cropping3D(name="a"),
            keras.layers.UpSampling2D(interpolation="bilinear", name="a"),
        ]
    ours = [
        layers.Conv2D(4, 3, padding="same", activation="relu", name="a"),
        layers.Conv1D(4, 3, padding="causal", dilation_rate=2, name="a"),
        layers.MaxPooling2D(name="a"),
        layers.AveragePooling3D(2, name="a"),
        layers.GlobalAveragePooling2D(name="a"),
        layers.ZeroPadding2D((1, 2), name="a"),
        layers.Cropping3D(name="a"),
        layers.UpSampling2D(interpolation="bilinear", name="a"),
    ]
    for layer, keras_layer in zip(ours, theirs, strict=True):
        assert layers.deserialize(keras.layers.serialize(keras_layer)) == layer


def test_short_names_are_aliases():
    assert layers.Convolution2D is layers.Conv2D
    assert layers.MaxPool1D is layers.MaxPooling1D
    assert layers.AvgPool3D is layers.AveragePooling3D
    assert layers.GlobalMaxPool2D is layers.GlobalMaxPooling2D
    assert layers.GlobalAvgPool2D is layers.GlobalAveragePooling2D


def test_weights_have_the_shapes_and_order_of_keras():
    layer = layers.Conv2D(6, (3, 2), groups=3, data_format="channels_first")
    layer = layer.build(KEY, (None, 9, 8, 8))
    assert [w.shape for w in layer.get_weights()] == [(3, 2, 3, 6), (6,)]


def test_a_missing_axis_is_reported():
    with pytest.raises(
        fk.InputSpecError, match=r"ndim=4.*\(b, 28, 28\).*fk.Input\(\(28, 28, 1\)\)"
    ):
        layers.Conv2D(4, 3)(fk.Input((28, 28)))
    built = layers.Conv2D(4, 3).build(KEY, (None, 28, 28, 3))
    with pytest.raises(fk.InputSpecError, match=r"x\[None\].*batch axis"):
        built(jnp.ones((28, 28, 3)))
    with pytest.raises(fk.InputSpecError, match=r"ndim=3.*\(b, 8\)"):
        layers.GlobalMaxPooling1D()(fk.Input((8,)))


def test_another_number_of_channels_is_rejected():
    built = layers.Conv2D(4, 3, name="stem").build(KEY, (None, 28, 28, 3))
    with pytest.raises(fk.InputSpecError, match=r"'stem' \(Conv2D\).*size 3.*\(2, 28, 28, 1\)"):
        built(jnp.ones((2, 28, 28, 1)))
    with pytest.raises(ValueError, match="known number of channels"):
        layers.Conv1D(4, 3)(fk.Input((8, None)))


@pytest.mark.exhaustive
def test_a_window_larger_than_the_input_is_rejected():
    message = r"at least {} cells on axis {}.*{}.*padding='same'"
    with pytest.raises(ValueError, match=message.format(5, 2, "kernel_size")):
        layers.Conv2D(4, 3, dilation_rate=2)(fk.Input((8, 4, 3)))
    with pytest.raises(ValueError, match=message.format(3, 1, "pool_size")):
        layers.AveragePooling1D(3)(jnp.ones((1, 2, 3)))
    with pytest.raises(ValueError, match="more than 4 cells on axis 1, because cropping"):
        layers.Cropping1D(2)(jnp.ones((1, 4, 3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Conv2D(0, 3), "filters: expected a positive integer, received 0"),
        (lambda: layers.Conv2D(5, 3, groups=2), "multiple of groups=2, received filters=5.*6"),
        (lambda: layers.Conv2D(4, (3, 3, 3)), r"Conv2D: kernel_size: .*tuple of 2.*\(3, 3, 3\)"),
        (lambda: layers.Conv1D(4, 0), "Conv1D: kernel_size: .*1 or more.*received 0"),
        (lambda: layers.Conv3D(4, 3, True), "Conv3D: strides: .*received True"),
        (lambda: layers.Conv2D(4, 3, 2, dilation_rate=2), r"not both.*strides=\(2, 2\)"),
        (lambda: layers.Conv2D(4, 3, padding="causal"), "'valid' or 'same', received 'causal'"),
        (lambda: layers.Conv2D(4, 3, padding="smae"), "Did you mean 'same'"),
        (lambda: layers.Conv2D(4, 3, data_format="channels_lsat"), "'channels_last'"),
        (lambda: layers.MaxPooling2D((2, 0)), r"MaxPooling2D: pool_size: .*\(2, 0\)"),
        (lambda: layers.MaxPooling3D(2, (1, 2)), r"MaxPooling3D: strides: .*tuple of 3"),
        (lambda: layers.ZeroPadding2D(-1), "ZeroPadding2D: padding: .*0 or more.*-1"),
        (lambda: layers.ZeroPadding2D((1, 2, 3)), "ZeroPadding2D: padding: .*the 2 axes"),
        (lambda: layers.UpSampling2D(interpolation="bilinaer"), "Did you mean 'bilinear'"),
        (lambda: layers.UpSampling1D(1.5), r"UpSampling1D: size: .*1\.5"),
    ],
)
def test_constructors_check_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_channels_must_be_divisible_by_groups():
    with pytest.raises(ValueError, match=r"groups=2, received \(b, 8, 8, 3\) with 3"):
        layers.Conv2D(4, 3, groups=2)(fk.Input((8, 8, 3)))

"""Core and merging layers beyond the layer table: masks, keys, losses, Dot against Keras, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)


def _data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


class MasksSeven(layers.Embedding):
    """Embeds ids; id 7 is padding."""

    def compute_mask(self, ids):
        return ids != 7


@pytest.mark.exhaustive
def test_embedding_masks_zero():
    ids = np.array([[1, 2, 0], [0, 3, 3]])
    layer = layers.Embedding(5, 2, mask_zero=True).build(KEY, ids)
    np.testing.assert_array_equal(layer.apply(ids).mask, ids != 0)
    unmasked = layers.Embedding(5, 2).build(KEY, ids)
    assert unmasked.apply(ids).mask is None


def test_an_embedding_may_mask_another_id():
    ids = np.array([[1, 7, 0]])
    layer = MasksSeven(9, 2).build(KEY, ids)
    np.testing.assert_array_equal(layer.apply(ids).mask, [[True, False, True]])
    assert isinstance(layers.Masking()(layer(fk.Input((3,), dtype="int32"))), fk.KerasTensor)


def test_an_embedding_keeps_the_mask_of_its_input():
    ids = np.array([[1, 2, 0]])
    layer = layers.Embedding(5, 2, mask_zero=True).build(KEY, ids)
    out = layer.apply(ids, mask=np.array([[False, True, True]]))
    np.testing.assert_array_equal(out.mask, [[False, True, False]])


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "float32", "bool"])
def test_ids_may_have_any_dtype(dtype):
    ids = np.array([[1, 0, 1]])
    layer = layers.Embedding(5, 2, dtype="mixed_bfloat16").build(KEY, ids)
    expected = np.asarray(layer.embeddings)[ids].astype("bfloat16")
    np.testing.assert_array_equal(layer(ids.astype(dtype)), expected)


@pytest.mark.exhaustive
def test_ids_beyond_bfloat16_are_not_rounded():
    ids = np.array([[257.0, 301.0]], "float32")
    layer = layers.Embedding(400, 1, dtype="mixed_bfloat16").build(KEY, ids)
    np.testing.assert_array_equal(layer(ids), layer.embeddings[ids.astype(int)].astype("bfloat16"))


def test_masking_twice_keeps_both_masks():
    x = np.array([[[1.0], [0.0], [-1.0]]], "float32")
    first = layers.Masking(0.0).apply(x)
    second = layers.Masking(-1.0).apply(first.value, mask=first.mask)
    np.testing.assert_array_equal(second.mask, [[True, False, False]])
    np.testing.assert_array_equal(np.ravel(second.value), [1.0, 0.0, 0.0])


@pytest.mark.exhaustive
def test_dropout_draws_by_key():
    x = jnp.ones((32, 32))
    layer = layers.Dropout(0.25)
    value = layer.apply(x, training=True, key=KEY).value
    np.testing.assert_array_equal(value, layer.apply(x, training=True, key=KEY).value)
    other_value = layer.apply(x, training=True, key=jax.random.key(1)).value
    assert (value != other_value).any()
    seeded = layers.Dropout(0.25, seed=3).apply(x, training=True, key=KEY).value
    assert (value != seeded).any()
    assert abs(float((value == 0).mean()) - 0.25) < 0.05
    np.testing.assert_allclose(np.unique(value), [0.0, 1 / 0.75], rtol=1e-6)


@pytest.mark.exhaustive
def test_dropout_without_a_key():
    with pytest.raises(ValueError, match=r"'drop' \(Dropout\).*key.*jax\.random\.key"):
        layers.Dropout(0.5, name="drop").apply(jnp.ones((2, 2)), training=True)
    # no key is needed without draws
    layers.Dropout(0.0).apply(jnp.ones((2, 2)), training=True)
    layers.Dropout(0.5).apply(jnp.ones((2, 2)))


@pytest.mark.exhaustive
def test_a_shared_dropout_draws_twice():
    inputs = fk.Input((64,))
    dropout = layers.Dropout(0.5)
    model = fk.Model(inputs, [dropout(inputs), dropout(inputs)]).build(KEY)
    first, second = model.apply(jnp.ones((4, 64)), training=True, key=KEY).value
    assert (first != second).any()


@pytest.mark.exhaustive
def test_noise_shape_shares_draws():
    x = jnp.ones((3, 5, 64))
    y = layers.Dropout(0.5, (None, 1, None)).apply(x, training=True, key=KEY).value
    np.testing.assert_array_equal(y, np.broadcast_to(np.asarray(y)[:, :1], y.shape))
    assert (y[0] != y[1]).any()


@pytest.mark.exhaustive
def test_activity_penalties_match_keras():
    x = _data(4, 3)
    ours = layers.ActivityRegularization(l1=0.1, l2=0.2).apply(x)
    with keras_rules():
        reference = keras.layers.ActivityRegularization(l1=0.1, l2=0.2)
        reference(x)
        expected = float(reference.losses[0])
    np.testing.assert_allclose(ours.losses[0], expected, rtol=1e-6)
    layer = layers.Dense(2, activity_regularizer="l1", kernel_regularizer="l2").build(KEY, x)
    with keras_rules():
        reference = keras.layers.Dense(2, activity_regularizer="l1", kernel_regularizer="l2")
        reference.build(x.shape)
        reference.set_weights(layer.get_weights())
        reference(x)
        expected = sum(float(loss) for loss in reference.losses)
    np.testing.assert_allclose(sum(layer.apply(x).losses), expected, rtol=1e-6)


def test_dense_accepts_integers():
    x = np.arange(6).reshape(2, 3)
    layer = layers.Dense(2, "relu").build(KEY, x)
    np.testing.assert_allclose(layer(x), layer(x.astype("float32")), rtol=1e-6)


def test_lambda_is_saved_by_name():
    def double(x, factor=2.0):
        return factor * x

    layer = layers.Lambda(double, arguments={"factor": 3.0})
    config = layers.serialize(layer)
    assert layers.deserialize(config, custom_objects={"double": double}) == layer
    with pytest.raises(ValueError, match="custom_objects"):
        layers.deserialize(config)
    with pytest.raises(TypeError, match=r"Lambda.*<lambda>.*def"):
        layers.serialize(layers.Lambda(lambda x: x))


def test_lambda_masks():
    x, mask = _data(2, 3, 4), np.array([[True, True, False]] * 2)
    with pytest.raises(fk.FKerasError, match="mask"):
        layers.Lambda(jnp.tanh).apply(x, mask=mask)
    out = layers.Lambda(jnp.tanh, mask=lambda x, mask: ~mask).apply(x, mask=mask)
    np.testing.assert_array_equal(out.mask, ~mask)
    out = layers.Lambda(jnp.tanh, mask=mask).apply(x)
    np.testing.assert_array_equal(out.mask, mask)
    out = layers.Lambda(jnp.tanh, mask=mask.astype("float32")).apply(x)
    pool = layers.GlobalAveragePooling1D()
    np.testing.assert_array_equal(pool(x, mask=out.mask), pool(x, mask=mask))


def test_lambda_accepts_array_arguments():
    def shift(x, by):
        return x + by

    layer = layers.Lambda(shift, arguments={"by": np.ones((1, 2), "float32")})
    np.testing.assert_array_equal(layer(np.ones((1, 2), "float32")), [[2.0, 2.0]])
    assert layer == layers.Lambda(shift, arguments={"by": np.ones((1, 2), "float32")})


def test_lambda_checks_a_declared_shape():
    x = np.ones((2, 3), "float32")
    assert layers.Lambda(jnp.tanh, (3,))(x).shape == (2, 3)
    with pytest.raises(ValueError, match=r"output_shape.*\(2, 3\)"):
        layers.Lambda(jnp.tanh, (4,))(x)
    with pytest.raises(ValueError, match="output_shape: expected a tuple of sizes"):
        layers.Lambda(jnp.tanh, lambda shape: "ab")(x)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer", [layers.Add(), layers.Multiply(), layers.Average(), layers.Maximum()], ids=repr
)
def test_a_merged_mask_is_the_conjunction(layer):
    x, y = _data(2, 3, 4), _data(2, 3, 4, seed=1)
    first = np.array([[True, True, False]] * 2)
    second = np.array([[True, False, True]] * 2)
    np.testing.assert_array_equal(layer.apply([x, y], mask=[first, second]).mask, first & second)
    np.testing.assert_array_equal(layer.apply([x, y], mask=[None, second]).mask, second)
    assert layer.apply([x, y], mask=[None, None]).mask is None
    assert layer.apply([x, y]).mask is None


@pytest.mark.exhaustive
def test_masks_of_different_rank_are_aligned_with_their_tensors():
    x, y = np.ones((2, 2, 3, 4), "float32"), np.ones((2, 2, 3, 4), "float32")
    coarse = np.array([[True, False]] * 2)
    fine = np.array([[[True, True, False]] * 2] * 2)
    out = layers.Add().apply([x, y], mask=[coarse, fine])
    np.testing.assert_array_equal(out.mask, coarse[..., None] & fine)
    out = layers.Concatenate(axis=2).apply([x, y], mask=[coarse, fine])
    expected = np.concatenate([np.broadcast_to(coarse[..., None], fine.shape), fine], 2)
    np.testing.assert_array_equal(out.mask, expected)
    out = layers.Masking().apply(x, mask=coarse)
    np.testing.assert_array_equal(out.mask, np.broadcast_to(coarse[..., None], (2, 2, 3)))
    with pytest.raises(ValueError, match=r"each of its 2 inputs, received one array"):
        layers.Add().apply([x, y], mask=coarse)


@pytest.mark.exhaustive
def test_concatenated_masks():
    x, y = _data(2, 3, 4), _data(2, 3, 5)
    first = np.array([[True, True, False]] * 2)
    second = np.array([[True, False, True]] * 2)
    features = layers.Concatenate()
    np.testing.assert_array_equal(features.apply([x, y], mask=[first, second]).mask, first & second)
    np.testing.assert_array_equal(features.apply([x, y], mask=[first, None]).mask, first)
    steps = layers.Concatenate(axis=1).apply([x, x], mask=[first, second])
    np.testing.assert_array_equal(steps.mask, np.concatenate([first, second], 1))
    steps = layers.Concatenate(axis=1).apply([x, x], mask=[None, second])
    np.testing.assert_array_equal(steps.mask, np.concatenate([np.ones_like(first), second], 1))


@pytest.mark.exhaustive
def test_integers_and_floats_merge():
    ints, floats = np.ones((2, 3), "int32"), np.ones((2, 3), "float32")
    assert layers.Add()([ints, floats]).dtype == "float32"
    assert layers.Add()([ints, ints]).dtype == "int32"
    assert layers.Concatenate()([ints, floats]).dtype == "float32"
    half = layers.Add(dtype="mixed_bfloat16")
    assert half([ints, floats]).dtype == "bfloat16"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        (((3, 4), (3, 4)), 1),
        (((2, 3, 5), (2, 5)), (2, 1)),
        (((2, 5), (2, 3, 5)), (1, 2)),
        (((2, 3, 5), (2, 5, 4)), (-1, 1)),
        (((2, 3, 4, 5), (2, 6, 4)), (2, 2)),
        (((2, 3, 4, 5), (2, 5, 3, 6)), (3, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("normalize", [False, True])
def test_dot_matches_keras(shapes, axes, normalize):
    x, y = (_data(*shape, seed=i) for i, shape in enumerate(shapes))
    value = layers.Dot(axes, normalize=normalize)([x, y])
    with keras_rules():
        expected = np.asarray(keras.layers.Dot(axes, normalize=normalize)([x, y]))
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_cosine_of_zeros_is_zero(dtype):
    layer = layers.Dot(1, normalize=True, dtype=dtype)
    zeros = jnp.zeros((1, 3))

    def cosine(x):
        return jnp.sum(layer([x, jnp.ones((1, 3))]))

    assert cosine(zeros) == 0
    # 1e7, which float16 cannot hold
    gradient = jax.grad(cosine)(zeros)
    assert bool(jnp.isfinite(gradient).all()) or dtype == "float16"
    assert not bool(jnp.isnan(gradient).any())


def test_unknown_sizes_stay_unknown():
    steps = fk.Input((None, 4))
    assert layers.Flatten()(steps).shape == (None, None)
    assert layers.Reshape((-1, 2))(steps).shape == (None, None, 2)
    assert layers.Concatenate(axis=1)([steps, steps]).shape == (None, None, 4)
    assert layers.Dot(axes=2)([steps, steps]).shape == (None, None, None)
    assert layers.Add()([steps, fk.Input((4,))]).shape == (None, None, 4)


def test_functions_make_layers():
    x, y = fk.Input((4,), name="x"), fk.Input((4,), name="y")
    model = fk.Model([x, y], layers.subtract([x, y], name="difference"))
    assert "difference" in model.layers
    for function in (layers.add, layers.multiply, layers.average, layers.maximum, layers.minimum):
        assert function([x, y]).shape == (None, 4)
    assert layers.concatenate([x, y], axis=-1).shape == (None, 8)
    assert layers.dot([x, y], axes=1, normalize=True).shape == (None, 1)


def _on(layer, *shapes):
    return lambda: layer([fk.Input(shape) for shape in shapes])


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Dense(0), r"Dense: units.*positive integer.*0"),
        (lambda: layers.Dense("8"), r"units.*'8'"),
        (lambda: layers.Dense(2, activation="rleu"), r"rleu.*Did you mean 'relu'"),
        (lambda: layers.Dense(2)(fk.Input((None,))), r"kernel.*known size"),
        (lambda: layers.Embedding(0, 3), r"Embedding: input_dim.*positive"),
        (lambda: layers.Embedding(3, -1), r"output_dim.*-1"),
        (lambda: layers.Dropout(1.5), r"Dropout: rate.*0 to 1.*1\.5"),
        (lambda: layers.Dropout(20), r"share, not a percentage"),
        (lambda: layers.Dropout(0.5, noise_shape="abc"), r"noise_shape.*'abc'"),
        (lambda: layers.Dropout(0.5, noise_shape=(2, 0)), r"noise_shape.*\(2, 0\)"),
        (lambda: layers.Lambda("relu"), r"custom_objects=\{'relu'.*Activation\('relu'\)"),
        (lambda: layers.Lambda(3), r"int"),
        (lambda: layers.ActivityRegularization(l1=-1.0), r"-1"),
        (lambda: layers.Flatten("chanels_last"), r"Did you mean 'channels_last'"),
        (lambda: layers.Reshape((-1, -1)), r"at most one"),
        (lambda: layers.Reshape((3, 5))(fk.Input((12,))), r"15 elements.*\(b, 12\) with 12"),
        (lambda: layers.Reshape((-1, 5))(fk.Input((12,))), r"a multiple of 5"),
        (lambda: layers.Permute((0, 1)), r"1 to 2 once.*\(0, 1\)"),
        (lambda: layers.Permute((2, 1))(fk.Input((3,))), r"ndim=3"),
        (lambda: layers.RepeatVector(0), r"RepeatVector: n.*0"),
        (lambda: layers.Add()(fk.Input((4,))), r"list of tensors.*\(b, 4\).*\[a, b\]"),
        (lambda: layers.Add()(fk.Input((4,)), fk.Input((4,))), r"without a list"),
        (_on(layers.Add(), (4,), (5,)), r"input 0: \(b, 4\), input 1: \(b, 5\).*axis 1"),
        (_on(layers.Subtract(), (4,), (4,), (4,)), r"list of 2 tensors, received 3"),
        (_on(layers.Concatenate(), (3, 4), (2, 4)), r"input 1: \(b, 2, 4\).*axis 1"),
        (_on(layers.Concatenate(), (4,), (2, 4)), r"same number of axes"),
        (_on(layers.Concatenate(axis=5), (4,), (4,)), r"axis 5.*-2 to 1"),
        (lambda: layers.Dot(axes=0), r"batch axis 0"),
        (lambda: layers.Dot(axes=(1, 2, 3)), r"pair.*\(1, 2, 3\)"),
        (_on(layers.Dot(axes=1), (4,), (5,)), r"axis 1 of input 0.*\(b, 4\).*\(b, 5\)"),
        (_on(layers.Dot(axes=2), (4, 3), (3,)), r"axis 2 after the batch in input 1"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.exhaustive
def test_error_messages_name_the_layer():
    with pytest.raises(ValueError, match=r"^'sum' \(Add\): expected"):
        layers.Add(name="sum")([fk.Input((4,)), fk.Input((5,))])
    with pytest.raises(ValueError, match=r"equal shape.*\(2, 4\).*\(3, 4\).*axis 0"):
        layers.Add()([_data(2, 4), _data(3, 4)])


@pytest.mark.exhaustive
def test_embedding_of_ids_on_explicit_axes_is_laid_out_as_the_ids():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.PartitionSpec("data")
    ids = np.arange(16, dtype="int32").reshape(8, 2) % 7
    layer = fk.layers.Embedding(7, 3).build(jax.random.key(0), (None, 2))
    sharded = jax.device_put(ids, jax.sharding.NamedSharding(mesh, spec))
    y = jax.jit(lambda layer, ids: layer(ids))(layer, sharded)
    assert y.sharding.spec[0] == "data"
    np.testing.assert_array_equal(y, layer(ids))

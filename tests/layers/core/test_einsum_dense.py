"""EinsumDense, ReversibleEmbedding, Softmax: sizes, masks, edges, and differences from Keras."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.softmax import masked_softmax
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def _draw(*shape):
    return RNG.normal(size=shape).astype("float32")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes", "shape"),
    [
        ("ab,bc->ac", 4, "c", (2, 3)),
        ("abc,cde->abde", (None, 4, 5), "de", (2, 3, 6)),
        ("abc,cde->abde", (None, 4, 5), "d", (2, 3, 6)),
        ("abc,bd->adc", (4, 6), "d", (2, 3, 6)),
        ("abde,def->abf", (None, 4), None, (2, 3, 5, 6)),
        ("...x,xy->...y", 4, "y", (2, 3)),
        ("...x,xy->...y", 4, "y", (2, 5, 6, 3)),
        ("...bc,cde->...bde", (5, 4, 2), "bd", (2, 5, 3)),
        ("ab...,bc->ac...", 4, "c", (2, 3, 5, 6)),
    ],
)
def test_weights_have_the_shapes_of_keras(equation, output_shape, bias_axes, shape):
    layer = layers.EinsumDense(equation, output_shape, bias_axes=bias_axes)
    built = layer.build(KEY, shape)
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(layer))
        theirs.build(shape)
    assert [w.shape for w in built.get_weights()] == [v.shape for v in theirs.weights]
    # for the input (None, 5, 6, 3) Keras infers (None, 6, 5, 4), but computes the shape below
    expected = np.einsum(equation, np.zeros(shape), built.kernel).shape
    assert layer(fk.Input(shape[1:])).shape == (None, *expected[1:])


def test_unknown_sizes_stay_unknown():
    x = fk.Input((None, 6))
    assert layers.EinsumDense("abc,cd->abd", (None, 4))(x).shape == (None, None, 4)
    with pytest.raises(ValueError, match="needs known sizes"):
        layers.EinsumDense("abc,bd->adc", (4, None)).build(KEY, (None, None, 6))


@pytest.mark.exhaustive
def test_fan_in_counts_the_summed_axes():
    """The rule of convolutions would use the last two axes as inputs and outputs."""
    for equation, shape, sizes in (
        ("abc,cde->abde", (1, 2, 40), (None, 20, 10)),
        ("abcd,dce->abe", (1, 2, 10, 20), (None, 200)),
    ):
        for name, stddev in (("he_normal", 2.0), ("lecun_uniform", 1.0)):
            layer = layers.EinsumDense(equation, sizes, kernel_initializer=name)
            kernel = layer.build(KEY, shape).kernel
            inputs = 40 if equation == "abc,cde->abde" else 200
            assert abs(float(kernel.std()) / (stddev / inputs) ** 0.5 - 1) < 0.03


def test_the_order_of_kernel_axes_does_not_change_the_product():
    x = _draw(2, 3, 4)
    layer = layers.EinsumDense("abc,cd->abd", (None, 5)).build(KEY, x)
    transposed = layers.EinsumDense("abc,dc->abd", (None, 5)).build(KEY, x)
    np.testing.assert_allclose(layer(x), transposed(x), atol=1e-6)


def test_masks_pass_if_the_time_axis_stays():
    x, mask = _draw(2, 3, 4), np.array([[True, True, False], [True, False, False]])
    for equation in ("abc,cd->abd", "...x,xy->...y"):
        size = 5 if equation.startswith(".") else (None, 5)
        layer = layers.EinsumDense(equation, size).build(KEY, x)
        np.testing.assert_array_equal(layer.apply(x, mask=mask).mask, mask)
    mixed = layers.EinsumDense("abc,bd->adc", (5, None)).build(KEY, x)
    with pytest.raises(fk.FKerasError, match="received a mask"):
        mixed(x, mask=mask)


@pytest.mark.parametrize(
    "layer", [layers.Dense(2), layers.EinsumDense("ab,bc->ac", 2, bias_axes="c")], ids=repr
)
def test_mixed_policies_round_the_sum_with_the_bias(layer):
    x = jnp.ones((1001, 1), "bfloat16")
    layer = layer.replace(dtype="mixed_bfloat16", kernel_initializer=fk.initializers.Constant(-1.0))
    # bfloat16 rounds the bias to 1 and the number of rows to 1000
    layer = layer.build(KEY, x).replace(bias=jnp.full(2, 1 + 2**-10))
    y, gradients = jax.vjp(lambda layer: layer(x), layer)
    assert y.dtype == jnp.bfloat16 and jnp.all(y == 2**-10)
    np.testing.assert_array_equal(gradients(jnp.ones_like(y))[0].bias, [1001.0, 1001.0])


def test_integers_are_accepted():
    layer = layers.EinsumDense("ab,bc->ac", 2, kernel_initializer="ones").build(KEY, (None, 3))
    np.testing.assert_array_equal(layer(jnp.array([[1, 2, 3]])), [[6.0, 6.0]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.EinsumDense("ab,bc", 3), "expected a form such as"),
        (lambda: layers.EinsumDense("a...b,bc->a...c", 3), "expected a form such as"),
        (lambda: layers.EinsumDense("ab,bz->a", 3), "it occurs in the kernel"),
        (lambda: layers.EinsumDense("ab,bc->acz", (3, 4)), "it occurs only in the output"),
        (lambda: layers.EinsumDense("ab,bc->ac", 0), "output_shape: expected a positive size"),
        (lambda: layers.EinsumDense("ab,bc->ac", 3, bias_axes="b"), "expected letters of the out"),
        (
            lambda: layers.EinsumDense("abc,cd->abd", 3).build(KEY, (2, 3, 4)),
            "output_shape with a size for each",
        ),
        (
            lambda: layers.EinsumDense("abc,cd->abd", (7, 3)).build(KEY, (2, 3, 4)),
            "same size of axis 'b'",
        ),
        (
            lambda: layers.EinsumDense("ab,bc->ac", 3).build(KEY, (2, 3, 4)),
            "expected ndim=2",
        ),
        (
            lambda: layers.EinsumDense("ab,bc->ac", 3).build(KEY, (2, 3))(jnp.ones((2, 4))),
            "expected axis 1 of size 3",
        ),
        (lambda: layers.ReversibleEmbedding(0, 3), "input_dim: expected a positive integer"),
        (lambda: layers.ReversibleEmbedding(3, 3, logit_soft_cap=0), "logit_soft_cap: expected"),
        (lambda: layers.ReversibleEmbedding(3, 3, reverse_dtype="int32"), "a floating-point dty"),
        (lambda: layers.Softmax(axis="last"), "axis: expected an integer"),
        (lambda: layers.Softmax(axis=2)(jnp.ones((2, 3))), "expected an input with the axes"),
        (
            lambda: layers.Softmax()(jnp.ones((2, 3, 4)), mask=jnp.ones((4, 2), bool)),
            "expected a mask whose axes",
        ),
    ],
)
def test_bad_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_keras_json_is_read():
    for reference in (
        keras.layers.EinsumDense("abc,cd->abd", (None, 4), "relu", "d"),
        keras.layers.EinsumDense("...x,xy->...y", 4, activity_regularizer="l2"),
        keras.layers.ReversibleEmbedding(7, 3, False, reverse_dtype="float32", logit_soft_cap=3.0),
        keras.layers.Softmax(axis=[1, 2]),
        keras.layers.Softmax(),
    ):
        layer = layers.deserialize(keras.layers.serialize(reference))
        with keras_rules():
            again = keras.layers.deserialize(layers.serialize(layer))
        configs = [
            json.dumps(keras_layer.get_config(), sort_keys=True)
            for keras_layer in (again, reference)
        ]
        assert configs[0] == configs[1]
        assert layers.deserialize(layers.serialize(layer)) == layer
    config = keras.layers.EinsumDense("ab,bc->ac", 4, lora_rank=2).get_config()
    supported = {k: v for k, v in config.items() if not k.startswith("lora")}
    assert layers.EinsumDense.from_config(config) == layers.EinsumDense.from_config(supported)


@pytest.mark.exhaustive
def test_one_embedding_in_both_directions():
    ids = np.array([[3, 1, 0], [2, 0, 0]])
    tokens = fk.Input((None,), dtype="int32")
    shared = layers.ReversibleEmbedding(7, 4, mask_zero=True, name="tokens")
    scores = shared(shared(tokens), reverse=True)
    assert scores.shape == (None, None, 7)
    model = fk.Model(tokens, scores).build(KEY)
    out = model.apply(ids)
    embeddings = model.layers["tokens"].embeddings
    np.testing.assert_allclose(out.value, embeddings[ids] @ embeddings.T, atol=1e-6)
    np.testing.assert_array_equal(out.mask, ids != 0)


def test_scores_in_another_dtype():
    layer = layers.ReversibleEmbedding(7, 4, reverse_dtype="float32", dtype="bfloat16")
    layer = layer.build(KEY, (None, 4))
    x = jnp.ones((2, 4), "bfloat16")
    assert layer(x, reverse=True).dtype == "float32"
    assert layer(jnp.array([[1]])).dtype == "bfloat16"
    with pytest.raises(ValueError, match="expected vectors of size 4"):
        layer(jnp.ones((2, 3)), reverse=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("axis", [-1, 1, (1, 2), [2]])
def test_softmax_with_a_mask_matches_keras(axis):
    x = _draw(2, 3, 4)
    mask = RNG.random((2, 3, 4)) < 0.6
    mask[1] = False  # a fully masked row gives zeros
    masks = (mask, mask[:, :1], mask.astype("float32"))

    @jax.jit
    def compute(x):
        with keras_rules():
            reference = keras.layers.Softmax(axis)
            expected = [reference(x, mask=jnp.asarray(m)) for m in masks]
        return [layers.Softmax(axis)(x, mask=m) for m in masks], expected

    for ours, expected in zip(*compute(x), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.exhaustive
def test_softmax_zeroes_masked_steps_and_passes_the_mask():
    x, mask = _draw(2, 3, 4), np.array([[True, True, False], [True, False, False]])
    out = layers.Softmax().apply(x, mask=mask)
    np.testing.assert_array_equal(out.mask, mask)
    np.testing.assert_allclose(out.value.sum(-1), mask, atol=1e-6)
    assert layers.Softmax().apply(x, mask=mask[..., None]).mask is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_softmax_is_finite_at_the_edges(dtype):
    rows = [[1e4, -1e4, 0.0], [-np.inf, 0.0, 1.0], [-6e4, -6e4, -6e4], [-np.inf] * 3, [1.0, 2, 3]]
    x = jnp.asarray(rows, dtype)
    mask = jnp.ones(x.shape, bool).at[4].set(False)

    def score(x, mask):
        y = masked_softmax(x, mask)
        return jnp.sum(jnp.square(y.astype("float32"))), y

    @jax.jit
    def compute(x):
        return [jax.value_and_grad(score, has_aux=True)(x, m) for m in (None, mask)]

    for (_, y), grad in jax.device_get(compute(x)):
        assert y.dtype == dtype
        assert np.isfinite(y).all() and np.isfinite(grad).all()
        np.testing.assert_allclose(y[:3].astype("float32").sum(-1), 1, atol=5e-3)
        assert bool((y[3] == 0).all())
    assert masked_softmax(jnp.ones((2, 0))).shape == (2, 0)
    assert masked_softmax(jnp.array([[1, 1]])).dtype == "float32"


def test_roles_of_axes():
    layer = layers.EinsumDense("abc,cde->abde", (None, 2, 4), axis_roles={"d": "heads"})
    assert layer.build(jax.random.key(0), (None, 3, 8)).axis_names.roles == {"d": "heads"}
    again = layers.deserialize(layers.serialize(layer))
    assert again == layer
    assert again.axis_roles == {"d": "heads"}
    assert "axis_roles" not in layers.EinsumDense("ab,bc->ac", 2).get_config()
    for roles in ({"a": "heads"}, {"de": "heads"}, {"d": 1}, "heads"):
        with pytest.raises(ValueError, match="axis_roles: expected"):
            layers.EinsumDense("abc,cde->abde", (None, 2, 4), axis_roles=roles)

"""Attention: masks, order, empty rows, precision, flash, and differences from Keras."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.attention import attend, attend_with_weights
from fkeras.nn.attention_choice import dot_product_attention
from tests.support.keras_oracle import keras, keras_layer, keras_rules, values

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def _draw(*shape):
    return RNG.normal(size=shape).astype("float32")


def _reference(query, key, value, mask=None, bias=0.0, scale=None):
    """Computes attention for one sample and head at a time, in float64."""
    b, t, heads, d = query.shape
    s, groups = key.shape[1:3]
    scale = d**-0.5 if scale is None else scale
    mask = (
        np.ones((b, heads, t, s), bool) if mask is None else np.broadcast_to(mask, (b, heads, t, s))
    )
    bias = np.broadcast_to(bias, (b, heads, t, s))
    y = np.zeros((b, t, heads, value.shape[-1]))
    for i in range(b):
        for h in range(heads):
            g = h * groups // heads
            for j in range(t):
                valid = mask[i, h, j]
                if valid.any():
                    logits = key[i, :, g].astype("float64") @ query[i, j, h] * scale + bias[i, h, j]
                    e = np.where(valid, np.exp(logits - logits[valid].max()), 0)
                    y[i, j, h] = e / e.sum() @ value[i, :, g]
    return y


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("groups", "shape"), [(1, (3, 1, 5, 6)), (2, (1, 4, 5, 6)), (4, (5, 6))])
def test_dot_product_attention_against_loops(groups, shape):
    query, key, value = _draw(3, 5, 4, 2), _draw(3, 6, groups, 2), _draw(3, 6, groups, 3)
    mask, bias = RNG.random(shape) < 0.5, _draw(*shape)

    @jax.jit
    def compute(*arrays):
        return (
            dot_product_attention(*arrays, jnp.asarray(mask), jnp.asarray(bias), scale=0.7),
            dot_product_attention(*arrays),
            dot_product_attention(*arrays, is_causal=True),
        )

    y, unmasked, causal = compute(query, key, value)
    np.testing.assert_allclose(y, _reference(query, key, value, mask, bias, 0.7), atol=2e-6)
    np.testing.assert_allclose(unmasked, _reference(query, key, value), atol=2e-6)
    lower = np.tril(np.ones((5, 6), bool))
    np.testing.assert_allclose(causal, _reference(query, key, value, lower), atol=2e-6)


@pytest.mark.exhaustive
def test_attend_and_attend_with_weights_agree():
    query, key, value = (jnp.asarray(_draw(2, n, 3, 4, 6)) for n in (5, 2, 2))
    mask = jnp.asarray(RNG.random((2, 1, 5, 3, 2, 3)) < 0.7)
    y, weights = attend_with_weights(query, key, value, mask, axes=(1, 2))
    np.testing.assert_allclose(attend(query, key, value, mask, axes=(1, 2)), y, atol=1e-6)
    assert weights.shape == (2, 4, 5, 3, 2, 3)
    sums = weights.sum((-1, -2))
    np.testing.assert_allclose(sums, np.broadcast_to(mask.any((-1, -2)), sums.shape), atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values_and_gradients_are_finite(dtype):
    """Covers rows without a key, huge scores and biases of -inf, in every precision."""
    query, key, value = (jnp.asarray(100 * _draw(2, 3, 2, 4), dtype) for _ in range(3))
    mask = jnp.asarray([[[True] * 3, [False] * 3, [True, False, False]]])
    bias = jnp.zeros((1, 2, 3, 3), dtype).at[:, :, 2].set(-jnp.inf).at[:, :, 0, 1].set(-1e9)

    def score(arrays, masked, biased):
        y = dot_product_attention(*arrays, masked, biased)
        return jnp.sum(jnp.square(y.astype("float32") / 1e3)), y

    @jax.jit
    def compute(arrays):
        slope = jax.value_and_grad(score, has_aux=True)
        return [slope(arrays, masked, bias) for masked in (mask, None)]

    results = jax.device_get(compute((query, key, value)))
    for ((total, y), grads), empty in zip(results, (1, 2), strict=True):
        assert all(np.isfinite(x).all() for x in (total, *grads))
        assert (grads[0][:, empty] == 0).all()
        assert y.dtype == dtype
    (_, masked), (_, biased) = (result[0] for result in results)
    assert (masked[:, 1] == 0).all()
    assert (biased[:, 2] == 0).all()


@pytest.mark.exhaustive
def test_rows_without_keys_match_keras():
    x = _draw(2, 4, 6)
    mask = np.array([[True, True, False, False], [False] * 4])
    masks = {"query_mask": mask, "value_mask": mask}
    rows = [
        (layers.MultiHeadAttention(2, 3), masks),
        (layers.MultiHeadAttention(2, 3, dropout=0.5), masks),
        (layers.MultiHeadAttention(2, 3), masks | {"return_attention_scores": True}),
        (layers.MultiHeadAttention(2, 3), masks | {"use_causal_mask": True}),
        (layers.GroupQueryAttention(3, 4, 2), masks),
    ]
    simple = (layers.Attention(), layers.AdditiveAttention(use_scale=False))

    sides = [(layer.build(KEY, x, x), keras_layer(layer, [x, x]), o) for layer, o in rows]

    def compute():
        pairs = []
        for built, reference, options in sides:
            weights = [jnp.asarray(w) for w in built.get_weights()]
            variables = values(reference.non_trainable_variables)
            with keras_rules():
                query = jnp.asarray(x)  # Keras reads the query's mask only from the array
                keras.src.backend.set_keras_mask(query, jnp.asarray(mask))
                expected = reference.stateless_call(weights, variables, query, x, **options)[0]
            ours = built.replace(empty_rows="keras")
            pairs.append((ours(x, x, **options), expected))
        for layer in simple:
            reference = keras_layer(layer, [[x, x]])
            variables = values(reference.non_trainable_variables)
            with keras_rules():
                expected = reference.stateless_call(
                    [], variables, [x, x], mask=[None, jnp.asarray(mask)]
                )[0]
            ours = layer.replace(empty_rows="keras")
            pairs.append((ours([x, x], mask=[None, mask]), expected))
        return pairs

    for ours, theirs in jax.jit(compute)():
        for actual, expected_array in zip(
            jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True
        ):
            np.testing.assert_allclose(actual, expected_array, atol=1e-5)


def _projected(layer):
    """Returns calls for every code path: plain, causal, scores, dropout, window."""
    axes = {"attention_axes": (1,)} if isinstance(layer, layers.MultiHeadAttention) else {}
    return (
        (layer, {}),
        (layer, {"use_causal_mask": True}),
        (layer, {"return_attention_scores": True}),
        (layer.replace(dropout=0.5), {}),
        (layer.replace(**axes, sliding_window=2), {}),
    )


@pytest.mark.exhaustive
def test_a_query_without_a_key_gives_zeros_and_no_gradient():
    query, value = jnp.asarray(_draw(2, 3, 4)), jnp.asarray(_draw(2, 5, 4))
    value_mask = np.array([[True] * 5, [False] * 5])  # sample 1 has no key
    calls = [
        call
        for layer in (layers.MultiHeadAttention(2, 3), layers.GroupQueryAttention(3, 4, 2))
        for call in _projected(layer)
    ]
    lists = [
        (layer, {"use_causal_mask": causal})
        for layer in (
            layers.Attention(),
            layers.Attention(score_mode="concat", use_scale=True, dropout=0.5),
            layers.AdditiveAttention(),
        )
        for causal in (False, True)
    ]

    def run(layer, options, query, value):
        training = {"training": layer.dropout > 0, "key": KEY}
        if "flash_attention" in layer.get_config():
            options = options | {"value_mask": jnp.asarray(value_mask)}
            out = layer.apply(query, value, **training, **options)
        else:
            mask = [None, jnp.asarray(value_mask)]
            out = layer.apply([query, value], mask=mask, **training, **options)
        return jax.tree.leaves(out.value)[0]

    built = [(layer.build(KEY, query, value), options) for layer, options in calls]
    built += [(layer.build(KEY, [query, value]), options) for layer, options in lists]

    @jax.jit
    def compute(query, value):
        def differentiate(call):
            def total(q, v):
                y = run(*call, q, v)
                return jnp.square(y - 1).sum(), y

            return jax.value_and_grad(total, (0, 1), has_aux=True)(query, value)

        return [differentiate(call) for call in built]

    for (_, y), slopes in compute(query, value):
        assert (y[1] == 0).all()
        assert (y[0] != 0).any()
        assert all((slope[1] == 0).all() and jnp.isfinite(slope).all() for slope in slopes)

    @jax.jit
    def functions(x):
        mask = jnp.asarray([True, False, True])[None, None, :, None]
        return [
            fk.ops.dot_product_attention(x, x, x, mask=mask, empty_rows=rule)[:, 1]
            for rule in ("zeros", "keras")
        ]

    x = jnp.asarray(_draw(2, 3, 1, 4))
    zeros, mean = functions(x)
    assert (zeros == 0).all()
    np.testing.assert_allclose(mean, x.mean(1), atol=1e-6)
    with pytest.raises(ValueError, match="empty_rows"):
        fk.ops.dot_product_attention(x, x, x, empty_rows="mean")
    with pytest.raises(ValueError, match="empty_rows"):
        layers.MultiHeadAttention(2, 3, empty_rows="none")


@pytest.mark.exhaustive
def test_queries_without_a_key_in_files(tmp_path):
    """Keras's files keep Keras's rule, fkeras's files give zeros; saving again keeps the rule."""
    x, mask = _draw(2, 4, 6), np.array([[True, True, False, False], [False] * 4])
    with keras_rules():
        tensor, valid = keras.Input((4, 6)), keras.Input((4, 4), dtype="bool")
        y = keras.layers.MultiHeadAttention(2, 3)(tensor, tensor, attention_mask=valid)
        y = keras.layers.Attention()([y, y])
        head = keras.ops.expand_dims(y, 2)
        heads = keras.ops.expand_dims(valid, 1)
        out = keras.ops.dot_product_attention(head, head, head, mask=heads)
        theirs = keras.Model([tensor, valid], out)
        theirs.save(tmp_path / "theirs.keras")
        explicit = np.broadcast_to(mask[:, None], (2, 4, 4))
        expected = np.asarray(theirs([x, explicit]))
    model, state = fk.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(model([x, explicit], state=state), expected, atol=1e-5)
    fk.save_model(tmp_path / "again.keras", model, state)
    again, state = fk.load_model(tmp_path / "again.keras")
    assert again == model
    with keras_rules():
        opened = keras.models.load_model(tmp_path / "again.keras")
        np.testing.assert_allclose(opened([x, explicit]), expected, atol=1e-5)

    tensor, valid = fk.Input((4, 6)), fk.Input((4, 4), dtype="bool")
    y = layers.MultiHeadAttention(2, 3)(tensor, tensor, attention_mask=valid)
    ours = fk.Model([tensor, valid], layers.Attention()([y, y])).build(KEY)
    fk.save_model(tmp_path / "ours.keras", ours)
    again, _ = fk.load_model(tmp_path / "ours.keras")
    assert again == ours
    assert [
        layer.empty_rows for layer in again.layers.values() if hasattr(layer, "empty_rows")
    ] == ["zeros"] * 2


@pytest.mark.exhaustive
def test_attention_over_no_steps():
    x, empty = _draw(2, 3, 4), np.zeros((2, 0, 4), "float32")
    layer = layers.MultiHeadAttention(2, 3).build(KEY, x, x)
    assert layer(empty, x).shape == (2, 0, 4)
    total, grads = jax.jit(jax.value_and_grad(lambda layer: layer(x, empty).sum()))(layer)
    assert float(total) == 0
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))
    assert bool((layers.Attention()([x, empty]) == 0).all())


def _masks():
    """Returns pairs of call options: fkeras's, and Keras's with the same meaning."""
    mask = np.array([[True, True, True, False], [True, True, False, False]])
    explicit = RNG.random((2, 4, 4)) < 0.6
    explicit[:, :, 0] = True
    heads = np.broadcast_to(explicit[:, None], (2, 2, 4, 4))
    return (
        [{"key_mask": mask, "use_causal_mask": True}] * 2,
        [{"attention_mask": explicit, "value_mask": mask}] * 2,
        [{"attention_mask": heads}] * 2,
        [{"attention_mask": explicit[0]}] * 2,
        [
            {"mask": (None, mask, None), "attention_mask": explicit},
            {"attention_mask": explicit & mask[:, None, :]},
        ],
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("layer", "scores"),
    [(layers.MultiHeadAttention(2, 3), False), (layers.GroupQueryAttention(3, 2, 1), True)],
    ids=["multi", "grouped"],
)
def test_masks_combine_as_in_keras(layer, scores):
    x = _draw(2, 4, 6)
    built = layer.build(KEY, x, x, x)
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(layer))
        theirs.build(x.shape, x.shape, x.shape)
        theirs.set_weights(built.get_weights())
    pairs = _masks()

    @jax.jit
    def compute(x):
        with keras_rules():
            expected = [
                theirs(x, x, x, return_attention_scores=scores, **options) for _, options in pairs
            ]
        y = [built(x, x, x, return_attention_scores=scores, **options) for options, _ in pairs]
        return y, expected

    for y, expected in zip(*jax.device_get(compute(x)), strict=True):
        for actual, expected_array in zip(
            jax.tree.leaves(y), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(actual, expected_array, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer",
    [
        layers.Attention(use_scale=True),
        layers.Attention(score_mode="concat"),
        layers.AdditiveAttention(),
    ],
    ids=repr,
)
def test_lists_of_masks_match_keras(layer):
    query, value = _draw(2, 4, 3), _draw(2, 5, 3)
    query_mask, value_mask = RNG.random((2, 4)) < 0.6, RNG.random((2, 5)) < 0.6
    value_mask[:, 0] = True
    built = layer.build(KEY, [query, value])
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(layer))
        theirs.build([query.shape, value.shape])
        theirs.set_weights(built.get_weights())
    masks = ([query_mask, value_mask], [None, value_mask], [query_mask, None])

    @jax.jit
    def compute(query, value):
        with keras_rules():
            keras_masks = [[None if m is None else jnp.asarray(m) for m in mask] for mask in masks]
            expected = [theirs([query, value], mask=m, use_causal_mask=True) for m in keras_masks]
        return [built.apply([query, value], mask=m, use_causal_mask=True) for m in masks], expected

    for mask, out, expected in zip(masks, *compute(query, value), strict=True):
        np.testing.assert_allclose(out.value, expected, atol=1e-5)
        assert (out.mask is None) == (mask[0] is None)


@pytest.mark.exhaustive
def test_masks_pass_through_a_graph():
    ids = fk.Input((None,), dtype="int32")
    x = layers.Embedding(9, 6, mask_zero=True)(ids)
    y, scores = layers.MultiHeadAttention(2, 3)(x, x, return_attention_scores=True)
    assert y.shape == (None, None, 6)
    assert scores.shape == (None, 2, None, None)
    model = fk.Model(ids, [y, layers.GroupQueryAttention(3, 2, 1)(y, y)]).build(KEY)
    batch = np.array([[3, 4, 0, 0], [1, 0, 0, 0]])
    out = model.apply(batch)
    for mask in out.mask:
        np.testing.assert_array_equal(mask, batch != 0)
    shorter = model.apply(batch[:, :2])
    np.testing.assert_allclose(shorter.value[0], out.value[0][:, :2], atol=1e-6)


@pytest.mark.exhaustive
def test_a_padding_mask_with_an_attention_axis():
    """The mask (b, n, t) covers an attention axis and axes that are not attended over."""
    x = _draw(2, 3, 4, 5)
    layer = layers.MultiHeadAttention(2, 3, attention_axes=-2).build(KEY, x, x)
    mask = RNG.random((2, 3, 4)) < 0.5
    mask[..., 0] = True
    y = layer(x, x, value_mask=mask, use_causal_mask=True)
    flat = x.reshape(6, 4, 5)
    rows = layer.replace(
        **{
            name: child.replace(equation=equation)
            for name, child, equation in (
                ("query_dense", layer.query_dense, "abc,cde->abde"),
                ("key_dense", layer.key_dense, "abc,cde->abde"),
                ("value_dense", layer.value_dense, "abc,cde->abde"),
                ("output_dense", layer.output_dense, "abcd,cde->abe"),
            )
        }
    )
    rows = rows(flat, flat, value_mask=mask.reshape(6, 4), use_causal_mask=True)
    np.testing.assert_allclose(y.reshape(6, 4, 5), rows, atol=1e-6)


@pytest.mark.exhaustive
def test_tensors_by_name_and_the_prng_key():
    x, k = _draw(2, 4, 6), _draw(2, 4, 5)
    layer = layers.MultiHeadAttention(2, 3, dropout=0.5).build(KEY, x, x, k)
    np.testing.assert_array_equal(layer(query=x, value=x, key=k), layer(x, x, k))
    np.testing.assert_array_equal(layer.apply(x, value=x, key=k).value, layer(x, x, k))
    value = layer(x, x, k, training=True, key=KEY)
    np.testing.assert_array_equal(value, layer(x, x, k, training=True, key=KEY))
    assert bool((value != layer(x, x, k, training=True, key=jax.random.key(1))).any())
    seeded = layer.replace(seed=3)
    assert bool((value != seeded(x, x, k, training=True, key=KEY)).any())
    q = fk.Input((4, 6))
    assert layers.MultiHeadAttention(2, 3)(query=q, value=q, key=q).shape == (None, 4, 6)
    with pytest.raises(ValueError, match="key="):
        layer(x, x, k, training=True)
    with pytest.raises(TypeError, match="expected query, value and key once each"):
        layer(x, x, value=x)


@pytest.mark.exhaustive
def test_dropout_drops_weights_and_keeps_their_sums():
    layer = layers.Attention(dropout=0.25)
    query, value = np.ones((1, 50, 4), "float32"), np.ones((1, 80, 4), "float32")
    out = layer.apply([query, value], training=True, key=KEY, return_attention_scores=True)
    weights = np.asarray(out.value[1])
    assert set(np.round(np.unique(weights) * 80, 4)) == {0.0, np.float32(1.3333)}
    assert abs((weights == 0).mean() - 0.25) < 0.03
    x = _draw(1, 40, 6)
    heads = layers.MultiHeadAttention(2, 3, dropout=0.25).build(KEY, x, x)
    options = {"return_attention_scores": True}
    inference = heads(x, x, **options)
    training = heads(x, x, training=True, key=KEY, **options)
    np.testing.assert_allclose(
        training[1], inference[1]
    )  # the returned weights are those before dropout
    assert bool((training[0] != inference[0]).any())


def test_unsupported_flash_attention_is_rejected():
    x = _draw(1, 4, 6)
    with pytest.raises(ValueError, match="expected dropout=0 beside flash_attention=True"):
        layers.MultiHeadAttention(2, 3, dropout=0.1, flash_attention=True)
    with pytest.raises(ValueError, match="expected dropout=0 beside flash_attention=True"):
        layers.GroupQueryAttention(2, 2, 1, dropout=0.1, flash_attention=True)
    layer = layers.MultiHeadAttention(2, 3, flash_attention=True).build(KEY, x, x)
    with pytest.raises(ValueError, match="where scores are returned"):
        layer(x, x, return_attention_scores=True)
    if jax.default_backend() != "gpu":
        with pytest.raises(ValueError, match="expected a GPU and bfloat16"):
            layer(x, x)


@pytest.mark.exhaustive
def test_values_of_another_size_than_keys():
    """Keras's fused attention on JAX rejects these sizes; with scores Keras computes the same."""
    x = _draw(2, 4, 6)
    layer = layers.MultiHeadAttention(2, 3, value_dim=5).build(KEY, x, x)
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(fk.engine.unbuilt(layer)))
        theirs.build(x.shape, x.shape)
        theirs.set_weights(layer.get_weights())
        expected, _ = theirs(x, x, return_attention_scores=True)
    np.testing.assert_allclose(layer(x, x), expected, atol=1e-5)


@pytest.mark.exhaustive
def test_weights_have_the_names_and_the_order_of_keras():
    x = _draw(2, 4, 6)
    for layer in (
        layers.MultiHeadAttention(2, 3, use_gate=True),
        layers.GroupQueryAttention(3, 2, 1, use_gate=True),
    ):
        built = layer.build(KEY, x, x)
        with keras_rules():
            theirs = keras.layers.deserialize(layers.serialize(layer))
            theirs.build(x.shape, x.shape)
        names = {name: child.name for name, child in _children(built)}
        paths = [path.split("/") for path in fk.engine.trainable_weights(built)]
        assert [f"{names[a]}/{b}" for a, b in paths] == [
            v.path.split("/", 1)[1] for v in theirs.weights
        ]
        assert [w.shape for w in built.get_weights()] == [v.shape for v in theirs.weights]


def _children(layer):
    names = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")
    return [(name, getattr(layer, name)) for name in names]


def test_kernels_have_the_variance_of_keras():
    x = np.zeros((1, 2, 64), "float32")
    layer = layers.MultiHeadAttention(4, 32).build(KEY, x, x)
    for kernel in (layer.query_dense.kernel, layer.output_dense.kernel):
        assert abs(float(kernel.std()) - (2 / (64 + 128)) ** 0.5) < 0.002


@pytest.mark.exhaustive
def test_penalties_match_keras():
    x = _draw(2, 4, 6)
    for layer in (
        layers.MultiHeadAttention(2, 3, activity_regularizer="l2", kernel_regularizer="l1"),
        layers.GroupQueryAttention(3, 2, 1, activity_regularizer="l2", bias_regularizer="l1"),
    ):
        built = layer.build(KEY, x, x)
        with keras_rules():
            theirs = keras.layers.deserialize(layers.serialize(layer))
            theirs.build(x.shape, x.shape)
            theirs.set_weights(built.get_weights())
            theirs(x, x)
            expected = float(sum(theirs.losses))
        ours = jax.jit(lambda x, built=built: sum(built.apply(x, x).losses))(x)
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_a_layer_can_be_frozen_before_build():
    x = _draw(1, 2, 3)
    layer = layers.MultiHeadAttention(1, 2, trainable=False).build(KEY, x, x)
    assert fk.engine.trainable_weights(layer) == {}


def test_keras_json_is_read():
    for reference in (
        keras.layers.Attention(use_scale=True, score_mode="concat", dropout=0.1, seed=3),
        keras.layers.AdditiveAttention(use_scale=False, dropout=0.1, seed=4),
        keras.layers.MultiHeadAttention(2, 3, 4, 0.1, output_shape=7, attention_axes=1, seed=5),
        keras.layers.GroupQueryAttention(3, 4, 2, sliding_window=3, use_gate=True),
    ):
        layer = layers.deserialize(keras.layers.serialize(reference))
        with keras_rules():
            again = keras.layers.deserialize(layers.serialize(layer))
        assert json.dumps(again.get_config()) == json.dumps(reference.get_config())
        assert layers.deserialize(layers.serialize(layer)) == layer
    assert layer == layers.GroupQueryAttention(
        3, 4, 2, sliding_window=3, use_gate=True, name=reference.name
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.MultiHeadAttention(0, 2), "num_heads: expected a positive integer"),
        (lambda: layers.MultiHeadAttention(2, 2, value_dim=0), "value_dim: expected a positive"),
        (lambda: layers.MultiHeadAttention(2, 2, dropout=2), "dropout: expected a number from 0"),
        (lambda: layers.MultiHeadAttention(2, 2, output_shape="a"), "output_shape: expected"),
        (lambda: layers.MultiHeadAttention(2, 2, attention_axes=0), "between batch and features"),
        (lambda: layers.MultiHeadAttention(2, 2, sliding_window=0), "sliding_window: expected"),
        (lambda: layers.GroupQueryAttention(2, 3, 2), "a multiple of num_key_value_heads"),
        (lambda: layers.Attention(score_mode="dott"), "Did you mean 'dot'"),
    ],
)
def test_bad_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("layer", "inputs", "options", "message"),
    [
        (layers.Attention(), ((2, 3, 4),), {}, r"expected a list \[query, value\]"),
        (layers.Attention(), ([(2, 3, 4)],), {}, "received a list of 1"),
        (layers.Attention(), ([(2, 3, 4), (2, 3, 5)],), {}, "last axes of one size"),
        (layers.MultiHeadAttention(2, 3), ((2, 3, 4),), {}, r"layer\(x, x\)"),
        (layers.MultiHeadAttention(2, 3), ((2, 4), (2, 4)), {}, "expected query and value of sh"),
        (
            layers.MultiHeadAttention(2, 3, attention_axes=3),
            ((2, 3, 4), (2, 3, 4)),
            {},
            "attention_axes from 1 to 1",
        ),
        (
            layers.MultiHeadAttention(2, 3),
            ((2, 3, 4, 5), (2, 3, 4, 5)),
            {"use_causal_mask": True},
            "expected one attention axis",
        ),
        (
            layers.MultiHeadAttention(2, 3),
            ((2, 3, 4), (2, 3, 4)),
            {"attention_mask": np.ones(3, bool)},
            "attention_mask with 2 to 4 axes",
        ),
        (layers.GroupQueryAttention(2, 2, 1), ((2, 3, 4, 5), (2, 3, 4, 5)), {}, "more axes"),
    ],
)
def test_bad_calls_are_rejected(layer, inputs, options, message):
    arrays = jax.tree.map(
        lambda s: np.ones(s, "float32"), list(inputs), is_leaf=lambda s: isinstance(s, tuple)
    )
    with pytest.raises(ValueError, match=message):
        layer.build(KEY, *arrays)(*arrays, **options)


def test_bad_arrays_are_rejected():
    x = jnp.ones((2, 3, 4))
    with pytest.raises(ValueError, match="For one head add an axis"):
        dot_product_attention(x, x, x)
    with pytest.raises(ValueError, match="query heads divisible by"):
        dot_product_attention(jnp.ones((1, 2, 3, 4)), *[jnp.ones((1, 2, 2, 4))] * 2)
    with pytest.raises(ValueError, match=r"\[query_mask, value_mask\]"):
        layers.Attention()([x, x], mask=jnp.ones((2, 3), bool))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("values", "keys"), [(5, 1), (1, 5), (5, 4)])
@pytest.mark.parametrize(
    "layer",
    [
        layers.Attention(),
        layers.AdditiveAttention(),
        layers.MultiHeadAttention(2, 4),
        layers.GroupQueryAttention(4, 2, 1),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_one_key_for_several_values_is_an_error(layer, values, keys):
    query, value, key = (fk.Input((steps, 4)) for steps in (3, values, keys))
    is_listed = isinstance(layer, layers.Attention | layers.AdditiveAttention)
    with pytest.raises(ValueError, match="expected a key for each value"):
        layer([query, value, key]) if is_listed else layer(query, value, key)

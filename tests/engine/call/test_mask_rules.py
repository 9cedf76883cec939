"""Masks along the graph, and calls with training=True."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

IDS = np.array([[1, 2, 0, 0], [3, 4, 5, 0]], "int32")


def embedded(mask_zero=True):
    ids = fk.Input((4,), dtype="int32", name="ids")
    return ids, layers.Embedding(9, 3, mask_zero=mask_zero, name="words")(ids)


class Steps(fk.Layer):
    """Returns the received mask as numbers."""

    supports_masking = True

    def forward(self, context, x):
        mask = context.mask
        seen = jnp.zeros(x.shape[:2]) if mask is None else mask.astype("float32")
        return fk.Output(seen, mask=mask)


class TwoOutputs(fk.Layer):
    masks: int = fk.option(default=1)
    supports_masking = True

    def forward(self, context, x):
        masks = context.mask if self.masks == 1 else [context.mask] * self.masks
        return fk.Output([x, x + 1], mask=masks)


def build(inputs, outputs):
    return fk.Model(inputs, outputs).build(jax.random.key(0))


def test_a_mask_is_a_value_of_the_graph():
    ids, x = embedded()
    model = build(ids, Steps()(fk.ops.tanh(x * 2.0) + 1.0))
    pooled = build(ids, layers.GlobalAveragePooling1D()(x))
    expected = (IDS != 0).astype("float32")
    np.testing.assert_array_equal(model(IDS), expected)

    @jax.jit
    def transformed(model, pooled, ids):
        stacked = jax.vmap(lambda i: model(i[None])[0])(ids)
        return model(ids), stacked, jax.grad(lambda m: m(ids).sum())(pooled)

    compiled, stacked, grads = transformed(model, pooled, IDS)
    np.testing.assert_array_equal(compiled, expected)
    np.testing.assert_array_equal(stacked, expected)
    row_gradients = np.abs(grads.layers["words"].embeddings).sum(-1)
    assert row_gradients[0] == 0.0, "the padding's row has no gradient"
    assert (row_gradients[1:6] > 0).all()


def test_functions_without_mask_support_reject_a_masked_input():
    _, x = embedded()
    with pytest.raises(fk.FKerasError, match=r"received a mask.*unmask"):
        fk.ops.mean(x, axis=1)
    assert fk.ops.mean(fk.ops.unmask(x), axis=1).shape == (None, 3)


def test_an_explicit_mask_is_used_and_propagated():
    ids, x = embedded()
    steps = Steps()
    other = fk.Input((4,), dtype="bool", name="other")
    first = steps(x, mask=other)
    second = Steps()(first[..., None] if False else fk.ops.unmask(first)[:, :, None])
    model = build([ids, other], [first, second])
    mask = np.array([[True] * 4, [False] * 4])
    out = model.apply([IDS, mask])
    np.testing.assert_array_equal(out.value[0], mask.astype("float32"))
    np.testing.assert_array_equal(out.mask[0], mask)
    assert out.mask[1] is None
    np.testing.assert_array_equal(out.value[1], np.zeros((2, 4)))
    silent = build(ids, Steps()(x, mask=None))
    np.testing.assert_array_equal(silent(IDS), np.zeros((2, 4)))


def test_one_mask_serves_every_output():
    ids, x = embedded()
    left, right = TwoOutputs()(x)
    view = fk.Model(ids, [left, right]).graph.layer("two_outputs")
    assert [m.shape for m in view.output_mask] == [(None, 4)] * 2
    out = build(ids, [left, right]).apply(IDS)
    for mask in out.mask:
        np.testing.assert_array_equal(mask, IDS != 0)


def test_masks_propagate_only_through_layers_that_support_them():
    class Plain(fk.Layer):
        def call(self, x):
            return x

    _, x = embedded()
    with pytest.raises(fk.FKerasError, match="has no mask support"):
        Plain()(x)
    out = layers.Dense(2)(x)
    assert out.node.masks[0].shape == (None, 4)


def test_the_number_of_masks_is_checked_when_recording():
    _, x = embedded()
    with pytest.raises(fk.FKerasError, match=r"TwoOutputs.*2 outputs, received 3 masks"):
        TwoOutputs(masks=3)(x)


@pytest.mark.exhaustive
def test_a_masked_lstm_equals_the_lstm_of_the_unmasked_steps():
    ids, x = embedded()
    lstm = layers.LSTM(5, name="lstm")
    model = build(ids, lstm(x))
    short = fk.Input((2,), dtype="int32")
    short_model = fk.Model(short, model.layers["lstm"](model.layers["words"](short)))
    short_model = short_model.build(jax.random.key(1))
    masked = model(np.array([[1, 2, 0, 0]], "int32"))
    np.testing.assert_array_equal(masked, short_model(np.array([[1, 2]], "int32")))


def test_a_subclass_of_embedding_masks_another_id():
    class MasksSeven(layers.Embedding):
        def compute_mask(self, ids):
            return ids != 7

    layer = MasksSeven(9, 3).build(jax.random.key(0), (None, 2))
    out = layer.apply(np.array([[7, 1]], "int32"))
    np.testing.assert_array_equal(out.mask, [[False, True]])


def test_masking_masks_and_zeroes():
    x = np.array([[[1.0, 2.0], [5.0, 5.0], [5.0, 1.0]]], "float32")
    out = layers.Masking(5.0).apply(x)
    np.testing.assert_array_equal(out.mask, [[True, False, True]])
    np.testing.assert_array_equal(out.value, [[[1, 2], [0, 0], [5, 1]]])


def test_masks_of_a_recurrent_layer():
    ids, x = embedded()
    outputs = layers.LSTM(3, return_sequences=True, return_state=True, name="lstm")(x)
    masks = fk.Model(ids, outputs).graph.layer("lstm").output_mask
    assert [m is not None for m in masks] == [True, False, False]
    assert layers.LSTM(3)(x).node.masks == (None,)


def test_merging_layers_combine_masks():
    ids, x = embedded()
    other = fk.Input((4,), dtype="int32", name="other")
    y = layers.Embedding(9, 3, mask_zero=True)(other)
    added = Steps()(layers.Add()([x, y]))
    joined = layers.Concatenate()([x, y])
    model = build([ids, other], [added, Steps()(joined)])
    b = np.array([[1, 0, 1, 0], [1, 1, 1, 1]], "int32")
    expected = ((IDS != 0) & (b != 0)).astype("float32")
    for value in model([IDS, b]):
        np.testing.assert_array_equal(value, expected)
    assert joined.node.masks[0].shape == (None, 4)
    with pytest.raises(ValueError, match="mask"):
        layers.Add()([x, y], mask=[None])


def test_each_call_uses_its_own_mask():
    x = fk.Input((4, 3), name="x")
    model = fk.Model(x, Steps()(x))
    array = np.ones((1, 4, 3), "float32")
    a, b = np.array([[1, 1, 0, 0]], bool), np.array([[0, 1, 1, 1]], bool)
    model_hash = hash(model)
    np.testing.assert_array_equal(model(array, mask=a), a)
    np.testing.assert_array_equal(model(array, mask=b), b)
    np.testing.assert_array_equal(model(array), np.zeros((1, 4)))
    assert hash(model) == model_hash


@chex.variants(with_jit=True, without_jit=True)
class TrainingCall(chex.TestCase):
    def test_training_computes_the_same_compiled_or_not(self):
        x = fk.Input((6,))
        h = layers.Dropout(0.5)(layers.BatchNormalization()(x))
        model = fk.Model(x, h).build(jax.random.key(0))
        state, array = model.init_state(), jnp.arange(12.0).reshape(2, 6)

        def call(model, array):
            out = model.apply(array, state=state, training=True, key=jax.random.key(3))
            return out.value, out.updates

        value, updates = self.variant(call)(model, array)
        eager_out = model.apply(array, state=state, training=True, key=jax.random.key(3))
        chex.assert_trees_all_close(
            (value, updates), (eager_out.value, eager_out.updates), rtol=1e-5
        )
        assert set(updates) == {"batch_normalization"}


def test_training_is_static_and_not_an_array():
    layer = layers.Dropout(0.5)
    with pytest.raises(TypeError, match="training=True or False"):
        layer.apply(np.ones((1, 2), "float32"), training=jnp.array(True), key=jax.random.key(0))


def test_a_pinned_mode_wins_over_the_models_mode():
    x = fk.Input((4,))
    model = fk.Model(x, layers.BatchNormalization(name="bn")(x, training=False))
    model = model.build(jax.random.key(0))
    out = model.apply(np.ones((3, 4), "float32"), state=model.init_state(), training=True)
    assert out.updates == {}
    assert model.graph.layer("bn").nodes[0].arguments == {"training": False}

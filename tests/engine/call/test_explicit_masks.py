"""Explicit masks: arguments of operations, and masks for the inputs of layers."""

import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules
from tests.support.quick_cases import quick_cases

L, ops, Input = keras.layers, keras.ops, keras.Input
random = np.random.default_rng(0)


def _floats(*shape):
    return random.normal(size=shape).astype("float32")


def _bools(*shape):
    return random.random(shape) > 0.4


X, IDS, STEPS = _floats(3, 4, 3), random.integers(0, 5, (3, 4)).astype("int32"), _bools(3, 4)
HEADS, PAIRS = _floats(3, 4, 2, 3), _bools(3, 2, 4, 4)
ENTRIES = _bools(3, 4, 3)
CAUSAL = np.tril(np.ones((1, 1, 4, 4), bool))


@keras.saving.register_keras_serializable("masks")
class Gate(L.Layer):
    """Takes a mask without support for masks: the outputs have none."""

    def call(self, x, mask=None):
        return x if mask is None else x * ops.cast(mask[..., None], x.dtype)


class OurGate(fk.Layer):
    def forward(self, context, x):
        mask = context.mask
        y = x if mask is None else x * mask[..., None].astype(x.dtype)
        return fk.Output(y, mask=mask)


def _steps():
    return Input((4,), dtype="bool")


def _words():
    ids = Input((4,), dtype="int32")
    return ids, L.Embedding(5, 3, mask_zero=True)(ids)


def _attend(how):
    x, mask = Input((4, 2, 3)), Input((2, 4, 4), dtype="bool")
    return [x, mask], how(x, mask)


def _on_steps(how):
    x, mask = Input((4, 3)), _steps()
    return [x, mask], how(x, mask)


def _on_words(how):
    (ids, x), mask = _words(), _steps()
    return [ids, mask], how(x, mask)


def _softmax(how):
    x, mask = Input((4, 3)), Input((4, 3), dtype="bool")
    return [x, mask], how(x, mask)


def _of_constant(how):
    x = Input((4, 3))
    return x, how(x)


def _attend_causally():
    x = Input((4, 2, 3))
    return x, ops.dot_product_attention(x, x, x, mask=CAUSAL)


def _attend_to_words(x, mask):
    heads = ops.expand_dims(x, 2)
    return ops.dot_product_attention(heads, heads, heads, mask=mask[:, None, None])


dot = ops.dot_product_attention
MODELS = {
    "an operation": (lambda: _attend(lambda x, m: dot(x, x, x, mask=m)), [HEADS, PAIRS]),
    "a bias beside": (
        lambda: _attend(lambda x, m: dot(x, x, x, bias=ops.cast(m, "float32"), mask=m)),
        [HEADS, PAIRS],
    ),
    "an array": (_attend_causally, HEADS),
    "masked inputs": (lambda: _on_words(_attend_to_words), [IDS, STEPS]),
    "where": (lambda: _softmax(lambda x, m: ops.where(m, x, x * 2)), [X, ENTRIES]),
    "softmax": (lambda: _softmax(lambda x, m: L.Softmax()(x, mask=m)), [X, ENTRIES]),
    "softmax by position": (lambda: _softmax(lambda x, m: L.Softmax()(x, m)), [X, ENTRIES]),
    "softmax of an array": (
        lambda: _of_constant(lambda x: L.Softmax()(x, mask=np.array([True, False, True]))),
        X,
    ),
    "softmax of a matrix": (
        lambda: _of_constant(lambda x: L.Softmax()(x, mask=ENTRIES[0])),
        X,
    ),
    "a list": (
        lambda: _on_words(lambda x, m: L.LSTM(2)(L.Attention()([x, x], mask=[None, m]))),
        [IDS, STEPS],
    ),
    "a mean by position": (
        lambda: _on_words(lambda x, m: L.GlobalAveragePooling1D()(x, m)),
        [IDS, STEPS],
    ),
    "a recurrent layer": (lambda: _on_words(lambda x, m: L.GRU(2)(x, mask=m)), [IDS, STEPS]),
    "queries": (
        lambda: _on_words(lambda x, m: L.MultiHeadAttention(1, 2)(x, x, query_mask=m)),
        [IDS, STEPS],
    ),
    "values": (
        lambda: _on_words(lambda x, m: L.GroupQueryAttention(2, 2, 1)(x, x, value_mask=m)),
        [IDS, STEPS],
    ),
    "a layer of the user": (
        lambda: _on_words(lambda x, m: L.LSTM(2)(Gate()(x, mask=m))),
        [IDS, STEPS],
    ),
    "a nested model": (
        lambda: _on_steps(lambda x, m: keras.Sequential([Input((4, 3)), L.LSTM(2)])(x, mask=m)),
        [X, STEPS],
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", quick_cases(MODELS, "an operation", "softmax", "a recurrent layer", "a nested model")
)
def test_files_compute_with_the_masks_of_their_calls(name, tmp_path):
    make, inputs = MODELS[name]
    with keras_rules():
        keras_model = keras.Model(*make())
        keras_model.save(tmp_path / "theirs.keras")
        expected = np.asarray(keras_model.predict_on_batch(inputs))
    custom = {"masks>Gate": OurGate, "OurGate": OurGate}
    model, state = fk.load_model(tmp_path / "theirs.keras", custom_objects=custom)
    np.testing.assert_allclose(model.apply(inputs, state=state).value, expected, atol=1e-5)
    fk.save_model(tmp_path / "ours.keras", model, state)
    restored, _ = fk.load_model(tmp_path / "ours.keras", custom_objects=custom)
    assert restored == model
    if name in ("an operation", "an array", "softmax of an array"):
        with keras_rules():
            keras_model = keras.models.load_model(tmp_path / "ours.keras")
            outputs = np.asarray(keras_model.predict_on_batch(inputs))
        np.testing.assert_allclose(outputs, expected, atol=1e-5)


def _masked(x, mask):
    return x if mask is None else jnp.where(mask, x, 0)


@pytest.mark.exhaustive
def test_masks_are_arguments_of_operations_in_models_written_here(tmp_path):
    x, mask = fk.Input((4, 2, 3)), fk.Input((2, 4, 4), dtype="bool")
    expected = fk.ops.dot_product_attention(HEADS, HEADS, HEADS, mask=PAIRS)
    model = fk.Model([x, mask], fk.ops.dot_product_attention(x, x, x, mask=mask))
    plain = fk.Model(x, fk.ops.dot_product_attention(x, x, x, mask=None))
    np.testing.assert_allclose(model([HEADS, PAIRS]), expected, atol=1e-6)
    layer = model.layers["dot_product_attention"]
    np.testing.assert_allclose(layer(HEADS, HEADS, HEADS, mask=PAIRS), expected, atol=1e-6)
    for saved_model in (model, plain):
        fk.save_model(tmp_path / "m.keras", saved_model)
        assert fk.load_model(tmp_path / "m.keras")[0] == saved_model


@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_mask", [True, False])
def test_masks_are_arguments_of_lifted_functions(has_mask, tmp_path):
    function = fk.ops.lift(_masked, name="masked")
    x, mask = fk.Input((4, 3)), fk.Input((4, 3), dtype="bool")
    y = function(x, mask=mask if has_mask else None)
    model = fk.Model([x, mask], [y, mask])
    np.testing.assert_array_equal(model([X, ENTRIES])[0], np.where(ENTRIES | (not has_mask), X, 0))
    fk.save_model(tmp_path / "m.keras", model)
    restored, _ = fk.load_model(tmp_path / "m.keras", custom_objects={"_masked": _masked})
    assert restored == model


def test_none_drops_the_mask_of_an_operation_without_a_parameter_of_the_name(tmp_path, key):
    ids = fk.Input((4,), dtype="int32")
    x = layers.Embedding(5, 3, mask_zero=True)(ids)
    model = fk.Model(ids, fk.ops.mean(x, axis=1, mask=None)).build(key)
    assert model.apply(IDS).mask is None
    fk.save_model(tmp_path / "m.keras", model)
    assert fk.load_model(tmp_path / "m.keras")[0] == model

"""Networks and graphs as text: calls, wiring, shapes, weights, nested and shared layers."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops


def siamese():
    left, right = fk.Input((4,), name="left"), fk.Input((4,), name="right")
    encoder = fk.Sequential([fk.Input((4,)), layers.Dense(8, activation="relu")], name="encoder")
    a, b = encoder(left), encoder(right)
    h, state, _ = layers.LSTM(3, return_state=True, name="lstm")(ops.expand_dims(a, 1))
    difference = ops.absolute(a - b) * 2.0
    joined = layers.Concatenate(name="joined")([h, state])
    return fk.Model([left, right], {"difference": difference, "joined": joined}, name="siamese")


EXPECTED = """
Model(name='siamese'):
    left = Input                                                  # (b, 4)
    right = Input                                                 # (b, 4)
    encoder = Sequential()(left)                                  # (b, 8)
        input_layer = Input                                           # (b, 4)
        dense = Dense(8, relu)(input_layer)                           # (b, 8)
        return dense
    encoder:1 = encoder(right)                                    # (b, 8)
    subtract = ops.subtract(encoder, encoder:1)                   # (b, 8)
    expand_dims = ops.expand_dims(encoder, 1)                     # (b, 1, 8)
    absolute = ops.absolute(subtract)                             # (b, 8)
    lstm = LSTM(3, return_state=True)(expand_dims)                # (b, 3), (b, 3), (b, 3)
    multiply = ops.multiply(absolute, 2.0)                        # (b, 8)
    joined = Concatenate()([lstm[0], lstm[1]])                    # (b, 6)
    return {'difference': multiply, 'joined': joined}
"""


@pytest.mark.exhaustive
def test_a_model_is_shown_as_a_function():
    assert repr(siamese()) == EXPECTED.strip()


@pytest.mark.exhaustive
def test_a_built_model_shows_numbers_of_weights():
    model = fk.freeze(siamese().build(jax.random.key(0)), "lstm")
    lines = repr(model).splitlines()
    assert lines[0] == "Model(name='siamese'):  # 184 weights"
    remarks = {line.split(" = ")[0].strip(): line.rpartition("# ")[2] for line in lines[1:-1]}
    assert remarks["encoder"] == "(b, 8), 40 weights"
    assert remarks["encoder:1"] == "(b, 8)"
    assert remarks["lstm"] == "(b, 3), (b, 3), (b, 3), 144 weights, frozen"


def test_a_graph_shows_names_only():
    lines = [" ".join(line.split()) for line in repr(siamese().graph).splitlines()]
    assert lines[0] == "Graph:"
    assert "encoder:1 = encoder(right) # (b, 8)" in lines
    assert "lstm = lstm(expand_dims) # (b, 3), (b, 3), (b, 3)" in lines
    assert lines[-1] == "return {'difference': multiply, 'joined': joined}"


def test_types_masks_and_modes_of_calls():
    x = fk.Input((5,), dtype="int32", name="x")
    h = layers.Embedding(9, 4, mask_zero=True, name="words")(x)
    y = layers.Dropout(0.5, name="dropout")(h, training=False)
    text = repr(fk.Model(x, y))
    assert "x = Input" in text and "# (b, 5) int32\n" in text
    assert "words = Embedding(9, 4, mask_zero=True)(x)" in text and "# (b, 5, 4), masked\n" in text
    assert "dropout = Dropout(0.5)(words, training=False)" in text


def test_a_long_model_is_cut_in_the_middle():
    hidden = [layers.Dense(3, name=f"dense_{n}") for n in range(100)]
    lines = repr(fk.Sequential([fk.Input((3,)), *hidden])).splitlines()
    assert len(lines) == 43
    assert lines[21].strip() == "... 61 calls ..."
    assert "dense_18 " in lines[20] and "dense_80 " in lines[22]


def test_long_lines_keep_name_arguments_and_shape():
    x = fk.Input((8, 8, 3), name="a_long_name_of_the_input_of_the_model")
    layer = layers.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False, name="a" * 30)
    line = repr(fk.Model(x, layer(x))).splitlines()[2]
    assert line.strip().startswith(f"{'a' * 30} = DepthwiseConv2D(")
    assert "...)(a_long_name_of_the_input_of_the_model)" in line and line.endswith("# (b, 4, 4, 3)")


def test_a_sequential_without_shapes_lists_its_layers():
    model = fk.Sequential([layers.Dense(3), layers.Dense(4, name="scores")])
    assert repr(model) == "Sequential():\n    dense = Dense(3)\n    scores = Dense(4)"


def test_fields_and_layers_of_subclasses():
    class Block(fk.Model):
        units: int = 8

        def call(self, x):
            return layers.Dense(self.units)(x)

    model = Block(units=3)
    assert repr(model).splitlines()[0].startswith("Block(3)")
    built = model.build(jax.random.key(0), (None, 2))
    assert "Dense(3)" in repr(built) and built == built.replace()


@pytest.mark.exhaustive
@pytest.mark.parametrize("depth", ["roll", "unroll"])
def test_repeated_blocks(depth):
    hidden = [layers.Dense(4, activation="tanh") for _ in range(6)]
    model = fk.Sequential([fk.Input((4,)), *hidden]).build(jax.random.key(0))
    rolled = fk.transforms.roll(model)
    model = rolled if depth == "roll" else fk.transforms.unroll(rolled)
    assert repr(model).splitlines()[-1].strip() == "return dense_5"


def test_long_tuples_of_layers_lose_their_middle():
    words = [f"w{n}" for n in range(500)]
    text = repr(layers.StringLookup(vocabulary=words))
    assert text == "StringLookup(vocabulary=('w0', 'w1', 'w2', ... 496 more ..., 'w499'))"
    text = repr(layers.Normalization(mean=np.zeros(100), variance=np.ones(100)))
    assert "96 more" in text and len(text) < 120
    assert repr(layers.Reshape((2,) * 16)).count("2") == 16


def test_layers_show_shapes_and_dtypes_of_arrays():
    dense = layers.Dense(3, name="d").build(jax.random.key(0), (None, 4))
    assert repr(dense) == "Dense(3, name='d', kernel=f32[4,3], bias=f32[3])"
    assert repr(layers.Dense(3)) == "Dense(3)"
    assert repr(
        layers.Dense(3, use_bias=False, dtype="bfloat16").build(jax.random.key(0), (1, 2))
    ) == ("Dense(3, use_bias=False, dtype=DTypePolicy('bfloat16'), kernel=bf16[2,3])")
    outer = layers.TimeDistributed(layers.Dense(3)).build(jax.random.key(0), (None, 5, 4))
    assert repr(outer) == "TimeDistributed(Dense(3, kernel=f32[4,3], bias=f32[3]))"
    trained, frozen = fk.partition(dense)
    assert repr(trained) == repr(dense) and repr(frozen) == "Dense(3, name='d')"
    assert repr(jax.eval_shape(lambda: dense)) == repr(dense)
    texts = []
    jax.jit(lambda layer: texts.append(repr(layer)))(dense)
    assert texts == [repr(dense)]


def test_arrays_among_arguments():
    class Shift(fk.Layer):
        by: object = fk.option(default=None)

    assert repr(Shift(np.zeros((40, 2), "int8"))) == "Shift(i8[40,2])"
    assert repr(Shift((np.ones(2, bool), 3))) == "Shift((bool[2], 3))"
    assert repr(Shift(np.float32(2.0))).startswith("Shift(")


def test_calls_of_a_built_model_name_no_shapes_of_weights():
    model = fk.Sequential([fk.Input((4,)), layers.Dense(3)])
    before, after = repr(model), repr(model.build(jax.random.key(0)))
    assert "kernel" not in after and after.splitlines()[2].startswith(before.splitlines()[2])


def test_weights_that_differ_from_the_policy_are_named():
    model = fk.Sequential([fk.Input((4,)), layers.Dense(3), layers.BatchNormalization()])
    model = model.build(jax.random.key(0))
    half = jax.tree.map(lambda w: w.astype("bfloat16"), model)
    lines = repr(half).splitlines()
    assert lines[2].endswith("15 weights in bfloat16") and lines[3].endswith(
        "6 weights in bfloat16"
    )
    partly = fk.engine.replace_weights(half, {"dense/bias": np.zeros(3, "float32")})
    assert "15 weights in bfloat16 and float32" in repr(partly)
    assert " in " not in repr(fk.cast(model, "bfloat16")) + repr(fk.cast(model, "mixed_bfloat16"))
    assert " in " not in repr(fk.quantize(model, "int8"))


@pytest.mark.exhaustive
def test_leaves_that_are_no_arrays_are_shown():
    inner = fk.Sequential([fk.Input((3,)), layers.Dense(2)])
    model = fk.Model(x := fk.Input((4,)), inner(layers.Dense(3, name="d", trainable=False)(x)))
    model = model.build(jax.random.key(0))
    shapes = jax.tree.map(np.shape, model)
    lines = repr(shapes).splitlines()
    assert lines[0] == "Model():"
    assert lines[2].endswith("# (b, 3), kernel=(4, 3), bias=(3,)")
    assert lines[3].endswith("# (b, 2)") and lines[5].endswith("kernel=(3, 2), bias=(2,)")
    assert "kernel=dtype('float32')" in repr(jax.tree.map(lambda leaf: leaf.dtype, model))
    assert "bias=0.0" in repr(jax.tree.map(lambda leaf: float(leaf.sum()), model))
    page = shapes._repr_html_()
    assert "kernel=(4, 3)" in page and "Summary" not in page and "Summary" in model._repr_html_()
    gradient = jax.grad(lambda model: model(np.ones((1, 4), "float32")).sum())(model)
    assert repr(gradient) == repr(model)

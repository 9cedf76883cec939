"""Models as ONNX files: graphs, masks, unknown sizes, layouts, dtypes, files and errors."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.saving.onnx.graph import protobuf
from tests.support.keras_oracle import keras, keras_rules
from tests.support.onnx_runtime import check, operators, run, session
from tools.stress import applications

KEY = jax.random.key(0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(model):
    model = model.build(KEY)
    return model, model.init_state()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.onnx"


def dense(units=2, **options):
    return fk.Sequential([fk.Input((3,)), layers.Dense(units, **options)])


# -- graphs -----------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_nested_shared_and_several_outputs(path):
    inner = fk.Sequential([fk.Input((4,)), layers.Dense(4, activation="gelu"), layers.Dropout(0.5)])
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    shared = layers.Dense(4, name="shared")
    x = inner(shared(a)) + inner(shared(b)) * 2.0
    y = layers.Concatenate()([x, fk.ops.tanh(x)[:, 1:3], a])
    z = layers.Dense(2, activation="softmax", name="head")(y)
    model, state = built(fk.Model({"a": a, "b": b}, {"z": z, "y": y}))
    fk.export(model, state, path)
    opened = session(path)
    assert [node.name for node in opened.get_inputs()] == ["a", "b"]
    assert "head" in [node.name for node in opened.get_outputs()]
    inputs = {"a": normal(0, 5, 4), "b": normal(1, 5, 4)}
    expected = model.apply(inputs, state=state).value
    for output, name in zip(opened.run(None, inputs), sorted(expected), strict=True):
        np.testing.assert_allclose(output, expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_an_input_that_is_an_output_and_one_tensor_twice(path):
    x = fk.Input((3,), name="x")
    y = layers.ReLU(name="y")(x)
    model, state = built(fk.Model(x, [x, y, y]))
    opened = check(path, model, state, [normal(0, 2, 3)])
    assert len({node.name for node in opened.get_outputs()}) == 3


@pytest.mark.exhaustive
def test_constants_and_operations(path):
    x = fk.Input((None, 4), name="x")
    y = fk.ops.matmul(x, np.ones((4, 4), "float32")) - fk.ops.mean(x, axis=1, keepdims=True)
    y = fk.ops.where(y > 0.2, y, fk.ops.exp(-y))
    y = fk.ops.concatenate([y, fk.ops.cumsum(x, axis=1), fk.ops.flip(x, axis=1)], axis=-1)
    rows = fk.ops.reshape(fk.ops.transpose(y, (1, 0, 2)), (-1, 3, 4))
    top, _ = fk.ops.top_k(fk.ops.max(y, axis=1), 2)
    model, state = built(fk.Model(x, [rows, top, fk.ops.argmax(y, axis=2)]))
    fk.export(model, state, path)
    opened = session(path)
    for steps in (3, 6):
        inputs = normal(steps, 2, steps, 4)
        for output, value in zip(opened.run(None, {"x": inputs}), model(inputs), strict=True):
            np.testing.assert_allclose(output, value, rtol=1e-5, atol=1e-5)


def test_repeated_blocks_in_a_loop_are_unrolled(path):
    blocks = [layers.Dense(4, activation="tanh") for _ in range(6)]
    model = fk.transforms.roll(fk.Sequential([fk.Input((4,)), *blocks]).build(KEY))
    assert model.graph.depth == "scan"
    check(path, model, {}, [normal(0, 3, 4)])
    assert operators(path).count("MatMul") == 6


@pytest.mark.exhaustive
def test_a_layer_alone_needs_shapes(path):
    layer = layers.Dense(2).build(KEY, (None, 3))
    fk.export(layer, None, path, shapes=(None, 3))
    x = normal(0, 4, 3)
    np.testing.assert_allclose(run(session(path), [x])[0], layer(x), rtol=1e-5, atol=1e-6)


# -- masks ------------------------------------------------------------------------------------

IDS = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [1, 1, 2, 2, 3], [0, 2, 0, 1, 0]], "int32")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "recurrent",
    [
        layers.LSTM(3),
        layers.Bidirectional(layers.GRU(3, return_sequences=True)),
        layers.GRU(3, return_sequences=True, go_backwards=True),
    ],
    ids=["lstm", "bidirectional", "backwards"],
)
def test_masks_reach_recurrent_layers(path, recurrent):
    x = fk.Input((None,), dtype="int32", name="ids")
    y = layers.Dense(2)(recurrent(layers.Embedding(5, 4, mask_zero=True)(x)))
    model, state = built(fk.Model(x, y))
    opened = check(path, model, state, [IDS], (1, 3))
    shorter = IDS[:, :2]
    np.testing.assert_allclose(run(opened, [shorter])[0], model(shorter), rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_masks_reach_attention_and_means(path):
    x = fk.Input((None,), dtype="int32")
    h = layers.Embedding(5, 4, mask_zero=True)(x)
    h = layers.Add()([h, layers.MultiHeadAttention(2, 3)(h, h, use_causal_mask=True)])
    h = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(h))
    model, state = built(fk.Model(x, layers.Dense(2)(h)))
    opened = check(path, model, state, [IDS], (2,))
    np.testing.assert_allclose(run(opened, [IDS[:, :3]])[0], model(IDS[:, :3]), atol=1e-5)


@pytest.mark.exhaustive
def test_masks_of_keras_files(path, tmp_path):
    """Files of Keras attach masks to arrays: also those that a layer drops or detaches."""
    with keras_rules():
        x = keras.Input((5,), dtype="int32")
        h = keras.layers.Embedding(5, 4, mask_zero=True)(x)
        h = keras.layers.Dropout(0.2)(h)
        query = keras.layers.Activation("linear")(h)
        h = keras.layers.MultiHeadAttention(2, 3)(query, h)
        inner = keras.Sequential(
            [keras.layers.Dense(4), keras.layers.GRU(3, return_sequences=True)]
        )
        keras.Model(x, keras.layers.LSTM(3)(inner(keras.layers.Concatenate()([h, query])))).save(
            tmp_path / "m.keras"
        )
    loaded, state = fk.load_model(tmp_path / "m.keras")
    assert loaded.graph.attaches_masks
    check(path, loaded, state, [IDS], (2,))


@pytest.mark.exhaustive
def test_the_mask_of_the_inputs_is_an_input(path):
    model, state = built(fk.Sequential([fk.Input((4, 3)), layers.Masking(), layers.GRU(2)]))
    fk.export(model, state, path, mask=(None, 4))
    opened = session(path)
    assert [node.name for node in opened.get_inputs()][1] == "mask"
    x, mask = normal(0, 2, 4, 3), np.array([[1, 1, 0, 0], [0, 1, 0, 1]], bool)
    expected = model.apply(x, mask=mask).value
    np.testing.assert_allclose(run(opened, [x, mask])[0], expected, rtol=1e-4, atol=1e-5)


# -- unknown sizes ----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_unknown_sizes_have_names_of_their_own(path):
    x = fk.Input((None, None, 3), name="image")
    y = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(x)
    y = layers.UpSampling2D(2)(layers.MaxPooling2D(3, 2, padding="same")(y))
    y = layers.BatchNormalization()(layers.Conv2DTranspose(2, 3, strides=2, padding="same")(y))
    model, state = built(fk.Model(x, [layers.GlobalAveragePooling2D()(y), y]))
    fk.export(model, state, path)
    graph = onnx.load(str(path)).graph
    dims = [dim.dim_param or dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "d1", "d2", 3]
    opened = session(path)
    for batch, height, width in ((1, 8, 9), (3, 11, 6)):
        images = normal(height, batch, height, width, 3)
        for output, value in zip(
            run(opened, [images]), model.apply(images, state=state).value, strict=True
        ):
            np.testing.assert_allclose(output, value, rtol=1e-4, atol=1e-5)


def test_a_convolution_in_each_step_of_unknown_number(path):
    """The batch rule of a convolution reshapes in another order than that of the axes."""
    x = fk.Input((None, None, 2))
    model, state = built(fk.Model(x, layers.TimeDistributed(layers.Conv1D(2, 3))(x)))
    check(path, model, state, [normal(0, 2, 3, 6, 2)], (1,))


@pytest.mark.exhaustive
def test_names_and_sizes_of_the_caller(path):
    left, right = fk.Input((None, 3), name="left"), fk.Input((None, 3), name="right")
    y = layers.Attention()([left, right])
    model, state = built(fk.Model([left, right], y))
    fk.export(model, state, path, shapes=[(None, "steps", 3), (None, "words", 3)])
    opened = session(path)
    assert [node.shape for node in opened.get_inputs()] == [
        ["batch", "steps", 3],
        ["batch", "words", 3],
    ]
    a, b = normal(0, 2, 5, 3), normal(1, 2, 4, 3)
    np.testing.assert_allclose(run(opened, [a, b])[0], model([a, b]), rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_recurrent_layers_are_operators_of_onnx_for_any_time(path, cell):
    x = fk.Input((None, 3))
    h = layers.Bidirectional(cell(4, return_sequences=True), merge_mode="ave")(x)
    h, *states = cell(4, return_sequences=True, return_state=True, go_backwards=True)(h)
    y = cell(4)(h, initial_state=states)
    model, state = built(fk.Model(x, [y, h]))
    opened = check(path, model, state, [normal(0, 2, 5, 3)])
    name = "RNN" if cell is layers.SimpleRNN else cell.__name__
    assert operators(path).count(name) == 3 and "Scan" not in operators(path)
    for steps in (1, 7):
        rows = normal(steps, 3, steps, 3)
        for output, value in zip(run(opened, [rows]), model(rows), strict=True):
            np.testing.assert_allclose(output, value, rtol=1e-4, atol=1e-5)


# -- layouts ----------------------------------------------------------------------------------


def test_transposes_between_layers_cancel(path):
    x = fk.Input((12, 10, 3))
    y = layers.ZeroPadding2D(1)(x)
    for strides in (1, 2):
        y = layers.Conv2D(4, 3, strides, padding="same", use_bias=False)(y)
        y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
    y = layers.Concatenate()([y, layers.DepthwiseConv2D(3, padding="same")(y)])
    scale = layers.GlobalAveragePooling2D(keepdims=True)(y)
    y = layers.Multiply()([y, layers.Activation("sigmoid")(layers.Conv2D(8, 1)(scale))])
    y = layers.Dense(3)(layers.GlobalMaxPooling2D()(layers.AveragePooling2D()(y)))
    model, state = built(fk.Model(x, y))
    rng = np.random.default_rng(0)
    state = jax.tree.map(lambda a: jnp.asarray(rng.random(a.shape), a.dtype), state)
    check(path, model, state, [normal(0, 2, 12, 10, 3)])
    # one at the input: the only place where the channels are last
    assert operators(path).count("Transpose") == 1


def test_channels_first_needs_no_transposes(path):
    first = {"data_format": "channels_first"}
    stack = [
        layers.Conv2D(4, 3, **first),
        layers.BatchNormalization(1),
        layers.MaxPooling2D(**first),
    ]
    model, state = built(fk.Sequential([fk.Input((3, 8, 8)), *stack, layers.Flatten()]))
    check(path, model, state, [normal(0, 2, 3, 8, 8)])
    assert "Transpose" not in operators(path)


# -- dtypes -----------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_half_precision(path, policy):
    x = fk.Input((6, 6, 2), dtype="float32")
    y = layers.Conv2D(4, 3, padding="same", activation="relu", dtype=policy)(x)
    y = layers.BatchNormalization(dtype=policy)(y)
    y = layers.Dense(3, activation="softmax", dtype=policy)(layers.Flatten(dtype=policy)(y))
    model, state = built(fk.Model(x, y))
    opened = check(path, model, state, [normal(0, 2, 6, 6, 2)], tolerance=3e-3)
    assert opened.get_outputs()[0].type == "tensor(float16)"


@pytest.mark.exhaustive
def test_bfloat16_files_pass_the_checker(path):
    model, state = built(dense(dtype="mixed_bfloat16"))
    fk.export(model, state, path)
    (output,) = onnx.load(str(path)).graph.output
    assert output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_models(path, mode):
    model, state = built(
        fk.Sequential([fk.Input((8,)), layers.Dense(8, activation="relu"), layers.Dense(2)])
    )
    quantized = fk.quantize(model, mode)
    check(path, quantized, state, [normal(0, 4, 8)], (1,), opset=18)
    kinds = {tensor.data_type for tensor in onnx.load(str(path)).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    assert ("MatMulInteger" in operators(path)) == (mode == "int8")


@pytest.mark.exhaustive
def test_quantized_kernels_alone_are_dequantized_by_axis(path):
    scheme = fk.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model, state = built(fk.Sequential([fk.Input((3, 8)), layers.Dense(4, activation="relu")]))
    check(path, fk.quantize(model, scheme), state, [normal(0, 4, 3, 8)], (1,))
    assert operators(path) == ["DequantizeLinear", "MatMul", "Add", "Relu"]


# -- files ------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_two_exports_write_the_same_bytes(path, tmp_path):
    x = fk.Input((8, 8, 3))
    y = layers.LSTM(3)(layers.Reshape((4, 9))(layers.Conv2D(1, 3)(x)))
    model, state = built(fk.Model(x, y))
    fk.export(model, state, path)
    fk.export(model, state, tmp_path / "again.onnx")
    assert path.read_bytes() == (tmp_path / "again.onnx").read_bytes()
    loaded = onnx.load(str(path))
    assert (loaded.ir_version, loaded.opset_import[0].version) == (10, 17)
    onnx.checker.check_model(loaded, full_check=True)


def test_a_large_model_has_a_second_file(path, monkeypatch):
    monkeypatch.setattr(protobuf, "LIMIT", 2000)
    model, state = built(fk.Sequential([fk.Input((3,)), layers.Dense(200), layers.Dense(2)]))
    check(path, model, state, [normal(0, 2, 3)])
    assert path.with_name("m.onnx.data").stat().st_size == 4 * (600 + 400)
    assert path.stat().st_size < 2000


@pytest.mark.exhaustive
@pytest.mark.parametrize("opset", [18, 20, 21])
def test_newer_opsets(path, opset):
    x = fk.Input((6, 4))
    y = layers.BatchNormalization()(layers.LSTM(3, return_sequences=True)(x))
    y = layers.GlobalAveragePooling1D()(layers.Softmax(axis=(1, 2))(layers.Conv1D(2, 3)(y)))
    model, state = built(fk.Model(x, y))
    check(path, model, state, [normal(0, 2, 6, 4)], opset=opset)
    assert onnx.load(str(path)).opset_import[0].version == opset


# -- layers of users --------------------------------------------------------------------------


class Scaled(fk.Layer):
    """Traced by JAX, operation by operation."""

    factor: float = 2.0

    def call(self, x):
        return jnp.sinh(self.factor * x).sum(-1, keepdims=True) / x


class Sorted(fk.Layer):
    """Emits its own nodes."""

    def call(self, x):
        return jax.scipy.special.digamma(x)

    def to_onnx(self, writer, x):
        return writer.emit("HardSwish", x, dims=x.dims)


def test_layers_of_users_are_traced(path):
    model, state = built(
        fk.Sequential([fk.Input((3,)), Scaled(3.0), layers.Lambda(lambda x: x**3)])
    )
    check(path, model, state, [normal(0, 4, 3)], (1,))


def test_layers_of_users_emit_their_own_nodes(path):
    model, state = built(fk.Sequential([fk.Input((3,)), Sorted()]))
    fk.export(model, state, path)
    assert operators(path) == ["HardSwish"]


class Digamma(fk.Layer):
    def call(self, x):
        return jax.scipy.special.digamma(x)


# -- errors -----------------------------------------------------------------------------------


def test_an_operation_without_form_names_the_layer_and_the_way_out(path):
    model, state = built(fk.Sequential([fk.Input((3,)), Digamma(name="gamma")]))
    message = r"'.*gamma': JAX's operation 'digamma' has no ONNX form\. Give .* `to_onnx"
    with pytest.raises(fk.FKerasError, match=message):
        fk.export(model, state, path)
    assert not path.exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("opset", [16, 1000, "17", True, 17.0, None])
def test_wrong_opsets(path, opset):
    model, state = built(dense())
    with pytest.raises(
        ValueError, match=f"export: expected an opset from 17 to .*, received {opset!r}"
    ):
        fk.export(model, state, path, opset=opset)


@pytest.mark.parametrize(
    "options",
    [{"training": True}, {"updates": True}, {"platforms": ("cpu",)}, {"constraints": ("b >= 2",)}],
)
def test_arguments_that_onnx_does_not_have(path, options):
    model, state = built(dense())
    (name,) = options
    with pytest.raises(ValueError, match=f"an ONNX file has no {name}. Leave {name} away"):
        fk.export(model, state, path, **options)


def test_opset_of_a_program_of_jax(tmp_path):
    model, state = built(dense())
    with pytest.raises(ValueError, match="expected a path that ends in .onnx with opset=18"):
        fk.export(model, state, tmp_path / "m.jax", opset=18)


def test_models_that_cannot_be_written(path):
    with pytest.raises(fk.FKerasError, match="has no weights yet"):
        fk.export(dense(), None, path)
    with pytest.raises(TypeError, match="expected a model, received dict"):
        fk.export({}, None, path)
    x = fk.Input((), dtype="string")
    words = layers.StringLookup(vocabulary=["a"])(x)
    model = fk.Model(x, layers.Embedding(3, 2)(words)).build(KEY)
    with pytest.raises(fk.FKerasError, match="received strings"):
        fk.export(model, None, path)
    model, _ = built(fk.Sequential([fk.Input((3,)), layers.BatchNormalization()]))
    with pytest.raises(fk.FKerasError, match="needs state=|has state"):
        fk.export(model, None, path)


def test_random_numbers_in_inference(path):
    class Noise(fk.Layer):
        def forward(self, context, x):
            return fk.Output(x + jax.random.normal(jax.random.key(0), (1, 3)))

    model, state = built(fk.Sequential([fk.Input((3,)), Noise(name="noise")]))
    with pytest.raises(fk.FKerasError, match="noise.*random numbers"):
        fk.export(model, state, path)


def test_a_missing_package_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model, state = built(dense())
    with pytest.raises(ImportError, match="export: needs the package onnx.*`pip install onnx`"):
        fk.export(model, state, path)


# -- architectures ----------------------------------------------------------------------------

QUICK_NETWORKS = ("MobileNetV2",)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_NETWORKS else pytest.mark.exhaustive)
        for name in applications.NAMES
    ],
)
def test_applications(path, name):
    size = applications.SIZES.get(name, 32)
    make = getattr(fk.applications, name)
    options = {"weights": None, "classes": 5, "classifier_activation": None}
    model = make(input_shape=(size, size, 3), **options).build(KEY)
    rng = np.random.default_rng(0)

    # statistics of their own: those of a new network normalize nothing
    def learned(path, a):
        # far from the mean all activations would be 0; variances below 1 amplify rounding
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return a
        spread = (
            0.5 * rng.random(a.shape)
            if "variance" in str(path[-1])
            else 0.01 * rng.normal(size=a.shape)
        )
        return jnp.asarray(a + spread, a.dtype)

    state = jax.tree_util.tree_map_with_path(learned, model.init_state())
    images = 100 + 50 * normal(0, 1, size, size, 3)
    fk.export(model, state, path)
    (output,) = run(session(path), [images])
    expected = np.asarray(model.apply(images, state=state).value)
    scale = np.abs(expected).max()
    assert np.isfinite(scale) and np.ptp(expected) > 0
    np.testing.assert_allclose(output / scale, expected / scale, atol=1e-4)

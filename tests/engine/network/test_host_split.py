"""Models with string inputs: recording, computing, splitting, training, and Keras's files."""

import functools
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.legacy_files import array, file_bytes, write
from tests.support.paths import DATA

TEXTS = np.array(["one two two", "two", "three"])
WORDS = layers.TextVectorization(vocabulary=["one", "two"], name="words")


@functools.lru_cache(maxsize=1)
def _cases():
    """Files and outputs of Keras 3 on TensorFlow; see tools/references/keras_texts_reference.py."""
    path = DATA / "keras_texts.json"
    return json.loads(path.read_text())["cases"]


CASES = ("several inputs", "a row", "a model before", "a model inside", "crossed", "counted")
MORE = ("decoded",)


def test_every_stored_case_is_tested():
    assert set(_cases()) == {*CASES, *MORE}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_files_of_keras_that_begin_with_strings(name, tmp_path):
    case, path = _cases()[name], tmp_path / "m.keras"
    path.write_bytes(file_bytes(case))
    model, state = fk.load_model(path)
    inputs = case["inputs"]
    if name == "several inputs":
        inputs["n"] = np.array(inputs["n"], "float32")
    outputs = model.apply(inputs, state=state).value
    np.testing.assert_allclose(outputs, array(case["outputs"]), rtol=1e-6, atol=1e-7)
    host, device = fk.split_host(model)
    numbers = host(inputs)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(numbers))
    np.testing.assert_array_equal(device.apply(numbers, state=state).value, outputs)
    fk.save_model(path, model, state)
    assert fk.load_model(path)[0] == model
    weights = tmp_path / "m.weights.h5"
    fk.save_weights(weights, model, state)
    assert fk.load_weights(weights, model, state)[0] == model


@pytest.mark.exhaustive
def test_a_file_of_keras_that_returns_strings(tmp_path):
    case, path = _cases()["decoded"], tmp_path / "m.keras"
    path.write_bytes(file_bytes(case))
    model, state = fk.load_model(path)
    outputs = model.apply(case["inputs"], state=state).value
    expected_scores = array(case["outputs"]["scores"])
    np.testing.assert_allclose(outputs["scores"], expected_scores, rtol=1e-6, atol=1e-7)
    assert outputs["word"].tolist() == case["outputs"]["word"] == ["bad", "bad", "good"]
    fk.save_model(path, model, state)
    assert fk.load_model(path)[0] == model


def test_hdf5_without_the_vocabulary_is_rejected(tmp_path):
    config = {"name": "words", "vocabulary": None, "vocabulary_size": 7, "trainable": True}
    entry = {"class_name": "InputLayer", "config": {"batch_shape": [None], "dtype": "string"}}
    items = [entry, {"class_name": "TextVectorization", "config": config}]
    document = {"class_name": "Sequential", "config": {"name": "s", "layers": items}}
    attributes = {"keras_version": "3.9.0", "backend": "tensorflow"}
    attributes["model_config"] = json.dumps(document)
    tree = {"arrays": {}, "attributes": {"": attributes, "model_weights": {"layer_names": []}}}
    path = tmp_path / "m.h5"
    path.write_bytes(write(tree))
    with pytest.raises(fk.FileError, match="'words'.*vocabulary.*received none.*as .keras"):
        fk.load_model(path)
    config["vocabulary"] = ["one", "two"]
    attributes["model_config"] = json.dumps(document)
    path.write_bytes(write(tree))
    assert fk.load_model(path)[0](TEXTS).tolist() == [[2, 3, 3], [3, 0, 0], [1, 0, 0]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("layer", "shape", "expected", "dtype"),
    [
        (WORDS, (), (None, None), "int32"),
        (WORDS, (1,), (None, None), "int32"),
        (WORDS.replace(output_sequence_length=4), (), (None, 4), "int32"),
        (WORDS.replace(output_mode="multi_hot"), (), (None, 3), "float32"),
        (WORDS.replace(split="character"), (), (None, None), "int32"),
        (WORDS.replace(split=None), (5,), (None, 5), "int32"),
        (layers.StringLookup(vocabulary=["a"]), (None, 3), (None, None, 3), "int32"),
        (layers.Hashing(3), (2,), (None, 2), "int32"),
        (layers.Hashing(3, output_mode="one_hot"), (1,), (None, 3), "float32"),
    ],
)
def test_shapes_of_layers_that_read_strings(layer, shape, expected, dtype):
    out = layer(fk.Input(shape, dtype="string"))
    assert (out.shape, out.dtype) == (expected, dtype)


def test_an_unknown_length_has_an_axis_name():
    out = WORDS(fk.Input((), dtype="string"))
    assert out.spec.dims[0] == "b"
    assert out.spec.dims[1] != "b"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["string", str, "U", "S5", np.dtype("U3"), object])
def test_dtypes_of_texts(dtype):
    assert fk.Input((2,), dtype=dtype).dtype == "string"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: layers.Dense(2)(x), "Dense: expected numbers, received strings"),
        (lambda x: x + 1, "add: expected numbers"),
        (lambda x: layers.TextVectorization()(x), "has no vocabulary yet"),
        (lambda x: layers.IntegerLookup(vocabulary=[1])(x), "expected integers"),
        (lambda x: layers.Dense(2, dtype="string"), "no string dtype"),
        (lambda x: fk.Input((2,), dtype="strings"), "no dtype 'strings'. Did you mean 'string'"),
        (lambda x: fk.split_host(fk.Model(x, WORDS(x))), "on the host only"),
        (
            lambda x: fk.split_host(fk.Model(x, [x, _model()(x)])),
            "a string input is also an output",
        ),
        (lambda x: fk.split_host(_numbers()), "expected a model with a string input"),
        (lambda x: fk.split_host(3), "int: split_host expected a model"),
    ],
)
def test_calls_that_cannot_be_recorded_or_split(call, words):
    with pytest.raises((fk.FKerasError, TypeError, ValueError), match=words):
        call(fk.Input((), dtype="string"))


def test_strings_join_numbers_of_inputs_but_not_of_the_device():
    x, ids = fk.Input((1,), dtype="string"), fk.Input((1,), dtype="int32")
    crossing = layers.HashedCrossing(5)
    model = fk.Model([x, ids], crossing((x, ids)))
    texts, numbers = TEXTS[:, None], np.array([[1], [2], [3]])
    np.testing.assert_array_equal(model([texts, numbers]), crossing((texts, numbers)))
    late = fk.Model([x, ids], crossing((x, ids + 1)))
    with pytest.raises(fk.FKerasError, match="together with the output of 'add' from the device"):
        late([texts, numbers])


def _numbers():
    x = fk.Input((None,), dtype="int32", name="ids")
    y = layers.GlobalAveragePooling1D()(layers.Embedding(4, 3, mask_zero=True, name="table")(x))
    return fk.Model(x, layers.Dense(2, name="head")(y))


def _model():
    x = fk.Input((), dtype="string", name="texts")
    y = layers.Embedding(4, 3, mask_zero=True, name="table")(WORDS(x))
    return fk.Model(x, layers.Dense(2, name="head")(layers.GlobalAveragePooling1D()(y)))


@pytest.fixture(scope="module")
def model():
    return _model().build(jax.random.key(0))


@pytest.fixture(scope="module")
def numbers(model):
    number_model = _numbers().build(jax.random.key(0))
    return number_model.replace(
        layers={n: model.layers.get(n, v) for n, v in number_model.layers.items()}
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "form", [np.asarray, list, lambda x: [x], np.char.encode, lambda x: x.astype(object)]
)
def test_texts_in_every_form(model, numbers, form):
    expected = numbers(WORDS(TEXTS))
    np.testing.assert_array_equal(model(form(TEXTS)), expected)


@pytest.mark.exhaustive
def test_inside_transformations_the_texts_are_constants(model, numbers):
    expected = numbers(WORDS(TEXTS))
    np.testing.assert_allclose(jax.jit(lambda m: m(TEXTS))(model), expected, rtol=1e-6)
    gradient = jax.grad(lambda m: m(TEXTS).sum())(model).layers["head"].kernel
    expected_gradient = jax.grad(lambda m: m(WORDS(TEXTS)).sum())(numbers).layers["head"].kernel
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (jnp.ones(3), "input 'texts': expected strings, received float32"),
        ([1.0, 2.0], "input 'texts': expected strings, received float64"),
        (TEXTS[:, None], r"expected shape \(b,\), received \(3, 1\)"),
    ],
)
def test_values_other_than_texts_are_rejected(model, inputs, words):
    with pytest.raises(fk.FKerasError, match=words):
        model(inputs)


WORD = layers.StringLookup(vocabulary=["one", "two"], invert=True, name="word")


def _scores():
    x = fk.Input((4,), name="x")
    y = layers.BatchNormalization()(layers.Dense(3, name="scores")(x))
    return x, y, WORD(fk.ops.argmax(y, axis=-1))


@pytest.mark.exhaustive
def test_a_model_may_return_strings(tmp_path, key):
    x, y, word = _scores()
    assert (word.shape, word.dtype) == ((None,), "string")
    model = fk.Model(x, {"y": y, "word": word}).build(key)
    assert model._makes_strings
    state, data = model.init_state(), np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4)
    out = model.apply(data, state=state, training=True)
    numbers = fk.Model(model.inputs, model.tensor("batch_normalization"))
    plain = numbers.apply(data, state=state, training=True)
    np.testing.assert_array_equal(out.value["y"], plain.value)
    jax.tree.map(np.testing.assert_array_equal, out.updates, plain.updates)
    best = np.argmax(plain.value, axis=-1)
    assert out.value["word"].tolist() == np.array(["[UNK]", "one", "two"])[best].tolist()
    fk.save_model(tmp_path / "m.keras", model, state)
    assert fk.load_model(tmp_path / "m.keras")[0] == model


@pytest.mark.exhaustive
def test_names_of_tensors_between_host_and_device_are_unused():
    """A lookup called twice, and inputs and layers that use the numbered names of its outputs."""
    lookup = layers.StringLookup(vocabulary=["one", "two"], name="word")
    a, b = (fk.Input((1,), dtype="string", name=n) for n in "ab")
    ids = fk.Input((1,), dtype="int32", name="word_1")
    model = fk.Model([a, b, ids], layers.Add()([lookup(a), lookup(b), ids]))
    first_words, second_words, number = np.array([["one"]]), np.array([["two"]]), np.array([[10]])
    assert model([first_words, second_words, number]).tolist() == [[13]]
    assert set(fk.split_host(model)[0]([first_words, second_words, number])) == {
        "word",
        "word_1",
        "word_2",
    }
    x = fk.Input((2,), dtype="int32")
    halves = layers.Lambda(lambda x: [x[:, :1], x[:, 1:]], name="half")(x)
    other = layers.Lambda(lambda x: x * 0, name="half_1")(x)
    model = fk.Model(x, [*map(WORD, halves), WORD(other)])
    strings = [y.tolist() for y in model(np.array([[1, 2]]))]
    assert strings == [[["one"]], [["two"]], [["[UNK]", "[UNK]"]]]


def test_strings_at_both_ends():
    x = fk.Input((), dtype="string")
    lookup = layers.StringLookup(vocabulary=["one", "two"])
    model = fk.Model(x, [WORD(lookup(x) + 0), lookup(x)])
    strings, ids = model(["two", "three"])
    assert strings.tolist() == ["two", "[UNK]"]
    assert ids.tolist() == [2, 0]
    outer_model = fk.Model(x, model(x)[0])  # nested in another model
    assert outer_model(["one"]).tolist() == ["one"]
    ids = fk.Input((2,), dtype="int32")
    assert fk.Model(ids, WORD(ids))(np.array([[0, 2]])).tolist() == [["[UNK]", "two"]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, y, w: layers.Dense(2)(w), "expected numbers, received strings"),
        (lambda x, y, w: WORD(w), "expected numbers, received strings"),
        (lambda x, y, w: fk.split_host(fk.Model(x, w)), "returns strings.*Leave the strings out"),
        (
            lambda x, y, w: jax.jit(fk.Model(x, WORD(x)))(jnp.ones((1, 4), "int32")),
            "strings on the host, received",
        ),
        (
            lambda x, y, w: fk.Model(x, WORD(layers.StringLookup(vocabulary=["one"])(WORD(x))))(
                np.ones((1, 4), "int32")
            ),
            "takes strings computed by the model",
        ),
    ],
)
def test_computed_strings_are_rejected_as_inputs_of_layers(call, words):
    x = fk.Input((4,), dtype="int32")
    with pytest.raises(fk.FKerasError, match=words):
        call(x, x, WORD(x))


def test_a_mask_of_texts_is_rejected(model):
    with pytest.raises(TypeError, match="by position only, received mask"):
        model(TEXTS, mask=np.ones(3, bool))


@pytest.mark.exhaustive
def test_models_with_strings_pickle_restore_and_rename(model):
    assert pickle.loads(pickle.dumps(model)) == model
    assert fk.Model.from_config(model.get_config()).build(jax.random.key(0)) == model
    np.testing.assert_array_equal(fk.rename(model, prefix="a_")(TEXTS), model(TEXTS))
    assert "texts (InputLayer)" in model.summary(show=False)


@pytest.mark.exhaustive
def test_split_models_have_the_dropout_and_state_of_the_model(key):
    x = fk.Input((), dtype="string")
    y = layers.BatchNormalization()(layers.Dropout(0.5)(WORDS.replace(output_mode="count")(x)))
    model = fk.Model(x, y).build(key)
    state = model.init_state()
    host, device = fk.split_host(model)
    model_out = model.apply(TEXTS, state=state, training=True, key=key)
    device_out = device.apply(host(TEXTS), state=state, training=True, key=key)
    np.testing.assert_array_equal(model_out.value, device_out.value)
    jax.tree.map(np.testing.assert_array_equal, model_out.updates, device_out.updates)
    assert model_out.updates


@pytest.mark.exhaustive
def test_a_split_model_is_trained_and_joined_again(model, tmp_path, key):
    host, device = fk.split_host(model)
    trainer = fk.Trainer(
        optimizer=fk.optimizers.Adam(0.1),
        loss=fk.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    y = np.array([0, 1, 1])
    run, history = trainer.fit(trainer.init(device, key), host(TEXTS), y, epochs=3, batch_size=3)
    assert history.history["loss"][-1] < history.history["loss"][0]
    joined = fk.Model(host.inputs, run.model(host.outputs))
    np.testing.assert_allclose(joined(TEXTS), run.model(host(TEXTS)), rtol=1e-6)
    fk.save_model(tmp_path / "whole.keras", joined, {})
    assert fk.load_model(tmp_path / "whole.keras")[0] == joined
    with pytest.raises(fk.FKerasError, match="received strings.*split_host"):
        fk.export(joined, None, tmp_path / "whole.jax")


@pytest.mark.exhaustive
def test_a_compiled_model_of_strings_resumes(model, tmp_path, key):
    trainer = fk.Trainer(optimizer=fk.optimizers.Adam(0.1), loss="mse")
    host, device = fk.split_host(model)
    x, y = host(TEXTS), np.ones((3, 2), "float32")
    run, _ = trainer.fit(trainer.init(device, key), x, y, epochs=1, batch_size=3)
    trained = {name: run.model.layers[name] for name in ("table", "head")}
    full_run = run.replace(model=model.replace(layers={**model.layers, **trained}))
    fk.save_model(tmp_path / "m.keras", full_run.model, {}, trainer=trainer, run=full_run)
    loaded_trainer, loaded_run = fk.load_training(tmp_path / "m.keras")
    loaded_run = loaded_run.replace(model=fk.split_host(loaded_run.model)[1])
    expected_run, _ = trainer.fit(run, x, y, epochs=1, batch_size=3)
    resumed, _ = loaded_trainer.fit(loaded_run, x, y, epochs=1, batch_size=3)
    for name in ("table", "head"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
            resumed.model.layers[name],
            expected_run.model.layers[name],
        )

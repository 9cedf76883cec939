"""`FeatureSpace` computes the vectors that Keras 3.15 computes with TensorFlow."""

import copy
import dataclasses
import json
import pickle

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules
from tests.support.paths import DATA

REFERENCE = json.loads((DATA / "feature_space.json").read_text())
TRAIN, TEST, CASES = REFERENCE["train"], REFERENCE["test"], REFERENCE["cases"]
FS = fk.utils.FeatureSpace


def _space(arguments, mode):
    features = {
        name: value if isinstance(value, str) else getattr(FS, value[0])(**value[1])
        for name, value in arguments["features"].items()
    }
    crosses = [
        FS.cross(**cross) if isinstance(cross, dict) else tuple(cross)
        for cross in arguments.get("crosses", ())
    ]
    options = {k: v for k, v in arguments.items() if k not in ("features", "crosses")}
    return FS(features, crosses=crosses, output_mode=mode, **options)


def _columns(table, space):
    return {name: table[name] for name in space.features}


@pytest.mark.one_in(20)
@pytest.mark.parametrize("mode", ["concat", "dict"])
@pytest.mark.parametrize("name", CASES)
def test_vectors_equal_keras(name, mode):
    expected = CASES[name][mode]
    space = _space(CASES[name]["arguments"], mode)
    adapted = space.adapt(_columns(TRAIN, space))
    if expected is None:
        with pytest.raises(ValueError, match="expected float features to concatenate"):
            adapted(_columns(TEST, space))
        return
    values = adapted(_columns(TEST, space))
    if mode == "concat":
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
        return
    assert sorted(values) == sorted(expected)
    for key, value in values.items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=1e-6)


CROSSED = {
    "features": {"age": "integer_categorical", "color": "string_categorical", "size": "float"},
    "crosses": [["age", "color"]],
}


@pytest.fixture(scope="module")
def crossed():
    space = _space(CROSSED, "concat")
    return space.adapt(TRAIN)


def test_adapt_returns_another_space(crossed):
    space = _space(CROSSED, "concat")
    with pytest.raises(ValueError, match="age, color have learned nothing yet.*space.adapt"):
        space(TEST)
    assert space.preprocessors["color"].vocabulary is None
    assert crossed.preprocessors["color"].vocabulary is not None
    again = crossed.adapt({**TRAIN, "color": ["teal"] * 50})
    assert again.preprocessors["color"].get_vocabulary() == ["[UNK]", "teal"]
    assert crossed != again and crossed.adapt(TRAIN) == crossed
    assert crossed.crossers["age_X_color"].num_bins == 32


@pytest.mark.exhaustive
def test_adapt_reads_iterables_of_tables(crossed):
    batches = (
        ({name: column[begin : begin + 9] for name, column in TRAIN.items()}, None)
        for begin in range(0, 50, 9)
    )
    assert _space(CROSSED, "concat").adapt(batches) == crossed
    tables = {name: np.asarray(column)[:, None] for name, column in TRAIN.items()}
    assert _space(CROSSED, "concat").adapt(tables) == crossed


@pytest.mark.exhaustive
def test_pandas_tables_are_read(crossed):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(TRAIN)
    assert _space(CROSSED, "concat").adapt(table) == crossed
    np.testing.assert_array_equal(crossed(table[:3]), crossed({k: v[:3] for k, v in TRAIN.items()}))


@pytest.mark.exhaustive
def test_single_values_give_results_without_the_batch_axis(crossed):
    row = {"age": 7, "color": "red", "size": 0.5}
    np.testing.assert_array_equal(crossed(row), crossed({k: [v] for k, v in row.items()})[0])
    values = _space(CROSSED, "dict").adapt(TRAIN)(row)
    assert values["size"].shape == (1,)


@pytest.mark.exhaustive
def test_encoded_features_start_a_model(crossed):
    y = layers.Dense(1)(crossed.get_encoded_features())
    model = fk.Model(crossed.get_inputs(), y)
    vectors = crossed(TEST)
    part = fk.Model(crossed.get_inputs(), crossed.get_encoded_features())
    columns = {name: np.asarray(TEST[name])[:, None] for name in crossed.features}
    columns["size"] = columns["size"].astype("float32")
    np.testing.assert_array_equal(part(columns), vectors)
    assert set(model.input_names) == {"age", "color", "size"}
    symbolic = crossed(crossed.get_inputs())
    assert symbolic.shape[-1] == vectors.shape[-1]


@pytest.mark.exhaustive
def test_a_model_of_a_space_trains_after_split_host(crossed):
    host, device = fk.split_host(
        fk.Model(crossed.get_inputs(), layers.Dense(1)(crossed.get_encoded_features()))
    )
    columns = {name: np.asarray(TRAIN[name])[:, None] for name in crossed.features}
    columns["size"] = columns["size"].astype("float32")
    numbers = host(columns)
    assert all(np.asarray(array).dtype.kind in "if" for array in jax.tree.leaves(numbers))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(device, jax.random.key(0))
    _, history = trainer.fit(run, numbers, np.ones((50, 1), "float32"), epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]


@pytest.mark.exhaustive
def test_spaces_are_saved_as_models_and_as_json(crossed, tmp_path):
    crossed.save(tmp_path / "space.keras")
    model, state = fk.load_model(tmp_path / "space.keras")
    columns = {name: np.asarray(TEST[name])[:, None] for name in crossed.features}
    columns["size"] = columns["size"].astype("float32")
    np.testing.assert_array_equal(model(columns, state=state), crossed(TEST))
    config = json.loads(json.dumps(crossed.get_config()))
    restored = FS.from_config(config)
    np.testing.assert_array_equal(restored(TEST), crossed(TEST))
    assert restored.get_config() == config


@pytest.mark.exhaustive
def test_configs_of_keras_are_loaded_and_saved():
    features = {"a": "float", "b": "float_normalized", "c": "float_discretized"}
    with keras_rules():
        theirs = keras.utils.FeatureSpace(
            {**features, "d": keras.utils.FeatureSpace.float_rescaled(2.0, 1.0)},
            num_discretization_bins=3,
        ).get_config()
    space = FS.from_config(json.loads(json.dumps(theirs)))
    assert space.preprocessors["c"].num_bins == 3
    assert isinstance(space.preprocessors["a"], layers.Identity)
    ours = FS({**features, "d": FS.float_rescaled(2.0, 1.0)}, num_discretization_bins=3)
    with keras_rules():
        read = keras.utils.FeatureSpace.from_config(ours.get_config())
    assert [f.output_mode for f in read.features.values()] == ["float", "float", "one_hot", "float"]


def test_spaces_are_values(crossed):
    twin = pickle.loads(pickle.dumps(crossed))
    assert twin == crossed == copy.deepcopy(crossed) and hash(twin) == hash(crossed)
    np.testing.assert_array_equal(twin(TEST), crossed(TEST))
    with pytest.raises(dataclasses.FrozenInstanceError):
        crossed.output_mode = "dict"


@pytest.mark.exhaustive
def test_custom_layers_preprocess_features():
    text = layers.TextVectorization(output_mode="tf_idf")
    space = FS({"t": FS.feature("string", text, "float")})
    space = space.adapt({"t": ["a b", "b c", "c c"]})
    assert space({"t": ["a c"]}).shape == (1, 4)
    lookup = FS({"c": FS.feature("string", layers.StringLookup(vocabulary=["a"]), "one_hot")})
    np.testing.assert_array_equal(lookup({"c": ["a", "z"]}), [[0, 1], [1, 0]])
    bins = FS({"x": FS.float_discretized(9, bin_boundaries=[0.0, 1.0])})
    np.testing.assert_array_equal(bins({"x": [0.5, 2.0]}), [[0, 1, 0], [0, 0, 1]])


FLOAT_FEATURE = {"a": "float"}
STRING_FEATURE = {"a": "string_categorical"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: FS({}), ValueError, "expected one or more features"),
        (lambda: FS(["a"]), TypeError, "expected a dictionary of features"),
        (lambda: FS({"a": "flaot"}), ValueError, "Did you mean 'float'"),
        (lambda: FS({"a": 3}), ValueError, "'a': expected a feature"),
        (
            lambda: FS(FLOAT_FEATURE, output_mode="list"),
            ValueError,
            "output_mode: expected 'concat'",
        ),
        (lambda: FS(FLOAT_FEATURE, crossing_dim=0), ValueError, "crossing_dim: expected"),
        (lambda: FS(FLOAT_FEATURE, hashing_dim="a"), ValueError, "hashing_dim: expected"),
        (
            lambda: FS(FLOAT_FEATURE, num_discretization_bins=1.5),
            ValueError,
            "num_discretization_bins",
        ),
        (lambda: FS(FLOAT_FEATURE, crosses="a"), TypeError, "expected a list of tuples"),
        (lambda: FS(FLOAT_FEATURE, crosses=[("a",)]), ValueError, "two or more names of features"),
        (lambda: FS(FLOAT_FEATURE, crosses=[("a", "b")]), ValueError, "received 'b'"),
        (lambda: FS(FLOAT_FEATURE, crosses=[FS.cross(("a", "b"), 4)]), ValueError, "received 'b'"),
        (
            lambda: FS({"a": "float", "b": "float"}, crosses=[("a", "b")]).get_encoded_features(),
            TypeError,
            "'a_X_b' .*expected integers",
        ),
        (lambda: FS(FLOAT_FEATURE, name=3), ValueError, "name: expected"),
        (lambda: FS.cross(("a", "b"), 0), ValueError, "crossing_dim: expected"),
        (lambda: FS.cross(("a", "b"), 4, "float"), ValueError, "output_mode: expected 'int'"),
        (lambda: FS.feature("flt", layers.Identity(), "float"), ValueError, "dtype: expected"),
        (lambda: FS.feature("float32", len, "float"), TypeError, "expected a layer"),
        (lambda: FS.feature("float32", layers.Identity(), "vec"), ValueError, "output_mode"),
        (lambda: FS.string_hashed(0), ValueError, "num_bins"),
        (lambda: FS.float_discretized(), ValueError, "num_bins"),
        (lambda: FS(STRING_FEATURE).adapt(3), TypeError, "expected columns by name"),
        (lambda: FS(STRING_FEATURE).adapt("abc"), TypeError, "expected columns by name"),
        (lambda: FS(STRING_FEATURE).adapt([3]), TypeError, "expected columns by name"),
        (lambda: FS(STRING_FEATURE).adapt({"b": ["x"]}), ValueError, "expected a column 'a'"),
        (lambda: FS(STRING_FEATURE).adapt({"a": []}), ValueError, "expected rows"),
        (lambda: FS(STRING_FEATURE).adapt(iter([])), ValueError, "expected rows"),
        (lambda: FS(STRING_FEATURE).adapt({"a": [1, 2]}), TypeError, "expected strings"),
        (lambda: FS(FLOAT_FEATURE)([1.0]), TypeError, "expected columns by name"),
        (lambda: FS(FLOAT_FEATURE)({}), ValueError, "received no column 'a'"),
        (lambda: FS(FLOAT_FEATURE)({"a": [1.0], "b": [2]}), ValueError, "received the column 'b'"),
        (
            lambda: FS(FLOAT_FEATURE)({"a": ["x"]}),
            TypeError,
            r"column 'a': expected numbers \(float32\)",
        ),
        (lambda: FS(FLOAT_FEATURE)({"a": None}), TypeError, "received None"),
        (lambda: FS(FLOAT_FEATURE)({"a": [[1.0, 2.0]]}), ValueError, r"received \(1, 2\)"),
        (lambda: FS({"a": "string_hashed"})({"a": [1]}), TypeError, "expected strings"),
        (
            lambda: FS({"a": "float", "b": "float"})({"a": [1.0], "b": [1.0, 2.0]}),
            ValueError,
            "columns of one length, received {'a': 1, 'b': 2}",
        ),
        (lambda: FS({"a/b": "float"}), ValueError, "names without '/', received 'a/b'"),
        (lambda: FS({3: "float"}), ValueError, "names without '/', received 3"),
        (
            lambda: FS(FLOAT_FEATURE, learned={"b": layers.Identity()}),
            ValueError,
            "received a layer of 'b'",
        ),
        (lambda: FS({"a": {"class_name": "Feature"}}), ValueError, "'a': expected a feature"),
        (lambda: FS(STRING_FEATURE).adapt({"a": [["x", "y"]]}), ValueError, r"received \(1, 2\)"),
        (
            lambda: FS.from_config({**FS(FLOAT_FEATURE).get_config(), "x": 1}),
            ValueError,
            "another form",
        ),
        (lambda: FS(FLOAT_FEATURE).save(3), TypeError, "expected a path"),
        (
            lambda: FS({"a": FS.feature("float32", layers.Identity(), "one_hot")})({"a": [1.0]}),
            ValueError,
            "a limited number of integers",
        ),
        (lambda: FS.from_config({}), ValueError, "expected the data of get_config"),
        (lambda: FS.from_config({"features": {"a": "float"}}), ValueError, "another form"),
        (lambda: FS.from_config({"features": [1]}), ValueError, "another form"),
    ],
)
def test_invalid_arguments_are_reported(call, error, message):
    with pytest.raises(error, match=message):
        call()

"""Adapted Discretization layers in HDF5 files of tf.keras."""

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.legacy_files import load, model_file

SUMMARY = np.array([[-2, -1, -0.5, 0.25, 1, 3], [1, 2, 1, 1, 2, 1]], "float32")
# tf_keras 2.21 computes these boundaries of SUMMARY, for 3 and for 4 bins
BOUNDARIES = {3: (-1.1666666269302368, 0.375), 4: (-1.5, -0.5, 0.625)}
X = np.array([[-3.0, 0.0], [0.5, 9.0]], "float32")


def _bins(name, num_bins, **config):
    config = {
        "name": name,
        "dtype": "int64",
        "bin_boundaries": None,
        "num_bins": num_bins,
        **config,
    }
    config |= {"epsilon": 0.01, "sparse": False, "output_mode": config.get("output_mode", "int")}
    return {"class_name": "Discretization", "config": config}


def _sequential(name, *items):
    data = {"name": f"x_{name}", "batch_input_shape": [None, 2], "dtype": "float32"}
    layer_items = [{"class_name": "InputLayer", "config": data}, *items]
    return {"class_name": "Sequential", "config": {"name": name, "layers": layer_items}}


@pytest.mark.exhaustive
def test_boundaries_are_those_of_the_summary():
    config = _sequential("m", _bins("a", 4, output_mode="multi_hot"))
    model, state = load(model_file(config, {"a": {"summary:0": SUMMARY}}, "2.21.0"))
    assert model.layers["a"].bin_boundaries == BOUNDARIES[4]
    np.testing.assert_array_equal(model(X, state=state), [[1, 0, 1, 0], [0, 0, 1, 1]])


@pytest.mark.exhaustive
def test_layers_inside_of_models_have_their_own_summaries():
    # boundaries of the second layer: indices of the first layer are its numbers
    inner = _sequential("inner", _bins("a", 4), _bins("b", 3))
    moved = SUMMARY + np.array([[2], [0]], "float32")
    weights = {"inner": {"a/summary:0": SUMMARY, "b/summary:0": moved}}
    data = model_file(_sequential("m", inner), weights, "2.21.0")
    model, state = load(data)
    found = [model.layers["inner"].layers[name].bin_boundaries for name in "ab"]
    assert found[0] == BOUNDARIES[4]
    np.testing.assert_allclose(found[1], np.add(BOUNDARIES[3], 2), rtol=1e-6)
    np.testing.assert_array_equal(model(X, state=state), [[0, 1], [1, 2]])


def test_weights_alone_load_beside_a_layer_with_boundaries(tmp_path):
    config = _sequential("m", _bins("a", 4))
    path = tmp_path / "m.h5"
    path.write_bytes(model_file(config, {"a": {"summary:0": SUMMARY}}, "2.21.0"))
    model = fk.Sequential([fk.Input((2,)), layers.Discretization([0.0], name="other")])
    loaded, _ = fk.load_weights(path, model)
    assert loaded.layers["other"].bin_boundaries == (0.0,)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (SUMMARY[:, :0], "has no boundaries yet"),
        (SUMMARY[:1], "expected a summary of two rows"),
        (SUMMARY * np.array([[1], [0]], "float32"), "expected a summary of two rows"),
        (SUMMARY * np.float32("nan"), "expected a summary of two rows"),
        (SUMMARY.astype("int32"), "expected a summary of two rows"),
        (None, "has no boundaries yet"),
    ],
)
def test_damaged_and_missing_summaries_are_refused(summary, message):
    stored = {} if summary is None else {"summary:0": summary}
    data = model_file(_sequential("m", _bins("a", 4)), {"a": stored}, "2.21.0")
    with pytest.raises(fk.FileError, match=message):
        load(data)


def test_a_class_of_the_user_keeps_its_configuration():
    class Discretization(fk.Layer):
        num_bins: int
        summary: object = fk.weight(initializer="zeros")

        def build(self, key, x):
            return self.with_weights(key, summary=(2, 6))

        def call(self, x):
            return x

        @classmethod
        def from_config(cls, config, custom_objects=None):
            assert config["bin_boundaries"] is None
            return cls(config["num_bins"], name=config["name"])

    data = model_file(_sequential("m", _bins("a", 4)), {"a": {"summary:0": SUMMARY}}, "2.21.0")
    model, _ = load(data, custom_objects={"Discretization": Discretization})
    np.testing.assert_array_equal(model.layers["a"].summary, SUMMARY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("robust", [False, True])
def test_both_ways_of_masking_open(robust):
    items = [
        {"class_name": "Softmax", "config": {"name": "s", "axis": -1, "robust_masking": robust}}
    ]
    model, state = load(model_file(_sequential("m", *items), {"s": {}}, "2.21.0"))
    np.testing.assert_allclose(model(X, state=state).sum(1), [1, 1])
    shapes = {f"{n}_shape": [None, 2, 4] for n in ("query", "key", "value")}
    names = ("query", "key", "value", "attention_output")
    attention = {"name": "a", "num_heads": 1, "key_dim": 4, "value_dim": 4, "use_bias": False}
    attention |= {"softmax_robust_masking": robust, **shapes}
    config = {
        "class_name": "Functional",
        "config": {
            "name": "m",
            "layers": [
                {
                    "class_name": "InputLayer",
                    "name": "x",
                    "config": {"name": "x", "batch_input_shape": [None, 2, 4], "dtype": "float32"},
                    "inbound_nodes": [],
                },
                {
                    "class_name": "MultiHeadAttention",
                    "name": "a",
                    "config": attention,
                    "inbound_nodes": [[["x", 0, 0, {"value": ["x", 0, 0]}]]],
                },
            ],
            "input_layers": [["x", 0, 0]],
            "output_layers": [["a", 0, 0]],
        },
    }
    kernels = {
        f"a/{name}/kernel:0": np.eye(4, dtype="float32").reshape(s)
        for name, s in zip(names, [(4, 1, 4)] * 3 + [(1, 4, 4)], strict=True)
    }
    model, state = load(model_file(config, {"x": {}, "a": kernels}, "2.21.0"))
    x = np.eye(4, dtype="float32")[None, :2]
    near = np.exp(0.5) / (np.exp(0.5) + 1)
    expected = [[near, 1 - near, 0, 0], [1 - near, near, 0, 0]]
    np.testing.assert_allclose(model(x, state=state)[0], expected, atol=1e-6)

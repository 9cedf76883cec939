"""TensorFlow functions in the graphs of tf.keras 2: operations compute the same numbers."""

import functools
import gzip
import json

import numpy as np
import pytest

import fkeras as fk
from fkeras.saving import FileError
from tests.support.legacy_files import array, load, model_file, outputs
from tests.support.paths import DATA

#: functions whose operands TensorFlow omits from its files, which it then cannot open
_LOST = ("einsum",)


@functools.lru_cache(maxsize=2)
def reference(version):
    """Returns the reference written by tools/references/tf211_reference.py."""
    return json.loads(gzip.decompress((DATA / f"{version}.json.gz").read_bytes()))


ROWS = [(v, name) for v in ("tf211", "tf210") for name in reference(v)["rows"]]


def opened(version, name, **options):
    data = reference(version)
    row = data["rows"][name]
    weights = {
        layer: {key: array(w) for key, w in layer_arrays.items()}
        for layer, layer_arrays in row["weights"].items()
    }
    return load(model_file(row["config"], weights, version=data["keras"]), **options)


# the older version writes mostly the same graphs: only CI opens them too
EACH = [
    pytest.param(version, name, marks=pytest.mark.exhaustive if older else ())
    for version, name in ROWS
    for older in [version == "tf210" and name in reference("tf211")["rows"]]
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("version", "name"), EACH, ids=lambda v: v)
def test_outputs_equal_those_of_tensorflow(version, name):
    data = reference(version)
    row = data["rows"][name]
    if version == "tf211" and name in _LOST:
        with pytest.raises(FileError, match="operands are missing in the file"):
            opened(version, name)
        return
    model, state = opened(version, name)
    values = [array(data["arrays"][key]) for key in row["inputs"]]
    results = outputs(model, state, values if len(values) > 1 else values[0])
    assert len(results) == len(row["outputs"])
    for index, (value, expected) in enumerate(zip(results, row["outputs"], strict=True)):
        expected_array = array(expected)
        assert value.shape == expected_array.shape, index
        assert value.dtype.kind == expected_array.dtype.kind, index
        scale = max(1.0, float(np.max(np.abs(expected_array), initial=0)))
        np.testing.assert_allclose(
            value, expected_array, rtol=1e-6, atol=1e-6 * scale, err_msg=str(index)
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("version", "name"), [("tf211", "nested"), ("tf210", "nested")])
def test_the_model_is_saved_in_the_form_of_keras_3(version, name, tmp_path):
    data = reference(version)
    row = data["rows"][name]
    model, state = opened(version, name)
    fk.save_model(tmp_path / "m.keras", model, state=state)
    again, new_state = fk.load_model(tmp_path / "m.keras")
    values = [array(data["arrays"][key]) for key in row["inputs"]]
    for value, expected in zip(
        outputs(again, new_state, values), outputs(model, state, values), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


def _entry(name, shape=(None, 4), dtype="float32"):
    config = {"batch_input_shape": shape, "dtype": dtype, "name": name}
    return {"class_name": "InputLayer", "config": config, "name": name, "inbound_nodes": []}


def _function(function, *nodes, name="f", kind="TFOpLambda", **config):
    config = {"name": name, "function": function, "dtype": "float32", **config}
    return {"class_name": kind, "config": config, "name": name, "inbound_nodes": list(nodes)}


def _open(*layers, output=("f", 0, 0), shape=(None, 4), **options):
    config = {
        "name": "m",
        "layers": [_entry("x", shape), *layers],
        "input_layers": [["x", 0, 0]],
        "output_layers": [list(output)],
    }
    item = {"class_name": "Functional", "config": config}
    return load(model_file(item, {}, version="2.11.0"), **options)


def _x(**options):
    return ["x", 0, 0, options]


REJECTED = {
    "unknown": (
        _function("math.bessel_i0", _x()),
        "'math.bessel_i0': unknown function.*custom_objects=.'math.bessel_i0'",
    ),
    "another namespace": (
        _function("strings.split", _x(sep=" ")),
        "'strings.split': unknown function",
    ),
    "dunder": (_function("__class__", _x()), "'__class__': unknown function"),
    "builder": (_function("keras.backend.eval", _x()), "unknown function"),
    "argument": (
        _function("math.add", _x(y=1.0, out="f")),
        "unsupported argument 'out'; the supported arguments are x, y",
    ),
    "twice": (
        _function("math.reduce_sum", _x(keepdims=True, keep_dims=True)),
        "argument 'keepdims' twice",
    ),
    "missing": (_function("math.add", _x()), "the argument 'y' is missing"),
    "lost operand": (_function("__operators__.eq", _x()), "tf.equal or tf.not_equal"),
    "dtype": (_function("cast", _x(dtype="string")), "expected a dtype of bool"),
    "mask": (
        _function("__operators__.getitem", _x(slice_spec=["g", 0, 0])),
        "received a boolean mask",
    ),
    "axis": (_function("math.reduce_sum", _x(axis=["x", 0, 0])), "expected a constant"),
    "shape": (_function("reshape", _x(shape=["x", 0, 0])), "expected whole numbers as the shape"),
    "where": (_function("where", _x()), "expected x and y, received none"),
    "dropout": (_function("nn.dropout", _x(rate=0.5)), "unknown function"),
    "circle": (_function("math.add", ["f", 0, 0, {"y": 1.0}]), "part of a cycle"),
    "large": (
        _function("ones", [["_CONSTANT_VALUE", -1, 1 << 20, {}], ["_CONSTANT_VALUE", -1, 99, {}]]),
        "at most 4194304 elements",
    ),
    "no node": (
        _function("x", _x(), kind="TensorFlowOpLayer", node_def={"op": "Betainc", "input": ["x"]}),
        "unknown TensorFlow operation 'Betainc'.*2.4 or later",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejections_name_location_and_reason(name):
    layer, words = REJECTED[name]
    mask = _function("math.greater", _x(y=0.0), name="g")
    with pytest.raises(FileError, match=words) as caught:
        _open(mask, layer)
    assert "'f'" in str(caught.value)
    assert "f.h5" not in str(caught.value)


def test_a_custom_function_receives_the_arguments_of_the_file():
    def shifted(x, y, by, name=None):
        return x + by * y

    options = {"y": ["g", 0, 0], "by": 3.0, "name": None}
    mask = _function("nn.relu", _x(), name="g")
    layers = (mask, _function("math.shifted", _x(**options)))
    model, state = _open(*layers, custom_objects={"math.shifted": shifted})
    x = np.array([[-1.0, 0.5, 2.0, 3.0]], "float32")
    expected = x + 3 * np.maximum(x, 0)
    np.testing.assert_allclose(outputs(model, state, x)[0], expected, rtol=1e-6)


def test_a_custom_function_replaces_an_operation_of_a_graph():
    node = {"op": "Betainc", "input": ["x", "c"]}
    layer = _function("x", [_x()], kind="TensorFlowOpLayer", node_def=node, constants={"1": 2.0})
    model, state = _open(layer, custom_objects={"Betainc": lambda x: 2 * x})
    x = np.ones((1, 4), "float32")
    np.testing.assert_array_equal(outputs(model, state, x)[0], 2 * x)


@pytest.mark.parametrize("op", ["Sum", "Max", "Mean"])
def test_a_reduction_over_an_empty_list_of_axes_changes_nothing(op):
    node = {"op": op, "input": ["x", "axis"]}
    layer = _function("x", [_x()], kind="TensorFlowOpLayer", node_def=node, constants={"1": []})
    model, state = _open(layer)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(outputs(model, state, x)[0], x)


def test_a_layer_with_two_calls_becomes_two_operations():
    """The second call has another argument and takes the result of the first call."""
    layer = _function("math.add", _x(y=1.0), ["f", 0, 0, {"y": 2.0}])
    model, state = _open(layer, output=("f", 1, 0))
    x = np.zeros((1, 4), "float32")
    np.testing.assert_array_equal(outputs(model, state, x)[0], x + 3)


@pytest.mark.exhaustive
def test_a_layer_and_an_output_take_a_constant():
    """As in a position embedding: `Embedding(4, 2)(tf.range(tf.shape(x)[1]))`."""
    layers = [
        _function("compat.v1.shape", _x(), name="s"),
        _function("__operators__.getitem", ["s", 0, 0, {"slice_spec": 1}], name="t"),
        _function("range", ["t", 0, 0, {}], name="f"),
        {
            "class_name": "Flatten",
            "config": {"name": "flat"},
            "name": "flat",
            "inbound_nodes": [[["f", 0, 0, {}]]],
        },
        _function("math.add", _x(y=["f", 0, 0]), name="g"),
    ]
    for output, expected in (("f", [0, 1, 2, 3]), ("flat", [[0], [1], [2], [3]])):
        model, state = _open(*layers, output=(output, 0, 0))
        result = outputs(model, state, np.full((2, 4), np.nan, "float32"))[0]
        np.testing.assert_array_equal(result, expected)


def test_a_size_known_only_at_run_time_is_rejected():
    shape = _function("compat.v1.shape", _x(), name="s")
    target_shape = [["s1", 0, 0], 2, ["s2", 0, 0]]
    sizes = [
        _function("__operators__.getitem", ["s", 0, 0, {"slice_spec": i}], name=f"s{i + 1}")
        for i in (0, 1)
    ]
    with pytest.raises(FileError, match=r"at most one unknown size in the shape \(b, 2, n0\)"):
        _open(shape, *sizes, _function("reshape", _x(shape=target_shape)), shape=(None, None, 2))


@pytest.mark.exhaustive
def test_constants_take_the_dtype_of_half_precision_tensors():
    half = _function("cast", _x(dtype="float16"), name="g")
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    layer = _function("math.multiply", ["g", 0, 0, {"y": [1.0, 2.0, 3.0, 4.0]}], dtype=policy)
    model, state = _open(half, layer)
    assert outputs(model, state, np.ones((1, 4), "float32"))[0].dtype == "float16"

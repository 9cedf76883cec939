"""Files of Keras 1.2.2 on Theano: other names, other axes, one matrix for each gate."""

import json

import numpy as np
import pytest

import fkeras as fk
from tests.support.legacy_files import array, load, load_training, model_file, outputs, write
from tests.support.paths import DATA

CASES = json.loads((DATA / "keras122.json").read_text())["cases"]


def _inputs(case, model):
    slots = model.graph.input_slots
    values = [
        array(packed).astype(model.graph.specs[slot].dtype)
        for packed, slot in zip(case["inputs"], slots, strict=True)
    ]
    return values[0] if len(values) == 1 else values


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_outputs_equal_those_of_keras_1(name):
    case = CASES[name]
    model, state = load(write(case["file"]))
    results = outputs(model, state, _inputs(case, model))
    np.testing.assert_allclose(results[0], array(case["outputs"][0]), rtol=1e-4, atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "losses" in case])
def test_the_next_losses_equal_those_of_keras_1(name):
    case = CASES[name]
    trainer, run = load_training(write(case["file"]))
    losses = []
    for _ in case["losses"]:
        run, logs = trainer.step(run, (array(case["inputs"][0]), array(case["targets"][0])))
        losses.append(float(logs["loss"]))
    np.testing.assert_allclose(losses, case["losses"], rtol=1e-5)


def _kernel(ordering, name):
    """Returns a file with one convolution, whose weight has the given variable name."""
    config = {
        "name": "c",
        "nb_filter": 1,
        "nb_row": 2,
        "nb_col": 1,
        "dim_ordering": ordering,
        "bias": False,
        "batch_input_shape": [None, 2, 2, 1],
    }
    model = {
        "class_name": "Sequential",
        "config": [{"class_name": "Convolution2D", "config": config}],
    }
    shape = (2, 1, 1, 1) if ordering == "tf" else (1, 2, 2, 1)
    kernel = np.arange(1.0, 3.0, dtype="float32").repeat(1 if ordering == "tf" else 2)
    return model_file(model, {"c": {name: kernel.reshape(shape)}}, None, None)


def test_theanos_kernels_are_flipped():
    """Keras 1 stores no backend: TensorFlow's variables are named "c_W:0", Theano's "c_W"."""
    kernels = [load(_kernel("tf", name))[0].layers["c"].kernel.ravel() for name in ("c_W:0", "c_W")]
    np.testing.assert_array_equal(kernels, [[1, 2], [2, 1]])


def test_kernels_in_theanos_order_of_axes_are_transposed():
    kernel = load(_kernel("th", "c_W:0"))[0].layers["c"].kernel
    assert kernel.shape == (2, 1, 2, 1)
    np.testing.assert_array_equal(kernel[:, 0, 0, 0], [1, 1])
    np.testing.assert_array_equal(kernel[:, 0, 1, 0], [2, 2])


def test_a_merge_by_a_function_is_rejected():
    inputs = {"name": "a", "batch_input_shape": [None, 2], "input_dtype": "float32"}
    merge = {"name": "m", "mode": "gA==", "mode_type": "lambda"}
    layers = [
        {"class_name": "InputLayer", "name": "a", "config": inputs, "inbound_nodes": []},
        {
            "class_name": "Merge",
            "name": "m",
            "config": merge,
            "inbound_nodes": [[["a", 0, 0], ["a", 0, 0]]],
        },
    ]
    config = {"name": "x", "layers": layers, "input_layers": [["a", 0, 0]]}
    config["output_layers"] = [["m", 0, 0]]
    data = model_file({"class_name": "Model", "config": config}, {"a": {}, "m": {}}, "1.2.2")
    with pytest.raises(fk.FileError, match="'m'.*never run"):
        load(data)

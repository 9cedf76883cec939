"""Malicious legacy files are rejected with one clear error."""

import base64
import copy
import importlib
import io
import json
import marshal

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fkeras as fk
from tests.support.legacy_files import cases, load, load_training, model_file, outputs, write

KERNEL = {"kernel:0": np.ones((3, 1), "float32")}


def _input(name="a", shape=(None, 3)):
    config = {"name": name, "batch_input_shape": list(shape), "dtype": "float32"}
    return {"class_name": "InputLayer", "name": name, "config": config, "inbound_nodes": []}


def _dense(name="d", nodes=((("a", 0, 0, {}),),), **config):
    config = {"name": name, "units": 1, "use_bias": False, **config}
    nodes = json.loads(json.dumps(nodes))
    return {"class_name": "Dense", "name": name, "config": config, "inbound_nodes": nodes}


def _model(*layers, inputs=(("a", 0, 0),), results=(("d", 0, 0),)):
    config = {"name": "m", "layers": list(layers), "input_layers": inputs, "output_layers": results}
    return {"class_name": "Model", "config": config}


def _assert_rejected(config, word, weights=None, version="2.3.1", **options):
    with pytest.raises(fk.FileError, match=f"(?s){word}") as caught:
        load(model_file(config, weights or {"a": {}, "d": KERNEL}, version), **options)
    return caught.value


def test_the_valid_file_opens():
    model, _ = load(model_file(_model(_input(), _dense()), {"a": {}, "d": KERNEL}))
    assert model.layers["d"].kernel.shape == (3, 1)


@pytest.mark.parametrize(
    ("layers", "word"),
    [
        ([_input(), _dense(nodes=[[["b", 0, 0, {}]]])], "'d'.*unknown layer 'b'"),
        ([_input(), _dense(nodes=[[["a", 3, 0, {}]]])], "'d'.*tensor 0 of call 3"),
        ([_input(), _dense(nodes=[[["a", -1, 0, {}]]])], "'d'.*call -1"),
        ([_input(), _dense(nodes=[[["a", 0, 7, {}]]])], "d"),
        ([_input(), _dense(nodes=[[["a", 0, 10**30, {}]]])], "tensor 1000"),
        ([_input(), _dense(nodes=[[["a", "0", 0, {}]]])], "'d'.*number of a call"),
        ([_input(), _dense(nodes=[[["a", 0, 0, 5]]])], "'d'.*options of a call"),
        ([_input(), _dense(nodes=[[[]]])], "'d'"),
        ([_input(), _dense(nodes=[[]])], "'d'.*without a tensor"),
        ([_input(), _dense(nodes={"a": 1})], "'d'.*inbound_nodes"),
        ([_input(), _dense(), _dense()], "unique names of layers"),
        ([_input(), _dense(units="many")], "'d'|Dense"),
        ([_input(), _dense(name=5)], "without a name|name"),
        ([_input(), {**_dense(), "config": 3}], "'config'"),
        ([_input(shape=(None, "x")), _dense()], "'a'.*a size"),
        ([_input(shape=(None, -3)), _dense()], "'a'.*sizes"),
        ([_input(), _dense(activation="rellu")], "'d'.*activation.*relu"),
        ([_input(), _dense(activation={"class_name": "os.system"})], "'d'.*activation"),
        ([_input(), _dense(kernel_initializer="Zeroes")], "'d'.*initializer"),
        ([_input(), _dense(kernel_regularizer={"class_name": "get"})], "'d'.*regularizer"),
        ([_input(), _dense(warmth=3)], "'d'.*no argument 'warmth'"),
        ([_input(), _dense(units={"class_name": "Trainer", "config": {}})], "'d'.*an object"),
        ([_input(), {**_dense(), "class_name": "Trainer"}], "'d'.*unknown layer 'Trainer'"),
        ([_input(), {**_dense(), "class_name": "deserialize"}], "'d'.*unknown layer"),
        ([_input(), {**_dense(), "class_name": "JaxLayer"}], "'d'.*unknown layer"),
        ([_input(), {**_dense(), "class_name": "Dens"}], "'d'.*mean 'Dense'"),
    ],
)
def test_bad_configurations_are_rejected(layers, word):
    error = _assert_rejected(_model(*layers), word)
    assert error.file == "m.h5"
    assert error.member == "/model_config"


def test_cyclic_calls_are_rejected():
    layers = [_input(), _dense("d", [[["e", 0, 0, {}]]]), _dense("e", [[["d", 0, 0, {}]]])]
    _assert_rejected(_model(*layers), "form a cycle")


def test_a_subclass_is_rejected_with_a_remedy():
    _assert_rejected({"class_name": "MyModel", "config": {}}, "'MyModel'.*custom_objects")


@pytest.mark.parametrize(
    "config", [3, [], {}, {"class_name": "Model"}, {"class_name": "Model", "config": 1}]
)
def test_invalid_model_configs_are_rejected(config):
    _assert_rejected(config, "model_config")


def test_a_file_without_a_model_names_load_weights():
    with pytest.raises(fk.FileError, match="no model.*load_weights"):
        load(write({"attributes": {"": {"layer_names": []}}, "arrays": {}}))


@pytest.mark.parametrize("version", ["4.0.0", "x", "0.9", ""])
def test_unknown_versions_are_rejected(version):
    with pytest.raises(fk.FileError, match="keras|Keras"):
        load(model_file(_model(_input(), _dense()), {"a": {}, "d": KERNEL}, version))


def _lambda(function, kind="lambda"):
    config = {"name": "d", "function": function, "function_type": kind, "arguments": {}}
    nodes = [[["a", 0, 0, {}]]]
    return _model(
        _input(),
        {"class_name": "Lambda", "name": "d", "config": config, "inbound_nodes": nodes},
    )


def _bytecode(tmp_path):
    source = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
    code = marshal.dumps(compile(source, "x", "exec"))
    return [base64.b64encode(code).decode(), None, None]


@pytest.mark.parametrize("version", ["1.2.2", "2.3.1", "2.11.0", "3.15.0"])
def test_bytecode_is_never_run(tmp_path, version):
    code = _bytecode(tmp_path)
    forms = [code, {"class_name": "__lambda__", "config": {"code": code[0]}}]
    for form in forms:
        error = _assert_rejected(
            _lambda(form), "Lambda.*never runs.*custom_objects", {"a": {}, "d": {}}, version
        )
        assert error.layer == "d"
    assert not (tmp_path / "ran").exists()


@pytest.mark.exhaustive
def test_the_users_function_replaces_a_lambda(tmp_path):
    data = model_file(_lambda(_bytecode(tmp_path)), {"a": {}, "d": {}})
    x = np.array([[1.0, -2.0, 3.0]], "float32")
    for replacement in (jnp.abs, fk.layers.Lambda(jnp.abs)):
        model, state = load(data, custom_objects={"d": replacement})
        np.testing.assert_array_equal(outputs(model, state, x)[0], np.abs(x))
    data = model_file(_lambda("my_abs", "function"), {"a": {}, "d": {}})
    model, state = load(data, custom_objects={"my_abs": jnp.abs})
    np.testing.assert_array_equal(outputs(model, state, x)[0], np.abs(x))
    with pytest.raises(fk.FileError, match="name is 'my_abs'"):
        load(data)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("module", ["os", "fkeras.saving.files", "subprocess", "keras.layers"])
def test_modules_in_a_file_are_never_imported(module, monkeypatch):
    import_module = importlib.import_module

    def refuse(name, package=None):
        if name != module and name.startswith("fkeras"):
            return import_module(name)  # fkeras imports some of its modules lazily
        raise AssertionError(f"imported {name}")

    item = {**_dense(), "module": module, "class_name": "system", "registered_name": "system"}
    initializer = {"module": module, "class_name": "system", "config": {}}
    monkeypatch.setattr("importlib.import_module", refuse)
    _assert_rejected(_model(_input(), item), "unknown layer 'system'")
    _assert_rejected(_model(_input(), _dense(kernel_initializer=initializer)), "initializer")


@pytest.mark.exhaustive
def test_custom_classes_replace_layers():
    class Twice(fk.layers.Dense):
        def call(self, x):
            return 2 * super().call(x)

    item = {**_dense(), "class_name": "Twice"}
    data = model_file(_model(_input(), item), {"a": {}, "d": KERNEL})
    model, state = load(data, custom_objects={"Twice": Twice})
    assert outputs(model, state, np.ones((1, 3), "float32"))[0][0, 0] == 6
    with pytest.raises(fk.FileError, match="unknown layer 'Twice'.*custom_objects"):
        load(data)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("weights", "word"),
    [
        ({"a": {}, "d": {"kernel:0": np.ones((4, 1), "float32")}}, r"'d'.*\(3, 1\).*\(4, 1\)"),
        ({"a": {}, "d": {**KERNEL, "bias:0": np.ones(1, "float32")}}, "'d'.*1 arrays.*received 2"),
        ({"a": {}, "d": {}}, "expected weights of 1 layers, received those of 0.*d"),
        ({"a": {}, "d": KERNEL, "e": KERNEL}, "not in the model: e"),
        ({"a": {}, "d": {"kernel:0": np.array([["x"]] * 3, "S1")}}, "model_weights/d"),
        ({"a": {}, "d": {"kernel:0": np.ones((3, 1), "complex64")}}, "model_weights/d"),
    ],
)
def test_weights_of_another_model_are_rejected(weights, word):
    _assert_rejected(_model(_input(), _dense()), word, weights)


def test_arrays_in_another_order_are_rejected():
    layer = {"name": "b", "batch_input_shape": [None, 2], "axis": -1}
    config = {
        "class_name": "Sequential",
        "config": [{"class_name": "BatchNormalization", "config": layer}],
    }
    names = ("beta:0", "gamma:0", "moving_mean:0", "moving_variance:0")
    weights = {"b": {name: np.ones(2, "float32") for name in names}}
    with pytest.raises(fk.FileError, match="'b/gamma'.*named 'beta'"):
        load(model_file(config, weights))


def _edited(edit):
    target = io.BytesIO(model_file(_model(_input(), _dense()), {"a": {}, "d": KERNEL}))
    with h5py.File(target, "r+") as file:
        edit(file)
    return target.getvalue()


def _without_names(file):
    del file["model_weights"].attrs["layer_names"]


def _numbers_for_names(file):
    file["model_weights"].attrs["layer_names"] = np.arange(3)


def _missing_group(file):
    file["model_weights"].attrs["layer_names"] = np.array([b"a", b"gone"])


def _missing_array(file):
    file["model_weights/d"].attrs["weight_names"] = np.array([b"../../kernel:0"])


def _repeated_layer(file):
    file["model_weights"].attrs["layer_names"] = np.array([b"d", b"d"])


def _number_for_config(file):
    file.attrs["model_config"] = 3


def _huge(file):
    del file["model_weights/d/kernel:0"]
    file["model_weights/d"].create_dataset("kernel:0", (1 << 40,), "f4", chunks=(1 << 16,))


@pytest.mark.parametrize(
    "edit",
    [_without_names, _numbers_for_names, _missing_group, _missing_array, _repeated_layer,
     _number_for_config, _huge],
)  # fmt: skip
def test_damaged_files_are_rejected(edit):
    with pytest.raises(fk.FileError):
        load(_edited(edit))


_WORST = st.sampled_from(
    [None, True, -1, 3, 10**9, 0.5, float("nan"), "", "x", [], {}, [[]], [None]]
)


def _paths(value, at=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*at, key))


def _config(name):
    text = cases()[name]["file"]["attributes"][""]
    return {k: json.loads(text[k]) for k in ("model_config", "training_config") if k in text}


@pytest.mark.exhaustive
@settings(max_examples=40, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.data())
def test_any_changed_value_opens_or_is_rejected(data):
    name = data.draw(st.sampled_from(["frozen", "optimizer_adam"]))
    texts = copy.deepcopy(_config(name))
    key = data.draw(st.sampled_from(sorted(texts)))
    path = data.draw(st.sampled_from(list(_paths(texts[key]))))
    container = texts[key]
    for step in path[:-1]:
        container = container[step]
    container[path[-1]] = data.draw(_WORST)
    tree = cases()[name]["file"]
    attributes = {**tree["attributes"]}
    attributes[""] = {**attributes[""], key: json.dumps(texts[key])}
    try:
        load_training(write({**tree, "attributes": attributes}))
    except fk.FileError as error:
        assert str(error).startswith("m.h5")  # noqa: PT017

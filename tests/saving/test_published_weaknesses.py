"""Published vulnerabilities of Keras's loader, each as a file that would leave a trace.

Each test writes the attacker's file and opens it. The file is rejected with its member and layer, and
nothing is run, imported, read or written.
"""

import base64
import contextlib
import io
import json
import marshal
import os
import sys
import tarfile
import types
import zipfile

import h5py
import numpy as np
import pytest

import fkeras as fk

DENSE = {"name": "dense", "units": 2}


def entry(class_name, config, module="keras.layers", **more):
    return {"module": module, "class_name": class_name, "config": config, **more}


INPUT = entry("InputLayer", {"name": "x", "batch_shape": [None, 2], "dtype": "float32"})


def sequential(*layers):
    config = {"name": "s", "layers": [INPUT, *layers]}
    return entry("Sequential", config, "keras")


def weights(fill=None):
    """Returns the weight file of a model with one Dense layer, whose kernel `fill` writes."""
    target = io.BytesIO()
    with h5py.File(target, "w") as file:
        group = file.create_group("layers/dense/vars")
        if fill is None:
            group["0"] = np.ones((2, 2), "float32")
        else:
            fill(group)
        group["1"] = np.zeros(2, "float32")
    return target.getvalue()


def archive(path, config, h5=None, **more):
    """Writes a .keras file and returns its path."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": "3.9.0"}))
        file.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        file.writestr("model.weights.h5", weights() if h5 is None else h5)
        for name, data in more.items():
            file.writestr(name, data)
    return path


def legacy(path, config, version="2.4.0"):
    """Writes a legacy .h5 file without weights and returns its path."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["backend"] = "tensorflow"
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([b"bad"])
        group.create_group("bad").attrs["weight_names"] = np.array([], "S1")
    return path


def assert_rejected(path, *words, member="config.json", layer=None, **options):
    """Asserts that opening a file raises an error with its location; returns the error."""
    with pytest.raises(fk.FileError) as error:
        fk.load_model(path, **options)
    file_error = error.value
    assert file_error.file == str(path) and member in str(file_error.member), file_error
    if layer is not None:
        assert (
            file_error.layer is not None and layer in file_error.layer and layer in str(file_error)
        ), file_error
    for word in words:
        assert word in str(file_error), str(file_error)
    return file_error


@pytest.fixture
def trace(tmp_path):
    """Yields a path at which a successful attack would create a file."""
    place = tmp_path / "trace"
    yield place
    assert not os.path.lexists(place)


def bytecode(trace):
    """Returns a Python function that creates the trace, marshalled as Keras writes lambdas."""
    source = f"(lambda x: (open({str(trace)!r}, 'w').close(), x)[1])"
    code = eval(source).__code__
    types.FunctionType(code, {"open": open, "__builtins__": {}})
    return base64.b64encode(marshal.dumps(code)).decode()


def marshalled(trace):
    """Returns the forms in which Keras 2 and 3 store a marshalled function."""
    code = bytecode(trace)
    return [
        {"class_name": "__lambda__", "config": {"code": code, "defaults": None, "closure": None}},
        {"module": "builtins", "class_name": "__lambda__", "config": {"code": code}},
        [code, None, None],
        [code, [1], [2]],
    ]


def test_the_bytecode_of_these_tests_would_work(tmp_path):
    code = marshal.loads(base64.b64decode(bytecode(tmp_path / "t")))
    types.FunctionType(code, globals())(1)
    assert (tmp_path / "t").exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("kind", ["lambda", "lambda_type"])
def test_cve_2024_3660_marshalled_functions(tmp_path, trace, form, kind):
    config = {"name": "bad", "function": marshalled(trace)[form]}
    if kind == "lambda_type":
        config |= {"function_type": "lambda", "output_shape_type": "raw", "arguments": {}}
    layer = entry("Lambda", config)
    path = archive(tmp_path / "m.keras", sequential(layer))
    assert_rejected(path, "bytecode", "custom_objects", layer="bad")


@pytest.mark.exhaustive
def test_a_lambda_opens_with_the_users_function(tmp_path, trace):
    layer = entry("Lambda", {"name": "bad", "function": marshalled(trace)[0], "arguments": {}})
    path = archive(tmp_path / "m.keras", sequential(layer, entry("Dense", DENSE)))
    model, state = fk.load_model(path, custom_objects={"bad": lambda x: 2 * x})
    x = np.ones((1, 2), "float32")
    np.testing.assert_array_equal(model(x, state=state), 4 * x)


NAMED = [
    ("function", "system", "os"),
    ("function", "system", "posix"),
    ("function", "exec", "builtins"),
    ("function", "eval", None),
    ("function", "call", "subprocess"),
    ("Popen", {"args": ["touch", "TRACE"]}, "subprocess"),
    ("open", {"file": "TRACE", "mode": "w"}, "builtins"),
    ("Evil", {}, "evil_module"),
    ("function", "evil", "evil_module"),
    ("Evil", {}, "keras.evil_module"),
    ("evil_module.Evil", {}, "keras.layers"),
    ("Evil", {}, "fkeras.evil_module"),
    ("Evil", {}, "..evil_module"),
    ("importlib", {}, "fkeras.engine.config.serialization"),
    ("import_module", {"name": "evil_module"}, "importlib"),
    ("memmap", {"filename": "TRACE", "dtype": "u1", "mode": "w+", "shape": 3}, "numpy"),
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("name", "config", "module"), NAMED)
@pytest.mark.parametrize("place", ["layer", "initializer", "function", "activation"])
def test_cve_2025_1550_modules_and_functions_by_name(
    tmp_path, trace, monkeypatch, name, config, module, place
):
    (tmp_path / "evil_module.py").write_text(
        f"open({str(trace)!r}, 'w').close()\nclass Evil: pass\ndef evil(*_): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    inner = json.loads(json.dumps(config).replace("TRACE", str(trace)))
    bad = {**entry(name, inner, module), "registered_name": name}
    layers = {
        "layer": {**bad, "name": "bad"},
        "initializer": entry("Dense", {**DENSE, "name": "bad", "kernel_initializer": bad}),
        "function": entry("Lambda", {"name": "bad", "function": bad}),
        "activation": entry("Activation", {"name": "bad", "activation": bad}),
    }
    path = archive(tmp_path / "m.keras", sequential(layers[place]))
    assert_rejected(path, layer=None if place == "layer" else "bad")
    assert "evil_module" not in sys.modules


GADGETS = [
    ("get_file", "keras.utils", {"fname": "x", "origin": "file://TRACE", "extract": True}),
    ("get_file", "keras.src.utils.file_utils", {"origin": "http://127.0.0.1:9/x"}),
    ("load_model", "keras.models", {"filepath": "TRACE", "safe_mode": False}),
    ("load_model", "keras.saving", {"safe_mode": False}),
    ("load_weights", "keras", {}),
    ("save_model", "keras", {"path": "TRACE"}),
    ("save_model", "fkeras", {"path": "TRACE"}),
    ("export", "fkeras", {"path": "TRACE"}),
    ("Trainer", "fkeras", {}),
    ("CSVLogger", "keras.callbacks", {"filename": "TRACE"}),
    ("Checkpoint", "fkeras", {"folder": "TRACE"}),
    ("freeze", "fkeras", {}),
    ("deserialize", "keras.layers", {}),
    ("get", "keras.activations", {}),
    ("cond", "keras.ops", {}),
    ("lift", "keras.ops", {}),
    ("image_dataset_from_directory", "keras.preprocessing", {"directory": "/"}),
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("name", "module", "arguments"), GADGETS)
def test_cve_2025_8747_gadgets_of_the_library(tmp_path, trace, name, module, arguments):
    arguments = json.loads(json.dumps(arguments).replace("TRACE", str(trace)))
    function = {**entry("function", name, module), "registered_name": name}
    layer = entry("Lambda", {"name": "bad", "function": function, "arguments": arguments})
    assert_rejected(archive(tmp_path / "a.keras", sequential(layer)), name, layer="bad")
    assert_rejected(archive(tmp_path / "b.keras", sequential(entry(name, arguments, module))), name)
    assert_rejected(archive(tmp_path / "c.keras", entry(name, arguments, module)), name)


@pytest.mark.exhaustive
def test_cve_2025_9905_marshalled_functions_in_legacy_files(tmp_path, trace):
    for number, function in enumerate(marshalled(trace)):
        config = {"name": "bad", "function": function, "function_type": "lambda", "arguments": {}}
        layers = [{"class_name": "Lambda", "config": {**config, "batch_input_shape": [None, 2]}}]
        for version in ("1.2.2", "2.4.0", "3.5.0"):
            model = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
            path = legacy(tmp_path / f"{number}.h5", model, version)
            assert_rejected(path, "custom_objects", member="", layer="bad")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("enable_unsafe_deserialization", "keras.config"),
        ("enable_unsafe_deserialization", "keras.src.saving.serialization_lib"),
        ("set_global_attribute", "keras.src.backend.common.global_state"),
    ],
)
def test_cve_2025_9906_a_file_that_disables_safe_mode(tmp_path, trace, name, module):
    switch = {**entry("function", name, module), "registered_name": name}
    first = entry("Lambda", {"name": "switch", "function": switch, "arguments": {"value": False}})
    second = entry("Lambda", {"name": "bad", "function": marshalled(trace)[0]})
    path = archive(tmp_path / "m.keras", sequential(first, second))
    assert_rejected(path, name, layer="switch")
    # the Lambda with bytecode is rejected in any order
    path = archive(tmp_path / "n.keras", sequential(second, first))
    assert_rejected(path, "bytecode", layer="bad")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["StringLookup", "IntegerLookup", "TextVectorization"])
@pytest.mark.parametrize("place", ["SECRET", "file://SECRET", "http://127.0.0.1:9/words"])
def test_cve_2025_12058_a_vocabulary_that_is_a_path(tmp_path, kind, place):
    secret = tmp_path / "secret.txt"
    secret.write_text("7\n8\n")
    before = os.stat(secret).st_atime_ns
    config = {"name": "bad", "vocabulary": place.replace("SECRET", str(secret))}
    path = archive(tmp_path / "m.keras", sequential(entry(kind, config)))
    assert_rejected(path, "vocabulary", layer="bad")
    assert os.stat(secret).st_atime_ns == before


@pytest.mark.exhaustive
def test_cve_2025_12060_and_12638_nothing_is_unpacked(tmp_path, trace, monkeypatch):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        for name in (str(trace), "../trace"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        link = tarfile.TarInfo("here")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        tar.addfile(link)
    (tmp_path / "m.keras").write_bytes(inner.getvalue())
    assert_rejected(tmp_path / "m.keras", "a tar archive", member="")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    config = sequential(entry("Dense", DENSE))
    for number, name in enumerate(("../trace", str(trace), "assets/../../trace", "..\\trace")):
        path = archive(tmp_path / f"{number}.keras", config, **{name: b"here"})
        assert_rejected(path, "name", member="trace")
    path = archive(tmp_path / "good.keras", config, **{"assets/x.tar": inner.getvalue()})
    fk.load_model(path)
    assert os.listdir() == []


def test_cve_2026_0897_a_shape_without_stored_numbers(tmp_path):
    shapes = {"huge": (1 << 20, 1 << 20), "right": (2, 2)}
    for name, shape in shapes.items():
        h5 = weights(
            lambda g, s=shape: g.create_dataset("0", s, "f4", chunks=(2, 2), compression=9)
        )
        path = archive(tmp_path / f"{name}.keras", sequential(entry("Dense", DENSE)), h5)
        assert_rejected(path, member="model.weights.h5:/layers/dense/vars/0")
    # the configuration has the same excessive shape
    huge = entry("Dense", {**DENSE, "units": 1 << 30})
    h5 = weights(lambda g: g.create_dataset("0", (2, 1 << 30), "f4", chunks=(2, 1 << 20)))
    path = archive(tmp_path / "m.keras", sequential(huge), h5)
    assert_rejected(path, "exhaust memory", member="model.weights.h5:/layers/dense/vars/0")


@pytest.mark.exhaustive
def test_cve_2026_1462_a_layer_that_loads_another_model(tmp_path, trace):
    for kind in ("TFSMLayer", "TorchModuleWrapper"):
        pickled = base64.b64encode(b"cos\nsystem\n(S'touch " + str(trace).encode() + b"'\ntR.")
        config = {"name": "bad", "filepath": str(tmp_path), "module": pickled.decode()}
        path = archive(tmp_path / "m.keras", sequential(entry(kind, config)))
        assert_rejected(path, kind, layer="bad")


def test_cve_2026_1669_numbers_in_another_file(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"0123456789abcdef")
    other_file = tmp_path / "other.h5"
    with h5py.File(other_file, "w") as file:
        file["x"] = np.ones((2, 2), "float32")
    before = os.stat(secret).st_atime_ns, os.stat(other_file).st_atime_ns
    layout = h5py.VirtualLayout((2, 2), "f4")
    layout[:] = h5py.VirtualSource(str(other_file), "x", (2, 2))
    fills_by_message = {
        "another file": lambda g: g.create_dataset(
            "0", (2, 2), "f4", external=[(str(secret), 0, 16)]
        ),
        "a link": lambda g: g.__setitem__("0", h5py.ExternalLink(str(other_file), "x")),
        "a soft link": lambda g: g.__setitem__("0", h5py.SoftLink("/layers")),
        "a virtual": lambda g: g.create_virtual_dataset("0", layout),
    }
    for word, fill in fills_by_message.items():
        path = archive(tmp_path / "m.keras", sequential(entry("Dense", DENSE)), weights(fill))
        assert_rejected(path, word, member="model.weights.h5:/layers/dense/vars/0")
    assert (os.stat(secret).st_atime_ns, os.stat(other_file).st_atime_ns) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["../../trace", "/TRACE", "a/../../../trace", "..\\trace"])
def test_cve_2026_12479_names_of_layers_that_are_paths(tmp_path, trace, monkeypatch, name):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    name = name.replace("/TRACE", str(trace))
    words = entry("IntegerLookup", {"name": name, "vocabulary": [1, 2]})
    path = archive(tmp_path / "m.keras", sequential(entry("Dense", {**DENSE, "name": name}), words))
    with contextlib.suppress(fk.FileError):
        model, state = fk.load_model(path)
        fk.save_model(tmp_path / "again.keras", model, state)
    assert os.listdir() == [] and set(os.listdir(tmp_path)) <= {"m.keras", "again.keras", "work"}


def test_cve_2026_12481_deserialization_without_a_loader(tmp_path, trace):
    for function in marshalled(trace):
        config = {"name": "bad", "function": function, "arguments": {}}
        for attempt in (
            lambda c=config: fk.layers.deserialize(entry("Lambda", c)),
            lambda c=config: fk.layers.deserialize({"class_name": "Lambda", "config": c}),
            lambda c=config: fk.layers.Lambda.from_config(c),
            lambda c=config: fk.Sequential.from_config({"layers": [INPUT, entry("Lambda", c)]}),
        ):
            with pytest.raises((ValueError, TypeError), match="custom_objects"):
                attempt()


def test_archives_with_excessive_expansion_are_rejected(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", json.dumps({"keras_version": "3.9.0"}))
        file.writestr("config.json", " " * (1 << 24) + json.dumps(sequential()))
    assert_rejected(tmp_path / "m.keras", "expands from", "fk.Limits")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["object", "O", "V1000000000", "S1000000000", "datetime64", "a8"])
def test_constants_of_other_dtypes_are_rejected(tmp_path, dtype):
    value = {"class_name": "__numpy__", "config": {"value": [1], "dtype": dtype}}
    layer = entry("Normalization", {"name": "bad", "mean": value, "variance": value})
    assert_rejected(archive(tmp_path / "m.keras", sequential(layer)), layer="bad")


@pytest.mark.exhaustive
def test_deeply_nested_objects_are_rejected(tmp_path):
    config = entry("Dense", DENSE)
    for _ in range(3000):
        config = entry("TimeDistributed", {"name": "t", "layer": config})
    deep = json.dumps(1)
    text = '{"class_name": "Sequential", "config": ' + '{"a": ' * 5000 + deep + "}" * 5001
    assert_rejected(archive(tmp_path / "m.keras", text), "levels of nested JSON")
    nested = sequential(entry("Dense", DENSE))
    for number in range(40):
        nested = sequential({**nested, "config": {**nested["config"], "name": f"m{number}"}})
    assert_rejected(archive(tmp_path / "n.keras", nested), "depth")

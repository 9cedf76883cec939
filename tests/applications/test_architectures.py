"""Graphs, names, arguments and outputs of the architectures equal Keras's."""

import hashlib
import importlib
import inspect
import json
import re

import h5py
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.applications import efficientnet
from fkeras.applications.building.arguments import Options
from fkeras.applications.building.names import Names
from tests.support.keras_oracle import host_weights, keras, keras_rules
from tools.stress import applications

NAMES = applications.NAMES
MODULES = sorted(name for name in dir(keras.applications) if name.islower() and name[0] != "_")
FEATURES = {"include_top": False, "input_shape": None}
# small networks; the exhaustive tests compare all networks
GRAPHS = (
    ("MobileNet", {"alpha": 0.5, "depth_multiplier": 2, "dropout": 0.5}),
    ("MobileNet", {"include_top": False, "pooling": "avg"}),
    ("MobileNetV2", {"alpha": 1.3}),
    ("MobileNetV3Small", {"minimalistic": True, "dropout_rate": 0.0}),
    ("MobileNetV3Small", {"include_preprocessing": False, "alpha": 1.25}),
    ("ResNet50V2", {"name": "mine"}),
    ("VGG16", {"include_top": False, "pooling": "max"}),
    ("ConvNeXtTiny", {"include_preprocessing": False}),
)
VARIANTS = (
    {},
    FEATURES,
    {"include_top": False, "pooling": "avg"},
    {"include_top": False, "pooling": "max"},
    {"classifier_activation": None, "input_shape": (96, 80, 4), "classes": 3},
)
ALL_GRAPHS = tuple((name, options) for name in NAMES for options in VARIANTS)


def _json(model):
    """The graph as JSON, without the numbers of unnamed inputs, which nested Sequentials hide."""
    return re.sub(r"input_layer_\d+", "input_layer", model.to_json())


def _arguments(name, options):
    size = applications.SIZES.get(name, 32)
    return {"weights": None, "classes": 10, "input_shape": (size, size, 3), **options}


def _check_graph(name, options):
    arguments = _arguments(name, options)
    keras.backend.clear_session()
    with keras_rules(), host_weights():
        theirs = getattr(keras.applications, name)(**arguments)
        config = json.loads(theirs.to_json())["config"]
    ours = getattr(fk.applications, name)(**arguments)
    # Keras lists no operations such as "add" among the layers
    names = [layer.name for layer in theirs.layers]
    assert [name for name in ours.layers if name in names] == names
    assert _json(ours) == _json(fk.Model.from_config(config))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*row, marks=() if row in GRAPHS[2::3] else pytest.mark.exhaustive)
        for row in GRAPHS
    ],
    ids=[row[0] for row in GRAPHS],
)
def test_graphs_names_and_settings_equal_keras(name, options):
    _check_graph(name, options)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "options"), ALL_GRAPHS)
def test_all_graphs_equal_keras(name, options):
    if name == "NASNetLarge" and options is FEATURES:
        pytest.skip("Keras's graph for images of unknown size cannot run")
    if options.get("input_shape") and name in applications.SIZES:
        options = {**options, "input_shape": (96, 80, 4)}
    _check_graph(name, options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_all_outputs_equal_keras(name, tmp_path):
    with keras_rules():
        (difference,) = applications.check_composed(name, tmp_path)
    assert difference <= applications.COMPOSED_LIMIT


def test_names_and_modules_equal_keras():
    functions = {name for name in dir(keras.applications) if name[0].isupper()}
    assert functions == set(NAMES) and len(functions) == 40
    assert functions | set(MODULES) == set(fk.applications.__all__)
    for module in MODULES:
        theirs = importlib.import_module(f"keras.applications.{module}")
        ours = importlib.import_module(f"fkeras.applications.{module}")
        names = {name for name in dir(theirs) if name[0] != "_"}
        assert names <= set(ours.__all__), module


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", NAMES)
def test_arguments_equal_keras_and_are_documented(name):
    ours, theirs = getattr(fk.applications, name), getattr(keras.applications, name)
    parameters = inspect.signature(ours).parameters.values()
    expected = inspect.signature(theirs).parameters.values()
    assert [(p.name, p.default) for p in parameters] == [(p.name, p.default) for p in expected]
    assert ours.__name__ == ours.__qualname__ == name
    assert getattr(importlib.import_module(ours.__module__), name) is ours
    for parameter in parameters:
        assert f"\n    {parameter.name}: " in ours.__doc__
    assert f">>> model = fk.applications.{name}(weights=None" in ours.__doc__


@pytest.fixture(scope="module")
def small():
    """Keras's smallest network with random weights, and its outputs."""
    options = {"alpha": 0.35, "input_shape": (32, 32, 3), "classes": 10}
    with keras_rules():
        model = applications.drawn_model("MobileNetV2", alpha=0.35)
        x = applications.images(model, 2)
        lowered, arguments = applications.keras_program(model, False, x)
        outputs = np.asarray(lowered.compile()(*arguments)[0])
    return model, {**options, "classifier_activation": None}, x, outputs


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".weights.h5", ".keras", ".h5"])
def test_outputs_with_weights_of_keras_equal_keras(small, suffix, tmp_path):
    theirs, options, x, outputs = small
    path = tmp_path / f"model{suffix}"
    with keras_rules():
        theirs.save_weights(path) if suffix == ".weights.h5" else theirs.save(path)
    model, state = fk.applications.MobileNetV2(weights=path, **options)
    assert model.built and state.keys() == model.init_state().keys()
    difference = np.abs(np.asarray(model(x, state=state)) - outputs).max()
    assert difference <= 1e-5 * np.abs(outputs).max() and outputs.std() > 1e-3


@pytest.mark.exhaustive
def test_layers_of_a_keras_2_file_are_matched_by_position(small, tmp_path):
    """Keras 2 wrote Keras's ImageNet files, and its layer names have the numbers of another session."""
    theirs, options, x, outputs = small
    path = tmp_path / "mobilenet.h5"
    with h5py.File(path, "w") as file:
        weighted = [layer for layer in theirs.layers if layer.weights]
        names = [f"other_{layer.name}" for layer in weighted]
        file.attrs["layer_names"] = [name.encode() for name in names]
        file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", b"2.2.4"
        for layer, name in zip(weighted, names, strict=True):
            group = file.create_group(name)
            stored = [f"{name}/{w.path.rpartition('/')[2]}:0" for w in layer.weights]
            group.attrs["weight_names"] = [weight.encode() for weight in stored]
            for weight, variable in zip(stored, layer.weights, strict=True):
                group[weight] = np.asarray(variable.value)
    model, state = fk.applications.MobileNetV2(weights=path, **options)
    np.testing.assert_allclose(model(x, state=state), outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_a_file_with_the_classifier_does_not_fit_the_features(small, tmp_path):
    theirs, options, _, _ = small
    with keras_rules():
        theirs.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(fk.FileError, match="not in the model: predictions"):
        fk.applications.MobileNetV2(
            weights=tmp_path / "m.weights.h5", **{**options, "include_top": False}
        )


@pytest.mark.exhaustive
def test_keras_imagenet_files_add_a_rescaling(tmp_path, monkeypatch):
    """Keras adds a layer for weights="imagenet" alone; fkeras recognizes the file by its digest."""
    path = tmp_path / "b0.h5"
    path.write_bytes(b"weights")

    def layer_names():
        options = Options(include_top=False, weights=str(path))
        x = fk.Input((32, 32, 3))
        body = efficientnet._body(x, Names(), options, width=1.0, depth=1.0)
        return fk.Model(x, body).layers

    assert "rescaling_1" not in layer_names()
    digest = hashlib.md5(b"weights").hexdigest()
    monkeypatch.setattr(efficientnet, "_IMAGENET_FILES", {digest})
    scale = np.asarray(layer_names()["rescaling_1"].scale)
    np.testing.assert_allclose(scale, 1 / np.sqrt([0.229, 0.224, 0.225]))


@pytest.mark.exhaustive
def test_a_model_without_weights_is_built_from_a_key():
    build = fk.applications.MobileNet
    model = build(weights=None, alpha=0.25, input_shape=(32, 32, 3), classes=3)
    assert model == build(weights=None, alpha=0.25, input_shape=(32, 32, 3), classes=3)
    assert not model.built and model.name == "mobilenet_0.25_32"
    model = model.build(jax.random.key(0))
    x = np.zeros((1, 32, 32, 3), "float32")
    np.testing.assert_allclose(np.sum(model(x, state=model.init_state())), 1.0, rtol=1e-5)


def test_an_input_tensor_extends_a_graph():
    image = fk.Input((40, 40, 1), name="gray")
    color = layers.Concatenate(name="color")([image, image, image])
    model = fk.applications.MobileNet(
        weights=None, alpha=0.25, input_tensor=color, include_top=False, pooling="avg"
    )
    assert list(model.layers)[:2] == ["gray", "color"] and model.outputs.shape == (None, 256)
    assert model.name == "mobilenet_0.25_40"
    other = fk.Input((40, 40, 2), name="other")
    both = layers.Concatenate(name="both")([image, other])
    model = fk.applications.MobileNet(
        weights=None, alpha=0.25, input_tensor=both, include_top=False
    )
    assert model.input_names == ("gray", "other")


def _vgg(**options):
    return fk.applications.VGG16(**{"weights": None, **options})


ERRORS = (
    (
        lambda: fk.applications.VGG16(),
        ValueError,
        "downloads nothing.*vgg16_weights_tf.*kernels.h5",
    ),
    (
        lambda: fk.applications.VGG16(include_top=False),
        ValueError,
        "https://storage.*kernels_notop.h5",
    ),
    (
        lambda: _vgg(weights="nowhere.h5"),
        FileNotFoundError,
        "received 'nowhere.h5', which is missing",
    ),
    (lambda: _vgg(weights=3), TypeError, "weights: expected None or the path.*received 3"),
    (lambda: _vgg(pooling="mean"), ValueError, "pooling: expected None, 'avg' or 'max'"),
    (lambda: _vgg(classes=0), ValueError, "classes: expected a positive integer"),
    (lambda: _vgg(include_top="yes"), ValueError, "include_top: expected True or False"),
    (lambda: _vgg(name=3), TypeError, "name: expected a string or None"),
    (lambda: _vgg(classifier_activation="sofmax"), ValueError, "sofmax.*'softmax'"),
    (lambda: _vgg(input_shape=224), ValueError, r"expected \(height, width, channels\)"),
    (lambda: _vgg(input_shape=(1, 32, 32, 3)), ValueError, "without the batch axis"),
    (lambda: _vgg(input_shape=(31, 32, 3)), ValueError, "height and width of 32 or more"),
    (lambda: _vgg(input_shape=(3, 32, 32)), ValueError, "channels are the last axis"),
    (lambda: _vgg(input_shape=(None, None, 3)), ValueError, "fixed sizes with include_top=True"),
    (lambda: _vgg(input_shape=(32, 32, None)), ValueError, "fixed number of channels"),
    (lambda: _vgg(input_shape=(32, -32, 3)), ValueError, "input_shape: expected"),
    (lambda: _vgg(input_tensor=np.ones((1, 32, 32, 3))), TypeError, "expected a symbolic tensor"),
    (lambda: _vgg(input_tensor=fk.Input((8,))), ValueError, r"expected \(height, width, chan"),
    (
        lambda: _vgg(input_tensor=fk.Input((32, 32, 3)), input_shape=(48, 32, 3)),
        ValueError,
        "input_shape: expected the shape",
    ),
    (lambda: _vgg(input_tensor=keras.Input((32, 32, 3))), TypeError, "Keras"),
    (
        lambda: fk.applications.NASNetLarge(
            weights=None, include_top=False, input_shape=(None, None, 3)
        ),
        ValueError,
        "fixed height and width",
    ),
    (lambda: fk.applications.MobileNet(weights=None, alpha=0), ValueError, "MobileNet: alpha"),
    (lambda: fk.applications.MobileNet(weights=None, dropout=2), ValueError, "dropout: expected"),
    (
        lambda: fk.applications.MobileNet(weights=None, depth_multiplier=0.5),
        ValueError,
        "depth_multiplier: expected",
    ),
    (
        lambda: fk.applications.MobileNetV3Small(weights=None, minimalistic=1),
        ValueError,
        "minimalistic: expected True or False",
    ),
    (
        lambda: fk.applications.ConvNeXtTiny(weights=None, include_preprocessing=None),
        ValueError,
        "include_preprocessing: expected",
    ),
)


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_argument_and_a_remedy(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.exhaustive
def test_the_docstring_example_runs():
    # one docstring is enough: all are written from one template
    example = fk.applications.MobileNetV3Small.__doc__.partition("Example:")[2]
    lines = [line[8:] for line in example.splitlines() if line.startswith("    >>> ")]
    namespace = {}
    exec("\n".join(lines[:-1]), namespace)
    assert lines[-1] == "model.outputs.shape" and namespace["model"].outputs.shape == (None, 10)

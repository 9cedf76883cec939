"""Keras's files for the tests, written by h5py from JSON in Keras's form."""

import functools
import io
import json
import zipfile

import h5py
import numpy as np

from fkeras.host.containers.hdf5 import open_store
from fkeras.saving import legacy
from tests.support.paths import DATA


@functools.lru_cache(maxsize=1)
def cases():
    """Files and outputs of Keras 2.3.1 by name; see tools/references/keras231_reference.py."""
    return json.loads((DATA / "keras231.json").read_text())["cases"]


def array(packed):
    """The array of a JSON object with dtype, shape and values."""
    return np.array(packed["values"], packed["dtype"]).reshape(packed["shape"])


def arrays(packed):
    """The array of a list of one, otherwise the list of arrays."""
    values = [array(p) for p in packed]
    return values[0] if len(values) == 1 else values


def _attribute(value):
    if isinstance(value, list | tuple):
        return np.array([v.encode() for v in value]) if value else np.array([])
    return value.encode() if isinstance(value, str) else value


def write(tree):
    """The bytes of an HDF5 file with the tree's "attributes" and "arrays"."""
    target = io.BytesIO()
    with h5py.File(target, "w") as file:
        for path, packed in tree["arrays"].items():
            file[path] = array(packed) if isinstance(packed, dict) else packed
        for path, attributes in tree["attributes"].items():
            group = file.require_group(path) if path and path not in file else file[path or "/"]
            for name, value in attributes.items():
                group.attrs[name] = _attribute(value)
    return target.getvalue()


def archive(members):
    """The bytes of a `.keras` file; a member is a text, or a tree for `write`."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, str) else write(content))
    return target.getvalue()


def file_bytes(case):
    """The bytes of a case's file, HDF5 or archive."""
    return write(case["file"]) if "file" in case else archive(case["members"])


def model_file(config, weights, version="2.3.1", backend="tensorflow", training=None, root=None):
    """The bytes of a whole model's file.

    Args:
        config: the model_config, JSON data.
        weights: for each layer name the arrays by name, in the layer's order.
        version: keras_version; None leaves the attribute out, as Keras 1 did.
        backend: the backend's name in the file.
        training: the training_config.
        root: further attributes of the root.
    """
    about = {"backend": backend, "keras_version": version}
    about = {k: v for k, v in about.items() if v is not None}
    texts = {"model_config": json.dumps(config)}
    if training is not None:
        texts["training_config"] = json.dumps(training)
    attributes = {
        "": {**about, **texts, **(root or {})},
        "model_weights": {**about, "layer_names": list(weights)},
    }
    stored = {}
    for layer, layer_weights in weights.items():
        attributes[f"model_weights/{layer}"] = {"weight_names": list(layer_weights)}
        stored |= {
            f"model_weights/{layer}/{name}": np.asarray(v) for name, v in layer_weights.items()
        }
    return write({"attributes": attributes, "arrays": stored})


def load(data, **options):
    """`(model, state)` of the bytes of a file."""
    with open_store(data) as store:
        return legacy.load(store, "m.h5", **options)[:2]


def load_training(data, **options):
    """`(trainer, run)` of the bytes of a file."""
    with open_store(data) as store:
        return legacy.load_training(store, "m.h5", **options)


def outputs(model, state, inputs):
    """The model's outputs as a list of NumPy arrays."""
    value = model.apply(inputs, state=state).value
    return [np.asarray(v) for v in (value if isinstance(value, list | tuple) else [value])]

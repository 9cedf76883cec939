"""Keras's files for the tests, written by h5py from JSON in Keras's form."""

import functools
import io
import json
import zipfile

import h5py
import numpy as np

from fkeras.saving import legacy
from fkeras.saving.containers.hdf5 import open_store
from tests.support.paths import DATA


@functools.lru_cache(maxsize=1)
def cases():
    """What Keras 2.3.1 wrote and computed, by name; see tools/references/keras231_reference.py."""
    return json.loads((DATA / "keras231.json").read_text())["cases"]


def array(packed):
    """The array that stands in JSON as dtype, shape and values."""
    return np.array(packed["values"], packed["dtype"]).reshape(packed["shape"])


def arrays(packed):
    """One array, or a list of several."""
    made = [array(p) for p in packed]
    return made[0] if len(made) == 1 else made


def _attribute(value):
    if isinstance(value, list | tuple):
        return np.array([v.encode() for v in value]) if value else np.array([])
    return value.encode() if isinstance(value, str) else value


def write(tree):
    """The bytes of a file with these attributes and arrays, `{"attributes": ..., "arrays": ...}`."""
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
    """The bytes of a `.keras` file: texts by member, and the tree of its weights, see `write`."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, str) else write(content))
    return target.getvalue()


def kept(case):
    """The bytes of a case's file, of either kind."""
    return write(case["file"]) if "file" in case else archive(case["members"])


def model_file(config, weights, version="2.3.1", backend="tensorflow", training=None, root=None):
    """The bytes of a whole model's file.

    Args:
        config: the model_config, JSON data.
        weights: by name of the layer a dictionary of arrays by name, in the order of the layer.
        version: keras_version; None for none, as Keras 1 has it.
        backend: the backend that the file names.
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
    for layer, own in weights.items():
        attributes[f"model_weights/{layer}"] = {"weight_names": list(own)}
        stored |= {f"model_weights/{layer}/{name}": np.asarray(v) for name, v in own.items()}
    return write({"attributes": attributes, "arrays": stored})


def load(data, **options):
    """`(model, state)` of the bytes of a file."""
    with open_store(data) as store:
        return legacy.load(store, "m.h5", **options)


def load_training(data, **options):
    """`(trainer, run)` of the bytes of a file."""
    with open_store(data) as store:
        return legacy.load_training(store, "m.h5", **options)


def outputs(model, state, inputs):
    """The model's outputs as a list of NumPy arrays."""
    value = model.apply(inputs, state=state).value
    return [np.asarray(v) for v in (value if isinstance(value, list | tuple) else [value])]

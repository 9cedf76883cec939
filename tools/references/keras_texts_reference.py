"""Writes tests/data/keras_texts.json: models of strings that Keras 3 wrote, and what they compute.

Run it where Keras runs on TensorFlow, which alone has strings, not here:
`KERAS_BACKEND=tensorflow python tools/references/keras_texts_reference.py FILE`. With the argument `--check` it
opens FILE/NAME.keras, files of ours of the same models, and prints how far their outputs lie off.
"""

import io
import json
import os
import pathlib
import sys
import tempfile
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from hdf5_as_json import packed, tree
from keras import layers

TEXTS = [["foo bar boom"], ["Bar, qux!"], [""]]
COLORS = [["red"], ["blue"], ["green"]]
NUMBERS = np.linspace(-1, 1, 9, dtype="float32").reshape(3, 3)


def texts(**options):
    layer = layers.TextVectorization(**options)
    layer.adapt(["foo bar", "bar baz", "baz bada boom"])
    return layer


def words():
    return keras.Input((1,), dtype="string")


def ids(length):
    x = keras.Input((length,), dtype="int64")
    y = layers.Flatten()(layers.Embedding(7, 3)(x))
    return keras.Model(x, layers.Dense(2)(y))


def several():
    x, n, c = words(), keras.Input((3,)), words()
    y = layers.LSTM(2)(layers.Embedding(7, 3, mask_zero=True)(texts()(x)))
    colors = layers.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")(c)
    y = layers.Dense(2)(layers.Concatenate()([y, n, colors]))
    return keras.Model({"texts": x, "n": n, "color": c}, y)


def row():
    members = [layers.Embedding(7, 3, mask_zero=True), layers.Flatten(), layers.Dense(2)]
    return keras.Sequential([words(), texts(output_sequence_length=4), *members])


def before():
    x, y = words(), words()
    first = keras.Model(x, texts(output_sequence_length=4)(x))
    return keras.Model(y, ids(4)(first(y)))


def inside():
    x, y = words(), words()
    inner = ids(4)(texts(output_sequence_length=4)(x))
    inner = keras.Model(x, layers.BatchNormalization()(inner))
    return keras.Model(y, layers.Dense(2)(inner(y)))


def crossed():
    a, b = words(), words()
    crossing = layers.HashedCrossing(5, output_mode="one_hot")((a, b))
    hashes = layers.Hashing(3, output_mode="one_hot", salt=7)(a)
    return keras.Model([a, b], layers.Dense(2)(layers.Concatenate()([crossing, hashes])))


def counted():
    x = words()
    return keras.Model(x, layers.Dense(2)(texts(output_mode="tf_idf", ngrams=2)(x)))


def decoded():
    x = words()
    y = ids(4)(texts(output_sequence_length=4)(x))
    best = keras.ops.argmax(y, axis=-1)
    word = layers.StringLookup(vocabulary=["bad"], oov_token="good", invert=True)(best)
    return keras.Model(x, {"scores": y, "word": word})


CASES = {
    "several inputs": (several, {"texts": TEXTS, "n": NUMBERS, "color": COLORS}),
    "a row": (row, TEXTS),
    "a model before": (before, TEXTS),
    "a model inside": (inside, TEXTS),
    "crossed": (crossed, [TEXTS, COLORS]),
    "counted": (counted, TEXTS),
    "decoded": (decoded, TEXTS),
}


def tensors(tree):
    if isinstance(tree, dict):
        return {k: tensors(v) for k, v in tree.items()}
    pair = isinstance(tree, list) and isinstance(tree[0][0], list)
    return [tensors(v) for v in tree] if pair else tf.constant(tree)


def record(value):
    if isinstance(value, dict):
        return {name: record(part) for name, part in value.items()}
    array = value.numpy()
    return [v.decode() for v in array] if array.dtype == object else packed(array)


def case(make, inputs):
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    model = make()
    path = os.path.join(tempfile.mkdtemp(), "m.keras")
    model.save(path)
    members = {}
    with zipfile.ZipFile(path) as file:
        for name in sorted(file.namelist()):
            data = file.read(name)
            if name.endswith(".h5"):
                members[name] = tree(io.BytesIO(data))
            else:
                members[name] = data.decode()
    plain = (
        {k: v.tolist() if hasattr(v, "tolist") else v for k, v in inputs.items()}
        if isinstance(inputs, dict)
        else inputs
    )
    outputs = record(model(tensors(inputs)))
    return {"members": members, "inputs": plain, "outputs": outputs}


def check(folder):
    known = json.loads(
        pathlib.Path(__file__).parents[2].joinpath("tests/data/keras_texts.json").read_text()
    )
    for name, (_, inputs) in CASES.items():
        model = keras.models.load_model(pathlib.Path(folder, f"{name}.keras"))
        found, wanted = record(model(tensors(inputs))), known["cases"][name]["outputs"]
        if name == "decoded":
            print(name, found["word"] == wanted["word"])
            found, wanted = found["scores"], wanted["scores"]
        print(name, np.abs(np.subtract(found["values"], wanted["values"])).max())


if __name__ == "__main__":
    if "--check" in sys.argv:
        check(sys.argv[1])
    else:
        data = {"keras": keras.__version__, "cases": {k: case(*v) for k, v in CASES.items()}}
        pathlib.Path(sys.argv[1]).write_text(json.dumps(data, separators=(",", ":")) + "\n")

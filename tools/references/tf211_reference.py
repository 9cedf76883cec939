"""Writes tests/data/tf211.json.gz: models of tf.keras with functions of TensorFlow in their graphs.

Run it where TensorFlow 2.11 runs, not here: Python 3.10 with `pip install tensorflow==2.11.0`, then
`python tools/references/tf211_reference.py tests/data/tf211.json.gz`. Where TensorFlow 2.1 runs (Python 3.7 with
`pip install tensorflow==2.1.0 "h5py<3" "protobuf<3.21" "numpy<1.20"`),
`python tools/references/tf211_reference.py tests/data/tf210.json.gz` writes the same models as far as that version
saves them, as `TensorFlowOpLayer`.

For each model the JSON holds the `model_config` as `model.save` writes it, its weights by layer, and
the outputs on the inputs that stand there once, by shape and dtype.
"""

import gzip
import json
import sys

import numpy as np
import tensorflow as tf
from tf_function_models import EARLY, MODELS
from tf_function_shapes import SHAPES

LATER = int(tf.__version__.split(".")[1]) >= 4


def inputs(kind):
    """The numbers of an input, by the word that `MODELS` has for it."""
    rng = np.random.RandomState(sum(map(ord, kind)))
    shape = {"x": (2, 3, 4), "y": (2, 3, 4), "p": (2, 3, 4), "m": (2, 3, 3), "i": (2, 5)}
    shape.update(
        {"image": (1, 4, 4, 4), "rgb": (1, 4, 4, 3), "ids": (2, 3), "n": (3,), "t": (2, 3, 4)}
    )
    if kind in ("ids", "n"):
        return rng.randint(0, 3, shape[kind]).astype("int32")
    if kind == "i":
        return rng.randint(-7, 8, shape[kind]).astype("int32")
    values = np.round(rng.uniform(-2, 2, shape[kind]), 2).astype("float32")
    return np.round(np.abs(values) / 2.5 + 0.1, 2).astype("float32") if kind == "p" else values


def nested():
    """A model inside another one and called twice, with weights, a shared layer and two outputs."""
    layers = tf.keras.layers
    a = tf.keras.Input((4,), name="a")
    h = layers.Dense(3, name="hidden")(a)
    h = h * tf.nn.sigmoid(1.702 * h) if LATER else h * 2.0
    inner = tf.keras.Model(a, tf.concat([h, a[:, :1]], axis=-1), name="inner")
    x, y = tf.keras.Input((4,), name="x"), tf.keras.Input((4,), name="y")
    p, q = inner(x), inner(y)
    shared = layers.Dense(2, name="shared")
    out = shared(p) - shared(q)
    weight = layers.Dense(1, activation="sigmoid", name="gate")(tf.abs(p - q))
    return tf.keras.Model([x, y], [out * weight, tf.reduce_sum(tf.square(p), axis=-1)])


def masked():
    """A mask meets functions, which lose it, and a layer that would take it."""
    layers = tf.keras.layers
    ids = tf.keras.Input((3,), dtype="int32", name="ids")
    x = layers.Embedding(3, 2, mask_zero=True, name="embedding")(ids)
    kept = layers.GlobalAveragePooling1D(name="kept")(x)
    lost = layers.GlobalAveragePooling1D(name="lost")(x * 2.0)
    plain = layers.GlobalAveragePooling1D(name="plain")(tf.identity(x))
    return tf.keras.Model(ids, [kept, lost, plain])


def number(x):
    return float(f"{x:.7g}")


def packed(array):
    array = np.asarray(array)
    if array.dtype.kind == "f":
        values = [number(v) for v in array.ravel()]
    else:
        values = [int(v) for v in array.ravel()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}


def unnamed(value):
    """A call without `"name": null`, which stands beside nearly all of them."""
    if isinstance(value, dict):
        return {k: unnamed(v) for k, v in value.items() if k != "name" or v is not None}
    return [unnamed(v) for v in value] if isinstance(value, list) else value


def short(config):
    """A model's configuration without what says nothing here."""
    for layer in config["layers"]:
        layer["inbound_nodes"] = unnamed(layer["inbound_nodes"])
        inner = layer["config"]
        if layer["class_name"] in ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer"):
            layer["config"] = {
                k: v for k, v in inner.items() if k not in ("trainable", "dtype", "name")
            }
            node = inner.get("node_def")
            if node:
                node.pop("name")
                node["input"] = ["" for _ in node["input"]]
                node["attr"] = {
                    k: v
                    for k, v in node.get("attr", {}).items()
                    if not ("type" in v and k[0] == "T") and v != {"i": "0"} and k != "Index"
                }
        elif layer["class_name"] in ("Functional", "Model"):
            short(inner)
    return config


def record(model, values):
    outputs = model([tf.constant(v) for v in values] if len(values) > 1 else tf.constant(values[0]))
    weights = {
        layer.name: {w.name: packed(w.numpy()) for w in layer.weights}
        for layer in model.layers
        if layer.weights
    }
    config = json.loads(model.to_json())
    return {
        "config": {"class_name": config["class_name"], "config": short(config["config"])},
        "weights": weights,
        "outputs": [packed(y) for y in (outputs if isinstance(outputs, list) else [outputs])],
    }


def main(path):
    rows, arrays = {}, {}
    for name, (words, function) in {**MODELS, **SHAPES}.items():
        if not LATER and name not in EARLY:
            continue
        tf.keras.backend.clear_session()
        values = {}
        for word in words.split():
            value = values[word] = inputs(word)
            arrays[word] = packed(value)
        symbols = []
        for word, value in values.items():
            shape = (None, 4) if word == "t" else value.shape[1:]
            symbols.append(tf.keras.Input(shape, dtype=str(value.dtype), name=word))
        try:
            model = tf.keras.Model(symbols, function(*symbols))
            rows[name] = {"inputs": list(values), **record(model, list(values.values()))}
        except Exception as error:
            if LATER:
                raise
            print(f"{name}: left out, {error!s:.200}")
    tf.keras.backend.clear_session()
    tf.random.set_seed(0)
    arrays["a"] = packed(inputs("x")[:, 0])
    arrays["b"] = packed(inputs("y")[:, 0])
    values = [inputs("x")[:, 0], inputs("y")[:, 0]]
    rows["nested"] = {"inputs": ["a", "b"], **record(nested(), values)}
    tf.keras.backend.clear_session()
    rows["masked"] = {"inputs": ["ids"], **record(masked(), [inputs("ids")])}
    arrays.setdefault("ids", packed(inputs("ids")))
    data = {"tensorflow": tf.__version__, "keras": tf.keras.__version__}
    text = json.dumps({**data, "arrays": arrays, "rows": rows}, separators=(",", ":"))
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed_file:
        packed_file.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])

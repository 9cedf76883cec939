"""Writes tests/data/tf215.json.gz: `.keras` files of tf.keras 2.15, and what their models compute.

Run it where TensorFlow 2.15 runs, not here: Python 3.11 with `pip install tensorflow-cpu==2.15.1`,
then `python tools/references/tf215_reference.py tests/data/tf215.json.gz`. Where TensorFlow 2.13 runs
(`pip install tensorflow-cpu==2.13.1`), whose archives have other groups,
`python tools/references/tf215_reference.py tests/data/tf213.json.gz nested recurrent attention strings wrapped`
writes some of the models.

For each model the JSON holds the members of the archive, inputs and outputs. A compiled model was
trained for two steps before it was saved; the outputs after two more steps on the same examples
stand beside those of the file.
"""

import gzip
import io
import json
import os
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow as tf
from hdf5_as_json import packed, tree

keras = tf.keras
layers = keras.layers


def sequential():
    return keras.Sequential(
        [
            keras.Input((3,), name="x"),
            layers.Dense(4, activation="relu", name="wide"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(2, name="out"),
        ]
    )


def deferred():
    model = keras.Sequential([layers.Dense(4, name="wide"), layers.Dense(2, name="out")])
    model.build((None, 3))
    return model


def functional():
    x = keras.Input((3,), name="x")
    y = layers.Dense(4, activation="hard_sigmoid", name="b_first")(x)
    z = layers.LeakyReLU(0.2)(layers.Dense(4, name="a_second", kernel_regularizer="l2")(x))
    y = layers.Concatenate(name="joined")([y, z])
    y = layers.Dropout(0.5, seed=1, name="drop")(y, training=False)
    return keras.Model(x, layers.Dense(2, name="out")(y))


def nested():
    """A network and a layer that are called twice, and a Sequential inside."""
    a = keras.Input((3,), name="a")
    hidden = layers.BatchNormalization(name="norm")(layers.Dense(4, name="hidden")(a))
    inner = keras.Model(a, [hidden, layers.Dense(2, name="side")(hidden)], name="inner")
    head = keras.Sequential([layers.Dense(3, name="d1"), layers.Dense(2, name="d2")], name="head")
    x, y = keras.Input((3,), name="x"), keras.Input((3,), name="y")
    (p, q), (r, s) = inner(x), inner(y)
    shared = layers.Dense(2, name="shared")
    parts = [shared(p), shared(r), q, s, head(layers.Subtract(name="minus")([p, r]))]
    return keras.Model(
        [x, y], [layers.Add(name="sum")(parts), layers.Multiply(name="both")([q, s])]
    )


def recurrent():
    ids = keras.Input((5,), dtype="int32", name="ids")
    y = layers.Embedding(7, 3, mask_zero=True, name="table")(ids)
    y, *state = layers.LSTM(3, return_sequences=True, return_state=True, name="lstm")(y)
    y = layers.LSTM(3, return_sequences=True, name="next")(y, initial_state=state)
    y = layers.Bidirectional(layers.GRU(2, return_sequences=True), name="both")(y)
    cells = [layers.SimpleRNNCell(3), layers.GRUCell(2, reset_after=False)]
    return keras.Model(ids, layers.RNN(cells, name="cells")(y))


def convolution():
    x = keras.Input((6, 6, 2), name="image")
    y = layers.Conv2D(3, 3, padding="same", name="conv")(x)
    y = layers.BatchNormalization(trainable=False, name="frozen")(y)
    y = layers.SeparableConv2D(4, 3, name="separable")(y)
    y = layers.DepthwiseConv2D(3, name="depthwise")(y)
    y = layers.PReLU(shared_axes=[1, 2], name="prelu")(y)
    return keras.Model(x, layers.GlobalAveragePooling2D(name="mean")(y))


def attention():
    x, y = keras.Input((4, 3), name="x"), keras.Input((5, 3), name="y")
    z, weights = layers.MultiHeadAttention(2, 2, name="heads")(
        x, value=y, return_attention_scores=True
    )
    z = layers.LayerNormalization(name="norm")(z)
    z = layers.TimeDistributed(layers.Dense(2), name="each")(z)
    return keras.Model([x, y], [layers.Attention(use_scale=True, name="dot")([z, z]), weights])


def functions():
    x = keras.Input((3,), name="x")
    y = layers.Dense(3, name="first")(x)
    y = tf.nn.relu(y * 2.0 + 1.0) - tf.reduce_mean(y, axis=-1, keepdims=True)
    return keras.Model(x, layers.Dense(2, name="out")(tf.concat([y, x[:, :1]], axis=-1)))


def named_inputs():
    ends = {"b": keras.Input((3,), name="b"), "a": keras.Input((3,), name="a")}
    y = layers.Dense(2, name="first")(layers.Subtract(name="minus")([ends["a"], ends["b"]]))
    return keras.Model(ends, {"left": y, "right": layers.Dense(1, name="second")(y)})


def normalized():
    norm = layers.Normalization(name="norm")
    norm.adapt(np.array([[1.0, 2.0, 3.0], [2.0, 5.0, 7.0]], "float32"))
    return keras.Sequential([keras.Input((3,), name="x"), norm, layers.Dense(2, name="out")])


def strings():
    text = layers.TextVectorization(output_sequence_length=3, name="words")
    text.adapt(["a rose is a rose", "is it"])
    lookup = layers.IntegerLookup(name="numbers")
    lookup.adapt([[7], [7], [9]])
    sentence, number = (
        keras.Input((1,), dtype="string", name="sentence"),
        keras.Input((1,), dtype="int64", name="number"),
    )
    x = layers.Embedding(6, 2, name="of_words")(text(sentence))
    y = layers.Embedding(4, 2, name="of_numbers")(lookup(number))
    return keras.Model([sentence, number], layers.Concatenate(axis=1, name="all")([x, y]))


def wrapped():
    """Networks inside wrappers, and layers with classes of other names in Keras 3."""
    inner = keras.Sequential([layers.Dense(3, name="a"), layers.BatchNormalization(name="b")])
    x = keras.Input((4, 2), name="x")
    y = layers.TimeDistributed(inner, name="each")(x)
    y = layers.experimental.SyncBatchNormalization(name="sync")(y)
    y = layers.BatchNormalization(name="plain")(y)
    y = layers.ThresholdedReLU(0.1, name="threshold")(layers.GroupNormalization(3, name="group")(y))
    y = layers.SpectralNormalization(layers.Dense(3, name="inside"), name="spectral")(y)
    y = layers.ConvLSTM1D(2, 2, name="rows")(layers.Reshape((2, 2, 3), name="shaped")(y))
    return keras.Model(x, layers.RandomFlip(name="flip")(y[:, None]))


def two_layers():
    return keras.Sequential([keras.Input((3,), name="x"), layers.Dense(2, name="out")])


MODELS = {
    "sequential": (sequential, "Adam", {}),
    "deferred": (deferred, None, {}),
    "functional": (functional, "RMSprop", {"momentum": 0.5, "centered": True}),
    "nested": (nested, "SGD", {"momentum": 0.9}),
    "recurrent": (recurrent, "Adam", {"use_ema": True, "weight_decay": 0.1}),
    "convolution": (convolution, "AdamW", {}),
    "attention": (attention, None, {}),
    "functions": (functions, "Adamax", {}),
    "named inputs": (named_inputs, None, {}),
    "normalized": (normalized, "Adagrad", {}),
    "Adadelta": (two_layers, "Adadelta", {"learning_rate": 0.5}),
    "Ftrl": (two_layers, "Ftrl", {"learning_rate": 0.1}),
    "Lion": (two_layers, "Lion", {}),
    "amsgrad": (two_layers, "Adam", {"amsgrad": True}),
    "SGD": (two_layers, "SGD", {}),
    "Adafactor": (two_layers, "Adafactor", {}),
    "legacy": (two_layers, "legacy.Adam", {}),
    "Nadam": (two_layers, "Nadam", {"clipnorm": 0.1}),
    "by name": (two_layers, "adagrad", {}),
    "schedule": (
        two_layers,
        "AdamW",
        {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)},
    ),
    "strings": (strings, None, {}),
    "wrapped": (wrapped, None, {}),
    "average": (two_layers, "SGD", {"use_ema": True}),
}


def values(symbol, number):
    """Six examples for an input."""
    rng = np.random.RandomState(number)
    shape = (6, *symbol.shape[1:])
    if symbol.dtype == tf.string:
        return np.array([["a rose"], ["It is"], ["is rose a"], [""], ["other"], ["a a a a"]])
    if symbol.dtype == tf.int64:
        return np.array([[7], [9], [8], [7], [0], [9]])
    if symbol.dtype == tf.int32:
        return np.sort(rng.randint(0, 7, shape), axis=1)[:, ::-1].astype("int32")
    return np.round(rng.uniform(-2, 2, shape), 2).astype("float32")


def stored(array):
    return array.tolist() if array.dtype.kind == "U" else packed(array)


def train(model, given, targets):
    for _ in range(2):
        model.train_on_batch(given, targets)


def flat(value):
    return [packed(np.asarray(v)) for v in tf.nest.flatten(value)]


def record(name):
    make, kind, options = MODELS[name]
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = make()
    for number, weight in enumerate(model.weights):
        if name not in ("normalized", "strings") and weight.dtype == tf.float32:
            rng = np.random.RandomState(number)
            weight.assign(
                np.round(rng.uniform(-1, 1, weight.shape), 2) + ("variance" in weight.name)
            )
    inputs = [values(symbol, number) for number, symbol in enumerate(model.inputs)]
    given = inputs if len(inputs) > 1 else inputs[0]
    if isinstance(model.input, dict):
        given = dict(zip(model.input_names, inputs, strict=True))
    case = {"names": model.input_names, "inputs": [stored(x) for x in inputs]}
    if kind is not None:
        room = keras.optimizers.legacy if kind.startswith("legacy.") else keras.optimizers
        optimizer = kind
        if kind != "adagrad":
            optimizer = getattr(room, kind.removeprefix("legacy."))(**options)
        loss = keras.losses.Huber(0.5) if name == "Ftrl" else "mse"
        model.compile(optimizer, loss, metrics=[keras.metrics.MeanSquaredError(), "mae"])
        targets = [np.ones_like(y) for y in tf.nest.flatten(model(given))]
        case["targets"] = [packed(y) for y in targets]
        targets = targets if len(targets) > 1 else targets[0]
        train(model, given, targets)
    path = os.path.join(tempfile.mkdtemp(), "m.keras")
    model.save(path)
    case["outputs"] = flat(model(given))
    # no file holds the state of the old Adam, or Nadam's product, which TensorFlow's graphs multiply
    # once for each weight
    if kind not in (None, "legacy.Adam", "Nadam"):
        train(model, given, targets)
        case["later"] = flat(model(given))
    members = {}
    with zipfile.ZipFile(path) as file:
        for member in sorted(file.namelist()):
            data = file.read(member)
            text = member.endswith((".json", ".txt"))
            members[member] = data.decode() if text else tree(io.BytesIO(data))
    return {"members": members, **case}


def main(path, *names):
    cases = {name: record(name) for name in names or MODELS}
    data = json.dumps({"cases": cases}, separators=(",", ":"))
    with open(path, "wb") as file:
        # without a time, so that the same contents are the same file
        file.write(gzip.compress(data.encode(), 9, mtime=0))
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main(*sys.argv[1:])

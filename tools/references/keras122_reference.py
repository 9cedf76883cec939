"""Writes tests/data/keras122.json: files of Keras 1.2.2 on Theano and what it computes from them.

Run it where Keras 1.2.2 runs, not here: Python 3.7 with `pip install "numpy<1.17" "scipy<1.4"
"h5py<3" theano==1.0.5 six pyyaml` and `pip install --no-deps keras==1.2.2`, then
`KERAS_BACKEND=theano THEANO_FLAGS=floatX=float32 python tools/references/keras122_reference.py FILE [CASE ...]`.
Where Theano compiles loops too slowly, `mode=FAST_COMPILE,cxx=` among its flags makes all cases but
those with images.

The cases are those of tools/references/keras231_reference.py in form.
"""

import json
import os
import sys
import tempfile

import keras
import keras.backend as K
import numpy as np
from hdf5_as_json import number, packed, tree
from keras import layers, models, optimizers


def rows(*shape):
    return np.random.RandomState(1).uniform(-1, 1, shape).astype("float32")


def case(model, inputs, targets=None):
    rng = np.random.RandomState(0)
    for weight in model.weights:
        value = rng.uniform(-0.6, 0.6, K.get_value(weight).shape).astype("float32")
        K.set_value(weight, np.abs(value) + 0.3 if "std" in weight.name else value)
    losses = []
    for _ in range(3 if targets is not None else 0):
        model.train_on_batch(inputs, targets)
    path = os.path.join(tempfile.mkdtemp(), "m.h5")
    model.save(path)
    outputs = model.predict(inputs)
    for _ in range(3 if targets is not None else 0):
        losses.append(number(model.train_on_batch(inputs, targets)))
    many = inputs if isinstance(inputs, list) else [inputs]
    record = {
        "file": tree(path),
        "inputs": [packed(x) for x in many],
        "outputs": [packed(outputs)],
    }
    if targets is not None:
        record.update(targets=[packed(targets)], losses=losses)
    return record


def image(ordering):
    shape = (2, 7, 6) if ordering == "th" else (7, 6, 2)
    options = {"dim_ordering": ordering}
    model = models.Sequential(
        [
            layers.Convolution2D(3, 3, 2, subsample=(2, 1), input_shape=shape, **options),
            layers.BatchNormalization(axis=1 if ordering == "th" else 3),
            layers.LeakyReLU(0.2),
            layers.ZeroPadding2D((1, 1), **options),
            layers.MaxPooling2D((2, 2), **options),
            layers.Convolution2D(2, 3, 3, border_mode="same", activation="relu", **options),
            layers.AveragePooling2D((2, 1), **options),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(2, W_regularizer="l2", activation="softmax"),
        ]
    )
    return case(model, rows(2, *shape))


def line():
    model = models.Sequential(
        [
            layers.Convolution1D(3, 3, border_mode="same", activation="tanh", input_shape=(6, 2)),
            layers.MaxPooling1D(2),
            layers.UpSampling1D(2),
            layers.GlobalAveragePooling1D(),
        ]
    )
    return case(model, rows(2, 6, 2))


def sequence():
    model = models.Sequential(
        [
            layers.Embedding(6, 4, input_length=5),
            layers.LSTM(3, return_sequences=True),
            layers.Bidirectional(layers.GRU(2, return_sequences=True), merge_mode="concat"),
            layers.TimeDistributed(layers.Dense(3)),
            layers.SimpleRNN(3),
        ]
    )
    return case(model, np.random.RandomState(2).randint(0, 6, (3, 5)).astype("float32"))


def merged():
    a, b = layers.Input((3,), name="a"), layers.Input((3,), name="b")
    shared = layers.Dense(4, activation="hard_sigmoid", name="shared")
    x, y = shared(a), shared(b)
    modes = ("sum", "mul", "ave", "max", "concat")
    found = [layers.merge([x, y], mode=mode, name="by_" + mode) for mode in modes]
    found.append(layers.merge([x, y], mode="dot", dot_axes=1, name="by_dot"))
    z = layers.merge(found, mode="concat", concat_axis=1)
    model = models.Model([a, b], layers.Dense(2)(z))
    return case(model, [rows(4, 3), rows(4, 3)[::-1].copy()])


def compiled(optimizer):
    model = models.Sequential([layers.Dense(3, activation="tanh", input_dim=4), layers.Dense(1)])
    model.compile(optimizer, "mse")
    return case(model, rows(8, 4), rows(8, 1))


def main(target, names):
    makers = {
        "adam": lambda: compiled(optimizers.Adam(0.02, decay=0.1)),
        "rmsprop": lambda: compiled(optimizers.RMSprop(0.02)),
        "nadam": lambda: compiled(optimizers.Nadam(0.02)),
        "merged": merged,
        "image_th": lambda: image("th"),
        "image_tf": lambda: image("tf"),
        "line": line,
        "sequence": sequence,
    }
    cases = {}
    if os.path.exists(target):
        with open(target) as file:
            cases = json.load(file)["cases"]
    for name in names or makers:
        cases[name] = makers[name]()
        with open(target, "w") as file:
            json.dump({"keras": keras.__version__, "cases": cases}, file, sort_keys=True)
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Writes tests/data/keras231.json: files of Keras 2.3.1 and what Keras 2.3.1 computes from them.

Run it where Keras 2.3.1 runs, not here: Python 3.7 with `pip install keras==2.3.1
tensorflow==2.1.0 "h5py<3" "protobuf<3.21" "numpy<1.20"`, then
`python tools/references/keras231_reference.py tests/data/keras231.json`.

For each case the JSON holds the tree of the HDF5 file as `model.save` wrote it (attributes and
arrays by path), inputs, the outputs of `predict` and, where the model was compiled, the losses
that `train_on_batch` returned on the same batch after the file was saved.

Keras 2.3.1 leaves open whether a step is counted before or after the optimizer reads the count (the
two stand unordered in TensorFlow's graph, and both happen). Here it is counted after, as the
formulas of Keras's sources say: `counted_last` adds that order and changes nothing else.
"""

import json
import os
import sys
import tempfile

import h5py
import keras
import keras.backend as K
import numpy as np
import tensorflow as tf
from hdf5_as_json import number, packed, tree
from keras import layers, models, optimizers

STEPS_BEFORE, STEPS_AFTER = 3, 4


def randomize(model, seed=0):
    rng = np.random.RandomState(seed)
    values = []
    for weight in model.weights:
        shape = K.int_shape(weight)
        value = rng.uniform(-0.6, 0.6, shape).astype("float32")
        values.append(np.abs(value) + 0.3 if "variance" in weight.name else value)
    K.batch_set_value([(w, values[i]) for i, w in enumerate(model.weights)])


def each(value):
    return value if isinstance(value, list) else [value]


def case(model, inputs, targets=None, edit=None, reference=None):
    """The record of one model; `edit` changes the file, `reference` makes the expected outputs."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "m.h5")
    losses = []
    if targets is not None:
        for _ in range(STEPS_BEFORE):
            model.train_on_batch(inputs, targets)
    model.save(path)
    if edit is not None:
        with h5py.File(path, "r+") as file:
            edit(file)
    outputs = (reference or (lambda _: model.predict(inputs)))(path)
    if targets is not None:
        for _ in range(STEPS_AFTER):
            losses.append(number(each(model.train_on_batch(inputs, targets))[0]))
    record = {
        "file": tree(path),
        "inputs": [packed(x) for x in each(inputs)],
        "outputs": [packed(y) for y in each(outputs)],
    }
    if targets is not None:
        record["targets"] = [packed(y) for y in each(targets)]
        record["losses"] = losses
    K.clear_session()
    return record


def counted_last(optimizer):
    """The optimizer with its count of steps raised after all else of a step."""
    original = optimizer.get_updates

    @K.symbolic
    def get_updates(loss, params):
        updates = original(loss, params)
        rest = [K.update(*u) if isinstance(u, tuple) else u for u in updates[1:]]
        with tf.control_dependencies(rest):
            optimizer.updates = [*rest, K.update_add(optimizer.iterations, 1)]
        return optimizer.updates

    optimizer.get_updates = get_updates
    return optimizer


def rows(*shape, **options):
    return np.random.RandomState(options.get("seed", 1)).uniform(-1, 1, shape).astype("float32")


def ids(high, *shape):
    return np.random.RandomState(2).randint(0, high, shape).astype("float32")


def shared():
    """Nested models called twice, a shared layer, two inputs and outputs, BatchNormalization."""
    a, b = layers.Input((4,), name="a"), layers.Input((4,), name="b")
    x = layers.Input((4,))
    y = layers.BatchNormalization()(layers.Dense(3, activation="tanh")(x))
    y = layers.BatchNormalization(scale=False)(layers.Dense(3, use_bias=False)(y))
    inner = models.Model(x, y, name="inner")
    head = models.Sequential(
        [layers.Dense(3, input_shape=(3,)), layers.BatchNormalization()], name="head"
    )
    late = models.Sequential([layers.Dense(2), layers.BatchNormalization()], name="late")
    one = layers.Dense(3, activation="relu", name="one")
    p, q = inner(a), inner(b)
    r = layers.add([one(p), one(q)])
    s = layers.concatenate([head(p), r])
    out = layers.Dense(2, name="out", kernel_regularizer="l2")(s)
    side = late(layers.multiply([p, q]))
    model = models.Model([a, b], [out, side], name="outer")
    randomize(model)
    model.compile(
        counted_last(optimizers.Adam(0.01)),
        ["mse", "mae"],
        loss_weights=[1.0, 0.5],
        metrics=["mae"],
    )
    return case(model, [rows(6, 4), rows(6, 4, seed=3)], [rows(6, 2), rows(6, 2, seed=5)])


def frozen():
    """A frozen layer among others, and a nested model of which some layers are frozen."""
    inner = models.Sequential(
        [
            layers.Dense(3, input_shape=(4,), trainable=False),
            layers.BatchNormalization(),
            layers.Dense(3, activation="tanh"),
            layers.BatchNormalization(),
        ],
        name="inner",
    )
    model = models.Sequential([inner, layers.Dense(2, trainable=False), layers.Dense(1)])
    randomize(model)
    model.compile(counted_last(optimizers.SGD(0.05, momentum=0.9)), "mse")
    return case(model, rows(5, 4), rows(5, 1))


def frozen_normalization():
    """Frozen BatchNormalization, which trains on the batch, in a model and in one inside it."""
    inner = models.Sequential(
        [
            layers.Dense(3, activation="tanh", input_shape=(4,)),
            layers.BatchNormalization(trainable=False, scale=False),
            layers.BatchNormalization(momentum=0.9),
        ],
        name="inner",
    )
    x = layers.Input((4,))
    y = layers.BatchNormalization(trainable=False, epsilon=0.01)(inner(x))
    y = layers.Conv1D(2, 2)(layers.Reshape((3, 1))(y))
    y = layers.BatchNormalization(axis=1, trainable=False)(y)
    model = models.Model(x, layers.Dense(1)(layers.Flatten()(y)))
    randomize(model)
    model.compile(counted_last(optimizers.SGD(0.05, momentum=0.9)), "mse")
    return case(model, rows(5, 4), rows(5, 1))


def image():
    model = models.Sequential(
        [
            layers.Conv2D(3, 3, strides=2, padding="same", input_shape=(9, 8, 2)),
            layers.LeakyReLU(0.2),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(2, depth_multiplier=2),
            layers.PReLU(shared_axes=[1, 2]),
            layers.SeparableConv2D(4, 2, padding="same", activation="elu"),
            layers.Conv2DTranspose(3, 2, strides=2),
            layers.ThresholdedReLU(0.05),
            layers.ZeroPadding2D(((1, 0), (0, 1))),
            layers.MaxPooling2D(2),
            layers.UpSampling2D(2),
            layers.Cropping2D(((1, 0), (0, 1))),
            layers.AveragePooling2D(2, padding="same"),
            layers.SpatialDropout2D(0.2),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.3),
            layers.Dense(3, kernel_constraint="max_norm", bias_initializer="ones"),
            layers.ReLU(2.0, 0.1, 0.05),
            layers.Softmax(),
        ]
    )
    randomize(model)
    return case(model, rows(2, 9, 8, 2))


def sequence():
    model = models.Sequential(
        [
            layers.Embedding(7, 4, input_length=6),
            layers.Conv1D(4, 2, padding="causal", activation="hard_sigmoid"),
            layers.LSTM(3, return_sequences=True, recurrent_activation="hard_sigmoid"),
            layers.GRU(3, return_sequences=True),
            layers.GRU(3, return_sequences=True, reset_after=True, go_backwards=True),
            layers.Bidirectional(layers.LSTM(2, return_sequences=True), merge_mode="sum"),
            layers.TimeDistributed(layers.Dense(3)),
            layers.SimpleRNN(4, return_sequences=True),
            layers.RNN([layers.LSTMCell(2), layers.GRUCell(3)]),
            layers.Activation("hard_sigmoid"),
        ]
    )
    randomize(model)
    return case(model, ids(7, 3, 6))


def masked():
    x = layers.Input((5,), dtype="int32")
    y = layers.Embedding(6, 3, mask_zero=True)(x)
    y = layers.Bidirectional(layers.GRU(2, return_sequences=True))(y)
    z, h, c = layers.LSTM(3, return_sequences=True, return_state=True)(y)
    w = layers.LSTM(3)(y, initial_state=[h, c])
    model = models.Model(x, [z, w])
    randomize(model)
    tokens = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0], [1, 1, 2, 3, 4]], "int32")
    return case(model, tokens)


def convolutional_recurrent():
    model = models.Sequential(
        [layers.ConvLSTM2D(2, 2, input_shape=(3, 5, 4, 2), return_sequences=False)]
    )
    randomize(model)
    return case(model, rows(2, 3, 5, 4, 2))


def cudnn(kind, plain, gates, **options):
    """Files as a GPU's layers write them: TensorFlow 2.1 cannot make these, so a file is rewritten.

    The expected outputs are those of the plain layers with the weights that Keras 2.3.1 converts.
    """

    def made():
        return models.Sequential(
            [plain(3, input_shape=(4, 2), return_sequences=True, **options), plain(2, **options)]
        )

    model = made()
    randomize(model)

    def edit(file):
        config = json.loads(file.attrs["model_config"].decode())
        rng = np.random.RandomState(7)
        absent = [
            "activation",
            "recurrent_activation",
            "use_bias",
            "dropout",
            "recurrent_dropout",
            "implementation",
            "reset_after",
            "unroll",
        ]
        for item in config["config"]["layers"]:
            item["class_name"] = kind
            for key in absent:
                item["config"].pop(key, None)
            group = file["model_weights"][item["config"]["name"]]
            name = [n.decode() for n in group.attrs["weight_names"]][2]
            del group[name]
            size = 2 * gates * item["config"]["units"]
            group[name] = rng.uniform(-0.6, 0.6, size).astype("float32")
        file.attrs["model_config"] = json.dumps(config).encode()

    def reference(path):
        same = made()
        same.load_weights(path)
        return same.predict(rows(3, 4, 2))

    return case(model, rows(3, 4, 2), edit=edit, reference=reference)


def theano():
    model = models.Sequential(
        [
            layers.Conv2D(3, (3, 2), input_shape=(6, 5, 2)),
            layers.Conv2DTranspose(2, 2),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    randomize(model)

    def edit(file):
        file["model_weights"].attrs["backend"] = b"theano"
        file.attrs["backend"] = b"theano"

    def reference(path):
        return models.load_model(path).predict(rows(2, 6, 5, 2))

    return case(model, rows(2, 6, 5, 2), edit=edit, reference=reference)


OPTIMIZERS = {
    "sgd_decay": lambda: optimizers.SGD(0.1, decay=0.1),
    "sgd_nesterov": lambda: optimizers.SGD(0.05, momentum=0.8, nesterov=True),
    "sgd_clipnorm": lambda: optimizers.SGD(0.5, clipnorm=0.05),
    "rmsprop": lambda: optimizers.RMSprop(0.02, decay=0.05, epsilon=1e-3),
    "adagrad": lambda: optimizers.Adagrad(0.05, epsilon=1e-3),
    "adadelta": lambda: optimizers.Adadelta(1.0, decay=0.01),
    "adam": lambda: optimizers.Adam(0.02, decay=0.1),
    "adam_amsgrad": lambda: optimizers.Adam(0.02, beta_2=0.5, amsgrad=True, clipvalue=0.02),
    "adamax": lambda: optimizers.Adamax(0.02, decay=0.1),
    "nadam": lambda: optimizers.Nadam(0.02),
}


def optimized(make, loss="mse"):
    model = models.Sequential([layers.Dense(3, activation="tanh", input_dim=4), layers.Dense(1)])
    randomize(model)
    model.compile(counted_last(make()), loss, metrics=["mae"])
    return case(model, rows(8, 4), rows(8, 1, seed=4))


LOSSES = [
    "mean_squared_error",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_logarithmic_error",
    "squared_hinge",
    "hinge",
    "categorical_hinge",
    "logcosh",
    "huber_loss",
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
    "binary_crossentropy",
    "kullback_leibler_divergence",
    "poisson",
    "cosine_proximity",
]


def lost(loss):
    model = models.Sequential([layers.Dense(3, activation="softmax", input_dim=4)])
    randomize(model)
    model.compile(optimizers.SGD(0.1), loss, metrics=["accuracy"])
    targets = np.eye(3, dtype="float32")[[0, 2, 1, 1, 0, 2]]
    if loss.startswith("sparse"):
        targets = targets.argmax(-1).astype("int32")[:, None]
    return case(model, rows(6, 4), targets)


FIRST = (shared, frozen, frozen_normalization, image, sequence, masked, theano)


def main(target):
    cases = {f.__name__: f() for f in FIRST}
    cases["convolutional_recurrent"] = convolutional_recurrent()
    options = {"recurrent_activation": "sigmoid"}
    cases["cudnn_lstm"] = cudnn("CuDNNLSTM", layers.LSTM, 4, **options)
    cases["cudnn_gru"] = cudnn("CuDNNGRU", layers.GRU, 3, reset_after=True, **options)
    for name, make in OPTIMIZERS.items():
        cases["optimizer_" + name] = optimized(make)
    for name in LOSSES:
        cases["loss_" + name] = lost(name)
    with open(target, "w") as file:
        json.dump({"keras": keras.__version__, "cases": cases}, file, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])

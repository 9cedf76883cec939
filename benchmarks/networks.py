"""Networks of the benchmarks: as fkeras models, in raw JAX and, on request, in Keras.

`TABLE` has the small networks of `fitting.py`, `CONVOLUTIONS` the convolutional ones of
`convolutional.py`, which Keras opens from files.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

RNG = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network twice.

    Attributes:
        model: makes the model.
        raw: `(params, state, x) -> (logits, new state)`.
        data: makes `(x, y, batch size)`.
        loop: how raw JAX trains it best: "scan" over chunks, or "steps" one by one.
        keras: makes the compiled Keras model with the same weights, or None.
    """

    model: Callable
    raw: Callable
    data: Callable
    loop: str
    keras: Callable | None = None

    @staticmethod
    def raw_weights(model: Any) -> dict:
        """The weights as a dictionary of dictionaries."""
        params: dict = {}
        for path, leaf in fk.engine.trainable_weights(model).items():
            layer, name = path.rsplit("/", 1)
            params.setdefault(layer, {})[name] = jnp.array(leaf)
        return params

    @staticmethod
    def raw_state(state: Any) -> dict:
        return jax.tree.map(jnp.array, state)


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


# 4 x Dense(64)


def mlp():
    x = h = fk.Input((32,))
    for _ in range(4):
        h = layers.Dense(64, activation="relu")(h)
    return fk.Model(x, layers.Dense(10)(h))


def raw_mlp(params, state, x):
    for name in ("dense", "dense_1", "dense_2", "dense_3"):
        x = jax.nn.relu(dense(params[name], x))
    return dense(params["dense_4"], x), state


def keras_mlp(model, state):
    import keras

    inputs = h = keras.Input((32,))
    for _ in range(4):
        h = keras.layers.Dense(64, activation="relu")(h)
    made = keras.Model(inputs, keras.layers.Dense(10)(h))
    made.set_weights(model.get_weights(state))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(1e-3, epsilon=1e-8), loss)
    return made


def vectors():
    x = RNG.normal(size=(8192, 32)).astype("float32")
    return x, (x[:, :10].argmax(1)).astype("int32"), 32


# a convolutional network with BatchNormalization


def convnet():
    x = h = fk.Input((16, 16, 3))
    for filters in (16, 32):
        h = layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(h)
        h = layers.MaxPooling2D()(layers.Activation("relu")(h))
    return fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))


def raw_convnet(params, state, x):
    new = {}
    for conv, norm in (("conv2d", "batch_normalization"), ("conv2d_1", "batch_normalization_1")):
        x = jax.lax.conv_general_dilated(
            x, params[conv]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        old = state[norm]
        new[norm] = {
            "moving_mean": 0.9 * old["moving_mean"] + 0.1 * mean,
            "moving_variance": 0.9 * old["moving_variance"] + 0.1 * variance,
        }
        scale = jax.lax.rsqrt(variance + 1e-5) * params[norm]["gamma"]
        x = jax.nn.relu(x * scale + (params[norm]["beta"] - mean * scale))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return dense(params["dense"], x.mean((1, 2))), new


def images():
    x = RNG.normal(size=(1920, 16, 16, 3)).astype("float32")
    return x, RNG.integers(0, 10, len(x)).astype("int32"), 32


# a masked LSTM


def lstm():
    ids = fk.Input((64,), dtype="int32")
    h = layers.Embedding(200, 32, mask_zero=True)(ids)
    return fk.Model(ids, layers.Dense(10)(layers.LSTM(64)(h)))


def raw_lstm(params, state, ids):
    p, mask = params["lstm"], ids != 0
    x = jnp.swapaxes(params["embedding"]["embeddings"][ids], 0, 1)
    zeros = jnp.zeros((ids.shape[0], 64))

    def body(carry, step):
        h, c = carry
        x, keep = step
        gates = x @ p["kernel"] + h @ p["recurrent_kernel"] + p["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
        keep = keep[:, None]
        return (jnp.where(keep, new_h, h), jnp.where(keep, new_c, c)), None

    (h, _), _ = jax.lax.scan(body, (zeros, zeros), (x, mask.T))
    return dense(params["dense"], h), state


def sequences():
    x = RNG.integers(1, 200, (640, 64)).astype("int32")
    x[np.arange(64) >= RNG.integers(20, 65, (640, 1))] = 0
    return x, RNG.integers(0, 10, len(x)).astype("int32"), 32


# a transformer of six blocks

WIDTH, HEADS, BLOCKS = 64, 4, 6


def attend(q, k, v):
    def heads(a):
        return a.reshape(*a.shape[:2], HEADS, a.shape[2] // HEADS)

    weights = jnp.einsum("bqhd,bkhd->bhqk", heads(q), heads(k)) / math.sqrt(WIDTH // HEADS)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(weights), heads(v))
    return mixed.reshape(q.shape)


def transformer():
    ids = fk.Input((32,), dtype="int32")
    h = layers.Embedding(200, WIDTH)(ids)
    for _ in range(BLOCKS):
        n = layers.LayerNormalization(epsilon=1e-5)(h)
        q, k, v = (layers.Dense(WIDTH)(n) for _ in range(3))
        h = h + layers.Dense(WIDTH)(fk.ops.lift(attend)(q, k, v))
        n = layers.LayerNormalization(epsilon=1e-5)(h)
        h = h + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="relu")(n))
    return fk.Model(ids, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))


def raw_transformer(params, state, ids):
    def number(name, i):
        return params[f"{name}_{i}" if i else name]

    def normalize(p, x):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["gamma"] + p["beta"]

    h = params["embedding"]["embeddings"][ids]
    for block in range(BLOCKS):
        first = 6 * block
        n = normalize(number("layer_normalization", 2 * block), h)
        q, k, v = (dense(number("dense", first + i), n) for i in range(3))
        h = h + dense(number("dense", first + 3), attend(q, k, v))
        n = normalize(number("layer_normalization", 2 * block + 1), h)
        inner = jax.nn.relu(dense(number("dense", first + 4), n))
        h = h + dense(number("dense", first + 5), inner)
    return dense(params[f"dense_{6 * BLOCKS}"], h.mean(1)), state


def tokens():
    x = RNG.integers(0, 200, (320, 32)).astype("int32")
    return x, RNG.integers(0, 10, len(x)).astype("int32"), 32


TABLE = {
    "mlp": Network(mlp, raw_mlp, vectors, "scan", keras_mlp),
    "convnet": Network(convnet, raw_convnet, images, "steps"),
    "lstm": Network(lstm, raw_lstm, sequences, "steps"),
    "transformer": Network(transformer, raw_transformer, tokens, "steps"),
}


# networks of convolutions: makers of the model, and of `(x, y, batch size)`


def lenet():
    x = h = fk.Input((28, 28, 1))
    h = layers.MaxPooling2D()(layers.Conv2D(6, 5, padding="same", activation="relu")(h))
    h = layers.MaxPooling2D()(layers.Conv2D(16, 5, activation="relu")(h))
    h = layers.Dense(120, activation="relu")(layers.Flatten()(h))
    return fk.Model(x, layers.Dense(10)(layers.Dense(84, activation="relu")(h)))


def digits():
    x = RNG.normal(size=(512, 28, 28, 1)).astype("float32")
    return x, RNG.integers(0, 10, len(x)).astype("int32"), 32


def unet():
    """U-Net of three levels, with BatchNormalization."""

    def block(h, filters):
        for _ in range(2):
            h = layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
            h = layers.Activation("relu")(layers.BatchNormalization()(h))
        return h

    x = h = fk.Input((64, 64, 3))
    skips = []
    for filters in (16, 32, 64):
        h = block(h, filters)
        skips.append(h)
        h = layers.MaxPooling2D()(h)
    h = block(h, 128)
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        h = layers.Conv2DTranspose(filters, 2, 2)(h)
        h = block(layers.Concatenate()([skip, h]), filters)
    return fk.Model(x, layers.Conv2D(4, 1)(h))


def segments():
    x = RNG.normal(size=(64, 64, 64, 3)).astype("float32")
    return x, RNG.integers(0, 4, x.shape[:3]).astype("int32"), 8


def wavenet():
    """Gated causal convolutions with dilations from 1 to 128, residuals and skips."""
    x = fk.Input((512, 1))
    h, skips = layers.Conv1D(32, 2, padding="causal")(x), []
    for dilation in (1, 2, 4, 8, 16, 32, 64, 128):
        content, gate = (
            layers.Conv1D(32, 2, padding="causal", dilation_rate=dilation, activation=activation)(h)
            for activation in ("tanh", "sigmoid")
        )
        gated = layers.Multiply()([content, gate])
        skips.append(layers.Conv1D(32, 1)(gated))
        h = layers.Add()([h, layers.Conv1D(32, 1)(gated)])
    h = layers.Activation("relu")(layers.Add()(skips))
    return fk.Model(x, layers.Conv1D(64, 1)(layers.Conv1D(64, 1, activation="relu")(h)))


def waves():
    x = RNG.normal(size=(64, 512, 1)).astype("float32")
    return x, RNG.integers(0, 64, x.shape[:2]).astype("int32"), 8


def application(name, size=96):
    """A network of `fk.applications` with logits of 10 classes, without dropout."""
    make, shape = getattr(fk.applications, name), (size, size, 3)
    model = make(weights=None, input_shape=shape, classes=10, classifier_activation=None)

    def change(path, layer):
        return layer.replace(rate=0.0) if isinstance(layer, layers.Dropout) else None

    return fk.engine.replace_layers(model, change)


def photographs():
    x = RNG.normal(size=(64, 96, 96, 3)).astype("float32")
    return x, RNG.integers(0, 10, len(x)).astype("int32"), 8


CONVOLUTIONS = {
    "LeNet": (lenet, digits),
    "U-Net": (unet, segments),
    "WaveNet": (wavenet, waves),
    "MobileNetV2": (functools.partial(application, "MobileNetV2"), photographs),
    "EfficientNetB0": (functools.partial(application, "EfficientNetB0"), photographs),
    "ResNet50": (functools.partial(application, "ResNet50"), photographs),
}

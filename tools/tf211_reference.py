"""Writes tests/data/tf211.json: models of tf.keras with functions of TensorFlow in their graphs.

Run it where TensorFlow 2.11 runs, not here: Python 3.10 with `pip install tensorflow==2.11.0`, then
`python tools/tf211_reference.py tests/data/tf211.json`. Where TensorFlow 2.1 runs (Python 3.7 with
`pip install tensorflow==2.1.0 "h5py<3" "protobuf<3.21" "numpy<1.20"`),
`python tools/tf211_reference.py tests/data/tf210.json` writes the same models as far as that version
saves them, as `TensorFlowOpLayer`.

For each model the JSON holds the `model_config` as `model.save` writes it, its weights by layer, and
the outputs on the inputs that stand there once, by shape and dtype.
"""

import json
import sys

import numpy as np
import tensorflow as tf

K = tf.keras.backend
LATER = int(tf.__version__.split(".")[1]) >= 4
TABLE = np.round(np.random.RandomState(3).uniform(-1, 1, (4, 2)), 2).astype("float32")
ROW = np.array([0.5, -1.0, 2.0, 0.25], "float32")


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
    return np.abs(values) / 2.5 + np.float32(0.1) if kind == "p" else values


MODELS = {
    "operators": ("x y", lambda x, y: [x + y, x - y, x * y, x / y, x // y, x % y, -x, abs(x)]),
    "operators_constant": ("x", lambda x: [x + 1.0, x - 1, x * 2.0, x / 4, x // 2, x % 3, x**2]),
    "operators_reflected": (
        "p",
        lambda p: [1.0 + p, 1 - p, 2.0 * p, 2 / p, 3 // p, 3 % p, 2**p],
    ),
    "operators_arrays": ("x", lambda x: [x * ROW, ROW - x, tf.add(x, [1.0, 2, 3, 4]), x @ TABLE]),
    "early_sizes": (
        "x",
        lambda x: [
            tf.reshape(x, [tf.shape(x)[0], -1]),
            x[:, : tf.shape(x)[1] - 1],
            tf.gather(x, [0, 2], axis=1),
        ],
    ),
    "integers": (
        "i",
        lambda i: [i + 1, i * 2, i // 3, i % 3, tf.math.mod(i, -3), tf.maximum(i, 0), abs(i)],
    ),
    "comparisons": (
        "x y",
        lambda x, y: [
            tf.cast(v, "float32")
            for v in (
                x > y,
                x >= y,
                x < 0,
                x <= 0.5,
                tf.equal(x, y),
                tf.not_equal(x, 0.0),
                (x > 0) & (y > 0),
                (x > 0) | (y > 0),
                (x > 0) ^ (y > 0),
                ~(x > 0),
            )
        ],
    ),
    "arithmetic": (
        "x y",
        lambda x, y: [
            tf.add(x, y),
            tf.subtract(x, y),
            tf.multiply(x, y),
            tf.divide(x, y),
            tf.math.divide_no_nan(x, tf.nn.relu(y)),
            tf.math.multiply_no_nan(x, tf.nn.relu(y)),
            tf.math.floormod(x, y),
            tf.math.floordiv(x, y),
            tf.maximum(x, y),
            tf.minimum(x, y),
            tf.math.squared_difference(x, y),
            tf.atan2(x, y),
            tf.add_n([x, y, x]),
        ],
    ),
    "powers": (
        "p",
        lambda p: [
            tf.pow(p, 1.5),
            tf.sqrt(p),
            tf.math.rsqrt(p),
            tf.square(p),
            tf.exp(p),
            tf.math.expm1(p),
            tf.math.log(p),
            tf.math.log1p(p),
            tf.math.reciprocal(p),
            tf.math.xlogy(p, p),
            tf.math.xdivy(p, p),
        ],
    ),
    "unary": (
        "x",
        lambda x: [
            tf.abs(x),
            tf.negative(x),
            tf.sign(x),
            tf.floor(x),
            tf.math.ceil(x),
            tf.round(x * 2.5),
            tf.math.rint(x * 2.5),
            tf.math.erf(x),
            tf.math.erfc(x),
            tf.identity(x) + tf.stop_gradient(x),
        ],
    ),
    "trigonometric": (
        "x",
        lambda x: [
            tf.sin(x),
            tf.cos(x),
            tf.tan(x),
            tf.asin(x / 3),
            tf.acos(x / 3),
            tf.atan(x),
            tf.sinh(x),
            tf.cosh(x),
            tf.tanh(x),
            tf.asinh(x),
            tf.acosh(x * x + 1.0),
            tf.atanh(x / 3),
        ],
    ),
    "tests": (
        "x",
        lambda x: [
            tf.cast(f(v), "float32")
            for v in [x / tf.nn.relu(tf.round(x))]
            for f in (tf.math.is_nan, tf.math.is_inf, tf.math.is_finite)
        ],
    ),
    "activations": (
        "x",
        lambda x: [
            tf.nn.relu(x),
            tf.nn.relu6(x * 5),
            tf.nn.elu(x),
            tf.nn.selu(x),
            tf.nn.leaky_relu(x),
            tf.nn.leaky_relu(x, alpha=0.3),
            tf.nn.softmax(x),
            tf.nn.softmax(x, axis=1),
            tf.nn.log_softmax(x),
            tf.nn.softplus(x),
            tf.nn.softsign(x),
            tf.sigmoid(x),
            tf.math.log_sigmoid(x),
            tf.nn.tanh(x),
        ],
    ),
    "later_activations": (
        "x",
        lambda x: [
            tf.nn.silu(x),
            tf.nn.swish(x),
            tf.nn.gelu(x),
            tf.nn.gelu(x, approximate=True),
            tf.nn.crelu(x),
            tf.keras.activations.gelu(x),
            tf.keras.activations.hard_sigmoid(x),
            tf.keras.activations.relu(x, max_value=1.0, threshold=0.5),
            tf.keras.activations.elu(x, 0.5),
            tf.keras.activations.swish(x),
        ],
    ),
    "reductions": (
        "x",
        lambda x: [
            tf.reduce_sum(x, axis=1),
            tf.reduce_sum(x),
            tf.reduce_mean(x, axis=[1, 2], keepdims=True),
            tf.reduce_max(x, axis=-1),
            tf.reduce_min(x, axis=(1, 2)),
            tf.reduce_prod(x, axis=-1, keepdims=True),
            tf.reduce_logsumexp(x, axis=-1),
            tf.math.reduce_std(x, axis=1),
            tf.math.reduce_variance(x, axis=1),
            tf.cast(tf.reduce_any(x > 1, axis=1), "float32"),
            tf.cast(tf.reduce_all(x > -1, axis=1), "float32"),
        ],
    ),
    "integer_mean": ("i", lambda i: [tf.reduce_mean(i, axis=1), tf.reduce_sum(i, axis=1)]),
    "norms": (
        "x",
        lambda x: [
            tf.norm(x, axis=-1),
            tf.norm(x, ord=1, axis=1, keepdims=True),
            tf.norm(x, ord=np.inf, axis=1),
            tf.norm(x, axis=[1, 2]),
            tf.math.l2_normalize(x, axis=-1),
            tf.nn.l2_normalize(x * 1e-8, axis=[1, 2]),
            tf.math.reduce_euclidean_norm(x, axis=1),
            tf.clip_by_norm(x, 1.5, axes=[2]),
            tf.nn.l2_loss(x),
        ],
    ),
    "cumulative": (
        "x",
        lambda x: [
            tf.cumsum(x),
            tf.cumsum(x, axis=1, reverse=True),
            tf.math.cumprod(x, axis=-1),
            tf.clip_by_value(x, -0.5, 0.75),
            tf.clip_by_value(x, 0, 1),
            tf.clip_by_value(x, -ROW * ROW, ROW * ROW),
        ],
    ),
    "order": (
        "x",
        lambda x: [
            tf.cast(tf.argmax(x, axis=-1), "float32"),
            tf.cast(tf.argmin(x, axis=1), "float32"),
            tf.cast(tf.argmax(x), "float32"),
            tf.math.top_k(x, k=2)[0],
            tf.cast(tf.math.top_k(x, k=2)[1], "float32"),
            tf.sort(x),
            tf.sort(x, axis=1, direction="DESCENDING"),
            tf.cast(tf.argsort(x), "float32"),
            tf.cast(tf.math.count_nonzero(tf.round(x), axis=1), "float32"),
        ],
    ),
    "products": (
        "x y m",
        lambda x, y, m: [
            tf.matmul(x, y, transpose_b=True),
            tf.matmul(x, y, transpose_a=True),
            tf.matmul(x, TABLE),
            tf.linalg.matvec(m, x[:, :, 0]),
            tf.linalg.matvec(x, ROW),
            tf.tensordot(x, TABLE, axes=1),
            tf.tensordot(x, TABLE, axes=[[2], [0]]),
            tf.linalg.band_part(m, 1, 0),
            tf.linalg.band_part(m, -1, 0),
            tf.linalg.trace(m),
            tf.linalg.diag_part(m),
            tf.linalg.matrix_transpose(x),
            tf.linalg.inv(m),
            tf.linalg.det(m),
            tf.linalg.cross(m, m[:, ::-1]),
        ],
    ),
    "einsum": ("x y", lambda x, y: [tf.einsum("bij,bkj->bik", x, y)]),
    "shapes": (
        "x",
        lambda x: [
            tf.reshape(x, [-1, 12]),
            tf.reshape(x, (-1, 2, 6)),
            tf.transpose(x, [0, 2, 1]),
            tf.expand_dims(x, 1),
            tf.squeeze(x[:, :1], axis=1),
            tf.squeeze(x[:, :1, :1], axis=[1, 2]),
            tf.tile(x, [1, 2, 1]),
            tf.pad(x, [[0, 0], [1, 2], [0, 1]]),
            tf.pad(x, [[0, 0], [1, 1], [0, 0]], mode="REFLECT"),
            tf.pad(x, [[0, 0], [1, 1], [1, 0]], mode="SYMMETRIC"),
            tf.pad(x, [[0, 0], [1, 1], [0, 0]], constant_values=2.5),
            tf.reverse(x, [1, 2]),
            tf.roll(x, 1, 1),
        ],
    ),
    "repeated": ("x", lambda x: [tf.repeat(x, 2, axis=1), tf.repeat(x, [1, 0, 2], axis=1)]),
    "transposed": ("x", lambda x: [tf.transpose(x), tf.squeeze(x[:, :1])]),
    "joined": (
        "x y",
        lambda x, y: [
            tf.concat([x, y], -1),
            tf.concat([x, y, x], axis=1),
            tf.stack([x, y], axis=1),
            tf.stack([x, y]),
            *tf.split(x, 2, axis=-1),
            *tf.split(y, [1, 3], axis=2),
            *tf.split(y, [1, -1], axis=2),
            *tf.unstack(x, axis=1),
        ],
    ),
    "slices": (
        "x",
        lambda x: [
            x[:, 0],
            x[:, -1, 1:3],
            x[..., 1],
            x[..., 1:4, None],
            x[:, ::-1, tf.newaxis, -1],
            x[:, 1:, ::2],
            x[1],
            x[:, None, ..., ::-2],
            tf.slice(x, [0, 1, 0], [-1, 2, 3]),
            tf.strided_slice(x, [0, 1], [0, 3], begin_mask=1, end_mask=1),
        ],
    ),
    "gathered": (
        "x ids",
        lambda x, ids: [
            tf.gather(x, [0, 2], axis=1),
            tf.gather(x, ids, axis=2),
            tf.gather(TABLE, ids),
            tf.gather(x, ids, batch_dims=1),
            tf.gather(x, ids[:, 0], axis=1, batch_dims=1),
            tf.gather_nd(x, [[0, 1], [1, 2]]),
            tf.nn.embedding_lookup(TABLE, ids),
        ],
    ),
    "selected": (
        "x y",
        lambda x, y: [
            tf.where(x > 0, x, y),
            tf.where(x > 0, x, 0.0),
            tf.where(x > y, 1.0, -1.0),
            tf.where(x > 0, tf.ones_like(x), tf.zeros_like(y)),
            tf.cast(tf.cast(x * 3, tf.int32), tf.float32),
            tf.cast(tf.cast(x, tf.bool), "float32"),
            tf.cast(tf.cast(x * 3, tf.int64) + 1, "float64"),
        ],
    ),
    "encoded": (
        "ids n",
        lambda ids, n: [
            tf.one_hot(ids, 4),
            tf.one_hot(ids, depth=3, on_value=2.0, off_value=-1.0, axis=1),
            tf.sequence_mask(n, 5, dtype=tf.float32),
        ],
    ),
    "images": (
        "image rgb",
        lambda image, rgb: [
            tf.image.resize(image, (8, 6)),
            tf.image.resize(image, (3, 2)),
            tf.image.resize(image, [7, 7], method="nearest"),
            tf.image.resize(image, [3, 3], method="nearest"),
            tf.nn.depth_to_space(image, 2),
            tf.nn.space_to_depth(image, 2),
            tf.nn.max_pool2d(image, 2, 2, "VALID"),
            tf.nn.max_pool2d(image, 3, 2, "SAME"),
            tf.nn.avg_pool2d(image, 3, 2, "SAME"),
            tf.nn.avg_pool(image, [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
            tf.nn.conv2d(image, np.reshape(TABLE, (1, 2, 4, 1)), 1, "SAME"),
            tf.nn.bias_add(image, ROW),
            tf.nn.depthwise_conv2d(image, np.reshape(TABLE, (1, 2, 4, 1)), [1, 1, 1, 1], "SAME"),
        ],
    ),
    "more_images": (
        "rgb",
        lambda rgb: [
            tf.image.flip_left_right(rgb),
            tf.image.flip_up_down(rgb),
            tf.image.rgb_to_grayscale(rgb),
            tf.image.grayscale_to_rgb(rgb[..., :1]),
            tf.image.per_image_standardization(rgb),
        ],
    ),
    "sizes": (
        "x y",
        lambda x, y: [
            tf.reshape(x, [tf.shape(x)[0], 12]),
            tf.reshape(x, [tf.shape(x)[0], -1]),
            tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[2], tf.shape(x)[1]]),
            tf.reshape(x, tf.shape(y)),
            tf.reshape(x, tf.concat([tf.shape(x)[:1], [2, 6]], 0)),
            tf.reshape(x, tf.stack([tf.shape(x)[0] * 3, 4])),
            tf.reshape(tf.reshape(x, [-1, 4]), [tf.shape(y)[0], 3, 4]),
            x[:, : tf.shape(x)[1] - 1],
            x[:, tf.shape(x)[1] // 2 :],
            x + tf.cast(tf.range(tf.shape(x)[2]), tf.float32),
            x / tf.sqrt(tf.cast(tf.shape(x)[-1], tf.float32)),
            tf.tile(x[:, :1], [1, tf.shape(y)[1], 1]) + y,
            tf.concat([x, tf.zeros([tf.shape(x)[0], 2, 4])], axis=1),
            tf.concat([x, tf.fill([tf.shape(x)[0], 1, 4], 7.0)], axis=1),
            tf.concat([x, tf.tile(np.reshape(ROW, (1, 1, 4)), [tf.shape(x)[0], 1, 1])], axis=1),
            x + tf.broadcast_to(ROW, tf.shape(x)),
        ],
    ),
    "open_sizes": (
        "t",
        lambda t: [
            tf.reshape(t, [tf.shape(t)[0], tf.shape(t)[1], 2, 2]),
            tf.reshape(t, [tf.shape(t)[0], -1, 2, 2]),
            tf.reshape(t, [tf.shape(t)[0] * tf.shape(t)[1], 4]),
            t[:, : tf.shape(t)[1] - 1],
            tf.reshape(tf.reshape(t, [-1, 2, 2]), [-1, 4]),
        ],
    ),
    "backend": (
        "x y",
        lambda x, y: [
            K.mean(x, axis=1),
            K.sum(x, axis=-1, keepdims=True),
            K.var(x, axis=1) + K.std(x, axis=1),
            K.dot(x, K.constant(TABLE)),
            K.batch_dot(x, y, axes=2),
            K.l2_normalize(x, axis=1),
            K.clip(x, 0, 1),
            K.pow(x, 2),
            K.concatenate([x, y]),
            K.permute_dimensions(x, (0, 2, 1)),
            K.reshape(x, (-1, 12)),
            K.batch_flatten(x),
            K.expand_dims(x, 1),
            K.repeat_elements(x, 2, 1),
            K.tile(x, [1, 2, 1]),
            K.relu(x, max_value=6),
            K.relu(x, alpha=0.1),
            K.softmax(x),
            K.hard_sigmoid(x),
            K.elu(x, 0.5),
            K.stack([x, y]),
            K.sqrt(x) + K.square(x) + K.round(x) + K.sign(x) + K.epsilon(),
            K.switch(x > 0, x, -x),
            K.reverse(x, 1),
            K.bias_add(x, K.constant(ROW)),
            K.cast(K.argmax(x), "float32"),
        ],
    ),
    "backend_images": (
        "image",
        lambda image: [
            K.resize_images(image, 2, 2, "channels_last"),
            K.pool2d(image, (2, 2)),
            K.spatial_2d_padding(image),
        ],
    ),
    "losses": (
        "x y",
        lambda x, y: [
            tf.keras.losses.mean_squared_error(x, y),
            tf.keras.losses.cosine_similarity(x, y),
            tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(x), logits=y),
            *tf.nn.moments(x, [1]),
            tf.nn.batch_normalization(x, 0.5, 2.0, ROW, ROW, 1e-3),
        ],
    ),
}
#: what TensorFlow 2.1 saves and opens again
EARLY = (
    *("operators", "operators_constant", "operators_reflected", "arithmetic", "powers", "unary"),
    *("activations", "reductions", "products", "shapes", "joined", "slices", "selected", "images"),
    *("einsum", "early_sizes"),
)


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


def number(x):
    return float(f"{x:.7g}")


def packed(array):
    array = np.asarray(array)
    if array.dtype.kind == "f":
        values = [number(v) for v in array.ravel()]
    else:
        values = [int(v) for v in array.ravel()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}


def short(config):
    """A model's configuration without what says nothing here."""
    for layer in config["layers"]:
        inner = layer["config"]
        if layer["class_name"] in ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer"):
            layer["config"] = {
                k: v for k, v in inner.items() if k not in ("trainable", "dtype", "name")
            }
            node = inner.get("node_def")
            if node:
                node["attr"] = {
                    k: v
                    for k, v in node["attr"].items()
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
    for name, (words, function) in MODELS.items():
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
    data = {"tensorflow": tf.__version__, "keras": tf.keras.__version__}
    with open(path, "w") as file:
        json.dump({**data, "arrays": arrays, "rows": rows}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])

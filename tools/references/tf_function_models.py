"""The models of tools/references/tf211_reference.py: functions of TensorFlow by groups, on named inputs."""

import numpy as np
import tensorflow as tf

TABLE = np.round(np.random.RandomState(3).uniform(-1, 1, (4, 2)), 2).astype("float32")
ROW = np.array([0.5, -1.0, 2.0, 0.25], "float32")


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
            *[f(p) for f in (tf.sqrt, tf.math.rsqrt, tf.square, tf.math.reciprocal)],
            *[f(p) for f in (tf.exp, tf.math.expm1, tf.math.log, tf.math.log1p)],
            tf.math.xlogy(p, p),
            tf.math.xdivy(p, p),
        ],
    ),
    "unary": (
        "x",
        lambda x: [
            *[f(x) for f in (tf.abs, tf.negative, tf.sign, tf.floor, tf.math.ceil)],
            *[f(x) for f in (tf.math.erf, tf.math.erfc)],
            tf.round(x * 2.5),
            tf.math.rint(x * 2.5),
            tf.identity(x) + tf.stop_gradient(x),
        ],
    ),
    "trigonometric": (
        "x",
        lambda x: [
            *[f(x) for f in (tf.sin, tf.cos, tf.tan, tf.atan, tf.sinh, tf.cosh, tf.tanh, tf.asinh)],
            *[f(x / 3) for f in (tf.asin, tf.acos, tf.atanh)],
            tf.acosh(x * x + 1.0),
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
            *[f(x * 3) for f in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.selu)],
            tf.nn.leaky_relu(x),
            tf.nn.leaky_relu(x, alpha=0.3),
            tf.nn.softmax(x),
            tf.nn.softmax(x, axis=1),
            tf.nn.log_softmax(x),
            *[f(x) for f in (tf.nn.softplus, tf.nn.softsign, tf.sigmoid, tf.math.log_sigmoid)],
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
            *tf.linalg.normalize(x, axis=-1),
            tf.nn.l2_loss(x),
        ],
    ),
    "cumulative": (
        "x",
        lambda x: [
            tf.cumsum(x),
            tf.cumsum(x, axis=1, reverse=True),
            tf.cumsum(x, axis=1, exclusive=True),
            tf.math.cumprod(x, axis=-1, exclusive=True, reverse=True),
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
    "others": (
        "p m",
        lambda p, m: [
            tf.linalg.adjoint(p),
            tf.linalg.cholesky(tf.matmul(m, m, transpose_a=True) + tf.eye(3)),
            tf.ensure_shape(p, (None, 3, 4)) + tf.ones([3, 4]),
            tf.math.erfinv(p / 2),
            tf.math.accumulate_n([p, p]),
            tf.cast(tf.math.logical_xor(p > 0.5, p > 0.7), "float32"),
            tf.scalar_mul(2.0, p) * float(tf.rank(TABLE)),
            tf.math.xlog1py(p, p) + tf.cast(tf.rank(p), "float32"),
            tf.cast(tf.saturate_cast(p * 300, tf.uint8), "float32"),
            p * tf.cast(tf.size(p[0]), "float32"),
        ],
    ),
}
#: what TensorFlow 2.1 saves and opens again
EARLY = (
    *("operators", "operators_constant", "operators_reflected", "arithmetic", "powers", "unary"),
    *("activations", "reductions", "products", "shapes", "joined", "slices", "selected", "images"),
    *(
        "einsum",
        "early_sizes",
        "order",
        "cumulative",
        "comparisons",
        "trigonometric",
        "encoded",
        "integers",
        "tests",
        "norms",
    ),
)

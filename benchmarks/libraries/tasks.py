"""What the programs of all libraries share: data, loss and optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

KEY = jax.random.key(0)
OPTIMIZER = optax.adam(1e-3)
CLASSES = 10
SHAPES = {
    "mlp": (64, 32),
    "convnet": (16, 16, 16, 3),
    "lstm": (16, 32, 16),
    "transformer": (8, 64, 64),
    "siamese": (32, 2, 32),
}


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def batch(task):
    """Returns inputs and class numbers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=SHAPES[task]).astype("float32")
    return x, rng.integers(0, CLASSES, len(x)).astype("int32")


def weights_of_shape(weight):
    """Returns an array that depends on the shape alone, in any order of its axes.

    The libraries order axes, gates and heads differently. The value at an index is a function of the
    sum of the index, modulo 16, so that each of these orders gives the same network.
    """
    if weight.ndim < 2 or weight.shape == (4, 16):  # scales are one; biases, also of heads, zero
        return jnp.where(jnp.all(weight == 1), weight, 0 * weight)
    if weight.ndim == 3:  # kernels of heads, (d, heads, e) or (heads, e, d)
        sides = (64, -1) if weight.shape[0] == 64 else (-1, 64)
        return weights_of_shape(weight.reshape(sides)).reshape(weight.shape)
    sums = sum(np.indices(weight.shape) % 16)
    return jnp.asarray(0.05 * np.sin(1.7 * sums + 1), weight.dtype)

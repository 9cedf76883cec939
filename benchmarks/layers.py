"""Forward and gradient of single layers against Keras 3 on JAX, both compiled, in one process.

    python benchmarks/layers.py [rounds] [layer ...]

Keras's layer is made from our JSON and gets our weights. Both sides compute the output of a
training call, the gradients with respect to weights and floating inputs, and the new state; the
numbers must agree. Goal: never slower than Keras (ratio at most 1.02).
"""

import sys

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import layers

import keras  # isort: skip

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def lengths(batch, time):
    """A mask of sequences of different lengths."""
    return np.arange(time) < RNG.integers(time // 2, time + 1, (batch, 1))


# the layer, its inputs, a mask for the first input or None
TABLE = {
    "Conv2D": (layers.Conv2D(32, 3, padding="same"), [normal(8, 32, 32, 16)], None),
    "LSTM": (layers.LSTM(64), [normal(32, 64, 32)], lengths(32, 64)),
    "LSTM, no mask": (layers.LSTM(64), [normal(32, 64, 32)], None),
    "GRU": (layers.GRU(64), [normal(32, 64, 32)], lengths(32, 64)),
    "GRU, no mask": (layers.GRU(64), [normal(32, 64, 32)], None),
    "MultiHeadAttention": (layers.MultiHeadAttention(4, 16), [normal(8, 64, 64)] * 2, None),
    "BatchNormalization": (layers.BatchNormalization(), [normal(16, 32, 32, 32)], None),
    "Embedding": (layers.Embedding(2000, 64), [RNG.integers(0, 2000, (64, 64), "int32")], None),
    "LayerNormalization": (layers.LayerNormalization(), [normal(64, 64, 64)], None),
    "Dense": (layers.Dense(256, "relu"), [normal(256, 256)], None),
}
NAMES = sys.argv[2:] or list(TABLE)


def score(value):
    return jnp.sum(jnp.square(value))


def sides(layer, inputs, mask):
    """`(ours, theirs, shape)`: functions that compute once, and the structure of our weights."""
    built = layer.build(jax.random.key(0), *inputs)
    state = built.init_state(*inputs)
    given = tuple(i for i, x in enumerate(inputs) if np.issubdtype(x.dtype, np.floating))
    floats = [inputs[i] for i in given]

    def join(floats):
        placed = dict(zip(given, floats, strict=True))
        return [placed.get(i, x) for i, x in enumerate(inputs)]

    leaves, shape = jax.tree.flatten(built)  # as the loop hands weights over: a flat tuple

    def ours(leaves, floats, state):
        out = jax.tree.unflatten(shape, leaves).apply(
            *join(floats), state=state, training=True, mask=mask
        )
        return score(out.value), out.updates

    ours = jax.jit(jax.value_and_grad(ours, argnums=(0, 1), has_aux=True))

    made = keras.layers.deserialize(layers.serialize(layer))
    made(*inputs)
    made.set_weights(built.get_weights(state))
    options = {} if mask is None else {"mask": mask}
    if made._call_has_training_arg:
        options["training"] = True

    def theirs(weights, floats, others):
        value, others = made.stateless_call(weights, others, *join(floats), **options)
        return score(value), others

    theirs = jax.jit(jax.value_and_grad(theirs, argnums=(0, 1), has_aux=True))
    weights = [v.value for v in made.trainable_variables]
    others = [v.value for v in made.non_trainable_variables]
    return lambda: ours(leaves, floats, state), lambda: theirs(weights, floats, others), shape


def agree(one, other, shape):
    """Whether both sides computed the same value and gradients."""
    (value, _), (leaves, floats) = one
    (expected, _), (their_weights, their_floats) = other
    pairs = zip(
        [value, *jax.tree.unflatten(shape, leaves).get_weights(), *floats],
        [expected, *their_weights, *their_floats],
        strict=True,
    )
    for a, b in pairs:
        scale = max(float(np.abs(b).max()), 1.0)
        assert float(np.abs(np.asarray(a) - np.asarray(b)).max()) < 1e-4 * scale


def repeated(function, count):
    def run():
        for _ in range(count):
            out = function()
        jax.block_until_ready(out)

    return run


slower = []
for name in NAMES:
    ours, theirs, shape = sides(*TABLE[name])
    agree(ours(), theirs(), shape)
    once = min(meter.compare({"keras": repeated(theirs, 1)}, 5)["keras"])
    count = max(int(0.05 / once), 1)
    contenders = {"keras": theirs, "keras again": theirs, "fkeras": ours}
    times = meter.compare({side: repeated(f, count) for side, f in contenders.items()}, ROUNDS)
    ratios = meter.report(f"{name}: forward and gradient, {count} times", times, ("fkeras", 1.02))
    if ratios["fkeras"] > 1.02:
        slower.append(name)
print(f"\nslower than Keras by more than 0.02: {', '.join(slower) or 'none'}")

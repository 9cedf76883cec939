"""Forward and gradient of single layers, against Keras 3 on JAX and on TensorFlow.

    python benchmarks/layers.py [--rounds N] [--tensorflow PYTHON] [layer ...]

Keras's layer is made from our JSON and gets our weights. All sides compute the output of a training call
and the gradients with respect to weights and floating inputs, compiled, with all threads; the numbers
must agree. Keras on JAX runs in this process, Keras on TensorFlow in a process of the interpreter
PYTHON, in turns. Goal: at most 1.25 of the faster one.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics

# XLA has another, slow convolution for one thread
os.environ.setdefault("XLA_FLAGS", "")
os.environ.setdefault("NPROC", str(os.cpu_count()))

import meter  # isort: skip

import jax
import jax.numpy as jnp
import numpy as np
import peer

from fkeras import layers

import keras  # isort: skip

RNG = np.random.default_rng(0)
GOAL = 1.25


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def distinct(*shape):
    """Numbers without ties: TensorFlow gives the gradient of equal maxima to another cell."""
    return RNG.permutation(np.linspace(-3, 3, math.prod(shape), dtype="float32")).reshape(shape)


def lengths(batch, time):
    """A mask of sequences of different lengths."""
    return np.arange(time) < RNG.integers(time // 2, time + 1, (batch, 1))


@dataclasses.dataclass(frozen=True)
class Row:
    """A layer and its call.

    Attributes:
        mask: of the first input, or None.
        options: the other arguments of the call.
        tensorflow: whether Keras on TensorFlow computes the same gradients.
    """

    layer: layers.Layer
    inputs: tuple
    mask: np.ndarray | None
    options: dict
    tensorflow: bool


def row(layer, *inputs, mask=None, tensorflow=True, **options):
    return Row(layer, inputs, mask, options, tensorflow)


TABLE = {
    "DepthwiseConv1D 5": row(layers.DepthwiseConv1D(5, padding="same"), normal(16, 256, 64)),
    "DepthwiseConv1D 5, stride 2": row(
        layers.DepthwiseConv1D(5, 2, padding="same"), normal(16, 256, 64)
    ),
    "DepthwiseConv1D 3, dilation 4": row(
        layers.DepthwiseConv1D(3, padding="same", dilation_rate=4), normal(16, 256, 64)
    ),
    "DepthwiseConv1D 5, multiplier 2": row(
        layers.DepthwiseConv1D(5, padding="same", depth_multiplier=2), normal(16, 256, 32)
    ),
    "DepthwiseConv2D 3, stride 2": row(
        layers.DepthwiseConv2D(3, 2, padding="same"), normal(8, 56, 56, 32)
    ),
    "DepthwiseConv2D 3": row(layers.DepthwiseConv2D(3, padding="same"), normal(16, 28, 28, 64)),
    "DepthwiseConv2D 3, multiplier 2": row(
        layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2), normal(8, 28, 28, 32)
    ),
    "DepthwiseConv2D 7": row(layers.DepthwiseConv2D(7, padding="same"), normal(8, 28, 28, 32)),
    "DepthwiseConv2D 3, dilation 2": row(
        layers.DepthwiseConv2D(3, padding="same", dilation_rate=2), normal(8, 28, 28, 32)
    ),
    "DepthwiseConv2D 5, stride 2": row(
        layers.DepthwiseConv2D(5, 2, padding="same"), normal(8, 56, 56, 32)
    ),
    "DepthwiseConv2D 3, stride 2, multiplier 2": row(
        layers.DepthwiseConv2D(3, 2, padding="same", depth_multiplier=2), normal(8, 28, 28, 32)
    ),
    "SeparableConv1D 5": row(layers.SeparableConv1D(64, 5, padding="same"), normal(16, 256, 64)),
    "SeparableConv2D 3": row(layers.SeparableConv2D(64, 3, padding="same"), normal(16, 28, 28, 64)),
    "SeparableConv2D 3, stride 2": row(
        layers.SeparableConv2D(64, 3, 2, padding="same"), normal(16, 28, 28, 64)
    ),
    "SeparableConv2D 5, multiplier 2": row(
        layers.SeparableConv2D(32, 5, padding="same", depth_multiplier=2), normal(8, 28, 28, 32)
    ),
    "MaxPooling1D 2": row(layers.MaxPooling1D(2), distinct(16, 256, 64)),
    "MaxPooling1D 3, stride 2": row(
        layers.MaxPooling1D(3, 2, padding="same"), distinct(16, 256, 64)
    ),
    "MaxPooling2D 3, stride 2": row(
        layers.MaxPooling2D(3, 2, padding="same"), distinct(16, 56, 56, 32)
    ),
    "MaxPooling2D 2": row(layers.MaxPooling2D(2), distinct(16, 56, 56, 32)),
    "MaxPooling2D 3, stride 1": row(
        layers.MaxPooling2D(3, 1, padding="same"), distinct(8, 28, 28, 64)
    ),
    "MaxPooling2D 5, stride 3": row(layers.MaxPooling2D(5, 3), distinct(8, 56, 56, 32)),
    "MaxPooling3D 2": row(layers.MaxPooling3D(2), distinct(8, 16, 16, 16, 16)),
    "AveragePooling1D 2": row(layers.AveragePooling1D(2), normal(16, 256, 64)),
    "AveragePooling2D 2": row(layers.AveragePooling2D(2), normal(16, 56, 56, 32)),
    "AveragePooling2D 3, stride 2": row(
        layers.AveragePooling2D(3, 2, padding="same"), normal(16, 56, 56, 32)
    ),
    "AveragePooling2D 3, stride 1": row(
        layers.AveragePooling2D(3, 1, padding="same"), normal(8, 28, 28, 64)
    ),
    "AveragePooling3D 2": row(layers.AveragePooling3D(2), normal(8, 16, 16, 16, 16)),
    "GlobalAveragePooling1D": row(layers.GlobalAveragePooling1D(), normal(16, 256, 64)),
    "GlobalAveragePooling2D": row(layers.GlobalAveragePooling2D(), normal(16, 28, 28, 64)),
    "GlobalAveragePooling3D": row(layers.GlobalAveragePooling3D(), normal(8, 12, 12, 12, 32)),
    "GlobalMaxPooling1D": row(layers.GlobalMaxPooling1D(), normal(16, 256, 64)),
    "GlobalMaxPooling2D": row(layers.GlobalMaxPooling2D(), normal(16, 28, 28, 64)),
    "GlobalMaxPooling3D": row(layers.GlobalMaxPooling3D(), normal(8, 12, 12, 12, 32)),
    # 28 is no multiple of 6: with a multiple, Keras on JAX reads past the end and gives nan
    "AdaptiveAveragePooling2D 6": row(layers.AdaptiveAveragePooling2D(6), normal(16, 28, 28, 64)),
    "AdaptiveMaxPooling2D 6": row(layers.AdaptiveMaxPooling2D(6), distinct(16, 28, 28, 64)),
    "Conv1DTranspose 4, stride 2": row(
        layers.Conv1DTranspose(32, 4, 2, padding="same"), normal(16, 128, 32)
    ),
    "Conv1DTranspose 3": row(layers.Conv1DTranspose(32, 3, padding="same"), normal(16, 256, 32)),
    "Conv1DTranspose 8, stride 4": row(
        layers.Conv1DTranspose(32, 8, 4, padding="same"), normal(16, 128, 32)
    ),
    "Conv2DTranspose 3, stride 2": row(
        layers.Conv2DTranspose(32, 3, 2, padding="same"), normal(16, 14, 14, 64)
    ),
    "Conv2DTranspose 2, stride 2": row(layers.Conv2DTranspose(32, 2, 2), normal(8, 16, 16, 64)),
    "Conv2DTranspose 5, stride 2": row(
        layers.Conv2DTranspose(32, 5, 2, padding="same"), normal(8, 14, 14, 32)
    ),
    "Conv2DTranspose 3": row(layers.Conv2DTranspose(32, 3, padding="same"), normal(8, 28, 28, 32)),
    "Conv3DTranspose 3, stride 2": row(
        layers.Conv3DTranspose(16, 3, 2, padding="same"), normal(4, 6, 6, 6, 16)
    ),
    "Conv3DTranspose 2, stride 2": row(layers.Conv3DTranspose(16, 2, 2), normal(4, 8, 8, 8, 32)),
    "Conv3DTranspose 3": row(
        layers.Conv3DTranspose(16, 3, padding="same"), normal(4, 12, 12, 12, 16)
    ),
    "Conv1D 5": row(layers.Conv1D(64, 5, padding="causal"), normal(16, 256, 64)),
    "Conv1D 1": row(layers.Conv1D(64, 1), normal(16, 256, 64)),
    "Conv1D 3, stride 2": row(layers.Conv1D(64, 3, 2, padding="same"), normal(16, 256, 64)),
    "Conv1D 2, dilation 8": row(
        layers.Conv1D(32, 2, padding="causal", dilation_rate=8), normal(8, 512, 32)
    ),
    "Conv1D 5, 8 groups": row(layers.Conv1D(64, 5, padding="same", groups=8), normal(16, 256, 64)),
    "Conv2D 3": row(layers.Conv2D(32, 3, padding="same"), normal(8, 32, 32, 16)),
    "Conv2D 3, stride 2": row(layers.Conv2D(32, 3, 2, padding="same"), normal(8, 32, 32, 16)),
    "Conv2D 3, dilation 2": row(
        layers.Conv2D(32, 3, padding="same", dilation_rate=2), normal(8, 32, 32, 16)
    ),
    "Conv2D 1": row(layers.Conv2D(64, 1), normal(16, 28, 28, 64)),
    "Conv2D 3, 8 groups": row(
        layers.Conv2D(64, 3, padding="same", groups=8), normal(8, 28, 28, 64)
    ),
    "Conv2D 5": row(layers.Conv2D(32, 5, padding="same"), normal(8, 28, 28, 16)),
    "Conv2D 5, one channel": row(layers.Conv2D(6, 5, padding="same"), normal(32, 28, 28, 1)),
    "Conv2D 7, stride 2": row(layers.Conv2D(32, 7, 2, padding="same"), normal(4, 96, 96, 3)),
    "Conv2D 3, dilation 4": row(
        layers.Conv2D(32, 3, padding="same", dilation_rate=4), normal(8, 32, 32, 16)
    ),
    "Conv2D 3, wide": row(layers.Conv2D(256, 3, padding="same"), normal(8, 7, 7, 256)),
    "Conv2D 1, stride 2": row(layers.Conv2D(128, 1, 2), normal(16, 28, 28, 64)),
    "Conv3D 3": row(layers.Conv3D(16, 3, padding="same"), normal(8, 12, 12, 12, 16)),
    "Conv3D 3, stride 2": row(layers.Conv3D(16, 3, 2, padding="same"), normal(8, 12, 12, 12, 16)),
    "Conv3D 1": row(layers.Conv3D(32, 1), normal(8, 12, 12, 12, 32)),
    "Conv3D 3, dilation 2": row(
        layers.Conv3D(16, 3, padding="same", dilation_rate=2), normal(4, 12, 12, 12, 16)
    ),
    "Conv3D (1, 3, 3)": row(
        layers.Conv3D(16, (1, 3, 3), padding="same"), normal(8, 12, 12, 12, 16)
    ),
    "ConvLSTM1D 3": row(layers.ConvLSTM1D(16, 3, padding="same"), normal(8, 12, 64, 8)),
    "ConvLSTM2D 3": row(layers.ConvLSTM2D(8, 3, padding="same"), normal(8, 6, 16, 16, 8)),
    "ConvLSTM2D 3, sequences": row(
        layers.ConvLSTM2D(8, 3, padding="same", return_sequences=True), normal(8, 6, 16, 16, 8)
    ),
    "ConvLSTM3D 3": row(layers.ConvLSTM3D(4, 3, padding="same"), normal(4, 4, 8, 8, 8, 4)),
    "UpSampling1D 2": row(layers.UpSampling1D(2), normal(16, 256, 64)),
    "UpSampling2D 2, nearest": row(layers.UpSampling2D(2), normal(16, 28, 28, 64)),
    "UpSampling2D 2, bilinear": row(
        layers.UpSampling2D(2, interpolation="bilinear"), normal(16, 28, 28, 64)
    ),
    "UpSampling3D 2": row(layers.UpSampling3D(2), normal(8, 8, 8, 8, 16)),
    "Resizing": row(layers.Resizing(24, 24), normal(16, 32, 32, 3)),
    "BatchNormalization": row(layers.BatchNormalization(), normal(16, 32, 32, 32)),
    "BatchNormalization, vectors": row(layers.BatchNormalization(), normal(256, 256)),
    "BatchNormalization, mask": row(
        layers.BatchNormalization(), normal(32, 64, 64), mask=lengths(32, 64)
    ),
    "LayerNormalization": row(layers.LayerNormalization(), normal(64, 64, 64)),
    "LayerNormalization, two axes": row(layers.LayerNormalization(axis=(1, 2)), normal(64, 64, 64)),
    "GroupNormalization": row(layers.GroupNormalization(8), normal(16, 28, 28, 64)),
    "GroupNormalization, one a channel": row(layers.GroupNormalization(-1), normal(16, 28, 28, 64)),
    "RMSNormalization": row(layers.RMSNormalization(), normal(64, 64, 64)),
    "UnitNormalization": row(layers.UnitNormalization(), normal(64, 64, 64)),
    # on TensorFlow the gradient stops at the assignment of the normalized kernel
    "SpectralNormalization, Dense": row(
        layers.SpectralNormalization(layers.Dense(256)), normal(256, 256), tensorflow=False
    ),
    "SpectralNormalization, Conv2D 3": row(
        layers.SpectralNormalization(layers.Conv2D(32, 3, padding="same")),
        normal(8, 32, 32, 16),
        tensorflow=False,
    ),
    "LSTM": row(layers.LSTM(64), normal(32, 64, 32), mask=lengths(32, 64)),
    "LSTM, no mask": row(layers.LSTM(64), normal(32, 64, 32)),
    "LSTM, sequences": row(
        layers.LSTM(64, return_sequences=True), normal(32, 64, 32), mask=lengths(32, 64)
    ),
    "LSTMCell": row(layers.LSTMCell(128), normal(256, 128), [normal(256, 128), normal(256, 128)]),
    "GRU": row(layers.GRU(64), normal(32, 64, 32), mask=lengths(32, 64)),
    "GRU, no mask": row(layers.GRU(64), normal(32, 64, 32)),
    "GRU, reset before": row(layers.GRU(64, reset_after=False), normal(32, 64, 32)),
    "GRUCell": row(layers.GRUCell(128), normal(256, 128), [normal(256, 128)]),
    "SimpleRNN": row(layers.SimpleRNN(64), normal(32, 64, 32)),
    "SimpleRNN, mask": row(layers.SimpleRNN(64), normal(32, 64, 32), mask=lengths(32, 64)),
    "SimpleRNNCell": row(layers.SimpleRNNCell(128), normal(256, 128), [normal(256, 128)]),
    "RNN of LSTMCell": row(layers.RNN(layers.LSTMCell(64)), normal(32, 64, 32)),
    "RNN of two cells": row(
        layers.RNN([layers.LSTMCell(32), layers.GRUCell(32)]), normal(32, 64, 32)
    ),
    "StackedRNNCells": row(
        layers.StackedRNNCells([layers.LSTMCell(64), layers.GRUCell(64)]),
        normal(256, 64),
        [[normal(256, 64), normal(256, 64)], [normal(256, 64)]],
    ),
    "Bidirectional LSTM": row(
        layers.Bidirectional(layers.LSTM(64)), normal(32, 64, 32), mask=lengths(32, 64)
    ),
    "Bidirectional GRU, sequences": row(
        layers.Bidirectional(layers.GRU(64, return_sequences=True)), normal(32, 64, 32)
    ),
    "TimeDistributed Dense": row(
        layers.TimeDistributed(layers.Dense(64, "relu")), normal(32, 32, 64)
    ),
    "TimeDistributed Conv2D 3": row(
        layers.TimeDistributed(layers.Conv2D(16, 3, padding="same")), normal(4, 6, 16, 16, 8)
    ),
    "Attention": row(layers.Attention(use_scale=True), [normal(16, 64, 64), normal(16, 64, 64)]),
    "Attention, concat": row(
        layers.Attention(use_scale=True, score_mode="concat"),
        [normal(8, 32, 32), normal(8, 32, 32)],
    ),
    "AdditiveAttention": row(layers.AdditiveAttention(), [normal(8, 32, 32), normal(8, 32, 32)]),
    "MultiHeadAttention": row(
        layers.MultiHeadAttention(4, 16), normal(8, 64, 64), normal(8, 64, 64)
    ),
    "MultiHeadAttention, causal": row(
        layers.MultiHeadAttention(4, 16), normal(8, 64, 64), normal(8, 64, 64), use_causal_mask=True
    ),
    "GroupQueryAttention": row(
        layers.GroupQueryAttention(16, 4, 2), normal(8, 64, 64), normal(8, 64, 64)
    ),
    "Embedding": row(layers.Embedding(2000, 64), RNG.integers(0, 2000, (64, 64), "int32")),
    "ReversibleEmbedding": row(
        layers.ReversibleEmbedding(2000, 64), RNG.integers(0, 2000, (64, 64), "int32")
    ),
    "ReversibleEmbedding, reverse": row(
        layers.ReversibleEmbedding(2000, 64), normal(8, 32, 64), reverse=True
    ),
    "EinsumDense": row(layers.EinsumDense("btd,dhk->bthk", (None, 4, 16)), normal(16, 64, 64)),
    "EinsumDense, two axes in": row(
        layers.EinsumDense("bthk,hkd->btd", (None, 64)), normal(16, 64, 4, 16)
    ),
    "Dense": row(layers.Dense(256, "relu"), normal(256, 256)),
    "Dense, 32000 units": row(layers.Dense(32000), normal(256, 64)),
    "PReLU": row(layers.PReLU(shared_axes=(1, 2)), normal(16, 28, 28, 64)),
    "PReLU, all axes": row(layers.PReLU(), normal(16, 28, 28, 64)),
}


def numbered(tree, arrays, kind):
    """The tree with numbers instead of leaves; the leaves go to `arrays` by kind and number."""
    leaves, structure = jax.tree.flatten(tree)
    arrays |= {f"{kind}{i}": leaf for i, leaf in enumerate(leaves)}
    return jax.tree.unflatten(structure, range(len(leaves)))


def computed(tensorflow, row, weights, factors):
    """Makes the layer there, and returns `(value, gradients of weights, gradients of inputs)`."""
    arrays = {} if row.mask is None else {"mask": row.mask}
    config = {
        "layer": layers.serialize(row.layer),
        "inputs": numbered(list(row.inputs), arrays, "input"),
        "weights": numbered(weights, arrays, "weight"),
        "factors": numbered(factors, arrays, "factor"),
        "options": row.options,
    }
    np.savez(tensorflow.folder / "layer.npz", config=json.dumps(config), **arrays)
    tensorflow.ask("load", tensorflow.folder / "layer.npz")
    tensorflow.ask("values", tensorflow.folder / "values.npz")
    with np.load(tensorflow.folder / "values.npz") as file:
        gradients = [
            [file[name] for name in file.files if name.startswith(kind)]
            for kind in ("weight", "input")
        ]
        return file["value"], *gradients


def score(value, factors):
    # a product costs little beside the layer, unlike a sine; the gradient of a plain sum through a
    # normalization is 0 up to rounding
    pairs = zip(jax.tree.leaves(value), factors, strict=True)
    return sum(jnp.sum(leaf * factor) for leaf, factor in pairs)


def sides(row):
    """`(ours, theirs, shape, weights, factors)`: functions that compute once, and what they use."""
    built = row.layer.build(jax.random.key(0), *row.inputs)
    state = built.init_state(*row.inputs)
    arrays, structure = jax.tree.flatten(row.inputs)
    floats = [x for x in arrays if np.issubdtype(x.dtype, np.floating)]

    def join(floats):
        rest = iter(floats)
        placed = [next(rest) if np.issubdtype(x.dtype, np.floating) else x for x in arrays]
        return jax.tree.unflatten(structure, placed)

    leaves, shape = jax.tree.flatten(built)  # as the loop hands weights over: a flat tuple

    def output(leaves, floats, state):
        return jax.tree.unflatten(shape, leaves).apply(
            *join(floats), state=state, training=True, mask=row.mask, **row.options
        )

    outputs = jax.tree.leaves(jax.eval_shape(lambda *a: output(*a).value, leaves, floats, state))
    factors = [RNG.uniform(0.5, 1.5, leaf.shape).astype("float32") for leaf in outputs]

    def ours(leaves, floats, state, factors):
        out = output(leaves, floats, state)
        # the output is a result: XLA would fuse some layers with the score, which no network computes
        return score(out.value, factors), (out.updates, out.value)

    ours = jax.jit(jax.value_and_grad(ours, argnums=(0, 1), has_aux=True))

    made = keras.layers.deserialize(layers.serialize(row.layer))
    made(*row.inputs, **row.options)
    made.set_weights(built.get_weights(state))
    options = dict(row.options) if row.mask is None else {"mask": row.mask, **row.options}
    if made._call_has_training_arg:
        options["training"] = True

    def theirs(weights, floats, others, factors):
        value, others = made.stateless_call(weights, others, *join(floats), **options)
        return score(value, factors), (others, value)

    theirs = jax.jit(jax.value_and_grad(theirs, argnums=(0, 1), has_aux=True))
    weights = [v.value for v in made.trainable_variables]
    others = [v.value for v in made.non_trainable_variables]
    functions = (
        lambda: ours(leaves, floats, state, factors),
        lambda: theirs(weights, floats, others, factors),
    )
    return *functions, shape, built.get_weights(state), factors


def agree(one, value, weights, floats, shape):
    """Whether both sides computed the same value and gradients."""
    (found, _), (leaves, gradients) = one
    pairs = zip(
        [found, *jax.tree.unflatten(shape, leaves).get_weights(), *gradients],
        [value, *weights, *floats],
        strict=True,
    )
    for a, b in pairs:
        scale = max(float(np.abs(b).max()), 1.0)
        assert float(np.abs(np.asarray(a) - np.asarray(b)).max()) < 2e-4 * scale


def repeated(function, count):
    def run():
        for _ in range(count):
            out = function()
        jax.block_until_ready(out)

    return run


def measured(name, rounds, tensorflow):
    """Milliseconds of each side by name, and the ratios of fkeras to the faster peer."""
    row = TABLE[name]
    ours, theirs, shape, weights, factors = sides(row)
    (value, _), gradients = theirs()
    agree(ours(), value, *gradients, shape)
    once = min(meter.compare({"keras": repeated(theirs, 1)}, 3)["keras"])
    contenders, count = {}, max(int(0.03 / once), 1)
    contenders["fkeras"] = repeated(ours, count)
    contenders["Keras on JAX"] = repeated(theirs, count)
    if tensorflow is not None and row.tensorflow:
        agree(ours(), *computed(tensorflow, row, weights, factors), shape)
        contenders["Keras on TensorFlow"] = lambda: tensorflow.seconds("time", count)
    times = meter.compare(contenders, rounds)
    peers = [statistics.median(times[side]) for side in list(times)[1:]]
    faster = list(times)[1 + peers.index(min(peers))]
    ratios = sorted(a / b for a, b in zip(times["fkeras"], times[faster], strict=True))
    return {side: statistics.median(t) / count * 1e3 for side, t in times.items()}, ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tensorflow")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    tensorflow = None
    if options.tensorflow:
        tensorflow = peer.TensorFlow(options.tensorflow, "keras_layers.py")
    names = [n for n in TABLE if not options.names or any(n.startswith(p) for p in options.names)]
    slower, logs = [], []
    print("CPU milliseconds, medians; ratio of fkeras to the faster peer with quartiles\n")
    for name in names:
        times, ratios = measured(name, options.rounds, tensorflow)
        ratio = statistics.median(ratios)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        columns = "  ".join(f"{side} {ms:8.2f}" for side, ms in times.items())
        print(f"{name:42s} {columns}  ratio {ratio:.2f} [{low:.2f}, {high:.2f}]", flush=True)
        logs.append(math.log(ratio))
        slower += [name] * (ratio > GOAL)
    print(f"\ngeometric mean of the ratios: {math.exp(statistics.fmean(logs)):.2f}")
    print(f"above {GOAL} of the faster peer: {', '.join(slower) or 'none'}")


if __name__ == "__main__":
    main()

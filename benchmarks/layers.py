"""Forward and gradient of single layers, against Keras 3 on JAX and on TensorFlow.

    python benchmarks/layers.py [--rounds N] [--tensorflow PYTHON] [layer ...]

Keras's layer is made from our JSON and gets our weights. All sides compute the output of a training call
and the gradients with respect to weights and floating inputs, compiled, with all threads; the numbers
must agree. Keras on JAX runs in this process, Keras on TensorFlow in a process of the interpreter
PYTHON, in turns. Goal: at most 1.25 of the faster one.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

# XLA has another, slow convolution for one thread
os.environ.setdefault("XLA_FLAGS", "")
os.environ.setdefault("NPROC", str(os.cpu_count()))

import meter  # isort: skip

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import layers

import keras  # isort: skip

RNG = np.random.default_rng(0)
GOAL = 1.25


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def lengths(batch, time):
    """A mask of sequences of different lengths."""
    return np.arange(time) < RNG.integers(time // 2, time + 1, (batch, 1))


# the layer, its inputs, a mask for the first input or None
TABLE = {
    "DepthwiseConv2D 3, stride 2": (
        layers.DepthwiseConv2D(3, 2, padding="same"),
        [normal(8, 56, 56, 32)],
        None,
    ),
    "DepthwiseConv2D 3": (
        layers.DepthwiseConv2D(3, padding="same"),
        [normal(16, 28, 28, 64)],
        None,
    ),
    "DepthwiseConv2D 3, multiplier 2": (
        layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
        [normal(8, 28, 28, 32)],
        None,
    ),
    "DepthwiseConv2D 7": (layers.DepthwiseConv2D(7, padding="same"), [normal(8, 28, 28, 32)], None),
    "DepthwiseConv1D 5": (layers.DepthwiseConv1D(5, padding="same"), [normal(16, 256, 64)], None),
    "SeparableConv2D 3": (
        layers.SeparableConv2D(64, 3, padding="same"),
        [normal(16, 28, 28, 64)],
        None,
    ),
    "MaxPooling2D 3, stride 2": (
        layers.MaxPooling2D(3, 2, padding="same"),
        [normal(16, 56, 56, 32)],
        None,
    ),
    "MaxPooling2D 2": (layers.MaxPooling2D(2), [normal(16, 56, 56, 32)], None),
    "MaxPooling1D 2": (layers.MaxPooling1D(2), [normal(16, 256, 64)], None),
    "AveragePooling2D 2": (layers.AveragePooling2D(2), [normal(16, 56, 56, 32)], None),
    "GlobalMaxPooling2D": (layers.GlobalMaxPooling2D(), [normal(16, 28, 28, 64)], None),
    "Conv2DTranspose 3, stride 2": (
        layers.Conv2DTranspose(32, 3, 2, padding="same"),
        [normal(16, 14, 14, 64)],
        None,
    ),
    "Conv1DTranspose 4, stride 2": (
        layers.Conv1DTranspose(32, 4, 2, padding="same"),
        [normal(16, 128, 32)],
        None,
    ),
    "Conv3D 3": (layers.Conv3D(16, 3, padding="same"), [normal(8, 12, 12, 12, 16)], None),
    "Conv3D 3, stride 2": (
        layers.Conv3D(16, 3, 2, padding="same"),
        [normal(8, 12, 12, 12, 16)],
        None,
    ),
    "Conv2D 3": (layers.Conv2D(32, 3, padding="same"), [normal(8, 32, 32, 16)], None),
    "Conv2D 3, stride 2": (layers.Conv2D(32, 3, 2, padding="same"), [normal(8, 32, 32, 16)], None),
    "Conv2D 3, dilation 2": (
        layers.Conv2D(32, 3, padding="same", dilation_rate=2),
        [normal(8, 32, 32, 16)],
        None,
    ),
    "Conv2D 1": (layers.Conv2D(64, 1), [normal(16, 28, 28, 64)], None),
    "Conv2D 3, 8 groups": (
        layers.Conv2D(64, 3, padding="same", groups=8),
        [normal(8, 28, 28, 64)],
        None,
    ),
    "Conv1D 5": (layers.Conv1D(64, 5, padding="causal"), [normal(16, 256, 64)], None),
    "ConvLSTM2D 3": (layers.ConvLSTM2D(8, 3, padding="same"), [normal(8, 6, 16, 16, 8)], None),
    "UpSampling2D 2, nearest": (layers.UpSampling2D(2), [normal(16, 28, 28, 64)], None),
    "UpSampling2D 2, bilinear": (
        layers.UpSampling2D(2, interpolation="bilinear"),
        [normal(16, 28, 28, 64)],
        None,
    ),
    "Resizing": (layers.Resizing(24, 24), [normal(16, 32, 32, 3)], None),
    "BatchNormalization": (layers.BatchNormalization(), [normal(16, 32, 32, 32)], None),
    "LayerNormalization": (layers.LayerNormalization(), [normal(64, 64, 64)], None),
    "GroupNormalization": (layers.GroupNormalization(8), [normal(16, 28, 28, 64)], None),
    "LSTM": (layers.LSTM(64), [normal(32, 64, 32)], lengths(32, 64)),
    "LSTM, no mask": (layers.LSTM(64), [normal(32, 64, 32)], None),
    "GRU": (layers.GRU(64), [normal(32, 64, 32)], lengths(32, 64)),
    "GRU, no mask": (layers.GRU(64), [normal(32, 64, 32)], None),
    "SimpleRNN": (layers.SimpleRNN(64), [normal(32, 64, 32)], None),
    "MultiHeadAttention": (layers.MultiHeadAttention(4, 16), [normal(8, 64, 64)] * 2, None),
    "Embedding": (layers.Embedding(2000, 64), [RNG.integers(0, 2000, (64, 64), "int32")], None),
    "EinsumDense": (
        layers.EinsumDense("btd,dhk->bthk", (None, 4, 16)),
        [normal(16, 64, 64)],
        None,
    ),
    "Dense": (layers.Dense(256, "relu"), [normal(256, 256)], None),
    "PReLU": (layers.PReLU(shared_axes=(1, 2)), [normal(16, 28, 28, 64)], None),
}


class TensorFlow:
    """Keras on TensorFlow in a process of another interpreter."""

    def __init__(self, interpreter):
        script = pathlib.Path(__file__).with_name("keras_layers.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([interpreter, str(script)], **pipes)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.wait()

    def wait(self):
        answer = self.process.stdout.readline().strip()
        assert answer, "the process of TensorFlow has ended"
        return answer

    def ask(self, request):
        print(request, file=self.process.stdin, flush=True)
        return self.wait()

    def load(self, layer, inputs, mask, weights):
        """Makes the layer, and returns `(value, gradients of weights, gradients of inputs)`."""
        arrays = {f"input{i}": x for i, x in enumerate(inputs)}
        arrays |= {f"weight{i}": w for i, w in enumerate(weights)}
        arrays |= {} if mask is None else {"mask": mask}
        config = json.dumps(layers.serialize(layer))
        sizes = {"inputs": len(inputs), "weights": len(weights)}
        np.savez(self.folder / "layer.npz", config=config, **sizes, **arrays)
        self.ask(f"load {self.folder / 'layer.npz'}")
        self.ask(f"values {self.folder / 'values.npz'}")
        with np.load(self.folder / "values.npz") as file:
            gradients = [
                [file[name] for name in file.files if name.startswith(kind)]
                for kind in ("weight", "input")
            ]
            return file["value"], *gradients


def score(value):
    # the gradient of a sum of squares through a normalization is 0 up to rounding
    return jnp.sum(jnp.sin(value))


def sides(layer, inputs, mask):
    """`(ours, theirs, shape, weights)`: functions that compute once, and our weights."""
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
    functions = lambda: ours(leaves, floats, state), lambda: theirs(weights, floats, others)
    return *functions, shape, built.get_weights(state)


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
    layer, inputs, mask = TABLE[name]
    ours, theirs, shape, weights = sides(layer, inputs, mask)
    (value, _), gradients = theirs()
    agree(ours(), value, *gradients, shape)
    once = min(meter.compare({"keras": repeated(theirs, 1)}, 3)["keras"])
    contenders, count = {}, max(int(0.03 / once), 1)
    contenders["fkeras"] = repeated(ours, count)
    contenders["Keras on JAX"] = repeated(theirs, count)
    if tensorflow is not None:
        agree(ours(), *tensorflow.load(layer, inputs, mask, weights), shape)
        contenders["Keras on TensorFlow"] = lambda: meter.Seconds(tensorflow.ask(f"time {count}"))
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
    tensorflow = TensorFlow(options.tensorflow) if options.tensorflow else None
    names = [n for n in TABLE if not options.names or any(n.startswith(p) for p in options.names)]
    slower, logs = [], []
    print("CPU milliseconds, medians; ratio of fkeras to the faster peer with quartiles\n")
    for name in names:
        times, ratios = measured(name, options.rounds, tensorflow)
        ratio = statistics.median(ratios)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        columns = "  ".join(f"{side} {ms:8.2f}" for side, ms in times.items())
        print(f"{name:32s} {columns}  ratio {ratio:.2f} [{low:.2f}, {high:.2f}]", flush=True)
        logs.append(math.log(ratio))
        slower += [name] * (ratio > GOAL)
    print(f"\ngeometric mean of the ratios: {math.exp(statistics.fmean(logs)):.2f}")
    print(f"above {GOAL} of the faster peer: {', '.join(slower) or 'none'}")


if __name__ == "__main__":
    main()

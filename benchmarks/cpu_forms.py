"""Layers with computations for CPUs against XLA's operations, in one process.

    python benchmarks/cpu_forms.py [rounds] [row ...]

Each side computes the loss of a training call and its gradients with respect to weights and inputs;
the numbers must agree. Goal for depthwise convolutions, pooling, transposed and 3D convolutions: at
most a quarter of the time of XLA's operations. The rows "limit" lie at the limits in
`fkeras/nn/cpu/limits.py`.
"""

import sys
import time
from unittest import mock

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import layers
from fkeras.nn.cpu import forms

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
# a side computes for at least this many CPU seconds in each round
SECONDS = 0.05
RNG = np.random.default_rng(0)
TABLE = {
    "DepthwiseConv2D 3, stride 2": (
        layers.DepthwiseConv2D(3, 2, padding="same"),
        (8, 56, 56, 32),
    ),
    "DepthwiseConv2D 3": (layers.DepthwiseConv2D(3, padding="same"), (16, 28, 28, 64)),
    "DepthwiseConv1D 5": (layers.DepthwiseConv1D(5, padding="same"), (16, 256, 64)),
    "DepthwiseConv2D 7": (layers.DepthwiseConv2D(7, padding="same"), (8, 28, 28, 32)),
    "DepthwiseConv2D 3, multiplier 2": (
        layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
        (8, 28, 28, 32),
    ),
    "DepthwiseConv2D 3, dilation 2": (
        layers.DepthwiseConv2D(3, padding="same", dilation_rate=2),
        (8, 28, 28, 32),
    ),
    "DepthwiseConv2D 3, bfloat16": (
        layers.DepthwiseConv2D(3, padding="same", dtype="mixed_bfloat16"),
        (8, 28, 28, 32),
    ),
    "DepthwiseConv2D 3, channels first": (
        layers.DepthwiseConv2D(3, padding="same", data_format="channels_first"),
        (8, 32, 28, 28),
    ),
    "SeparableConv2D 3": (layers.SeparableConv2D(64, 3, padding="same"), (16, 28, 28, 64)),
    "MaxPooling2D 3, stride 2": (layers.MaxPooling2D(3, 2, padding="same"), (16, 56, 56, 32)),
    "MaxPooling2D 2": (layers.MaxPooling2D(2), (16, 56, 56, 32)),
    "MaxPooling2D 2, bfloat16": (layers.MaxPooling2D(2, dtype="mixed_bfloat16"), (16, 56, 56, 32)),
    "MaxPooling1D 2": (layers.MaxPooling1D(2), (16, 256, 64)),
    "Conv2DTranspose 3, stride 2": (
        layers.Conv2DTranspose(32, 3, 2, padding="same"),
        (16, 14, 14, 64),
    ),
    "Conv1DTranspose 3, stride 2": (
        layers.Conv1DTranspose(32, 3, 2, padding="same"),
        (16, 256, 64),
    ),
    "Conv3DTranspose 3, stride 2": (
        layers.Conv3DTranspose(16, 3, 2, padding="same"),
        (4, 6, 6, 6, 16),
    ),
    "Conv3D 3": (layers.Conv3D(16, 3, padding="same"), (8, 12, 12, 12, 16)),
    "Conv3D 3, stride 2": (layers.Conv3D(16, 3, 2, padding="same"), (8, 12, 12, 12, 16)),
    "Conv2D 1": (layers.Conv2D(64, 1), (16, 28, 28, 64)),
    "Conv2D 1, bfloat16": (layers.Conv2D(64, 1, dtype="mixed_bfloat16"), (8, 28, 28, 64)),
    "Conv2D 3": (layers.Conv2D(32, 3, padding="same"), (8, 32, 32, 16)),
    "Conv2D 3, wide": (layers.Conv2D(64, 3, padding="same"), (32, 28, 28, 32)),
    "Conv2D 3, bfloat16": (
        layers.Conv2D(64, 3, padding="same", dtype="mixed_bfloat16"),
        (8, 28, 28, 32),
    ),
    "Conv2D 3, stride 2": (layers.Conv2D(32, 3, 2, padding="same"), (16, 28, 28, 32)),
    "Conv2D 5": (layers.Conv2D(32, 5, padding="same"), (16, 28, 28, 16)),
    "Conv2D 5, one channel": (layers.Conv2D(6, 5, padding="same"), (32, 28, 28, 1)),
    "Conv2D 7, stride 2": (layers.Conv2D(64, 7, 2, padding="same"), (4, 112, 112, 3)),
    "Conv2D 3, 8 groups": (layers.Conv2D(64, 3, padding="same", groups=8), (8, 28, 28, 64)),
    "Conv1D 5": (layers.Conv1D(64, 5, padding="causal"), (16, 256, 32)),
    "ConvLSTM2D 3": (layers.ConvLSTM2D(8, 3, padding="same"), (8, 6, 16, 16, 8)),
    "limit, DepthwiseConv2D 9": (layers.DepthwiseConv2D(9, padding="same"), (4, 28, 28, 32)),
    "limit, MaxPooling2D 8": (layers.MaxPooling2D(8), (8, 56, 56, 32)),
}
NAMES = sys.argv[2:] or list(TABLE)


def sides(layer, shape):
    """`(calls, error)`: both sides by name, and the largest difference of their gradients."""
    x = jnp.asarray(RNG.normal(size=shape), layer.policy.compute_dtype)
    built = layer.build(jax.random.key(0), x)
    state = built.init_state(x)
    leaves, structure = jax.tree.flatten(built)

    def loss(leaves, x):
        out = jax.tree.unflatten(structure, leaves).apply(x, state=state, training=True)
        return jnp.sum(jnp.square(out.value.astype("float32"))), out.updates

    def compiled():
        # the layers' own traces are cached, too
        jax.clear_caches()
        step = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True)).lower(leaves, x).compile()
        return (lambda: step(leaves, x)), step(leaves, x)

    with mock.patch.object(forms, "bind", lambda form, *arrays: form.default(*arrays)):
        default, expected = compiled()
    fast, results = compiled()
    error = 0.0
    for a, b in zip(*map(jax.tree.leaves, (results[1], expected[1])), strict=True):
        a, b = (jnp.asarray(array, "float32") for array in (a, b))
        error = max(error, float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))))
    return {"XLA's operation": default, "for CPUs": fast}, error


def repeated(call):
    """Returns a function that calls often enough to be measured, and how often that is."""
    jax.block_until_ready(call())
    start = time.process_time()
    jax.block_until_ready(call())
    times = max(1, int(SECONDS / max(time.process_time() - start, 1e-6)))

    def run():
        for _ in range(times):
            results = call()
        jax.block_until_ready(results)

    return run, times


if __name__ == "__main__":
    print(f"{'':34s}{'XLA ms':>9s}{'CPU ms':>9s}{'ratio':>8s}  quartiles        difference")
    for name in NAMES:
        calls, error = sides(*TABLE[name])
        runs = {side: repeated(call) for side, call in calls.items()}
        measured = meter.compare({side: run for side, (run, _) in runs.items()}, ROUNDS)
        old, new = (
            [seconds * 1e3 / runs[side][1] for seconds in measured[side]] for side in measured
        )
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        low, middle, high = (ratios[round((len(ratios) - 1) * part)] for part in (0.25, 0.5, 0.75))
        print(
            f"{name:34s}{min(old):9.2f}{min(new):9.2f}{middle:8.3f}  [{low:.3f}, {high:.3f}]"
            f"{error:16.0e}",
            flush=True,
        )

"""Repeated blocks as one loop: compile time, program size, step time and memory by depth.

    python benchmarks/depth.py [rounds]

Goals: compile time and StableHLO size of the step of `fit` grow by at most 15 % from 4 to 128 transformer
blocks; a step over 12 blocks of width 128 with batch 16 takes at most 1.05 times the unrolled step and no
more memory; gradients agree to 1e-6; a training with one frozen block among thirty computes the same.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import meter
import numpy as np

import fkeras as fk
from fkeras import layers
from fkeras.training.records.state import split
from fkeras.training.step.blocks import stacked, stacking_of
from fkeras.training.step.changes import parted
from fkeras.training.step.step import compiled_train

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
KEY = jax.random.key(0)


def transformer(blocks, width=16, length=8, heads=2):
    x = h = fk.Input((length, width))
    for _ in range(blocks):
        a = layers.LayerNormalization()(h)
        h = h + layers.Dropout(0.1)(layers.MultiHeadAttention(heads, width // heads)(a, a))
        m = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(h))
        h = h + layers.Dropout(0.1)(layers.Dense(width)(m))
    return fk.Model(x, layers.Dense(1)(layers.LayerNormalization()(h)))


def data(rows, length, width):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, length, width)).astype("float32")
    return x, x.mean(-1, keepdims=True)


def arguments_of(model, depth, x, y):
    """The arguments of the compiled step of `fit`, as a training with one batch passes them."""
    trainer = fk.Trainer("adam", "mse", depth=depth)
    run = trainer.init(model, KEY)
    structure, leaves = split(stacked(stacking_of(trainer, run), run))
    rows = ((x[None], y[None], None), np.array([len(x)], "int32"))
    return trainer, structure, "once", *parted(structure, leaves), rows, np.int32(0)


def compile_time(arguments):
    """CPU seconds of tracing, lowering and compiling, and the size of the program in characters."""
    jax.clear_caches()
    start = time.process_time()
    lowered = compiled_train.by_default.lower(*arguments)
    lowered.compile()
    return time.process_time() - start, len(lowered.as_text())


def compilation():
    x, y = data(8, 8, 16)
    cases = {
        (blocks, depth): arguments_of(transformer(blocks), depth, x, y)
        for blocks, depth in (
            (4, "scan"),
            (32, "scan"),
            (128, "scan"),
            (4, "unroll"),
            (12, "unroll"),
        )
    }
    seconds = {case: [] for case in cases}
    sizes = {}
    for number in range(3):
        for case in cases if number % 2 == 0 else reversed(cases):
            if case[1] == "unroll" and number > 0:
                continue  # the unrolled programs take a minute
            duration, sizes[case] = compile_time(cases[case])
            seconds[case].append(duration)
    print("\ncompilation of the step of fit")
    for (blocks, depth), times in seconds.items():
        low, high = min(times), max(times)
        middle = statistics.median(times)
        print(
            f"  {blocks:4d} blocks, {depth:6s} {middle:6.1f} s CPU [{low:.1f}, {high:.1f}], "
            f"{sizes[blocks, depth]:9,} characters"
        )
    ratios = sorted(b / a for a, b in zip(seconds[4, "scan"], seconds[128, "scan"], strict=True))
    growth = ratios[1]
    size = sizes[128, "scan"] / sizes[4, "scan"]
    print(
        f"  4 to 128 blocks: time x {growth:.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}], size x {size:.3f}"
    )
    print(f"  goal: both at most 1.15: {'holds' if max(growth, size) <= 1.15 else 'FAILS'}")


def steps():
    for length in (8, 64):
        x, y = data(16, length, 128)
        model = transformer(12, 128, length, 4)
        cases = {depth: arguments_of(model, depth, x, y) for depth in ("unroll", "scan")}
        memory = {}
        for depth, arguments in cases.items():
            analysis = compiled_train.by_default.lower(*arguments).compile().memory_analysis()
            memory[depth] = (
                analysis.argument_size_in_bytes
                + analysis.output_size_in_bytes
                + analysis.temp_size_in_bytes
            )
        losses = {
            depth: float(compiled_train.by_default(*a)[1]["loss"]) for depth, a in cases.items()
        }
        np.testing.assert_allclose(losses["scan"], losses["unroll"], rtol=1e-5)
        contenders = {
            depth: lambda a=arguments: jax.block_until_ready(compiled_train.by_default(*a))
            for depth, arguments in cases.items()
        }
        title = f"a step of 12 blocks, width 128, batch 16, {length} time steps"
        meter.report(title, meter.compare(contenders, ROUNDS), ("scan", 1.05))
        ratio = memory["scan"] / memory["unroll"]
        print(
            f"  memory {memory['unroll'] / 1e6:.1f} and {memory['scan'] / 1e6:.1f} MB, x {ratio:.3f}"
        )


def gradients():
    model = transformer(12).build(KEY)
    x, _ = data(4, 8, 16)

    @jax.jit
    def gradient(model):
        def loss(model):
            return jnp.square(model.apply(x, training=True, key=KEY).value).mean()

        return jax.grad(loss)(model)

    pairs = zip(
        *(jax.tree.leaves(gradient(m)) for m in (model, fk.transforms.roll(model))), strict=True
    )
    scale = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient(model)))
    difference = max(float(jnp.abs(a - b).max()) for a, b in pairs) / scale
    verdict = "holds" if difference <= 1e-6 else "FAILS"
    print(f"\ngradients differ by {difference:.1e} of the largest; goal 1e-6: {verdict}")


def freezing():
    x = h = fk.Input((16,))
    for number in range(30):
        h = h + layers.Dense(16, "tanh", name=f"block_{number}")(h)
    inputs = data(64, 1, 16)[0]
    runs = {}
    for depth in ("unroll", "scan"):
        trainer = fk.Trainer("sgd", "mse", depth=depth)
        run = trainer.init(fk.freeze(fk.Model(x, h).build(KEY), "block_11"), KEY)
        runs[depth], _ = trainer.fit(run, inputs[:, 0], inputs[:, 0] * 0.5, epochs=1, verbose=0)
    same = bool(
        (run.model.layers["block_11"].kernel == runs["scan"].model.layers["block_11"].kernel).all()
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        runs["unroll"].model,
        runs["scan"].model,
    )
    print(
        f"\nthirty blocks, one frozen: equal trainings, the frozen block kept its weights: {same}"
    )


compilation()
steps()
gradients()
freezing()

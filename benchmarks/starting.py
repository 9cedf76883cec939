"""CPU seconds until a first `fit` and a first `evaluate` return, beside Keras on JAX.

    python benchmarks/starting.py [--rounds N] [network ...]

Each side runs in a new process, in turns: composition, initialization, `fit` and `evaluate` of 256 rows in
batches of 32. Most of the time is compilation. Goal: `fit` and `evaluate` take at most as long as with Keras.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
PARTS = ("compose", "fit", "evaluate", "all")
LOSS = "sparse_categorical_crossentropy"


def mlp(lib):
    x = h = lib.Input((64,))
    for _ in range(3):
        h = lib.layers.Dense(128, activation="relu")(h)
    return x, h


def lenet(lib):
    layers, x = lib.layers, lib.Input((28, 28, 1))
    h = layers.Conv2D(6, 5, padding="same", activation="tanh")(x)
    h = layers.Conv2D(16, 5, activation="tanh")(layers.AveragePooling2D(2)(h))
    h = layers.Flatten()(layers.AveragePooling2D(2)(h))
    return x, layers.Dense(84, activation="tanh")(layers.Dense(120, activation="tanh")(h))


def gru(lib):
    x = lib.Input((20, 16))
    return x, lib.layers.GRU(32)(lib.layers.GRU(32, return_sequences=True)(x))


def transformer(lib):
    layers = lib.layers
    x = h = lib.Input((16, 32))
    for _ in range(4):
        y = layers.LayerNormalization()(h)
        h = layers.Add()([h, layers.MultiHeadAttention(4, 8)(y, y)])
        y = layers.Dense(64, activation="gelu")(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(32)(y)])
    return x, layers.GlobalAveragePooling1D()(h)


def mobilenet(lib):
    model = lib.applications.MobileNetV2(
        weights=None, include_top=False, pooling="avg", input_shape=(96, 96, 3)
    )
    x = lib.Input((96, 96, 3))
    return x, model(x)


NETWORKS = {f.__name__: f for f in (mlp, lenet, gru, transformer, mobilenet)}


def start(side, name):
    """Prints the CPU seconds of `PARTS`."""
    import numpy as np

    if side == "fkeras":
        import fkeras as lib
    else:
        import keras as lib
    times = [time.process_time()]
    x, h = NETWORKS[name](lib)
    model = lib.Model(x, lib.layers.Dense(10, activation="softmax")(h))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(256, *x.shape[1:])).astype("float32")
    labels = rng.integers(0, 10, 256).astype("int32")
    options = {"batch_size": 32, "verbose": 0}
    if side == "fkeras":
        import jax

        trainer = lib.Trainer("adam", LOSS, metrics=["accuracy"])
        run = trainer.init(model, jax.random.key(0))
        times.append(time.process_time())
        run, _ = trainer.fit(run, rows, labels, **options)
        times.append(time.process_time())
        trainer.evaluate(run, rows, labels, **options)
    else:
        model.compile("adam", LOSS, metrics=["accuracy"])
        times.append(time.process_time())
        model.fit(rows, labels, **options)
        times.append(time.process_time())
        model.evaluate(rows, labels, **options)
    times.append(time.process_time())
    print(*(b - a for a, b in itertools.pairwise(times)), times[-1] - times[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", help="computes one side; the benchmark itself passes it")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.side:
        return start(options.side, *options.names)
    print("CPU seconds, medians: fkeras, Keras on JAX, and the ratio")
    for name in options.names or NETWORKS:
        times = {"fkeras": [], "keras": []}
        for number in range(options.rounds):
            for side in sorted(times, reverse=number % 2 == 1):
                command = [sys.executable, __file__, "--side", side, name]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                times[side].append([float(part) for part in done.stdout.split()])
        ours, theirs = (
            [statistics.median(column) for column in zip(*rows, strict=True)]
            for rows in times.values()
        )
        columns = (
            f"{part} {a:.2f} {b:.2f} ({a / b:.2f})"
            for part, a, b in zip(PARTS, ours, theirs, strict=True)
        )
        print(f"{name:12s} {'  '.join(columns)}", flush=True)
    return None


if __name__ == "__main__":
    main()

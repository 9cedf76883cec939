"""What a short last batch costs: the first `fit` of a model, with and without a short last batch.

A model whose rows are independent fills the short batch up: `fit` then reads the program of the loss
twice, and compiles nothing more. Another model compiles a second program for the short batch. Each
round clears JAX's caches, so that all contenders compile. The results equal steps over exact batches.

    python benchmarks/short_batches.py [rounds]
"""

import sys

import jax
import meter
import numpy as np

import fkeras as fk
from fkeras import layers
from fkeras.training.inputs import padding

SIZE = 32
KEY = jax.random.key(0)


def mlp(normalize):
    x = h = fk.Input((64,))
    for _ in range(3):
        h = layers.Dense(128, "relu")(h)
        h = layers.BatchNormalization()(h) if normalize else h
    return fk.Model(x, layers.Dense(10, "softmax")(h)), (64,)


def cnn(normalize):
    x = h = fk.Input((16, 16, 3))
    for filters in (16, 32, 32):
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        h = layers.BatchNormalization()(h) if normalize else h
    h = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(h))
    return fk.Model(x, layers.Dense(10, "softmax")(h)), (16, 16, 3)


def transformer(normalize):
    x = h = fk.Input((16, 32))
    for _ in range(4):
        y = layers.LayerNormalization()(h)
        h = h + layers.MultiHeadAttention(4, 8)(y, y)
        h = h + layers.Dense(32)(layers.Dense(64, "gelu")(layers.LayerNormalization()(h)))
    h = layers.GlobalAveragePooling1D()(h)
    h = layers.BatchNormalization()(h) if normalize else h
    return fk.Model(x, layers.Dense(10, "softmax")(h)), (16, 32)


def problem(model, rows):
    model, shape = model
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *shape)).astype("float32")
    y = rng.integers(0, 10, rows).astype("int32")
    trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return trainer, trainer.init(model, KEY), x, y


def first_fit(model, rows):
    trainer, run, x, y = problem(model, rows)

    def fit():
        jax.clear_caches()
        padding._fills_up.cache_clear()
        return trainer.fit(run, x, y, SIZE, shuffle=False, verbose=0)

    return fit


def check(model, rows):
    trainer, run, x, y = problem(model, rows)
    fitted, _ = trainer.fit(run, x, y, SIZE, shuffle=False, verbose=0)
    for start in range(0, rows, SIZE):
        run, _ = trainer.step(run, (x[start : start + SIZE], y[start : start + SIZE]))
    for one, two in zip(jax.tree.leaves(fitted.model), jax.tree.leaves(run.model), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-4)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for name, make in (("mlp", mlp), ("cnn", cnn), ("transformer", transformer)):
        for normalize in (False, True):
            model = make(normalize)
            check(model, 6 * SIZE + 5)
            sides = {
                "full batches": first_fit(model, 7 * SIZE),
                "a short batch": first_fit(model, 6 * SIZE + 5),
            }
            times = meter.compare(sides, rounds)
            title = "with BatchNormalization" if normalize else "independent rows"
            meter.report(f"{name}, {title}: the first fit", times)


if __name__ == "__main__":
    main()

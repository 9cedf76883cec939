"""Epochs of a new head on a frozen ResNet50, with `Trainer(cache_frozen=True)` and without.

    python benchmarks/frozen.py [rounds [images]]

Each side trains three epochs in a round and counts the last one: the first compiles, and follows the
computation of the features. Both sides begin with the same run; their losses are compared. Goal: with
the cache at most 0.1 of the time without.
"""

import sys
import time

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

GOAL = 0.1
SIZE, CLASSES, BATCH = 64, 10, 32


def make():
    base = fk.applications.ResNet50(
        weights=None, include_top=False, input_shape=(SIZE, SIZE, 3), name="base"
    )
    image = fk.Input((SIZE, SIZE, 3))
    mean = layers.GlobalAveragePooling2D()(fk.freeze(base)(image))
    head = layers.Dense(CLASSES, activation="softmax", name="head")
    return fk.Model(image, head(layers.Dropout(0.2)(mean)))


def last_epoch(trainer, run, x, y, losses):
    """CPU seconds of the last of three epochs; adds its loss to `losses`."""
    times = []

    def note(*_):
        times.append(time.process_time())

    watch = fk.callbacks.LambdaCallback(on_epoch_begin=note, on_epoch_end=note)
    _, history = trainer.fit(run, x, y, epochs=3, batch_size=BATCH, verbose=0, callbacks=[watch])
    losses.append(history.history["loss"][-1])
    return meter.Seconds(times[-1] - times[-2])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 96
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, SIZE, SIZE, 3)).astype("float32")
    y = rng.integers(0, CLASSES, count)
    loss = "sparse_categorical_crossentropy"
    plain, caching = (fk.Trainer("adam", loss, cache_frozen=c) for c in (False, True))
    run = plain.init(make(), jax.random.key(0))
    losses = {"whole model": [], "cached features": []}
    sides = {
        name: lambda trainer=trainer, found=losses[name]: last_epoch(trainer, run, x, y, found)
        for name, trainer in zip(losses, (plain, caching), strict=True)
    }
    times = meter.compare(sides, rounds)
    one, other = (np.asarray(found) for found in losses.values())
    apart = float(np.abs(one / other - 1).max())
    assert apart < 1e-4, apart
    title = f"ResNet50, {count} images of {SIZE} x {SIZE}, losses {apart:.0e} apart"
    meter.report(title, times, ("cached features", GOAL))


if __name__ == "__main__":
    main()

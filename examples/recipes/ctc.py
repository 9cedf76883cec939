"""Connectionist temporal classification (CTC): reads symbols from frames without their positions."""

import itertools

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

CLASSES, FRAMES = 5, 24  # class 0 is the blank
rng = np.random.default_rng(0)
spectra = rng.normal(size=(CLASSES, 8))


def recordings(count):
    labels = rng.integers(1, CLASSES, (count, 4))
    sounds = np.zeros((count, FRAMES), "int64")
    for row in range(count):  # each symbol lasts 2 to 4 frames, after 1 or 2 frames of silence
        start = 0
        for symbol in labels[row]:
            start += rng.integers(1, 3)
            end = start + rng.integers(2, 5)
            sounds[row, start:end], start = symbol, end
    frames = spectra[sounds] + rng.normal(0, 0.5, (count, FRAMES, 8))
    return frames.astype("float32"), labels.astype("int32")


frames = fk.Input((FRAMES, 8))
x = layers.Conv1D(32, 5, padding="same", activation="relu")(frames)
model = fk.Model(frames, layers.Dense(CLASSES)(x))
trainer = fk.Trainer(fk.optimizers.Adam(0.01), fk.losses.CTC())
run = trainer.init(model, jax.random.key(0))
run, _ = trainer.fit(run, *recordings(200), batch_size=40, epochs=30, verbose=0)
x, y = recordings(50)
logits = jax.nn.log_softmax(trainer.predict(run, x))
read, _ = fk.ops.ctc_decode(logits, np.full(50, FRAMES), mask_index=0)
assert np.mean(read[0, :, :4] == y) > 0.8


# the loss of the word (1, 2) in 4 frames: the sum over all paths that spell it
def spelled(path):
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol)


short = np.asarray(logits[:1, :4])
paths = [p for p in itertools.product(range(CLASSES), repeat=4) if spelled(p) == (1, 2)]
total = sum(np.exp(short[0, range(4), path].sum()) for path in paths)
np.testing.assert_allclose(fk.losses.ctc(np.array([[1, 2]]), short), [-np.log(total)], rtol=1e-5)

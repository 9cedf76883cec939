"""A transformer for time series: classifies a handwritten digit by its outline alone.

The series has 64 steps. Step i is the distance from the digit's center to its outermost ink in the
direction i / 64 of a full turn.
"""

import argparse
import time

import jax
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers, ops

fk.utils.cache_programs()  # the second start compiles nothing

STEPS = 64


def outlines(images):
    """Returns the series (n, 64, 1) of images (n, 28, 28, 1), in units of half the image's height."""
    rows, columns = np.mgrid[:28, :28]
    ink = images[..., 0] > 0.3
    count = ink.sum((1, 2))
    center_y, center_x = ((ink * grid).sum((1, 2)) / count for grid in (rows, columns))
    angles = np.arange(STEPS) * 2 * np.pi / STEPS
    series = np.zeros((len(images), STEPS))
    for radius in np.arange(0, 20, 0.5):
        y = np.rint(center_y[:, None] + radius * np.sin(angles)).astype(int)
        x = np.rint(center_x[:, None] + radius * np.cos(angles)).astype(int)
        inside = (y >= 0) & (y < 28) & (x >= 0) & (x < 28)
        hit = inside & ink[np.arange(len(ink))[:, None], y.clip(0, 27), x.clip(0, 27)]
        series = np.where(hit, radius, series)
    return (series[..., None] / 14).astype("float32")


class EncoderBlock(fk.Model):
    """Transformer block: attention and two convolutions of size 1, with residual connections."""

    head_size: int
    num_heads: int
    ff_dim: int
    dropout: float

    def call(self, x):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        attention = layers.MultiHeadAttention(self.num_heads, self.head_size, dropout=self.dropout)
        x = x + layers.Dropout(self.dropout)(attention(y, y))
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Conv1D(self.ff_dim, 1, activation="relu")(y)
        y = layers.Dropout(self.dropout)(y)
        return x + layers.Conv1D(x.shape[-1], 1)(y)


class PositionEmbedding(fk.Model):
    """Adds a learned vector to each step, since attention ignores the order of the steps."""

    def call(self, x):
        _, steps, width = x.shape
        return x + layers.Embedding(steps, width)(ops.arange(steps))


def make_model(blocks):
    """Returns a network of a convolution, transformer blocks and two dense layers."""
    series = fk.Input((STEPS, 1), name="series")
    x = layers.Conv1D(32, 5, strides=2, padding="same")(series)
    x = PositionEmbedding()(x)
    for _ in range(blocks):
        x = EncoderBlock(head_size=16, num_heads=4, ff_dim=64, dropout=0.1)(x)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Dropout(0.3)(layers.Dense(128, activation="relu")(x))
    return fk.Model(series, layers.Dense(10, activation="softmax", name="digit")(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    start = time.perf_counter()
    (x_train, y_train), (x_test, y_test) = load_digits()
    x_train, x_test = outlines(x_train), outlines(x_test)
    epochs = 25
    if short:
        x_train, y_train, epochs = x_train[:128], y_train[:128], 1
        x_test, y_test = x_test[:256], y_test[:256]

    model = make_model(blocks=1 if short else 3)
    model.summary()
    schedule = fk.optimizers.schedules.CosineDecay(2e-3, epochs * -(-len(x_train) // 64))
    trainer = fk.Trainer(
        fk.optimizers.Adam(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.fit(
        run, x_train, y_train, batch_size=64, epochs=epochs, validation_data=(x_test, y_test)
    )
    logs = trainer.evaluate(run, x_test, y_test, batch_size=64, verbose=0)
    seconds = time.perf_counter() - start
    print(f"test accuracy {logs['accuracy']:.2%}; {seconds:.0f} s")


if __name__ == "__main__":
    main()

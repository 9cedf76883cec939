"""Transfer learning: layers trained on the digits 0 to 4 are reused, frozen, for the digits 5 to 9."""

import argparse

import jax
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
epochs = 1 if parser.parse_args().short else 6

(x_train, y_train), (x_test, y_test) = load_digits()


def five_digits(x: np.ndarray, y: np.ndarray, low: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images of the five digits from `low` on, with labels from 0 to 4."""
    rows = (y >= low) & (y < low + 5)
    return x[rows], y[rows] - low


inputs = fk.Input((28, 28, 1))
x = layers.Conv2D(24, 5, strides=2, activation="relu", name="strokes")(inputs)
x = layers.MaxPooling2D()(x)
x = layers.Dense(64, activation="relu", name="features")(layers.Flatten()(x))
first = fk.Model(inputs, layers.Dense(5, activation="softmax")(x))
trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
run = trainer.init(first, jax.random.key(0))
run, _ = trainer.fit(run, *five_digits(x_train, y_train, 0), epochs=epochs, batch_size=64)

# the layers of a trained model hold their weights, so a new graph of these layers has them, too
trained = run.model
body = fk.Model(trained.inputs, trained.tensor("features"), name="body")
head = layers.Dense(5, activation="softmax", name="head")
second = fk.freeze(fk.Model(inputs, head(body(inputs))), "body")
run = trainer.init(second, jax.random.key(1))
x_new, y_new = five_digits(x_train, y_train, 5)
run, _ = trainer.fit(run, x_new[:200], y_new[:200], epochs=10 * epochs, batch_size=20, verbose=0)
logs = trainer.evaluate(run, *five_digits(x_test, y_test, 5), verbose=0)
before, after = body.get_weights(), run.model.layers["body"].get_weights()
assert all(map(np.array_equal, before, after)), "frozen weights have changed"
print(f"test accuracy on the digits 5 to 9 after training on 200 images: {logs['accuracy']:.2%}")

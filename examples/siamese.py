"""A siamese network with a contrastive loss: decides whether two images show the same digit.

Follows keras.io's "Image similarity estimation using a Siamese Network with a contrastive loss".
Measured after 15 epochs on pairs of 4,000 digits: 96.05 % accuracy on 2,000 pairs of test digits.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short


def make_pairs(x, y, seed):
    """Returns `((left, right), different)`: each image with one of its class and one of another."""
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(y == digit) for digit in range(10)]
    same = np.array([rng.choice(classes[digit]) for digit in y])
    other = np.array([rng.choice(classes[(digit + rng.integers(1, 10)) % 10]) for digit in y])
    left, right = np.concatenate([x, x]), x[np.concatenate([same, other])]
    return (left, right), np.repeat(np.array([[0], [1]], "float32"), len(x), axis=0)


def contrastive(different, score):
    """Contrastive loss: small distances for equal digits, a margin of 1 for different digits."""
    return ((1 - different) * score**2 + different * jnp.maximum(1 - score, 0) ** 2).mean(-1)


@fk.ops.lift
def distance(a, b):
    """Returns the Euclidean distance of each pair of rows."""
    square = ((a - b) ** 2).sum(-1, keepdims=True)
    return jnp.sqrt(jnp.maximum(square, 1e-7))  # the gradient of sqrt is infinite at 0


image = fk.Input((28, 28, 1))
x = layers.BatchNormalization()(image)
x = layers.Conv2D(4, 5, activation="tanh")(x)
x = layers.AveragePooling2D()(x)
x = layers.Conv2D(16, 5, activation="tanh")(x)
x = layers.AveragePooling2D()(x)
x = layers.BatchNormalization()(layers.Flatten()(x))
encoder = fk.Model(image, layers.Dense(10, activation="tanh")(x), name="encoder")

# two calls of one model share its weights
left, right = fk.Input((28, 28, 1), name="left"), fk.Input((28, 28, 1), name="right")
x = layers.BatchNormalization()(distance(encoder(left), encoder(right)))
siamese = fk.Model((left, right), layers.Dense(1, activation="sigmoid")(x))

(x_train, y_train), (x_test, y_test) = load_digits()
if short:
    x_train, y_train = x_train[:512], y_train[:512]
trainer = fk.Trainer("rmsprop", contrastive, metrics=["binary_accuracy"])
run = trainer.init(siamese, jax.random.key(0))
pairs, different = make_pairs(x_train, y_train, seed=0)
run, _ = trainer.fit(run, pairs, different, epochs=1 if short else 15, batch_size=32)
pairs, different = make_pairs(x_test, y_test, seed=1)
logs = trainer.evaluate(run, pairs, different, verbose=0)
print(f"test accuracy on pairs {logs['binary_accuracy']:.2%}, loss {logs['loss']:.4f}")

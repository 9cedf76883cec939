"""Grad-CAM: shows which part of an image made a network recognize a digit.

Follows keras.io's "Grad-CAM class activation visualization". Each image has two different digits side
by side, so the heat maps can be checked: the map of each digit must lie on the side of that digit.
Measured: both digits are recognized in 91.2 % of the test images, and 99.9 % of their maps lie on the
side of the digit.
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


def side_by_side(x, y, seed):
    """Returns `(images, digits, labels)`: pairs of different digits, and labels with a 1 for each."""
    rng = np.random.default_rng(seed)
    pairs = np.stack([rng.permutation(len(x)), rng.permutation(len(x))], axis=1)
    pairs = pairs[y[pairs[:, 0]] != y[pairs[:, 1]]]
    images = np.concatenate([x[pairs[:, 0]], x[pairs[:, 1]]], axis=2)
    digits = y[pairs]
    return images, digits, np.eye(10, dtype="float32")[digits].sum(1)


image = fk.Input((28, 56, 1))
x = layers.Conv2D(16, 5, strides=2, padding="same", activation="relu")(image)
x = layers.BatchNormalization(momentum=0.9)(x)
x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
x = layers.MaxPooling2D()(layers.BatchNormalization(momentum=0.9)(x))
x = layers.Conv2D(64, 3, padding="same", activation="relu", name="last_convolution")(x)
x = layers.GlobalAveragePooling2D()(layers.BatchNormalization(momentum=0.9)(x))
model = fk.Model(image, layers.Dense(10)(x))

(x_train, y_train), (x_test, y_test) = load_digits()
if short:
    x_train, y_train, x_test, y_test = x_train[:512], y_train[:512], x_test[:128], y_test[:128]
images, _, labels = side_by_side(x_train, y_train, seed=0)
loss = fk.losses.BinaryCrossentropy(from_logits=True)
trainer = fk.Trainer(fk.optimizers.Adam(3e-3), loss)
run = trainer.init(model, jax.random.key(0))
run, _ = trainer.fit(run, images, labels, epochs=1 if short else 12, batch_size=64)

# Two models with the trained weights: from the image to the tensor, and from the tensor to the scores.
# Both accept the state of the complete model, and read only the entries of their own layers.
features = run.model.tensor("last_convolution")
before, after = fk.Model(run.model.inputs, features), fk.Model(features, run.model.outputs)


@jax.jit
def grad_cam(image, digit):
    """Returns the sum of the feature maps, each weighted by the mean gradient of the digit's score."""
    maps = before(image[None], state=run.state)
    gradients = jax.grad(lambda maps: after(maps, state=run.state)[0, digit])(maps)
    return jax.nn.relu((maps * gradients.mean((1, 2), keepdims=True)).sum(-1)[0])


images, digits, _ = side_by_side(x_test, y_test, seed=1)
scores = trainer.predict(run, images)
recognized = (np.sort(scores.argsort(-1)[:, -2:]) == np.sort(digits)).all(-1)
heat_maps = jax.vmap(jax.vmap(grad_cam, (None, 0)))(images, digits)  # (b, 2, h, w)
left, right = heat_maps[..., : heat_maps.shape[-1] // 2], heat_maps[..., heat_maps.shape[-1] // 2 :]
on_left = left.sum((2, 3)) > right.sum((2, 3))
# the first digit of a pair is on the left, the second on the right
on_correct_side = np.asarray(on_left == jnp.array([True, False]))

example = np.asarray(jax.image.resize(heat_maps[0], (2, 14, 56), "linear"))
for name, rows in [("image", images[0, ::2, :, 0]), *zip(digits[0], example, strict=True)]:
    print(f"{name}:")
    for row in rows / (rows.max() + 1e-6):
        print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))
print(f"both digits are recognized in {recognized.mean():.1%} of the test images;")
print(f"{on_correct_side[recognized].mean():.1%} of their heat maps lie on the side of the digit")

"""Grad-CAM: shows which part of an image made a network see a digit.

Follows keras.io's "Grad-CAM class activation visualization". Each image has two different digits
side by side, so the answer can be checked: the map of each digit must lie on the side of that digit.
Measured: both digits are named in 91.2 % of new images, and 99.9 % of their maps lie on that side.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short


def side_by_side(x, y, seed):
    """`(images, digits, labels)`: two different digits left and right, and a 1 for each of them."""
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

# the graph is a value: two models, before and after the tensor, have the trained weights;
# each takes the entries of its layers from the state
last = run.model.tensor("last_convolution")
before, after = fk.Model(run.model.inputs, last), fk.Model(last, run.model.outputs)


@jax.jit
def grad_cam(image, digit):
    """The sum of the maps, each weighted by the mean slope of the digit's score."""
    maps = before(image[None], state=run.state)
    slopes = jax.grad(lambda maps: after(maps, state=run.state)[0, digit])(maps)
    return jax.nn.relu((maps * slopes.mean((1, 2), keepdims=True)).sum(-1)[0])


images, digits, _ = side_by_side(x_test, y_test, seed=1)
scores = trainer.predict(run, images)
both = (np.sort(scores.argsort(-1)[:, -2:]) == np.sort(digits)).all(-1)
heat = jax.vmap(jax.vmap(grad_cam, (None, 0)))(images, digits)  # (b, 2, h, w)
left, right = heat[..., : heat.shape[-1] // 2], heat[..., heat.shape[-1] // 2 :]
on_left = left.sum((2, 3)) > right.sum((2, 3))
right_side = np.asarray(on_left == jnp.array([True, False]))

example = np.asarray(jax.image.resize(heat[0], (2, 14, 56), "linear"))
for name, rows in [("image", images[0, ::2, :, 0]), *zip(digits[0], example, strict=True)]:
    print(f"{name}:")
    for row in rows / (rows.max() + 1e-6):
        print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))
print(f"both digits named in {both.mean():.1%} of new images; where they are,")
print(f"the map lies on the side of its digit in {right_side[both].mean():.1%} of the cases")

"""A 3D U-Net segments balls in noisy volumes, and then a volume of another size."""

import jax
import numpy as np

import fkeras as fk
from fkeras import layers


def volumes(count, size, seed):
    rng = np.random.default_rng(seed)
    center = rng.uniform(4, size - 4, (count, 1, 1, 1, 3))
    grid = np.stack(np.meshgrid(*[np.arange(size)] * 3, indexing="ij"), axis=-1)
    inside = np.linalg.norm(grid - center, axis=-1) < rng.uniform(3, 5, (count, 1, 1, 1))
    noisy = inside + rng.normal(0, 0.5, inside.shape)
    return noisy[..., None].astype("float32"), inside[..., None].astype("float32")


def convolution(filters):
    return layers.Conv3D(filters, 3, padding="same", activation="relu")


volume = fk.Input((None, None, None, 1))  # any even sizes
fine = convolution(4)(volume)
coarse = convolution(8)(layers.MaxPooling3D()(fine))
x = convolution(4)(layers.Concatenate()([fine, layers.UpSampling3D()(coarse)]))
model = fk.Model(volume, layers.Conv3D(1, 1, activation="sigmoid")(x))


def dice_and_cross_entropy(y_true, y_pred):
    cross_entropy = fk.losses.binary_crossentropy(y_true, y_pred).mean(axis=(1, 2, 3))
    return fk.losses.dice(y_true, y_pred, axis=(1, 2, 3, 4)) + cross_entropy


trainer = fk.Trainer(fk.optimizers.Adam(0.01), dice_and_cross_entropy)
run = trainer.init(model, jax.random.key(0))
run, _ = trainer.fit(run, *volumes(32, 12, 0), batch_size=8, epochs=12, verbose=0)

# the overlap in a larger volume, from counts of voxels
x, y = volumes(4, 20, 1)
found = trainer.predict(run, x) > 0.5
overlap = 2 * (found & (y > 0)).sum() / (found.sum() + y.sum())
assert overlap > 0.9, overlap

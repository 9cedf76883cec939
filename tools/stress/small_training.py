"""The training that `kill_training.py` and `kill_processes.py` kill: small, with state in every part."""

import numpy as np

import fkeras as fk
from fkeras import layers

EPOCHS, ROWS, BATCH = 3, 76, 8


def small_training(mesh=None):
    """Returns the trainer, the model and the rows: a network with Dropout and BatchNormalization."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6)).astype("float32")
    y = (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0)
    inputs = fk.Input((6,))
    h = layers.BatchNormalization()(layers.Dropout(0.3)(layers.Dense(12, "relu")(inputs)))
    model = fk.Model(inputs, layers.Dense(3, "softmax")(h))
    trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], mesh=mesh)
    return trainer, model, x, y

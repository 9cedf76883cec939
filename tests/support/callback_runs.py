"""A small trainer, its run, and drivers that call the hooks of our callbacks and of Keras's."""

import pickle

import jax
import jax.numpy as jnp
import keras
import numpy as np

import fkeras as fk
from fkeras import layers
from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    Callback,
)

KEY = jax.random.key(0)


RNG = np.random.default_rng(0)


X = RNG.normal(size=(24, 3)).astype("float32")


Y = X @ np.ones((3, 1), "float32")


TRAINER = fk.Trainer(fk.optimizers.SGD(0.1), "mse")


def network():
    x = fk.Input((3,), name="x")
    h = layers.BatchNormalization(name="norm")(layers.Dense(2, name="body")(x))
    return fk.Model(x, layers.Dense(1, name="head")(h))


RUN = TRAINER.init(network(), KEY)


def shifted(run, number):
    """The run with all weights and states shifted."""
    model, state = jax.tree.map(lambda a: a + jnp.asarray(number, a.dtype), (run.model, run.state))
    return run.replace(model=model, state=state)


def drive(callback, sequence, run=RUN, first=0, through=lambda run: run):
    """`(run, epochs)` after the hooks of a training with these logs, without a training."""
    (callback,) = hooks.check_callbacks(callback)
    hooks_of_callback = (callback,)
    run, stop = hooks.call(hooks_of_callback, "on_train_begin", run)
    epochs = 0
    for epoch, logs in enumerate(sequence, first):
        if stop:
            break
        run, _ = hooks.call(hooks_of_callback, "on_epoch_begin", run, epoch)
        run = shifted(run, 1.0)
        run, stop = hooks.call(hooks_of_callback, "on_epoch_end", run, epoch, logs)
        run = through(run)
        epochs += 1
    run, _ = hooks.call(hooks_of_callback, "on_train_end", run)
    return run, epochs


def pickled(run):
    return pickle.loads(pickle.dumps(run))


def fit(*callbacks, run=RUN, epochs=2, **options):
    options = {"batch_size": 8, "shuffle": False, "verbose": 0} | options
    return TRAINER.fit(run, X, Y, epochs=epochs, callbacks=list(callbacks), **options)


LOSSES = (1.0, 0.8, 0.81, 0.79, 0.9, 0.7, 0.72, 0.71, 0.7, 0.69, 0.8, 0.9, 1.0)


class Counter(Callback):
    def on_epoch_end(self, epoch, run, logs):
        return self.remember(run, {"epochs": int(self.recall(run, {"epochs": 0})["epochs"]) + 1})


class Stub:
    """The part of a model that Keras's callbacks need."""

    def __init__(self):
        self.stop_training, self.weights = False, 0.0
        self.optimizer = keras.optimizers.SGD(0.1)

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


def drive_keras(callback, sequence):
    model = Stub()
    callback.set_model(model)
    callback.on_train_begin()
    epochs, rates = 0, []
    for epoch, logs in enumerate(sequence):
        if model.stop_training:
            break
        callback.on_epoch_begin(epoch)
        model.weights += 1.0
        callback.on_epoch_end(epoch, dict(logs))
        rates.append(float(model.optimizer.learning_rate))
        epochs += 1
    callback.on_train_end()
    return model, epochs, rates

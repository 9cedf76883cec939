"""Distillation by an objective: a small network learns the scores of a larger one, without labels."""

import argparse

import jax
import jax.numpy as jnp
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short
(x_train, y_train), (x_test, y_test) = load_digits()
count, epochs = (512, 1) if short else (len(x_train), 10)
x_train, y_train = x_train[:count], y_train[:count]

# the teacher is trained with labels, as usual
teacher = fk.Sequential(
    [
        fk.Input((28, 28, 1)),
        layers.Conv2D(32, 5, strides=2, activation="relu"),
        layers.Conv2D(64, 3, strides=2, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ],
    name="teacher",
)
loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer("adam", loss, metrics=["sparse_categorical_accuracy"])
taught = trainer.init(teacher, jax.random.key(0))
taught, _ = trainer.fit(taught, x_train, y_train, epochs=epochs, batch_size=64)

# one model holds teacher and student; a frozen teacher needs no gradients
student = fk.Sequential(
    [layers.Flatten(), layers.Dense(16, activation="relu"), layers.Dense(10)], name="student"
)
inputs = fk.Input((28, 28, 1))
outputs = {"learned": student(inputs), "taught": fk.freeze(taught.model)(inputs)}
both = fk.Model(inputs, outputs)


def distill(model, state, batch, key, training):
    """The cross-entropy of the student's scores with the softened scores of the teacher."""
    out = model.apply(batch, state=state, training=training, key=key)
    learned, taught = out.value["learned"], out.value["taught"]
    soft = jax.nn.softmax(taught / 3)
    loss = -(soft * jax.nn.log_softmax(learned / 3)).sum(-1).mean()
    agreement = (learned.argmax(-1) == taught.argmax(-1)).mean()
    return fk.Output(loss, out.updates, out.losses, metrics={"agreement": agreement})


stop = fk.callbacks.EarlyStopping("val_agreement", mode="max", patience=3)
trainer = fk.Trainer("adam", objective=distill)
run = trainer.init(both, jax.random.key(1))
run, history = trainer.fit(  # no labels: a batch consists of images
    run, x_train, epochs=2 * epochs, batch_size=64, validation_data=x_test, callbacks=[stop]
)

small, large = (run.model.layers[name] for name in ("student", "teacher"))
right = (jnp.argmax(small(x_test), -1) == y_test).mean()
print(f"The student has {small.count_params()} weights, the teacher {large.count_params()}.")
print(f"It agrees with the teacher on {history.history['val_agreement'][-1]:.1%} of new digits")
print(f"and names {right:.1%} of them correctly, without having seen a label.")

"""Knowledge distillation by an objective: a student learns a teacher's scores without labels."""

import argparse

import jax
import jax.numpy as jnp
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short
(x_train, y_train), (x_test, y_test) = load_digits()
count, epochs = (512, 1) if short else (len(x_train), 10)
x_train, y_train = x_train[:count], y_train[:count]

# train the teacher with labels
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
teacher_run = trainer.init(teacher, jax.random.key(0))
teacher_run, _ = trainer.fit(teacher_run, x_train, y_train, epochs=epochs, batch_size=64)

# one model holds both networks; the teacher is frozen and gets no gradients
student = fk.Sequential(
    [layers.Flatten(), layers.Dense(16, activation="relu"), layers.Dense(10)], name="student"
)
inputs = fk.Input((28, 28, 1))
outputs = {"student": student(inputs), "teacher": fk.freeze(teacher_run.model)(inputs)}
both = fk.Model(inputs, outputs)


def distill(model, state, batch, key, training):
    """Cross-entropy between the class probabilities of student and teacher at the temperature 3."""
    out = model.apply(batch, state=state, training=training, key=key)
    student_scores, teacher_scores = out.value["student"], out.value["teacher"]
    probabilities = jax.nn.softmax(teacher_scores / 3)
    loss = -(probabilities * jax.nn.log_softmax(student_scores / 3)).sum(-1).mean()
    agreement = (student_scores.argmax(-1) == teacher_scores.argmax(-1)).mean()
    return fk.Output(loss, out.updates, out.losses, metrics={"agreement": agreement})


stop = fk.callbacks.EarlyStopping("val_agreement", mode="max", patience=3)
trainer = fk.Trainer("adam", objective=distill)
run = trainer.init(both, jax.random.key(1))
run, history = trainer.fit(  # no labels: a batch consists of images
    run, x_train, epochs=2 * epochs, batch_size=64, validation_data=x_test, callbacks=[stop]
)

student_layer, teacher_layer = (run.model.layers[name] for name in ("student", "teacher"))
accuracy = (jnp.argmax(student_layer(x_test), -1) == y_test).mean()
print(
    f"The student has {student_layer.count_params()} weights, the teacher {teacher_layer.count_params()}."
)
print(f"Without labels, the student reaches a test accuracy of {accuracy:.1%}")
print(
    f"and agrees with the teacher on {history.history['val_agreement'][-1]:.1%} of the test digits."
)

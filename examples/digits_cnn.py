"""A small convolutional network that classifies handwritten digits.

    python examples/digits_cnn.py

trains on 4,000 digits, evaluates on 1,000 other digits, prints the accuracy for each digit and writes
the confusion matrix to digits_confusion.png.
"""

import argparse
import time

import jax
import matplotlib
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

matplotlib.use("agg")
import matplotlib.pyplot as plt

fk.utils.cache_programs()  # the second start compiles nothing


def make_model(convolutions=2):
    """Returns a network of two blocks of convolutions with batch normalization, and a dense layer."""
    inputs = fk.Input((28, 28, 1), name="image")
    x = inputs
    for filters in (16, 32):
        for _ in range(convolutions):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization(momentum=0.9)(x)
            x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D()(x)
        x = layers.Dropout(0.2)(x)
    x = layers.Dropout(0.5)(layers.Flatten()(x))
    return fk.Model(inputs, layers.Dense(10, activation="softmax", name="digit")(x))


def confusion_matrix(labels, predictions, classes=10):
    """Returns the number of images of each class (rows) that were predicted as each class (columns)."""
    matrix = np.zeros((classes, classes), int)
    np.add.at(matrix, (labels, predictions), 1)
    return matrix


def draw(matrix, path):
    """Draws the confusion matrix to an image file."""
    figure, axes = plt.subplots(figsize=(5, 5))
    axes.imshow(np.log1p(matrix), cmap="Blues")
    for row, column in np.argwhere(matrix):
        is_dark = matrix[row, column] > matrix.max() / 4
        axes.text(
            column,
            row,
            matrix[row, column],
            ha="center",
            va="center",
            color="w" if is_dark else "k",
        )
    axes.set(xlabel="predicted digit", ylabel="digit", xticks=range(10), yticks=range(10))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument(
        "--short", action="store_true", help="train on a small part, as a test of the program"
    )
    parser.add_argument("--picture", default="digits_confusion.png")
    options = parser.parse_args()
    start = time.perf_counter()
    (x_train, y_train), (x_test, y_test) = load_digits()
    epochs = options.epochs
    if options.short:
        x_train, y_train, epochs = x_train[:256], y_train[:256], 1

    model = make_model(convolutions=1 if options.short else 2)
    model.summary()
    schedule = fk.optimizers.schedules.CosineDecay(
        3e-3, decay_steps=epochs * -(-len(x_train) // 64)
    )
    trainer = fk.Trainer(
        optimizer=fk.optimizers.Adam(schedule),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.fit(
        run, x_train, y_train, batch_size=64, epochs=epochs, validation_data=(x_test, y_test)
    )
    logs = trainer.evaluate(run, x_test, y_test, verbose=0)
    predictions = trainer.predict(run, x_test).argmax(-1)
    matrix = confusion_matrix(y_test, predictions)
    print("\ntest accuracy for each digit")
    for digit, row in enumerate(matrix):
        print(f"  {digit}  {row[digit] / row.sum():7.2%}  ({row[digit]} of {row.sum()})")
    draw(matrix, options.picture)
    print(f"test accuracy {logs['accuracy']:.2%}, loss {logs['loss']:.4f}")
    print(f"confusion matrix: {options.picture}; {time.perf_counter() - start:.0f} s")
    if not options.short and logs["accuracy"] < 0.96:  # measured: 97.2 %
        raise SystemExit("expected a test accuracy of 96 % or more: training has failed")


if __name__ == "__main__":
    main()

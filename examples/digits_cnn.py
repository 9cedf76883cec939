"""A small convolutional network that classifies handwritten digits.

    python examples/digits_cnn.py

trains on 4,000 digits, evaluates on 1,000 other digits, prints the confusion matrix with the
accuracy for each digit, and draws the matrix to digits_confusion.png.
"""

import argparse
import time

import jax
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

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
    predictions = trainer.predict(run, x_test)
    matrix = fk.utils.confusion_matrix(y_test, predictions)
    print(f"\n{matrix}")
    matrix.plot().savefig(options.picture, dpi=120)
    print(f"test accuracy {logs['accuracy']:.2%}, loss {logs['loss']:.4f}")
    print(f"confusion matrix: {options.picture}; {time.perf_counter() - start:.0f} s")
    if not options.short and logs["accuracy"] < 0.96:  # measured: 97.2 %
        raise SystemExit("expected a test accuracy of 96 % or more: training has failed")


if __name__ == "__main__":
    main()

"""Image classification with augmentation: a small Xception learns from a few, distorted images.

Follows keras.io's "Image classification from scratch". The random layers are part of the model: in
training they distort each batch on the device, in evaluation they do nothing.
Measured accuracy on 1,000 test digits after training on 1,000 digits: 94.5 % without augmentation,
95.9 % with augmentation.
"""

import argparse

import jax
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short


def make_model(augmented: bool, widths: tuple[int, ...]) -> fk.Model:
    """Returns a network of separable convolutions with residual connections."""
    image = fk.Input((28, 28, 1))
    x = image
    if augmented:
        x = layers.RandomTranslation(0.08, 0.08, fill_mode="constant")(x)
        x = layers.RandomRotation(0.04, fill_mode="constant")(x)
        x = layers.RandomZoom(0.1, fill_mode="constant")(x)
    x = layers.Conv2D(16, 3, strides=2, padding="same")(x)
    x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.9)(x))
    for filters in widths:
        shortcut = x
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization(momentum=0.9)(layers.Activation("relu")(x))
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = x + layers.Conv2D(filters, 1, strides=2, padding="same")(shortcut)
    x = layers.SeparableConv2D(128, 3, padding="same")(x)
    x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.Dropout(0.25)(layers.GlobalAveragePooling2D()(x))
    return fk.Model(image, layers.Dense(10)(x))


(x_train, y_train), (x_test, y_test) = load_digits()
count, epochs = (100, 1) if short else (1000, 40)
widths = (8,) if short else (32, 64)
x_train, y_train = x_train[:count], y_train[:count]
if short:
    x_test, y_test = x_test[:256], y_test[:256]
accuracy = {}
for augmented in (True,) if short else (False, True):
    schedule = fk.optimizers.schedules.CosineDecay(3e-3, epochs * -(-count // 50))
    trainer = fk.Trainer(
        fk.optimizers.Adam(schedule),
        fk.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    run = trainer.init(make_model(augmented, widths), jax.random.key(0))
    run, _ = trainer.fit(run, x_train, y_train, epochs=epochs, batch_size=50, verbose=2)
    accuracy[augmented] = trainer.evaluate(run, x_test, y_test, verbose=0)["accuracy"]
results = [f"{value:.2%} {'with' if key else 'without'}" for key, value in accuracy.items()]
print(f"test accuracy after training on {count} digits: {' and '.join(results)} augmentation")

"""`model.save("m.h5")` of Keras 3: the same outputs, and the same training afterwards."""

import keras
import numpy as np
import pytest
from keras import layers

from fkeras.host.containers.hdf5 import open_store
from fkeras.saving import legacy
from tests.support.keras_oracle import keras_rules


def _saved(model, path):
    with keras_rules():
        model.save(path)
    return path


def _load(path):
    with open_store(path) as store:
        return legacy.load(store, str(path))[:2]


def _randomize(model):
    rng = np.random.default_rng(0)
    model.set_weights(
        [np.abs(rng.normal(size=w.shape)).astype("float32") + 0.1 for w in model.weights]
    )
    return model


def _branches():
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    inner = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(4, activation="hard_sigmoid", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dense(4, trainable=False),
            layers.BatchNormalization(),
        ],
        name="inner",
    )
    z = layers.Concatenate()([inner(a), inner(b)])
    z = layers.Dropout(0.3)(z, training=False)
    r = layers.Reshape((2, 4))(z)
    _, h, _ = layers.LSTM(3, return_state=True)(r)
    y = layers.Bidirectional(layers.GRU(2))(r)
    return keras.Model({"a": a, "b": b}, [layers.Dense(2, kernel_constraint="max_norm")(z), h, y])


def _row():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.SeparableConv2D(4, 3),
            layers.LeakyReLU(),
            layers.GroupNormalization(2),
            layers.Conv2DTranspose(3, 2, strides=2, activation="gelu"),
            layers.GlobalAveragePooling2D(),
            layers.Rescaling(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("make", "shapes"), [(_branches, {"a": (6,), "b": (6,)}), (_row, {"x": (8, 8, 3)})]
)
def test_outputs_equal_those_of_keras_3(make, shapes, tmp_path):
    with keras_rules():
        model = _randomize(make())
        rng = np.random.default_rng(1)
        x = {k: rng.normal(size=(3, *v)).astype("float32") for k, v in shapes.items()}
        x = x.get("x", x)
        expected = model(x)
    ours, state = _load(_saved(model, tmp_path / "m.h5"))
    values = ours.apply(x, state=state).value
    many = isinstance(expected, list)
    for value, expected_value in zip(
        values if many else [values], expected if many else [expected], strict=True
    ):
        np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.05, amsgrad=True, clipnorm=0.5),
        lambda: keras.optimizers.RMSprop(0.05, momentum=0.5, centered=True),
        lambda: keras.optimizers.Nadam(0.05),
        lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), 0.9),
    ],
    ids=["adam", "rmsprop", "nadam", "sgd"],
)
def test_training_resumes_as_in_keras_3(make, tmp_path):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
    with keras_rules():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(4, "tanh"), layers.Dense(1)])
        model.compile(make(), "mse", metrics=["mae"])
        for _ in range(3):
            model.train_on_batch(x, y)
        path = _saved(model, tmp_path / "m.h5")
        expected = []
        for _ in range(3):
            model.reset_metrics()
            expected.append(float(model.train_on_batch(x, y)[0]))
    with open_store(path) as store:
        trainer, run = legacy.load_training(store, str(path))
    losses = []
    for _ in range(3):
        run, logs = trainer.step(run, (x, y))
        losses.append(float(logs["loss"]))
    assert int(run.step) == 6
    np.testing.assert_allclose(losses, expected, rtol=1e-5)

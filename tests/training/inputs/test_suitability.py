"""Warnings of losses that cannot train with the last activation: one row per model."""

import warnings

import jax
import pytest

import fkeras as fk
from fkeras import layers, losses, ops


def _nested(tensor):
    return fk.Sequential([fk.Input((4,)), layers.Dense(1, "sigmoid")], name="inner")(tensor)


def _logits(name):
    return getattr(losses, name)(from_logits=True)


# output of an input of 4 numbers, loss, the line to write
UNSUITABLE = {
    "cross-entropy of one class": (
        layers.Dense(1),
        "categorical_crossentropy",
        'Dense(1, activation="sigmoid") and loss="binary_crossentropy"',
    ),
    "class numbers of one class": (
        layers.Dense(1, "softmax"),
        "sparse_categorical_crossentropy",
        'Dense(1, activation="sigmoid") and loss="binary_crossentropy"',
    ),
    "softmax of one unit": (layers.Dense(1, "softmax"), "bce", 'Write activation="sigmoid".'),
    "softmax of one unit, another loss": (
        lambda x: layers.Softmax()(layers.Dense(1)(x)),
        "mse",
        'Write activation="sigmoid".',
    ),
    "linear": (
        layers.Dense(3),
        "sparse_categorical_crossentropy",
        'loss=fk.losses.SparseCategoricalCrossentropy(from_logits=True), or activation="softmax"',
    ),
    "linear, another shape": (
        lambda x: layers.Reshape((1, 1))(layers.Dense(1)(x)),
        "bce",
        'loss=fk.losses.BinaryCrossentropy(from_logits=True), or activation="sigmoid"',
    ),
    "linear, the name of a kind of loss": (layers.Dense(3), "ce", "from_logits=True"),
    "linear for each step": (
        lambda x: layers.TimeDistributed(layers.Dense(3))(layers.Reshape((2, 2))(x)),
        "categorical_crossentropy",
        "CategoricalCrossentropy(from_logits=True)",
    ),
    "relu": (layers.Dense(1, "relu"), "bce", 'Write activation="sigmoid".'),
    "relu layer": (
        lambda x: layers.ReLU()(layers.Dense(3)(x)),
        "categorical_focal_crossentropy",
        'Write activation="softmax".',
    ),
    "log of the softmax": (
        layers.Dense(3, "log_softmax"),
        "categorical_crossentropy",
        'Write activation="softmax".',
    ),
    "logits of an operation": (
        lambda x: ops.softmax(layers.Dense(3)(x)),
        _logits("CategoricalCrossentropy"),
        "Write loss=fk.losses.CategoricalCrossentropy(), or remove the activation.",
    ),
    "logits of an inner model": (
        _nested,
        _logits("BinaryFocalCrossentropy"),
        "Write loss=fk.losses.BinaryFocalCrossentropy(), or remove the activation.",
    ),
}

SUITABLE = {
    "softmax": (layers.Dense(3, "softmax"), "categorical_crossentropy"),
    "sigmoid": (layers.Dense(1, "sigmoid"), "bce"),
    "sigmoid of several classes": (layers.Dense(3, "sigmoid"), "categorical_crossentropy"),
    "positive shares": (layers.Dense(3, "softplus"), "categorical_crossentropy"),
    "logits": (layers.Dense(3), _logits("SparseCategoricalCrossentropy")),
    "logits of a log softmax": (
        layers.Dense(3, "log_softmax"),
        _logits("CategoricalCrossentropy"),
    ),
    "regression": (layers.Dense(1), "mse"),
    "unknown function": (layers.Dense(1, jax.nn.sigmoid), "bce"),
    "any layer": (lambda x: layers.Lambda(lambda y: y)(layers.Dense(1)(x)), "bce"),
    "gated": (
        lambda x: layers.Dense(3, "softmax")(layers.LSTM(3)(layers.Reshape((2, 2))(x))),
        "categorical_crossentropy",
    ),
    "softmax over another axis": (
        lambda x: ops.softmax(layers.Reshape((4, 1))(x), axis=1),
        "mse",
    ),
    "input": (lambda x: x, "categorical_crossentropy"),
}


def _init(outputs, loss):
    inputs = fk.Input((4,))
    trainer = fk.Trainer("sgd", loss)
    return trainer.init(fk.Model(inputs, outputs(inputs)), jax.random.key(0))


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", UNSUITABLE)
def test_init_warns_with_the_line_to_write(name):
    outputs, loss, line = UNSUITABLE[name]
    with pytest.warns(UserWarning, match=r"Trainer.init, output '\w+': expected") as caught:
        _init(outputs, loss)
    (warning,) = caught
    assert line in str(warning.message)
    assert warning.filename == __file__  # the line of the user


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SUITABLE)
def test_init_is_silent_about_losses_that_train(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _init(*SUITABLE[name])


def test_each_output_has_a_warning_of_its_own():
    inputs = fk.Input((4,))
    outputs = [layers.Dense(1, name="score")(inputs), layers.Dense(3, name="kind")(inputs)]
    trainer = fk.Trainer("sgd", ["bce", "categorical_crossentropy"])
    with pytest.warns(UserWarning, match="Trainer.init") as caught:
        _ = trainer.init(fk.Model(inputs, outputs), jax.random.key(0))
    assert ["'score'" in str(w.message) for w in caught] == [True, False]
    assert ["'kind'" in str(w.message) for w in caught] == [False, True]


@pytest.mark.parametrize("name", ["adam", "scaled", "factor", "bfloat16", "frozen", "objective"])
def test_init_warns_of_float16_without_a_loss_scale(name):
    optimizer = {
        "scaled": fk.optimizers.LossScaleOptimizer("adam"),
        "factor": fk.optimizers.Adam(loss_scale_factor=1024.0),
    }.get(name, "adam")
    dtype = "mixed_bfloat16" if name == "bfloat16" else "mixed_float16"
    layer = layers.Dense(2, dtype=dtype, trainable=name != "frozen", name="half")
    model = fk.Sequential([fk.Input((3,)), layer])
    trainer = fk.Trainer(optimizer, "mse")
    if name == "objective":
        trainer = fk.Trainer(optimizer, objective=lambda *_: None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.init(model, jax.random.key(0))
    words = [str(w.message) for w in found if "float16" in str(w.message)]
    assert len(words) == (name == "adam")
    assert all("'half'" in w and "LossScaleOptimizer" in w for w in words)

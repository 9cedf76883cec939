"""Cross-entropies of probabilities from the logits: the same numbers, without the clip and its lost gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.step.logits import with_logits
from fkeras.training.step.outputs import heads

X = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0], [2.0, 1.0, 1.0], [-1.0, 0.0, 2.0]], "float32")
SPARSE = fk.losses.SparseCategoricalCrossentropy()
BINARY = fk.losses.BinaryCrossentropy(label_smoothing=0.1)


class Doubled(layers.Dense):
    def call(self, x):
        return 2 * super().call(x)


class Tempered(fk.losses.SparseCategoricalCrossentropy):
    def call(self, y_true, y_pred):
        return super().call(y_true, y_pred**0.5)


def sequential(*tail):
    return fk.Sequential([fk.Input((3,)), *tail])


def read_twice():
    x = fk.Input((3,))
    y = layers.Dense(2, "softmax")(x)
    return fk.Model(x, {"classes": y, "doubled": layers.Rescaling(2.0)(y)})


def shared():
    x, layer = fk.Input((3,)), layers.Dense(3, "softmax")
    return fk.Model(x, layer(layer(x)))


def masked():
    x = fk.Input((3,))
    return fk.Model(x, layers.Softmax()(layers.Dense(2)(x), mask=jnp.array([[True, True]])))


def channels_first(axis):
    x = fk.Input((4, 3))
    return fk.Model(x, layers.Softmax(axis=axis)(layers.Dense(2)(x)))


def operation(function):
    x = fk.Input((3,))
    return fk.Model(x, function(layers.Dense(2)(x)))


# (model, loss, whether the loss takes logits)
CASES = {
    "Dense": (lambda: sequential(layers.Dense(2, "softmax")), SPARSE, True),
    "jax.nn": (lambda: sequential(layers.Dense(2, jax.nn.softmax)), SPARSE, True),
    "Activation": (lambda: sequential(layers.Dense(2), layers.Activation("softmax")), "ce", True),
    "Softmax": (lambda: sequential(layers.Dense(2), layers.Softmax()), SPARSE, True),
    "operation": (lambda: operation(fk.ops.softmax), SPARSE, True),
    "sigmoid": (lambda: sequential(layers.Dense(2, "sigmoid")), BINARY, True),
    "sigmoid operation": (lambda: operation(fk.ops.sigmoid), BINARY, True),
    "nested": (lambda: sequential(sequential(layers.Dense(2, "softmax"))), SPARSE, True),
    "axis": (lambda: channels_first(1), fk.losses.CategoricalCrossentropy(axis=-2), True),
    "other axis": (lambda: channels_first(1), fk.losses.CategoricalCrossentropy(), False),
    "softmax, binary": (lambda: sequential(layers.Dense(2, "softmax")), BINARY, False),
    "sigmoid, sparse": (lambda: sequential(layers.Dense(2, "sigmoid")), SPARSE, False),
    "logits": (
        lambda: sequential(layers.Dense(2, "softmax")),
        fk.losses.SparseCategoricalCrossentropy(from_logits=True),
        False,
    ),
    "own loss": (lambda: sequential(layers.Dense(2, "softmax")), Tempered(), False),
    "function": (lambda: sequential(layers.Dense(2, "softmax")), lambda y, p: -jnp.log(p), False),
    "own layer": (lambda: sequential(Doubled(2, "softmax")), SPARSE, False),
    "penalty": (
        lambda: sequential(layers.Dense(2, "softmax", activity_regularizer="l2")),
        SPARSE,
        False,
    ),
    "read twice": (read_twice, {"classes": SPARSE, "doubled": "mse"}, False),
    "shared": (shared, SPARSE, False),
    "masked": (masked, SPARSE, False),
    "last activation inside": (
        lambda: sequential(layers.Dense(2, "softmax"), layers.Reshape((2,))),
        SPARSE,
        False,
    ),
}


@pytest.mark.one_in(21)
@pytest.mark.parametrize("name", CASES)
def test_losses_take_logits_only_where_the_numbers_are_the_same(name, key):
    make, loss, expected = CASES[name]
    model, trainer = make().build(key), fk.Trainer(loss=loss)
    all_heads = heads(trainer, model)
    bare, new_heads, last = with_logits(model, all_heads)
    assert [activation is not None for activation in last] == [expected] * len(all_heads)
    if not expected:
        assert bare is model
        assert new_heads == all_heads
        return
    assert jax.tree.leaves(bare) == jax.tree.leaves(model)
    x = X if len(model.graph.specs[0].dims) == 2 else np.stack([X.T, X.T[::-1]]).swapaxes(1, 2)
    value, logits = model.apply(x).value, bare.apply(x).value
    np.testing.assert_array_equal(last[0](logits), value)
    kind = type(all_heads[0].loss)
    y = np.array([1, 0, 1, 1]) if kind is fk.losses.SparseCategoricalCrossentropy else value > 0.4
    (new, n), (old, m) = (
        h[0].loss.total(y, p) for h, p in ((new_heads, logits), (all_heads, value))
    )
    np.testing.assert_allclose(new / n, old / m, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_wrong_predictions_have_their_loss_and_gradient(kind, key):
    """A loss of clipped probabilities is at most 16.1, without a gradient above."""
    model = sequential(layers.Dense(2, kind, use_bias=False)).build(key)
    model, _ = model.set_weights([np.array([[30, -30], [0, 0], [0, 0]], "float32")])
    loss, y = ("sparse_categorical_crossentropy", np.zeros(1, "int32"))
    wrong, expected = np.array([[-1.0, 0, 0]], "float32"), 60.0
    if kind == "sigmoid":
        loss, y, expected = "binary_crossentropy", np.array([[1.0, 0.0]], "float32"), 30.0
    trainer = fk.Trainer("sgd", loss, metrics=["accuracy", "mse"] if y.ndim > 1 else ["accuracy"])
    run = trainer.init(model, key)
    new, logs = trainer.step(run, (wrong, y))
    np.testing.assert_allclose(logs["loss"], expected)
    assert logs["accuracy"] == 0
    if kind == "sigmoid":  # metrics see probabilities
        np.testing.assert_allclose(logs["mse"], 1.0)
    moved = jax.tree.leaves(new.model)[0] - jax.tree.leaves(run.model)[0]
    np.testing.assert_allclose(np.abs(moved[0]), 0.01 if kind == "softmax" else 0.005, rtol=1e-3)
    np.testing.assert_allclose(trainer.evaluate(run, wrong, y, verbose=0)["loss"], expected)


@pytest.mark.exhaustive
def test_training_with_metrics_masks_weights_and_rematerialization_computes_the_same(key):
    """The loss of logits, against the loss of probabilities by a subclass of the loss."""

    class Plain(fk.losses.SparseCategoricalCrossentropy):
        pass

    x = fk.Input((3,), dtype="int32")
    h = layers.Embedding(5, 4, mask_zero=True)(x)
    model = fk.Model(x, layers.Dense(3, "softmax")(layers.Dense(4, "tanh")(h))).build(key)
    ids = np.array([[1, 2, 0], [3, 0, 0], [4, 4, 1]], "int32")
    batch = (ids, np.array([[0, 1, 2], [2, 1, 0], [1, 1, 2]]), np.array([1.0, 0.0, 2.0], "float32"))
    results = []
    for loss in (SPARSE, Plain()):
        options = {"metrics": ["accuracy"], "weighted_metrics": ["crossentropy"]}
        for remat in (None, "full"):
            trainer = fk.Trainer("sgd", loss, remat=remat, **options)
            new, logs = trainer.step(trainer.init(model, key), batch)
            results.append((jax.tree.leaves(new.model), logs))
    for leaves, logs in results[:-1]:
        for a, b in zip(leaves, results[-1][0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        for name, value in logs.items():
            np.testing.assert_allclose(value, results[-1][1][name], rtol=1e-5)

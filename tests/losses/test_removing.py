"""Samples of weight 0 or outside the mask may hold NaN: losses, metrics and gradients stay finite."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, losses
from fkeras.losses.removing import removed

NAN = np.nan
GONE = 1  # the row that is removed
WEIGHT = np.array([1.0, 0.0, 2.0, 1.0], "float32")
DRAW = np.random.default_rng(0)
SHARES = DRAW.uniform(0.1, 0.9, (4, 3)).astype("float32")
ONE_HOT = np.eye(3, dtype="float32")[[0, 1, 2, 0]]
LABELS = np.array([0, 1, 2, 0], "int32")
# targets and predictions of the losses that take no one-hot targets and shares
OTHERS = {
    "CTC": (np.array([[1, 2], [1, 0], [2, 0], [1, 1]], "int32"), DRAW.random((4, 5, 3), "float32")),
    "Circle": (np.array([0, 1, 0, 1], "int32"), SHARES / np.linalg.norm(SHARES, axis=1)[:, None]),
    "CategoricalGeneralizedCrossEntropy": (LABELS, SHARES),
    "CRPS": (SHARES[:, 0], SHARES),
    "GaussianNLL": (SHARES[:, 0], SHARES[:, 1:]),
    "InfoNCE": (LABELS, np.stack([SHARES, SHARES[::-1]], 1)),
    "StudentTNLL": (SHARES[:, 0], SHARES),
    "SparseCategoricalCrossentropy": (LABELS, SHARES),
}
ALL = [
    name
    for name, cls in vars(losses).items()
    if inspect.isclass(cls) and issubclass(cls, losses.Loss) and cls is not losses.Loss
]
# one number for the whole batch, or samples that are compared with one another
JOINT = ("Circle", "Dice", "InfoNCE", "Tversky")
# the ways to compute a loss: elementwise, logarithms, roots, class numbers, sequences, joint
QUICK = (
    *("MeanSquaredError", "BinaryCrossentropy", "CosineSimilarity", "CTC"),
    *("SparseCategoricalCrossentropy", "Dice"),
)


def data(name):
    return OTHERS.get(name, (ONE_HOT, SHARES))


def loss_of(name):
    if name == "LossFunctionWrapper":
        return losses.LossFunctionWrapper(lambda y, p: -jnp.sum(y * jnp.log(p), axis=-1))
    return getattr(losses, name)()


def spoiled(array):
    array = np.array(array)
    if array.dtype.kind == "f":
        array[GONE] = NAN
        array[GONE].flat[0] = np.inf
    return array


def pairs(name):
    """Targets and predictions, unspoiled and spoiled in one or the other."""
    y, p = data(name)
    return [(y, p), (y, spoiled(p)), (spoiled(y), p)]


@functools.cache
def found(quick):
    """Value and gradient of the losses on all pairs, with weights and with a mask."""

    def compute(loss, y, p, options):
        return jax.value_and_grad(lambda p: loss(y, p, **options))(p)

    ways = ({"sample_weight": WEIGHT}, {"mask": WEIGHT > 0})

    @jax.jit
    def every(given):
        return {
            name: [[compute(loss_of(name), *pair, way) for pair in own] for way in ways]
            for name, own in given.items()
        }

    return jax.device_get(every({n: pairs(n) for n in ALL if (n in QUICK) == quick}))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.exhaustive) for n in ALL],
)
def test_removed_samples_affect_no_loss_or_gradient(name):
    for (value, gradient), *spoiled_ones in found(name in QUICK)[name]:
        assert np.isfinite(value)
        for other, slope in spoiled_ones:
            assert np.isfinite(other)
            assert np.isfinite(slope).all()
            # a missing target does not count in the mean, a sample of weight 0 does
            if name not in (*JOINT, "IgnoreMissing"):
                np.testing.assert_allclose(other, value, 1e-6)
                np.testing.assert_allclose(np.delete(slope, GONE, 0), np.delete(gradient, GONE, 0))
                assert (slope[GONE] == 0).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", JOINT)
def test_joint_losses_equal_those_without_the_removed_sample(name):
    y, p = data(name)
    loss = getattr(losses, name)(reduction="sum")
    remaining = np.delete(np.arange(4), GONE)
    mask = WEIGHT > 0
    expected = loss(y[remaining], p[remaining])
    value = loss(spoiled(y), spoiled(p), mask=mask)
    np.testing.assert_allclose(value, expected * (3 if name in ("Dice", "Tversky") else 1), 1e-6)
    assert np.isnan(loss(spoiled(y), spoiled(p)))


@pytest.mark.exhaustive
def test_classes_on_another_axis_and_weights_of_steps():
    loss = losses.CategoricalCrossentropy(axis=1)
    y = np.moveaxis(np.eye(3, dtype="float32")[DRAW.integers(0, 3, (2, 5))], 2, 1)
    p = DRAW.uniform(0.1, 0.9, (2, 3, 5)).astype("float32")
    weight = np.ones((2, 5), "float32")
    weight[1, 2] = 0
    bad = np.array(p)
    bad[1, 0, 2] = NAN
    value, slope = jax.value_and_grad(lambda p: loss(y, p, weight))(bad)
    expected, gradient = jax.value_and_grad(lambda p: loss(y, p, weight))(p)
    assert value == expected
    np.testing.assert_array_equal(slope, gradient)


@pytest.mark.exhaustive
def test_hinge_detects_binary_targets_despite_nan():
    y, p = np.array([[0.0], [NAN], [1.0]], "float32"), np.array([[0.5], [0.1], [0.25]], "float32")
    for loss in (losses.Hinge(), losses.SquaredHinge()):
        assert loss(y, p, [1.0, 0.0, 1.0]) == loss(np.nan_to_num(y), p, [1.0, 0.0, 1.0])


@pytest.mark.exhaustive
def test_derivatives_with_respect_to_zero_weights_are_kept():
    y, p = np.array([[1.0], [3.0]], "float32"), np.zeros((2, 1), "float32")
    loss = losses.MeanSquaredError(reduction="sum")
    zero = jnp.zeros(2)
    np.testing.assert_allclose(jax.grad(lambda w: loss(y, p, w))(zero), [1, 9])
    mixed = jax.jacobian(jax.grad(lambda p, w: loss(y, p, w)), argnums=1)(jnp.asarray(p), zero)
    np.testing.assert_allclose(mixed[:, 0], [[-2, 0], [0, -6]])
    # forward mode too, beside NaN
    bad = jnp.array([[NAN], [0.0]])
    tangent = jax.jvp(lambda p: loss(y, p, jnp.array([0.0, 1.0])), (bad,), (jnp.ones((2, 1)),))[1]
    assert tangent == -6


INPUTS = DRAW.normal(size=(8, 3)).astype("float32")
NUMBERS = INPUTS[:, :1].copy()
CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, 1], "int32")


@functools.cache
def two_outputs():
    x = fk.Input((3,))
    h = layers.Dense(4, activation="relu")(x)
    outputs = [layers.Dense(1, name="a")(h), layers.Dense(3, "softmax", name="b")(h)]
    trainer = fk.Trainer(
        "sgd",
        {"a": "mse", "b": "sparse_categorical_crossentropy"},
        weighted_metrics={"a": ["mae"], "b": ["accuracy"]},
    )
    return trainer, trainer.init(fk.Model(x, outputs), jax.random.key(0))


def equal_runs(one, two):
    for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(two.model), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.exhaustive
def test_trainings_with_removed_rows_of_nan_equal_those_without_nan():
    trainer, run = two_outputs()
    weights = {"a": np.ones(8, "float32"), "b": np.ones(8, "float32")}
    weights["a"][1] = weights["b"][1] = weights["b"][4] = 0
    x, a, b = INPUTS.copy(), NUMBERS.copy(), CLASSES.copy()
    x[1], a[1], b[4] = NAN, np.inf, -7
    results = []
    for rows in ((INPUTS, NUMBERS, CLASSES), (x, a, b)):
        x_, y_ = rows[0], {"a": rows[1], "b": rows[2]}
        new, history = trainer.fit(
            run, x_, y_, sample_weight=weights, batch_size=4, verbose=0, shuffle=False
        )
        logs = trainer.evaluate(new, x_, y_, sample_weight=weights, batch_size=4, verbose=0)
        stepped, step_logs = trainer.step(
            run, (x_[:4], jax.tree.map(lambda v: v[:4], y_), jax.tree.map(lambda v: v[:4], weights))
        )
        results.append((new, stepped, history.history, logs, step_logs))
    one, two = results
    equal_runs(one[0], two[0])
    equal_runs(one[1], two[1])
    assert one[2:] == two[2:]
    with pytest.raises(ValueError, match="row 1.*or give them a sample_weight of 0"):
        _ = trainer.fit(run, x, {"a": NUMBERS, "b": CLASSES}, verbose=0)
    weights["a"][1] = 1  # the other output needs the row
    with pytest.raises(ValueError, match="row 1"):
        _ = trainer.fit(run, x, {"a": NUMBERS, "b": CLASSES}, sample_weight=weights, verbose=0)


def test_a_class_of_weight_0_may_have_inputs_of_nan():
    model = fk.Sequential([fk.Input((3,)), layers.Dense(3, activation="softmax")])
    trainer = fk.Trainer("sgd", "sparse_categorical_crossentropy")
    run = trainer.init(model, jax.random.key(0))
    x = np.where((CLASSES == 1)[:, None], NAN, INPUTS).astype("float32")
    fit = functools.partial(trainer.fit, run, batch_size=4, verbose=0, shuffle=False)
    one, _ = fit(x, CLASSES, class_weight={1: 0.0})
    two, _ = fit(INPUTS, CLASSES, class_weight={1: 0.0})
    equal_runs(one, two)
    y = np.where(CLASSES == 1, NAN, CLASSES).astype("float32")
    three, _ = fit(INPUTS, y, sample_weight=(CLASSES != 1) * 1.0, class_weight={0: 2.0})
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(three.model))


@pytest.mark.exhaustive
def test_find_nan_ignores_removed_rows():
    trainer, run = two_outputs()
    x, weight = INPUTS.copy(), np.ones(8, "float32")
    x[1], weight[1] = NAN, 0
    y = {"a": NUMBERS, "b": CLASSES}
    weights = {"a": weight, "b": weight}
    assert fk.find_nan(run, (x, y, weights), trainer) is None
    x[2] = NAN
    assert fk.find_nan(run, (x, y, weights), trainer).phase == "batch"


def test_rows_without_weight_and_rows_under_a_mask_are_removed():
    weights, mask = np.array([1.0, 0.0, 1.0]), np.array([True, True, False])
    assert removed(weights, mask).tolist() == [False, True, True]
    assert removed(weights, None).tolist() == [False, True, False]
    assert removed(None, mask).tolist() == [False, False, True]
    assert removed(None, None) is None

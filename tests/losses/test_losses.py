"""Losses: Keras's numbers, exact totals over padded batches, gradients, checks of targets."""

import contextlib
import functools
import inspect
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fkeras import losses, ops
from fkeras.engine import snake_case
from fkeras.losses.naming import as_loss
from tests.support import keras_numpy
from tests.support.keras_oracle import keras, keras_rules

LOSSES = (
    losses.MeanSquaredError(),
    losses.MeanAbsoluteError(),
    losses.MeanAbsolutePercentageError(),
    losses.MeanSquaredLogarithmicError(),
    losses.Huber(0.3),
    losses.LogCosh(),
    losses.CosineSimilarity(),
    losses.CosineSimilarity(axis=1),
    losses.Hinge(),
    losses.SquaredHinge(),
    losses.CategoricalHinge(),
    losses.KLDivergence(),
    losses.Poisson(),
    losses.BinaryCrossentropy(),
    losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.2),
    losses.BinaryFocalCrossentropy(apply_class_balancing=True, gamma=1.5),
    losses.BinaryFocalCrossentropy(from_logits=True, label_smoothing=0.1),
    losses.CategoricalCrossentropy(label_smoothing=0.1),
    losses.CategoricalCrossentropy(from_logits=True),
    losses.CategoricalFocalCrossentropy(),
    losses.CategoricalFocalCrossentropy(0.5, 1.0, from_logits=True, label_smoothing=0.1),
    losses.SparseCategoricalCrossentropy(),
    losses.SparseCategoricalCrossentropy(from_logits=True),
    losses.SparseCategoricalCrossentropy(ignore_class=2),
    losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
)
REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none", None)


def data(loss, shape=(6, 4), seed=0):
    """Targets and predictions that the loss is meant for."""
    rng = np.random.default_rng(seed)
    y_pred = rng.normal(size=shape)
    name = type(loss).__name__
    if not getattr(loss, "from_logits", True) or name in ("KLDivergence", "Poisson"):
        y_pred = 1 / (1 + np.exp(-y_pred))
    if name.startswith("Sparse"):
        y_true = rng.integers(0, shape[-1], shape[:-1]).astype("int32")
        if loss.ignore_class is not None:
            y_true[rng.random(y_true.shape) < 0.3] = loss.ignore_class
            y_true[0] = loss.ignore_class
    elif name.startswith("Categorical"):
        y_true = np.eye(shape[-1])[rng.integers(0, shape[-1], shape[:-1])]
    elif name.startswith("Binary") or "Hinge" in name:
        y_true = rng.integers(0, 2, shape)
    else:
        y_true = rng.random(shape) + 0.1
    return (y_true if y_true.dtype == "int32" else y_true.astype("float32")), y_pred.astype(
        "float32"
    )


def options(loss):
    config = loss.get_config()
    return {k: v for k, v in config.items() if k not in ("name", "reduction", "dtype")}


def keras_loss(loss, reduction="sum_over_batch_size", keras=keras):
    return getattr(keras.losses, type(loss).__name__)(**options(loss), reduction=reduction)


def keras_value(
    loss, y_true, y_pred, sample_weight=None, mask=None, reduction="sum_over_batch_size"
):
    with keras_rules():
        y_pred = jnp.array(y_pred)  # Keras keeps masks in attributes of arrays
        if mask is not None:
            keras.src.backend.set_keras_mask(y_pred, jnp.asarray(mask))
        return keras_loss(loss, reduction)(y_true, y_pred, sample_weight)


def value_and_gradient(loss, y_true, y_pred, weight=None):
    return jax.value_and_grad(lambda p: loss(y_true, p, weight))(y_pred)


def keras_gradient(loss, y_true, y_pred, weight=None):
    with keras_rules():
        keras_function = keras_loss(loss)
        return jax.grad(lambda p: keras_function(y_true, p, weight))(y_pred)


@functools.cache
def program(loss, shape):
    """Returns a compiled function of data: values and gradients of a loss, here and in Keras."""

    @jax.jit
    def run(y_true, y_pred):
        value, gradient = value_and_gradient(loss, y_true, y_pred)
        each = loss.per_sample(y_true, y_pred)
        theirs = keras_gradient(loss, y_true, y_pred)
        return {"value": value, "gradient": gradient, "each": each, "keras gradient": theirs}

    return run


@functools.cache
def facts(loss, shape):
    """What a loss is on ordinary data, and what it is in Keras."""
    arguments = data(loss, shape)
    mean, each = (keras_loss(loss, r, keras_numpy.keras) for r in ("sum_over_batch_size", None))
    return program(loss, shape)(*arguments) | {
        "keras value": keras_numpy.quietly(mean, *arguments),
        "keras each": keras_numpy.quietly(each, *arguments),
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 4)], ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_values_and_gradients_equal_keras(loss, shape):
    if getattr(loss, "axis", -1) == 1 and len(shape) == 3:
        pytest.skip("the mean goes over another axis")
    results = facts(loss, shape)
    np.testing.assert_allclose(results["value"], results["keras value"], rtol=1e-5)
    np.testing.assert_allclose(results["each"], results["keras each"], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(results["gradient"], results["keras gradient"], rtol=1e-4, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.one_in(12)
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
@pytest.mark.parametrize("weighted", ["none", "samples", "steps"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "loss",
    [losses.MeanSquaredError, losses.SparseCategoricalCrossentropy],
    ids=lambda c: c.__name__,
)
def test_reductions_equal_keras(loss, reduction, weighted, masked):
    rng, made = np.random.default_rng(1), loss(reduction=reduction)
    shape = {"none": None, "samples": (3, 1), "steps": (3, 5)}[weighted]
    weight = None if shape is None else rng.random(shape).astype("float32")
    mask = rng.random((3, 5)) < 0.6 if masked else None

    @jax.jit
    def run(*given):
        total = None if reduction in (None, "none") else made.total(*given)
        return made(*given), total, keras_value(made, *given, reduction)

    value, total, expected = run(*data(made, (3, 5, 4)), weight, mask)
    if reduction in (None, "none"):
        assert value.shape == (3, 5)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    if reduction not in (None, "none"):
        numerator, denominator = np.asarray(total)
        np.testing.assert_allclose(numerator / denominator, expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_masked_mean_covers_valid_entries_only():
    y_true, y_pred = np.zeros((3, 1)), np.array([[1.0], [2.0], [3.0]])
    mask = np.array([True, True, False])
    loss = losses.MeanSquaredError()
    assert float(loss(y_true, y_pred, mask=mask)) == 2.5
    assert float(loss(y_true, y_pred, mask=mask[:, None])) == 2.5
    # the whole sum over all entries, for those who want Keras 2's number
    expected = losses.MeanSquaredError(reduction="sum")(y_true, y_pred, mask=mask) / 3
    np.testing.assert_allclose(expected, 1.6666666)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
def test_padded_batches_add_up(reduction):
    loss = losses.SparseCategoricalCrossentropy(reduction=reduction, ignore_class=2)
    y_true, y_pred = data(loss, (7, 5, 4))
    weight = np.random.default_rng(2).random(7).astype("float32")
    expected = jax.jit(loss)(y_true, y_pred, weight)
    numerator = denominator = 0.0
    total = jax.jit(lambda *given: loss.total(*given[:3], mask=given[3]))
    for start in range(0, 7, 3):
        rows = slice(start, start + 3)
        missing = 3 - len(y_true[rows])

        def pad(a, missing=missing):
            rest = np.full((missing, *a.shape[1:]), np.nan)
            return np.concatenate([a, rest]).astype(a.dtype)

        parts = [pad(a[rows]) for a in (y_true.astype("float32"), y_pred, weight)]
        mask = np.arange(3) < 3 - missing
        parts[0] = np.nan_to_num(parts[0])
        parts[2] = np.nan_to_num(parts[2])
        n, d = np.asarray(total(*parts, mask))
        numerator, denominator = numerator + n, denominator + d
    np.testing.assert_allclose(numerator / denominator, expected, rtol=1e-5)


def test_sample_weights_broadcast_over_time_steps():
    loss = jax.jit(losses.MeanSquaredError(reduction="sum"))
    y_true, y_pred = np.zeros((2, 2, 1)), np.ones((2, 2, 1))
    assert float(loss(y_true, y_pred, np.array([1.0, 3.0]))) == 8.0


def test_a_fully_masked_loss_is_zero_with_zero_gradients():
    loss = losses.MeanSquaredError()
    mask = np.zeros(2, bool)
    run = jax.jit(jax.value_and_grad(lambda p: loss(np.zeros((2, 1)), p, mask=mask)))
    value, gradient = run(np.ones((2, 1), "float32"))
    assert float(value) == 0
    assert np.array_equal(gradient, np.zeros((2, 1)))
    ignoring = losses.SparseCategoricalCrossentropy(ignore_class=0)
    assert float(jax.jit(lambda p: ignoring([0, 0], p))(np.ones((2, 3)))) == 0


def test_a_scalar_loss_accepts_sample_weights():
    loss = losses.LossFunctionWrapper(lambda t, p: jnp.mean(jnp.square(t - p)))
    y, weight, mask = np.ones((4, 2)), np.array([1.0, 1.0, 0.0, 0.0]), np.array([1, 1, 1, 0])
    run = jax.jit(lambda t, p: (loss(t, p), loss(t, p, weight), loss(t, p, mask=mask)))
    assert [float(value) for value in run(0 * y, y)] == [1.0, 0.5, 1.0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_extreme_predictions_have_finite_values_and_gradients(loss):
    y_true, _ = data(loss)
    probabilities = not getattr(loss, "from_logits", True) or type(loss).__name__ == "Poisson"
    run = program(loss, (6, 4))
    for value in (0.0, 1.0) if probabilities else (0.0, 1.0, 1e4, -1e4):
        y_pred = np.full((6, 4), value, "float32")
        y_pred[:, 0] = 1.0 if probabilities else -value
        results = run(y_true, y_pred)
        assert np.isfinite(results["value"]), value
        assert np.isfinite(results["gradient"]).all(), value


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_low_precision_and_transforms(loss):
    results = facts(loss, (6, 4))

    @jax.jit
    def run(y_true, y_pred):
        one_by_one = jax.vmap(lambda t, p: loss.per_sample(t[None], p[None])[0])
        return loss(y_true, y_pred.astype("bfloat16")), one_by_one(y_true, y_pred)

    low, mapped = run(*data(loss))
    assert low.dtype == "float32"
    np.testing.assert_allclose(low, results["value"], rtol=0.1, atol=0.1)
    if getattr(loss, "axis", -1) == -1 and "Hinge" not in type(loss).__name__:
        np.testing.assert_allclose(mapped, results["each"], rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_values_and_configuration(loss):
    config = losses.serialize(loss)
    assert losses.deserialize(config) == losses.get(config) == loss
    assert hash(losses.get(config)) == hash(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss
    with keras_rules():
        keras_config = keras.losses.serialize(keras.losses.deserialize(config))
    assert losses.deserialize(keras_config).name == loss.name


@pytest.mark.exhaustive
def test_names_of_keras():
    names = {n for n in losses.naming.NAMES if n.lower() != "logcosh"}
    for name in names:
        assert isinstance(losses.naming.as_loss(name), losses.Loss)
        # not all names of fkeras are in the table of Keras
        with keras_rules(), contextlib.suppress(ValueError):
            is_class = isinstance(keras.losses.get(name), keras.losses.Loss)
            # a name of a function gives the losses of samples, a name of a class their mean
            assert isinstance(losses.get(name), losses.Loss) == is_class
    for name in ("mse", "MSE", "mean_squared_error", losses.mean_squared_error):
        assert losses.get(name) is losses.mean_squared_error
        assert losses.naming.as_loss(name) == losses.MeanSquaredError()
    y = np.ones((3, 2), "float32")
    with keras_rules():
        expected = keras.losses.get("mse")(y, 0 * y)
    np.testing.assert_array_equal(losses.get("mse")(y, 0 * y), expected)
    function = {"module": "builtins", "class_name": "function", "config": "mean_absolute_error"}
    assert losses.get(function) is losses.mean_absolute_error
    assert losses.deserialize("mse") is losses.mean_squared_error
    assert losses.get("mse", {"mse": losses.poisson}) == losses.Poisson()
    assert losses.get(None) is None
    with pytest.raises(ValueError, match="the key 'config' is missing"):
        losses.get({"class_name": "function"})
    assert losses.get(losses.Huber(2.0)) == losses.Huber(2.0)
    assert losses.get(losses.Huber) == losses.get("Huber") == losses.Huber()
    assert losses.get(optax.l2_loss) is optax.l2_loss
    wrapped = losses.naming.as_loss(
        lambda t, p: optax.softmax_cross_entropy_with_integer_labels(p, t)
    )
    y_true, y_pred = data(losses.SparseCategoricalCrossentropy(from_logits=True))
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    np.testing.assert_allclose(
        jax.jit(wrapped)(y_true, y_pred), facts(loss, (6, 4))["value"], rtol=1e-5
    )


def test_crossentropy_is_resolved_from_shapes():
    def spec(*shape):
        return jax.ShapeDtypeStruct(shape, "float32")

    pairs = {
        losses.BinaryCrossentropy(): (spec(8), spec(8, 1)),
        losses.SparseCategoricalCrossentropy(): (spec(8, 1), spec(8, 3)),
        losses.CategoricalCrossentropy(): (spec(8, 3), spec(8, 3)),
    }
    for expected, shapes in pairs.items():
        assert losses.resolve("crossentropy", *shapes) == losses.resolve("ce", *shapes) == expected
        assert losses.resolve("mse", *shapes) == losses.MeanSquaredError()


@pytest.mark.exhaustive
def test_targets_and_predictions_are_aligned_to_one_rank():
    loss = losses.MeanSquaredError()
    y = np.array([1.0, 2.0])
    for y_true, y_pred in ((y, y[:, None] + 1), (y[:, None], y + 1), (y, y + 1)):
        assert float(loss(y_true, y_pred)) == 1.0
    assert losses.BinaryCrossentropy()(np.ones(2), np.full((2, 1), 0.5)).shape == ()


def sequence_data(seed=0, frames=7, classes=4):
    """Labels with repeats, padding and none at all, and scores."""
    labels = np.array([[1, 2, 2], [3, 1, 0], [2, 0, 0], [0, 0, 0]], "int32")
    scores = np.random.default_rng(seed).normal(size=(4, frames, classes)).astype("float32")
    return labels, 2 * scores


def unit_rows(seed=0):
    """Class numbers, one of them alone in its class, and embeddings of length 1."""
    rows = np.random.default_rng(seed).normal(size=(6, 4)).astype("float32")
    labels = np.array([0, 0, 1, 1, 1, 2], "int32")
    return labels, rows / np.linalg.norm(rows, axis=1, keepdims=True)


def regions(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (3, 4, 2)).astype("float32"), rng.random((3, 4, 2), "float32")


def classes(seed=0):
    y_pred = np.random.default_rng(seed).random((6, 4)).astype("float32")
    return np.array([0, 3, 2, 1, 1, 0], "int32"), y_pred / y_pred.sum(1, keepdims=True)


MORE = (
    (losses.CTC(), sequence_data),
    (losses.Circle(), unit_rows),
    (losses.Circle(16.0, margin=0.2, remove_diagonal=False), unit_rows),
    (losses.Dice(), regions),
    (losses.Dice(axis=(1, 2)), regions),
    (losses.Tversky(0.3, 0.8), regions),
    (losses.Tversky(0.3, axis=1), regions),
    (losses.CategoricalGeneralizedCrossEntropy(0.7), classes),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("loss", "make"), MORE, ids=lambda v: getattr(v, "__name__", None) or repr(v)
)
def test_regions_pairs_and_sequences_equal_keras(loss, make):
    y_true, y_pred = make()

    @jax.jit
    def program(y_true, y_pred):
        each = keras_value(loss, y_true, y_pred, reduction=None)
        weight = None if each.ndim == 0 else np.linspace(0.5, 2.0, each.size, dtype="float32")
        weight = None if weight is None else weight.reshape(each.shape)
        value, gradient = value_and_gradient(loss, y_true, y_pred, weight)
        return {
            "each": (loss.per_sample(y_true, y_pred), each),
            "value": (value, keras_value(loss, y_true, y_pred, weight)),
            "gradient": (gradient, keras_gradient(loss, y_true, y_pred, weight)),
            "low": (loss(y_true, y_pred.astype("bfloat16")), loss(y_true, y_pred)),
        }

    results = jax.tree.map(np.asarray, program(y_true, y_pred))
    # differences of large scaled similarities
    np.testing.assert_allclose(*results["each"], rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(*results["value"], rtol=1e-5)
    gradient, expected = results["gradient"]
    assert np.isfinite(gradient).all()
    rows = np.isfinite(expected).all(axis=tuple(range(1, expected.ndim)))
    if type(loss).__name__ != "Circle":  # a class of one sample has no gradient in Keras
        assert rows.all()
    np.testing.assert_allclose(gradient[rows], expected[rows], rtol=1e-4, atol=1e-5)
    assert losses.get(losses.serialize(loss)) == loss
    np.testing.assert_allclose(*results["low"], rtol=0.1, atol=0.1)


def test_functions_of_regions_pairs_and_sequences_equal_keras():
    labels, others = unit_rows()[0], unit_rows(1)

    @jax.jit
    def both(rows, y_true, y_pred):
        results = {"circle": [losses.circle(labels, rows, *others, False, 20.0, 0.3)]}
        for name in ("dice", "tversky"):
            results[name] = [getattr(losses, name)(y_true, y_pred, axis=(0, 1))]
        with keras_rules():
            results["circle"] += [keras.losses.circle(labels, rows, *others, False, 20.0, 0.3)]
            for name in ("dice", "tversky"):
                results[name] += [getattr(keras.losses, name)(y_true, y_pred, axis=(0, 1))]
        return results

    for name, pair in both(unit_rows()[1], *regions()).items():
        np.testing.assert_allclose(*pair, rtol=1e-5, err_msg=name)
    for name in ("ctc", "dice", "tversky", "circle", "CTC", "Circle"):
        assert type(losses.naming.as_loss(name)).__name__.lower() == name.lower()


def every_alignment(labels, scores):
    """-log of the sum over all sequences of frames that collapse to the labels."""
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    total = 0.0
    for path in itertools.product(range(scores.shape[1]), repeat=scores.shape[0]):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c != 0] == [c for c in labels if c != 0]:
            total += np.exp(sum(logs[t, c] for t, c in enumerate(path)))
    return -np.log(total)


def test_ctc_is_the_sum_over_all_alignments():
    labels, scores = sequence_data(frames=4)
    expected = [every_alignment(*pair) for pair in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(jax.jit(losses.ctc)(labels, scores), expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_ctc_of_impossible_labels_is_large_and_finite():
    """-log(0) is infinite: here it is about 1e5, as in Keras, and the gradient is finite."""
    labels, scores = sequence_data(frames=2)
    hopeless = scores.copy()
    hopeless[1] = -np.inf
    hopeless[2, :, 2] = -np.inf
    hopeless[3] = [[1e9, -1e9, 0, 0], [-1e4, 1e4, 0, 0]]

    def summed(scores):
        each = losses.ctc(labels, scores)
        return jnp.sum(each), each

    run = jax.jit(jax.value_and_grad(summed, has_aux=True))
    for arguments in (scores, hopeless):
        (results, each), gradient = run(arguments)
        assert np.isfinite(results)
        assert np.isfinite(np.asarray(gradient)).all()
        assert 9e4 < np.asarray(each)[0] < 2e5  # two labels and a blank in two frames
    none, padding = np.zeros((4, 0), "int32"), np.zeros((4, 1), "int32")
    results = jax.jit(lambda s: [losses.ctc(labels, s) for labels in (none, padding)])(scores)
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.exhaustive
def test_ctc_takes_labels_padded_by_zero_or_minus_one():
    """-1 pads labels in PyTorch, optax and `ctc_decode`, as zeros do here and in Keras."""
    _, scores = sequence_data(frames=4)
    zeros = np.array([[1, 2, 0], [3, 0, 0], [2, 2, 0], [0, 0, 0]])
    padded = np.where(np.cumsum(zeros == 0, axis=1) > 0, -1, zeros)
    both = jax.jit(lambda s: [losses.ctc(labels, s) for labels in (zeros, padded)])(scores)
    np.testing.assert_array_equal(*both)
    for mask_index in (0, 3):
        # with the last class as the blank the classes before have the numbers 0, 1, 2
        labels = np.where(padded < 0, -1, padded - (mask_index == 3))
        moved = np.concatenate([scores[..., 1:], scores[..., :1]], axis=-1)
        logits = scores if mask_index == 0 else moved
        lengths = np.full(4, 3), np.full(4, 4)
        each = ops.ctc_loss(labels, logits, *lengths, mask_index=mask_index)
        np.testing.assert_allclose(each, both[0], rtol=1e-6)
    wrong = np.array([[1, -2, 0], [1, 0, 2], [-1, 1, 1], [4, 0, 0]])
    assert np.isnan(losses.ctc(wrong, scores)).all()
    losses.CTC().check_targets(padded, Spec(None, 4, 4))


def test_samples_without_a_pair_do_not_count():
    labels, rows = unit_rows()
    loss = losses.Circle()

    @jax.jit
    def run(labels, rows):
        return loss.per_sample(labels, rows), *value_and_gradient(loss, labels, rows)

    each, value, _ = map(np.asarray, run(labels, rows))
    assert float(each[5]) == 0.0  # alone in its class
    np.testing.assert_allclose(value, each.sum() / 5, rtol=1e-6)
    _, value, gradient = run(np.arange(6, dtype="int32"), rows)
    assert float(value) == 0.0
    assert np.array_equal(gradient, np.zeros_like(rows))


class Spec:
    def __init__(self, *shape):
        self.shape = shape


def test_valid_targets_are_accepted():
    labels = np.array([0, 9, 3])
    sparse = losses.SparseCategoricalCrossentropy()
    for y in (labels, labels[:, None], labels.astype("float64")):
        sparse.check_targets(y, Spec(None, 10))
    sparse.check_targets(np.zeros((3, 5), int), Spec(None, None, 10))
    sparse.check_targets(labels[:, None], Spec(None, None))
    losses.SparseCategoricalCrossentropy(ignore_class=-1).check_targets(labels - 1, Spec(None, 10))
    losses.CategoricalCrossentropy().check_targets(np.eye(10), Spec(None, 10))
    losses.MeanSquaredError().check_targets(np.zeros(4), Spec(None, 1))
    losses.MeanSquaredError().check_targets(np.zeros((4, 1)), Spec(None))
    losses.BinaryCrossentropy().check_targets(np.array([0, 1]), Spec(None, 1))
    losses.naming.as_loss(lambda t, p: p).check_targets(np.array([np.nan]), Spec(None, 7))


LABELS = np.array([0] * 17 + [12])


@pytest.mark.parametrize(
    ("loss", "y_true", "shape", "words"),
    [
        ("sparse_categorical_crossentropy", LABELS, (None, 10), r"row 17: label 12, but the model's output has 10 classes \(0..9\)"),
        ("sparse_categorical_crossentropy", LABELS, (None, 10), "13 units"),
        ("sparse_categorical_crossentropy", np.array([[0], [-1]]), (2, 10), r"row 1, place \[0\]: label -1.*ignore_class=-1"),
        ("sparse_categorical_crossentropy", np.array([1, 2, 3]), (3, 3), "subtract 1"),
        ("sparse_categorical_crossentropy", np.array([0.5]), (1, 3), "Class numbers are integers"),
        ("sparse_categorical_crossentropy", np.array([0, 1]), (2, 1), "binary_crossentropy"),
        ("sparse_categorical_crossentropy", np.eye(10), (None, 10), r"'categorical_crossentropy' for one-hot targets, or pass labels.argmax\(-1\)"),
        ("sparse_categorical_crossentropy", np.zeros((3, 4)), (None, 10), r"expected class numbers of shape \(b,\)"),
        ("sparse_categorical_crossentropy", np.array([0, np.nan]), (2, 3), "row 1: expected finite"),
        ("categorical_crossentropy", np.array([1, 2]), (2, 10), r"'sparse_categorical_crossentropy', or pass jax.nn.one_hot\(labels, 10\)"),
        ("categorical_crossentropy", np.array([[1], [2]]), (2, 10), "sparse_categorical_crossentropy"),
        ("categorical_crossentropy", np.zeros((2, 9)), (2, 10), r"predictions' shape \(b, 10\), received \(2, 9\)"),
        ("mse", np.array([[0.0, 1.0], [0.0, np.inf]]), (2, 2), r"row 1, place \[1\]: expected finite targets, received inf"),
        ("mse", np.zeros((4, 3)), (None, 2), r"received \(4, 3\)"),
        ("mse", np.zeros((4, 1)), (None, 5), r"expected targets of the predictions' shape \(b, 5\)"),
        ("poisson", np.array([[1.0], [-0.5]]), (None, 1), r"row 1, place \[0\]: expected counts of 0 or more, received -0.5"),
        ("binary_crossentropy", np.array([0, 2]), (None, 1), "row 1: expected targets from 0 to 1, received 2"),
        ("binary_crossentropy", np.array([-1, 1]), (None, 1), "use 'hinge'"),
    ],
)  # fmt: skip
def test_invalid_targets_are_rejected(loss, y_true, shape, words):
    with pytest.raises(ValueError, match=words) as caught:
        losses.naming.as_loss(loss).check_targets(y_true, Spec(*shape))
    assert len(str(caught.value).splitlines()) <= 8


WITH_AXES = {
    "BinaryCrossentropy": np.eye(3),
    "BinaryFocalCrossentropy": np.eye(3),
    "CategoricalCrossentropy": np.eye(3),
    "CategoricalFocalCrossentropy": np.eye(3),
    "CosineSimilarity": np.eye(3),
    "Dice": np.eye(3),
    "SparseCategoricalCrossentropy": np.arange(3),
    "Tversky": np.eye(3),
}


def test_all_losses_with_an_axis_have_a_row():
    classes = [cls for cls in vars(losses).values() if inspect.isclass(cls)]
    assert {cls.__name__ for cls in classes if hasattr(cls, "axis")} == set(WITH_AXES)


@pytest.mark.parametrize("axis", [2, -3])
@pytest.mark.parametrize("name", WITH_AXES)
def test_an_axis_beyond_the_rank_is_rejected(name, axis):
    loss = getattr(losses, name)(axis=axis)
    words = rf"{snake_case(name)}: expected axis from -2 to 1 .*\(3, 3\), received {axis}"
    with pytest.raises(ValueError, match=words):
        loss(WITH_AXES[name], np.eye(3) * 0.5)


# all classes of losses take one weight for the whole batch, with every reduction
@pytest.mark.exhaustive
@pytest.mark.parametrize("weight", [2.0, 0.0])
@pytest.mark.parametrize("reduction", ["sum", "mean", "mean_with_sample_weight", "none"])
@pytest.mark.parametrize("name", ["Circle", "Dice", "MeanSquaredError", "Tversky"])
def test_one_weight_for_the_whole_batch_equals_keras(name, reduction, weight):
    target = np.array([0, 0, 1]) if name == "Circle" else np.eye(3, dtype="float32")
    scores = np.eye(3, dtype="float32") * 0.5 + (0.5 if name == "Circle" else 0.1)
    if name == "Circle":
        scores /= np.linalg.norm(scores, axis=-1, keepdims=True)
    theirs = getattr(keras.losses, name)(reduction=reduction)(target, scores, weight)
    mine = getattr(losses, name)(reduction=reduction)(target, scores, weight)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def pair_of_losses(y_true, y_pred):
    return y_true - y_pred, {}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses.get("mean_square_error"), "Did you mean 'mean_squared_error'"),
        (lambda: losses.MeanSquaredError(reduction="avg"), "reduction: expected"),
        (lambda: losses.BinaryCrossentropy(label_smoothing=2), "label_smoothing"),
        (lambda: losses.CategoricalCrossentropy(axis=True), "axis"),
        (lambda: losses.MeanSquaredError(reduction=None).total([1.0], [1.0]), "expected a reduction to a scalar"),
        (lambda: losses.Loss()([1.0], [1.0]), "missing method call"),
        (lambda: as_loss(pair_of_losses)([[1.0]], [[1.0]]), "pair_of_losses: .* as one array, received a tuple of 2"),
        (lambda: as_loss(lambda y, p: None)([[1.0]], [[1.0]]), "as one array, received None"),
        (lambda: losses.MeanSquaredError()([[1.0]], [[1.0]], [1.0, 2.0]), "sample_weight: expected a shape"),
        (lambda: losses.MeanSquaredError()([[1.0]], [[1.0]], mask=[[True, True]]), "mask: expected a shape"),
        (lambda: losses.SparseCategoricalCrossentropy()(np.eye(3), np.eye(3)), "categorical_crossentropy"),
        (lambda: losses.CategoricalGeneralizedCrossEntropy(1.0), "q: expected a number between 0 and 1"),
        (lambda: losses.CTC()([1, 2], np.zeros((2, 3, 4))), "Pad the rows of labels with 0"),
        (lambda: losses.CTC().check_targets(np.array([1]), Spec(None, 3, 4)), "Pad the rows of labels"),
        (lambda: losses.CTC().check_targets(np.array([[1, 4]]), Spec(None, 3, 4)), "label 4, but .* 4 classes"),
        (lambda: losses.CTC().check_targets(np.array([[1, -2]]), Spec(None, 3, 4)), "received -2. Pad the rows of labels with 0 or -1"),
        (lambda: losses.CTC().check_targets(np.array([[1, 1], [1, -1], [-1, 1]]), Spec(None, 3, 4)), "row 2: a label follows"),
        (lambda: losses.CTC().check_targets(np.array([[1, 2], [1, 1]]), Spec(None, 2, 4)), "row 1: the labels need 3 frames, .* have 2"),
    ],
)  # fmt: skip
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
        call()

"""Finite values and gradients at edges: losses, metrics, activations, constraints.

Where mathematics gives infinity or no value, the tests fix the returned number.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import losses, metrics

LABELS = np.array([0, 1, 2, 0], "int32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
# one row each: ordinary, large, huge and masked scores, one masked class, all classes masked
SCORES = np.array(
    [[1e4, -1e4, 0.0], [-1e9, 1e9, 0.0], [-np.inf, 0.0, 1.0], [-np.inf, -np.inf, -np.inf]],
    "float32",
)
FROM_LOGITS = (
    (losses.CategoricalCrossentropy(from_logits=True), ONE_HOT),
    (losses.CategoricalFocalCrossentropy(from_logits=True), ONE_HOT),
    (losses.CategoricalFocalCrossentropy(gamma=0.5, from_logits=True), ONE_HOT),
    (losses.SparseCategoricalCrossentropy(from_logits=True), LABELS),
    (losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0), LABELS),
    (losses.BinaryFocalCrossentropy(from_logits=True), ONE_HOT),
    (losses.BinaryFocalCrossentropy(gamma=0.5, from_logits=True), ONE_HOT),
)
OF_PROBABILITIES = (
    *((type(loss)(), y_true) for loss, y_true in (*FROM_LOGITS[:2], *FROM_LOGITS[3:6])),
    (losses.BinaryCrossentropy(), ONE_HOT),
    (losses.BinaryFocalCrossentropy(gamma=0.5), ONE_HOT),
    (losses.CategoricalGeneralizedCrossEntropy(), LABELS),
    (losses.KLDivergence(), ONE_HOT),
    (losses.Poisson(), ONE_HOT),
    (losses.Dice(), ONE_HOT),
    (losses.Tversky(axis=-1), ONE_HOT),
)
OF_NUMBERS = (
    losses.MeanSquaredError(),
    losses.MeanAbsoluteError(),
    losses.MeanAbsolutePercentageError(),
    losses.MeanSquaredLogarithmicError(),
    losses.Huber(),
    losses.LogCosh(),
    losses.CosineSimilarity(),
    losses.Hinge(),
    losses.SquaredHinge(),
    losses.CategoricalHinge(),
)


def short(value):
    return "" if isinstance(value, np.ndarray) else repr(value)


@functools.cache
def compiled(loss):
    """Value and gradient, by one program for all data of a shape."""
    return jax.jit(lambda y_true, y_pred: value_and_gradient(loss, y_true, y_pred))


def value_and_gradient(loss, y_true, y_pred, **options):
    return jax.value_and_grad(lambda p: loss(y_true, p, **options))(y_pred)


def finite(loss, value, gradient):
    assert np.isfinite(np.asarray(value)), loss
    assert np.isfinite(np.asarray(gradient, "float32")).all(), loss


def check(loss, y_true, y_pred):
    value, gradient = compiled(loss)(y_true, y_pred)
    finite(loss, value, gradient)
    return value, gradient


@pytest.mark.exhaustive
@pytest.mark.parametrize(("loss", "y_true"), FROM_LOGITS, ids=short)
def test_extreme_scores_have_finite_losses(loss, y_true):
    check(loss, y_true, SCORES)


@pytest.mark.exhaustive
def test_infinite_scores_of_two_classes():
    """-log(0) is infinite: the loss is the largest number of float32, not nan."""
    y_pred = np.array([[np.inf], [-np.inf], [1e9]], "float32")
    loss = losses.BinaryCrossentropy(from_logits=True)
    zero_loss, _ = check(loss, np.array([[1.0], [0.0], [1.0]]), y_pred)
    assert float(zero_loss) == 0.0
    cost = jax.jit(lambda t, p: losses.binary_crossentropy(t, p, from_logits=True))
    largest_loss = np.asarray(cost(np.array([[0.0]]), y_pred[:1]))
    assert float(largest_loss[0]) == np.finfo("float32").max


@pytest.mark.exhaustive
def test_rows_of_masked_scores_are_rows_of_equal_scores():
    even = np.log(3.0)
    for loss, y_true in (FROM_LOGITS[0], FROM_LOGITS[3]):
        each = np.asarray(jax.jit(loss.per_sample)(y_true, SCORES))
        np.testing.assert_allclose(each[[0, 1, 3]], [0.0, 0.0, even], rtol=1e-6)
        np.testing.assert_allclose(each[2], np.log1p(np.exp(-1.0)), rtol=1e-6)
    cost = jax.jit(lambda p: losses.sparse_categorical_crossentropy([0], p, from_logits=True))
    masked_truth = np.asarray(cost(SCORES[2:3]))
    assert float(masked_truth[0]) > 1e38  # -log(0) is clipped to nearly the largest float32


@pytest.mark.exhaustive
@pytest.mark.parametrize(("loss", "y_true"), OF_PROBABILITIES, ids=short)
def test_probabilities_of_zero_and_one(loss, y_true):
    for value in (0.0, 1.0):
        check(loss, y_true, np.full((4, 3), value, "float32"))
    check(loss, y_true, 1.0 - ONE_HOT)
    check(loss, y_true, ONE_HOT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", OF_NUMBERS, ids=repr)
def test_zero_vectors_and_large_numbers(loss):
    y_true = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], "float32")
    for y_pred in (y_true, 0 * y_true, np.full((2, 3), 1e4, "float32")):
        check(loss, y_true, y_pred)
        check(loss, 0 * y_true, y_pred)


# gradients of 1 / 1e-7 at 0 exceed the largest float16, 65504
STEEP = (losses.Poisson, losses.MeanAbsolutePercentageError)


@functools.cache
def short_facts(loss, labels):
    """Losses and gradients of 16-bit predictions, in one program for both dtypes."""
    y_true = LABELS if labels else ONE_HOT
    y_pred = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0.5, 0.5, 0]], "float32")

    @jax.jit
    def program(y_true, y_pred):
        results = {"float32": loss.per_sample(y_true, y_pred)}
        for dtype in ("bfloat16", "float16"):
            low = y_pred.astype(dtype)
            results[dtype] = loss.call(y_true, low), *value_and_gradient(loss, y_true, low)
        return results

    return program(y_true, y_pred)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("loss", "y_true"),
    [*FROM_LOGITS, *OF_PROBABILITIES, *((loss, ONE_HOT) for loss in OF_NUMBERS)],
    ids=short,
)
def test_losses_of_16_bit_predictions_are_computed_in_float32(loss, y_true, dtype):
    """16-bit predictions are computed in float32: in 16 bits 1 - 1e-7 is 1 and 300**2 is infinite."""
    results = short_facts(loss, y_true is LABELS)
    each, value, gradient = results[dtype]
    if dtype == "bfloat16" or not isinstance(loss, STEEP):
        finite(loss, value, gradient)
        assert gradient.dtype == dtype
    assert each.dtype == "float32"
    np.testing.assert_allclose(each, results["float32"], rtol=1e-4, atol=1e-4)


def test_squares_of_16_bit_predictions_do_not_overflow():
    y_pred = jnp.full((1, 2), 300.0, "float16")
    assert float(losses.mean_squared_error(jnp.zeros((1, 2)), y_pred)[0]) == 90000.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(("loss", "y_true"), [*FROM_LOGITS, *OF_PROBABILITIES], ids=short)
def test_batches_without_counted_samples_have_zero_loss(loss, y_true):
    if getattr(loss, "axis", -1) is None:
        return  # one loss of the whole batch
    y_pred = np.full((4, 3), 0.3, "float32")
    empty_options = ({"mask": np.zeros(4, bool)}, {"sample_weight": np.zeros(4, "float32")})
    reductions = ("sum_over_batch_size", "mean_with_sample_weight", "sum")

    @jax.jit
    def program(y_true, y_pred, empty_options):
        reduced_losses = [
            loss.from_config({**loss.get_config(), "reduction": r}) for r in reductions
        ]
        return [
            value_and_gradient(reduced_loss, y_true, y_pred, **options)
            for reduced_loss in reduced_losses
            for options in empty_options
        ]

    results = program(y_true, y_pred, empty_options)
    assert len(results) == 6
    for value, gradient in results:
        assert float(value) == 0.0
        assert np.array_equal(gradient, np.zeros_like(y_pred))


METRICS = (
    (metrics.MeanSquaredError(), ONE_HOT),
    (metrics.RootMeanSquaredError(), ONE_HOT),
    (metrics.CosineSimilarity(), ONE_HOT),
    (metrics.PearsonCorrelation(), ONE_HOT),
    (metrics.ConcordanceCorrelation(), ONE_HOT),
    (metrics.R2Score(), ONE_HOT),
    (metrics.R2Score("variance_weighted_average", num_regressors=2), ONE_HOT),
    (metrics.CategoricalCrossentropy(), ONE_HOT),
    (metrics.CategoricalCrossentropy(from_logits=True), ONE_HOT),
    (metrics.SparseCategoricalCrossentropy(from_logits=True), LABELS),
    (metrics.Precision(), ONE_HOT),
    (metrics.Recall(class_id=1), ONE_HOT),
    (metrics.AUC(num_thresholds=5), ONE_HOT),
    (metrics.AUC(num_thresholds=5, curve="PR"), ONE_HOT),
    (metrics.AUC(num_thresholds=5, curve="PRGAIN"), ONE_HOT),
    (metrics.PrecisionAtRecall(0.5, num_thresholds=5), ONE_HOT),
    (metrics.F1Score(), ONE_HOT),
    (metrics.OneHotIoU(3, [0, 2]), ONE_HOT),
    (metrics.OneHotMeanIoU(3), ONE_HOT),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("metric", "y_true"), METRICS, ids=short)
def test_metrics_of_no_data_and_of_constants_are_finite(metric, y_true):
    """No data, constants and absent classes give finite results, where Keras returns NaN for some."""
    empty = metric.init(jax.ShapeDtypeStruct((4, 3), "float32"))

    @jax.jit
    def results(*arguments):
        states = (
            metric.update(empty, *arguments),
            metric.update(empty, *arguments, mask=jnp.zeros(4, bool)),
        )
        return [metric.result(state) for state in (empty, *states)]

    constant = np.zeros((4, 3), "float32")
    for true in (y_true, 0 * y_true):
        for pred in (constant, constant + 1.0):
            of_empty, of_data, _ = map(np.asarray, results(true, pred))
            assert np.all(of_empty == 0)
            assert np.isfinite(of_data).all()
    assert np.all(np.asarray(results(y_true, constant + np.nan)[2]) == 0)


@pytest.mark.exhaustive
def test_correlations_of_constant_values():
    still, moving = np.ones((1, 4), "float32"), np.arange(4.0, dtype="float32")[None]
    for function in (metrics.pearson_correlation, metrics.concordance_correlation):
        run = jax.jit(jax.value_and_grad(lambda p, t, f=function: f(t, p)[0]))
        for true, pred in ((still, moving), (moving, still), (still, still)):
            value, slope = run(pred, true)
            assert float(value) == 0.0
            assert np.isfinite(np.asarray(slope)).all()


@pytest.mark.exhaustive
def test_the_score_of_targets_that_do_not_vary_is_zero():
    metric, y = metrics.R2Score(None), np.array([[1.0, 0.0], [1.0, 2.0]], "float32")
    scores = jax.jit(lambda y: metric.result(metric.update(metric.init(y), y, y)))(y)
    np.testing.assert_allclose(scores, [0.0, 1.0])


def test_the_root_of_no_error_has_a_gradient():
    metric = metrics.RootMeanSquaredError()

    def error(y_pred):
        return metric.result(metric.update(metric.init(), ONE_HOT, y_pred))

    value, slope = jax.jit(jax.value_and_grad(error))(ONE_HOT)
    assert float(value) == 0.0
    assert np.array_equal(slope, np.zeros_like(ONE_HOT))


ACTIVATIONS = [
    n
    for n in fk.activations.__all__
    if n not in ("get", "serialize", "deserialize", "threshold", "glu", "exponential")
]


def extreme_numbers(name, dtype):
    large = [1e4, -1e4, 0.0, 1.0] if dtype == "float16" else [1e4, -1e4, 1e9, -1e9]
    if name == "squareplus" and dtype == "float16":
        large = [100.0, -100.0, 0.0, 1.0]  # overflows by squaring
    return np.array([large, [0.0] * 4], jnp.dtype(dtype))


@functools.cache
def extreme_activations(dtype):
    """Values and gradients of all activations at extreme inputs, in one program."""

    def both(name, x):
        function = getattr(fk.activations, name)
        return function(x), jax.grad(lambda x: function(x).sum())(x)

    numbers = {name: extreme_numbers(name, dtype) for name in ACTIVATIONS}
    return jax.jit(lambda numbers: {n: both(n, x) for n, x in numbers.items()})(numbers)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_extreme_numbers(name, dtype):
    value, slope = extreme_activations(dtype)[name]
    assert value.dtype == dtype
    assert np.isfinite(np.asarray(value, "float32")).all()
    assert np.isfinite(np.asarray(slope, "float32")).all()


def test_the_exponential_of_a_large_number_is_infinite():
    assert np.isinf(fk.activations.exponential(np.float32(100.0)))
    assert float(fk.activations.exponential(np.float32(-1e9))) == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_softmax_over_rows_of_minus_infinity(dtype):
    large = SCORES if dtype == "float32" else np.where(np.abs(SCORES) == 1e9, 1e3, SCORES)
    x = jnp.asarray(large, dtype)

    @jax.jit
    def program(x):
        squares = jax.value_and_grad(lambda x: jnp.sum(fk.activations.softmax(x) ** 2))(x)
        return *squares, fk.activations.softmax(x), fk.activations.log_softmax(x)

    shares, slope, values, logs = (np.asarray(a.astype("float32")) for a in program(x))
    assert np.isfinite(float(shares))
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(values[3], 1 / 3, rtol=1e-2)
    assert values[2, 0] == 0.0
    np.testing.assert_allclose(values.sum(-1), 1.0, rtol=1e-2)
    np.testing.assert_allclose(logs[3], -np.log(3.0), rtol=1e-2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "constraint",
    [
        fk.constraints.MaxNorm(),
        fk.constraints.UnitNorm(),
        fk.constraints.MinMaxNorm(0.5, 1.0),
        fk.constraints.NonNeg(),
    ],
    ids=repr,
)
def test_constraints_at_zero(constraint):
    w = np.zeros((2, 3), "float32")
    w[0, 1] = 1.0
    run = jax.jit(lambda w: (constraint(w), jax.grad(lambda w: jnp.sum(constraint(w)))(w)))
    value, slope = map(np.asarray, run(w))
    assert np.isfinite(value).all()
    assert np.isfinite(slope).all()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["L1", "L2", "L1L2", "OrthogonalRegularizer"])
def test_regularizers_at_zero(name):
    run = jax.jit(jax.value_and_grad(getattr(fk.regularizers, name)()))
    value, slope = run(np.zeros((2, 3), "float32"))
    assert float(value) == 0.0
    assert np.isfinite(np.asarray(slope)).all()

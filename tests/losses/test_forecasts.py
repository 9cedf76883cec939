"""Losses of forecasts, of images and of pairs that Keras does not have, and missing targets.

Compared with SciPy, with formulas of NumPy in float64, and with sums over all pairs.
"""

import json
import pickle

import jax
import numpy as np
import pytest
import scipy.stats

import fkeras as fk
from fkeras import losses, metrics

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(6,))
RAW = 2 * RNG.normal(size=(6, 3))


def softplus(x):
    return np.logaddexp(0, x)


SCALES = {"softplus": softplus, "exp": np.exp, "linear": np.abs}


def given(scale, count):
    """Predictions of `count` parameters, and their scales."""
    raw = RAW[:, :count].copy()
    raw[:, 1] = np.abs(raw[:, 1]) if scale == "linear" else raw[:, 1]
    return raw.astype("float32"), SCALES[scale](raw[:, 1])


def value_and_slope(loss, y_true, y_pred):
    """Losses of samples, and the derivative of their sum in x64 by differences."""
    program = jax.jit(jax.value_and_grad(lambda p: loss.per_sample(y_true, p).sum()))
    return loss.per_sample(y_true, y_pred), program(y_pred)[1]


def test_quantile_losses_equal_the_formula():
    p = RNG.normal(size=(6, 3)).astype("float32")
    levels = (0.1, 0.5, 0.9)
    error = Y[:, None] - p
    expected = np.where(error > 0, np.array(levels) * error, (np.array(levels) - 1) * error)
    y = Y.astype("float32")
    for targets in (y, y[:, None]):
        np.testing.assert_allclose(losses.quantile(targets, p, levels), expected.mean(1), rtol=1e-5)
    one = losses.Quantile(0.9, reduction="none")
    np.testing.assert_allclose(one(y[:, None], p[:, 2:]), expected[:, 2], rtol=1e-5)
    steps = losses.quantile(np.stack([y, y], 1), np.stack([p, p], 1), levels)
    np.testing.assert_allclose(steps, np.stack([expected.mean(1)] * 2, 1), rtol=1e-5)
    # the best constant is the empirical quantile
    grid = np.linspace(-2, 2, 401)
    costs = [
        float(losses.quantile(y[None], np.full((1, 6), c, "float32"), 0.25)[0]) for c in grid[::20]
    ]
    assert np.argmin(costs) == np.argmin(
        np.abs(grid[::20] - np.quantile(y, 0.25, method="inverted_cdf"))
    )


@pytest.mark.parametrize(
    "scale",
    ["softplus", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("exp", "linear"))],
)
def test_negative_log_densities_equal_scipy(scale):
    y = Y.astype("float32")
    raw, scales = given(scale, 2)
    expected = -scipy.stats.norm.logpdf(y, raw[:, 0], scales)
    for targets in (y, y[:, None]):
        np.testing.assert_allclose(losses.gaussian_nll(targets, raw, scale), expected, rtol=2e-5)
    for df in (0.5, 3.0, 39.0, 41.0, 1e7):
        expected = -scipy.stats.t.logpdf(y, df, raw[:, 0], scales)
        np.testing.assert_allclose(losses.student_t_nll(y, raw, df, scale), expected, rtol=5e-5)
    raw, scales = given(scale, 3)
    expected = -scipy.stats.t.logpdf(y, 2 + softplus(raw[:, 2]), raw[:, 0], scales)
    np.testing.assert_allclose(
        losses.StudentTNLL(scale=scale).per_sample(y, raw), expected, rtol=5e-5
    )


@pytest.mark.parametrize("fair", [False, True])
def test_crps_equals_the_mean_over_all_pairs(fair):
    samples = RNG.normal(size=(6, 5))
    pairs = np.abs(samples[:, :, None] - samples[:, None]).sum((1, 2)) / (5 * (5 - fair))
    expected = np.abs(samples - Y[:, None]).mean(1) - pairs / 2
    y, samples = Y.astype("float32"), samples.astype("float32")
    np.testing.assert_allclose(losses.crps(y, samples, fair), expected, rtol=1e-5)
    # the integral of the squared difference of the distribution functions
    grid = np.linspace(-6, 6, 20001)
    steps = (samples[0] <= grid[:, None]).mean(1) - (y[0] <= grid)
    if not fair:
        np.testing.assert_allclose(np.trapezoid(steps**2, grid), expected[0], rtol=1e-3)
    np.testing.assert_allclose(losses.crps(y, y[:, None] + 1), np.ones(6), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "loss",
    [
        *(losses.GaussianNLL(scale) for scale in SCALES),
        *(losses.StudentTNLL(df, scale) for scale in SCALES for df in (None, 0.5, 50.0)),
        losses.CRPS(),
        losses.CRPS(fair=True),
        losses.Quantile((0.1, 0.5, 0.9)),
        losses.InfoNCE(),
    ],
    ids=repr,
)
def test_gradients_are_finite_and_right(loss):
    y, raw = Y.astype("float32"), given(getattr(loss, "scale", "exp"), 3)[0]
    if type(loss).__name__ == "InfoNCE":
        y, raw = np.arange(6, dtype="int32"), RNG.normal(size=(6, 2, 3)).astype("float32")
    elif type(loss).__name__ == "GaussianNLL" or getattr(loss, "df", None) is not None:
        raw = raw[:, :2]
    gradient = jax.jit(jax.grad(lambda p: loss(y, p)))
    slope, step = np.asarray(gradient(raw)), 1e-2
    rng = np.random.default_rng(1)
    direction = rng.normal(size=raw.shape).astype("float32") * 0.1
    difference = (loss(y, raw + step * direction) - loss(y, raw - step * direction)) / (2 * step)
    np.testing.assert_allclose((slope * direction).sum(), difference, rtol=0.05, atol=2e-3)
    for extreme in (0.0, 1e4, -1e4, 1e12, -1e12):
        filled = np.full_like(raw, extreme)
        value, slope = loss(y, filled), gradient(filled)
        assert not np.isfinite(value) or np.isfinite(slope).all(), (extreme, value, slope)


def images(classes, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(3, 4, 5, classes)).astype("float32")
    labels = rng.integers(0, max(classes, 2), (3, 4, 5)).astype("int32")
    labels[0] = 0
    return labels, logits


@pytest.mark.parametrize("classes", [pytest.param(1, marks=pytest.mark.exhaustive), 3])
def test_dice_with_crossentropy_equals_the_formula(classes):
    labels, logits = images(classes)
    if classes == 1:
        shares = 1 / (1 + np.exp(-logits))
        y = labels[..., None].astype("float64")
        entropy = -(y * np.log(shares) + (1 - y) * np.log(1 - shares))[..., 0]
    else:
        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        y = np.eye(classes)[labels]
        entropy = -(y * np.log(shares)).sum(-1)
    overlap, areas = (y * shares).sum((1, 2)), y.sum((1, 2)) + shares.sum((1, 2))
    dice = 1 - (2 * overlap + 1e-5) / (areas + 1e-5)
    expected = entropy.mean((1, 2)) + 0.5 * dice.mean(-1)
    loss = losses.DiceCrossentropy(from_logits=True, dice_weight=0.5)
    shares = shares.astype("float32")
    forms = labels, labels[..., None], y.astype("float32")

    @jax.jit
    def program(logits, shares):
        each = [loss.per_sample(targets, logits) for targets in forms]
        slope = jax.grad(lambda p: loss(labels, p))(100 * logits)
        return each, losses.dice_crossentropy(labels, shares, False, 0.5), slope

    each, of_shares, slope = program(logits, shares)
    for received in (*each, of_shares):
        np.testing.assert_allclose(received, expected, rtol=1e-4)
    assert np.isfinite(slope).all()
    for targets in forms:
        loss.check_targets(targets, jax.ShapeDtypeStruct((None, 4, 5, classes), "float32"))
    if classes == 3:
        assert np.isnan(jax.jit(loss.per_sample)(labels + 1, logits)[1:]).all()
        with pytest.raises(ValueError, match="label 3, but the model's output has 3 classes"):
            loss.check_targets(labels + 1, jax.ShapeDtypeStruct((None, 4, 5, 3), "float32"))


def test_info_nce_equals_the_formula_and_leaves_out_equal_items():
    pairs = RNG.normal(size=(5, 2, 4)).astype("float32")
    items = np.array([7, 3, 3, 2, 9], "int32")
    a, b = np.moveaxis(pairs / np.linalg.norm(pairs, axis=-1, keepdims=True), 1, 0)
    scores = np.exp(a @ b.T / 0.5)
    scores[1, 2] = scores[2, 1] = 0
    rows = -np.log(np.diag(scores) / scores.sum(1))
    columns = -np.log(np.diag(scores) / scores.sum(0))
    loss = losses.InfoNCE(0.5, reduction=None)

    @jax.jit
    def program(pairs):
        both = [loss(targets, 3 * pairs) for targets in (items, items[:, None])]
        return losses.info_nce(items, pairs, 0.5, False), *both

    one, *both = program(pairs)
    np.testing.assert_allclose(one, rows, rtol=1e-4)
    for received in both:
        np.testing.assert_allclose(received, (rows + columns) / 2, rtol=1e-4)


def test_missing_targets_have_the_weight_zero():
    y = np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan], [0.0, 1.0, 1.0]], "float32")
    p = RNG.normal(size=(3, 3)).astype("float32")
    seen, weight = ~np.isnan(y), np.array([2.0, 1.0, 0.5], "float32")

    @jax.jit
    def program(y, p):
        results = {}
        for name in ("mse", "mae"):
            loss = losses.IgnoreMissing(name)
            metric = metrics.get(loss)
            mean = metric.result(metric.update(metric.init(), y, p))
            results[name] = loss(y, p), mean, loss(y, p, weight)
        return results

    for name, error in (("mse", (y - p) ** 2), ("mae", np.abs(y - p))):
        means = [error[seen].mean()] * 2 + [(error * weight[:, None])[seen].sum() / seen.sum()]
        np.testing.assert_allclose(program(y, p)[name], means, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda p: losses.IgnoreMissing(losses.Huber())(y, p)))(p)
    assert ((np.asarray(slope) != 0) == seen).all() and np.isfinite(slope).all()
    with pytest.raises(TypeError, match="expected a loss for each of the targets"):
        losses.IgnoreMissing(lambda y, p: (y - p).mean())(y, p)
    with pytest.raises(ValueError, match="targets of the predictions' shape"):
        losses.IgnoreMissing("mse")(y, p[:, :2])
    with pytest.raises(ValueError, match="Did you mean 'mse'"):
        losses.IgnoreMissing("msee")


OWN = (
    losses.Quantile(0.9, reduction="sum"),
    losses.Quantile([0.1, 0.9], name="mine"),
    losses.GaussianNLL("exp"),
    losses.StudentTNLL(3.0, "linear"),
    losses.CRPS(fair=True),
    losses.DiceCrossentropy(True, 0.5, smooth=1.0),
    losses.InfoNCE(0.1, symmetric=False),
    losses.IgnoreMissing(losses.Huber(0.3)),
    losses.IgnoreMissing("mae", reduction=None),
)


@pytest.mark.parametrize("loss", OWN, ids=repr)
def test_configurations(loss):
    config = json.loads(json.dumps(losses.serialize(loss)))
    assert losses.deserialize(config) == losses.get(config) == loss
    assert pickle.loads(pickle.dumps(loss)) == loss and hash(losses.get(config)) == hash(loss)
    for name in (
        (type(loss).__name__, loss.name) if type(loss).__name__ in losses.naming.NAMES else ()
    ):
        assert name == "mine" or losses.get(name) is not None


@pytest.mark.exhaustive
def test_new_losses_train():
    x = RNG.normal(size=(16, 4)).astype("float32")
    y = x[:, 0] + 0.1 * RNG.normal(size=16).astype("float32")
    missing = np.where(RNG.random((16, 2)) < 0.4, np.nan, np.stack([y, -y], 1)).astype("float32")
    inputs = fk.Input((4,))

    def dense(*shape):
        return fk.layers.Reshape(shape)(fk.layers.Dense(int(np.prod(shape)))(inputs))

    rows = [
        (losses.Quantile((0.1, 0.5, 0.9)), dense(3), y),
        (losses.GaussianNLL(), dense(2), y),
        (losses.StudentTNLL(), dense(3), y),
        (losses.CRPS(), dense(8), y),
        ("info_nce", dense(2, 3), np.arange(16)),
        (losses.DiceCrossentropy(from_logits=True), dense(3, 2), (x[:, :3] > 0).astype("int32")),
        (losses.IgnoreMissing("mse"), dense(2), missing),
    ]
    for loss, outputs, targets in rows:
        trainer = fk.Trainer(fk.optimizers.Adam(0.05), loss)
        run = trainer.init(fk.Model(inputs, outputs), jax.random.key(0))
        _, history = trainer.fit(run, x, targets, epochs=15, batch_size=16, verbose=0)
        assert history["loss"][-1] < history["loss"][0] - 0.01, (loss, history["loss"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses.Quantile(1.0), "levels: expected a number between 0 and 1"),
        (lambda: losses.Quantile(()), "levels"),
        (lambda: losses.Quantile((0.5, 2)), "levels"),
        (lambda: losses.Quantile((0.1, 0.9))(Y, RAW), r"expected predictions \(b, ..., 2\)"),
        (lambda: losses.Quantile((0.1, 0.5, 0.9))(Y[:5], RAW), r"expected targets \(6,\)"),
        (lambda: losses.Quantile()(Y, RAW), "targets of the predictions' shape"),
        (lambda: losses.GaussianNLL()(Y, RAW), "mean and scale of each target"),
        (lambda: losses.GaussianNLL("log"), "scale: expected"),
        (lambda: losses.StudentTNLL(df=0), "df: expected a number above 0"),
        (lambda: losses.StudentTNLL(df=3.0)(Y, RAW), "location and scale of each target"),
        (lambda: losses.CRPS(fair=True)(Y, RAW[:, :1]), "expected at least 2 samples"),
        (lambda: losses.CRPS()(1.0, 2.0), "expected predictions of shape"),
        (lambda: losses.GaussianNLL().check_targets(np.array([np.nan]), RAW[:1, :2]), "sample_weight of 0"),
        (lambda: losses.DiceCrossentropy()([1.0], [1.0]), "Add an axis for the classes"),
        (lambda: losses.DiceCrossentropy()(np.zeros((2, 3)), np.zeros((2, 4, 2))), "expected class numbers"),
        (lambda: losses.DiceCrossentropy(smooth=0), "smooth: expected a number above 0"),
        (lambda: losses.InfoNCE()(np.arange(6), RAW), r"stack\(\[a, b\], axis=1\)"),
        (lambda: losses.InfoNCE(temperature=0), "temperature: expected a number above 0"),
    ],
)  # fmt: skip
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()

"""Mean and variance in one pass: as exact as in two passes, for any values."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.cpu.forms import On
from fkeras.nn.normalization import batch_normalization, group_normalization, layer_normalization
from fkeras.nn.statistics import (
    _Mean,
    _Variance,
    centred_and_variance,
    mean_and_variance,
    mean_of_part,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(64, 200)).astype("float32")


def changed(change):
    x = ROWS.copy()
    change(x)
    return x


ARRAYS = {
    "far from zero": ROWS + np.float32(1e4),
    "farther from zero": ROWS + np.float32(-1e6),
    "small": ROWS * np.float32(1e-4) + 1,
    "constant": np.full_like(ROWS, 12345.678),
    "one outlier first": changed(lambda x: x.__setitem__((slice(None), 0), 1e6)),
    "one row of outliers": changed(lambda x: x.__setitem__(0, 1e6)),
    "sparse": ROWS * (ROWS > 2.5),
    "two levels": changed(lambda x: x.__setitem__((slice(None), slice(0, 13)), 1e5)),
}


@functools.partial(jax.jit, static_argnums=1)
def statistics(x, axes):
    form, mean = _Variance(axes), _Mean(axes).default(x)
    ways = {"part": form.default(x, mean), "exact sums": form.tpu(x, mean)}
    return (mean, _Mean(axes).tpu(x)), ways | {"two passes": form.fast(x, mean)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.parametrize("name", ARRAYS)
def test_one_pass_is_as_exact_as_two(name, axes):
    x = ARRAYS[name]
    exact = x.astype("float64").var(axis=axes, keepdims=True)
    means, ways = statistics(x, axes)
    exact_mean = x.astype("float64").mean(axis=axes, keepdims=True)
    for value in means:
        assert (np.abs(value - exact_mean) <= 1e-6 * (np.abs(exact_mean) + np.sqrt(exact))).all()
    errors = {
        about: np.max(np.abs(variance - exact) / (exact + 1e-3)) for about, variance in ways.items()
    }
    limit = max(2 * errors["two passes"], 5e-6)
    assert errors["part"] <= limit, errors
    # the sums have 48 bits: differences of numbers at 1e6 deviations from zero are rounded by more
    limit = max(limit, 2.0**-46 * np.max(exact_mean**2 / (exact + 1e-3)))
    assert errors["exact sums"] <= limit, errors


# shapes and axes of one sum, of pairs behind exact sums, and of one long axis in two
LONG = {
    "images": ((2, 40, 60, 2), (0, 1, 2)),
    "layer": ((2, 4096), (1,)),
    "prime": ((2, 2053), (1,)),
    "long axis": ((2, 3000, 2), (0, 1)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("from_bfloat16", [False, True])
def test_exact_sums_of_many_numbers(name, from_bfloat16):
    shape, axes = LONG[name]
    noise = np.random.default_rng(1).normal(size=shape)
    means = np.array([0.0, 1.0, -30.0, 1e4]).reshape(4, *[1] * len(shape))
    x = (noise * np.where(means == 1, 1e-4, 1) + means).astype("float32")
    if from_bfloat16:
        x = np.asarray(x.astype("bfloat16"), "float32")
    axes = tuple(axis + 1 for axis in axes)
    forms = _Mean(axes, None, from_bfloat16), _Variance(axes, None, from_bfloat16)
    mean, variance = jax.jit(lambda x: (forms[0].tpu(x), forms[1].tpu(x, x)))(x)
    exact = x.astype("float64").var(axes, keepdims=True)
    assert (np.abs(variance - exact) <= 1e-5 * exact).all()
    np.testing.assert_allclose(mean, x.mean(axes, keepdims=True, dtype="float64"), 1e-6, 1e-6)


def test_exact_sums_of_4096_numbers_on_both_sides_of_a_power_of_two():
    variance_of = jax.jit(lambda x: _Variance((0, 1, 2), None, False).tpu(x, x))
    noise = np.random.default_rng(1).normal(size=(2, 64, 64, 8))
    for mean in (1.0001, 1.50003, 0.75):
        x = (mean * (1 + 1e-4 * noise)).astype("float32")
        exact = x.astype("float64").var((0, 1, 2), keepdims=True)
        assert (np.abs(variance_of(x) - exact) <= 1e-5 * exact).all()


def test_sums_of_numbers_from_bfloat16():
    one = changed(lambda x: (x.fill(1000), x.__setitem__((slice(None), 5), 1004)))
    x = np.stack([*ARRAYS.values(), one]).astype("bfloat16").astype("float32")
    exact = x.astype("float64").var(axis=2, keepdims=True)
    form = _Variance((2,), from_bfloat16=True)
    variance, mean = jax.jit(lambda x: (form.tpu(x, x), _Mean((2,), None, True).tpu(x)))(x)
    assert (np.abs(variance - exact) <= 1.5e-3 * exact).all()
    np.testing.assert_allclose(mean, x.mean(axis=2, keepdims=True, dtype="float64"), 1e-6, 1e-6)
    # the sums join the product that makes the array: no reduction of tuples
    layer = jax.jit(layer_normalization).trace(jax.ShapeDtypeStruct((8, 200), "bfloat16"))
    assert "bitcast" not in layer.lower(lowering_platforms=("tpu",)).as_text()
    # a square of a sum is larger than float32, and the variance is not
    large = jnp.full((1, 1, 200), 3e16)
    assert np.isfinite(form.tpu(large, large)).all()
    assert np.isinf(form.tpu(100 * large, large)).all()


@pytest.mark.exhaustive
def test_overflowing_squares_give_infinity():
    x = jnp.array([[1e30, -1e30, 0.0]])
    form, mean = _Variance((1,)), jnp.zeros((1, 1))
    ways = (
        form.default(x, mean),
        form.tpu(x, mean),
        form.tpu(jnp.tile(x, (1, 1000)), mean),
        form.fast(x, mean),
    )
    for variance in ways:
        assert jnp.isinf(variance).all()
    with jax.disable_jit():  # without jit the form for accelerators computes
        assert not layer_normalization(x).any()
    x = jnp.array([[1.0, jnp.nan]])
    assert np.isnan(form.default(x, mean)).all()
    assert np.isnan(form.tpu(x, mean)).all()


@pytest.mark.exhaustive
def test_the_part_is_at_least_a_sixteenth():
    shapes = ((100,), (3,), (17,), (4, 31), (8, 2), (16, 16), (1,))
    for shape in shapes:
        ones = jnp.ones(shape).at[(0,) * len(shape)].set(2.0)
        mean = mean_of_part(ones, tuple(range(len(shape))))
        assert 1 + 1 / np.prod(shape) <= mean.ravel()[0] <= 1 + min(1, 16 / np.prod(shape)) + 1e-6


@pytest.mark.exhaustive
def test_derivatives_are_those_of_the_formulas():
    x = jnp.asarray(ROWS[:4, :5])

    def formulas(x):
        mean = x.mean(0, keepdims=True)
        return mean, jnp.square(x - mean).mean(0, keepdims=True)

    def scalar(function, x):
        mean, variance = function(x)
        return jnp.sum(jnp.sin(mean) * variance**2)

    ours = functools.partial(scalar, lambda x: mean_and_variance(x, (0,)))
    plain = functools.partial(scalar, formulas)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    for disabled in (False, True):
        with jax.disable_jit(disabled):
            close(jax.grad(ours)(x), jax.grad(plain)(x))
    close(jax.jvp(ours, (x,), (x,))[1], jax.jvp(plain, (x,), (x,))[1])
    close(jax.hessian(ours)(x), jax.hessian(plain)(x))
    stacked = jnp.stack([x, 2 * x])
    close(jax.vmap(jax.grad(ours))(stacked), jax.vmap(jax.grad(plain))(stacked))


@pytest.mark.exhaustive
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("groups", [None, (1, 5), (1, 1)])
def test_groups_and_the_centred_array(groups, platform, monkeypatch):
    if platform == "tpu":  # the gradient for TPUs computes
        monkeypatch.setattr(On, "fast", On.tpu)
    x = jnp.asarray(ROWS[:4, :20].reshape(4, 10, 2)) + 100

    def formulas(x):
        parts = x if groups is None else x.reshape(4, groups[1], -1)
        axis = 1 if groups is None else 2
        variance = jnp.var(parts, axis, keepdims=True)
        centred = (parts - parts.mean(axis, keepdims=True)).reshape(x.shape)
        return centred, variance * jnp.ones_like(parts)

    def scalar(function, x):
        centred, variance = function(x)
        return jnp.sum(jnp.sin(centred)) * jnp.mean(variance) ** 2 + jnp.sum(jnp.cos(centred))

    axes = (1,) if groups is None else (2,)
    ours = functools.partial(scalar, lambda x: centred_and_variance(x, axes, groups))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    forms = (_Mean(axes, groups), _Variance(axes, groups))
    for way in ("fast", "default", "tpu"):
        mean = getattr(forms[0], way)(x)
        close(x - mean, formulas(x)[0])
        variance = getattr(forms[1], way)(x, mean)
        close((variance * jnp.ones_like(x)).reshape(formulas(x)[1].shape), formulas(x)[1])
    gradient = jax.jit(jax.grad(ours))
    close(gradient(x), jax.grad(functools.partial(scalar, formulas))(x))
    with jax.disable_jit():
        close(jax.grad(ours)(x), jax.grad(functools.partial(scalar, formulas))(x))
    stacked = jnp.stack([x, 2 * x])
    close(jax.vmap(gradient)(stacked)[1], gradient(2 * x))


def test_the_gradient_of_centred_arrays_is_that_of_the_platform():
    def programs(function):
        traced = jax.jit(jax.grad(function)).trace(np.ones((8, 32), "float32"))
        return [traced.lower(lowering_platforms=(p,)).as_text() for p in ("tpu", "cuda", "cpu")]

    texts = programs(lambda x: jnp.sum(layer_normalization(x) ** 3))
    assert not any("stablehlo.while" in text for text in texts)
    # the exact sums are for TPUs alone
    assert ["stablehlo.reduce_precision" in text for text in texts] == [True, False, False]


def test_gpus_take_two_passes_over_rows_unless_gamma_has_a_gradient():
    """One pass sums a part of each row first."""

    def slices(function, length, platform="cuda"):
        arrays = [jax.ShapeDtypeStruct(s, "bfloat16") for s in ((2, length), (length,))]
        traced = jax.jit(function).trace(*arrays)
        return "stablehlo.slice" in traced.lower(lowering_platforms=(platform,)).as_text()

    def score(x, gamma):
        return layer_normalization(x, gamma).astype("float32").sum()

    of_x, of_gamma = jax.grad(score), jax.grad(score, 1)
    cases = (score, 64), (of_x, 64), (of_gamma, 64), (jax.grad(score, (0, 1)), 64), (of_x, 1 << 15)
    assert [slices(*case) for case in cases] == [False, False, True, True, True]


def test_the_gradient_of_batch_normalization_does_not_read_gamma():
    """XLA would copy a gamma that an optimizer updates before the gradient reads it."""
    gamma = jnp.arange(1.0, 6.0)

    def normalized(x, gamma):
        mean, variance = mean_and_variance(x, (0,))
        return batch_normalization(x, mean.ravel(), variance.ravel(), gamma)

    kept = jax.tree.leaves(jax.vjp(normalized, jnp.asarray(ROWS[:, :5]), gamma)[1])
    assert any(leaf.shape == gamma.shape for leaf in kept)
    assert not any(np.array_equal(leaf.ravel(), gamma) for leaf in kept)


def test_programs_for_tpus_have_plain_sums_of_few_numbers_and_no_branches():
    def text(shape, axes=(0, 1), **options):
        function = jax.jit(
            jax.value_and_grad(lambda x: mean_and_variance(x, axes, **options)[1].sum())
        )
        traced = function.trace(jax.ShapeDtypeStruct(shape, "float32"))
        return traced.lower(lowering_platforms=("tpu",)).as_text()

    for options in ({}, {"from_bfloat16": True}):
        few, many = text((32, 64, 3), **options), text((32, 100, 3), **options)
        # sums join the operation that makes the array, and a reduction of pairs does not
        pairs = re.compile(r"stablehlo\.reduce\([^)]*\), \(")
        assert [bool(pairs.search(part)) for part in (few, many)] == [False, True]
        rows = text((32, 64), (1,), **options)
        # the gradient keeps a mean of the batch; a mean of each row joins the operation that reads the mean
        barriers = ["optimization_barrier" in part for part in (few, many, rows)]
        assert barriers == [True, True, False]
        assert not any(op in few + many for op in ("stablehlo.case", "stablehlo.while"))


def test_a_variance_of_bfloat16_values_is_that_of_the_rounded_values():
    """The error is far below that of rounding to bfloat16."""
    exact = ROWS[:, :3] + 100
    x = exact.astype("bfloat16")
    variance = np.var(x.astype("float64"), 0)
    rounding = np.abs(variance / np.var(exact.astype("float64"), 0) - 1).max()
    wide = x.astype("float32")
    found = jax.jit(_Variance((0,), from_bfloat16=True).tpu)(wide, wide.mean(0, keepdims=True))
    assert np.abs(found[0] / variance - 1).max() < 1e-3 * rounding


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalizations_far_from_zero(dtype, monkeypatch):
    """The rows are rounded first; statistics are then as exact as in float64."""
    for form in (_Mean, _Variance):  # the form for accelerators computes
        monkeypatch.setattr(form, "fast", form.default)
    x = (ROWS * np.float32(2e3) + np.float32(1e4)).astype(dtype)
    wide = np.asarray(x, "float64")

    def normalized(axis, shape=None):
        part = wide if shape is None else wide.reshape(shape)
        centred = part - part.mean(axis, keepdims=True)
        return (centred / np.sqrt(part.var(axis, keepdims=True) + 1e-3)).reshape(x.shape)

    @jax.jit
    def results(x):
        rows = x.astype("float32")
        mean, variance = mean_and_variance(rows, (0,))
        batch = batch_normalization(rows, mean.ravel(), variance.ravel())
        return layer_normalization(x), group_normalization(x, 4), batch

    all_expected = normalized(1), normalized(2, (64, 4, 50)), normalized(0)
    tolerance = {"float32": 5e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for actual, expected in zip(results(x), all_expected, strict=True):
        np.testing.assert_allclose(np.asarray(actual, "float64"), expected, atol=tolerance)

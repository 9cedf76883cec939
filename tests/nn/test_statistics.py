"""Mean and variance in one pass: as exact as in two passes, for any values and any shift."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


@functools.partial(jax.jit, static_argnums=2)
def statistics(x, deviation, axes):
    form, mean = _Variance(axes, epsilon=1e-3), _Mean(axes).default(x)
    shifts = {
        "moving mean of the first step": jnp.zeros_like(mean),
        "moving mean": mean + 0.5 * deviation,
        "broken moving mean": jnp.full_like(mean, jnp.nan),
    }
    ways = {"part": form.default(x, mean), "merged": form.tpu(x, mean)}
    ways |= {about: form.from_shift(x, mean, shift) for about, shift in shifts.items()}
    return (mean, _Mean(axes).tpu(x)), ways | {"two passes": form.fast(x, mean)}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.parametrize("name", ARRAYS)
def test_one_pass_is_as_exact_as_two(name, axes):
    x = ARRAYS[name]
    exact = x.astype("float64").var(axis=axes, keepdims=True)
    means, ways = statistics(x, np.sqrt(exact).astype("float32"), axes)
    exact_mean = x.astype("float64").mean(axis=axes, keepdims=True)
    for value in means:
        assert (np.abs(value - exact_mean) <= 1e-6 * (np.abs(exact_mean) + np.sqrt(exact))).all()
    errors = {
        about: np.max(np.abs(variance - exact) / (exact + 1e-3)) for about, variance in ways.items()
    }
    two_passes = errors.pop("two passes")
    assert max(errors.values()) <= max(2 * two_passes, 5e-6), errors


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
    form, mean = _Variance((1,), epsilon=1e-3), jnp.zeros((1, 1))
    ways = (
        form.default(x, mean),
        form.from_shift(x, mean, mean),
        form.tpu(x, mean),
        form.fast(x, mean),
    )
    for variance in ways:
        assert jnp.isinf(variance).all()
    with jax.disable_jit():  # without jit the form for accelerators computes
        assert not layer_normalization(x).any()
    x = jnp.array([[1.0, jnp.nan]])
    assert np.isnan(form.default(x, mean)).all()
    assert np.isnan(form.from_shift(x, mean, mean)).all()
    assert np.isnan(form.tpu(x, mean)).all()


@pytest.mark.exhaustive
def test_the_part_is_at_least_a_sixteenth():
    shapes = ((100,), (3,), (17,), (4, 31), (8, 2), (16, 16), (1,))
    for shape in shapes:
        ones = jnp.ones(shape).at[(0,) * len(shape)].set(2.0)
        mean = mean_of_part(ones, tuple(range(len(shape))))
        assert 1 + 1 / np.prod(shape) <= mean.ravel()[0] <= 1 + min(1, 16 / np.prod(shape)) + 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("shift", [None, 0.5])
def test_derivatives_are_those_of_the_formulas(shift):
    x = jnp.asarray(ROWS[:4, :5])
    shift = None if shift is None else jnp.full((1, 5), shift)

    def formulas(x):
        mean = x.mean(0, keepdims=True)
        return mean, jnp.square(x - mean).mean(0, keepdims=True)

    def scalar(function, x):
        mean, variance = function(x)
        return jnp.sum(jnp.sin(mean) * variance**2)

    ours = functools.partial(scalar, lambda x: mean_and_variance(x, (0,), shift))
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
@pytest.mark.parametrize("groups", [None, (1, 5), (1, 1)])
def test_groups_and_the_centred_array(groups):
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
    close(jax.grad(ours)(x), jax.grad(functools.partial(scalar, formulas))(x))
    with jax.disable_jit():
        close(jax.grad(ours)(x), jax.grad(functools.partial(scalar, formulas))(x))
    stacked = jnp.stack([x, 2 * x])
    close(jax.vmap(jax.grad(ours))(stacked)[1], jax.grad(ours)(2 * x))


def test_the_gradient_of_centred_arrays_is_that_of_the_platform():
    def programs(function):
        traced = jax.jit(jax.grad(function)).trace(np.ones((8, 32), "float32"))
        return [traced.lower(lowering_platforms=(p,)).as_text() for p in ("tpu", "cuda", "cpu")]

    texts = programs(lambda x: jnp.sum(layer_normalization(x) ** 3))
    assert not any("stablehlo.while" in text for text in texts)
    # the reduction of tuples is for TPUs alone
    assert ["stablehlo.bitcast_convert" in text for text in texts] == [True, False, False]


def test_loops_are_only_in_programs_for_tpus_with_a_shift_and_a_large_array():
    def count(platform, *shift, rows=1_000_000):
        function = jax.jit(
            jax.value_and_grad(lambda x, *s: mean_and_variance(x, (0,), *s)[1].sum())
        )
        traced = function.trace(jax.ShapeDtypeStruct((rows, 3), "float32"), *shift)
        return traced.lower(lowering_platforms=(platform,)).as_text().count("stablehlo.while")

    shift = np.zeros((1, 3), "float32")
    assert [count(p, shift) for p in ("tpu", "cuda", "cpu")] == [1, 0, 0]
    assert [count(p) for p in ("tpu", "cuda", "cpu")] == [0, 0, 0]
    assert count("tpu", shift, rows=32) == 0


@pytest.mark.parametrize("shift", [0.0, 103.0, 1e6, np.nan, -np.inf])
def test_a_variance_of_bfloat16_values_takes_one_pass(shift):
    """The error is below a tenth of the error of rounding to bfloat16, whatever the shift."""
    exact = ROWS[:, :3] + 100
    x = exact.astype("bfloat16")
    variance = np.var(x.astype("float64"), 0)
    rounding = np.abs(variance / np.var(exact.astype("float64"), 0) - 1).max()

    def both(x, shift):
        return mean_and_variance(x.astype("float32"), (0,), shift, from_bfloat16=True)

    shift = np.full((1, 3), shift, "float32")
    wide = x.astype("float32")
    found = jax.jit(_Variance((0,), from_bfloat16=True).tpu)(
        wide, wide.mean(0, keepdims=True), shift
    )
    assert np.abs(found[0] / variance - 1).max() < 0.1 * rounding
    text = jax.jit(both).trace(x, shift).lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.case" not in text and "stablehlo.while" not in text


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

"""Gradients of maxima and minima if a compiler computes the operand twice with different rounding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops
from fkeras.losses import categorical_hinge
from fkeras.nn.cpu.extremes import _Tangent, position

SHAPE = (4, 4, 3)
FUNCTIONS = {
    "GlobalMaxPooling1D": layers.GlobalMaxPooling1D(),
    "AdaptiveMaxPooling1D": layers.AdaptiveMaxPooling1D(1),
    "AdaptiveMaxPooling1D of overlapping windows": layers.AdaptiveMaxPooling1D(3),
    "max": lambda x: ops.max(x, axis=1),
    "min": lambda x: ops.min(x, axis=(-2,), initial=0.5),
    "amax": lambda x: ops.amax(x, axis=(0, 1)),
    "amin": lambda x: ops.amin(x, keepdims=True),
    "categorical_hinge": lambda x: categorical_hinge(jnp.zeros_like(x), x),
}


def _normalized(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    scale, shift = scale[None, None], shift[None, None]
    return (x - mean) * jax.lax.rsqrt(variance + 1e-3) * scale + shift


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_survive_recomputed_operands(name):
    """With jnp.max on XLA's CPU compiler, most of these gradients are NaN under this suite's flags."""

    def loss(x, scale, shift):
        return jnp.sum(jnp.square(FUNCTIONS[name](_normalized(x, scale, shift))))

    def batch(seed):
        draw = np.random.default_rng(seed).normal
        return [draw(size=s).astype("float32") for s in (SHAPE, 3, 3)]

    gradient = jax.jit(jax.grad(loss))
    batches = [batch(seed) for seed in range(20)]
    with jax.disable_jit():  # operations run one by one, so that no operand is computed twice
        eager = [jax.grad(loss)(*arrays) for arrays in batches[:1]]
    for actual, expected in zip([gradient(*arrays) for arrays in batches], eager, strict=False):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert all(np.isfinite(gradient(*arrays)).all() for arrays in batches)
    if name in ("GlobalMaxPooling1D", "min"):
        stacked = jax.jit(jax.vmap(jax.grad(loss)))(*map(np.stack, zip(*batches, strict=True)))
        np.testing.assert_allclose(stacked[:1], eager, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_shares_of_equal_elements_add_up_to_one(seed):
    """Rows that repeat hold equal maxima: XLA must not count and select them on different values."""
    draw = np.random.default_rng(seed)
    table, scale = draw.normal(size=(7, 3)).astype("float32"), draw.normal(1, size=3)
    ids, scale = draw.integers(0, 7, size=(4, 4)), scale.astype("float32")

    def maxima(shift, ids):
        return ops.max(_normalized(jnp.asarray(table)[ids], scale, shift), axis=1)

    def loss(shift, ids):
        return jnp.sum(jnp.tanh(maxima(shift, ids)))

    shift = jnp.full(3, 0.1, "float32")
    wanted = jnp.sum(1 - jnp.tanh(maxima(shift, ids)) ** 2, axis=0)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(shift, ids), wanted, rtol=1e-5)
    # a conditional under jax.vmap becomes a selection, which computes its operands twice again
    stacked = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(shift, np.stack([ids, ids]))
    np.testing.assert_allclose(stacked, np.stack([wanted, wanted]), rtol=1e-5)


@pytest.mark.exhaustive
def test_equal_elements_share_the_gradient_as_in_jax():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [5.0, 0.0, -np.inf]], "float32")
    cases = [(-1, False), ((0, 1), True)]
    for ours, theirs in ((ops.max, jnp.max), (ops.min, jnp.min)):
        for axis, keepdims in cases:
            y, pull = jax.vjp(lambda x, f=ours, a=axis, k=keepdims: f(x, axis=a, keepdims=k), x)
            z, pull_jax = jax.vjp(lambda x, f=theirs, a=axis, k=keepdims: f(x, a, keepdims=k), x)
            np.testing.assert_array_equal(y, z)
            np.testing.assert_allclose(pull(jnp.ones_like(y))[0], pull_jax(jnp.ones_like(z))[0])
    hessian = jax.hessian(lambda x: jnp.sum(ops.max(x, axis=1) ** 3))(x[:2])
    assert np.isfinite(hessian).all()


def test_values_and_dtypes_match_jax():
    empty = np.zeros((2, 0), "float32")

    @jax.jit
    def compute(arrays):
        pairs = ((ops.amax, jnp.max), (ops.amin, jnp.min))
        both = [[f(x, axis=1) for f in pair] for x in arrays for pair in pairs]
        initial = ops.max(empty, axis=1, initial=4.0), ops.min([3.0, 2.0], initial=1)
        return both, initial, jax.grad(lambda x: ops.max(x))(arrays[2][0])

    both, initial, gradient = compute(
        (np.array([[3, 1]]), np.array([[True, False]]), np.float32([[1, np.nan]]))
    )
    for actual, expected in both:
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype
    assert [x.tolist() for x in initial] == [[4.0, 4.0], 1.0]
    with pytest.raises(ValueError, match="zero-size"):
        ops.max(empty, axis=1)
    assert np.isnan(gradient).all()


@pytest.mark.exhaustive
def test_a_mean_of_bfloat16_maxima_trains(key):
    layer = layers.GlobalMaxPooling2D(dtype="bfloat16")
    x = jax.random.normal(key, (2, 5, 5, 3), "bfloat16")
    gradient = jax.jit(jax.grad(lambda x: layer(jnp.tanh(x) * 3).sum().astype("float32")))(x)
    assert gradient.dtype == jnp.bfloat16
    assert np.isfinite(gradient.astype("float32")).all()
    assert fk.ops.max(x).dtype == jnp.bfloat16


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_form_for_accelerators_shares_the_gradient_without_conditionals(dtype):
    x = jnp.array([[1, 3, 3], [2, 2, 2], [5, 0, -np.inf], [1, np.nan, 2]], dtype)
    tangent = jnp.array([[1, 2, 3], [3, 6, 9], [4, 5, 6], [1, 1, 1]], dtype)
    y = jnp.max(x, axis=1, keepdims=True)
    form = _Tangent((1,))
    for compute in (form.default, form.fast):
        linear = functools.partial(compute, x, y)
        # NumPy compares no NaN of bfloat16
        np.testing.assert_array_equal(
            linear(tangent).ravel().astype("float32"), [2.5, 6, 4, np.nan]
        )
        (gradient,) = jax.linear_transpose(linear, x)(jnp.full((4, 1), 6, dtype))
        expected = [[0, 3, 3], [2, 2, 2], [6, 0, 0], [np.nan] * 3]
        np.testing.assert_array_equal(gradient.astype("float32"), expected)
        assert gradient.dtype == dtype


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_for_accelerators_have_no_conditional(name):
    def loss(x):
        return jnp.sum(jnp.square(FUNCTIONS[name](jnp.tanh(x))))

    traced = jax.jit(jax.vmap(jax.grad(loss))).trace(np.zeros((2, *SHAPE), "float32"))
    for platform in ("tpu", "cuda"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "stablehlo.case" not in text and "stablehlo.if" not in text
        assert text.count("= stablehlo.") < 100
    assert "stablehlo.case" in traced.lower(lowering_platforms=("cpu",)).as_text()


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_equal_those_of_jax_with_ties_and_nan(axis):
    x = np.array([[1, np.nan, 3, np.nan], [np.inf, np.inf, -1, 3], [-np.inf] * 4], "float32")
    for array in (x, np.clip(np.nan_to_num(x), -9, 9).astype("int32"), x > 1):
        for of_largest, theirs in ((True, jnp.argmax), (False, jnp.argmin)):
            y, expected = position(jnp.asarray(array), axis, of_largest), theirs(array, axis)
            assert y.dtype == expected.dtype
            np.testing.assert_array_equal(y, expected)
    assert jax.grad(lambda v: v[position(v, 0)])(jnp.array([1.0, 4.0])).tolist() == [0, 1]
    with pytest.raises(TypeError, match="complex"):
        position(jnp.ones(3, "complex64"), 0)


def test_positions_are_searched_in_an_array_in_memory():
    # the operand of a conditional: XLA may compute other operands twice, with different rounding
    program = jax.jit(lambda x: position(jnp.sin(x), 1)).lower(jnp.ones((2, 200)))
    assert "stablehlo.case" in program.as_text()
    mapped = jax.jit(jax.vmap(lambda x: position(jnp.sin(x), 0))).lower(jnp.ones((2, 200)))
    assert "stablehlo.case" not in mapped.as_text()
    assert "stablehlo.compare" in mapped.as_text()

"""Weighted means equal the einsum of normalized weights, with one program for each platform."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from fkeras.nn.weighted_means import ScaledProduct, weighted_mean

#: the einsum, and the shapes of weights and values
CASES = {
    "heads": ("acbB,aBcd->abcd", (2, 3, 4, 5), (2, 5, 3, 2)),
    "grouped": ("aczbB,aBcd->abczd", (2, 3, 2, 4, 5), (2, 5, 3, 2)),
    "two axes": ("adbcBC,aBCde->abcde", (2, 3, 2, 2, 2, 3), (2, 2, 3, 3, 2)),
    "many keys": ("acbB,aBcd->abcd", (2, 3, 4, 128), (2, 128, 3, 2)),
    "no keys": ("acbB,aBcd->abcd", (2, 3, 4, 0), (2, 0, 3, 2)),
}


def _arrays(equation, weights, values):
    rng = np.random.default_rng(0)
    sums = tuple(n for n, a in enumerate(equation.split(",")[0]) if a not in equation.split(">")[1])
    total = tuple(1 if n in sums else size for n, size in enumerate(weights))
    weights, total, values = (
        rng.uniform(0.5, 2, shape).astype("float32") for shape in (weights, total, values)
    )
    return weights, 8 * total, values


def _plain(equation, weights, total, values):
    return jnp.einsum(equation, weights / total, values)


def _score(function, equation):
    return lambda *arrays: jnp.sum(jnp.sin(function(equation, *arrays)))


def _assert_close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max(initial=1))


def _assert_both_close(results, *arrays):
    """Compares results of our function in both orders and of the einsum, in one program."""
    functions = weighted_mean, functools.partial(weighted_mean, ordered=True), _plain
    ours, ordered, plain = jax.jit(lambda *arrays: [results(f)(*arrays) for f in functions])(
        *arrays
    )
    _assert_close(ours, plain)
    _assert_close(ordered, plain)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_einsum_of_normalized_weights(name):
    equation, *shapes = CASES[name]

    def results(function):
        score = _score(function, equation)
        slopes = jax.grad(score, (0, 1, 2))
        return lambda *arrays: (
            function(equation, *arrays),
            slopes(*arrays),
            jax.jvp(score, arrays, arrays),
            jax.jvp(slopes, arrays, arrays),
            jax.grad(lambda *a: sum(jnp.sum(x**2) for x in slopes(*a)), (0, 1, 2))(*arrays),
        )

    _assert_both_close(results, *_arrays(equation, *shapes))


@pytest.mark.parametrize("ordered", [False, True])
def test_computations_of_all_platforms_are_equal(ordered):
    # the order of TPUs begins at 128 keys
    equation, shapes = CASES["heads"][0], ((2, 3, 4, 128), (2, 128, 3, 2))
    weights, total, values = _arrays(equation, *shapes)
    operands, form = (weights, 1 / total, values), ScaledProduct(equation, ordered)

    @jax.jit
    def pairs(*operands):
        y = form.default(*operands)
        found = [(form.fast(*operands), y), (form.tpu(*operands), y)]
        for number, x in enumerate(operands):
            filled = [y if n == number else operand for n, operand in enumerate(operands)]
            spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
            gradients = form.default_gradient, form.gradient, form.tpu_gradient
            expected, *others = (gradient(number, spec, *filled) for gradient in gradients)
            found += [(other, expected) for other in others]
        return found

    for ours, expected in pairs(*operands):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, 0, None), (None, None, 1)])
def test_under_vmap(axes):
    equation, *shapes = CASES["heads"]
    arrays = [
        x if axis is None else np.stack([x, 2 * x, x + 1], axis)
        for x, axis in zip(_arrays(equation, *shapes), axes, strict=True)
    ]

    def results(function):
        return jax.vmap(jax.grad(_score(function, equation), (0, 1, 2)), axes)

    _assert_both_close(results, *arrays)


def _program(platform, numbers, precision=None, case="heads"):
    equation, *shapes = CASES[case]

    def results(*arrays):
        with jax.default_matmul_precision(precision):
            return jax.value_and_grad(_score(weighted_mean, equation), numbers)(*arrays)

    traced = jax.jit(results).trace(*_arrays(equation, *shapes))
    return traced.lower(lowering_platforms=(platform,)).as_text()


def test_programs_of_platforms():
    # three products: the value, the gradient of the weights, and that of the values
    # many keys: accelerators have the sums of the gradient times the weights
    scaled = re.compile(r"multiply .* : tensor<2x3x4x(?:5|128)xf32>")
    numbers = {"cpu": (0, 0), "cuda": (3, 4), "tpu": (3, 4)}
    for platform, expected in numbers.items():
        for case, number in zip(("heads", "many keys"), expected, strict=True):
            text = _program(platform, (0, 1, 2), case=case)
            assert text.count("dot_general") == 3
            assert len(scaled.findall(text)) == number
        # constant operands have no product
        assert _program(platform, (2,)).count("dot_general") == 2
        assert _program(platform, (0, 1)).count("dot_general") == 2


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_precision_is_that_of_the_call(platform):
    # the lowering is outside of the context that sets the precision
    text = _program(platform, (0, 1, 2), "highest")
    assert text.count("[HIGHEST, HIGHEST]") == 3


def test_exports_with_an_unknown_number_of_keys():
    equation, *shapes = CASES["heads"]
    arrays = _arrays(equation, *shapes)
    (keys,) = export.symbolic_shape("n")
    sizes = [tuple(keys if n == 5 else n for n in x.shape) for x in arrays]
    specs = [jax.ShapeDtypeStruct(size, "float32") for size in sizes]
    ours, theirs = (
        jax.jit(jax.grad(_score(function, equation), (0, 1, 2)))
        for function in (weighted_mean, _plain)
    )
    exported = export.export(ours, platforms=("cpu", "cuda", "tpu"))(*specs)
    _assert_close(exported.call(*arrays), theirs(*arrays))


def test_in_loops_checkpoints_and_exported_programs():
    equation, *shapes = CASES["heads"]
    arrays = _arrays(equation, *shapes)

    def slopes(function):
        def step(weights, _):
            y = jax.checkpoint(lambda w: function(equation, w, *arrays[1:]))(weights)
            return weights * (1 + jnp.mean(y)), jnp.sum(y)

        return jax.grad(lambda w: jnp.sum(jax.lax.scan(step, w, length=2)[1]))

    expected = jax.jit(slopes(_plain))(arrays[0])
    specs = jax.ShapeDtypeStruct(arrays[0].shape, "float32")
    exported = export.export(jax.jit(slopes(weighted_mean)), platforms=("cpu", "cuda", "tpu"))
    np.testing.assert_allclose(exported(specs).call(arrays[0]), expected, rtol=1e-5)


def test_arrays_kept_for_the_gradient():
    equation, *shapes = CASES["heads"]
    weights, total, values = _arrays(equation, *shapes)
    y, pull = jax.vjp(lambda *a: weighted_mean(equation, *a), weights, total, values)
    kept = sorted(leaf.shape for leaf in jax.tree.leaves(pull) if np.size(leaf) > 1)
    assert kept == sorted([weights.shape, total.shape, values.shape, y.shape])

"""Products of groups of rows on CPUs equal `jax.lax.ragged_dot`, under transforms of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.cpu.experts import GroupedProduct
from fkeras.nn.cpu.forms import compute

FORM = GroupedProduct()
RNG = np.random.default_rng(0)


def _draw(*shape):
    return RNG.normal(size=shape).astype("float32")


# groups without rows at the start, inside and at the end; several blocks of one group
@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", [[0, 37, 0, 2, 1, 0], [40, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 40]])
def test_values_and_gradients_equal_those_of_ragged_dot(sizes):
    x, kernels, sizes = _draw(40, 3), _draw(6, 3, 4), np.array(sizes, "int32")

    def score(product):
        return lambda x, kernels: jnp.sum(jnp.sin(product(x, kernels, sizes)))

    np.testing.assert_allclose(
        jax.jit(FORM.fast)(x, kernels, sizes), FORM.default(x, kernels, sizes), atol=1e-5
    )
    ours, theirs = (
        jax.jit(jax.grad(score(product), (0, 1)))(x, kernels)
        for product in (lambda *args: compute(FORM, *args), FORM.default)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.exhaustive
def test_second_derivatives():
    x, kernels, sizes = _draw(9, 3), _draw(2, 3, 4), np.array([5, 4], "int32")

    def score(x, kernels):
        kernel = kernels[np.repeat(np.arange(2), sizes)]
        return jnp.sum(jnp.sin(jnp.einsum("md,mdf->mf", x, kernel)))

    def ours(x, kernels):
        return jnp.sum(jnp.sin(compute(FORM, x, kernels, sizes)))

    for number in (0, 1):
        slopes = [
            jax.grad(lambda x, k, f=f: jnp.sum(jax.grad(f, number)(x, k) ** 2), (0, 1))(x, kernels)
            for f in (ours, score)
        ]
        for a, b in zip(*slopes, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)])
def test_vmap_of_both_computations(axes):
    arrays = _draw(12, 3), _draw(3, 3, 4), np.array([5, 0, 7], "int32")
    stacked = [
        x if axis is None else np.stack([x, x[::-1] if x.ndim == 1 else -x])
        for x, axis in zip(arrays, axes, strict=True)
    ]
    second = [x if axis is None else x[1] for x, axis in zip(stacked, axes, strict=True)]
    expected = FORM.default(*second)
    np.testing.assert_allclose(
        jax.vmap(lambda *a: compute(FORM, *a), axes)(*stacked)[1], expected, atol=1e-5
    )
    # the computation of other platforms, which `ragged_dot` maps over all operands together only
    with jax.disable_jit():
        mapped = jax.vmap(lambda *a: compute(FORM, *a), axes)(*stacked)
    np.testing.assert_allclose(mapped[1], expected, atol=1e-5)


@pytest.mark.exhaustive
def test_half_precision_sums_gradients_in_float32():
    x = jnp.ones((2048, 1), "bfloat16")
    sizes = jnp.array([2048], "int32")
    slope = jax.grad(lambda k: jnp.sum(compute(FORM, x, k, sizes).astype("float32")))
    # sums of blocks in bfloat16 would stop at 256
    assert float(slope(jnp.ones((1, 1, 1), "bfloat16"))[0, 0, 0]) == 2048

"""Products with thin kernels on CPUs equal `jnp.tensordot`, under transforms of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.cpu.products import RowProduct, row_product

RNG = np.random.default_rng(0)
#: shapes of x and of the kernel, and the number of the axes of the sum
CASES = {
    "two axes of rows": ((4, 5, 3), (3, 2), 1),
    "sum over heads": ((4, 5, 2, 3), (2, 3, 7), 2),
    "columns in heads": ((4, 5, 3), (3, 2, 6), 1),
    "one axis of rows": ((4, 3), (3, 2), 1),
    "no rows": ((0, 5, 3), (3, 2), 1),
}


def _draw(*shape):
    return RNG.normal(size=shape).astype("float32")


def _compare(ours, theirs, *arrays):
    """Compares values, gradients and second derivatives."""
    np.testing.assert_allclose(ours(*arrays), theirs(*arrays), atol=1e-5)

    def slopes(product):
        def score(*arrays):
            return jnp.sum(jnp.sin(product(*arrays)))

        def steepness(*arrays):
            return sum(jnp.sum(g**2) for g in jax.grad(score, (0, 1))(*arrays))

        return jax.grad(score, (0, 1))(*arrays), jax.grad(steepness, (0, 1))(*arrays)

    for a, b in zip(jax.tree.leaves(slopes(ours)), jax.tree.leaves(slopes(theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives_equal_those_of_tensordot(case):
    x, kernel, axes = CASES[case]
    _compare(
        lambda x, kernel: row_product(x, kernel, axes),
        lambda x, kernel: jnp.tensordot(x, kernel, axes),
        _draw(*x),
        _draw(*kernel),
    )


@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0)])
def test_vmap(mapped):
    arrays = [
        np.stack([_draw(*shape)] * 3) + np.arange(3).reshape(3, *[1] * len(shape))
        if axis == 0
        else _draw(*shape)
        for shape, axis in zip(((2, 4, 3), (3, 2)), mapped, strict=True)
    ]
    _compare(
        jax.vmap(lambda x, kernel: row_product(x, kernel, 1), mapped),
        jax.vmap(lambda x, kernel: jnp.tensordot(x, kernel, 1), mapped),
        *(a.astype("float32") for a in arrays),
    )


def test_the_gradient_of_the_kernel_has_one_axis_of_rows():
    x, kernel = _draw(4, 256, 64), _draw(64, 8)
    program = jax.jit(jax.grad(lambda k: jnp.sum(row_product(x, k, 1) ** 2))).lower(kernel)
    products = [line for line in program.as_text().splitlines() if "dot_general" in line]
    assert products
    assert not any("4x256x64" in line for line in products)
    assert "4x256x64" in jax.jit(RowProduct(1).default).lower(x, kernel).as_text()

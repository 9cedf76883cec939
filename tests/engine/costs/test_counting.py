"""Counts of operations equal XLA's cost analysis, except that loops count all their steps."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fkeras.engine.costs.counting import count_operations

X = jax.ShapeDtypeStruct((4, 10, 12, 2), "float32")
M = jax.ShapeDtypeStruct((10, 20), "float32")
_NHWC = ("NHWC", "HWIO", "NHWC")


def _conv(strides, padding, channels, groups, **dilations):
    def convolution(x):
        kernel = jnp.ones((3, 3, channels, 4))
        return lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            dimension_numbers=_NHWC,
            feature_group_count=groups,
            **dilations,
        )

    return convolution


def _max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


ROWS = {
    "elementwise": (lambda x: jnp.where(x > 0, x * 2 + 1, -x), M),
    "matrices": (lambda x: x @ x.T, M),
    "softmax": (lambda x: jax.nn.softmax(x), M),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), M),
    "sigmoid": (jax.nn.sigmoid, M),
    "powers": (lambda x: x**3 + x**5 + x**2, M),
    "sort": (lambda x: lax.sort(x), M),
    "argmax": (lambda x: lax.argmax(x, 1, "int32"), M),
    "condition": (lambda x: lax.cond(x[0, 0] > 0, lambda x: x * 2 + 1, lambda x: x, x), M),
    "convolution": (_conv((1, 1), "SAME", 2, 1), X),
    "strides": (_conv((2, 3), "VALID", 2, 1), X),
    "groups": (_conv((2, 2), "SAME", 1, 2), X),
    "dilated kernel": (_conv((1, 1), "SAME", 2, 1, rhs_dilation=(2, 3)), X),
    "dilated input": (_conv((1, 1), ((2, 2), (2, 1)), 2, 1, lhs_dilation=(2, 2)), X),
    "pooling": (_max_pool, X),
    "gradients": (jax.grad(lambda x: _conv((2, 2), "SAME", 2, 1)(x).sum()), X),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ROWS)
def test_counts_equal_xlas_cost_analysis(name):
    function, argument = ROWS[name]
    analysis = jax.jit(function).lower(argument).cost_analysis()
    costs = count_operations(function, argument)
    assert costs.unknown == frozenset()
    assert costs.flops == pytest.approx(analysis.get("flops", 0), rel=0.03)
    assert costs.transcendentals == pytest.approx(analysis.get("transcendentals", 0))


def test_a_scan_counts_every_step():
    costs = count_operations(lambda x: lax.scan(lambda c, y: (c * y, c), jnp.zeros(20), x), M)
    assert costs.flops == pytest.approx(10 * 20, rel=0.1)


def test_loops_of_unknown_length_and_unknown_primitives_are_named():
    def loop(x):
        return lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x * 2, x)

    assert count_operations(loop, M).unknown == {"while"}
    assert count_operations(lambda x: jnp.linalg.qr(x)[0], M).unknown


def test_a_product_of_groups_counts_each_row_once():
    sizes = jnp.array([5, 0, 7], "int32")
    x, kernels = jnp.ones((12, 4)), jnp.ones((3, 4, 6))

    def score(x, kernels):
        return jnp.sum(lax.ragged_dot(x, kernels, sizes))

    product = 2 * 12 * 4 * 6
    assert count_operations(score, x, kernels).flops == product + 71
    # the gradients are a product for the rows, and one for the kernels
    slopes = count_operations(jax.grad(score, (0, 1)), x, kernels).flops
    assert 2 * product <= slopes < 2.1 * product

"""Products with thin kernels on CPUs equal `jnp.tensordot`, under transforms of JAX."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fkeras.nn.cpu.products import RowProduct, row_product, varied

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

    def slopes(product, *arrays):
        def score(*arrays):
            return jnp.sum(jnp.sin(product(*arrays)))

        def steepness(*arrays):
            return sum(jnp.sum(g**2) for g in jax.grad(score, (0, 1))(*arrays))

        derivatives = [jax.grad(f, (0, 1))(*arrays) for f in (score, steepness)]
        return product(*arrays), jax.tree.leaves(derivatives)

    computed = jax.jit(lambda *arrays: [slopes(product, *arrays) for product in (ours, theirs)])
    (value, slopes_of_ours), (expected, slopes_of_theirs) = computed(*arrays)
    np.testing.assert_allclose(value, expected, atol=1e-5)
    for a, b in zip(slopes_of_ours, slopes_of_theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives_equal_those_of_tensordot(case):
    x, kernel, axes = CASES[case]
    _compare(
        lambda x, kernel: row_product(x, kernel, axes),
        lambda x, kernel: jnp.tensordot(x, kernel, axes),
        _draw(*x),
        _draw(*kernel),
    )


@pytest.mark.exhaustive
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


def test_one_row_is_a_convolution_where_no_transform_of_jax_computes():
    x, kernel = _draw(1, 1, 4, 150) / 25, _draw(4, 150, 7, 16)

    def product(x, kernel):
        return row_product(x, kernel, 2)

    def loss(x, kernel):
        return jnp.sum(product(x, kernel) ** 2)

    def computed(x, kernel):
        apart = jax.vmap(product)(jnp.stack([x, 2 * x]), jnp.stack([kernel, -kernel]))
        return apart, jax.vmap(product, (0, None))(jnp.stack([x, -x]), kernel)

    program, slopes, mapped = map(jax.jit, (product, jax.grad(loss, (0, 1)), computed))
    assert "convolution" in program.lower(x, kernel).as_text()
    # the value of the loss, whose gradients are products, is the one convolution
    assert slopes.lower(x, kernel).as_text().count("stablehlo.convolution(") == 1
    assert "convolution" not in mapped.lower(x, kernel).as_text()
    y = np.tensordot(x, kernel, 2)
    np.testing.assert_allclose(program(x, kernel), y, atol=1e-5)
    for found, (a, b) in zip(mapped(x, kernel), ((1, -2), (1, -1)), strict=True):
        np.testing.assert_allclose(found, np.stack([a * y, b * y]), atol=1e-5)
    expected = np.tensordot(2 * y, kernel, ((2, 3), (2, 3))), np.tensordot(x[0, 0], 2 * y[0, 0], 0)
    for found, slope in zip(slopes(x, kernel), expected, strict=True):
        np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "kernel", "dtype"),
    [
        ((1, 2), (600, 112), "float32"),
        ((1, 1), (512, 256), "float32"),
        ((1, 1), (64, 112), "float32"),
    ]
    + [((1, 1), (600, 112), "bfloat16")],
)
def test_products_that_are_no_convolution(rows, kernel, dtype):
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((*rows, kernel[0]), kernel)]
    program = jax.jit(lambda x, kernel: row_product(x, kernel, 1)).lower(*arrays)
    assert "convolution" not in program.as_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mapped", [None, (0, 0), (None, 0)])
def test_products_of_bfloat16(mapped):
    shapes = (4, 5, 64), (64, 8)
    axes = mapped or (None, None)
    arrays = [
        _draw(*(() if axis is None else (3,)), *shape).astype("bfloat16")
        for shape, axis in zip(shapes, axes, strict=True)
    ]

    def slopes(product):
        def loss(*arrays):
            return jnp.sum(product(*arrays).astype("float32") ** 2)

        return jax.grad(loss, (0, 1))(*arrays)

    def mapping(product):
        return product if mapped is None else jax.vmap(product, mapped)

    ours = mapping(lambda x, kernel: row_product(x, kernel, 1))
    theirs = mapping(lambda x, kernel: jnp.tensordot(x, kernel, 1))
    assert ours(*arrays).dtype == "bfloat16"
    wide = [array.astype("float32") for array in arrays]
    # half a unit in the last place of the largest numbers
    np.testing.assert_allclose(ours(*arrays).astype("float32"), theirs(*wide), atol=0.1)
    for a, b in zip(slopes(ours), slopes(theirs), strict=True):
        assert a.dtype == "bfloat16"
        np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), rtol=0.02, atol=1)


@pytest.mark.exhaustive
@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(P("d"), P()), (P("d", "t"), P("m")), (P(None, "t", "m"), P("d", "m")), (P(("d", "m")), P())],
)
def test_parts_on_devices_make_the_numbers_of_one_device(rows, columns):
    kind = (jax.sharding.AxisType.Auto,) * 3
    mesh = jax.make_mesh((2, 2, 2), ("d", "t", "m"), axis_types=kind)
    x, kernel = _draw(4, 6, 8), _draw(8, 4)

    def slopes(x, kernel):
        def loss(*arrays):
            return jnp.sum(jnp.sin(row_product(*arrays, 1)))

        return row_product(x, kernel, 1), *jax.grad(loss, (0, 1))(x, kernel)

    placed = (jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((x, rows), (kernel, columns)))
    pairs = zip(jax.jit(slopes)(*placed), slopes(x, kernel), strict=True)
    for ours, alone in pairs:
        np.testing.assert_allclose(ours, alone, atol=1e-5)


def test_sizes_that_a_program_leaves_open():
    kernel = _draw(3, 2, 4)
    b, t = jax.export.symbolic_shape("b, t")
    spec = jax.ShapeDtypeStruct((b, t, 3), "float32")
    program = jax.export.export(jax.jit(lambda x: row_product(x, kernel, 1)))(spec)
    program = jax.export.deserialize(program.serialize())
    for sizes in ((2, 5), (1, 1)):
        x = _draw(*sizes, 3)
        np.testing.assert_allclose(program.call(x), np.tensordot(x, kernel, 1), atol=1e-6)


@pytest.mark.parametrize("source", [[-5.0], [np.inf], [np.nan], []])
def test_entries_that_the_compiler_does_not_know(source):
    x, source = _draw(2, 3), jnp.asarray(source)

    def results(function):
        score = lambda x, source: jnp.sum(function(x, source) ** 3)  # noqa: E731
        slope = jax.grad(score)
        both = jax.jit(lambda x, source: (function(x, source), slope(x, source)))
        return both(x, source), jax.vmap(slope, (0, None))(x, source)

    for ours, theirs in zip(
        jax.tree.leaves(results(lambda x, source: varied(x, x.ndim - 1, source))),
        jax.tree.leaves(results(lambda x, source: x)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_product_with_entries_that_are_equal():
    x = _draw(64, 8)

    def sums(x):
        return (x @ varied(jnp.ones((8, 64)), 0, x)).sum(-1)

    np.testing.assert_allclose(jax.jit(sums)(x), 64 * x.sum(-1), rtol=1e-4, atol=1e-4)
    for platform in ("cuda", "tpu"):
        assert (
            "select" not in jax.jit(sums).trace(x).lower(lowering_platforms=(platform,)).as_text()
        )

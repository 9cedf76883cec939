"""The computations for CPUs equal XLA's operations, under every transform of JAX."""

import functools
import itertools
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.broadcasting import Repeat, for_rows
from fkeras.nn.cpu.convolution import Convolution, TransposedConvolution
from fkeras.nn.cpu.depthwise import Depthwise
from fkeras.nn.cpu.forms import FORM, Form, bind, compute
from fkeras.nn.cpu.pooling import MaxPool, SumPool
from fkeras.nn.cpu.resampling import Enlarge, RepeatCells
from fkeras.nn.numerics.axes import full_rank

LAST, FIRST = "channels_last", "channels_first"
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def images(sizes, data_format, channels=3):
    return (*full_rank(sizes, data_format, 2)[:1], *full_rank(sizes, data_format, channels)[1:])


def depthwise(sizes, window, strides, dilation, padding, data_format=LAST, multiplier=1):
    form = Depthwise(strides, padding, data_format, dilation)
    return form, [images(sizes, data_format), (*window, 1, 3 * multiplier)]


def pool(sizes, window, strides, padding, data_format=LAST, kind=MaxPool):
    form = kind(strides, padding, data_format, (1,) * len(sizes), window)
    return form, [images(sizes, data_format)]


def enlarge(sizes, times, data_format=LAST):
    return Enlarge("bilinear", times, data_format), [images(sizes, data_format)]


def convolution(sizes, kernel, strides, dilation, padding, data_format=LAST, channels=3):
    form = Convolution(strides, padding, data_format, dilation)
    return form, [images(sizes, data_format, channels), kernel]


def transposed(sizes, kernel, strides, pads, dilation, data_format=LAST):
    form = TransposedConvolution(strides, "valid", data_format, dilation, pads)
    return form, [images(sizes, data_format), kernel]


CASES = {
    "depthwise": depthwise((7, 6), (3, 2), (1, 1), (1, 1), "same"),
    "depthwise, strides": depthwise((7, 6), (3, 2), (2, 3), (1, 1), "same", FIRST),
    "depthwise, dilation": depthwise((9, 6), (3, 2), (1, 1), (2, 3), "valid"),
    "depthwise, strides and dilation": depthwise((9,), (3,), (2,), (3,), "same"),
    "depthwise, multiplier": depthwise((5, 4), (2, 2), (2, 1), (1, 1), "valid", FIRST, 2),
    "depthwise, causal": depthwise((7,), (3,), (1,), (2,), "causal", LAST, 2),
    "depthwise, 3 axes": depthwise((3, 4, 5), (2, 1, 3), (1, 2, 2), (1, 1, 1), "same"),
    "convolution": convolution((7, 6), (3, 2, 3, 4), (1, 1), (1, 1), "same"),
    "convolution, strides": convolution((7, 6), (3, 2, 3, 4), (2, 3), (1, 2), "valid", FIRST),
    "convolution, causal": convolution((7,), (3, 3, 2), (1,), (2,), "causal"),
    "convolution, products": convolution((5, 4), (2, 2, 32, 64), (2, 1), (1, 2), "same", LAST, 32),
    "convolution, one cell": convolution((7, 6), (1, 1, 3, 4), (1, 2), (1, 1), "same", FIRST),
    "convolution, groups": convolution((5, 4), (3, 2, 2, 6), (1, 2), (1, 1), "same", LAST, 4),
    "convolution, 3 axes": convolution(
        (5, 4, 3), (3, 2, 2, 3, 2), (2, 1, 2), (1, 2, 1), "same", FIRST
    ),
    "transposed": transposed((4, 3), (3, 2, 4, 3), (2, 3), ((2, 2), (1, 2)), (1, 1)),
    "transposed, dilation": transposed((4,), (3, 2, 3), (1,), ((2, 4),), (2,), FIRST),
    "transposed, 3 axes": transposed(
        (3, 2, 2), (3, 2, 1, 2, 3), (2, 1, 2), ((1, 2), (1, 1), (0, 1)), (1, 1, 1)
    ),
    "pool": pool((6, 4), (2, 2), (2, 2), "valid"),
    "pool, overlapping": pool((7, 6), (3, 2), (2, 1), "same", FIRST),
    "pool, gaps": pool((9,), (2,), (3,), "same"),
    "pool, 3 axes": pool((3, 4, 5), (2, 2, 2), (1, 2, 2), "same"),
    "enlarge": enlarge((3, 4), (2, 3)),
    "enlarge, one cell": enlarge((1, 2), (4, 5), FIRST),
    "enlarge, 3 axes": enlarge((3, 1, 4), (1, 3, 2)),
    "repeat": (Repeat((2, 3)), [(4, 5)]),
    "sums": pool((7, 6), (3, 2), (2, 1), "same", FIRST, SumPool),
    "sums, gaps": pool((9, 5), (3, 2), (4, 2), "valid", LAST, SumPool),
}
SEVERAL = {
    f"depthwise {case}": depthwise(*case)
    for case in itertools.product(
        ((7, 6),), ((1, 1), (3, 2), (4, 5)), ((1, 1), (2, 1), (3, 2)), ((1, 1), (2, 1)),
        ("same", "valid"), (LAST, FIRST), (1, 2),
    )
    if case[4] == "same" or case[1] != (4, 5) or case[3] == (1, 1)
} | {
    f"convolution {case}": convolution((7, 6), (*case[0], 4 // case[5], 4), *case[1:5], 4)
    for case in itertools.product(
        ((1, 1), (3, 2)), ((1, 1), (2, 1), (3, 2)), ((1, 1), (2, 1)), ("same", "valid"),
        (LAST, FIRST), (1, 2),
    )
} | {
    f"{case[-1].__name__} {case[:-1]}": pool(*case)
    for case in itertools.product(
        ((7, 6), (4, 8)), ((1, 1), (3, 2), (4, 4)), ((1, 1), (2, 1), (3, 2)), ("same", "valid"),
        (LAST, FIRST), (MaxPool, SumPool),
    )
    if case[1] == (3, 2) or case[-1] is MaxPool
}  # fmt: skip


def operands(shapes, dtype):
    draw = np.random.default_rng(0)
    first, *kernels = ((draw.normal(size=shape), shape) for shape in shapes)
    # results of size 1: the sine of large numbers amplifies rounding
    scaled = [kernel / max(np.prod(shape[:-1]), 1) ** 0.5 for kernel, shape in kernels]
    return [array.astype(dtype) for array in (first[0], *scaled)]


def transformed(function, count):
    """Returns a function of the operands that computes values and derivatives of a function."""
    numbers = tuple(range(count))

    def loss(*arrays):
        return jnp.sum(jnp.sin(function(*arrays)))

    gradient = jax.grad(loss, numbers)

    def results(*arrays):
        tangents = tuple(jnp.cos(x) for x in arrays)
        first = jnp.stack([arrays[0], tangents[0]])
        pairs = [jnp.stack(pair) for pair in zip(arrays, tangents, strict=True)]
        alone = (0, *(None,) * (count - 1))
        return {
            "value": function(*arrays),
            "grad": gradient(*arrays),
            "jvp": jax.jvp(function, arrays, tangents)[1],
            "grad of grad": jax.grad(
                lambda *a: sum(jnp.sum(jnp.sin(g)) for g in gradient(*a)), numbers
            )(*arrays),
            "forward over reverse": jax.jvp(gradient, arrays, tangents)[1],
            "vmap": jax.vmap(function, alone)(first, *arrays[1:]),
            "vmap of grad": jax.vmap(gradient)(*pairs),
            "vmap of vjp": jax.vmap(jax.vjp(function, *arrays)[1])(
                jax.vmap(function, alone)(first, *arrays[1:])
            ),
            "grad of vmap": jax.grad(
                lambda *a: jnp.sum(jnp.sin(jax.vmap(function, alone)(*a))), numbers
            )(first, *arrays[1:]),
            "vmap of kernels": jax.vmap(gradient, (*(None,) * (count - 1), 0))(
                *arrays[:-1], pairs[-1]
            ),
            "grad of scan": jax.grad(
                lambda *a: lax.scan(lambda s, _: (s + loss(*a), None), 0.0, None, length=2)[0],
                numbers,
            )(*arrays),
            "remat": jax.grad(jax.checkpoint(loss), numbers)(*arrays),
        }

    return results


def forms(case):
    form, shapes = case
    assert form.suits(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes))
    return (lambda *a: compute(form, *a)), form.default, shapes


def assert_close(results, expected, tolerance):
    for path, reference in jax.tree.leaves_with_path(expected):
        result = results
        for key in path:
            result = result[getattr(key, "key", getattr(key, "idx", None))]
        assert result.dtype == reference.dtype and result.shape == reference.shape, path
        result, reference = (np.asarray(a, "float64") for a in (result, reference))
        bound = tolerance * max(np.abs(reference).max(initial=0), 1e-3)
        np.testing.assert_allclose(result, reference, rtol=0, atol=bound, err_msg=str(path))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_transforms_equal_those_of_xlas_operations(case):
    fast, default, shapes = forms(case)
    arrays = operands(shapes, "float32")
    results, expected = (
        jax.jit(transformed(function, len(shapes)))(*arrays) for function in (fast, default)
    )
    assert_close(results, expected, 3e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", SEVERAL.values(), ids=SEVERAL)
def test_transforms_of_more_windows(case):
    test_transforms_equal_those_of_xlas_operations(case)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("bfloat16", 0.02)])
@pytest.mark.parametrize("name", ["depthwise, multiplier", "pool, overlapping", "enlarge"])
def test_dtypes(name, dtype, tolerance):
    fast, default, shapes = forms(CASES[name])
    with enable_x64(dtype == "float64"):
        arrays = operands(shapes, dtype)

        @functools.partial(jax.jit, static_argnums=0)
        def results(function, *arrays):
            value, pull = jax.vjp(function, *arrays)
            return value, pull(jnp.cos(value))

        assert_close(results(fast, *arrays), results(default, *arrays), tolerance)


# JAX computes the weights of `jax.image.resize` once for value and gradient: see the next test
# but one. Transposed convolutions have a gradient of their own: see the next test.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [name for name in CASES if not name.startswith(("enlarge", "transposed"))]
)
def test_programs_of_other_platforms_are_those_of_xlas_operations(name):
    fast, default, shapes = forms(CASES[name])
    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]

    def program(function, platform):
        def results(*arrays):
            gradient = jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), range(len(specs)))
            return function(*arrays), gradient(*arrays), jax.jvp(function, arrays, arrays)

        text = jax.jit(results).trace(*specs).lower(lowering_platforms=(platform,)).as_text()
        return re.sub(r"@\w+", "@function", text)

    for platform in ("cuda", "tpu"):
        assert program(fast, platform) == program(default, platform)
    assert program(fast, "cpu") != program(default, "cpu")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("times", [(1, 3, 1), (1, 2, 3, 1), (1, 1, 2, 1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_windows_repeat_cells_and_sum_their_gradients(times, dtype):
    form = RepeatCells(times)
    x = jnp.asarray(operands([(2, 3, 4, 2, 3)[: len(times)]], "float32")[0], dtype)
    x = x.at[0, 0].set(jnp.nan).at[0, 1].set(-jnp.inf)
    y, pull = jax.vjp(form.default, x)
    np.testing.assert_array_equal(*(np.asarray(a, "float32") for a in (form.tpu(x), y)))
    g = jnp.cos(jnp.arange(y.size, dtype="float32")).reshape(y.shape).astype(dtype)
    tolerance = 1e-6 if dtype == "float32" else 0.02
    assert_close(form.tpu_gradient(0, x, g), pull(g)[0], tolerance)
    text = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(compute(form, x))))).trace(x)
    text = text.lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("stablehlo.reduce_window") == 2


@pytest.mark.one_in(4)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
@pytest.mark.parametrize("window", [(3, 2), (1, 3), (4, 1)])
def test_products_of_parts_of_a_batch_give_the_gradient_of_a_kernel(strides, dilation, window):
    form, shapes = convolution((17, 9), (*window, 16, 17), strides, dilation, "same", LAST, 16)
    x, kernel = operands([(4, *shapes[0][1:]), shapes[1]], "float32")
    windows = form.windows(x, kernel)
    y = jnp.cos(form.default(x, kernel))
    spec = jax.ShapeDtypeStruct(kernel.shape, "float32")
    _, pull = jax.vjp(lambda kernel: form.default(x, kernel), kernel)
    with mock.patch.object(limits, "PRODUCT_BYTES", 1):
        assert limits.rows_of_products(windows, spec, y) == 2
        gradient = form.gradient(1, spec, x, y)
    assert_close(gradient, pull(y)[0], 3e-6)
    assert_close(form.gradient(1, spec, x, y), pull(y)[0], 3e-6)


TRANSPOSED = [name for name in CASES if name.startswith("transposed")]


@pytest.mark.parametrize("name", TRANSPOSED)
def test_kernel_gradient_of_a_transposed_convolution_is_that_of_a_convolution(name):
    form, shapes = CASES[name]
    x, kernel = operands(shapes, "float32")

    def gradients(x, kernel):
        y, pull = jax.vjp(form.default, x, kernel)
        spec = jax.ShapeDtypeStruct(kernel.shape, kernel.dtype)
        return pull(jnp.cos(y))[1], form.default_gradient(1, spec, x, jnp.cos(y))

    expected, gradient = jax.jit(gradients)(x, kernel)
    assert_close(gradient, expected, 1e-6)
    program = jax.jit(jax.grad(lambda k: jnp.sum(jnp.sin(compute(form, x, k)))))
    for platform in ("cuda", "tpu"):
        text = program.trace(kernel).lower(lowering_platforms=(platform,)).as_text()
        *_, gradient = re.findall(r"stablehlo.convolution.*", text)
        assert f"lhs_dilate = {[1] * len(form.strides)}" in gradient


@pytest.mark.exhaustive
def test_default_interpolation_compiles_to_the_operations_of_jax():
    fast, default, (shape,) = forms(CASES["enlarge"])

    def operations(function):
        def results(x):
            return function(x), jax.grad(lambda x: jnp.sum(jnp.sin(function(x))))(x)

        compiled = jax.jit(results).lower(jax.ShapeDtypeStruct(shape, "float32")).compile()
        return sorted(re.findall(r" ([a-z\-]+)\(", compiled.as_text()))

    # the lowering for other platforms, compiled for the CPU
    by_default = mock.patch.multiple(Enlarge, fast=Enlarge.default, gradient=Form.gradient)
    expected = operations(default)
    assert operations(fast) != expected
    jax.clear_caches()
    with by_default:
        assert operations(fast) == expected
    jax.clear_caches()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["depthwise, strides", "pool, overlapping", "enlarge"])
def test_exports_for_several_platforms_and_batch_sizes(name):
    fast, default, shapes = forms(CASES[name])
    (batch,) = export.symbolic_shape("b")
    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    specs[0] = jax.ShapeDtypeStruct((batch, *shapes[0][1:]), "float32")
    arrays = operands(shapes, "float32")

    def gradient(function):
        return jax.jit(jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), range(len(shapes))))

    exported = export.export(gradient(fast), platforms=("cpu", "cuda", "tpu"))(*specs)
    assert_close(exported.call(*arrays), gradient(default)(*arrays), 3e-6)


def test_unknown_sizes_use_xlas_operation():
    form, shapes = CASES["depthwise"]
    batch, size = export.symbolic_shape("b, n")
    image = jax.ShapeDtypeStruct((batch, size, 6, 3), "float32")
    kernel = jax.ShapeDtypeStruct(shapes[1], "float32")
    exported = export.export(jax.jit(lambda *a: compute(form, *a)))(image, kernel)
    arrays = operands(shapes, "float32")
    assert_close(exported.call(*arrays), form.default(*arrays), 1e-6)


@pytest.mark.exhaustive
def test_rows_on_several_devices():
    form, (shape, kernel_shape) = CASES["depthwise, strides"]
    x, kernel = operands([(8, *shape[1:]), kernel_shape], "float32")
    gradient = jax.jit(jax.grad(lambda *a: jnp.sum(jnp.sin(compute(form, *a))), (0, 1)))
    expected = gradient(x, kernel)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    rows = jax.device_put(x, NamedSharding(mesh, PartitionSpec("rows")))
    assert_close(gradient(rows, kernel), expected, 3e-6)
    parts = (PartitionSpec("rows"), PartitionSpec())
    mapped = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=parts, out_specs=parts))
    assert_close(mapped(x, kernel), expected, 3e-6)


def test_a_form_stores_only_its_operands_for_the_backward_pass():
    form, shapes = CASES["depthwise"]
    arrays = operands(shapes, "float32")
    _, pull = jax.vjp(lambda *a: compute(form, *a), *arrays)
    stored = [leaf.shape for leaf in jax.tree.leaves(pull) if np.size(leaf) > 1]
    assert sorted(stored) == sorted(shapes)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "bool"])
def test_maximum_of_integers(dtype):
    form, (shape,) = CASES["pool, overlapping"]
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    result, expected = jax.jit(lambda x: (compute(form, x), form.default(x)))(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.exhaustive
def test_the_first_of_equal_cells_gets_the_gradient_of_the_maximum():
    form, (shape,) = CASES["pool, overlapping"]
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape), "float32")
    gradients = [
        jax.grad(lambda x, f=f: jnp.sum(f(x) * 3.0))(x)
        for f in (form.default, lambda x: compute(form, x))
    ]
    np.testing.assert_array_equal(*gradients)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["depthwise, strides", "pool, overlapping"])
def test_nan_and_infinity_reach_the_same_results(name, number):
    fast, default, shapes = forms(CASES[name])
    x, *others = operands(shapes, "float32")
    x[0, 1, 2, 1] = number
    result, expected = jax.jit(lambda *a: (fast(*a), default(*a)))(x, *others)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    if name.startswith("pool"):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        depthwise((2, 2), (3, 3), (1, 1), (1, 1), "valid"),
        depthwise((0, 4), (3, 3), (1, 1), (1, 1), "same"),
        pool((2, 2), (3, 3), (1, 1), "valid"),
        pool((0, 4), (3, 3), (2, 2), "same"),
    ],
    ids=["large kernel", "empty image", "large window", "empty axis"],
)
def test_without_any_window_xlas_operation_decides(case):
    form, shapes = case
    arrays = operands(shapes, "float32")
    result, expected = compute(form, *arrays), form.default(*arrays)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    assert result.size == 0


@pytest.mark.exhaustive
def test_an_empty_batch():
    for form, (shape, *others) in (CASES["depthwise"], CASES["pool"]):
        arrays = operands([(0, *shape[1:]), *others], "float32")
        grad = jax.grad(lambda *a, form=form: jnp.sum(compute(form, *a)), range(len(arrays)))
        gradients = grad(*arrays)
        assert [g.shape for g in gradients] == [a.shape for a in arrays]
        assert all(not np.any(g) for g in gradients)


def test_without_jit_jaxs_own_operations_compute():
    fast, default, shapes = forms(CASES["convolution"])
    arrays = operands(shapes, "float32")
    broken = [np.full_like(arrays[0], np.nan), arrays[1]]
    with jax.disable_jit():
        np.testing.assert_array_equal(fast(*arrays), default(*arrays))
        with jax.debug_nans(True), pytest.raises(FloatingPointError, match="conv_general_dilated"):
            fast(*broken)


def test_nested_maps():
    form, (shape,) = CASES["pool"]
    x = operands([(2, 3, *shape)], "float32")[0]

    @jax.jit
    def both(x):
        return [jax.vmap(jax.vmap(f, 1, 1))(x) for f in (lambda x: bind(form, x), form.default)]

    np.testing.assert_array_equal(*both(x))
    assert FORM.name in str(jax.make_jaxpr(jax.vmap(lambda x: bind(form, x)))(x[0]))


@pytest.mark.exhaustive
def test_large_weights_of_all_rows_are_repeated():
    weight, y = jnp.ones((5, limits.REPEATED // 5)), jnp.ones((2, 3, 5, limits.REPEATED // 5))

    def program(weight, y):
        return str(jax.make_jaxpr(lambda w: y * for_rows(w, y))(weight))

    assert FORM.name in program(weight, y)
    assert FORM.name not in program(weight[:, 1:], y[..., 1:])
    assert FORM.name not in program(weight, y[0, 0])
    gradient = jax.grad(lambda w: jnp.sum(y * for_rows(w, y)))(weight)
    assert_close(gradient, jnp.full_like(weight, 6.0), 0.0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",))
    parts = (PartitionSpec(), PartitionSpec("rows"))
    mapped = jax.shard_map(
        lambda w, y: y * for_rows(w, y), mesh=mesh, in_specs=parts, out_specs=parts[1]
    )
    assert FORM.name not in str(jax.make_jaxpr(mapped)(weight, y))
    assert_close(mapped(weight, y), y, 0.0)

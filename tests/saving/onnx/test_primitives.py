"""Every operation of JAX with an ONNX form, on two rows and with several values of each parameter."""

import inspect
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fkeras as fk
from fkeras.saving.onnx.primitives import program
from fkeras.saving.onnx.primitives.program import RULES
from fkeras.saving.onnx.primitives.rule import Rule
from tests.support.onnx_runtime import run, session

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(2, 3, 4)).astype("float32") for _ in range(2))
UNIT = RNG.uniform(0.1, 0.9, (2, 3, 4)).astype("float32")
LONG = RNG.normal(size=(2, 6, 4)).astype("float32")
I, J = (RNG.integers(low, 9, (2, 3, 4)).astype("int32") for low in (-9, 1))
U, N = (RNG.integers(0, high, (2, 3, 4)).astype("uint32") for high in (9, 4))
B, C = X > 0, Y > 0
H = X.astype("float16")
# indices of axis 1: inside of the axis, and outside
K, OUT = np.array([[0, 2], [1, 0]], "int32"), np.array([[0, 9], [-7, 1]], "int32")
# JAX 0.7 sorts the last axis only
TOP_AXIS = {"axis": 1} if "axis" in inspect.signature(lax.top_k).parameters else {}


def on(*arrays):
    """Returns a decorator of functions: a list of cases with these arrays."""
    return lambda *functions: [(function, arrays) for function in functions]


def each(function, *values):
    """Returns a function of arrays for each value of the last argument."""
    return [lambda *arrays, value=value: function(*arrays, value) for value in values]


def convolved(kernel, dtype="float32", **options):
    options = {"window_strides": (1,), "padding": "VALID", **options}
    options.setdefault("dimension_numbers", ("NWC", "WIO", "NWC"))
    kernel = np.arange(np.prod(kernel)).reshape(kernel).astype(dtype)
    return lambda x: lax.conv_general_dilated(x.astype(dtype), kernel, **options)


def windows(start, combine, **options):
    options = {
        **{"window_dimensions": (1, 2, 1), "window_strides": (1, 1, 1), "padding": "VALID"},
        **options,
    }
    return lambda x: lax.reduce_window(x, np.float32(start), combine, **options)


def product(left, right, batch=((), ()), **options):
    return lambda x, y: lax.dot_general(x, y, ((left, right), batch), **options)


def gathered(offset, **options):
    numbers = lax.GatherDimensionNumbers(offset, options.pop("collapsed", (1,)), (1,))
    return lambda x, i: lax.gather(
        x, i[..., None], numbers, (x.shape[0], options.get("size", 1), 4), mode="clip"
    )


def scattered(function, places, **options):
    numbers = lax.ScatterDimensionNumbers((0, 2), (1,), (1,))
    places = np.array(places, "int32")[:, None]
    return lambda x: function(x, places, 2 * x[:, :2], numbers, **options)


def read(mode, *places):
    """Reads the axis 1 at constant places: an array, or a number."""
    place = np.array(places if len(places) > 1 else places[0])
    return lambda x: x.at[:, jnp.array(place)].get(mode=mode)


def scan(x, options):
    def step(carry, row):
        return (carry[0] * 0.5 + row, carry[1] + carry[0]), (carry[1], row * 2)

    zeros = x[:, 0] * 0
    return lax.scan(step, (zeros, zeros), jnp.moveaxis(x, 1, 0), **options)


def loop(x, y, limit):
    return lax.while_loop(
        lambda c: c[0] + jnp.sum(y) * 0 < limit, lambda c: (c[0] + 1, c[1] * y), (0.0, x)
    )[1]


UNARY = {
    **{name: X for name in ("neg", "exp", "tanh", "logistic", "sin", "cos", "tan", "sinh", "cosh")},
    **{name: X for name in ("asinh", "atan", "floor", "ceil", "sign", "erf", "square", "expm1")},
    **{name: X for name in ("erfc", "is_finite", "cbrt", "exp2")},
    **{name: UNIT for name in ("log", "sqrt", "asin", "acos", "atanh", "rsqrt", "log1p")},
    "acosh": UNIT + 1,
}
BINARY = {
    **dict.fromkeys(("add", "sub", "mul", "max", "min", "div", "rem"), ((X, Y), (I, J))),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), ((X, Y), (I, J))),
    **{"pow": ((UNIT, X),), "atan2": ((X, Y),)},
    **dict.fromkeys(("shift_left", "shift_right_logical"), ((U, N),)),
}
BITS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
WINDOWS = {"reduce_window_max": (-np.inf, lax.max), "reduce_window_sum": (0, lax.add)}

# cases of each primitive that ONNX Runtime computes as JAX: functions and their arrays
EQUAL = {
    **{name: on(x)(getattr(lax, name)) for name, x in UNARY.items()},
    **{n: [(getattr(lax, n), pair) for pair in pairs] for n, pairs in BINARY.items()},
    **{n: on(B, C)(function) + on(U, N)(function) for n, function in BITS.items()},
    "not": on(B)(operator.invert) + on(U)(operator.invert),
    "abs": on(X)(jnp.abs, lambda x: jnp.abs(lax.fft(x, "RFFT", (4,)))),
    "add_any": on(X)(jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))),
    "lt_to": on(X, Y)(lax.lt_to_p.bind),
    "le_to": on(X, Y)(lax.le_to_p.bind),
    "shift_right_arithmetic": on(I)(lambda i: i >> 2),
    "copy": on(X)(lambda x: lax.copy_p.bind(x) + 1),
    "stop_gradient": on(X)(lambda x: lax.stop_gradient(x) + 1),
    "optimization_barrier": on(X)(lambda x: lax.optimization_barrier(x) + 1),
    "integer_pow": on(X)(*each(lax.integer_pow, 0, 3, -2)),
    "clamp": on(X)(lambda x: lax.clamp(-0.5, x, 0.5))
    + on(X, Y)(lambda x, y: lax.clamp(y, x, y + 1)),
    "select_n": on(B, X, Y)(lax.select_n),
    "convert_element_type": on(9 * X)(*each(lax.convert_element_type, "float16", "int32", "bool"))
    + on(I)(*each(lax.convert_element_type, "float32", "uint8")),
    "round": on(I.astype("float32") / 2)(*each(lax.round, *lax.RoundingMethod)),
    # -- shapes
    "reshape": on(X)(
        lambda x: lax.reshape(x, (x.shape[0], 12)),
        lambda x: lax.reshape(x, (x.shape[0], 12), (0, 2, 1)),
        lambda x: lax.reshape(x, (4, 3 * x.shape[0]), (2, 1, 0)),
        lambda x: lax.reshape(x, (3 * x.shape[0], 4), (1, 0, 2)),
    ),
    "broadcast_in_dim": on(X)(
        lambda x: lax.broadcast_in_dim(x, (5, x.shape[0], 3, 4), (1, 2, 3)),
        lambda x: lax.broadcast_in_dim(x[:, :, 0], (x.shape[0], 5, 3), (0, 2)),
        lambda x: lax.broadcast_in_dim(x[:, :1], (x.shape[0], 3, 4), (0, 1, 2)),
    ),
    "transpose": on(X)(*each(lax.transpose, (2, 0, 1), (0, 2, 1))),
    "slice": on(X)(
        lambda x: lax.slice(x, (0, 1, 0), x.shape),
        lambda x: lax.slice(x, (0, 0, 0), (x.shape[0], 2, 3)),
        lambda x: lax.slice(x, (0, 0, 1), x.shape, (1, 2, 2)),
    ),
    "rev": on(X)(*each(lax.rev, (0,), (1,), (2, 1))),
    "pad": on(X)(
        *each(
            lambda x, config: lax.pad(x, np.float32(0.5), config),
            ((0, 0, 0), (1, 2, 0), (0, 1, 0)),
            ((1, 0, 0), (-1, 0, 0), (0, -2, 0)),
            ((0, 0, 0), (-1, 2, 0), (3, -1, 0)),
        )
    ),
    "concatenate": on(X, Y)(*each(lambda x, y, axis: lax.concatenate((x, y), axis), 0, 1, 2)),
    "stack": on(X, Y)(*each(lambda x, y, axis: jnp.stack((x, y), axis), 0, 1, 3)),
    "split": on(X)(lambda x: lax.split(x, (1, 2), 1), lambda x: lax.split(x, (1, 1, 2), 2)),
    "iota": on(X)(
        lambda x: lax.broadcasted_iota("int32", x.shape, 0) + x.astype("int32"),
        lambda x: lax.broadcasted_iota("float32", x.shape, 1) + x,
        lambda x: lax.broadcasted_iota("float32", (x.shape[0], 5), 1) + x[:, :1, 0],
    ),
    "squeeze": on(X[:, None, :, :1])(*each(lax.squeeze, (1,), (3,), (1, 3))),
    "dim_as_value": on(X)(lambda x: x * x.shape[0], lambda x: x / (2 * x.shape[0] + 1)),
    "dynamic_slice": on(X, K)(
        lambda x, i: lax.dynamic_slice(x, (0, i[-1, 0], i[0, 1]), (x.shape[0], 2, 1)),
        lambda x, i: lax.dynamic_slice(x, (0, i[0, 0] + 9, 0), (x.shape[0], 1, 3)),
    ),
    # -- along axes
    "reduce_sum": on(X)(*each(jnp.sum, 0, 1, (2, 0))),
    "reduce_max": on(X)(*each(jnp.max, 0, 1, (2, 0))),
    "reduce_min": on(X)(*each(jnp.min, 0, 1, (2, 1))),
    "reduce_prod": on(X)(*each(jnp.prod, 1, (2, 1))),
    "reduce_and": on(B)(*each(jnp.all, 0, 1, (2, 1))),
    "reduce_or": on(B)(*each(jnp.any, 0, 1, (2, 1))),
    "argmax": on(X)(
        *each(lambda x, o: lax.argmax(x, *o), (0, "int32"), (1, "int32"), (2, "uint8"))
    ),
    "argmin": on(X)(
        *each(lambda x, o: lax.argmin(x, *o), (0, "int32"), (1, "int32"), (2, "uint8"))
    ),
    "cumsum": on(X)(*each(lambda x, o: lax.cumsum(x, *o), (0, False), (1, True), (2, True))),
    "cummax": on(X)(*each(lax.cummax, 0, 1, 2)),
    "sort": on(X, I)(
        *each(lambda *a: lax.sort(a[:-1], **a[-1]), {"dimension": 0}, {"dimension": 1}),
        lambda *xs: lax.sort(xs, is_stable=False),
    ),
    "top_k": on(X)(lambda x: lax.top_k(x, 2), lambda x: lax.top_k(x, 3, **TOP_AXIS)),
    # -- products
    "dot_general": on(X, Y)(
        product((2,), (2,)),
        product((1,), (1,), ((0,), (0,))),
        product((2, 1), (2, 1)),
        product((0,), (0,), ((2,), (2,))),
        product((2,), (2,), precision=lax.Precision.HIGHEST),
        # int8: row n of the first with column n of the second
        lambda x, y: lax.dot_general(
            *((9 * v[:, :3, :3]).astype("int8")[0] for v in (x, y)),
            (((1,), (0,)), ((0,), (1,))),
            preferred_element_type="int32",
        ),
    )
    + on(H, H)(product((2,), (2,), preferred_element_type="float32"))
    + on(I, J)(product((1,), (1,), ((0,), (0,)))),
    "conv_general_dilated": on(LONG)(
        convolved((3, 4, 2)),
        convolved((3, 4, 2), window_strides=(2,)),
        convolved((3, 4, 2), padding=((2, 1),)),
        convolved((3, 4, 2), rhs_dilation=(2,)),
        convolved((3, 2, 4), feature_group_count=2),
        convolved((3, 4, 2), precision=lax.Precision.HIGHEST),
        convolved((4, 2, 3), dimension_numbers=("NWC", "IOW", "WNC")),
        convolved((3, 4, 2), "float16", preferred_element_type="float32"),
        lambda x: jax.vmap(convolved((3, 4, 2)), 1, 1)(jnp.stack([x, 2 * x], 1)),
    ),
    **{
        name: on(LONG)(
            windows(*reduction),
            windows(*reduction, window_dimensions=(1, 2, 3)),
            windows(*reduction, window_strides=(1, 2, 1)),
            windows(*reduction, padding=((0, 0), (1, 0), (0, 0))),
        )
        for name, reduction in WINDOWS.items()
    },
    "fft": on(X)(lambda x: lax.fft(x, "RFFT", (4,)).real),
    "real": on(X)(lambda x: lax.fft(x, "RFFT", (4,)).real),
    "imag": on(X)(lambda x: lax.fft(x, "RFFT", (4,)).imag),
    # -- indices
    "gather": on(X, K)(
        gathered((0, 3)),
        gathered((0, 1, 3), collapsed=()),
        lambda x, i: x[:, i],
        lambda x, i: x[:, i, i],
        lambda x, i: x.at[:, i].get(unique_indices=True, indices_are_sorted=True),
        lambda x, i: jax.vmap(lambda a, b: a[:, b])(x, i),
        lambda x, i: jnp.take_along_axis(x, i[:, :, None] + jnp.zeros((1, 1, 4), "int32"), 1),
    )
    + on(X, OUT)(
        lambda x, i: x[:, i],
        lambda x, i: jax.vmap(lambda a, b: a[b], in_axes=(2, None), out_axes=1)(x, i),
        *each(lambda x, i, mode: x.at[:, i].get(mode=mode), "clip", "fill", "promise_in_bounds"),
        lambda x, i: x.at[:, i].get(mode="fill", fill_value=7.0),
    )
    + on(X)(
        *(
            read(mode, *places)
            for mode in ("clip", "promise_in_bounds")
            for places in ((9,), (-5,))
        ),
        *(read(mode, 9, -5, 1) for mode in ("clip", "fill")),
        read("fill", -1),
    ),
    "scatter-add": on(X)(
        scattered(lax.scatter_add, (0, 2), unique_indices=True),
        *(scattered(lax.scatter_add, (9, -4), mode=mode) for mode in ("clip", "fill")),
        scattered(lax.scatter_add, (1, 1), mode="promise_in_bounds", indices_are_sorted=True),
        lambda x: x.at[:, 1, jnp.array([0, 2])].add(2.0),
    )
    + on(X, OUT)(lambda x, i: x.at[:, i].add(2.0)),
    "scatter": on(X)(
        scattered(lax.scatter, (0, 2), mode="promise_in_bounds"),
        scattered(lax.scatter, (9, -4), mode="clip"),
        lambda x: x.at[:, 1, jnp.array([0, 2])].set(2.0, mode="clip"),
    ),
    # -- loops
    "scan": on(X)(
        *each(scan, {}, {"reverse": True}, {"unroll": 2}),
        *each(lambda x, n: lax.scan(lambda c, _: (c * 1.5, c), x, None, length=n), 3, 5),
    )
    + on(X, Y)(lambda x, y: lax.scan(lambda c, s: (c + s * y[0], c), x[0], jnp.flip(x, 0))),
    "cond": on(X)(
        lambda x: lax.cond(jnp.sum(x) > 0, lambda x: x * 2, jnp.sin, x),
        lambda x: lax.cond(jnp.sum(x) > 99, lambda x: x * 2, lambda x: x - 1, x),
    ),
    "platform_index": on(X)(
        lambda x: lax.platform_dependent(x, tpu=jnp.sin, default=jnp.cos),
        lambda x: lax.platform_dependent(x, cuda=jnp.sin, cpu=jnp.tan, default=jnp.cos),
    ),
    "while": on(X, Y)(
        *each(loop, 3, 5),
        lambda x, y: lax.while_loop(lambda c: c[0, 0, 0] < 9, lambda c: c + 1, x * y),
    ),
}

# values of parameters that ONNX does not have: the primitive, the case, and words of the error
REFUSED = [
    ("select_n", on(J)(lambda j: lax.select_n(j % 3, j, j, 2 * j)), "more than two arrays"),
    (
        "pad",
        on(X)(lambda x: lax.pad(x, np.float32(0), ((0, 0, 0), (0, 0, 1), (0, 0, 0)))),
        "between",
    ),
    ("cummax", on(X)(lambda x: lax.cummax(x, 1, reverse=True)), "from the first element on"),
    ("sort", on(X, I)(lambda *xs: lax.sort(xs, num_keys=2)), "several keys"),
    (
        "dot_general",
        on(X, Y)(product((2,), (2,), precision=lax.DotAlgorithmPreset.BF16_BF16_F32)),
        "has precision=BF16_BF16_F32",
    ),
    *(
        ("conv_general_dilated", on(LONG)(convolved((3, 4, 2), **options)), words)
        for options, words in (
            ({"padding": ((-1, 1),)}, "padding"),
            ({"padding": ((1, 1),), "lhs_dilation": (2,)}, "transposed"),
            ({"dtype": "int32"}, "of integers"),
        )
    ),
    (
        "conv_general_dilated",
        on(LONG)(lambda x: convolved((3, 4, 2), batch_group_count=2)(jnp.concatenate([x, x]))),
        "grouped gradient",
    ),
    *(
        (name, on(LONG)(windows(*reduction, **{option: (1, 2, 1)})), "windows over these axes")
        for name, reduction in WINDOWS.items()
        for option in ("base_dilation", "window_dilation")
    ),
    ("fft", on(X)(lambda x: lax.fft(x, "RFFT", (3, 4)).real), "complex signals"),
    (
        "fft",
        on(X)(lambda x: lax.fft(lax.fft(x, "RFFT", (4,)), "FFT", (3,)).real),
        "complex numbers",
    ),
    ("gather", on(X, K)(gathered((0, 2, 3), collapsed=(), size=2)), "windows at computed places"),
    ("gather", on(X)(*(read("fill", n) for n in (9, -5))), "may read outside"),
    ("scatter-add", on(I)(lambda i: i.at[:, jnp.array([1])].add(2)), "windows at computed places"),
    ("scatter", on(X)(scattered(lax.scatter, (0, 2), mode="fill")), "may drop writes"),
    (
        "scatter",
        on(X)(*each(lambda x, f: x.at[:, 1].apply(f), jnp.exp, lambda a: a)),
        "a function of the elements",
    ),
    (
        "cond",
        on(X)(lambda x: lax.switch(x[0, 0, 0].astype("int32"), [jnp.sin, jnp.cos, jnp.tan], x)),
        "more than two branches",
    ),
    (
        "platform_index",
        on(X)(lambda x: lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos)),
        "no program for CPUs",
    ),
]
# operations that not all versions of JAX have
OLD = {"stack"}
# parameters with one value in all programs
CONSTANT = {("scatter", "update_consts"), ("scatter-add", "update_consts")}


class Function(fk.Layer):
    """Computes functions, each of some of the arrays."""

    functions: tuple

    def call(self, *arrays):
        arrays = iter(arrays)
        return [f(*(next(arrays) for _ in range(count))) for f, count in self.functions]


def exported(cases, path):
    arrays = [array for _, arrays in cases for array in arrays]
    symbols = [fk.Input(array.shape[1:], dtype=str(array.dtype)) for array in arrays]
    layer = Function(tuple((function, len(arrays)) for function, arrays in cases))
    model = fk.Model(symbols, jax.tree.leaves(layer(*symbols))).build(jax.random.key(0))
    fk.export(model, None, path, opset=18)
    return arrays


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(EQUAL))
def test_onnx_runtime_computes_as_jax(name, tmp_path):
    arrays = exported(EQUAL[name], tmp_path / "m.onnx")
    results = run(session(tmp_path / "m.onnx"), arrays)
    expected = [f(*map(jnp.asarray, arrays)) for f, arrays in EQUAL[name]]
    for result, value in zip(results, jax.tree.leaves(expected), strict=True):
        assert result.dtype == value.dtype
        value, tolerance = np.asarray(value, "float64"), 1e-3 if value.dtype == "float16" else 1e-5
        np.testing.assert_allclose(result.astype("float64"), value, tolerance, tolerance)


@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    ("name", "cases", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_values_that_onnx_does_not_have_are_refused(name, cases, words, tmp_path):
    for case in cases:
        with pytest.raises(fk.FKerasError, match=f"JAX's operation '{name}' .*{words}"):
            exported([case], tmp_path / "m.onnx")


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(tuple(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_the_cases_cover_each_rule_and_each_parameter():
    values = {}
    for name, cases in (*EQUAL.items(), *((name, cases) for name, cases, _ in REFUSED)):
        for function, arrays in cases:
            for equation in equations(jax.make_jaxpr(function)(*arrays).jaxpr):
                for parameter, value in (*equation.params.items(), ("", None)):
                    key = equation.primitive.name, parameter
                    if key[0] == name:
                        values.setdefault(key, set()).add(str(value))
    names = {name for name, _ in values}
    # sizes of known batches are numbers
    assert set(RULES) - names - {"dim_as_value"} <= OLD
    single = {(name, p) for (name, p), seen in values.items() if len(seen) == 1}
    read = {(name, p) for name, p in single if p in RULES[name].params.split()}
    assert read <= CONSTANT
    # no rule ignores a parameter of this version of JAX in silence
    ignored = {(name, p) for name, p in values if p and RULES[name].unread({p: "a value"})}
    assert all(values[key] <= {"None", "False"} for key in ignored)


def test_a_parameter_that_a_rule_does_not_read_is_refused(tmp_path, monkeypatch):
    poorer = {**RULES, "reshape": Rule(RULES["reshape"].emit, "new_sizes")}
    monkeypatch.setattr(program, "RULES", poorer)
    plain, ordered = EQUAL["reshape"][:2]
    exported([plain], tmp_path / "m.onnx")
    with pytest.raises(
        fk.FKerasError, match=r"'reshape' has dimensions=\(0, 2, 1\); .* no such parameter"
    ):
        exported([ordered], tmp_path / "m.onnx")


@pytest.mark.exhaustive
def test_constants_are_reshaped_in_the_order_of_their_axes(tmp_path):
    constant = jnp.arange(12.0).reshape(3, 4)
    case = on(X)(lambda x: x + lax.reshape(constant, (1, 3, 4), (1, 0)))
    exported(case, tmp_path / "m.onnx")
    (result,) = run(session(tmp_path / "m.onnx"), [X])
    np.testing.assert_allclose(result, case[0][0](X), rtol=1e-6)


def test_constants_are_clipped_to_the_range_of_integers(tmp_path):
    numbers = np.array([3e9, -3e9, np.nan, 1.7], "float32")
    case = on(X)(lambda x: x.astype("int32") + jnp.array(numbers).astype("int32")[None, None])
    exported(case, tmp_path / "m.onnx")
    (result,) = run(session(tmp_path / "m.onnx"), [np.zeros_like(X)])
    assert result[1, 2].tolist() == [2**31 - 1, -(2**31), 0, 1]


def test_complex_results_are_refused(tmp_path):
    with pytest.raises(fk.FKerasError, match="function.*returns complex numbers"):
        exported(on(X)(lambda x: lax.fft(x, "RFFT", (4,))), tmp_path / "m.onnx")

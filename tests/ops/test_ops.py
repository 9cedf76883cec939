"""Every operation against Keras: values, dtypes, arguments, symbolic tensors, gradients."""

import contextlib
import inspect
import pickle
import warnings

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import fkeras as fk
from tests.ops.row import Row
from tests.ops.table import ROWS

NAMESPACES = ("numpy", "nn", "linalg", "image")


def _names(module):
    return {
        n for n in dir(module) if not n.startswith("_") and not inspect.ismodule(getattr(module, n))
    }


KERAS = _names(keras.ops) | {f"image.{n}" for n in _names(keras.ops.image)}


def _find(ops, name):
    for name_part in name.split("."):
        ops = getattr(ops, name_part)
    return ops


def _is_array(value):
    return isinstance(value, np.ndarray)


def _call(row, ops, arrays):
    """Calls a row with `arrays` instead of its array arguments."""
    args, kwargs = _fill(row, arrays)
    if row.call is not None:
        return row.call(ops, *args, **kwargs)
    return _find(ops, row.name)(*args, **kwargs)


def _arrays(row):
    return [leaf for leaf in jax.tree.leaves((row.args, dict(row.kwargs))) if _is_array(leaf)]


def _fill(row, arrays):
    remaining = iter(arrays)
    return jax.tree.map(
        lambda leaf: next(remaining) if _is_array(leaf) else leaf,
        (row.args, dict(row.kwargs)),
        is_leaf=lambda leaf: leaf is None,
    )


def _leaves(value):
    return jax.tree.leaves(value)


@contextlib.contextmanager
def _lenient():
    """Allows the type promotion and the warnings that Keras relies on."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _given(rows):
    return [jax.device_put(_arrays(row)) for row in rows]


TRACED = [row for row in ROWS if row.symbolic]
PAIRED = [row for row in TRACED if row.keras and row.keras_traced]
SLOPED = [row for row in ROWS if row.grad and any(a.dtype == np.float32 for a in _arrays(row))]


def _together(*parts):
    """Returns the results of all rows from one compiled program, because compiling dominates the time.

    What two parts (name, rows, computation, rules) have in common is compiled once.
    """
    failures = {}

    def program(arrays):
        results = {}
        for part, rows, compute, rules in parts:
            with rules():
                for row in rows:
                    try:
                        leaves = compute(row, arrays[str(row)])
                        results[f"{part} {row}"] = [v for v in leaves if hasattr(v, "dtype")]
                    except Exception as error:
                        failures[f"{part} {row}"] = error
        return results

    arrays_by_row = dict(zip(map(str, ROWS), _given(ROWS), strict=True))
    return jax.device_get(jax.jit(program)(arrays_by_row)) | failures


@pytest.fixture(scope="module")
def computed(request):
    """Results of the rows whose tests run, by one program of seconds that all rows share."""
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    used = {str(p["row"]) for p in calls if isinstance(p.get("row"), Row)}
    traced, paired = ([row for row in rows if str(row) in used] for rows in (TRACED, PAIRED))
    return _together(
        ("ours", traced, lambda row, a: _leaves(_call(row, fk.ops, a)), contextlib.nullcontext),
        ("theirs", paired, lambda row, a: _leaves(_call(row, keras.ops, a)), _lenient),
    )


@pytest.fixture(scope="module")
def slopes():
    return _together(("slopes", SLOPED, _gradients, contextlib.nullcontext))


def _result(results, part, row):
    result = results[f"{part} {row}"]
    if isinstance(result, Exception):
        raise result
    return result


def _same(ours, theirs, tolerance):
    assert len(ours) == len(theirs)
    for actual, expected in zip(ours, theirs, strict=True):
        assert np.shape(actual) == np.shape(expected)
        if hasattr(expected, "dtype"):
            assert actual.dtype == expected.dtype
            actual, expected = (np.asarray(v).astype("complex64") for v in (actual, expected))
            np.testing.assert_allclose(actual, expected, tolerance, tolerance)
        else:
            assert actual == expected


@pytest.mark.one_in(8)
@pytest.mark.parametrize("row", PAIRED, ids=str)
def test_values_match_keras(row, computed):
    ours, theirs = (_result(computed, part, row) for part in ("ours", "theirs"))
    _same(ours, theirs, row.tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", [r for r in ROWS if not (r.symbolic and r.keras_traced)], ids=str)
def test_eager_values_match_keras(row):
    arrays = [jnp.asarray(a) for a in _arrays(row)]
    ours = _leaves(_call(row, fk.ops, arrays))
    with _lenient():
        theirs = _leaves(_call(row, keras.ops, arrays))
    _same(ours, theirs, row.tolerance)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("row", [r for r in TRACED if _arrays(r)], ids=str)
def test_symbolic_calls_know_shape_and_dtype(row, computed):
    arrays = _arrays(row)
    if any(a.dtype == np.complex64 for a in arrays):
        pytest.skip("inputs of a graph are real")
    symbols = [
        fk.Input(batch_shape=a.shape, dtype=str(jax.dtypes.canonicalize_dtype(a.dtype)))
        for a in arrays
    ]
    symbolic, arrays_of_row = _leaves(_call(row, fk.ops, symbols)), _result(computed, "ours", row)
    assert [(tuple(f.shape), str(f.dtype)) for f in symbolic] == [
        (m.shape, str(m.dtype)) for m in arrays_of_row
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", [r for r in TRACED if _arrays(r)], ids=str)
def test_known_sizes_of_symbolic_calls_are_those_of_every_array(row, computed):
    arrays, results = _arrays(row), _result(computed, "ours", row)
    symbols = [
        fk.Input(batch_shape=(None,) * a.ndim, dtype=str(jax.dtypes.canonicalize_dtype(a.dtype)))
        for a in arrays
        if a.dtype != np.complex64
    ]
    # each array alone has unknown sizes, so that they meet known sizes
    for index, symbol in enumerate(symbols):
        others = [fk.Input(batch_shape=a.shape, dtype=str(a.dtype)) for a in arrays]
        try:
            symbolic = _leaves(_call(row, fk.ops, [*others[:index], symbol, *others[index + 1 :]]))
        except Exception:
            continue  # the operation needs known sizes
        for tensor, array in zip(symbolic, results, strict=True):
            if str(row) == "squeeze-all" and None in tensor.shape:
                continue  # the number of axes depends on the unknown sizes
            sizes = zip(tensor.shape, array.shape, strict=True)
            assert all(size in (None, actual) for size, actual in sizes), (
                tensor.shape,
                array.shape,
            )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("known", [(None, 5), (5, None)])
def test_a_diagonal_of_an_unknown_size_has_an_unknown_size(known):
    x = fk.Input(batch_shape=known)
    cube = fk.Input(batch_shape=(2, *known))
    outputs = [fk.ops.diag(x), fk.ops.diag(x, -1), fk.ops.diagonal(cube, 1, 1, 2)]
    assert [y.shape for y in outputs] == [(None,), (None,), (2, None)]
    model = fk.Model([x, cube], outputs)
    shape = tuple(3 if size is None else size for size in known)
    arrays = np.ones(shape, "float32"), np.ones((2, *shape), "float32")
    expected = [np.diag(arrays[0]), np.diag(arrays[0], -1), np.diagonal(arrays[1], 1, 1, 2)]
    assert [y.shape for y in model(list(arrays))] == [y.shape for y in expected]


DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"),
    *("float16", "bfloat16", "float32"),
)
MIXED = ("arctan2", "average", "hypot", "logaddexp", "logaddexp2")
UNIFORM = (
    *("add", "append", "correlate", "cross", "divide", "divide_no_nan", "dot", "equal"),
    *("floor_divide", "fmax", "fmin", "gcd", "greater", "heaviside", "inner", "kron", "lcm"),
    *("logical_and", "matmul", "maximum", "minimum", "mod", "multiply", "nextafter", "outer"),
    *("power", "subtract", "tensordot", "true_divide", "vdot", "where"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [*MIXED, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in UNIFORM)]
)
def test_dtypes_of_pairs_match_keras(name):
    def result(ops, first, second):
        arrays = [jax.ShapeDtypeStruct((3,), dtype) for dtype in (first, second)]
        if name == "average":
            return jax.eval_shape(lambda x, weights: ops.average(x, weights=weights), *arrays).dtype
        function = getattr(ops, name)
        call = function if name != "where" else lambda a, b: function(jnp.ones(3, bool), a, b)
        return jax.eval_shape(call, *arrays).dtype

    for first in DTYPES:
        for second in DTYPES:
            with _lenient():
                try:
                    expected = result(keras.ops, first, second)
                except (TypeError, ValueError):
                    continue
                assert result(fk.ops, first, second) == expected, (first, second)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", DTYPES[-3:])
@pytest.mark.parametrize("key", DTYPES[-3:])
def test_attention_of_several_dtypes_has_their_common_dtype(key, value):
    query, key, value = (
        jax.ShapeDtypeStruct((1, 2, 1, 4), dtype) for dtype in ("bfloat16", key, value)
    )
    with _lenient():
        ours, theirs = (
            jax.eval_shape(ops.dot_product_attention, query, key, value).dtype
            for ops in (fk.ops, keras.ops)
        )
    assert ours == theirs


def _gradients(row, arrays):
    float_indices = [i for i, a in enumerate(arrays) if a.dtype == jnp.float32]

    def total(floats):
        inputs = list(arrays)
        for index, value in zip(float_indices, floats, strict=True):
            inputs[index] = value
        outputs = [y for y in _leaves(_call(row, fk.ops, inputs)) if hasattr(y, "dtype")]
        return sum((y.sum() for y in outputs if y.dtype == jnp.float32), jnp.float32(0))

    return jax.grad(total)([arrays[i] for i in float_indices])


@pytest.mark.exhaustive
def test_gradients_are_finite(slopes):
    for row in SLOPED:
        for gradient in _result(slopes, "slopes", row):
            assert np.isfinite(gradient).all(), row


def test_every_operation_of_keras_has_a_row():
    assert sorted(KERAS - {row.name for row in ROWS}) == []


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_have_the_names_of_keras(name):
    ours, theirs = getattr(fk.ops, name), getattr(keras.ops, name)
    assert sorted(_names(theirs) - set(ours.__all__)) == []
    if name != "image":
        assert all(getattr(fk.ops, n) is getattr(ours, n) for n in ours.__all__)


def _defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return [
        (
            p.name,
            p.kind,
            None if p.default is inspect.Parameter.empty else p.default,
            p.default is inspect.Parameter.empty,
        )
        for p in parameters
    ]


def test_arguments_match_keras():
    extra_names = {"dot_product_attention": ["empty_rows", "sinks"]}  # keyword-only
    for name in sorted(KERAS):
        ours = [
            row for row in _defaults(_find(fk.ops, name)) if row[0] not in extra_names.get(name, ())
        ]
        assert ours == _defaults(_find(keras.ops, name)), name


def test_operations_pickle_by_name():
    for name in fk.ops.__all__:
        operation = getattr(fk.ops, name)
        if isinstance(operation, fk.ops.Op):
            assert pickle.loads(pickle.dumps(operation)) == operation, name


def test_error_if_raises_outside_and_inside_of_programs():
    def check(x):
        return fk.ops.error_if(x, x < 0, "expected numbers of 0 or more.") * 2.0

    good, bad = np.array([1.0, 2.0], "float32"), np.array([1.0, -2.0], "float32")
    for run in (
        check,
        jax.jit(check),
        jax.vmap(check),
        jax.jit(lambda x: jax.value_and_grad(lambda x: check(x).sum())(x)[0] * x),
    ):
        assert np.asarray(run(good)).shape == (2,)
        with pytest.raises(
            (ValueError, jax.errors.JaxRuntimeError), match="expected numbers of 0 or more"
        ):
            np.asarray(run(bad))
    np.testing.assert_array_equal(jax.jit(check)(good), [2, 4])
    np.testing.assert_array_equal(jax.grad(lambda x: check(x).sum())(good), [2, 2])
    integers = jax.jit(lambda x: fk.ops.error_if(x, x > 3, "large"))(np.array([1, 3], "int32"))
    assert integers.dtype == "int32"
    x = fk.Input((2,))
    model = fk.Model(x, fk.ops.error_if(x, x < 0, "negative"))
    np.testing.assert_array_equal(model(good[None]), good[None])
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="negative"):
        np.asarray(model(bad[None]))
    with pytest.raises(TypeError, match="error_if: message: expected a text, received 3"):
        fk.ops.error_if(good, False, 3)

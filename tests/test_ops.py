"""Every operation against Keras's: values, dtypes, arguments, symbolic tensors, gradients."""

import contextlib
import inspect
import pickle
import warnings

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from ops_table import ROWS

import fkeras as fk

NAMESPACES = ("numpy", "nn", "linalg", "image")


def _names(module):
    return {
        n for n in dir(module) if not n.startswith("_") and not inspect.ismodule(getattr(module, n))
    }


KERAS = _names(keras.ops) | {f"image.{n}" for n in _names(keras.ops.image)}


def _find(ops, name):
    for part in name.split("."):
        ops = getattr(ops, part)
    return ops


def _is_array(value):
    return isinstance(value, np.ndarray)


def _call(row, ops, arrays):
    """The row's call with `arrays` in the place of its own."""
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
    """Keras promotes by itself, and warns where it means to."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _together(rows, arrays, compute):
    """The results of all rows in one compiled program: most of the time goes into compiling."""
    failures = {}

    def program(arrays):
        made = {}
        for number, (row, own) in enumerate(zip(rows, arrays, strict=True)):
            try:
                made[number] = [leaf for leaf in compute(row, own) if hasattr(leaf, "dtype")]
            except Exception as error:
                failures[number] = error
        return made

    made = jax.jit(program)(arrays)
    return {str(row): failures.get(i) or made[i] for i, row in enumerate(rows)}


def _given(rows):
    return [[jnp.asarray(a) for a in _arrays(row)] for row in rows]


def _result(results, row):
    found = results[str(row)]
    if isinstance(found, Exception):
        raise found
    return found


TRACED = [row for row in ROWS if row.symbolic]
SLOPED = [row for row in ROWS if row.grad and any(a.dtype == np.float32 for a in _arrays(row))]


@pytest.fixture(scope="module")
def ours():
    return _together(TRACED, _given(TRACED), lambda row, a: _leaves(_call(row, fk.ops, a)))


@pytest.fixture(scope="module")
def theirs():
    rows = [row for row in TRACED if row.keras and row.keras_traced]
    with _lenient():
        return _together(rows, _given(rows), lambda row, a: _leaves(_call(row, keras.ops, a)))


@pytest.fixture(scope="module")
def slopes():
    return _together(SLOPED, _given(SLOPED), _gradients)


def _same(ours, theirs, tolerance):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert jnp.shape(one) == jnp.shape(other)
        if hasattr(other, "dtype"):
            assert one.dtype == other.dtype
            one, other = (np.asarray(v).astype("complex64") for v in (one, other))
            np.testing.assert_allclose(one, other, tolerance, tolerance)
        else:
            assert one == other


@pytest.mark.parametrize("row", [r for r in TRACED if r.keras and r.keras_traced], ids=str)
def test_numbers_are_those_of_keras(row, ours, theirs):
    _same(_result(ours, row), _result(theirs, row), row.tolerance)


@pytest.mark.parametrize("row", [r for r in ROWS if not (r.symbolic and r.keras_traced)], ids=str)
def test_numbers_outside_of_programs_are_those_of_keras(row):
    arrays = [jnp.asarray(a) for a in _arrays(row)]
    ours = _leaves(_call(row, fk.ops, arrays))
    with _lenient():
        theirs = _leaves(_call(row, keras.ops, arrays))
    _same(ours, theirs, row.tolerance)


@pytest.mark.parametrize("row", [r for r in TRACED if _arrays(r)], ids=str)
def test_symbolic_calls_know_shape_and_dtype(row, ours):
    arrays = _arrays(row)
    if any(a.dtype == np.complex64 for a in arrays):
        pytest.skip("inputs of a graph are real")
    symbols = [fk.Input(batch_shape=a.shape, dtype=str(a.dtype)) for a in map(jnp.asarray, arrays)]
    found, made = _leaves(_call(row, fk.ops, symbols)), _result(ours, row)
    assert [(tuple(f.shape), str(f.dtype)) for f in found] == [
        (m.shape, str(m.dtype)) for m in made
    ]


def _gradients(row, arrays):
    places = [i for i, a in enumerate(arrays) if a.dtype == jnp.float32]

    def total(floats):
        inputs = list(arrays)
        for place, value in zip(places, floats, strict=True):
            inputs[place] = value
        outputs = [y for y in _leaves(_call(row, fk.ops, inputs)) if hasattr(y, "dtype")]
        return sum((y.sum() for y in outputs if y.dtype == jnp.float32), jnp.float32(0))

    return jax.grad(total)([arrays[i] for i in places])


@pytest.mark.parametrize("row", SLOPED, ids=str)
def test_gradients_are_finite(row, slopes):
    for gradient in _result(slopes, row):
        assert jnp.isfinite(gradient).all()


def test_every_operation_of_keras_has_a_row():
    assert sorted(KERAS - {row.name for row in ROWS}) == []


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_have_what_keras_has(name):
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


@pytest.mark.parametrize("name", sorted(KERAS))
def test_arguments_are_those_of_keras(name):
    assert _defaults(_find(fk.ops, name)) == _defaults(_find(keras.ops, name))


@pytest.mark.parametrize("name", sorted(fk.ops.__all__))
def test_operations_pickle_by_name(name):
    operation = getattr(fk.ops, name)
    if isinstance(operation, fk.ops.Op):
        assert pickle.loads(pickle.dumps(operation)) == operation

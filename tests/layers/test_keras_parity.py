"""Outputs, gradients, losses and state of every row of the layer table, against Keras 3."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers, partition
from tests.cases import all_cases
from tests.support.keras_oracle import keras_function, keras_layer, keras_rules, mask_option, values

CASES = [case for case in all_cases() if case.keras]
# for these layers the row with a mask runs the code of the row without a mask, which is exhaustive
_MASKED = (layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D, layers.LSTM, layers.SimpleRNN)
ROWS = [
    pytest.param(case, marks=pytest.mark.exhaustive)
    if case.exhaustive or (type(case.layer) in _MASKED and case.mask is None)
    else case
    for case in CASES
]
FIRST = {type(case.layer): case for case in reversed(CASES) if not case.exhaustive}


def _weights(tree):
    """Returns a tree of different weights, so that the gradient of the weighted sum tests all entries."""

    def leaf(x):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return np.zeros(x.shape, jax.dtypes.float0)
        return np.cos(np.arange(x.size, dtype="float32")).reshape(x.shape).astype(x.dtype)

    return jax.tree.map(leaf, tree)


def _pull(function, *args):
    """Returns `(aux, gradients)` of a function's weighted outputs `(value, losses, aux)`."""

    def outputs(*args):
        value, losses, aux = function(*args)
        return (value, [jnp.sum(jnp.asarray(v)) for v in losses]), aux

    (value, losses), pull, aux = jax.vjp(outputs, *args, has_aux=True)
    ones = [jnp.ones_like(v) for v in losses]
    return aux, pull((_weights(value), ones))


def _floats(inputs):
    leaves, treedef = jax.tree.flatten(inputs)
    flags = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def join(floats):
        it = iter(floats)
        merged = [next(it) if f else x for f, x in zip(flags, leaves, strict=True)]
        return jax.tree.unflatten(treedef, merged)

    return [x for f, x in zip(flags, leaves, strict=True) if f], join


def test_every_class_is_compared_for_every_change():
    for case in CASES:
        assert any(type(c.layer) is type(case.layer) and not c.exhaustive for c in CASES), case.id


def _apply(case, layer, state, inputs):
    return layer.apply(
        *inputs,
        state=state,
        training=case.training,
        key=jax.random.key(0),
        mask=case.mask_array(),
        **case.options,
    )


@pytest.mark.one_in(16)
@pytest.mark.parametrize("case", FIRST.values(), ids=lambda case: case.id)
def test_a_call_outside_of_jit_gives_equal_values(case):
    # the same code of the engine for all layers
    (layer, state), inputs = case.build(), case.arrays()
    compiled = jax.jit(functools.partial(_apply, case))(layer, state, inputs)
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(compiled.value))
    chex.assert_trees_all_close(
        *(_apply(case, layer, state, inputs).value, compiled.value),
        atol=case.tolerance * max(scale, 1.0),
        rtol=0,
    )


@pytest.mark.one_a_class(first=True, family=True, each=6)
@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.id)
def test_parity(case):
    inputs, mask = case.arrays(), case.mask_array()
    layer, state = case.build()
    floats, join = _floats(inputs)

    def ours(layer, floats):
        out = _apply(case, layer, state, join(floats))
        return out.value, out.losses, out

    reference = keras_layer(case.layer, inputs, case.options)
    trainable = len(jax.tree.leaves(partition(layer)[0]))
    with keras_rules():
        reference.set_weights(layer.get_weights(state))
        function = keras_function(reference, case.training)
        options = dict(case.options) | mask_option(reference, mask)

        def theirs(weights, floats, variables):
            value, new, losses = function(weights, variables, join(floats), options)
            return value, losses, (value, new, losses)

        assert len(reference.trainable_variables) == trainable
        weights, variables = (
            values(reference.trainable_variables),
            values(reference.non_trainable_variables),
        )

    @jax.jit  # one program for fkeras and Keras
    def compute(layer, weights, floats, variables):
        actual = _pull(ours, layer, floats)
        with keras_rules():
            return actual, _pull(lambda *args: theirs(*args, variables), weights, floats)

    actual, expected_array = compute(layer, weights, floats, variables)
    out, (grads, input_grads) = actual
    (value, new, losses), (their_grads, their_input_grads) = expected_array

    def close(a, b, subject):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        error = float(np.abs(a - b).max(initial=0.0)) / scale
        assert a.shape == b.shape, f"{subject}: {a.shape} against {b.shape}"
        assert error <= case.tolerance, f"{subject}: off by {error:.2e}"

    pairs = zip(jax.tree.leaves(out.value), jax.tree.leaves(value), strict=True)
    for actual, expected_array in pairs:
        close(actual, expected_array, "value")
    for actual, expected_array in zip(partition(grads)[0].get_weights(), their_grads, strict=True):
        close(actual, expected_array, "gradient of a weight")
    for actual, expected_array in zip(input_grads, their_input_grads, strict=True):
        close(actual, expected_array, "gradient of an input")
    close(sum(out.losses, jnp.float32(0)), sum(map(jnp.sum, losses), jnp.float32(0)), "losses")
    # weights and state after the call, in Keras's order
    values_by_id = dict(zip(map(id, reference.non_trainable_variables), new, strict=True))
    expected = [values_by_id.get(id(v), v.value) for v in reference.weights]
    for actual, expected_array in zip(
        layer.get_weights(state | out.updates), expected, strict=True
    ):
        close(actual, expected_array, "weights and state after the call")

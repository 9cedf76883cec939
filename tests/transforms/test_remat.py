"""Rematerialization: equal results with less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.transforms.remat import compiler_options, get_policy, rematerialized

POLICIES = ["full", "dots", jax.checkpoint_policies.dots_saveable]


def _mlp(depth=9, units=8):
    dense = [layers.Dense(units, activation="gelu") for _ in range(depth)]
    return fk.Sequential([fk.Input((units,)), *dense])


def _varied():
    """A model with shared and nested layers, state, dropout, losses, several inputs and outputs."""
    first, second = fk.Input((8,), name="first"), fk.Input((8,), name="second")
    shared = layers.Dense(8, activation="tanh", activity_regularizer="l2", name="shared")
    h = layers.Add()([shared(first), second])
    h = layers.BatchNormalization()(layers.Dropout(0.3)(shared(h)))
    h = _mlp(2)(h)
    h = layers.Dropout(0.3)(layers.Add()([h, first]))
    return fk.Model([first, second], {"a": layers.Dense(2, name="a")(h), "b": h}), 2


def _masked():
    x = fk.Input((6,), dtype="int32")
    h = layers.Embedding(5, 8, mask_zero=True)(x)
    h = layers.LSTM(8, return_sequences=True)(h)
    h = layers.Dropout(0.2)(h)
    return fk.Model(x, layers.Dense(1)(layers.GRU(8)(h))), 0


def _nested():
    x = fk.Input((8,))
    return fk.Model(x, layers.Dense(1)(_mlp()(x))), 1


def _inputs(count, key):
    if count == 0:
        return jnp.array([[1, 2, 3, 0, 0, 0], [4, 1, 2, 3, 4, 0]])
    arrays = list(jax.random.normal(key, (count, 4, 8)))
    return arrays[0] if count == 1 else arrays


@functools.cache
def _values_and_gradients(make):
    """Returns values and gradients of the plain model and under each policy, from one program."""
    key, (model, count) = jax.random.key(0), make()
    model, x = model.build(key), _inputs(count, key)
    state = model.init_state()

    @jax.jit
    def compute(model):
        def loss(model, policy):
            out = rematerialized(model, policy).apply(x, state=state, training=True, key=key)
            total = sum(jnp.mean(v**2) for v in jax.tree.leaves(out.value)) + sum(out.losses)
            return total, out

        return [
            jax.value_and_grad(loss, has_aux=True)(model, policy) for policy in (None, *POLICIES)
        ]

    return compute(model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("index", [1, 2, 3], ids=["full", "dots", "jax"])
@pytest.mark.parametrize("make", [_varied, _masked, _nested], ids=["varied", "masked", "nested"])
def test_rematerialization_changes_no_result(make, index):
    plain = _values_and_gradients(make)[0]
    rematerialized_results = _values_and_gradients(make)[index]
    assert jax.tree.structure(plain) == jax.tree.structure(rematerialized_results)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(rematerialized_results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _residual_bytes(model, policy, x):
    """Returns the size of the arrays that the forward pass stores for the backward pass."""

    def residuals(model, x):
        def f(m):
            return rematerialized(m, policy).apply(x, training=True).value.sum()

        return jax.vjp(f, model)[1]

    return sum(
        a.size * a.dtype.itemsize for a in jax.tree.leaves(jax.eval_shape(residuals, model, x))
    )


@pytest.mark.exhaustive
def test_fewer_arrays_are_stored_for_the_backward_pass(key):
    model, x = _mlp(16).build(key), jax.ShapeDtypeStruct((64, 8), "float32")
    none, full, dots = (_residual_bytes(model, policy, x) for policy in (None, "full", "dots"))
    assert full < dots < none
    assert full < 0.6 * none


@pytest.mark.exhaustive
def test_a_compiled_step_needs_less_memory(key):
    model = _mlp(12, 64).build(key)

    def temporary_bytes(policy, one_checkpoint=False):
        def loss(model, x):
            def value(m):
                return jnp.mean(rematerialized(m, policy).apply(x, training=True).value ** 2)

            return (jax.checkpoint(value) if one_checkpoint else value)(model)

        step = jax.jit(jax.grad(loss), compiler_options=compiler_options())
        lowered = step.lower(model, jax.ShapeDtypeStruct((1024, 64), "float32"))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    none, full, dots = temporary_bytes(None), temporary_bytes("full"), temporary_bytes("dots")
    assert full < 0.6 * none
    assert full < dots < none
    # one checkpoint around the complete model saves almost nothing
    assert temporary_bytes(None, one_checkpoint=True) > 0.9 * none


def test_segments_end_between_blocks():
    from fkeras.transforms.remat import _large_networks, _segments

    x = h = fk.Input((8,))
    for _ in range(4):
        inner = layers.Dense(32)(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(8)(inner)])
    model = fk.Model(x, h)
    assert _segments(model, _large_networks(model)) == [
        [i, i + 1, i + 2, i + 3] for i in range(1, 17, 4)
    ]
    deep = _mlp(9)
    assert [len(numbers) for numbers in _segments(deep, _large_networks(deep))] == [3, 3, 3]


@pytest.mark.exhaustive
def test_a_single_layer_is_rematerialized(key):
    layer = layers.Bidirectional(layers.LSTM(3)).build(key, (None, None, 2))
    x = jax.random.normal(key, (2, 4, 2))
    grads = [
        jax.grad(lambda m, p=p: rematerialized(m, p).apply(x, training=True).value.sum())(layer)
        for p in (None, "full")
    ]
    for a, b in zip(*map(jax.tree.leaves, grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.exhaustive
def test_regularizers_are_added_once(key):
    model = fk.Sequential(
        [fk.Input((2,)), *(layers.Dense(2, kernel_regularizer="l2") for _ in "ab")]
    )
    model = model.build(key)
    out, rematerialized_out = (
        rematerialized(model, p).apply(jnp.ones((1, 2))) for p in (None, "full")
    )
    np.testing.assert_allclose(rematerialized_out.losses, out.losses)


def test_policy_none_returns_the_same_model(key):
    model = _mlp(1).build(key)
    assert rematerialized(model, None) is model
    assert get_policy(None) is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("ful", ["'ful'", "Did you mean 'full'?", "'dots'"]),
        ("everything_saveable", ["remat=jax.checkpoint_policies.everything_saveable"]),
        (True, ["expected None", "received True"]),
        (dict, ["received <class 'dict'>"]),
    ],
)
def test_unknown_policies_are_rejected(policy, words):
    with pytest.raises(ValueError) as error:
        get_policy(policy)
    assert all(word in str(error.value) for word in words)

"""The products of recurrent layers outside of the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers

X = jax.random.normal(jax.random.key(1), (2, 5, 3))
MASK = jnp.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]], bool)
KEY = jax.random.key(0)
rare = pytest.mark.exhaustive


def _function(layer):
    def compute(layer, x):
        out = layer.apply(x, state=state, mask=MASK, training=True, key=KEY)
        return out.value, out.updates

    layer = layer.build(KEY, X)
    state = layer.init_state(X)
    return compute, layer


@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda", pytest.param("rocm", marks=rare)])
def test_gradients_of_kernels_are_products_after_the_loop_on_accelerators(platform):
    compute, layer = _function(layers.GRU(4))
    gradient = jax.grad(lambda layer: compute(layer, X)[0].sum())
    text = jax.jit(gradient).trace(layer).lower(lowering_platforms=(platform,)).as_text()
    for rows in (3, 4):
        after = f"(tensor<5x2x12xf32>, tensor<5x2x{rows}xf32>) -> tensor<12x{rows}xf32>"
        in_loop = f"(tensor<2x12xf32>, tensor<2x{rows}xf32>) -> tensor<12x{rows}xf32>"
        assert (after in text, in_loop in text) == (platform != "cpu", platform == "cpu")
    # GPUs take the product before the loop, by a constant that XLA folds
    assert ("dense<true> : tensor<i1>" in text) == (platform in ("cuda", "rocm"))


@pytest.mark.parametrize(
    "layer",
    [
        layers.LSTM(4, dropout=0.3, recurrent_dropout=0.2, go_backwards=True),
        layers.GRU(4, bias_initializer="ones", return_sequences=True, dropout=0.3),
        pytest.param(layers.LSTM(4, use_bias=False, return_state=True), marks=rare),
        pytest.param(layers.LSTM(4, stateful=True, zero_output_for_mask=True), marks=rare),
        pytest.param(layers.LSTM(4, dtype="mixed_bfloat16"), marks=rare),
        pytest.param(layers.GRU(4, reset_after=False, recurrent_dropout=0.2), marks=rare),
        pytest.param(layers.GRU(4, reset_after=False, return_state=True), marks=rare),
        pytest.param(layers.SimpleRNN(4, dropout=0.3, bias_initializer="ones"), marks=rare),
        pytest.param(layers.Bidirectional(layers.SimpleRNN(4, return_sequences=True)), marks=rare),
    ],
    ids=repr,
)
def test_both_programs_compute_the_same_values_and_derivatives(layer, monkeypatch):
    compute, layer = _function(layer)
    tangents = jax.tree.map(jnp.sin, (layer, X))

    def all_of(layer, x):
        value, tangent = jax.jvp(compute, (layer, x), tangents)
        grads = jax.grad(
            lambda *a: sum(jnp.sum(y**2) for y in jax.tree.leaves(compute(*a))), (0, 1)
        )
        rows = jax.vmap(lambda x: compute(layer, x)[0])(jnp.stack([x, -x]))
        return value, tangent, grads(layer, x), rows

    calls = []

    def on_gpu(*operands, default, **others):
        calls.append(default)
        return default(*operands)

    expected = jax.jit(all_of)(layer, X)
    monkeypatch.setattr(jax.lax, "platform_dependent", on_gpu)
    found = jax.jit(lambda *a: all_of(*a))(layer, X)
    assert calls
    tolerance = 0.05 if layer.policy.compute_dtype == "bfloat16" else 1e-5
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, "float32"), np.asarray(b, "float32")
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_activations_may_close_over_arrays_with_derivatives():
    def loss(slope):
        layer = layers.SimpleRNN(4, lambda v: slope * v).build(KEY, X)
        return layer(X).sum()

    traced = jax.jit(jax.value_and_grad(loss)).trace(1.0)
    assert traced.lower(lowering_platforms=("cuda",)).as_text()
    value, slope = jax.value_and_grad(loss)(1.0)
    np.testing.assert_allclose(slope, (loss(1.001) - value) / 0.001, rtol=0.05)

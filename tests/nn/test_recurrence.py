"""The product of the inputs of recurrent layers: before the loop on GPUs, in the loop elsewhere."""

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
def test_a_program_for_gpus_multiplies_all_inputs_before_the_loop(platform):
    traced = jax.jit(_function(layers.LSTM(4))[0]).trace(layers.LSTM(4).build(KEY, X), X)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    products = text.count("(tensor<5x2x3xf32>, tensor<3x16xf32>)")
    in_loop = text.count("(tensor<2x3xf32>, tensor<3x16xf32>)")
    assert (products, in_loop) == ((1, 0) if platform in ("cuda", "rocm") else (0, 1))


@pytest.mark.parametrize(
    "layer",
    [
        layers.LSTM(4, dropout=0.3, recurrent_dropout=0.2, go_backwards=True),
        layers.GRU(4, bias_initializer="ones", return_sequences=True, dropout=0.3),
        pytest.param(layers.LSTM(4, use_bias=False, return_state=True), marks=rare),
        pytest.param(layers.LSTM(4, stateful=True, zero_output_for_mask=True), marks=rare),
        pytest.param(layers.LSTM(4, dtype="mixed_bfloat16"), marks=rare),
        pytest.param(layers.GRU(4, reset_after=False, recurrent_dropout=0.2), marks=rare),
        pytest.param(layers.GRU(4, reset_after=False, unroll=True), marks=rare),
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

    def on_gpu(*operands, cuda, **others):
        calls.append(cuda)
        return cuda(*operands)

    expected = jax.jit(all_of)(layer, X)
    monkeypatch.setattr(jax.lax, "platform_dependent", on_gpu)
    found = jax.jit(lambda *a: all_of(*a))(layer, X)
    assert calls
    tolerance = 0.05 if layer.policy.compute_dtype == "bfloat16" else 1e-5
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, "float32"), np.asarray(b, "float32")
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

"""Mixtures of experts beside sums over all experts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.experts import ExpertKernels, balance, expert_products, route

RNG = np.random.default_rng(3)
X = RNG.normal(size=(7, 5)).astype("float32")
LOGITS = RNG.normal(size=(7, 4)).astype("float32")
KERNELS = tuple(
    RNG.normal(size=(4, *shape)).astype("float32") for shape in ((5, 6), (5, 6), (6, 5))
)
BIASES = tuple(RNG.normal(size=(4, size)).astype("float32") for size in (6, 6, 5))


def _gated(gate, up):
    return jax.nn.silu(gate) * up


def _dense(x, logits, kernels, top_k, renormalize):
    """The sum over all experts, in which those that are not chosen have the weight 0."""
    weights, chosen, _ = route(logits, top_k, renormalize)
    gate, up, down, *biases = kernels
    first, second, last = biases or np.zeros((3, 4, 1), "float32")
    hidden = _gated(
        jnp.einsum("nd,edf->nef", x, gate) + first[None],
        jnp.einsum("nd,edf->nef", x, up) + second[None],
    )
    all_weights = jnp.sum(jax.nn.one_hot(chosen, 4) * weights[..., None], axis=1)
    y = jnp.einsum("nef,efd->ned", hidden, down) + last[None]
    return jnp.sum(y * all_weights[..., None], axis=1)


def _sparse(x, logits, kernels, top_k, renormalize):
    weights, chosen, _ = route(logits, top_k, renormalize)
    biases = kernels[3:] or None
    gate, up, down = map(ExpertKernels, kernels[:3])
    return expert_products(x, weights, chosen, gate, up, down, _gated, biases=biases)


# one token has fewer rows than there are experts: the kernels in use are gathered
@pytest.mark.exhaustive
@pytest.mark.parametrize(("tokens", "top_k"), [(7, 2), (1, 3), (2, 2)])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("biases", [(), BIASES], ids=["plain", "biases"])
def test_values_and_gradients_equal_the_sum_over_all_experts(tokens, top_k, renormalize, biases):
    args = X[:tokens], LOGITS[:tokens], (*KERNELS, *biases)

    def score(function):
        return lambda *args: jnp.sum(jnp.sin(function(*args, top_k, renormalize)))

    np.testing.assert_allclose(
        _sparse(*args, top_k, renormalize), _dense(*args, top_k, renormalize), rtol=1e-5, atol=1e-5
    )
    ours, theirs = (jax.grad(score(f), (0, 1, 2))(*args) for f in (_sparse, _dense))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("tokens", "top_k"), [(7, 2), (1, 2)])
def test_weights_multiply_the_inputs(tokens, top_k):
    x, (gate, up, down) = X[:tokens], KERNELS
    weights, chosen, _ = route(LOGITS[:tokens], top_k, False, independent=True)
    kernels = [ExpertKernels(kernel) for kernel in KERNELS]
    y = expert_products(x, weights, chosen, kernels[0], kernels[1], kernels[2], _gated, True)
    for n, (tokens_of, experts) in enumerate(zip(np.asarray(weights), chosen, strict=True)):
        scaled = tokens_of[:, None] * x[n]
        pairs = zip(scaled, experts, strict=True)
        expected = sum(_swiglu(s, gate[e], up[e], down[e]) for s, e in pairs)
        np.testing.assert_allclose(y[n], expected, rtol=1e-5, atol=1e-5)


def _swiglu(x, gate, up, down):
    z = x @ gate
    return (z / (1 + np.exp(-z)) * (x @ up)) @ down


@pytest.mark.exhaustive
@pytest.mark.parametrize("axes", [(0, None, None), (None, None, 0), (None, 0, None)])
def test_vmap_over_one_operand(axes):
    args = X, LOGITS, KERNELS
    stacked = tuple(
        x if axis is None else jax.tree.map(lambda leaf: np.stack([leaf, -leaf]), x)
        for x, axis in zip(args, axes, strict=True)
    )

    def gradient(*args):
        return jax.grad(lambda *args: jnp.sum(_sparse(*args, 2, True) ** 2), (0, 2))(*args)

    second = tuple(
        x if axis is None else jax.tree.map(lambda leaf: leaf[1], x)
        for x, axis in zip(stacked, axes, strict=True)
    )
    mapped = jax.vmap(gradient, axes)(*stacked)
    for a, b in zip(jax.tree.leaves(mapped), jax.tree.leaves(gradient(*second)), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-4, atol=1e-3)


@pytest.mark.exhaustive
def test_other_tokens_change_no_bit_of_a_token():
    compiled = jax.jit(lambda x, logits: _sparse(x, logits, KERNELS, 2, True))
    first = compiled(X, LOGITS)
    # the other tokens now choose other experts, so the sorted rows stand elsewhere
    other_x, other_logits = X.copy(), LOGITS.copy()
    other_x[1:], other_logits[1:] = RNG.normal(size=(6, 5)), RNG.normal(size=(6, 4))
    np.testing.assert_array_equal(compiled(other_x, other_logits)[0], first[0])


def test_balance_equals_its_definition():
    @jax.jit
    def compute(logits, mask):
        _, chosen, probabilities = route(logits, 2, True)
        part = balance(probabilities[:4], chosen[:4])
        masked = [balance(probabilities, chosen, m) for m in (mask, jnp.zeros(7, bool))]
        return chosen, probabilities, balance(probabilities, chosen), part, *masked

    results = jax.device_get(compute(LOGITS, np.arange(7) < 4))
    chosen, probabilities, result, part, masked, empty = results
    shares = np.bincount(np.ravel(chosen), minlength=4) / 7
    expected = 4 * np.sum(shares * np.mean(probabilities, axis=0))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    np.testing.assert_allclose(masked, part, rtol=1e-6)
    assert empty == 0


def test_route_in_half_precision_computes_probabilities_in_float32():
    compute = jax.jit(lambda logits: route(logits, 2, True))
    weights, _, probabilities = compute(LOGITS.astype("bfloat16"))
    assert weights.dtype == probabilities.dtype == jnp.float32
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=1e-6)


def test_sigmoids_that_vanish_have_finite_weights_and_gradients():
    logits = jnp.array([[-100.0, -90.0, -120.0], [-43.0, -44.0, -60.0]])

    def weights(logits):
        return route(logits, 2, True, independent=True)[0]

    (first, second), slopes = weights(logits), jax.jacobian(weights)(logits)
    assert first.sum() < 1e-6
    np.testing.assert_allclose(second, jax.nn.sigmoid(logits[1, :2]) / 1e-18, 1e-5)
    assert jnp.isfinite(slopes).all()

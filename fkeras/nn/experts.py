"""Mixtures of experts on arrays: routing of tokens, products with kernels of several experts."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.experts import GroupedProduct
from fkeras.nn.cpu.forms import compute
from fkeras.nn.numerics.dtypes import wide_dtype

# no smaller sum divides sigmoids, which may all be 0; the gradient divides by its square
_SMALLEST = 1e-18


def route(
    logits: jax.Array,
    top_k: int,
    renormalize: bool,
    *,
    independent: bool = False,
    bias: jax.Array | None = None,
    groups: int = 1,
    top_groups: int = 1,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Chooses the `top_k` most probable experts of each token; the first of equal ones.

    Args:
        logits: array of shape (n, e): the scores of the experts for each token.
        renormalize: whether the weights of the chosen experts are divided by their sum.
        independent: whether the probabilities are sigmoids, instead of a softmax.
        bias: array of shape (e,), added to the probabilities for the choice alone.
        groups: number of groups of adjacent experts.
        top_groups: number of groups from which a token chooses: those with the largest probability, or with `bias` the
            largest sum of two.

    Returns:
        `(weights, chosen, probabilities)`, computed in float32 or float64: the weights (n, k) of the
        chosen experts, their indices (n, k), and the probabilities (n, e) of all experts.
    """
    logits = logits.astype(wide_dtype(logits.dtype))
    probabilities = jax.nn.sigmoid(logits) if independent else jax.nn.softmax(logits, axis=-1)
    if bias is not None:
        ranked = probabilities + bias.astype(logits.dtype)[None]
    else:
        # the sigmoids of large logits are equal
        ranked = logits if independent else probabilities
    if groups > 1:
        grouped = ranked.reshape(ranked.shape[0], groups, -1)
        best = jax.lax.top_k(grouped, 1 if bias is None else 2)[0]
        kept = jax.lax.top_k(jnp.sum(best, axis=-1), top_groups)[1]
        is_kept = jnp.any(kept[:, :, None] == jnp.arange(groups)[None, None], axis=1)
        ranked = jnp.where(is_kept[:, :, None], grouped, -jnp.inf).reshape(ranked.shape)
    weights, chosen = jax.lax.top_k(ranked, top_k)
    if ranked is not probabilities:
        weights = jnp.take_along_axis(probabilities, chosen, axis=-1)
    if renormalize:
        total = jnp.sum(weights, axis=-1, keepdims=True)
        # the gradient of `maximum` would multiply NaN with 0
        weights = weights / (
            jnp.where(total > _SMALLEST, total, _SMALLEST) if independent else total
        )
    return weights, chosen, probabilities


def balance(
    probabilities: jax.Array, chosen: jax.Array, mask: jax.Array | None = None
) -> jax.Array:
    """Computes the load balancing loss: `e * sum(share of tokens * mean probability)` over the experts.

    The loss is `top_k` if all experts receive equal numbers of tokens, and larger otherwise.

    Args:
        probabilities: array of shape (n, e).
        chosen: array of shape (n, k): the indices of the chosen experts.
        mask: Boolean array of shape (n,); False excludes a token.

    References:
        Fedus, Zoph and Shazeer, Switch transformers (2021), https://arxiv.org/abs/2101.03961
    """
    experts = probabilities.shape[-1]
    counted = jnp.sum(jax.nn.one_hot(chosen, experts, dtype=probabilities.dtype), axis=1)
    if mask is None:
        shares, means = jnp.mean(counted, axis=0), jnp.mean(probabilities, axis=0)
    else:
        kept = mask.astype(probabilities.dtype)
        # a batch of padding alone has the loss 0
        kept = kept / jnp.maximum(jnp.sum(kept), 1)
        shares, means = kept @ counted, kept @ probabilities
    return experts * jnp.sum(shares * means)


class ExpertKernels:
    """Kernels of experts, and their products with rows.

    Args:
        kernels: array of shape (e, i, o).
    """

    def __init__(self, kernels: jax.Array):
        self.kernels = kernels

    @property
    def experts(self) -> int:
        """The number of experts."""
        return self.kernels.shape[0]

    def floats(self) -> jax.Array:
        """Returns the kernels of all experts, (e, i, o)."""
        return self.kernels

    def of_rows(self, x: jax.Array, experts: jax.Array) -> jax.Array:
        """Returns the product of each row of x (n, i) with the kernel of its expert, (n, o)."""
        return jnp.einsum("nd,ndf->nf", x, jnp.take(self.kernels, experts, axis=0))

    def of_groups(self, x: jax.Array, sizes: jax.Array) -> jax.Array:
        """Returns the products (n, o) of rows sorted by expert, `sizes` (e,) of them for each expert."""
        return compute(GroupedProduct(), x, self.kernels, sizes)


def expert_products(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    gate: ExpertKernels,
    up: ExpertKernels,
    down: ExpertKernels,
    gated: Callable[[jax.Array, jax.Array], jax.Array],
    weighted_inputs: bool = False,
    biases: tuple[jax.Array, jax.Array, jax.Array] | None = None,
) -> jax.Array:
    """Computes `sum(weight * (gated(x @ gate, x @ up) @ down))` over the chosen experts.

    Each token is multiplied with the kernels of its own experts only: the tokens are sorted by
    expert, and `jax.lax.ragged_dot` multiplies each group with one kernel (on CPUs a loop). Where a call has fewer
    tokens than there are experts, as in generation, the kernels in use are gathered instead. A
    program for any number of tokens computes all experts.

    Args:
        x: tokens of shape (n, d).
        weights: array of shape (n, k).
        chosen: array of shape (n, k): the indices of the chosen experts.
        gate: kernels of shape (e, d, f).
        up: kernels of shape (e, d, f).
        down: kernels of shape (e, f, d).
        gated: product of the two hidden arrays, such as `activation(gate) * up`.
        weighted_inputs: whether the weights multiply the inputs of the experts, instead of the outputs.
        biases: arrays (e, f), (e, f) and (e, d), added to the three products of an expert; None for none.

    Returns:
        An array of shape (n, d).
    """
    top_k, expert_of_row = chosen.shape[-1], chosen.reshape(-1)
    rows = expert_of_row.shape[0]

    def added(place: int, y: jax.Array, experts: jax.Array | None = None) -> jax.Array:
        if biases is None:
            return y
        bias = biases[place]
        return y + (bias[None] if experts is None else jnp.take(bias, experts, axis=0))

    if not isinstance(rows, int):  # symbolic: the number of tokens of an exported program is open
        experts = jax.nn.one_hot(chosen, gate.experts, dtype=x.dtype)
        factors = jnp.sum(experts * weights[..., None].astype(x.dtype), axis=1)
        first, second = (jnp.einsum("nd,edf->nef", x, kernel.floats()) for kernel in (gate, up))
        if weighted_inputs:
            first, second = first * factors[..., None], second * factors[..., None]
            factors = jnp.sum(experts, axis=1)
        hidden = gated(added(0, first), added(1, second)) * factors[..., None]
        y = jnp.einsum("nef,efd->nd", hidden, down.floats())
        return y if biases is None else y + factors @ biases[2]
    copies = top_k
    if weighted_inputs:
        x = (x[:, None] * weights[..., None].astype(x.dtype)).reshape(rows, x.shape[-1])
        copies = 1
    if rows <= gate.experts:
        x, experts = jnp.repeat(x, copies, axis=0), expert_of_row
        first, second = (kernel.of_rows(x, experts) for kernel in (gate, up))
        hidden = gated(added(0, first, experts), added(1, second, experts))
        y = added(2, down.of_rows(hidden, experts), experts)
    else:
        order = jnp.argsort(expert_of_row)
        sizes = jnp.bincount(expert_of_row, length=gate.experts).astype("int32")
        x = jnp.take(x, order // copies, axis=0)
        experts = None if biases is None else expert_of_row[order]
        first, second = (kernel.of_groups(x, sizes) for kernel in (gate, up))
        hidden = gated(added(0, first, experts), added(1, second, experts))
        y = added(2, down.of_groups(hidden, sizes), experts)[jnp.argsort(order)]
    y = y.reshape(*chosen.shape, y.shape[-1])
    return jnp.sum(y if weighted_inputs else y * weights[..., None].astype(y.dtype), axis=1)

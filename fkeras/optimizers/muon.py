"""Muon: orthogonalized momentum for matrices, AdamW for all other weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, probability, real
from fkeras.engine.config.field_types import Integer, LearningRate, OptionalReal, Real, Words
from fkeras.engine.values.registry import named
from fkeras.optimizers.adam import adam_rate, adam_step
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.options import rate, words
from fkeras.optimizers.updates.numeric import root, zeros
from fkeras.optimizers.updates.paths import idle

# loops of at most this many iterations are unrolled, which lets XLA fuse the iterations
_STRAIGHT = 8


def orthogonal(x: jax.Array, a: float, b: float, c: float, steps: int) -> jax.Array:
    """Orthogonalizes a matrix approximately, by Newton-Schulz iteration.

    The result has the singular vectors of `x` and singular values near 1.

    Args:
        a: the factor of x in each step x = a x + b (x x') x + c (x x')**2 x.
    """
    tall = x.shape[-2] > x.shape[-1]
    # x x' has the size of the shorter side
    x = x.T if tall else x
    # singular values of at most 1, where the iteration converges; 1e-7 is for a zero matrix
    x = x / (root(jnp.sum(jnp.square(x))) + 1e-7)

    def step(_: int, x: jax.Array) -> jax.Array:
        square = x @ x.T
        return a * x + (b * square + c * square @ square) @ x

    x = jax.lax.fori_loop(0, steps, step, x, unroll=steps <= _STRAIGHT)
    return x.T if tall else x


def _expressions(value: object) -> tuple[str, ...]:
    patterns = words(value)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"expected regular expressions, received {pattern!r}: {error}. "
                "To match a layer's name literally, write re.escape(name)."
            ) from None
    return patterns


class Muon(Optimizer):
    """Muon: w -= rate * sqrt(longer side) * rms_rate * orthogonal(m), with a momentum m.

    AdamW trains embeddings, weights that are not matrices, and weights that match
    `exclude_layers`, which should name the output layer.

    Args:
        adam_beta_1: the decay rate of AdamW's mean gradient.
        adam_beta_2: the decay rate of AdamW's mean squared gradient.
        adam_weight_decay: the weight decay of AdamW's weights; None for no decay.
        epsilon: the number that keeps AdamW's divisor above 0.
        weight_decay: the weight decay of the matrices; None for no decay.
        exclude_layers: regular expressions; AdamW trains weights whose path contains a match.
        exclude_embeddings: whether AdamW trains weights with "embedding" in their paths.
        muon_a: the argument `a` of `orthogonal`.
        muon_b: the argument `b` of `orthogonal`.
        muon_c: the argument `c` of `orthogonal`.
        adam_lr_ratio: AdamW's learning rate as a factor of `learning_rate`.
        momentum: the share of the previous m in m.
        ns_steps: the number of iterations in `orthogonal`.
        nesterov: whether to use Nesterov momentum.
        rms_rate: the root mean square of a step's entries; None for orthogonal steps.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weights = {"dense/kernel": jnp.ones((2, 2))}
        >>> optimizer = fk.optimizers.Muon(2.0, weight_decay=None, exclude_layers=["logits"])
        >>> tx = optimizer.transformation()
        >>> gradients = {"dense/kernel": jnp.diag(jnp.array([3.0, 2.0]))}
        >>> tx.update(gradients, tx.init(weights), weights)[0]["dense/kernel"].round(2)
        Array([[-0.63, -0.  ],
               [-0.  , -0.39]], dtype=float32)

    References:
        Jordan et al. 2024, Muon, https://kellerjordan.github.io/posts/muon/
        Liu et al. 2025, Muon is Scalable for LLM Training, https://arxiv.org/abs/2502.16982
    """

    reads_weights: ClassVar[bool] = True
    _positional: ClassVar[tuple[str, ...]] = (
        *Optimizer._positional,
        "exclude_layers",
        "exclude_embeddings",
        "muon_a",
        "muon_b",
        "muon_c",
        "adam_lr_ratio",
        "momentum",
        "ns_steps",
        "nesterov",
        "rms_rate",
    )
    learning_rate: LearningRate = option(default=0.001, convert=rate)
    adam_beta_1: Real = option(default=0.9, convert=probability)
    adam_beta_2: Real = option(default=0.999, convert=probability)
    adam_weight_decay: OptionalReal = option(default=0.004, convert=real(minimum=0, optional=True))
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))
    weight_decay: OptionalReal = option(
        default=0.004, convert=real(minimum=0, optional=True), kw_only=True
    )
    exclude_layers: Words = option(default=(), convert=_expressions, kw_only=True)
    exclude_embeddings: bool = option(default=True, convert=boolean, kw_only=True)
    muon_a: Real = option(default=3.4445, convert=real(), kw_only=True)
    muon_b: Real = option(default=-4.775, convert=real(), kw_only=True)
    muon_c: Real = option(default=2.0315, convert=real(), kw_only=True)
    adam_lr_ratio: Real = option(default=1, convert=real(minimum=0), kw_only=True)
    momentum: Real = option(default=0.95, convert=probability, kw_only=True)
    ns_steps: Integer = option(default=5, convert=integer(minimum=1), kw_only=True)
    nesterov: bool = option(default=True, convert=boolean, kw_only=True)
    rms_rate: OptionalReal = option(
        default=0.2, convert=real(minimum=0, optional=True), kw_only=True
    )

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        yield from super()._idle_names(paths)
        yield from idle("Muon: exclude_layers", self.exclude_layers, paths, re.search)

    def _is_adams(self, path: str, weight: jax.Array) -> bool:
        embedding = self.exclude_embeddings and "embedding" in path.lower()
        excluded = any(re.search(pattern, path) for pattern in self.exclude_layers)
        return weight.ndim != 2 or embedding or excluded

    def _slots_at(self, path: str, weight: jax.Array) -> dict[str, jax.Array]:
        slots = {"momentum": zeros(weight)}
        # `step` has no path, so a slot "velocity" marks the weights of AdamW
        return slots | {"velocity": zeros(weight)} if self._is_adams(path, weight) else slots

    def _decay_at(
        self, path: str, weight: jax.Array, rate: jax.Array, decay: jax.Array | None
    ) -> Any:
        if self._is_adams(path, weight):
            decay = None if self.adam_weight_decay is None else rate * self.adam_weight_decay
        return super()._decay_at(path, weight, rate, decay)

    def prepare(self, rate, count):
        betas = (self.adam_beta_1, self.adam_beta_2)
        return rate, adam_rate(rate * self.adam_lr_ratio, count, *betas)

    def step(self, gradient, weight, slots, rate, count):
        rate, alpha = rate
        if "velocity" in slots:
            betas = (self.adam_beta_1, self.adam_beta_2)
            return adam_step(gradient, slots, alpha, *betas, self.epsilon)
        # momentum * m + gradient, in Keras's order of operations for equal rounding
        m = slots["momentum"] + (gradient + slots["momentum"] * (self.momentum - 1.0))
        direction = gradient + self.momentum * m if self.nesterov else m
        step = orthogonal(direction, self.muon_a, self.muon_b, self.muon_c, self.ns_steps)
        size = 1.0 if self.rms_rate is None else math.sqrt(max(step.shape)) * self.rms_rate
        return -(rate * step) * size, {"momentum": m}


OPTIMIZERS = (named(Muon, "muon"),)

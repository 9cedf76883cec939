"""`ScoredAttention`: base class of `Attention` and `AdditiveAttention`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import choice, integer, probability
from fkeras.engine.config.field_types import OptionalInteger, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.nn.attention import both, causal_mask
from fkeras.nn.noise import dropout
from fkeras.nn.softmax import masked_softmax


def query_value_key(where: str, inputs: Any) -> tuple[Any, Any, Any]:
    """Unpacks a list of two or three inputs; the value is the default of the key.

    Raises:
        ValueError: for anything but a list of two or three inputs.

    Example:
        >>> query_value_key("attention", ["q", "v"])
        ('q', 'v', 'v')
    """
    if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
        received = f"a list of {len(inputs)}" if isinstance(inputs, list | tuple) else "one tensor"
        raise ValueError(
            f"{where}: expected a list [query, value] or [query, value, key], received {received}. "
            "For self-attention write layer([x, x])."
        )
    return inputs[0], inputs[1], inputs[-1]


def query_value_masks(where: str, mask: Any) -> tuple[Any, Any]:
    """Unpacks the masks of query and value; each mask may be None.

    Raises:
        ValueError: for anything but None or a list of two or three masks.
    """
    if mask is None:
        return None, None
    if not isinstance(mask, list | tuple) or len(mask) not in (2, 3):
        raise ValueError(
            f"{where}: expected a mask for each input, [query_mask, value_mask], received "
            f"{type(mask).__name__}. Give None for an input without a mask."
        )
    return mask[0], mask[1]


class ScoredAttention(Layer):
    """Computes means of values, weighted by a softmax of the scores that a subclass computes.

    The fields of a subclass that come first in Keras's order of arguments stand in a base class on
    the right of this class.

    Args of the family:
        dropout: probability of dropping an attention weight in training.
        seed: folded into the key of each call; None uses the key alone.
        empty_rows: result for queries that attend to no key: "zeros", or "keras" for the mean of
            all values, as in Keras. Layers from Keras's files have "keras". Keyword only.

    Call of the family:
        mask: [query_mask, value_mask], of shapes (b, t) and (b, s).
        return_attention_scores: whether to also return the attention weights (b, t, s).
        use_causal_mask: whether step t attends only to the steps up to t.
    """

    dropout: Real = option(default=0.0, convert=probability)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    empty_rows: str = option(default="zeros", convert=choice("zeros", "keras"), kw_only=True)

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[KerasForm] = KerasForm(option_names=("mask",))

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns the scores (b, t, s) of a query (b, t, d) and a key (b, s, d)."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return without_default_rows(super().get_config())

    def forward(
        self,
        context: Context,
        inputs: Any,
        *,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Output:
        query, value, key = query_value_key(self._where, inputs)
        query_mask, value_mask = query_value_masks(self._where, context.mask)
        check_widths(self._where, (query.shape, key.shape))
        logits = self._scores(query, key)
        mask = None if value_mask is None else _boolean(value_mask)[..., None, :]
        if use_causal_mask:
            steps = causal_mask(*logits.shape[-2:])
            mask = both(mask, jnp.reshape(steps, (*(1,) * (logits.ndim - 2), *steps.shape)))
        weights = masked_softmax(logits, mask)
        if self.empty_rows == "keras" and mask is not None and value.shape[-2] != 0:
            # Keras subtracts a constant from masked scores: a fully masked row gives equal weights
            empty_rows = jnp.logical_not(jnp.any(mask, axis=-1, keepdims=True))
            weights = jnp.where(
                empty_rows, jnp.asarray(1 / value.shape[-2], weights.dtype), weights
            )
        if context.training and self.dropout > 0:
            dropout_key = context.key if self.seed is None else subkey(context.key, self.seed)
            weights = dropout(dropout_key, weights, self.dropout)
        y = jnp.einsum("...ts,...sd->...td", weights, value)
        if query_mask is not None:
            # Keras multiplies by the mask; `where` also stops NaN at masked steps
            y = jnp.where(_boolean(query_mask)[..., None], y, jnp.zeros_like(y))
        if return_attention_scores:
            return Output((y, weights), mask=(query_mask, None))
        return Output(y, mask=query_mask)


def check_widths(where: str, shapes: Sequence[Sequence[Any]]) -> None:
    """Raises an error if the last axes of query and key have different known sizes."""
    query, key = shapes[0][-1], shapes[-1][-1]
    if isinstance(query, int) and isinstance(key, int) and query != key:
        raise ValueError(
            f"{where}: expected query and key with last axes of one size, received {query} and "
            f"{key}. Project the query or the key to the size of the other, for example with "
            f"Dense({query})."
        )


def without_default_rows(config: dict[str, Any]) -> dict[str, Any]:
    """Removes `empty_rows` at its default from a config, because Keras lacks this argument."""
    if config.get("empty_rows") == "zeros":
        del config["empty_rows"]
    return config


def _boolean(mask: jax.Array) -> jax.Array:
    return mask if mask.dtype == jnp.bool_ else mask != 0

"""`SoftPrompt`: learned vectors of virtual tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.adapters.adapter import Adapter, as_float64
from fkeras.layers.adapters.kernels import float_layer, kernel_of
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding


class SoftPrompt(Adapter):
    """Trains the vectors of `length` virtual tokens next to a frozen embedding table.

    The virtual tokens have the ids `v` to `v + length - 1`, where `v` is the size of the table.
    Prepend these ids, `prompt_ids`, to the ids of a text. Positions, masks and caches treat virtual
    tokens like other tokens. Logits from tied weights have no columns for virtual tokens.

    Adapts `Embedding` and `ReversibleEmbedding`, with float or quantized weights.

    Args:
        length: number of virtual tokens.
        prompt_initializer: draws the vectors.

    Shapes:
        those of the frozen layer; prompt (length, d).

    Raises:
        ValueError: where `length` is not a positive integer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((None,), dtype="int32"), fk.layers.Embedding(9, 4, name="table")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "table", transforms.SoftPrompt(2), jax.random.key(1))
        >>> adapted.layers["table"].prompt_ids
        Array([ 9, 10], dtype=int32)
        >>> ids = jnp.array([[9, 10, 3, 1]])
        >>> adapted(ids).shape
        (1, 4, 4)

    References:
        Lester et al., The power of scale for parameter-efficient prompt tuning (2021),
        https://arxiv.org/abs/2104.08691
    """

    length: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    prompt_initializer: fk.Initializer = fk.option(default="uniform", convert=fk.initializer)

    prompt: jax.Array = fk.weight(axes="_d")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    def refusal(self, layer: Any) -> str | None:
        kernel = kernel_of(layer)
        if kernel is None or not kernel.is_table:
            return "a SoftPrompt adapts Embedding and ReversibleEmbedding"
        return None

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        return {"prompt": (self.length, float_layer(layer).output_dim)}

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        return self.with_weights(key, **self.expects(layer))

    def before(self, layer: fk.Layer, x: Any) -> Any:
        count = float_layer(layer).input_dim
        # not id 0: with `mask_zero` it is padding
        return jnp.where(self._is_virtual(count, x), jnp.asarray(count - 1, x.dtype), x)

    def _is_virtual(self, count: int, x: jax.Array) -> jax.Array:
        return (x >= count) & (x < count + self.length)

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        if reverse:
            return y
        count = float_layer(layer).input_dim
        rows = jnp.clip(x.astype("int32") - count, 0, self.length - 1)
        vectors = jnp.take(self.prompt, rows, axis=0).astype(y.dtype)
        return jnp.where(self._is_virtual(count, x)[..., None], vectors, y)

    def merged(self, layer: Any) -> dict[str, Any]:
        if type(layer) is ReversibleEmbedding:
            raise ValueError(
                "merge_adapters: a SoftPrompt in a ReversibleEmbedding would add columns to the logits. "
                "Keep the adapted model."
            )
        table = np.concatenate([as_float64(layer.embeddings), as_float64(self.prompt)])
        return {"embeddings": table, "input_dim": layer.input_dim + self.length}

"""`Positions`: the position of each token in its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.attention.score_masks import as_booleans
from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape


def count_positions(valid: jax.Array, segments: jax.Array | None = None) -> jax.Array:
    """Returns the position of each token: 0, 1, ... from the start of its segment, -1 at padding.

    Args:
        valid: Booleans (b, t), False at padding.
        segments: integers (b, t); a position restarts where the number changes.
    """
    count = jnp.cumsum(valid, axis=1, dtype="int32")
    if segments is not None:
        changes = segments[:, 1:] != segments[:, :-1]
        # the number of tokens before each segment; counts grow, so the largest is the latest
        before = jnp.where(changes, count[:, :-1], 0)
        before = jnp.concatenate([jnp.zeros_like(count[:, :1]), before], axis=1)
        count = count - jax.lax.cummax(before, axis=1)
    return jnp.where(valid, count - 1, -1)


def given_or_counted(where: str, time: Any, positions: Any, start_index: Any) -> jax.Array:
    """Returns positions that a call was given, after checks, or the numbers from `start_index` on.

    Args:
        time: number of tokens of a row.
        positions: integers (t,) or (b, t), or None.

    Raises:
        FKerasError: for positions of another shape, and for floats.
    """
    if positions is None:
        return jnp.arange(time) + start_index
    if positions.ndim not in (1, 2) or positions.shape[-1] != time:
        raise fk.FKerasError(
            f"{where}: expected positions (t,) or (b, t) for {time} tokens of a row, received "
            f"{format_shape(positions.shape)}."
        )
    # a layer casts floats to its compute dtype, and bfloat16 is exact up to 256 only
    if not jnp.issubdtype(positions.dtype, jnp.integer):
        raise fk.FKerasError(
            f"{where}: expected integers for positions, received {positions.dtype}. Write "
            "positions.astype('int32')."
        )
    return positions


class Positions(fk.KeepsTokens, fk.Layer):
    """Counts the tokens of each row: 0, 1, 2, ..., restarting with each segment, -1 at padding.

    Rotary positions, masks and caches of the other attention layers compare these numbers. Padding
    is where the mask of the ids is False, and where the segment is 0.

    With a cache, `layer.init_cache(batch, length)`, the layer continues to count from the tokens of
    earlier calls: the state is `{"length": (b,)}`. Padding is not counted, so rows have their own
    lengths.

    Call:
        segments: integers (b, t), numbers of the texts that are packed in a row; 0 is padding. Only
            without a cache.

    Shapes:
        ids (b, t), or (b, t, ...), -> (b, t) int32.

    Raises:
        ValueError: for inputs without a time axis, segments of another shape, and segments beside
            a cache.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Positions()
        >>> layer(jnp.array([[7, 8, 9]]), jnp.array([[1, 1, 2]]))
        Array([[0, 1, 0]], dtype=int32)
        >>> state = layer.init_cache(1, 16)
        >>> state = state | layer.apply(jnp.array([[7, 8, 9]]), state=state).updates
        >>> layer.apply(jnp.array([[4]]), state=state).value
        Array([[3]], dtype=int32)
    """

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "fkeras.layers"
    # a cache belongs to a batch of texts, not to the model: files and lists of weights leave it out
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(stores_state=False)
    _autocast: ClassVar[bool] = False

    if not TYPE_CHECKING:  # callers use the signature of `Layer`

        def init_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
            return {"length": jnp.zeros(size.batch, "int32")}

    def reset_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state of rows without tokens."""
        return {name: jnp.zeros_like(entry) for name, entry in state.items()}

    def _keeps_tokens(self, inputs: tuple) -> bool:
        return True

    def _lengths_after(self, state: Mapping[str, Any], inputs: tuple, mask: fk.Tree) -> Any:
        masks = mask if isinstance(mask, list | tuple) else (mask,)
        values = state.get("length"), inputs[0], masks[0]
        if values[0] is None or values[1] is None or any(isinstance(v, Tracer) for v in values):
            return None
        ids, valid = values[1:]
        if ids.ndim < 2 or values[0].shape != ids.shape[:1]:  # `forward` reports these
            return None
        new = ids.shape[1] if valid is None else np.sum(np.asarray(valid) != 0, axis=1)
        return np.asarray(values[0]) + new

    def forward(
        self, context: fk.Context, ids: jax.Array, segments: jax.Array | None = None
    ) -> fk.Output:
        if ids.ndim < 2:
            raise fk.FKerasError(
                f"{self._where}: expected ids of shape (b, t), received {format_shape(ids.shape)}. "
                "Add the missing axis: ids[None]."
            )
        (mask,) = context.input_masks(1)
        if mask is not None and tuple(mask.shape) != tuple(ids.shape[:2]):
            raise fk.FKerasError(
                f"{self._where}: expected a mask for each token, {format_shape(ids.shape[:2])}, received a "
                f"mask of shape {format_shape(mask.shape)}."
            )
        valid = jnp.ones(ids.shape[:2], bool) if mask is None else as_booleans(mask)
        if segments is not None:
            if tuple(segments.shape) != tuple(ids.shape[:2]):
                raise fk.FKerasError(
                    f"{self._where}: expected a segment for each token, {format_shape(ids.shape[:2])}, "
                    f"received segments of shape {format_shape(segments.shape)}."
                )
            if context.state:
                raise fk.FKerasError(
                    f"{self._where}: expected no segments beside a cache, received segments of shape "
                    f"{format_shape(segments.shape)}. A row of a cache holds one text: give each text "
                    "a row of its own."
                )
            valid = valid & (segments != 0)
        positions = count_positions(valid, segments)
        if not context.state:
            return fk.Output(positions, mask=mask)
        length = context.state["length"]
        if length.shape != ids.shape[:1]:
            raise fk.FKerasError(
                f"{self._where}: expected ids for the {length.shape[0]} rows of the cache, received "
                f"{format_shape(ids.shape)}. Make a state for this batch: init_cache({ids.shape[0]}, length)."
            )
        positions = jnp.where(valid, positions + length[:, None], -1)
        length = length + jnp.sum(valid, axis=1, dtype="int32")
        return fk.Output(positions, {**context.state, "length": length}, mask=mask)

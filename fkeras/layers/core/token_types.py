"""`TokenTypes`: types of tokens that a call may leave out."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


class TokenTypes(fk.Layer):
    """Returns the type of each token, 0 for all tokens where a call gives none.

    Encoders such as BERT add an embedding of the types, which number the texts of a pair.

    Call:
        types: integers (b, t), or None.

    Shapes:
        ids (b, t) -> (b, t) int32.

    Raises:
        ValueError: for types of another shape than that of the ids.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.TokenTypes()(jnp.array([[5, 9, 7]]))
        Array([[0, 0, 0]], dtype=int32)
    """

    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False

    def forward(
        self, context: fk.Context, ids: jax.Array, types: jax.Array | None = None
    ) -> fk.Output:
        (mask,) = context.input_masks(1)
        if types is None:
            return fk.Output(jnp.zeros(ids.shape, "int32"), mask=mask)
        if types.shape != ids.shape:
            raise ValueError(
                f"{self._where}: expected a type for each token, shape {ids.shape}, received "
                f"{types.shape}. Number the texts of each row from 0."
            )
        return fk.Output(types.astype("int32"), mask=mask)

"""`CategoryEncoding`: encodes ids as one-hot vectors, multi-hot vectors or counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.node import symbolic_arguments
from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.preprocessing.encoding import INVALID, encode, output_mode
from fkeras.layers.preprocessing.host import as_data, reject_sparse
from fkeras.nn.numerics.indices import valid_indices


class CategoryEncoding(fk.Layer):
    """Encodes each id, or all ids of a sample, as a vector of size `num_tokens`.

    The layer works on the device, inside jit and in a graph. An id that is not an integer from 0
    to `num_tokens - 1` raises an error in a call outside of jit, where its value is concrete. In a
    compiled program the vector of the id, or of its sample, is NaN (0 in Keras).

    Args:
        num_tokens: number `v` of ids.
        output_mode: "one_hot" for a vector per id, "multi_hot" for a vector per sample with a 1
            for each id that occurs, "count" for a vector per sample with the counts of the ids.
        sparse: must be False: JAX's arrays are dense.

    Shapes:
        (b, n) -> (b, v); "one_hot": (b, n) -> (b, n, v), and (b, 1) -> (b, v). A sample is the
        last axis, at any rank (axis 1 in Keras, which differs for three or more axes). The call's
        option `count_weights` has the shape of the ids.

    Raises:
        ValueError: for ids out of range, and for `count_weights` in another mode than "count".

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.CategoryEncoding(4, output_mode="count")
        >>> layer([[0, 1], [3, 3]])
        Array([[1., 1., 0., 0.],
               [0., 0., 0., 2.]], dtype=float32)
        >>> layer([[0, 1]], count_weights=[[0.5, 2.0]])
        Array([[0.5, 2. , 0. , 0. ]], dtype=float32)
    """

    num_tokens: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    output_mode: str = fk.option(
        default="multi_hot",
        convert=output_mode("one_hot", "multi_hot", "count"),
    )
    sparse: bool = fk.option(default=False, convert=fk.boolean)

    # half precision would round ids to other ids
    _autocast: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_sparse(self.sparse, self._where)

    def apply(
        self,
        *inputs: fk.Tree,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: jax.Array | None = None,
        mask: fk.Tree = None,
        **options: fk.Option,
    ) -> fk.Output:
        """Returns the `Output` of the layer; converts lists to arrays and checks concrete ids."""
        if not symbolic_arguments(inputs, options, mask):
            inputs = tuple(as_data(x, self._where) for x in inputs)
            options = {
                k: None if v is None else as_data(v, self._where) for k, v in options.items()
            }
            for ids in inputs:
                self._check_range(ids)
        return super().apply(*inputs, state=state, training=training, key=key, mask=mask, **options)

    @property
    def id_count(self) -> int:
        """Number of ids; `fit` and `predict` check their inputs against this number."""
        return self.num_tokens

    def _check_range(self, ids: fk.Leaf) -> None:
        is_concrete = isinstance(ids, np.ndarray | jax.Array) and not isinstance(ids, Tracer)
        if not is_concrete or not np.issubdtype(ids.dtype, np.number) or ids.size == 0:
            return
        reject_fractions(ids, self._where)
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.num_tokens:
            raise ValueError(
                f"{self._where}: expected ids from 0 to {self.num_tokens - 1}, received "
                f"{low if low < 0 else high}. Raise num_tokens, or map ids of any size to this "
                "range with IntegerLookup."
            )

    def call(self, ids: jax.Array, count_weights: jax.Array | None = None) -> jax.Array:
        if count_weights is not None:
            if self.output_mode != "count":
                raise ValueError(
                    f"{self._where}: expected count_weights=None with "
                    f"output_mode={self.output_mode!r}, received an array. Leave it out, or choose "
                    "output_mode='count'."
                )
            if count_weights.shape != ids.shape:
                raise ValueError(
                    f"{self._where}: expected count_weights of the shape of the ids, {ids.shape}, "
                    f"received {count_weights.shape}. Give one weight per id."
                )
        indices, valid = valid_indices(ids, self.num_tokens)
        dtype = self.policy.compute_dtype
        # a compiled program cannot raise an error: INVALID becomes NaN in the result
        indices = jnp.where(valid, indices, INVALID)
        return encode(indices, self.num_tokens, self.output_mode, dtype, count_weights)

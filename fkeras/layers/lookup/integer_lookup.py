"""`IntegerLookup`: maps integers to vocabulary indices, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.lookup.lookup import MODES, LookupLayer, floats, two_integers
from fkeras.layers.lookup.vocabulary import find, in_order, integers_of
from fkeras.layers.preprocessing.encoding import INVALID, NOTHING, output_mode
from fkeras.layers.preprocessing.host import as_data
from fkeras.nn.hashing.decimals import as_int32, hash_integers
from fkeras.nn.hashing.fingerprints import hash_strings

_convert = integers_of("IntegerLookup: vocabulary")
_INT32, _INT64 = np.iinfo("int32"), np.iinfo("int64")


class IntegerLookup(LookupLayer):
    """Computes the vocabulary index of each integer; with `invert` the integer of each index.

    The layer works on the device, inside jit and in a graph, by binary search in the sorted
    vocabulary. Lists and NumPy arrays are looked up on the host, in 64 bits, and give NumPy
    arrays. The vocabulary is part of the layer's value; `adapt` returns a copy with a learned
    vocabulary. With `num_oov_indices=0` the host rejects unknown integers; the device cannot raise
    an error, and returns -1, or a vector of NaN. The host rejects fractions; on the device
    fractions are unknown integers.

    Args:
        num_oov_indices: number of indices for unknown integers; 0 rejects unknown integers.
        mask_token: integer of padding: index 0 in the output mode "int", dropped in other modes.
        vocabulary_dtype: "int64", as in Keras.
        invert: whether to map indices to integers of the vocabulary.
        oov_method: how to select one of several indices for an unknown integer: "floormod" by the
            remainder, "farmhash" by a hash of the decimal form.
        salt: one or two integers, the key of SipHash instead of FarmHash; only with "farmhash".

    Shapes:
        (...) -> (...) of int32; "one_hot": (b, n) -> (b, n, v), and (b, 1) -> (b, v); otherwise
        (..., n) -> (..., v).

    Raises:
        ValueError: for repeated tokens, a vocabulary larger than `max_tokens`, unknown integers on
            the host with `num_oov_indices=0`, and in a call before `adapt`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.IntegerLookup(vocabulary=[12, 36, 1138])
        >>> layer([[1138, 7]])
        array([[3, 0]], dtype=int32)
        >>> jax.jit(layer)(jnp.array([[1138, 7]]))
        Array([[3, 0]], dtype=int32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    max_tokens: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=2, optional=True)
    )
    num_oov_indices: fk.Integer = fk.option(
        default=1, convert=fk.integer(minimum=0, maximum=1 << 20)
    )
    mask_token: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    oov_token: fk.OptionalInteger = fk.option(default=-1, convert=fk.integer(optional=True))
    vocabulary: fk.IntegerVocabulary = fk.option(default=None, convert=_convert)
    vocabulary_dtype: str = fk.option(default="int64", convert=fk.choice("int64"))
    idf_weights: fk.OptionalReals = fk.option(default=None, convert=floats)
    invert: bool = fk.option(default=False, convert=fk.boolean)
    output_mode: str = fk.option(default="int", convert=output_mode(*MODES))
    sparse: bool = fk.option(default=False, convert=fk.boolean)
    pad_to_max_tokens: bool = fk.option(default=False, convert=fk.boolean)
    oov_method: str = fk.option(default="floormod", convert=fk.choice("floormod", "farmhash"))
    salt: fk.OptionalPair = fk.option(default=None, convert=two_integers)

    convert_vocabulary: ClassVar[Any] = staticmethod(_convert)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.salt is not None and self.oov_method != "farmhash":
            raise ValueError(
                f"{self._where}: expected salt=None with oov_method='floormod', which uses no hash, "
                "received a salt. Choose oov_method='farmhash'."
            )

    # Host

    def _integers(self, data: fk.Tree) -> np.ndarray:
        array = np.asarray(as_data(data, self._where))
        if array.dtype.kind not in "iuf":
            raise TypeError(
                f"{self._where}: expected integers, received an array of {array.dtype}. For strings "
                "use StringLookup."
            )
        reject_fractions(array, self._where)
        if array.dtype.kind == "u" and array.size and int(array.max()) > _INT64.max:
            raise ValueError(
                f"{self._where}: expected signed 64-bit integers, received {int(array.max())}. Map "
                "the integers into this range first."
            )
        return array.astype("int64")

    def on_host(self, x: np.ndarray) -> np.ndarray:
        ids, start = self._integers(x), self._token_start
        keys, positions = in_order(self._tokens)
        if self.invert:
            return self._invert(ids, np)
        in_vocabulary, position = find(ids, keys, positions, np)
        masked = np.zeros(ids.shape, bool) if self.mask_token is None else ids == self.mask_token
        if self.num_oov_indices == 0 and not (in_vocabulary | masked).all():
            self._reject_unknown(ids[~(in_vocabulary | masked)].tolist())
        buckets = self.num_oov_indices
        oov_indices = np.full(ids.shape, self._oov_start if buckets else -1)
        if buckets > 1 and self.oov_method == "floormod":
            oov_indices = oov_indices + ids % buckets
        elif buckets > 1:
            hashes = hash_strings([b"%d" % i for i in ids.ravel().tolist()], self.salt)
            offsets = (hashes % np.uint64(buckets)).astype("int64")
            oov_indices = oov_indices + offsets.reshape(ids.shape)
        indices = np.where(
            masked, self._no_index, np.where(in_vocabulary, position + start, oov_indices)
        )
        return self._encode_on_host(indices)

    def _invert(self, ids: fk.Leaf, xp: Any) -> Any:
        assert self.oov_token is not None  # `__post_init__` requires the token with invert=True
        values = np.array(self._tokens and self.get_vocabulary(), "int64")
        all_values = np.append(values, self.oov_token)
        # int32 if possible, so that host and device return the same dtype
        fits_int32 = all_values.min() >= _INT32.min and all_values.max() <= _INT32.max
        if fits_int32:
            values = values.astype("int32")
        elif xp is jnp:
            raise ValueError(
                f"{self._where}: the vocabulary has integers beyond int32, so invert=True works "
                "only on the host: pass the indices as a NumPy array, outside of jit."
            )
        oov = xp.asarray(self.oov_token, values.dtype)
        in_range = (ids >= 0) & (ids < len(values))
        return xp.where(in_range, xp.asarray(values)[xp.where(in_range, ids, 0)], oov)

    def documents(self, batch: fk.Tree, whole: bool) -> Iterable[list[int]]:
        array = self._integers(batch)
        rows = array.reshape(array.shape if array.ndim > 1 else (-1, 1) if whole else (1, -1))
        return [row.ravel().tolist() for row in rows]

    # Device

    def call(self, x: jax.Array) -> jax.Array:
        ids = as_int32(x, self._where)
        if jnp.issubdtype(x.dtype, jnp.floating):
            # a fraction equals no integer of the vocabulary, so it gets an index for unknowns
            is_integer = jnp.isfinite(x) & (x == jnp.floor(x))
            ids = jnp.where(is_integer, ids, _INT32.min)
        if self.invert:
            return self._invert(ids, jnp)
        tokens, start = in_order(self._tokens), self._token_start
        # an int32 input cannot equal tokens beyond int32
        fits = (tokens[0] >= _INT32.min) & (tokens[0] <= _INT32.max)
        keys, positions = (array[fits].astype("int32") for array in tokens)
        buckets = self.num_oov_indices
        unknown_index = NOTHING if self.output_mode == "int" else INVALID
        indices = jnp.full_like(ids, self._oov_start if buckets else unknown_index)
        if buckets > 1 and self.oov_method == "floormod":
            indices = indices + ids % buckets
        elif buckets > 1:
            indices = indices + hash_integers(ids, self.salt).remainder(buckets)
        if len(keys):
            in_vocabulary, position = find(ids, jnp.asarray(keys), jnp.asarray(positions), jnp)
            indices = jnp.where(in_vocabulary, position + start, indices)
        if self.mask_token is not None and _INT32.min <= self.mask_token <= _INT32.max:
            indices = jnp.where(ids == self.mask_token, self._no_index, indices)
        return self._encode(indices)

"""`StringLookup`: maps strings to vocabulary indices, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.lookup.lookup import MODES, LookupLayer, floats, two_integers
from fkeras.layers.lookup.vocabulary import as_array, strings_of, table
from fkeras.layers.preprocessing.encoding import output_mode
from fkeras.layers.preprocessing.host import StringMap, as_data, encoding_name, read_strings
from fkeras.nn.hashing.fingerprints import hash_strings

_convert = strings_of("StringLookup: vocabulary")


def find_strings(
    texts: list[str],
    tokens: tuple[str, ...],
    start: int,
    special: Mapping[str, int],
    buckets: int,
    oov_start: int,
    salt: tuple[int, int] | None = None,
) -> np.ndarray:
    """Returns the index of each string; unknown strings get -1, or an index for unknown strings.

    Args:
        buckets: number of indices for unknown strings; a hash selects one of them.

    Returns:
        An array of int64 of shape (len(texts),).
    """
    positions_by_token = table(tokens)
    positions = np.array([positions_by_token.get(token, -1) for token in texts], np.int64)
    ids = np.where(positions >= 0, positions + start, oov_start if buckets == 1 else -1)
    for token, index in special.items():
        ids[[row for row, string in enumerate(texts) if string == token]] = index
    # hash only unknown strings: hashing costs far more than the dictionary lookup
    if buckets > 1:
        unknown = [i for i in np.flatnonzero(positions < 0) if texts[i] not in special]
        hashes = hash_strings([texts[i].encode() for i in unknown], salt)
        ids[unknown] = (hashes % np.uint64(buckets)).astype(np.int64) + oov_start
    return ids


class StringLookup(StringMap, LookupLayer):
    """Computes the vocabulary index of each string; with `invert` the string of each index.

    The layer works on the host, on strings, lists of strings, and NumPy arrays of str or bytes,
    and returns NumPy arrays. A graph may start with the layer, as in
    `layer(fk.Input((), dtype="string"))`. Inside jit, strings do not exist. The vocabulary is part
    of the layer's value; `adapt` returns a copy with a learned vocabulary.

    Args:
        num_oov_indices: number of indices for unknown strings; 0 rejects unknown strings. A hash
            selects one of several indices.
        mask_token: string of padding: index 0 in the output mode "int", dropped in other modes.
        invert: whether to map indices to strings.
        salt: one or two integers, the key of SipHash for unknown strings; None for FarmHash.

    Shapes:
        (...) -> (...) of int32; "one_hot": (b, n) -> (b, n, v), and (b, 1) -> (b, v); otherwise
        (..., n) -> (..., v).

    Raises:
        ValueError: for repeated tokens, a vocabulary larger than `max_tokens`, unknown strings with
            `num_oov_indices=0`, and in a call before `adapt`.
        FKerasError: inside jit and on symbolic tensors.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.StringLookup(vocabulary=["cat", "dog"])
        >>> layer([["dog", "cow"]])
        array([[2, 0]], dtype=int32)
        >>> fk.layers.StringLookup(vocabulary=layer.get_vocabulary(), invert=True)([2, 0])
        array(['dog', '[UNK]'], dtype='<U5')
        >>> fk.layers.StringLookup().adapt(["b", "a", "a"]).get_vocabulary()
        ['[UNK]', 'a', 'b']
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "salt")

    max_tokens: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=2, optional=True)
    )
    num_oov_indices: fk.Integer = fk.option(
        default=1, convert=fk.integer(minimum=0, maximum=1 << 20)
    )
    mask_token: str | None = fk.option(default=None, convert=fk.text(empty=True, optional=True))
    oov_token: str | None = fk.option(default="[UNK]", convert=fk.text(empty=True, optional=True))
    vocabulary: fk.Vocabulary = fk.option(default=None, convert=_convert)
    idf_weights: fk.OptionalReals = fk.option(default=None, convert=floats)
    invert: bool = fk.option(default=False, convert=fk.boolean)

    @property
    def _sample_texts(self) -> tuple[str, str]:
        # without indices for unknown strings, a call takes words of the vocabulary alone
        if self.num_oov_indices == 0 and self.vocabulary:
            return (str(self._tokens[0]), str(self._tokens[-1]))
        return super()._sample_texts

    output_mode: str = fk.option(default="int", convert=output_mode(*MODES))
    pad_to_max_tokens: bool = fk.option(default=False, convert=fk.boolean)
    sparse: bool = fk.option(default=False, convert=fk.boolean)
    encoding: str = fk.option(default="utf-8", convert=encoding_name)
    salt: fk.OptionalPair = fk.option(default=None, convert=two_integers)

    convert_vocabulary: ClassVar[Any] = staticmethod(_convert)

    def on_host(self, x: np.ndarray) -> np.ndarray:
        if self.invert:
            return self._invert(x)
        texts = read_strings(x, self.encoding, self._where)
        special = {} if self.mask_token is None else {self.mask_token: self._no_index}
        ids = find_strings(
            texts,
            self._tokens,
            self._token_start,
            special,
            self.num_oov_indices,
            self._oov_start,
            self.salt,
        )
        if self.num_oov_indices == 0 and (ids < 0).any():
            unknown = [t for t, i in zip(texts, ids, strict=True) if i < 0 and t not in special]
            if unknown:
                self._reject_unknown(unknown)
        return self._encode_on_host(ids.reshape(x.shape))

    def _invert(self, ids: np.ndarray) -> np.ndarray:
        if ids.dtype.kind not in "iu":
            raise TypeError(
                f"{self._where}: invert=True maps integers to strings, received {ids.dtype}. Give "
                "the indices that the layer without invert returned."
            )
        assert self.oov_token is not None  # `__post_init__` requires the token with invert=True
        names = as_array((*self._special, *self._tokens))
        in_range = (ids >= 0) & (ids < len(names))
        return np.where(in_range, names[np.where(in_range, ids, 0)], self.oov_token)

    def documents(self, batch: fk.Tree, whole: bool) -> Iterable[list[str]]:
        array = np.asarray(as_data(batch, self._where))
        texts = np.array(read_strings(array, self.encoding, self._where), object)
        rows = texts.reshape(array.shape if array.ndim > 1 else (-1, 1) if whole else (1, -1))
        return [row.ravel().tolist() for row in rows]

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # Keras writes `oov_method` for strings too, without effect
        return super().from_config(
            {key: value for key, value in config.items() if key != "oov_method"}, custom_objects
        )

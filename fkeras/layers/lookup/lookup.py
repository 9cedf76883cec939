"""`LookupLayer`: base class of layers with a vocabulary.

The vocabulary and its weights are static configuration: `adapt` and `set_vocabulary` return copies,
and JSON contains the tokens. The first indices are those of the mask token (in the output mode
"int") and of the out-of-vocabulary tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.migration_hints.dropped import returned
from fkeras.layers.common import authoring as fk
from fkeras.layers.lookup import vocabulary as vocabularies
from fkeras.layers.preprocessing.batches import is_whole, iterate
from fkeras.layers.preprocessing.encoding import encode, encode_on_host
from fkeras.layers.preprocessing.host import HostLayer

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")
# resource limit of the number of indices for unknown tokens
_OOV = 1 << 20
# keys of Keras's config that are not constructor arguments
_WRITTEN = ("vocabulary_size", "has_input_vocabulary")


_pair = fk.several(fk.integer(), "an integer or a pair of integers", single=True, optional=True)


def two_integers(value: fk.Field) -> tuple[int, int] | None:
    """Converts the salt of a hash: two integers, one integer for both, or None."""
    pair = _pair(value)
    if pair is not None and len(pair) > 2:
        raise ValueError(
            f"expected an integer or a pair of integers, received {value!r}. Give the key of the "
            "hash, such as (133, 137), or None for a hash without a key."
        )
    return None if pair is None else (pair[0], pair[-1])


_numbers = fk.numeric(optional=True)


def floats(value: fk.Field) -> tuple[float, ...] | None:
    """Converts token weights: numbers in a list or an array, or None."""
    numbers = _numbers(value)
    array = np.asarray(getattr(numbers, "array", numbers))
    if numbers is not None and array.ndim != 1:
        raise ValueError(f"expected a list of numbers, received {fk.describe_value(value)}.")
    return None if numbers is None else tuple(map(float, array.tolist()))


class LookupFields:
    """Types of the fields that each lookup layer declares, in its own order with its defaults."""

    max_tokens: int | None
    num_oov_indices: int
    mask_token: Any
    oov_token: Any
    vocabulary: Any
    idf_weights: tuple[float, ...] | None
    invert: bool
    output_mode: str
    sparse: bool
    pad_to_max_tokens: bool


class LookupLayer(HostLayer, LookupFields):
    """Looks up tokens in a vocabulary; a subclass declares the fields and reads the inputs.

    Args of the family:
        max_tokens: largest number of tokens for `adapt`, including the special tokens; None for no
            limit.
        oov_token: result of `invert` for an unknown index.
        vocabulary: the tokens, with or without the special tokens in front, or the path of a text
            file with one token per line, which is read immediately.
        idf_weights: a weight for each token, in the output mode "tf_idf".
        output_mode: "int" for indices; "one_hot" for a vector per token; "multi_hot", "count" and
            "tf_idf" for a vector per sample, with 1, the count, or the count times the weight for
            each token that occurs.
        pad_to_max_tokens: whether to pad vectors to the size `max_tokens`.
        encoding: encoding of bytes.
    """

    convert_vocabulary: ClassVar[Any] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad_to_max_tokens and self.max_tokens is None:
            raise ValueError(
                f"{self._where}: pad_to_max_tokens=True needs max_tokens, the size to pad to."
            )
        if self.invert and self.output_mode != "int":
            raise ValueError(
                f"{self._where}: invert=True maps indices to tokens, so output_mode must be 'int', "
                f"received {self.output_mode!r}."
            )
        if self.invert and self.oov_token is None:
            raise ValueError(
                f"{self._where}: invert=True returns oov_token for unknown indices, received "
                "oov_token=None. Give a token."
            )
        self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        weights = self.idf_weights
        if weights is not None and self.output_mode != "tf_idf":
            raise ValueError(
                f"{self._where}: expected output_mode='tf_idf' with idf_weights, received "
                f"{self.output_mode!r}. Leave them out, or change the mode."
            )
        if self.vocabulary is None:
            return
        if self.output_mode == "tf_idf" and weights is None:
            raise ValueError(
                f"{self._where}: output_mode 'tf_idf' needs one idf weight per token of the "
                "vocabulary. Give idf_weights, or compute both with adapt."
            )
        if weights is not None and len(weights) != len(self.vocabulary):
            raise ValueError(
                f"{self._where}: expected as many idf_weights as tokens, {len(self.vocabulary)}, "
                f"received {len(weights)}. Give one weight per token of the vocabulary."
            )
        tokens = self._tokens
        if len(vocabularies.table(tokens)) != len(tokens):
            seen: set = set()
            repeated = [t for t in tokens if t in seen or seen.add(t)]
            raise ValueError(
                f"{self._where}: expected unique tokens in the vocabulary, received repeated "
                f"tokens: {', '.join(map(repr, repeated[:5]))}. Remove them: "
                "list(dict.fromkeys(tokens))."
            )
        reserved = [("mask_token", self.mask_token)]
        if self.invert:
            reserved.append(("oov_token", self.oov_token))
        for name, token in reserved:
            if token is not None and token in vocabularies.table(tokens):
                raise ValueError(
                    f"{self._where}: expected a vocabulary without special tokens, received "
                    f"{name}={token!r} in it. Leave the special tokens out, or put all of them "
                    f"first: {list(self._special)}."
                )
        if self.max_tokens is not None and self.vocabulary_size() > self.max_tokens:
            raise ValueError(
                f"{self._where}: expected at most max_tokens={self.max_tokens} tokens including "
                f"special tokens, received {self.vocabulary_size()}. Raise max_tokens, or leave it "
                "out."
            )

    # Vocabulary

    @property
    def _oov_start(self) -> int:
        return int(self.mask_token is not None and self.output_mode == "int")

    @property
    def _token_start(self) -> int:
        return self._oov_start + self.num_oov_indices

    @property
    def _special(self) -> tuple:
        return (self.mask_token,) * self._oov_start + (self.oov_token,) * self.num_oov_indices

    @property
    def _tokens(self) -> tuple:
        if self.vocabulary is None:
            raise ValueError(
                f"{self._where}: has no vocabulary yet. Learn it first: `layer = "
                "layer.adapt(data)`, or give vocabulary=[...]."
            )
        # Keras accepts vocabularies with or without the special tokens in front
        return vocabularies.split_special(self.vocabulary, self._special)[1]

    @property
    def _depth(self) -> int:
        if self.pad_to_max_tokens and self.max_tokens is not None:
            return self.max_tokens
        return self.vocabulary_size()

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Returns the tokens by index, with or without the special tokens in front."""
        has_vocabulary = self.vocabulary is not None
        tokens = list(self._tokens) if has_vocabulary else []
        return [*self._special, *tokens] if include_special_tokens else tokens

    def vocabulary_size(self) -> int:
        """Returns the number of tokens, including the special tokens."""
        return self._token_start + (0 if self.vocabulary is None else len(self._tokens))

    @fk.hides_internal_frames
    def set_vocabulary(self, vocabulary: fk.Leaf, idf_weights: fk.Leaf = None) -> Self:
        """Returns a copy with this vocabulary, and with these weights in the mode "tf_idf".

        Args:
            vocabulary: the tokens, with or without the special tokens in front, or a file's path.
            idf_weights: a weight for each token.
        """
        tokens = type(self).convert_vocabulary(vocabulary)
        copy = self.replace(vocabulary=tokens, idf_weights=floats(idf_weights))
        copy._check_vocabulary()
        line = "layer = layer.set_vocabulary(vocabulary)"
        return returned(copy, f"{type(self).__name__}.set_vocabulary", line, depth=2)

    def documents(self, batch: fk.Tree, whole: bool) -> Iterable[list[Any]]:
        """Returns each document's tokens; `whole` if the batch is all the data of `adapt`."""
        raise NotImplementedError

    @fk.hides_internal_frames
    def adapt(self, data: fk.Tree, steps: int | None = None) -> Self:
        """Returns a copy with the vocabulary of the data, the most frequent tokens first.

        In the output mode "tf_idf" the copy also has the weights `log(1 + n / (1 + d))` of tokens
        that occur in `d` of `n` documents.

        Args:
            data: an array, a list, which is a single batch, or another iterable of batches. A row
                is a document, and so is a batch with one axis.
            steps: number of batches to read from an iterable; None for all.

        Raises:
            ValueError: if the data contain no token.
        """
        is_single_batch = isinstance(data, list | tuple)
        batches = (data,) if is_single_batch else iterate(data, steps)
        is_single_batch = is_single_batch or is_whole(data)
        documents = (d for batch in batches for d in self.documents(batch, is_single_batch))
        limit = None if self.max_tokens is None else max(self.max_tokens - self._token_start, 0)
        special = (self.mask_token, self.oov_token)
        tokens, weights = vocabularies.learn(documents, special, limit)
        if not tokens:
            raise ValueError(
                f"{self._where}: adapt received no tokens. Give data with tokens, and max_tokens "
                "above the number of special tokens; an exhausted iterator has no data."
            )
        adapted = self.replace(
            vocabulary=tokens, idf_weights=weights if self.output_mode == "tf_idf" else None
        )
        return returned(
            adapted, f"{type(self).__name__}.adapt", "layer = layer.adapt(data)", depth=2
        )

    # Indices and their encodings

    @property
    def _no_index(self) -> int:
        """Index of masked tokens: 0, or -1 to drop them."""
        return 0 if self.output_mode == "int" else -1

    @property
    def index_weights(self) -> np.ndarray:
        """Weight of each index, in the output mode "tf_idf"."""
        has_special = vocabularies.split_special(self.vocabulary, self._special)[0]
        size = self.max_tokens if self.pad_to_max_tokens else None
        assert self.idf_weights is not None  # `_check_vocabulary` requires them in this mode
        return vocabularies.document_weights(self.idf_weights, has_special, self._token_start, size)

    def _encode_on_host(self, ids: np.ndarray) -> np.ndarray:
        if self.output_mode == "int":
            return ids.astype(fk.canonical_dtype("int64"))
        dtype = self.policy.compute_dtype
        if self.output_mode == "tf_idf":
            counts = encode_on_host(ids, self._depth, "count", "float32")
            return (counts * self.index_weights).astype(dtype)
        return encode_on_host(ids, self._depth, self.output_mode, dtype)

    def _encode(self, ids: jax.Array) -> jax.Array:
        if self.output_mode == "int":
            return ids.astype(fk.canonical_dtype("int64"))
        dtype = self.policy.compute_dtype
        if self.output_mode == "tf_idf":
            counts = encode(ids, self._depth, "count", "float32")
            return (counts * fk.align(jnp.asarray(self.index_weights), counts.ndim)).astype(dtype)
        return encode(ids, self._depth, self.output_mode, dtype)

    def _reject_unknown(self, tokens: fk.Leaf) -> None:
        examples = ", ".join(repr(t) for t in list(dict.fromkeys(tokens))[:5])
        raise ValueError(
            f"{self._where}: expected only tokens of the vocabulary with num_oov_indices=0, "
            f"received {examples}. Set num_oov_indices=1, or add them to the vocabulary."
        )

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # security: a config comes from a file, and must not name other files to read
        if isinstance(config.get("vocabulary"), str):
            raise ValueError(
                f"{cls.__name__}.from_config: expected a list of tokens as vocabulary, received "
                f"the path {config['vocabulary']!r}; a configuration never opens files. Read the "
                "file with layer.set_vocabulary(path)."
            )
        arguments = {key: value for key, value in config.items() if key not in _WRITTEN}
        return super().from_config(arguments, custom_objects)

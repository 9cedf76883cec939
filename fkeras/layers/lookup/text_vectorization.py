"""`TextVectorization`: maps texts to sequences of indices, or to vectors over a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.lookup.lookup import MODES, LookupLayer, floats
from fkeras.layers.lookup.string_lookup import find_strings
from fkeras.layers.lookup.texts import STANDARDS, join_words, pad_rows, split_words, standardize
from fkeras.layers.lookup.vocabulary import strings_of
from fkeras.layers.preprocessing.encoding import encode_on_host, output_mode
from fkeras.layers.preprocessing.host import as_data, encoding_name, read_strings, reject_sparse

_convert = strings_of("TextVectorization: vocabulary")


def _word_or_function(*words: str) -> fk.Rule:
    return fk.either(fk.choice(*words), fk.function(), optional=True)


_widths = fk.either(
    fk.integer(minimum=1),
    fk.several(fk.integer(minimum=1), "a tuple of positive integers"),
    optional=True,
    hint="2 gives words and pairs, (2,) only pairs.",
)


class TextVectorization(LookupLayer):
    """Computes the indices of the words of each text, or a vector of the words that occur.

    A text is standardized and split into words, which may be joined to n-grams and are looked up
    in the vocabulary. Index 0 pads short sequences, and 1 is the index of unknown words; in the
    vectors of the other output modes, 0 is the index of unknown words.

    The layer works on the host, on strings, lists of strings, and NumPy arrays of str or bytes,
    and returns NumPy arrays. A graph may start with the layer, as in
    `layer(fk.Input((), dtype="string"))`. Inside jit, strings do not exist. The vocabulary is part
    of the layer's value; `adapt` returns a copy with a learned vocabulary.

    Args:
        standardize: "lower", "strip_punctuation", "lower_and_strip_punctuation", None, or a
            function from a NumPy array of texts to an array of the same shape. The named
            standards change only ASCII characters, as in Keras.
        split: "whitespace", "character", None, or a function from a NumPy array of b texts to b
            lists of tokens.
        ngrams: n for n-grams of 1 to n words, a tuple for these sizes, None for words.
        output_mode: "int" for indices; "multi_hot", "count" and "tf_idf" for a vector per text,
            with 1, the count, or the count times the weight for each token that occurs; "one_hot"
            for a vector per word.
        output_sequence_length: length to which sequences are cut or padded, in the mode "int";
            None for the length of the longest sequence.
        ragged: must be False: JAX's arrays are dense.

    Shapes:
        (b,) or (b, 1) -> (b, t) of int32, or (b, v). With split=None the input has an axis of
        tokens: (b, t) -> (b, t), or (b, v); (t,) -> (t,), or (v,).

    Raises:
        ValueError: for contradictory arguments, texts to be split with a last axis above 1, and in
            a call before `adapt`.
        FKerasError: inside jit and on symbolic tensors.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TextVectorization(output_sequence_length=4)
        >>> layer = layer.adapt(["foo bar", "bar baz", "baz bada boom"])
        >>> layer.get_vocabulary()
        ['', '[UNK]', 'baz', 'bar', 'foo', 'boom', 'bada']
        >>> layer(["Foo qux, bar!", "qux baz"])
        array([[4, 1, 3, 0],
               [1, 2, 0, 0]], dtype=int32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    max_tokens: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=2, optional=True)
    )
    standardize: Any = fk.option(
        default="lower_and_strip_punctuation",
        convert=_word_or_function(*STANDARDS),
    )
    split: Any = fk.option(
        default="whitespace",
        convert=_word_or_function("whitespace", "character"),
    )
    ngrams: fk.OptionalAxes = fk.option(default=None, convert=_widths)
    output_mode: str = fk.option(default="int", convert=output_mode(*MODES))
    output_sequence_length: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    pad_to_max_tokens: bool = fk.option(default=False, convert=fk.boolean)
    vocabulary: fk.Vocabulary = fk.option(default=None, convert=_convert)
    idf_weights: fk.OptionalReals = fk.option(default=None, convert=floats)
    sparse: bool = fk.option(default=False, convert=fk.boolean)
    ragged: bool = fk.option(default=False, convert=fk.boolean)
    encoding: str = fk.option(default="utf-8", convert=encoding_name)

    convert_vocabulary: ClassVar[Any] = staticmethod(_convert)
    mask_token: ClassVar[str] = ""
    oov_token: ClassVar[str] = "[UNK]"
    num_oov_indices: ClassVar[int] = 1
    invert: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_sparse(self.ragged, self._where, "ragged")
        length = self.output_sequence_length
        if length is None:
            return
        if self.output_mode != "int":
            raise ValueError(
                f"{self._where}: expected output_sequence_length=None with "
                f"output_mode={self.output_mode!r}, received a length. Leave it out, or choose "
                "output_mode='int'."
            )

    def call(self, x: jax.Array) -> jax.Array:
        raise self.no_strings_here()

    def tokenize(self, texts: fk.Leaf) -> list[list[str]]:
        """Returns the tokens of each text: standardized, split and joined to n-grams.

        Example:
            >>> import fkeras as fk
            >>> fk.layers.TextVectorization(ngrams=2).tokenize(["To be!"])
            [['to', 'be', 'to be']]
        """
        array = np.asarray(as_data(texts, self._where))
        strings = read_strings(array, self.encoding, self._where)
        if callable(self.standardize):
            shaped = np.array(strings, dtype=np.str_).reshape(array.shape)
            result = np.asarray(self.standardize(shaped))
            if result.shape != array.shape:
                raise ValueError(
                    f"{self._where}: standardize returned an array of shape {result.shape} for "
                    f"texts of shape {array.shape}. Return one text per input text."
                )
            strings = read_strings(result, self.encoding, self._where)
        elif self.standardize is not None:
            strings = standardize(strings, self.standardize)
        rows = self._split(strings, array.shape)
        if self.ngrams is None:
            return rows
        widths = self.ngrams
        if isinstance(widths, int):
            widths = tuple(range(1, widths + 1))
        return [join_words(row, widths) for row in rows]

    def _split(self, texts: list[str], shape: tuple[int, ...]) -> list[list[str]]:
        if self.split is None:
            size = shape[-1] if shape else 1
            row_count = len(texts) // size if size else int(np.prod(shape[:-1]))
            return [texts[row * size : (row + 1) * size] for row in range(row_count)]
        if len(shape) > 1 and shape[-1] != 1:
            raise ValueError(
                f"{self._where}: expected texts of shape (b,) or (b, 1) to split, received {shape}. "
                "For texts that are already split set split=None."
            )
        if self.split == "character":
            return [list(text) for text in texts]
        if self.split == "whitespace":
            return [split_words(text) for text in texts]
        rows = [list(map(str, row)) for row in self.split(np.array(texts, dtype=np.str_))]
        if len(rows) != len(texts):
            raise ValueError(
                f"{self._where}: split returned {len(rows)} rows for {len(texts)} texts. Return a "
                "list of tokens for each text."
            )
        return rows

    def on_host(self, x: np.ndarray) -> np.ndarray:
        rows = self.tokenize(x)
        leading_shape = x.shape if self.split is not None and x.ndim < 2 else x.shape[:-1]
        counts = [len(row) for row in rows]
        # one lookup for all tokens of the batch: find_strings is vectorized over its hashes
        flat = [token for row in rows for token in row]
        # padding and empty tokens share an index
        special = {self.mask_token: self._no_index}
        ids = find_strings(
            flat, self._tokens, self._token_start, special, self.num_oov_indices, self._oov_start
        )
        size = max(counts, default=0)
        if self.output_sequence_length is not None:
            size = self.output_sequence_length
        row_ids = np.split(ids, np.cumsum(counts)[:-1]) if rows else []
        padded = pad_rows(row_ids, size, self._no_index).reshape((*leading_shape, size))
        if self.split is None and x.ndim == 0 and self.output_mode == "int":
            padded = padded[0] if self.output_sequence_length is None else padded
        if self.output_mode == "one_hot":  # a last axis of size 1 is a word here, not a sample
            return encode_on_host(
                padded[..., None], self._depth, "one_hot", self.policy.compute_dtype
            )
        return self._encode_on_host(padded)

    def documents(self, batch: fk.Tree, whole: bool) -> Iterable[list[str]]:
        array = np.asarray(as_data(batch, self._where))
        return self.tokenize(array[:, None] if whole and array.ndim == 1 else array)

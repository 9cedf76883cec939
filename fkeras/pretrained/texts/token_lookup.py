"""`TokenLookup`: a tokenizer as a layer."""

from __future__ import annotations

import numpy as np

from fkeras.authoring.layers import StringMap, read_strings
from fkeras.layers.common import authoring as fk
from fkeras.pretrained.texts.tokenizer import Tokenizer


def _tokenizer(value: fk.Field) -> Tokenizer:
    if isinstance(value, Tokenizer):
        return value
    raise TypeError(
        f"expected a Tokenizer, received {fk.describe_value(value)}. Read one with "
        "fk.pretrained.Tokenizer.read(folder)."
    )


class TokenLookup(StringMap):
    """Encodes texts with a tokenizer; with `invert` decodes rows of ids.

    The layer runs on the host, like `fk.layers.StringLookup`: a graph may start with the layer, and with
    `invert` a graph may end with the layer, so that a model maps texts to texts. The configuration of the
    layer contains the files of the tokenizer.

    Args:
        tokenizer: an `fk.pretrained.Tokenizer`.
        output_sequence_length: length to which rows are truncated or padded; None for the length of the
            longest row.
        return_segments: whether to return `(ids, segments)`, the two inputs of a decoder; segments are
            1 for tokens and 0 for padding.
        special_tokens: whether special tokens in a text become their ids, as in `Tokenizer.encode`;
            with `invert`, whether texts keep special tokens.
        add_special_tokens: whether to add special tokens such as the BOS token, as in `Tokenizer.encode`.
        invert: whether to decode ids. Negative ids are padding.

    Shapes:
        (...) -> (..., t) of int32, for ids and segments; with `invert` (..., t) -> (...).

    Raises:
        ValueError: for missing values, and for ids without a token.
        FKerasError: inside jit and on symbolic tensors of numbers.

    Example:
        >>> from fkeras import pretrained
        >>> model = '{"type": "WordLevel", "vocab": {"?": 0, "a": 1, "b": 2}, "unk_token": "?"}'
        >>> text = f'{{"model": {model}, "pre_tokenizer": {{"type": "Whitespace"}}}}'
        >>> tokenizer = pretrained.Tokenizer({"tokenizer.json": text})
        >>> TokenLookup(tokenizer)(["b a b", "c"])
        array([[2, 1, 2],
               [0, 0, 0]], dtype=int32)
        >>> TokenLookup(tokenizer, invert=True)([[2, 1], [1, -1]])
        array(['b a', 'a'], dtype='<U3')
    """

    tokenizer: Tokenizer = fk.option(convert=_tokenizer)
    output_sequence_length: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    return_segments: bool = fk.option(default=False, convert=fk.boolean)
    special_tokens: bool = fk.option(default=False, convert=fk.boolean)
    add_special_tokens: bool = fk.option(default=True, convert=fk.boolean)
    invert: bool = fk.option(default=False, convert=fk.boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.invert and (self.return_segments or self.output_sequence_length is not None):
            raise ValueError(
                f"{self._where}: invert=True maps ids to texts, which have no "
                f"{'segments' if self.return_segments else 'output_sequence_length'}. Leave it out."
            )

    @property
    def _sample_texts(self) -> tuple[str, str]:
        # two lengths: the number of tokens is not static
        return "", "0 1 2 3 4 5 6 7"

    def on_host(self, x: np.ndarray) -> fk.Tree:
        if self.invert:
            return self._texts(x)
        rows = [
            self.tokenizer.encode(
                text,
                special_tokens=self.special_tokens,
                add_special_tokens=self.add_special_tokens,
            )
            for text in read_strings(x, "utf-8", self._where)
        ]
        length = self.output_sequence_length
        if length is None:
            length = max(map(len, rows), default=0)
        ids = np.full((len(rows), length), self.tokenizer.pad_id or 0, np.int32)
        segments = np.zeros((len(rows), length), np.int32)
        for place, row in enumerate(rows):
            row = row[:length]
            ids[place, : len(row)] = row
            segments[place, : len(row)] = 1
        shape = (*x.shape, length)
        if self.return_segments:
            return ids.reshape(shape), segments.reshape(shape)
        return ids.reshape(shape)

    def _texts(self, ids: np.ndarray) -> np.ndarray:
        if ids.dtype.kind not in "iu" or ids.ndim == 0:
            raise TypeError(
                f"{self._where}: invert=True maps rows of integers to texts, received {ids.dtype} of "
                f"shape {ids.shape}. Give ids, such as the argmax of logits."
            )
        texts = [
            self.tokenizer.decode(row[row >= 0], special_tokens=self.special_tokens)
            for row in ids.reshape(-1, ids.shape[-1])
        ]
        return np.array(texts, np.str_).reshape(ids.shape[:-1])

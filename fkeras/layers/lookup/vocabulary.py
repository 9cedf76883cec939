"""Vocabularies: positions of special tokens, learning from data, searching for tokens."""

from __future__ import annotations

import collections
import functools
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.layers.common import authoring as fk


def read_file(path: str, where: str) -> list[str]:
    """Returns the lines of a vocabulary file, without empty lines at the end.

    Raises:
        ValueError: if the file is missing.
    """
    if not os.path.isfile(path):
        raise ValueError(
            f"{where}: vocabulary file {path!r} not found. Give the path of a text file with one "
            "token per line, or a list of tokens."
        )
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    while lines and lines[-1] == "":
        lines.pop()
    return lines


def _tokens(value: fk.Field, where: str) -> list[Any]:
    if isinstance(value, str | os.PathLike):
        return read_file(os.fspath(value), where)
    array = value.numpy() if hasattr(value, "numpy") else value
    if not isinstance(array, list | tuple | np.ndarray):
        raise TypeError(
            f"{where}: expected a list of tokens or the path of a text file, received "
            f"{type(value).__name__}. Give a list, such as layer.get_vocabulary()."
        )
    tokens = array.ravel().tolist() if isinstance(array, np.ndarray) else list(array)
    if not tokens:
        raise ValueError(
            f"{where}: the vocabulary is empty. Give at least one token, or None and then call "
            "adapt."
        )
    return tokens


def strings_of(where: str) -> Callable[[Any], tuple[str, ...] | None]:
    """Returns a converter of string vocabularies: a list of str or bytes, an array, or a path."""

    def convert(value: fk.Field) -> tuple[str, ...] | None:
        if value is None:
            return None
        tokens = [t.decode() if isinstance(t, bytes) else t for t in _tokens(value, where)]
        invalid = [t for t in tokens if not isinstance(t, str)]
        if invalid:
            raise TypeError(
                f"{where}: expected strings, received {invalid[0]!r} "
                f"({type(invalid[0]).__name__}). For integers use IntegerLookup."
            )
        return tuple(map(str, tokens))

    return convert


def integers_of(where: str) -> Callable[[Any], tuple[int, ...] | None]:
    """Returns a converter of integer vocabularies: a list, an array, or a file's path."""

    def convert(value: fk.Field) -> tuple[int, ...] | None:
        if value is None:
            return None
        try:
            tokens = _tokens(value, where)
            numbers = tuple(int(t) for t in tokens)
            if any(f != t for f, t in zip(numbers, tokens, strict=True) if not isinstance(t, str)):
                raise ValueError
        except ValueError as error:
            if str(error).startswith(where):
                raise
            raise ValueError(
                f"{where}: expected integers, received {value!r:.80}. For strings use StringLookup."
            ) from None
        return numbers

    return convert


# Caches of pure functions of tuples, which every call of a layer needs.
@functools.lru_cache(maxsize=64)
def split_special(vocabulary: tuple, special: tuple) -> tuple[bool, tuple]:
    """Returns whether the special tokens lead the vocabulary, and the tokens without them."""
    has_special = vocabulary[: len(special)] == special
    return has_special, vocabulary[len(special) :] if has_special else vocabulary


@functools.lru_cache(maxsize=64)
def table(tokens: tuple) -> Mapping[Any, int]:
    """Returns the position of each token."""
    return types.MappingProxyType({token: position for position, token in enumerate(tokens)})


@functools.lru_cache(maxsize=64)
def as_array(tokens: tuple) -> np.ndarray:
    """Returns the tokens as an array."""
    return np.array(tokens)


@functools.lru_cache(maxsize=64)
def in_order(tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted integer tokens, and the original position of each token."""
    keys = np.asarray(tokens, "int64")
    positions = np.argsort(keys)
    return keys[positions], positions


def find(ids: fk.Leaf, keys: fk.Leaf, positions: fk.Leaf, xp: Any) -> tuple[Any, Any]:
    """Looks up integers in sorted keys.

    Args:
        xp: `numpy` or `jax.numpy`.

    Returns:
        `(is_key, position)`: whether each id is a key, and the position of the key.
    """
    # searchsorted returns len(keys) for an id above all keys: compare with the last key instead
    index = xp.minimum(xp.searchsorted(keys, ids), len(keys) - 1)
    return keys[index] == ids, positions[index]


# Learning of a vocabulary from data
def learn(
    documents: Iterable[Sequence[Any]], special: Sequence[Any], limit: int | None
) -> tuple[tuple, tuple[float, ...]]:
    """Returns the tokens of documents by frequency, and their inverse document frequencies.

    Equally frequent tokens are in descending order. The weight of a token that occurs in `d` of
    `n` documents is `log(1 + n / (1 + d))`.

    Args:
        special: tokens to exclude; None means no token.
        limit: number of tokens to keep; None for all.

    Returns:
        The tokens, and a weight for each.
    """
    counts: collections.Counter = collections.Counter()
    document_counts: collections.Counter = collections.Counter()
    document_count = 0
    for document in documents:
        counts.update(document)
        document_counts.update(set(document))
        document_count += 1
    for token in special:
        if token is not None:
            counts.pop(token, None)
    # ties in reverse alphabetical order, as in Keras, so that indices agree
    by_frequency = sorted(counts, key=lambda token: (counts[token], token), reverse=True)[:limit]
    return tuple(by_frequency), tuple(
        math.log(1 + document_count / (1 + document_counts[token])) for token in by_frequency
    )


def document_weights(
    weights: Sequence[float], has_special: bool, special_count: int, size: int | None
) -> np.ndarray:
    """Returns the weight of each index: special tokens have the mean weight, padding has 0.

    Args:
        has_special: whether `weights` starts with the weights of the special tokens.
        size: size to pad to; None for no padding.
    """
    all_weights = np.asarray(weights, "float64")
    if not has_special:
        # Keras gives unknown tokens the mean weight
        all_weights = np.concatenate([np.full(special_count, all_weights.mean()), all_weights])
    if size is not None:
        all_weights = np.concatenate([all_weights, np.zeros(size - len(all_weights))])
    return all_weights.astype("float32")

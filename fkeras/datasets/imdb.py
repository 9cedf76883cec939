"""IMDB: 50,000 film reviews, positive (1) or negative (0)."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.files.places import find
from fkeras.datasets.files.reading import read_json, read_npz
from fkeras.datasets.files.rows import Pair, WordRules, as_objects, shuffled
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_DIGEST = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
_WORDS_DIGEST = "bfafd718b763782e994055a2d397834f"


def load_data(
    path: FilePath = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
    download: bool = False,
) -> tuple[Pair, Pair]:
    """Returns the words and labels of IMDB's film reviews.

    The lists of the file are pickled; they are read without running code of the file.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        num_words: words with this number or a larger one are unknown; None for no limit.
        skip_top: words with a smaller number, the most frequent words, are unknown.
        maxlen: sequences of this length or a larger one are left out; None for no limit.
        seed: seed of the order.
        start_char: number at the start of each sequence, or None.
        oov_char: number of unknown words; None to leave unknown words out.
        index_from: number that is added to each word; the smaller numbers are for padding, start
            and unknown words.
        download: whether to download a missing file (checked by its checksum).

    Returns:
        `((x_train, y_train), (x_test, y_test))`: arrays of lists of word numbers, and class numbers
        of shape (n,). `fk.utils.pad_sequences` makes arrays of the lists.

    Raises:
        FileNotFoundError: for a missing file; the message has its address.
        FileError: for a damaged file.
        ValueError: for numbers out of range.

    Example:
        >>> load_data("missing.npz")
        Traceback (most recent call last):
        ...
        FileNotFoundError: imdb.load_data: expected the file ...
    """
    where = "imdb.load_data"
    rules = WordRules(where, num_words, skip_top, maxlen, seed, start_char, oov_char, index_from)
    place = find(where, path, _URL + "imdb.npz", _DIGEST, download)
    arrays = read_npz(place, ("x_train", "y_train", "x_test", "y_test"))
    random = np.random.RandomState(rules.seed)
    train, y_train = rules.numbered(*shuffled(arrays[:2], random))
    test, y_test = rules.numbered(*shuffled(arrays[2:], random))
    rows = rules.with_unknown_words(train + test)
    count = len(train)
    return (as_objects(rows[:count]), y_train), (as_objects(rows[count:]), y_test)


def get_word_index(
    path: FilePath = "imdb_word_index.json", download: bool = False
) -> dict[str, int]:
    """Returns the number of each word, before `index_from` is added.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        download: whether to download a missing file (checked by its checksum).

    Raises:
        FileNotFoundError: for a missing file; the message has its address.
        FileError: for a damaged file.

    Example:
        >>> get_word_index("missing.json")
        Traceback (most recent call last):
        ...
        FileNotFoundError: imdb.get_word_index: expected the file ...
    """
    url = _URL + "imdb_word_index.json"
    return read_json(find("imdb.get_word_index", path, url, _WORDS_DIGEST, download))


__all__ = ("get_word_index", "load_data")

"""IMDB: 50,000 film reviews, positive (1) or negative (0)."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import read_json, read_npz
from fkeras.datasets.readers.rows import Pair, WordRules, object_array, shuffle_rows
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
    """Returns the word numbers and labels of IMDB's film reviews.

    The file stores its lists as pickles, which are read without running code of the file.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        num_words: numbers from this limit on are unknown words; None for the largest number in the
            data, which is then unknown, as in Keras. The numbers include `index_from`.
        skip_top: numbers below this limit, those of the most frequent words, are unknown words.
        maxlen: sequences of this length or longer are left out; None for all sequences.
        seed: seed of the shuffling.
        start_char: number at the start of each sequence; None for no number.
        oov_char: number that replaces unknown words; None to remove unknown words.
        index_from: offset of the word numbers: smaller numbers stand for padding, start and unknown
            words.
        download: whether to download a missing file; its checksum is verified.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: arrays of lists of word numbers, and class numbers
        of shape (n,). `fk.utils.pad_sequences` converts the lists to one array.

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
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
    file_path = dataset_file(where, path, _URL + "imdb.npz", _DIGEST, download)
    arrays = read_npz(file_path, ("x_train", "y_train", "x_test", "y_test"))
    random = np.random.RandomState(rules.seed)
    train, y_train = rules.shift_and_select(*shuffle_rows(arrays[:2], random))
    test, y_test = rules.shift_and_select(*shuffle_rows(arrays[2:], random))
    # together, since without `num_words` the largest number of both parts is the limit
    rows = rules.replace_unknown_words(train + test)
    count = len(train)
    return (object_array(rows[:count]), y_train), (object_array(rows[count:]), y_test)


def get_word_index(
    path: FilePath = "imdb_word_index.json", download: bool = False
) -> dict[str, int]:
    """Returns the number of each word, without the offset `index_from`.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        download: whether to download a missing file; its checksum is verified.

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.

    Example:
        >>> get_word_index("missing.json")
        Traceback (most recent call last):
        ...
        FileNotFoundError: imdb.get_word_index: expected the file ...
    """
    url = _URL + "imdb_word_index.json"
    return read_json(dataset_file("imdb.get_word_index", path, url, _WORDS_DIGEST, download))


__all__ = ("get_word_index", "load_data")

"""Reuters: 11,228 newswires in 46 topics."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import read_json, read_npz
from fkeras.datasets.readers.rows import (
    Pair,
    WordRules,
    check_test_split,
    object_array,
    shuffle_rows,
)
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_DIGEST = "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916"
_WORDS_DIGEST = "4d44cc38712099c9e383dc6e5f11a921"
_TOPICS = (
    "cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar trade "
    "reserves ship cotton carcass crude nat-gas cpi money-fx interest gnp meal-feed alum "
    "oilseed gold tin strategic-metal livestock retail ipi iron-steel rubber heat jobs lei "
    "bop zinc orange pet-chem dlr gas silver wpi hog lead "
)


def load_data(
    path: FilePath = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
    download: bool = False,
) -> tuple[Pair, Pair]:
    """Returns the word numbers and topics of Reuters newswires.

    The file stores its lists as pickles, which are read without running code of the file.

    Args:
        test_split: fraction of the rows for the test.
        Other arguments: those of `imdb.load_data`.

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
        FileNotFoundError: reuters.load_data: expected the file ...
    """
    where = "reuters.load_data"
    rules = WordRules(where, num_words, skip_top, maxlen, seed, start_char, oov_char, index_from)
    test_fraction = check_test_split(where, test_split)
    file_path = dataset_file(where, path, _URL + "reuters.npz", _DIGEST, download)
    x, y = read_npz(file_path, ("x", "y"))
    # Keras's order of steps: shuffle, leave out long sequences, split
    x, y = shuffle_rows((x, y), np.random.RandomState(rules.seed))
    rows, y = rules.shift_and_select(x, y)
    rows = object_array(rules.replace_unknown_words(rows))
    count = int(len(rows) * (1 - test_fraction))
    return (rows[:count], y[:count]), (rows[count:], y[count:])


def get_word_index(
    path: FilePath = "reuters_word_index.json", download: bool = False
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
        FileNotFoundError: reuters.get_word_index: expected the file ...
    """
    url = _URL + "reuters_word_index.json"
    return read_json(dataset_file("reuters.get_word_index", path, url, _WORDS_DIGEST, download))


def get_label_names() -> tuple[str, ...]:
    """Returns the names of the 46 topics by class number.

    Example:
        >>> get_label_names()[:3]
        ('cocoa', 'grain', 'veg-oil')
    """
    return tuple(_TOPICS.split())


__all__ = ("get_label_names", "get_word_index", "load_data")

"""The reader of pickles: values equal Python's, and no code of a file runs."""

import os
import pickle
import sys

import numpy as np
import pytest

from fkeras.datasets.readers.pickles import PickleError, read_pickle

VALUE = {
    "lists": [[1, 255, 256, 70000, -3, 1 << 40], [], [True, False, None]],
    "texts": ("a", "äöü" * 100, b"bytes", b"\xff" * 300),
    "floats": [0.5, -1e300],
    "array": np.arange(6, dtype="<i8").reshape(2, 3),
    "bytes": np.asfortranarray(np.arange(6, dtype="uint8").reshape(2, 3)),
    "big": np.arange(3, dtype=">f4"),
    "flags": np.asarray([True, False]),
}


def _assert_same(read, value):
    if isinstance(value, np.ndarray):
        assert read.dtype == value.dtype.newbyteorder("=")
        if value.dtype != object:
            np.testing.assert_array_equal(read, value)
            return
    if isinstance(value, dict):
        assert list(read) == list(value)
        read, value = list(read.values()), list(value.values())
    if isinstance(value, list | tuple | np.ndarray):
        assert len(read) == len(value)
        for left, right in zip(read, value, strict=True):
            _assert_same(left, right)
        return
    assert type(read) is type(value) and read == value


@pytest.mark.one_in(3)
@pytest.mark.parametrize("protocol", range(5))
def test_lists_and_arrays_are_read(protocol):
    value = dict(VALUE)
    if protocol < 3:  # protocols 0 to 2 store bytes as calls of a function
        value = {"array": VALUE["array"], "big": VALUE["big"], "floats": [0.5]}
        value |= {"lists": [[1, 2, 300], [-7]]}
    data = pickle.dumps(value, protocol)
    if protocol == 0:  # stores texts and floats as lines, which no dataset has
        with pytest.raises(PickleError, match="unsupported pickle instruction"):
            read_pickle(data)
        return
    _assert_same(read_pickle(data), value)


@pytest.mark.exhaustive
def test_arrays_of_lists_are_read():
    rows = np.empty(3, object)
    rows[:] = [[1, 2], [], [300]]
    _assert_same(read_pickle(pickle.dumps(rows)), rows)


@pytest.mark.exhaustive
def test_pickles_of_python_2_are_read():
    # {'data': uint8 array, 'labels': [6, 300]} as cPickle of Python 2 writes it
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
        b"q\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\x08tb"
        b"U\x06labelsq\x08]q\x09(K\x06M,\x01eu."
    )
    value = read_pickle(data)
    expected = pickle.loads(data, encoding="bytes")
    np.testing.assert_array_equal(value[b"data"], expected[b"data"])
    assert value[b"labels"] == expected[b"labels"] == [6, 300]


class Command:
    def __reduce__(self):
        return os.mkdir, ("stolen",)


def _repeated_lists(depth):
    lists = [1]
    for _ in range(depth):
        lists = [lists] * 10
    return lists


def _list_in_itself():
    items = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Command(), "mkdir', which is not run"),
        ({"x": [Command()]}, "which is not run"),
        (print, "builtins.print"),
        (np.asarray(["a"]), "dtype 'U1'"),
        (np.zeros(2, "complex64"), "dtype 'c8'"),
        (np.zeros(2, "f4,i4"), "dtype 'V8'"),
        (np.float64(3.0), "scalar', which is not run"),
        (_repeated_lists(9), "lists that repeat other lists"),
        (_list_in_itself(), "levels|repeat other lists"),
        ({1, 2}, "unsupported pickle instruction"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_objects_of_other_types_are_rejected(value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PickleError, match=message):
        read_pickle(pickle.dumps(value, 4))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"K",
        b"\x80\x04\x95\xff",
        b"B\xff\xff\xff\x7fabc.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"r\xff\xff\xff\xff.",
        b"K\x01r\xff\xff\xff\x7f.",
        b"j\x00\x00\x00\x00.",
        b"a.",
        b"]e.",
        b"K\x01K\x02.",
        b"(.",
        b"R.",
        b"K\x01K\x02R.",
        b"cnumpy\ndtype\n.",
        b"cnumpy\nndarray\n)R.",
        b"cnumpy.core.multiarray\n_reconstruct\n)R.",
        b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x01\x85NN Nt b.",
    ],
)
def test_damaged_pickles_are_rejected(data):
    if data == b"K\x01r\xff\xff\xff\x7f.":
        assert read_pickle(data) == 1  # a large memo number takes no memory
        return
    with pytest.raises(PickleError):
        read_pickle(data)


@pytest.mark.exhaustive
def test_random_damage_raises_only_pickle_errors():
    rng = np.random.default_rng(1)
    for protocol in (2, 4):
        original = pickle.dumps(
            VALUE if protocol == 4 else {"a": VALUE["array"], "b": [1]}, protocol
        )
        for _ in range(600):
            data = bytearray(original)
            for position in rng.integers(0, len(data), rng.integers(1, 6)):
                data[position] = rng.integers(256)
            try:
                value = read_pickle(bytes(data[: rng.integers(1, len(data) + 1)]))
                assert sys.getsizeof(value) < 1 << 20
            except PickleError:
                pass

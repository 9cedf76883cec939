"""Our reader and writer of safetensors files against the library of that name."""

import io

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.safetensors import in_order, open_table, read_table, write, write_stream

DTYPES = (
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "complex64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)


def arrays():
    numbers = np.random.default_rng(0)
    made = {}
    for n, dtype in enumerate(DTYPES):
        name = np.dtype(dtype).name
        made[f"{n % 3}/{name}"] = numbers.integers(0, 2, (n + 1, 3)).astype(dtype)
    return made | {
        "empty": np.zeros((0, 5), "float32"),
        "number": np.float32(3),
        "größe": np.ones(2),
    }


def test_the_bytes_are_those_of_the_library():
    # the library takes no 8-bit floats and no bfloat16 of NumPy
    plain = {name: array for name, array in arrays().items() if "float8" not in name}
    plain = {name: array for name, array in plain.items() if "bfloat" not in name}
    plain["number"] = np.asarray(plain["number"])
    file = io.BytesIO()
    write(file, plain, {"format": "pt"})
    assert file.getvalue() == safetensors.numpy.save(plain, {"format": "pt"})
    file = io.BytesIO()
    write(file, plain, {})
    assert file.getvalue() == safetensors.numpy.save(plain)


def test_arrays_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "w.safetensors"
    made = arrays()
    with path.open("wb") as file:
        write(file, made, {"a": "b", "c": "d"})
    table = read_table(str(path), fk.Limits())
    assert table.metadata == {"a": "b", "c": "d"}
    assert list(table.arrays) == list(in_order(table.dtypes))
    for name, array in made.items():
        stored = table.arrays[name]
        assert (stored.shape, stored.dtype) == (array.shape, array.dtype)
        view = stored.read()
        assert view.tobytes() == array.tobytes()
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0
    with open_table(str(path), fk.Limits()) as copies:
        copy = copies["number"].read()
        copy[...] = 1  # a copy, which may change
        assert table.arrays["number"].read() == 3


def test_arrays_are_asked_for_one_by_one(tmp_path):
    asked = []

    def array(name):
        asked.append((name, file.tell()))
        return np.ones(4)

    with (tmp_path / "w").open("wb") as file:
        write_stream(file, {"b": "F32", "a": "BF16"}, {"a": (4,), "b": (4,)}, array, {})
    assert [name for name, _ in asked] == ["b", "a"]
    # the second array is made after the first is written
    assert asked[1][1] - asked[0][1] == 16
    read = read_table(str(tmp_path / "w"), fk.Limits()).arrays["a"].read()
    assert read.dtype == ml_dtypes.bfloat16 and (read == 1).all()


def test_a_dtype_that_the_format_lacks_is_rejected():
    with pytest.raises(TypeError, match="no dtype complex128"):
        write(io.BytesIO(), {"a": np.zeros(2, "complex128")}, {})

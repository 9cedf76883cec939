"""HDF5 files with external links, cycles or unallocated data are rejected."""

import io
import os

import h5py
import ml_dtypes
import numpy as np
import pytest

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5 import new_store, open_store
from fkeras.host.containers.limits import Limits


def _stored(make, **options):
    """Returns the bytes of an HDF5 file that a function fills."""
    target = io.BytesIO()
    with h5py.File(target, "w", **options) as file:
        make(file)
    return target.getvalue()


def _read_all(data, limits=None):
    with open_store(data, "m.keras", "model.weights.h5", limits) as store:
        stack = [""]
        values = {}
        while stack:
            path = stack.pop()
            values[path or "/"] = store.attributes(path)
            stack += [f"{path}/{name}" for name in store.groups(path)]
            for name in store.datasets(path):
                values[f"{path}/{name}"] = store.read(f"{path}/{name}")
        return values


def _assert_rejected(data, *words, limits=None):
    with pytest.raises(FileError) as error:
        _read_all(data, limits)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert error.value.file == "m.keras"
    return error.value


def test_written_arrays_are_read(tmp_path):
    arrays = {
        "a/b/0": np.arange(6, dtype="float32").reshape(2, 3),
        "a/b/1": np.float64(2.5),
        "flags": np.array([True, False]),
        "small": np.arange(3).astype(ml_dtypes.bfloat16),
        "smaller": np.arange(3).astype(ml_dtypes.float8_e5m2),
        "complex": np.ones(2, "complex64"),
        "none": np.zeros((0, 4), "int8"),
        "words": np.array([b"ab", b"c"]),
    }
    target = io.BytesIO()
    with new_store(target) as writer:
        for path, array in arrays.items():
            writer.write(path, array)
        writer.attribute("a", "name", "dense ü")
        writer.attribute("", "layers", ["x", "y"])
    (tmp_path / "x.h5").write_bytes(target.getvalue())
    for source in (target, target.getvalue(), tmp_path / "x.h5"):
        with open_store(source) as store:
            for path, array in arrays.items():
                array_read = store.read(path, np.shape(array))
                assert array_read.dtype == np.asarray(array).dtype == store.dtype(path)
                np.testing.assert_array_equal(array_read, array)
                assert store.has(path) and (not array_read.size or array_read.ctypes.data % 64 == 0)
            assert store.attributes("a") == {"name": "dense ü"}
            assert store.attributes() == {"layers": ("x", "y")}
            assert (store.groups("a"), store.datasets("/a/b")) == (("b",), ("0", "1"))
            assert store.shape("a/b/0") == (2, 3) and not store.has("b")
            assert store.groups("none") == store.datasets("q") == ()
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["small"].attrs["dtype"] == "bfloat16"  # Keras reads this attribute


def test_compressed_arrays_and_other_byte_orders_are_read():
    values = np.random.default_rng(0).integers(0, 9, (101, 37))
    packings = {
        "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "pieces": {"chunks": (10, 10), "fletcher32": True},
        "long": {"chunks": (101, 37), "fletcher32": True, "dtype": "uint8"},
        "big": {"compression": "gzip", "dtype": ">f8"},
        "plain": {"dtype": ">i2"},
    }

    def make(file):
        for name, options in packings.items():
            file.create_dataset(name, data=values, **options)

    arrays = _read_all(_stored(make))
    for name in packings:
        np.testing.assert_array_equal(arrays[f"/{name}"], values)
        assert arrays[f"/{name}"].dtype.isnative


def test_links_out_of_the_tree_are_rejected(tmp_path):
    secret = tmp_path / "secret.h5"
    secret.write_bytes(_stored(lambda f: f.create_dataset("x", data=np.arange(3.0))))

    def make(kind):
        def fill(file):
            file.create_group("layers/dense")
            file["layers/dense/vars"] = kind

        return _stored(fill)

    error = _assert_rejected(make(h5py.ExternalLink(str(secret), "/x")), "a link to another file")
    assert error.member == "model.weights.h5:/layers/dense/vars"
    _assert_rejected(make(h5py.SoftLink("/layers")), "soft link", "layers/dense/vars")


def test_cycles_and_arrays_with_two_names_are_rejected():
    def add_cycle(file):
        file["a/b"] = file.create_group("a")

    def add_alias(file):
        file["y"] = file.create_dataset("x", data=np.zeros(3))

    _assert_rejected(_stored(add_cycle), "second path")
    _assert_rejected(_stored(add_alias), "second path", "/y")
    _assert_rejected(_stored(lambda f: f.__setitem__("t", np.dtype("f4"))), "stored data type")
    _assert_rejected(
        _stored(lambda f: f.create_group("/".join("a" * 200))), "at most 100 levels of groups"
    )
    many = _stored(lambda f: [f.create_group(str(i)) for i in range(20)])
    _assert_rejected(many, "objects", limits=Limits(objects=10))


@pytest.mark.parametrize("name", ["a\tb", "\u2028"])
def test_invisible_names_are_rejected(name):
    _assert_rejected(_stored(lambda f: f.create_group(name)), "name")


def test_external_and_virtual_arrays_are_rejected_without_access(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"top secret")
    before = os.stat(secret).st_atime_ns

    def external(file):
        file.create_dataset("x", (10,), "u1", external=[(str(secret), 0, 10)])

    def virtual(file):
        layout = h5py.VirtualLayout((3,), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
        file.create_virtual_dataset("x", layout)

    error = _assert_rejected(_stored(external), "another file")
    assert error.member == "model.weights.h5:/x" and "secret.bin" not in str(error)
    _assert_rejected(_stored(virtual, libver="latest"), "virtual")
    assert os.stat(secret).st_atime_ns == before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (1 << 20,)},
        {"chunks": (1 << 20,), "compression": "gzip"},
        {"chunks": (1,), "compression": "gzip"},
        {"chunks": (1 << 28,), "compression": "gzip"},
        {"maxshape": (None,), "fillvalue": 1.5},
    ],
)
def test_arrays_without_stored_data_are_rejected(options):
    def make(file):
        dataset = file.create_dataset("x", (1 << 36,), "f4", **options)
        if options.get("chunks") == (1 << 20,):
            dataset[:10] = 1.0  # one of many chunks

    _assert_rejected(_stored(make), "/x", "exhaust memory")


def test_fill_values_and_bombs_are_rejected():
    def add_missing_chunks(file):
        file.create_dataset("x", (64, 64), "u1", chunks=(64, 8))[:, :8] = 1

    def add_bomb(file):
        file.create_dataset("x", data=np.zeros(1 << 22, "u1"), compression=9)

    _assert_rejected(_stored(add_missing_chunks), "not stored")
    _assert_rejected(_stored(add_bomb), "ratio")
    assert _read_all(_stored(add_bomb), Limits(ratio=2000))["/x"].sum() == 0
    _assert_rejected(_stored(add_bomb), "array_bytes", limits=Limits(array_bytes=100))


def test_arrays_with_shared_bytes_are_rejected():
    data = _stored(lambda f: [f.create_dataset(n, data=np.full(500, 7.0)) for n in "ab"])
    with h5py.File(io.BytesIO(data)) as file:
        offsets = [file[name].id.get_offset().to_bytes(8, "little") for name in "ab"]
    assert data.count(offsets[1]) == 1
    _assert_rejected(data.replace(offsets[1], offsets[0]), "shares bytes with the array")
    overlapping_offset = (int.from_bytes(offsets[0], "little") + 8).to_bytes(8, "little")
    _read_all(data)
    _assert_rejected(data.replace(offsets[1], (len(data) - 8).to_bytes(8, "little")), "/b")
    _assert_rejected(data.replace(offsets[1], overlapping_offset)[:-4000])


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda f: f.create_dataset("x", data=np.zeros(3, "V300")), "HDF5 type"),
        (lambda f: f.create_dataset("x", data=["a", "b"]), "HDF5 type"),
        (
            lambda f: f.create_dataset("x", data=[("a", 1)], dtype=[("s", "S1"), ("n", "i4")]),
            "HDF5 type",
        ),
        (lambda f: f.create_dataset("x", (2,), h5py.ref_dtype), "HDF5 type"),
        (lambda f: f.create_dataset("x", (2,), h5py.vlen_dtype("f4")), "HDF5 type"),
        (lambda f: f.create_dataset("x", data=np.zeros(2, "(2,3)f4")[0]), None),
        (lambda f: f.create_dataset("x", (2,), np.dtype(("f4", (1 << 10,)))), "HDF5 type"),
        (lambda f: f.create_dataset("x", (2,), h5py.enum_dtype({"a": 1})), "HDF5 type"),
        (lambda f: f.create_dataset("x", (2,), np.longdouble), "HDF5 type"),
        (lambda f: f.create_dataset("x", data=h5py.Empty("f4")), ""),
        (lambda f: f.create_dataset("x", data=np.zeros(9), compression="lzf"), "filter"),
        (lambda f: f.create_dataset("x", data=np.zeros(9), scaleoffset=3), "filter"),
        (lambda f: f.attrs.create("x", np.zeros(2, "V3")), "HDF5 type"),
        (lambda f: f.attrs.create("x", f.ref, dtype=h5py.ref_dtype), "HDF5 type"),
        (lambda f: f.attrs.create("x", b"\xff", dtype="S1"), "UTF-8"),
        (lambda f: f.attrs.create("x", [["a"]], dtype=h5py.string_dtype()), "received 2 axes"),
    ],
)
def test_other_hdf5_types_are_rejected(make, word):
    data = _stored(make)
    _read_all(data) if word is None else _assert_rejected(data, word)


def test_the_expected_shape_is_checked_first():
    with open_store(_stored(lambda f: f.create_dataset("a/x", data=np.zeros((2, 3))))) as store:
        with pytest.raises(FileError, match=r"shape \(3, 2\), received \(2, 3\)") as error:
            store.read("a/x", (3, 2))
        assert error.value.member == "/a/x"
        for path in ("a", "a/y", "../x", "a/./x", "a//x"):
            with pytest.raises(FileError, match="expected an array"):
                store.read(path)
        with pytest.raises(FileError):
            store.attributes("b")


@pytest.mark.exhaustive
def test_many_pointers_to_one_long_string_are_rejected():
    many = ["x" * 50_000] * 2000

    def make(file):
        file.attrs.create("a", many, dtype=h5py.string_dtype())

    data = _stored(make, libver="latest")
    assert _read_all(data)["/"]["a"] == tuple(many)
    _assert_rejected(data, "attribute", limits=Limits(attribute_bytes=1 << 10))
    plain = _stored(lambda f: f.attrs.create("a", np.zeros(1000)))
    _assert_rejected(plain, "attribute_bytes", limits=Limits(attribute_bytes=100))


def test_other_types_of_files_are_named(tmp_path):
    (tmp_path / "x.h5").write_bytes(b"PK\x03\x04")
    with pytest.raises(FileError, match="zip archive"), open_store(tmp_path / "x.h5"):
        pass
    data = _stored(lambda f: f.create_dataset("x", data=np.zeros(900)))
    _assert_rejected(data[:600])
    _assert_rejected(data[:9])
    _assert_rejected(b"", "empty")


def test_a_heap_that_never_ends_is_rejected():
    data = bytearray(_stored(lambda f: f.attrs.__setitem__("a", "text")))
    at = data.index(b"GCOL") + 16
    data[at : at + 16] = bytes(16)  # free space of size 0: a reader would never advance
    _assert_rejected(bytes(data), "heap")

"""HDF5 files with external links, cycles or unallocated data are rejected."""

import io
import os

import h5py
import ml_dtypes
import numpy as np
import pytest

from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.hdf5 import new_store, open_store
from fkeras.saving.containers.limits import Limits


def _stored(make, **options):
    """The bytes of an HDF5 file that a function fills."""
    target = io.BytesIO()
    with h5py.File(target, "w", **options) as file:
        make(file)
    return target.getvalue()


def _read_all(data, limits=None):
    with open_store(data, "m.keras", "model.weights.h5", limits) as store:
        waiting = [""]
        found = {}
        while waiting:
            path = waiting.pop()
            found[path or "/"] = store.attributes(path)
            waiting += [f"{path}/{name}" for name in store.groups(path)]
            for name in store.datasets(path):
                found[f"{path}/{name}"] = store.read(f"{path}/{name}")
        return found


def _refused(data, *words, limits=None):
    with pytest.raises(FileError) as error:
        _read_all(data, limits)
    for word in words:
        assert word in str(error.value), str(error.value)
    assert error.value.file == "m.keras"
    return error.value


def test_what_is_written_is_read(tmp_path):
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
                found = store.read(path, np.shape(array))
                assert found.dtype == np.asarray(array).dtype == store.dtype(path)
                np.testing.assert_array_equal(found, array)
                assert store.has(path) and (not found.size or found.ctypes.data % 64 == 0)
            assert store.attributes("a") == {"name": "dense ü"}
            assert store.attributes() == {"layers": ("x", "y")}
            assert (store.groups("a"), store.datasets("/a/b")) == (("b",), ("0", "1"))
            assert store.shape("a/b/0") == (2, 3) and not store.has("b")
            assert store.groups("none") == store.datasets("q") == ()
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["small"].attrs["dtype"] == "bfloat16"  # as Keras looks for it


def test_packed_arrays_and_other_byte_orders_are_read():
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

    found = _read_all(_stored(make))
    for name in packings:
        np.testing.assert_array_equal(found[f"/{name}"], values)
        assert found[f"/{name}"].dtype.isnative


def test_links_that_leave_the_tree_are_refused(tmp_path):
    secret = tmp_path / "secret.h5"
    secret.write_bytes(_stored(lambda f: f.create_dataset("x", data=np.arange(3.0))))

    def make(kind):
        def fill(file):
            file.create_group("layers/dense")
            file["layers/dense/vars"] = kind

        return _stored(fill)

    error = _refused(make(h5py.ExternalLink(str(secret), "/x")), "a link to another file")
    assert error.member == "model.weights.h5:/layers/dense/vars"
    _refused(make(h5py.SoftLink("/layers")), "soft link", "layers/dense/vars")


def test_circles_and_arrays_with_two_names_are_refused():
    def circle(file):
        file["a/b"] = file.create_group("a")

    def twice(file):
        file["y"] = file.create_dataset("x", data=np.zeros(3))

    _refused(_stored(circle), "second path")
    _refused(_stored(twice), "second path", "/y")
    _refused(_stored(lambda f: f.__setitem__("t", np.dtype("f4"))), "stored data type")
    _refused(_stored(lambda f: f.create_group("/".join("a" * 200))), "at most 100 levels of groups")
    many = _stored(lambda f: [f.create_group(str(i)) for i in range(20)])
    _refused(many, "objects", limits=Limits(objects=10))


@pytest.mark.parametrize("name", ["a\tb", "\u2028"])
def test_invisible_names_are_rejected(name):
    _refused(_stored(lambda f: f.create_group(name)), "name")


def test_external_storage_and_virtual_arrays_are_refused_unread(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"top secret")
    before = os.stat(secret).st_atime_ns

    def external(file):
        file.create_dataset("x", (10,), "u1", external=[(str(secret), 0, 10)])

    def virtual(file):
        layout = h5py.VirtualLayout((3,), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "x", (3,))
        file.create_virtual_dataset("x", layout)

    error = _refused(_stored(external), "another file")
    assert error.member == "model.weights.h5:/x" and "secret.bin" not in str(error)
    _refused(_stored(virtual, libver="latest"), "virtual")
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
def test_what_is_claimed_and_not_stored_is_refused(options):
    def make(file):
        made = file.create_dataset("x", (1 << 36,), "f4", **options)
        if options.get("chunks") == (1 << 20,):
            made[:10] = 1.0  # one piece of very many

    _refused(_stored(make), "/x", "exhaust memory")


def test_fill_values_and_bombs_are_refused():
    def unset(file):
        file.create_dataset("x", (64, 64), "u1", chunks=(64, 8))[:, :8] = 1

    def packed(file):
        file.create_dataset("x", data=np.zeros(1 << 22, "u1"), compression=9)

    _refused(_stored(unset), "not stored")
    _refused(_stored(packed), "ratio")
    assert _read_all(_stored(packed), Limits(ratio=2000))["/x"].sum() == 0
    _refused(_stored(packed), "array_bytes", limits=Limits(array_bytes=100))


def test_arrays_that_share_their_bytes_are_refused():
    data = _stored(lambda f: [f.create_dataset(n, data=np.full(500, 7.0)) for n in "ab"])
    with h5py.File(io.BytesIO(data)) as file:
        places = [file[name].id.get_offset().to_bytes(8, "little") for name in "ab"]
    assert data.count(places[1]) == 1
    _refused(data.replace(places[1], places[0]), "shares bytes with the array")
    near = (int.from_bytes(places[0], "little") + 8).to_bytes(8, "little")
    _read_all(data)
    _refused(data.replace(places[1], (len(data) - 8).to_bytes(8, "little")), "/b")
    _refused(data.replace(places[1], near)[:-4000])


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
def test_types_that_weights_do_not_have_are_refused(make, word):
    data = _stored(make)
    _read_all(data) if word is None else _refused(data, word)


def test_the_shape_that_is_wanted_is_checked_first():
    with open_store(_stored(lambda f: f.create_dataset("a/x", data=np.zeros((2, 3))))) as store:
        with pytest.raises(FileError, match=r"shape \(3, 2\), received \(2, 3\)") as error:
            store.read("a/x", (3, 2))
        assert error.value.member == "/a/x"
        for path in ("a", "a/y", "../x", "a/./x", "a//x"):
            with pytest.raises(FileError, match="expected an array"):
                store.read(path)
        with pytest.raises(FileError):
            store.attributes("b")


def test_many_strings_that_are_one_long_one_are_refused():
    many = ["x" * 50_000] * 2000

    def make(file):
        file.attrs.create("a", many, dtype=h5py.string_dtype())

    data = _stored(make, libver="latest")
    assert _read_all(data)["/"]["a"] == tuple(many)
    _refused(data, "attribute", limits=Limits(attribute_bytes=1 << 10))
    plain = _stored(lambda f: f.attrs.create("a", np.zeros(1000)))
    _refused(plain, "attribute_bytes", limits=Limits(attribute_bytes=100))


def test_what_is_no_hdf5_is_called_by_its_name(tmp_path):
    (tmp_path / "x.h5").write_bytes(b"PK\x03\x04")
    with pytest.raises(FileError, match="zip archive"), open_store(tmp_path / "x.h5"):
        pass
    data = _stored(lambda f: f.create_dataset("x", data=np.zeros(900)))
    _refused(data[:600])
    _refused(data[:9])
    _refused(b"", "empty")


def test_a_heap_of_strings_without_an_end_is_refused():
    data = bytearray(_stored(lambda f: f.attrs.__setitem__("a", "text")))
    at = data.index(b"GCOL") + 16
    data[at : at + 16] = bytes(16)  # free space of no size, which is followed by itself
    _refused(bytes(data), "heap")

"""Damaged and malicious files of weights, and kills while saving."""

import io
import json
import pathlib
import subprocess
import sys
import time
import zipfile

import jax
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import fkeras as fk
from fkeras import layers

MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="d")])
ROW = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def load(path, **options):
    return fk.load_weights(path, MODEL, **options)


def table(rows, data=bytes(8), length=None):
    header = rows if isinstance(rows, bytes) else json.dumps(rows).encode()
    length = len(header) if length is None else length
    return length.to_bytes(8, "little") + header + data


TABLES = {
    "longer than the file": (table({"d/bias": ROW}, length=1 << 40), "expected weights"),
    "beyond the bound": (table({"d/bias": ROW}), "at most 16 bytes of a table"),
    "a name twice": (
        table(b'{"d/bias":' + json.dumps(ROW).encode() + b',"d/bias":{}}'),
        "occurs twice",
    ),
    "a shape of 10^18": (
        table({"d/bias": {**ROW, "shape": [10**9, 10**9]}}),
        "describes every byte",
    ),
    "a size below 0": (table({"d/bias": {**ROW, "shape": [-2]}}), "0 or more, received -2"),
    "a size that is no number": (
        table({"d/bias": {**ROW, "shape": [True, 2]}}),
        "whole number, received true",
    ),
    "offsets beyond the end": (
        table({"d/bias": {**ROW, "shape": [1 << 30], "data_offsets": [0, 1 << 32]}}),
        "describes every byte",
    ),
    "offsets reversed": (table({"d/bias": {**ROW, "data_offsets": [8, 0]}}), "offsets .*d/bias"),
    "overlapping": (table({"d/bias": ROW, "e": ROW}), "describes every byte"),
    "a gap": (table({"d/bias": {**ROW, "data_offsets": [4, 12]}}, bytes(12)), "from 4 for .d/bias"),
    "more bytes than described": (table({"d/bias": ROW}, bytes(9)), "describes every byte"),
    "an unknown dtype": (table({"d/bias": {**ROW, "dtype": "O"}}), "dtype among"),
    "a dtype of half bytes": (
        table({"d/bias": {**ROW, "dtype": "F4", "shape": [16]}}),
        "dtype among",
    ),
    "three offsets": (
        table({"d/bias": {**ROW, "data_offsets": [0, 8, 8]}}),
        "offsets .*8, 8.* of .d/bias",
    ),
    "a missing key": (table({"d/bias": {"dtype": "F32", "shape": [2]}}), "data_offsets"),
    "metadata that is no text": (
        table({"__metadata__": {"a": 1}, "d/bias": ROW}),
        "as a string",
    ),
    "a list": (table(b"{" + b'"a":' + b"[" * 200 + b"]" * 200 + b"}"), "levels"),
    "no JSON": (table(b"{dense}"), "expected JSON"),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", TABLES)
def test_misleading_safetensors_are_rejected(tmp_path, case):
    data, message = TABLES[case]
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    limits = fk.Limits(config_bytes=16) if case == "beyond the bound" else None
    with pytest.raises(fk.FileError, match=message) as caught:
        load(path, limits=limits)
    assert caught.value.file == str(path)
    # the reader of the package safetensors rejects the same files
    lenient = ("beyond the bound", "a name twice", "a dtype of half bytes")
    if case not in lenient:
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load(data)


def test_every_truncated_safetensors_is_rejected(tmp_path):
    path = tmp_path / "w.safetensors"
    fk.save_weights(path, MODEL.build(jax.random.key(0)))
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(fk.FileError):
            load(path)


def npz(path, entries, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)


def npy(array, **changes):
    file = io.BytesIO()
    np.save(file, array)
    if not changes:
        return file.getvalue()
    header = np.lib.format.header_data_from_array_1_0(array) | changes
    changed = io.BytesIO()
    np.lib.format.write_array_header_1_0(changed, header)
    return changed.getvalue() + array.tobytes()


BIAS, KERNEL = np.ones(2, "float32"), np.ones((3, 2), "float32")


def test_misleading_npz_is_rejected(tmp_path):
    path = tmp_path / "w.npz"
    good = {"weights/d/kernel": npy(KERNEL), "weights/d/bias": npy(BIAS)}
    npz(path, good)
    np.testing.assert_array_equal(load(path)[0].layers["d"].bias, BIAS)
    npz(path, good | {"weights/d/kernel": npy(np.asfortranarray(KERNEL * [[1], [2], [3]]))})
    assert load(path)[0].layers["d"].kernel[2, 1] == 3

    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    about = {"format": "fkeras weights", "version": 1, "dtypes": {"weights/d/bias": "getattr"}}
    cases = [
        ({"weights/d/bias": npy(BIAS, shape=(10**12,))}, "received 8 bytes"),
        ({"weights/d/bias": npy(BIAS, shape=(-2,))}, "of shape"),
        ({"weights/d/bias": npy(BIAS)[:-1]}, "received 7 bytes"),
        ({"weights/d/bias": b"\x93NUMPY\x03\x00"}, "version 1 or 2"),
        ({"weights/d/bias": b"junk"}, "magic"),
        ({"weights/d/bias": pickled.getvalue()}, "pickles"),
        ({"weights/d/bias": npy(np.ones(2, "S4"))}, r"d/bias float32 \(file: bytes32\)"),
        ({"weights/d/bias": npy(np.ones(2, [("a", "f4")]))}, "expected numbers"),
        ({"about": npy(np.asarray("{}"))}, "expected the format"),
        ({"about": npy(np.asarray(json.dumps(about)))}, "a dtype such as"),
        ({"about": npy(np.asarray("[" * 200 + "]" * 200))}, "levels"),
    ]
    for entries, message in cases:
        npz(path, good | entries)
        with pytest.raises(fk.FileError, match=message) as caught:
            load(path)
        assert caught.value.file == str(path)
    npz(path, {"weights/d/bias": npy(np.zeros(10**7))}, zipfile.ZIP_DEFLATED)
    with pytest.raises(fk.FileError, match="expands from"):
        load(path)
    npz(path, good)
    with pytest.raises(fk.FileError, match="Limits"):
        load(path, limits=fk.Limits(array_bytes=8))
    np.savez(path, kernel=KERNEL)
    with pytest.raises(
        fk.FileError, match=r"missing in the file: d/kernel .*not in the model: kernel"
    ):
        load(path)


def test_shards_are_read_beside_their_index(tmp_path):
    built = MODEL.build(jax.random.key(0))
    fk.save_weights(tmp_path / "other.h5", built)
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "m.weights.json"
    names = ["../other.h5", str(tmp_path / "other.h5"), "other.h5", "a\\b_00000.weights.h5", 3]
    for name in names:
        path.write_text(json.dumps({"metadata": {}, "weight_map": {"/layers/dense/vars": name}}))
        with pytest.raises(fk.FileError, match="in the same folder|a string"):
            load(path)
    path.write_text('{"weight_map": {}}')
    with pytest.raises(fk.FileError, match="expected 1 to .* shards, received 0"):
        load(path)
    shard, second_shard = "m_00000.weights.h5", "m_00001.weights.h5"
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": [shard, second_shard]}}))
    for name in (shard, second_shard):
        (path.parent / name).write_bytes((tmp_path / "other.h5").read_bytes())
    with pytest.raises(fk.FileError, match="in two shards"):
        load(path)
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": shard}}))
    assert load(path)[0] == built


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "an empty file"),
        (b"\x80\x04\x95", "a pickle, which is never opened"),
        (b"<html>", "web page"),
        (b'{"class_name": "Functional"}', "a configuration without weights"),
        (b"PK\x05\x06" + bytes(18), "an empty zip archive"),
    ],
)
def test_other_file_types_are_named(tmp_path, data, word):
    (tmp_path / "w.weights.h5").write_bytes(data)
    with pytest.raises(fk.FileError, match=word):
        load(tmp_path / "w.weights.h5")


# imports the helper of all savers alone: importing JAX takes seconds
SAVES = """
import importlib.util
import sys

spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
number = 0
while True:
    number += 1
    with files.replacing(sys.argv[2]) as file:
        for part in range(50):
            file.write(bytes([number % 256]) * 8192)
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_complete_file(tmp_path):
    path = tmp_path / "w.bin"
    helper = pathlib.Path(fk.__file__).parent / "atomic_files" / "atomic.py"
    rng = np.random.default_rng(0)
    command = [sys.executable, "-I", "-S", "-c", SAVES, str(helper), str(path)]
    for _ in range(10):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(rng.uniform(0, 0.02))
            child.kill()
            child.wait()
        content = path.read_bytes()
        assert len(content) == 50 * 8192 and content == content[:1] * len(content)

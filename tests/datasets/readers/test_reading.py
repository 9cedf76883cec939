"""Archives and gzip files: nothing is written to the disk, and decompressed sizes are limited."""

import gzip
import io
import json
import pickle
import tarfile

import numpy as np
import pytest

from fkeras.datasets.readers import reading
from fkeras.host.containers.errors import FileError


def _idx(data, axes=1, count=None, element_type=8):
    count = len(data) if count is None else count
    return bytes((0, 0, element_type, axes)) + np.asarray([count] * axes, ">u4").tobytes() + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "IDX file|gzip"),
        (b"<html>", "expected a gzip file"),
        (gzip.compress(_idx(b"abc"), mtime=0)[:-9], "expected a gzip file"),
        (gzip.compress(b"", mtime=0), "an IDX file"),
        (gzip.compress(_idx(b"abc", count=4), mtime=0), "an IDX file"),
        (gzip.compress(_idx(b"abc", count=2), mtime=0), "an IDX file"),
        (gzip.compress(_idx(b"abc", element_type=13), mtime=0), "an IDX file"),
        (gzip.compress(_idx(b"", axes=0), mtime=0), "an IDX file"),
        (gzip.compress(_idx(b"abc", axes=200, count=2**31), mtime=0), "an IDX file"),
    ],
)
def test_damaged_gzip_files_are_rejected(tmp_path, content, message):
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        reading.read_idx(str(path))


def test_decompression_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MAX_UNPACKED", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(_idx(bytes(2000))))
    with pytest.raises(FileError, match="at most 1000 bytes after decompression"):
        reading.read_idx(str(tmp_path / "a.gz"))
    with pytest.raises(FileError, match="at most 1000 bytes after decompression"):
        reading.read_pickles(str(tmp_path / "a.gz"), ("train",))


def _archive(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data, member_type in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = member_type, len(data)
            info.linkname = "/etc/passwd" if member_type != tarfile.REGTYPE else ""
            archive.addfile(info, io.BytesIO(data))


VALID_PICKLE = pickle.dumps({b"labels": [1]}, 2)


@pytest.mark.exhaustive
def test_names_in_an_archive_select_no_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    members = [
        ("../../train", VALID_PICKLE, tarfile.REGTYPE),
        ("/tmp/other", VALID_PICKLE, tarfile.REGTYPE),
    ]
    _archive(tmp_path / "a.tar.gz", *members)
    assert reading.read_pickles("a.tar.gz", ("train",)) == [{"labels": [1]}]
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "missing are train"),
        ([("train", b"", tarfile.SYMTYPE)], "missing are train"),
        ([("train", b"", tarfile.LNKTYPE)], "missing are train"),
        ([("train", b"", tarfile.DIRTYPE)], "missing are train"),
        ([("train", b"", tarfile.FIFOTYPE)], "missing are train"),
        ([("train", b"abc", tarfile.REGTYPE)], "train: .*pickled dictionary"),
        ([("train", pickle.dumps([1]), tarfile.REGTYPE)], "an object that is not a dictionary"),
    ],
)
def test_archives_with_other_members_are_rejected(tmp_path, members, message):
    _archive(tmp_path / "a.tar.gz", *members)
    with pytest.raises(FileError, match=message):
        reading.read_pickles(str(tmp_path / "a.tar.gz"), ("train",))


def test_a_damaged_archive_is_rejected(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(b"no archive" * 100))
    with pytest.raises(FileError, match=r"expected a .tar.gz archive"):
        reading.read_pickles(str(tmp_path / "a.tar.gz"), ("train",))
    with pytest.raises(FileError, match="missing are train"):
        reading.read_pickles(str(tmp_path), ("train",))


@pytest.mark.parametrize("value", [[1], {"a": "b"}, {"a": 1.5}, {"a": True}, "a"])
def test_json_of_other_values_is_rejected(tmp_path, value):
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(FileError, match="JSON object from words to numbers"):
        reading.read_json(str(tmp_path / "a.json"))

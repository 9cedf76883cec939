"""Malicious archives and JSON are rejected with the name of the entry."""

import io
import json
import os
import stat
import struct
import zipfile
import zlib

import pytest

from fkeras.host.containers.archive import Window, open_archive, write_archive
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import check, field, parse


def _zip(path, *entries, compression=zipfile.ZIP_STORED):
    """Writes a zip archive with entries (name or ZipInfo, bytes) and returns its path."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in entries:
            file.writestr(name, data)
    return path


def _assert_rejected(path, *words, limits=None, read=None):
    with pytest.raises(FileError) as error:
        with open_archive(path, limits) as archive:
            for name in archive.names if read is None else [read]:
                archive.read(name)
    assert error.value.file == str(path)
    for word in words:
        assert word in str(error.value), str(error.value)
    return error.value


def test_equal_entries_give_equal_archives(tmp_path):
    members = {"config.json": b"{}", "assets/ü.txt": b"", "big": lambda f: f.write(b"x" * 999)}
    write_archive(tmp_path / "a.zip", members)
    write_archive(tmp_path / "b.zip", members)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert file.testzip() is None and file.namelist() == list(members)
    with open_archive(tmp_path / "a.zip") as archive:
        assert archive.names == tuple(members)
        assert archive.read("big") == archive.open("big").read() == b"x" * 999
        assert "config.json" in archive and archive.size("config.json") == 2
        with pytest.raises(FileError, match="missing") as error:
            archive.read("other")
        assert error.value.member == "other"


def test_a_writer_may_seek_and_read(tmp_path):
    def write(file):
        file.write(b"....tail")
        file.seek(0)
        file.write(b"head")
        file.seek(2)
        assert file.read(4) == b"adta" and file.tell() == 6
        file.seek(-2, os.SEEK_END)
        assert file.read() == b"il"

    write_archive(tmp_path / "a.zip", {"first": b"1", "x": write, "last": b"2"})
    with open_archive(tmp_path / "a.zip") as archive:
        assert [archive.read(n) for n in archive.names] == [b"1", b"headtail", b"2"]


def test_compressed_entries_are_read(tmp_path):
    data = os.urandom(100_000) + bytes(100_000)
    _zip(tmp_path / "a.zip", ("x", data), ("dir/", b""), compression=zipfile.ZIP_DEFLATED)
    with open_archive(tmp_path / "a.zip") as archive:
        assert archive.names == ("x",)
        assert archive.read("x") == archive.open("x").read() == data


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", "a/../../x", "a//b", "C:/x", "a\\..\\x", "./x", "a\nb", "x" * 2000],
)
def test_names_outside_the_archive_are_rejected(tmp_path, name):
    _assert_rejected(_zip(tmp_path / "a.zip", (name, b"x")), "name", "Save the model again")


def test_links_are_rejected(tmp_path):
    info = zipfile.ZipInfo("config.json")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert (
        _assert_rejected(_zip(tmp_path / "a.zip", (info, b"/etc/passwd")), "link").member
        == info.filename
    )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names_are_rejected(tmp_path):
    _assert_rejected(_zip(tmp_path / "a.zip", ("x", b"1"), ("x", b"2")), "twice", "x")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_methods_are_rejected(tmp_path, method):
    _assert_rejected(_zip(tmp_path / "a.zip", ("x", b"1"), compression=method), "method")


def test_decompression_bombs_are_rejected_by_ratio_and_size(tmp_path):
    data = bytes(3_000_000)
    path = _zip(tmp_path / "a.zip", ("x", data), compression=zipfile.ZIP_DEFLATED)
    _assert_rejected(path, "to 3000000 bytes", "ratio")
    with open_archive(path, Limits(ratio=2000)) as archive:
        assert archive.read("x") == data
    # the directory lists fewer bytes than the entry unpacks to
    raw = path.read_bytes().replace(struct.pack("<I", len(data)), struct.pack("<I", 60_000))
    path.write_bytes(raw)
    _assert_rejected(path, "unpacks to more than the 60000 bytes")
    stored = _zip(tmp_path / "b.zip", ("x", b"1"), ("y", b"2"))
    _assert_rejected(stored, "1 entries, received 2", limits=Limits(members=1))
    _assert_rejected(stored, "member_bytes", limits=Limits(member_bytes=1))


def _patched(path, old, new, count=1):
    raw = path.read_bytes()
    assert raw.count(old) >= 1
    path.write_bytes(raw.replace(old, new, count))
    return path


def test_a_directory_that_contradicts_the_entries_is_rejected(tmp_path):
    # the entry's header precedes the directory in the file
    _assert_rejected(_patched(_zip(tmp_path / "a.zip", ("name", b"1")), b"name", b"mine"), "mine")
    path = _zip(tmp_path / "b.zip", ("name", b"data"))
    size = struct.pack("<II", 4, 4)
    _assert_rejected(_patched(path, size, struct.pack("<II", 3, 3)), "sizes")
    path = _zip(tmp_path / "c.zip", ("name", b"data"))
    _assert_rejected(_patched(path, b"data", b"dada"), "checksum")
    with pytest.raises(FileError, match="checksum"), open_archive(path) as archive:
        archive.open("name")


def test_overlapping_entries_are_rejected(tmp_path):
    path = _zip(tmp_path / "a.zip", ("a", b"x" * 50), ("b", b"y" * 50))
    raw = bytearray(path.read_bytes())
    begin = raw.rindex(b"PK\x01\x02")
    raw[begin + 42 : begin + 46] = bytes(4)  # the second is listed where the first is
    raw[begin + 46] = ord("a")
    path.write_bytes(raw)
    with pytest.raises(FileError, match="twice|overlaps"), open_archive(path):
        pass


def test_two_end_records_or_a_prefix_are_rejected(tmp_path):
    path = _zip(tmp_path / "a.zip", ("x", b"1"))
    raw = path.read_bytes()
    path.write_bytes(b"#!/bin/sh\n" + raw)
    _assert_rejected(path, "expected a zip archive")
    comment = raw[-22:]
    path.write_bytes(raw[:-2] + struct.pack("<H", len(comment)) + comment)
    _assert_rejected(path)
    path.write_bytes(raw + raw[-22:])  # a second end record
    _assert_rejected(path)
    path.write_bytes(raw[:-30])
    _assert_rejected(path, "truncated")


def test_encrypted_entries_are_rejected(tmp_path):
    path = _zip(tmp_path / "a.zip", ("x", b"1"))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    _assert_rejected(path, "encrypted")


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (b"", "empty file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"\n<!DOCTYPE html>", "HTML"),
        (b"\x80\x04\x95", "pickle"),
        (b'{"class_name": 1}', "JSON"),
        (bytes(600), "zeros"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        (b"something", "begins with b'somethin'"),
        (b"PK\x05\x06" + bytes(18), "empty zip"),
    ],
)
def test_other_types_of_files_are_named(tmp_path, start, word):
    (tmp_path / "m.keras").write_bytes(start)
    _assert_rejected(tmp_path / "m.keras", "expected a zip archive", word)


def test_folders_and_pipes_are_rejected(tmp_path):
    (tmp_path / "saved").mkdir()
    _assert_rejected(tmp_path / "saved", "a folder")
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    _assert_rejected(tmp_path / "saved", "SavedModel")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        _assert_rejected(tmp_path / "pipe", "a pipe")
    with pytest.raises(FileNotFoundError), open_archive(tmp_path / "none"):
        pass


def test_a_member_is_read_as_a_separate_file():
    window = Window(io.BytesIO(b"0123456789"), 2, 5)
    assert window.read() == b"23456" and window.read() == b""
    assert window.seek(-2, os.SEEK_END) == 3 and window.read(9) == b"56"
    with pytest.raises(ValueError):
        window.seek(-9, os.SEEK_CUR)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b"[" * 5000 + b"]" * 5000, "levels of nested JSON"),
        (b"[" * 500_000, "levels of nested JSON"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "at most 100 levels of nested JSON"),
        (b"\xff{}", "UTF-8"),
        (b'{"a": ', "damaged"),
        (b"1" * 5000, "5000 digits"),
        (b"", "damaged"),
        (b'{"a": "' + b"x" * 2000 + b'"}', "config_bytes"),
    ],
)
def test_ambiguous_or_excessive_json_is_rejected(text, word):
    limits = Limits(config_bytes=1500) if word == "config_bytes" else None
    with pytest.raises(FileError) as error:
        parse(text, "m.keras", "config.json", limits)
    assert word in str(error.value) and error.value.member == "config.json"


def test_strict_json_reads_files_of_keras():
    value = {"a": [1, 2.5, None, True, float("inf")], "b": {"c": "ü"}}
    assert parse(json.dumps(value).encode()) == value
    place = {"file": "f", "member": "m", "layer": "l"}
    assert field({"a": 1}, "a", float, **place) == 1
    assert field({}, "a", int, None, **place) is None
    for kind, bad in ((int, True), (str, 1), (dict, []), ((list, type(None)), {}), (float, "1")):
        with pytest.raises(FileError, match="layer 'l': expected 'a' as") as error:
            field({"a": bad}, "a", kind, **place)
        assert (error.value.file, error.value.member) == ("f", "m")
    with pytest.raises(FileError, match="'b' is missing"):
        field({"a": 1}, "b", int)
    with pytest.raises(FileError, match="the container of 'b'"):
        field([], "b", int)
    assert check(None, (type(None), int), "it") is None


def test_foreign_exceptions_become_the_cause_of_a_file_error():
    with (
        pytest.raises(FileError, match="decompressing") as error,
        reading("f", "m"),
        reading(layer="l"),
    ):
        zlib.decompress(b"x")
    assert (error.value.file, error.value.member, error.value.layer) == ("f", "m", "l")
    assert isinstance(error.value.__cause__, zlib.error)
    for kind in (ImportError, FileNotFoundError, KeyboardInterrupt):
        with pytest.raises(kind), reading("f"):
            raise kind("x")
    with pytest.raises(ValueError, match="members as an integer"):
        Limits(members=0)

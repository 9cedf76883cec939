"""`fkeras.atomic_files.atomic.replacing` writes files completely or not at all, also after a kill."""

import errno
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from fkeras.atomic_files.atomic import as_path, naming, replacing


def test_a_new_file_replaces_the_old_one(tmp_path):
    place = tmp_path / "a" / "b.bin"
    for text in (b"first", b"second"):
        with replacing(place) as file:
            file.write(text)
        assert place.read_bytes() == text
    assert os.listdir(place.parent) == ["b.bin"]


def test_an_error_preserves_the_old_file_and_leaves_no_other(tmp_path):
    place = tmp_path / "b.bin"
    place.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(place) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert place.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["b.bin"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_new_file_has_the_default_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "x"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "x").st_mode) == 0o640


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_folder_as_path_is_rejected(tmp_path):
    with pytest.raises(IsADirectoryError, match="folder"), replacing(tmp_path):
        pass
    with pytest.raises(TypeError, match="expected a path"):
        as_path(3)


_KILLED = """
import os, signal, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("files", {source!r})
files = module_from_spec(spec)
spec.loader.exec_module(files)
calls = 0

def trace(frame, event, argument):
    global calls
    calls += 1
    if calls == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return trace

sys.settrace(trace)
with files.replacing({place!r}) as file:
    file.write(b"new" * 1000)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path):
    place = tmp_path / "b.bin"
    source = pathlib.Path(sys.modules["fkeras.atomic_files.atomic"].__file__)
    script = _KILLED.format(source=str(source), place=str(place))
    outcomes = set()
    # lines of the helper and of its callees; the last number is after the end
    for line in (1, 20, 40, 60, 80, 100, 120, 140, 160, 180, 10_000):
        place.write_bytes(b"old")
        process = subprocess.run([sys.executable, "-S", "-c", script, str(line)], check=False)
        text = place.read_bytes()
        assert text in (b"old", b"new" * 1000)
        outcomes.add((process.returncode != 0, text == b"old"))
    assert {(True, True), (False, False)} <= outcomes


def test_errors_without_a_file_get_the_path(tmp_path):
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*b.bin'"),
        replacing(tmp_path / "b.bin"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError, match="'other'"), naming("b.bin"):
        open("other")
    with pytest.raises(ValueError, match=r"expected a path, received 'a\\x00b' with a null byte"):
        as_path("a\0b")

"""Detects the type of a file by its first bytes, and describes unexpected types with a remedy."""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO, TypeAlias

from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers.errors import FileError

#: a binary file that is open for reading at any position
BinaryFile: TypeAlias = BinaryIO | io.BufferedIOBase | io.RawIOBase

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"
# the first bytes that distinguish all types; the signature of tar is at 257
LENGTH = 512

_KINDS = (
    (HDF5, "an HDF5 file", "Rename it with the suffix .h5"),
    (ZIP, "a zip archive", "Rename it with the suffix .keras, or unpack it"),
    (b"PK\x05\x06", "an empty zip archive", "Save the model again"),
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself", "Run `git lfs pull`"),
    (b"\x1f\x8b", "a gzip archive", "Unpack it first"),
    (b"BZh", "a bzip2 archive", "Unpack it first"),
    (b"\xfd7zXZ", "an xz archive", "Unpack it first"),
    (b"Rar!", "a rar archive", "Unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive", "Unpack it first"),
    (b"\x93NUMPY", "a single NumPy array (.npy)", "Read it with numpy.load"),
    (b"\x80", "a pickle, which is never opened", "Save the weights with fk.save_weights"),
    (b"%PDF", "a PDF document", "Look for the model itself"),
    (b"\x7fELF", "a program", "Look for the model itself"),
    (b"\x89PNG", "a picture", "Look for the model itself"),
)


def describe(start: bytes, size: int | None = None) -> str:
    """Describes the type of a file, with a remedy.

    Example:
        >>> describe(b"<!DOCTYPE html><html>")
        'a web page (HTML), perhaps of an error. Download the file itself'
    """
    if not start or size == 0:
        return "an empty file. Save or download it again"
    for signature, name, remedy in _KINDS:
        if start.startswith(signature):
            return f"{name}. {remedy}"
    if start[4:8] == b"TFL3":
        return "a TensorFlow Lite model. Open the original model"
    if start[257:262] == b"ustar":
        return "a tar archive. Unpack it first"
    if not any(start):
        return "zeros only: the file was never written. Save or download it again"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "a web page (HTML), perhaps of an error. Download the file itself"
    if text.startswith((b"{", b"[")):
        return (
            "JSON: a configuration without weights. Pass the file that holds both, or the text to "
            "fk.model_from_json and the file of weights to fk.load_weights"
        )
    return f"a file that begins with {start[:8]!r}. Save or download it again"


def open_regular(path: FilePath) -> io.FileIO:
    """Opens a regular file for reading, without a buffer."""
    file = os.fsdecode(os.fspath(path))
    # checked before opening: opening a named pipe blocks until another process writes
    status = os.stat(file)
    if stat.S_ISDIR(status.st_mode):
        is_saved_model = os.path.exists(os.path.join(file, "saved_model.pb"))
        kind = "a SavedModel folder of TensorFlow" if is_saved_model else "a folder"
        remedy = (
            "Load it with TensorFlow, and save it as .keras"
            if is_saved_model
            else "Pass a file inside it"
        )
        raise FileError(f"expected a file, received {kind}. {remedy}.", file=file)
    if not stat.S_ISREG(status.st_mode):
        raise FileError(
            "expected a file on the disk, received a pipe or a device. Copy it to a file first.",
            file=file,
        )
    return open(file, "rb", buffering=0)

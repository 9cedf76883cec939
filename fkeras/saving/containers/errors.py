"""The refusal of a file: one exception that says which file, which part of it and which layer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from fkeras.engine.messages.key_paths import key_path


class FileError(ValueError):
    """A file that is damaged, is no model, or asks for what no file may ask for.

    Args:
        problem: what was expected, what was received and what to do.
        file: the file's path, or None where there is none.
        member: the part of the file: a name in the archive, or a path in an HDF5 file.
        layer: the name of the layer concerned.
        key: the path of the key concerned in the configuration, such as
            "config.layers[1].config.units".

    Attributes:
        file: the file's path, or None.
        member: the part of the file, or None.
        layer: the name of the layer concerned, or None.
        key: the path of the key concerned, or None.

    Example:
        >>> import fkeras as fk, pathlib, tempfile
        >>> place = pathlib.Path(tempfile.mkdtemp(), "m.keras")
        >>> _ = place.write_bytes(b"<html><body>404</body></html>")
        >>> try:
        ...     fk.load_model(place)
        ... except fk.FileError as error:
        ...     print(error.file == str(place), "HTML" in str(error))
        True True
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        member: str | None = None,
        layer: str | None = None,
        key: str | None = None,
    ):
        self.problem = problem
        self.file = file
        self.member = member
        self.layer = layer
        self.key = key
        parts = [
            file,
            member,
            f"layer {layer!r}" if layer else None,
            f"key {key!r}" if key else None,
        ]
        where = ", ".join(part for part in parts if part)
        super().__init__(f"{where}: {problem}" if where else problem)

    def __reduce__(self) -> Any:
        return (_again, (self.problem, self.file, self.member, self.layer), self.__dict__)


def _again(problem: str, file: str | None, member: str | None, layer: str | None) -> FileError:
    return FileError(problem, file=file, member=member, layer=layer)


@contextlib.contextmanager
def reading(
    file: str | None = None, member: str | None = None, layer: str | None = None
) -> Iterator[None]:
    """Turns whatever the content of a file raises in the block into a `FileError`.

    The first exception stays as the cause, so a fault of our own shows its traceback. Inner blocks
    say more than outer ones: what a `FileError` already names is kept, what it lacks is added.
    A missing package, an interrupt and a file that is not there pass through unchanged.

    Args:
        file: the file's path.
        member: the part that is being read.
        layer: the layer that is being made.

    Raises:
        FileError: for any exception that the block raises, but for those above.

    Example:
        >>> try:
        ...     with reading("m.keras", "config.json", layer="dense"):
        ...         {}["units"]
        ... except FileError as error:
        ...     print(error.member, error.layer, type(error.__cause__).__name__)
        config.json dense KeyError
    """
    try:
        yield
    except FileError as error:
        place = {
            "file": error.file or file,
            "member": error.member or member,
            "layer": error.layer or layer,
            "key": error.key or key_path(error),
        }
        if all(getattr(error, name) == value for name, value in place.items()):
            raise
        raise FileError(error.problem, **place) from error.__cause__
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise FileError(
            _described(error),
            file=file,
            member=member,
            layer=_layer_name(getattr(error, "layer", None)) or layer or _named_layer(error),
            key=key_path(error),
        ) from error


def _layer_name(layer: Any) -> str | None:
    """The name in the place of an error: "'dense' (Dense)" and "'dense', call 0" are of 'dense'."""
    found = re.match(r"'([^']+)'", layer) if isinstance(layer, str) else None
    return found[1] if found else layer


def _named_layer(error: Exception) -> str | None:
    """The name of the layer that a message begins with, as `Layer.where` writes it."""
    found = re.match(r"(?:deserialize: )?'([^']+)' \(", str(error))
    return found[1] if found else None


def _described(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, RecursionError):
        return (
            "objects inside objects, deeper than can be read. Limits(depth=...) bounds it; a model "
            "has a few dozen levels at most."
        )
    if isinstance(error, MemoryError):
        return f"it asks for more memory than there is ({text or 'no size given'}). Do not open it."
    if isinstance(error, ValueError | TypeError | NotImplementedError) and text:
        return text
    return (
        f"what it holds cannot be read ({type(error).__name__}: {text[:300]}). It is damaged, or "
        "something that no Keras wrote; save it again. If Keras opens it, please report it."
    )

"""`FileError` names the file, its part and the layer; `reading` converts exceptions into it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from fkeras.engine.messages.key_paths import key_path


class FileError(ValueError):
    """A file is damaged, holds no model, or exceeds a resource limit.

    Args:
        problem: expected and received values, and a remedy.
        file: path of the file; None for an open stream.
        member: part of the file: a name in the archive, or a path in an HDF5 file.
        layer: name of the layer that the error concerns.
        key: path of a key in the configuration, such as "config.layers[1].config.units".

    Attributes:
        file: path of the file, or None.
        member: part of the file, or None.
        layer: name of the layer, or None.
        key: path of the key, or None.

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
        return (_rebuild, (self.problem, self.file, self.member, self.layer), self.__dict__)


def _rebuild(problem: str, file: str | None, member: str | None, layer: str | None) -> FileError:
    return FileError(problem, file=file, member=member, layer=layer)


@contextlib.contextmanager
def reading(
    file: str | None = None, member: str | None = None, layer: str | None = None
) -> Iterator[None]:
    """Converts exceptions from the block into a `FileError`.

    The original exception is the cause, so that a bug of this library shows its traceback. Blocks
    may be nested: an outer block only adds the fields that an inner block left empty. Exceptions
    for missing packages, missing files, denied access and folders, and interrupts, pass unchanged.

    Raises:
        FileError: for all other exceptions.
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
        # the cause of the inner error, not the inner error: the same problem would be shown twice
        raise FileError(error.problem, **place) from error.__cause__
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        # a damaged file can trigger any exception in parsers and layer constructors
        raise FileError(
            _describe(error),
            file=file,
            member=member,
            layer=_layer_name(getattr(error, "layer", None)) or layer or _named_layer(error),
            key=key_path(error),
        ) from error


def _layer_name(layer: str | None) -> str | None:
    """Returns the layer's name from an error's place: "'dense' (Dense)" and "'dense', call 0"."""
    match = re.match(r"'([^']+)'", layer) if isinstance(layer, str) else None
    return match[1] if match else layer


def _named_layer(error: Exception) -> str | None:
    """Returns the layer's name at the start of a message, as `Layer.where` writes it."""
    match = re.match(r"(?:deserialize: )?'([^']+)' \(", str(error))
    return match[1] if match else None


def _describe(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, RecursionError):
        return (
            "the objects are nested too deeply; a model has a few dozen levels at most. "
            "Limits(depth=...) bounds the depth."
        )
    if isinstance(error, MemoryError):
        return f"the file needs more memory than is available ({text or 'size unknown'}). Do not open it."
    if isinstance(error, ValueError | TypeError | NotImplementedError) and text:
        return text
    return (
        f"the content cannot be read ({type(error).__name__}: {text[:300]}). The file is damaged, or "
        "not written by Keras; save the model again. If Keras opens the file, please report a bug."
    )

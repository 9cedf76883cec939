"""Who wrote a file: the version and kind of Keras, its backend, and the file for messages."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.hdf5 import Store


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a legacy file says about the program that wrote it.

    Attributes:
        version: Keras's version as numbers, such as (2, 3, 1); (1,) where the file says nothing,
            as Keras 1 did.
        tensorflow: whether it is the Keras inside TensorFlow 1 and 2.
        backend: "tensorflow", "theano", "jax" and so on, or None.
        file: the file's path, or None.
        member: the part of the file that is read.

    Example:
        >>> Origin((2, 3, 1)).major
        2
    """

    version: tuple[int, ...] = (1,)
    tensorflow: bool = False
    backend: str | None = None
    file: str | None = None
    member: str | None = None

    @property
    def major(self) -> int:
        """1, 2 or 3."""
        return self.version[0]

    def at(self, member: str) -> Origin:
        """The same for another part of the file."""
        return dataclasses.replace(self, member=member)

    def error(self, problem: str, layer: str | None = None) -> FileError:
        """A refusal that names the file, the part and the layer."""
        return FileError(problem, file=self.file, member=self.member, layer=layer)

    def place(self, layer: str | None = None) -> dict[str, Any]:
        """`file`, `member` and `layer`, as the accessors of JSON take them."""
        return {"file": self.file, "member": self.member, "layer": layer}


def origin_of(store: Store, group: str = "", file: str | None = None) -> Origin:
    """What the attributes of a group say about its origin.

    Args:
        store: the file.
        group: the group with the attributes `keras_version` and `backend`.
        file: the file's path, for messages.

    Raises:
        FileError: for a version that is none.
    """
    attributes = store.attributes(group)
    written = attributes.get("keras_version", "1")
    backend = attributes.get("backend")
    origin = Origin(file=file or store.file, member=f"/{group}")
    found = re.match(r"\d{1,4}(\.\d{1,4}){0,2}", written) if isinstance(written, str) else None
    if found is None:
        raise origin.error(
            f"expected keras_version such as '2.3.1', received {written!r:.80}. The file is damaged."
        )
    version = tuple(int(n) for n in found[0].split("."))
    if not 1 <= version[0] <= 3:
        raise origin.error(
            f"expected a file of Keras 1, 2 or 3, received one of Keras {written:.20}. Save it again "
            "with a version between these."
        )
    inside = "tf" in written or (version[0] == 2 and version >= (2, 4))
    backend = backend if isinstance(backend, str) else None
    return dataclasses.replace(origin, version=version, tensorflow=inside, backend=backend)

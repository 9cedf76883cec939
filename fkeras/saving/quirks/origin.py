"""`Origin`: the program that wrote a file, by version and kind of Keras and by backend."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.strict_json import ParsedJson


@dataclasses.dataclass(frozen=True)
class Origin:
    """The program that wrote a file, as recorded in the file.

    Attributes:
        version: version of Keras, such as (2, 3, 1); (1,) for files of Keras 1, which record no
            version.
        tensorflow: whether the program is the Keras package inside TensorFlow 1 or 2.
        backend: "tensorflow", "theano", "jax" and so on, or None.
        member: part of the file that is read.

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
        """Major version of Keras: 1, 2 or 3."""
        return self.version[0]

    def at(self, member: str) -> Origin:
        """Returns the origin of another part of the file."""
        return dataclasses.replace(self, member=member)

    def error(self, problem: str, layer: str | None = None) -> FileError:
        """Returns an error that names the file, the part and the layer."""
        return FileError(problem, file=self.file, member=self.member, layer=layer)

    def place(self, layer: str | None = None) -> dict[str, Any]:
        """Returns `file`, `member` and `layer` as the functions of `strict_json` take them."""
        return {"file": self.file, "member": self.member, "layer": layer}


def origin_of(store: Store, group: str = "", file: str | None = None) -> Origin:
    """Reads the origin of a legacy HDF5 file from the attributes of a group."""
    attributes = store.attributes(group)
    version, backend = attributes.get("keras_version", "1"), attributes.get("backend")
    return origin_from(version, backend, Origin(file=file or store.file, member=f"/{group}"))


def origin_from(version_text: Any, backend: Any, origin: Origin) -> Origin:
    """Adds the version and the backend that a file names to an origin."""
    # bounded numbers of digits: the text comes from an untrusted file
    match = (
        re.match(r"\d{1,4}(\.\d{1,4}){0,2}", version_text)
        if isinstance(version_text, str)
        else None
    )
    if match is None:
        raise origin.error(
            f"expected keras_version such as '2.3.1', received {version_text!r:.80}. The file is damaged."
        )
    version = tuple(int(number) for number in match[0].split("."))
    if not 1 <= version[0] <= 3:
        raise origin.error(
            f"expected a file of Keras 1, 2 or 3, received a file of Keras {version_text:.20}. Save "
            "the model again with one of these versions."
        )
    # TensorFlow writes "2.2.4-tf"; from 2.4 on, all versions of Keras 2 are those of TensorFlow
    is_tensorflow = "tf" in version_text or (version[0] == 2 and version >= (2, 4))
    backend = backend if isinstance(backend, str) else None
    return dataclasses.replace(origin, version=version, tensorflow=is_tensorflow, backend=backend)


def archive_origin(version: str, config: ParsedJson, file: str, member: str) -> Origin:
    """Returns the program that wrote an archive: Keras 3 only if the calls have Keras 3's form.

    A version 3 with calls in Keras 2's form counts as 2.15: other programs may rewrite the version.
    """
    match = re.match(r"[23](\.\d{1,4}){1,2}", version)
    if match is None:
        raise FileError(
            f"expected 'keras_version' of Keras 2 or 3, such as '3.0.0', received {version[:40]!r}. Open the model "
            "with Keras 3 and save the model again.",
            file=file,
            member="metadata.json",
        )
    numbers = tuple(map(int, match[0].split(".")))
    if numbers[0] == 3 and not _has_list_calls(config):
        return Origin(numbers, file=file, member=member)
    # The version contradicts the form: assume 2.15, the last Keras 2 that wrote archives.
    return Origin((2, 15, 0) if numbers[0] == 3 else numbers, True, "tensorflow", file, member)


def _has_list_calls(config: ParsedJson) -> bool:
    """Whether any network in a configuration has calls in Keras 2's list form."""
    # Networks can be nested in networks, and a wrapper's configuration holds its layer.
    stack = [config]
    while stack:
        item = stack.pop()
        item_config = item.get("config") if isinstance(item, Mapping) else None
        if not isinstance(item_config, Mapping):
            continue
        layers = item_config.get("layers")
        if isinstance(layers, list):
            nodes = [entry.get("inbound_nodes") for entry in layers if isinstance(entry, Mapping)]
            if not has_argument_nodes([entry for entry in nodes if isinstance(entry, list)], True):
                return True
            stack.extend(layers)
        stack.append(item_config.get("layer"))
    return False


def has_argument_nodes(nodes: Sequence[Any], default: bool) -> bool:
    """Whether the calls of all layers have Keras 3's form, `{"args": ..., "kwargs": ...}`.

    Args:
        nodes: the `inbound_nodes` of each layer.
        default: result if no call decides.

    Example:
        >>> has_argument_nodes([[], [{"args": [], "kwargs": {}}]], False)
        True
        >>> has_argument_nodes([[], [[["dense", 0, 0, {}]]]], True)
        False
    """
    calls = [call for each in nodes for call in (each if isinstance(each, list) else ())]
    if any(isinstance(call, list) for call in calls):
        return False
    return default or any(isinstance(c, Mapping) and {"args", "kwargs"} <= set(c) for c in calls)

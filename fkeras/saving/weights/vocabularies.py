"""Vocabularies of lookup layers in the assets of a `.keras` file.

The configuration of a layer that learned its tokens with `adapt` holds no vocabulary. The tokens
are in `assets/<group of the layer>/vocabulary.txt`, one per line, special tokens first; the
"tf_idf" weights of the tokens are in the weight file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fkeras.engine import Layer
from fkeras.engine.values.naming import snake_case
from fkeras.host.containers.archive import Archive
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.weights.old_layouts import OLD_LAYERS, has_arrays
from fkeras.saving.weights.weight_paths import walk_groups

_LOOKUPS = ("IntegerLookup", "StringLookup", "TextVectorization")
#: path of the "tf_idf" weights in a layer's group; here these weights are configuration
IDF_WEIGHTS = "vars/idf_weights"
_OPERATIONS = "keras.src.ops"


def with_vocabularies(config: Mapping[str, Any], archive: Archive, store: Store) -> Mapping:
    """Returns the configuration of a model with the vocabularies of its lookup layers."""
    # most files have no lookup layer: do not walk their configuration
    if not any(name.endswith("/vocabulary.txt") for name in archive.names):
        return config
    return _in_model(config, "", archive, store)


def stored_weights(model: Layer) -> Iterator[tuple[str, np.ndarray]]:
    """Yields `(path, array)` for the "tf_idf" weights that Keras reads from the weight file.

    Example:
        >>> import fkeras as fk
        >>> options = {"output_mode": "tf_idf", "idf_weights": [0.5]}
        >>> layer = fk.layers.StringLookup(vocabulary=["a"], **options)
        >>> [path for path, _ in stored_weights(layer)]
        ['vars/idf_weights']
    """
    for group, _, layer in walk_groups(model):
        if type(layer).__name__ in _LOOKUPS and layer.output_mode == "tf_idf":  # type: ignore
            # Keras's TextVectorization contains a StringLookup, whose group Keras reads too
            subgroups = (
                ("", "_lookup_layer") if type(layer).__name__ == "TextVectorization" else ("",)
            )
            for name in subgroups:
                yield posixpath.join(group, name, IDF_WEIGHTS), layer.index_weights  # type: ignore


def _in_model(item: ParsedJson, group: str, archive: Archive, store: Store) -> Any:
    if not isinstance(item, Mapping) or not isinstance(item.get("config"), Mapping):
        return item
    item_config = item["config"]
    if item.get("class_name") in _LOOKUPS:
        return {
            **item,
            "config": _with_vocabulary(item["class_name"], item_config, group, archive, store),
        }
    layers = item_config.get("layers")
    if not isinstance(layers, list):
        return item
    is_old = any(name.startswith(f"assets/{OLD_LAYERS}/") for name in archive.names)
    list_group = posixpath.join(group, OLD_LAYERS if is_old else "layers")
    counts: dict[str, int] = {}
    converted_layers = []
    for layer in layers:
        # Keras gives operations of the graph no group: they are not numbered
        name = layer.get("class_name") if isinstance(layer, Mapping) else None
        if not isinstance(name, str) or str(layer.get("module")).startswith(_OPERATIONS):
            converted_layers.append(_in_model(layer, list_group, archive, store))
            continue
        name = snake_case(name)
        number = counts.get(name, 0)  # "integer_lookup", "integer_lookup_1"
        layer_group = posixpath.join(list_group, f"{name}_{number}" if number else name)
        # Keras 2.12 and 2.13 count layers with weights or learned tokens twice
        counts[name] = number + (2 if is_old and _has_content(layer_group, archive, store) else 1)
        converted_layers.append(_in_model(layer, layer_group, archive, store))
    return {**item, "config": {**item_config, "layers": converted_layers}}


def _has_content(group: str, archive: Archive, store: Store) -> bool:
    """Returns whether a file has arrays or assets for the layer of a group."""
    if any(name.startswith(f"assets/{group}/") for name in archive.names):
        return True
    return has_arrays(store, group)


def _with_vocabulary(
    kind: str, config: Mapping, group: str, archive: Archive, store: Store
) -> Mapping:
    member = posixpath.join("assets", group, "vocabulary.txt")
    if config.get("vocabulary") is not None or member not in archive:
        return config
    tokens: list[Any] = []
    try:
        tokens = archive.read(member).decode("utf-8").split("\n")
        if kind == "IntegerLookup":
            tokens = [int(token) for token in tokens]
    # FileError is a ValueError: an error of the archive keeps its message
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        expected = "integers" if kind == "IntegerLookup" else "text in UTF-8"
        raise FileError(
            f"expected {expected}, one per line: {error}. Save the model again.",
            file=archive.file,
            member=member,
            layer=str(config.get("name")),
        ) from error
    filled = {**config, "vocabulary": tokens}
    weights = posixpath.join(group, IDF_WEIGHTS)
    if config.get("output_mode") == "tf_idf" and store.has(weights):
        filled["idf_weights"] = store.read(weights).tolist()
    return filled

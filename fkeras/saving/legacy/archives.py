"""`.keras` archives of tf.keras 2.12 to 2.15: Keras 2's configuration in Keras 3's container.

The weight file has Keras 3's layout, but its groups do not note the names of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fkeras.authoring.saving import Groups, by_class, has_arrays, has_old_layers, path_in
from fkeras.engine import Layer, snake_case
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.legacy.calls.graphs import safe_name


def archive_groups(config: Mapping[str, Any], store: Store) -> Groups:
    """Finds the HDF5 group of each layer from the names and classes in the file's configuration.

    Keras 2 names the groups in a list after the file's class names and numbers them in the file's
    order; classes may have other names in fkeras. Keras 2.12 and 2.13 count each layer with
    weights twice.
    """
    groups_by_path = dict(_named_groups(config, "", _steps(store)))

    def find(path: str, layers: Sequence[Layer]) -> Sequence[str]:
        names = groups_by_path.get(path, {})
        groups = [names.get(layer.name) for layer in layers]
        if all(group is not None for group in groups):
            return [str(group) for group in groups]
        # The configuration names only the layers of networks. Keras numbers other lists, such as
        # the cells of a stacked RNN, by class.
        return by_class(path, layers)

    return Groups(find, store.has)


def _steps(store: Store) -> Callable[[str], int]:
    """Returns a function from a group to the number of times Keras counted the group's layer."""
    if not has_old_layers(store):
        # Keras 2.14 and later, like Keras 3, count each layer once.
        return lambda group: 1
    in_file = path_in(store)

    def steps(group: str) -> int:
        return 2 if has_arrays(store, in_file(group)) else 1

    return steps


def _named_groups(
    item: ParsedJson, group: str, steps: Callable[[str], int]
) -> Iterator[tuple[str, dict[Any, str]]]:
    """Yields `(path of a layer list, group by layer name)` for each network in a configuration."""
    item_config = item.get("config") if isinstance(item, Mapping) else None
    if not isinstance(item_config, Mapping):
        return
    if isinstance(item_config.get("layer"), Mapping):
        layer_group = f"{group}/layer" if group else "layer"
        yield from _named_groups(item_config["layer"], layer_group, steps)
    layers = item_config.get("layers")
    if not isinstance(layers, list):
        return
    path = f"{group}/layers" if group else "layers"
    counts: dict[str, int] = {}
    names: dict[Any, str] = {}
    for layer in layers:
        if not isinstance(layer, Mapping) or not isinstance(layer.get("class_name"), str):
            continue
        # Registered classes are written as "package>Class"; only the class is in the group name.
        base_name = snake_case(layer["class_name"].rpartition(">")[2])
        count = counts.get(base_name, 0)
        group_name = f"{base_name}_{count}" if count else base_name
        counts[base_name] = count + steps(f"{path}/{group_name}")
        config = layer.get("config")
        name = layer.get("name") or (config.get("name") if isinstance(config, Mapping) else None)
        if isinstance(name, str):
            names[safe_name(name)] = group_name
        yield from _named_groups(layer, f"{path}/{group_name}", steps)
    yield path, names

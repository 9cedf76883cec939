"""Reads a graph from JSON data in Keras 3's form of functional models.

The data is not trusted: every key is checked before use, and error messages name the layer. A work
list records each call as soon as its inputs are recorded, so the time is linear in the number of calls
for any order of the layers in the data.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from fkeras.engine.call.mask_rules import KERAS, STRICT, take_mask
from fkeras.engine.call.node import is_symbolic, record
from fkeras.engine.config.keras_form import completed_options, keras_form
from fkeras.engine.graph_json.arguments import (
    MAX_DEPTH,
    TreeReader,
    as_kind,
    checked_history,
    checked_value,
    histories,
    history_of,
    read_kinds,
    shown,
)
from fkeras.engine.graph_json.items import Item, read_items, reason
from fkeras.engine.graph_json.operation_calls import joined
from fkeras.engine.graph_json.rule_keys import KEY, check_rule
from fkeras.engine.graph_json.write import starts_at_one
from fkeras.engine.messages.errors import FKerasError, describe_value, suggest
from fkeras.engine.messages.key_paths import within
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.symbolic.operators import KerasTensor, _to_entry
from fkeras.engine.values.annotations import Json, Layer, Tree
from fkeras.engine.values.frozen import is_array

Call = tuple[str, int]


def graph_from_config(
    config: Mapping[str, Any],
    custom_objects: Mapping[str, Any] | None = None,
    mask_rule: str = STRICT,
) -> tuple[Any, Any]:
    """Records the calls of a configuration and returns `(inputs, outputs)`.

    Args:
        mask_rule: the mask rule of calls without a rule in the configuration.

    Raises:
        FKerasError: for data of another form, a layer that cannot be made, a cycle of calls, or an
            unknown tensor; the message names the layer.
    """
    config = checked_value(config, Mapping, "The model", "config")
    items = read_items(config, custom_objects)
    tensors = _record_calls(items, custom_objects, mask_rule)
    kinds = read_kinds(config.get("containers", []), "The model")
    endpoints = []
    for key in ("input_layers", "output_layers"):
        if key not in config:
            raise FKerasError(
                f"The model: {key!r} is missing in the configuration. Save the model again."
            )
        with within(key):
            endpoints.append(_read_ends(config[key], (key,), items, tensors, kinds))
    inputs, outputs = endpoints
    is_single = isinstance(outputs, list | tuple) and len(outputs) == 1
    if is_single and ("output_layers",) not in kinds:
        outputs = outputs[0]  # Keras's models return a single output without its list
    return inputs, outputs


# -- calls ----------------------------------------------------------------------------------------


def _record_calls(
    items: Mapping[str, Item], custom_objects: Mapping[str, Any] | None, mask_rule: str
) -> dict[tuple, Any]:
    """Returns the tensors by layer, call and output."""
    tensors: dict[tuple, Any] = {}
    ready_calls: collections.deque[Call] = collections.deque()
    missing: dict[Call, set[Call]] = {}
    consumers: dict[Call, list[Call]] = {}
    for item in items.values():
        if isinstance(item.layer, InputLayer):
            tensors[item.name, 0, 0] = symbolic(item.layer)
        for index, node in enumerate(item.nodes):
            call = (item.name, index)
            with _within_call(item, index):
                producers = _needed(item, index, node, items)
            # inputs are recorded already
            missing[call] = {c for c in producers if not isinstance(items[c[0]].layer, InputLayer)}
            for producer in missing[call]:
                consumers.setdefault(producer, []).append(call)
            if not missing[call]:
                ready_calls.append(call)
    while ready_calls:
        call = ready_calls.popleft()
        name, index = call
        del missing[call]
        with _within_call(items[name], index):
            outputs = _flat(_record(items[name], index, tensors, custom_objects, mask_rule))
        tensors.update(
            ((name, index, output_index), output) for output_index, output in enumerate(outputs)
        )
        for consumer in consumers.get(call, ()):
            missing[consumer].discard(call)
            if not missing[consumer]:
                ready_calls.append(consumer)
    if missing:
        _raise_cycle(missing)
    return tensors


@contextlib.contextmanager
def _within_call(item: Item, index: int) -> Iterator[None]:
    """Adds the keys of a call to exceptions from the block."""
    with within("layers"), within(item.place), within("inbound_nodes"), within(index):
        yield


def _needed(item: Item, index: int, node: Json, items: Mapping[str, Item]) -> set[Call]:
    """Returns the calls whose outputs a call takes."""
    where = f"{item.name!r}, call {index}"
    node = checked_value(node, Mapping, where, "inbound_nodes")
    trees = [
        checked_value(node.get("args"), list, where, "args"),
        checked_value(node.get("kwargs"), Mapping, where, "kwargs"),
    ]
    producers = set()
    for name, number, _ in histories(trees, where):
        if name not in items:
            raise FKerasError(
                f"{where}: needs a tensor of the layer {name!r}, which the configuration does not "
                f"define.{suggest(name, items)} Correct its inbound_nodes.",
                layer=item.name,
                node=index,
            )
        if not 0 <= number < items[name].calls:
            raise FKerasError(
                f"{where}: needs the output of call {number} of {name!r}, which has only "
                f"{items[name].calls} calls. Correct its inbound_nodes.",
                layer=item.name,
                node=index,
            )
        producers.add((name, number))
    return producers


def _record(
    item: Item,
    index: int,
    tensors: Mapping,
    custom_objects: Mapping[str, Any] | None,
    mask_rule: str,
) -> Tree:
    """Records one call and returns its outputs."""
    where, node, layer = f"{item.name!r}, call {index}", item.nodes[index], item.layer
    kinds = read_kinds(node.get("containers", []), where)

    def tensor(tree: Mapping, where: str) -> Any:
        return _tensor(history_of(tree, where), tensors, where)

    reader = TreeReader(where, tensor, kinds, custom_objects)
    try:
        with within("args"):
            args = [reader.read(v, ("args", i)) for i, v in enumerate(node["args"])]
        with within("kwargs"):
            kwargs = {k: reader.read(v, ("kwargs", k)) for k, v in node["kwargs"].items()}
        if item.form is None:
            _by_position(layer, args, kwargs)
        training = _pin(layer, node, kwargs, where)
        mask_rule = _read_mask(layer, node, kwargs, mask_rule, where)
        explicit, mask = take_mask(layer, kwargs)
        options = {"mask": mask} if explicit else {}
        if item.form is not None and item.form.op == "getitem":
            args = _entries(args, kwargs, where)
        elif item.form is not None:
            fixed = {k: reader.read(v, ("config", k)) for k, v in (item.fixed or {}).items()}
            args, kwargs = joined(item.form, fixed, args, kwargs, node.get("layout"), where)
        _check_called_on_arrays((args, kwargs))
        options = completed_options(layer, tuple(args), {**kwargs, **options})
        return record(layer, tuple(args), options, training, mask_rule, kind=KerasTensor)
    except FKerasError as error:
        # a nested reader has named the call already
        if str(error).startswith(where):
            raise
        raise FKerasError(f"{where}: {error}", layer=item.name, node=index) from error
    except Exception as error:
        raise FKerasError(
            f"{where}: the call cannot be recorded with the 'args' and 'kwargs' of the configuration: "
            f"{reason(error)}",
            layer=item.name,
            node=index,
        ) from error


def _check_called_on_arrays(arguments: tuple) -> None:
    """Rejects a call without tensors and arrays.

    A layer may be called on a constant array, inside `call` of an `fk.Model`.
    """
    if not any(is_symbolic(leaf) or is_array(leaf) for leaf in jax.tree.leaves(arguments)):
        raise FKerasError(
            "expected a symbolic tensor, {'class_name': '__keras_tensor__', ...}, in its 'args' or "
            "'kwargs', received none. Correct its inbound_nodes."
        )


def _tensor(history: tuple[str, int, int], tensors: Mapping, where: str) -> Any:
    if history not in tensors:
        raise FKerasError(
            f"{where}: needs output {history[2]} of call {history[1]} of {history[0]!r}, which does "
            "not exist. Correct the number of the output.",
            layer=where,
        )
    return tensors[history]


def _pin(layer: Layer, node: Mapping, kwargs: dict[str, Any], where: str) -> bool | None:
    """Returns the value to which a call pins `training`; None for a call without a pin.

    Keras writes the layer's default for a call without a pin.
    """
    pinned = node.get("training")
    stored = kwargs.pop("training", None)
    for value in (pinned, stored):
        if not (value is None or value is True or value is False or value in (0, 1)):
            raise FKerasError(
                f"{where}: expected true, false or null as 'training', received {shown(value)}. "
                "Correct the argument.",
                layer=where,
            )
    if pinned is not None:
        return bool(pinned)
    return None if stored is None or stored == keras_form(layer).training_default else bool(stored)


def _read_mask(
    layer: Layer, node: Mapping, kwargs: dict[str, Any], mask_rule: str, where: str
) -> str:
    """Returns the mask rule of a call, and removes `mask` from `kwargs` unless the mask is explicit.

    Keras writes null, or nothing, for a mask that comes with the inputs. An explicit None of a call
    recorded by this package is a key of the call itself.
    """
    no_mask = all(mask is None for mask in _flat(kwargs.get("mask")))
    if no_mask and layer._masks_inputs(None):
        kwargs.pop("mask", None)
    if "mask" in node and node["mask"] is None:
        kwargs["mask"] = None
        mask_rule = STRICT if mask_rule == KERAS else mask_rule
    return check_rule(node[KEY], where) if KEY in node else mask_rule


def _by_position(layer: Layer, args: list, kwargs: dict[str, Any]) -> None:
    """Moves inputs passed by name to their positions, and options passed by position to their names."""
    input_names, option_names = keras_form(layer).input_names, keras_form(layer).option_names
    count = len(input_names)
    if option_names and len(args) > count:
        kwargs.update(zip(option_names, args[count:], strict=False))
        del args[count:]
    for name in input_names[len(args) :]:
        if name not in kwargs:
            return
        args.append(kwargs.pop(name))


def _entries(args: list, kwargs: dict[str, Any], where: str) -> list:
    """Returns the arguments of `x[key]`: x and the entries of the key."""
    if len(args) == 1 and set(kwargs) == {"key"}:
        args = [*args, kwargs.pop("key")]
    if len(args) != 2 or kwargs:
        raise FKerasError(
            f"{where}: expected a tensor and a key, received {len(args)} arguments. Correct its "
            "inbound_nodes.",
            layer=where,
        )
    x, key = args
    for entry in key if isinstance(key, list | tuple) else [key]:
        if isinstance(entry, Mapping | str):
            with within("args"):
                raise FKerasError(
                    f"{where}: expected integers, slices and tensors in the key, received "
                    f"{describe_value(entry)}. Correct its inbound_nodes.",
                    layer=where,
                )
    return [x, *(_to_entry(e) for e in (key if isinstance(key, list | tuple) else [key]))]


def _flat(value: Json) -> list[Any]:
    """Returns the leaves of a tree in Keras's order: dictionaries by sorted keys."""
    if isinstance(value, Mapping):
        return [t for key in sorted(value, key=str) for t in _flat(value[key])]
    return [t for v in value for t in _flat(v)] if isinstance(value, list | tuple) else [value]


def _raise_cycle(missing: Mapping[Call, set[Call]]) -> None:
    """Raises an error that names a cycle among calls that wait for others."""
    call, seen = next(iter(missing)), {}
    while call not in seen:
        seen[call] = len(seen)
        call = min(missing[call])
    cycle = list(seen)[seen[call] :]
    chain = ", ".join(dict.fromkeys(name for name, _ in cycle[:8]))
    raise FKerasError(
        f"{call[0]!r}, call {call[1]}: the calls of {chain} form a cycle. Correct the "
        "inbound_nodes.",
        layer=call[0],
        node=call[1],
    )


# -- inputs and outputs ---------------------------------------------------------------------------


def _read_ends(tree: Json, path: tuple, items: Mapping, tensors: Mapping, kinds: Mapping) -> Tree:
    where = f"The model's {path[0]}"
    # before the recursion, whose depth a file decides
    if len(path) > MAX_DEPTH:
        raise FKerasError(f"{where}: are nested deeper than {MAX_DEPTH} lists. Flatten them.")
    if isinstance(tree, Mapping):
        if tree.get("class_name") == "__tuple__" and isinstance(tree.get("items"), list):
            entries = enumerate(tree["items"])
            return tuple(_end_part(v, (*path, i), items, tensors, kinds) for i, v in entries)
        if not tree:
            raise FKerasError(f"{where}: expected at least one tensor, received no keys.")
        parts = {k: _end_part(v, (*path, k), items, tensors, kinds) for k, v in tree.items()}
        return as_kind(parts, kinds.get(path))
    if not isinstance(tree, list | tuple):
        raise FKerasError(
            f"{where}: expected tensors as [layer, call, output] in lists and dictionaries, "
            f"received {shown(tree)}. Correct it."
        )
    if len(tree) == 3 and isinstance(tree[0], str):
        name, number, output = checked_history(tree, where)
        if name in items and starts_at_one(items[name].layer):
            # Keras reads 0 as index -1, the last call
            number = number - 1 if number else items[name].calls - 1
        if (name, number, output) not in tensors:
            raise FKerasError(
                f"{where}: expected tensors of the configuration, received {tuple(tree)}. Correct "
                "it.",
                layer=name,
            )
        return tensors[name, number, output]
    if not tree:
        raise FKerasError(f"{where}: expected at least one tensor, received an empty list.")
    values = [_end_part(v, (*path, i), items, tensors, kinds) for i, v in enumerate(tree)]
    return tuple(values) if kinds.get(path) == "tuple" else values


def _end_part(tree: Json, path: tuple, items: Mapping, tensors: Mapping, kinds: Mapping) -> Tree:
    with within(path[-1]):
        return _read_ends(tree, path, items, tensors, kinds)

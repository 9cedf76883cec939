"""The key `mask_rule` of networks and calls in JSON data; see `fkeras.engine.call.mask_rules`.

Networks whose rules compute the same have no key, so that most files equal Keras's files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.call.mask_rules import KERAS, RULES, STRICT
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values.annotations import Json
from fkeras.engine.values.config_walk import mappings

#: the key of a rule in configurations of networks and of calls; Keras ignores the key
KEY = "mask_rule"

_MAKERS = ("Masking", "Lambda")
_NO_LAYERS = ("build_config", "compile_config")
_NETWORKS = ("Functional", "Sequential", "Model")


def check_rule(rule: Json, where: str) -> str:
    """Returns the rule of a configuration.

    Raises:
        FKerasError: for any other value.
    """
    if rule not in RULES:
        raise FKerasError(
            f"{where}: {KEY}: expected one of {', '.join(map(repr, RULES))}, received "
            f"{str(rule)[:80]!r}. Correct the configuration, or remove the key."
        )
    return rule


def read_rule(config: Mapping[str, Any], custom: Json, where: str) -> tuple[str, Mapping[str, Any]]:
    """`(rule, config)`: the rule of a network's calls, and the configuration with rules inside.

    A configuration without a rule comes from Keras 3. If the network can make masks or calls a layer
    twice, its calls and those of all nested networks follow the rule "keras". In all other networks
    the rules compute the same, and "strict" keeps files free of the extra key.

    Args:
        custom: user classes by name, or None.
    """
    if KEY in config:
        return check_rule(config[KEY], where), config
    names = frozenset(custom or ())
    if not _rules_differ(config, lambda i: i["class_name"] in names or _is_foreign(i)):
        return STRICT, config
    return KERAS, with_rule(config, KERAS)


def written_rule(config: Mapping[str, Any], rule: str) -> dict[str, str]:
    """The entry for the rule in a network's configuration; empty if all rules compute the same."""
    return {KEY: rule} if rule != STRICT or _rules_differ(config, _is_foreign) else {}


def with_rule(config: Json, rule: str) -> Json:
    """The configuration of a model, with this rule for every network that has none."""
    # no recursion: the depth of the configuration comes from a file
    root: list[Any] = [config]
    pending: list[tuple[Any, Any]] = [(root, 0)]
    while pending:
        parent, key = pending.pop()
        item = parent[key]
        if isinstance(item, list):
            copy: Any = list(item)
            pending.extend((copy, index) for index in range(len(copy)))
        elif isinstance(item, Mapping):
            copy = dict(item)
            inner = copy.get("config")
            if copy.get("class_name") in _NETWORKS and isinstance(inner, Mapping):
                if KEY not in inner:
                    copy["config"] = {**inner, KEY: rule}
            pending.extend((copy, name) for name in copy if name != "inbound_nodes")
        else:
            continue
        parent[key] = copy
    return root[0]


def makes_masks(config: Json, is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether a model may have masks: from a layer that makes masks, or from an explicit mask.

    Args:
        is_maker: returns whether any other object, `{"class_name": ..., "config": ...}`, may make masks.
    """
    return any(_makes_masks(item, is_maker) for item in mappings(config, _NO_LAYERS))


def _rules_differ(config: Json, is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether the rules may differ: with masks, or by the order of the calls of a shared layer."""
    return any(
        _makes_masks(item, is_maker) or _is_shared(item) for item in mappings(config, _NO_LAYERS)
    )


def _makes_masks(item: Mapping[str, Any], is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    kind, inner = item.get("class_name"), item.get("config")
    if isinstance(kind, str) and isinstance(inner, Mapping):
        if kind in _MAKERS or inner.get("mask_zero") or is_maker(item):
            return True
    options = item.get("kwargs")
    return isinstance(options, Mapping) and _is_given(options.get("mask"))


def _is_shared(item: Mapping[str, Any]) -> bool:
    calls = item.get("inbound_nodes")
    return isinstance(calls, list) and len(calls) > 1


def _is_foreign(item: Mapping[str, Any]) -> bool:
    """Whether an object's class is in neither Keras nor this library."""
    module = item.get("module")
    return isinstance(module, str) and not f"{module}.".startswith(
        ("keras.", "fkeras.", "builtins.")
    )


def _is_given(mask: Json) -> bool:
    """Whether at least one mask is present; files hold None for a missing mask."""
    return any(map(_is_given, mask)) if isinstance(mask, list) else mask is not None

"""`ValuesByCall`: values inside a model by the keys of calls, also found by the names of layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax

from fkeras.engine.messages.errors import MissingNameError, suggest
from fkeras.engine.values.annotations import Tree

# the number of a call ends the name of its layer, before the next layer or the number of an output
_CALL = re.compile(r"_ib-\d+(?=/|:|$)")
# resource limit: keys in a message
_SHOWN = 20


class ValuesByCall(dict):
    """Dictionary of values by calls; the name of a layer finds the value of its only call.

    Iteration, length and `==` are those of the dictionary. JAX treats the values as the children of a
    dictionary: leaves by sorted keys, with paths such as `['dense_ib-0']`.

    Example:
        >>> values = ValuesByCall({"dense_ib-0": 1.0, "encoder_ib-0/block_ib-1": 2.0})
        >>> values["dense"], values["encoder/block"], list(values)
        (1.0, 2.0, ['dense_ib-0', 'encoder_ib-0/block_ib-1'])
    """

    __slots__ = ()

    def _keys_of(self, name: object) -> list[str]:
        return [key for key in self if _name_of(key) == name]

    def __missing__(self, name: object) -> Any:
        keys = self._keys_of(name)
        if len(keys) == 1:
            return dict.__getitem__(self, keys[0])
        if keys:
            raise MissingNameError(
                f"values of a probe: {name!r} has the values of {len(keys)} calls. Write one of the "
                f"keys: {_listed(keys)}."
            )
        near = suggest(name, [*self, *map(_name_of, self)]) if isinstance(name, str) else ""
        raise MissingNameError(
            f"values of a probe: there is no value {name!r:.80}.{near} Existing keys are: {_listed(self)}."
        )

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or len(self._keys_of(name)) == 1

    def get(self, name: object, default: Any = None) -> Any:
        """Returns the value of a key or of a layer's only call, or `default`."""
        # dict.get ignores __missing__
        return self[name] if name in self else default  # noqa: SIM401


def plain_dicts(tree: Tree) -> Tree:
    """Returns a tree with a plain dictionary for each `ValuesByCall`: exported programs run without fkeras."""

    def plain(value: Any) -> Any:
        if isinstance(value, ValuesByCall):
            return {key: plain_dicts(inner) for key, inner in value.items()}
        return value

    return jax.tree.map(plain, tree, is_leaf=lambda value: isinstance(value, ValuesByCall))


def _name_of(key: Any) -> Any:
    # users may add keys of other types
    return _CALL.sub("", key) if isinstance(key, str) else key


def _listed(keys: Iterable[object]) -> str:
    texts = [repr(key) for key in keys]
    return ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")


def _flatten(values: ValuesByCall) -> tuple[tuple, tuple[str, ...]]:
    keys = tuple(sorted(values))
    return tuple(values[key] for key in keys), keys


def _flatten_with_keys(values: ValuesByCall) -> tuple[tuple, tuple[str, ...]]:
    children, keys = _flatten(values)
    return tuple(zip(map(jax.tree_util.DictKey, keys), children, strict=True)), keys


def _unflatten(keys: tuple[str, ...], children: Iterable) -> ValuesByCall:
    return ValuesByCall(zip(keys, children, strict=True))


jax.tree_util.register_pytree_with_keys(ValuesByCall, _flatten_with_keys, _unflatten, _flatten)

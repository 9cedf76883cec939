"""`KeepsTokens`: layers whose state can hold the tokens of earlier calls.

For other layers, `tokens_of` and `state_with_cache` use the defaults of this class.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from fkeras.engine.values import cache_size
from fkeras.engine.values.annotations import Layer, Tree
from fkeras.engine.values.cache_size import CacheSize
from fkeras.engine.values.spec import as_specs


class KeepsTokens:
    """Base class, beside `Layer`, of layers that keep tokens and of layers that contain others.

    A layer with a cache alone needs no base class: `init_cache(self, size, *specs)` makes the entries.
    With the methods of this class, a model on concrete arrays checks the capacity of its caches.
    """

    def _state_with_cache(self: Any, size: CacheSize, *specs: Tree) -> dict[str, Any]:
        """Returns the state with the entries of the cache; layers with children ask the children."""
        # a text is an argument of an operation, such as the dtype of `ops.cast`
        inputs = tuple(s if s is None or isinstance(s, str) else as_specs(s) for s in specs)
        return {**self.init_state(*inputs), **self.init_cache(size, *inputs)}

    def _capacity(self, state: Mapping[str, Any]) -> int | None:
        """Returns the maximum number of tokens of a row in the cache of `state`; None for no limit."""
        return None

    def _keeps_tokens(self, inputs: tuple) -> bool:
        """Returns whether a call needs a cache once other layers of a model have their caches."""
        return False

    def _lengths_after(self, state: Mapping[str, Any], inputs: tuple, mask: Tree) -> Any:
        """Returns the tokens of each row after a call; None from layers that count no tokens."""
        return None

    def _check_capacity(self, state: Mapping[str, Any], inputs: tuple, mask: Tree) -> None:
        """Raises FKerasError if the tokens of a concrete call exceed the cache in `state`."""


_NO_TOKENS = KeepsTokens()


def tokens_of(layer: Layer) -> KeepsTokens:
    """Returns the layer if it keeps tokens, otherwise an object with the defaults of `KeepsTokens`.

    Example:
        >>> import fkeras as fk
        >>> [tokens_of(l)._keeps_tokens(()) for l in (fk.layers.Positions(), fk.layers.ReLU())]
        [True, False]
    """
    return layer if isinstance(layer, KeepsTokens) else _NO_TOKENS


def state_with_cache(layer: Any, size: CacheSize, *specs: Tree) -> dict[str, Any]:
    """Returns the state of `layer.init_cache(batch, length, *specs)`, for a size that was checked.

    Example:
        >>> import fkeras as fk
        >>> state_with_cache(fk.layers.Positions(), CacheSize(2, 16))
        {'length': Array([0, 0], dtype=int32)}
    """
    if isinstance(layer, KeepsTokens):
        return layer._state_with_cache(size, *specs)
    return KeepsTokens._state_with_cache(layer, size, *specs)


def from_numbers(layer: Layer, arguments: tuple, slack: Any) -> dict[str, Any]:
    """Returns the state of `layer.init_cache(*arguments, slack=slack)`.

    Raises:
        ValueError: for a wrong size.
    """
    size, specs = cache_size.read(layer._where, arguments, slack)
    return state_with_cache(layer, size, *specs)


def from_former_call(layer: Layer, arguments: tuple, slack: Any) -> dict[str, Any] | None:
    """Returns the state of `init_state(batch, length, *specs)`, the former call; None for specs alone."""
    if not cache_size.is_size(arguments):
        cache_size.check_no_slack(layer._where, slack)
        return None
    state = from_numbers(layer, arguments, slack)
    warnings.warn(
        f"{layer._where}: init_state(batch, length) is now init_cache(batch, length), with the same "
        "arguments; init_state makes the state without caches.",
        DeprecationWarning,
        stacklevel=4,  # the caller of `init_state`, around which are two frames
    )
    return state

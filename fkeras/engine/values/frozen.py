"""Immutable, hashable forms of configuration values.

A layer is a value, so all its fields except weights must hash and compare. Lists become tuples,
dictionaries become `FrozenDict`, arrays become `ArrayConstant`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import ItemsView, Iterator, Mapping, Set
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

from fkeras.engine.values.annotations import Leaf
from fkeras.engine.values.arrays import plain

Value = TypeVar("Value", covariant=True)


class FrozenDict(Mapping[str, Value]):
    """Immutable mapping with a hash; keeps the order of keys, which `==` ignores.

    Example:
        >>> FrozenDict({"a": 1}) == FrozenDict({"a": 1})
        True
    """

    __slots__ = ("_hash", "_items")

    _hash: int | None

    def __init__(self, items: Mapping[str, Value] | tuple[tuple[str, Value], ...] = ()):
        object.__setattr__(self, "_items", dict(items))
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: Leaf) -> None:
        raise AttributeError("A FrozenDict cannot change. Make a new mapping: {**old, key: value}.")

    def like(self, items: Mapping[str, Any]) -> FrozenDict[Any]:
        """Returns a mapping of the same class with other values under the same keys."""
        return FrozenDict(items)

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[str, Value]:
        return self._items.items()

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = hash(frozenset(self._items.items()))
            object.__setattr__(self, "_hash", value)
        return value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenDict):  # without the methods of a mapping, which are slow
            return self is other or self._items == other._items
        return isinstance(other, Mapping) and dict(other) == self._items

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self):
        return (FrozenDict, (self._items,))


class ArrayConstant:
    """An array as a configuration value: compares by dtype, shape and bytes.

    Example:
        >>> import numpy as np
        >>> ArrayConstant(np.ones(2)) == ArrayConstant(np.ones(2))
        True
    """

    __slots__ = ("_hash", "array")

    _hash: int | None

    def __init__(self, array: Leaf):
        # a copy: the caller may change the array later
        frozen = np.array(array if isinstance(array, jax.Array) else plain(array, "A constant"))
        frozen.setflags(write=False)
        object.__setattr__(self, "array", frozen)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: Leaf) -> None:
        raise AttributeError(
            "An ArrayConstant cannot change. Make another constant from the new array."
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)

    def __hash__(self) -> int:
        # lazily: hashing copies all bytes of the array
        value = self._hash
        if value is None:
            contents = (self.array.shape, str(self.array.dtype), self.array.tobytes())
            value = hash(contents)
            object.__setattr__(self, "_hash", value)
        return value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ArrayConstant)
            and self.array.shape == other.array.shape
            and self.array.dtype == other.array.dtype
            and self.array.tobytes() == other.array.tobytes()
        )

    def __repr__(self) -> str:
        return f"ArrayConstant(shape={self.array.shape}, dtype={self.array.dtype})"

    def __reduce__(self):
        return (ArrayConstant, (self.array,))


@dataclasses.dataclass(frozen=True, repr=False)
class KeyConstant:
    """A key of `jax.random` as a configuration value: the seed of a recorded operation.

    Example:
        >>> import jax
        >>> KeyConstant.of(jax.random.key(0)) == KeyConstant.of(jax.random.key(0))
        True
    """

    data: ArrayConstant
    impl: str

    @classmethod
    def of(cls, key: jax.Array) -> KeyConstant:
        return cls(ArrayConstant(jax.random.key_data(key)), str(jax.random.key_impl(key)))

    @property
    def key(self) -> jax.Array:
        return jax.random.wrap_key_data(self.data.array, impl=self.impl)

    def __repr__(self) -> str:
        return f"key({self.impl})"


def constant_of(array: Leaf) -> ArrayConstant | KeyConstant:
    """Returns the immutable form of an array or a key."""
    is_key = jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)
    return KeyConstant.of(array) if is_key else ArrayConstant(array)


def short_array(value: Leaf) -> str:
    """Returns dtype and shape of an array as short text."""
    dtype = re.sub(r"^(bf|[fiuc])[a-z]*(?=\d)", r"\1", str(value.dtype))
    return f"{dtype}[{','.join(map(str, value.shape))}]"


def is_array(value: Leaf) -> bool:
    """Returns whether `value` is a NumPy array, a JAX array or a tracer."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def freeze_value(value: Leaf) -> Leaf:
    """Returns the immutable form of a configuration value.

    Raises:
        TypeError: for a traced value, and for an unhashable value without an immutable form.
    """
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(freeze_value(v) for v in value)
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze_value(v) for key, v in value.items()})
    if isinstance(value, Set):
        return frozenset(value)
    if isinstance(value, Tracer):
        raise TypeError(
            "A configuration value is being traced by a JAX transformation, and configuration "
            "is static. Pass the value as an input of the call, or as a plain Python or NumPy value."
        )
    if isinstance(value, np.generic):
        return value.item()
    if is_array(value):
        return constant_of(value)
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"A configuration value of type {type(value).__name__} is not hashable, so its object "
            "could not be compared. Use numbers, strings, tuples, dictionaries, arrays, functions "
            "or frozen dataclasses."
        ) from None
    return value

"""Attention masks as values: functions of the positions of queries and keys.

A mask says which keys a query may attend to. `Causal() & Window(512)` is a value: masks compare, hash,
pickle and are part of a layer's configuration. A mask compares positions, never indices of buffers, so
the same mask holds for a whole sequence, for one token beside a cache, and for a cache that is a ring.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import Converted, Integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.annotations import Field, Leaf
from fkeras.nn.attention_blocks import Take, whole

__all__ = ("And", "Causal", "Chunk", "Mask", "Not", "Or", "Prefix", "Segments", "Slot", "Window")

#: the number of earlier and of later positions that a query may attend to
Reach = tuple[float, float]
_ALL: Reach = (math.inf, math.inf)


def _is_tensor(value: Leaf, ndim: int) -> bool:
    """Returns whether a value is an array of integers, a spec of integers or a symbolic tensor."""
    if isinstance(value, Slot):
        return True
    # JAX unflattens pytrees with placeholders, such as `object()` and None
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return False
    return len(value.shape) == ndim and jnp.issubdtype(value.dtype, jnp.integer)


def _flatten(mask: Mask) -> tuple[tuple, tuple]:
    """Splits a mask into children (arrays, and masks inside) and static fields."""
    values = mask._values()
    if isinstance(mask, _Several):
        return mask.masks, ()
    static = tuple(None if _is_child(v) else v for v in values)
    return tuple(v for v in values if _is_child(v)), (tuple(map(_is_child, values)), static)


def _is_child(value: Leaf) -> bool:
    return isinstance(value, Mask) or not isinstance(value, bool | int)


class _Unflatten:
    """Joins what `_flatten` split; JAX also passes placeholders, which no constructor would accept."""

    def __init__(self, cls: type[Mask]):
        self.cls = cls

    def __call__(self, static: tuple, children: Sequence[Any]) -> Mask:
        mask = object.__new__(self.cls)
        if issubclass(self.cls, _Several):
            object.__setattr__(mask, "masks", tuple(children))
            return mask
        is_child, values = static
        remaining = iter(children)
        names = [field.name for field in dataclasses.fields(self.cls)]
        for name, child, value in zip(names, is_child, values, strict=True):
            object.__setattr__(mask, name, next(remaining) if child else value)
        return mask


class Mask(Configurable):
    """Base class of attention masks; `&`, `|` and `~` combine masks.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> steps = jnp.arange(3)
        >>> fk.masks.Causal().allows(steps, steps).astype(int)
        Array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 1]], dtype=int32)
    """

    _keras_module: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__:  # a mask of a user is found in `custom_objects`
            cls._keras_module = "fkeras.masks"
        elif "allows" in vars(cls):  # not the rows that its base class allows
            cls._allows_part = Mask._allows_part
        jax.tree_util.register_pytree_node(cls, _flatten, _Unflatten(cls))

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns for each pair of positions whether the query may attend to the key.

        Args:
            query: integer positions (t,), or (b, t) for rows with their own positions.
            key: integer positions (s,) or (b, s).

        Returns:
            A Boolean array (t, s) or (b, t, s).
        """
        raise NotImplementedError(
            f"{type(self).__name__}: has no `allows`. Write `def allows(self, query, key): ...`, which "
            "maps positions (b, t) and (b, s) to a Boolean array (b, t, s)."
        )

    def _allows_part(self, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
        """Returns the rows of `allows(query, key)` of the queries that `take` selects."""
        if type(self).__module__ != __name__ and jax.tree.leaves(self):
            # a mask of a user may have an array with an entry for each query
            allowed = self.allows(query, key)
            return take(allowed, allowed.ndim - 2)
        return self.allows(take(query, query.ndim - 1), key)

    @property
    def reach(self) -> Reach:
        """The number of earlier and of later positions that a query may attend to."""
        return _ALL

    def __and__(self, other: Mask) -> And:
        return And((self, other)) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Or:
        return Or((self, other)) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Not:
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r}: a mask has no truth value, so `and`, `or` and `not` do not combine masks. Write "
            "`&`, `|` and `~`."
        )


def _pairs(query: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return query[..., :, None], key[..., None, :]


class Causal(Mask):
    """A query attends to keys at its own and at earlier positions.

    Example:
        >>> import fkeras as fk
        >>> fk.masks.Causal() & fk.masks.Window(512)
        And((Causal(), Window(512)))
    """

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        query, key = _pairs(query, key)
        return key <= query

    @property
    def reach(self) -> Reach:
        return math.inf, 0


class Window(Mask):
    """A query attends to keys less than `size` positions before it.

    Args:
        size: number of positions, that of the query included.
        both_sides: whether the window also limits keys after the query. Otherwise the window allows
            all later keys: combine it with `Causal()`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> steps = jnp.arange(4)
        >>> fk.masks.Window(2, both_sides=True).allows(steps, steps).astype(int)
        Array([[1, 1, 0, 0],
               [1, 1, 1, 0],
               [0, 1, 1, 1],
               [0, 0, 1, 1]], dtype=int32)
    """

    size: Integer = option(convert=integer(minimum=1))
    both_sides: bool = option(default=False, convert=boolean)

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        query, key = _pairs(query, key)
        distance = query - key
        return (jnp.abs(distance) if self.both_sides else distance) < self.size

    @property
    def reach(self) -> Reach:
        return self.size - 1, self.size - 1 if self.both_sides else math.inf


class Chunk(Mask):
    """A query attends to keys of its own chunk: positions 0 to `size - 1`, `size` to `2 * size - 1`, and so on.

    `Causal() & Chunk(n)` is the local attention of Llama 4.

    Args:
        size: number of positions of a chunk.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> steps = jnp.arange(5)
        >>> (fk.masks.Causal() & fk.masks.Chunk(2)).allows(steps, steps).astype(int)
        Array([[1, 0, 0, 0, 0],
               [1, 1, 0, 0, 0],
               [0, 0, 1, 0, 0],
               [0, 0, 1, 1, 0],
               [0, 0, 0, 0, 1]], dtype=int32)
    """

    size: Integer = option(convert=integer(minimum=1))

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        query, key = _pairs(query // self.size, key // self.size)
        return query == key

    @property
    def reach(self) -> Reach:
        return self.size - 1, self.size - 1


class Prefix(Mask):
    """A query attends to keys at the first `size` positions.

    `Causal() | Prefix(n)` is the mask of prefix language models: the first `n` tokens see each other.

    Args:
        size: number of positions; an array (b,) or a symbolic tensor gives each row its own number.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> steps = jnp.arange(3)
        >>> (fk.masks.Causal() | fk.masks.Prefix(2)).allows(steps, steps).astype(int)
        Array([[1, 1, 0],
               [1, 1, 0],
               [1, 1, 1]], dtype=int32)
    """

    size: Converted[Any, Any] = option()

    def __post_init__(self) -> None:
        if not _is_tensor(self.size, 1):
            object.__setattr__(self, "size", integer(minimum=1).check("Prefix: size", self.size))

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        size = jnp.asarray(self.size)
        if size.ndim:
            size = size[:, None, None]
            query, key = (jnp.reshape(p, (-1, p.shape[-1])) for p in (query, key))
        query, key = _pairs(query, key)
        # every query sees the same keys: the comparison only gives the result its axis of queries
        return (key < size) & (query == query)


class Segments(Mask):
    """Tokens attend to tokens of their own segment: several texts packed into one row.

    The numbers belong to the tokens of one call: a call with a cache cannot take them. In a decoder,
    give the segments to `fk.layers.Positions` instead: attention finds the segments in the positions.

    Args:
        ids: integers (b, t), an array or a symbolic tensor; 0 is padding, which attends to nothing.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> ids = jnp.array([[1, 1, 2, 0]])
        >>> steps = jnp.arange(4)
        >>> fk.masks.Segments(ids).allows(steps, steps)[0].astype(int)
        Array([[1, 1, 0, 0],
               [1, 1, 0, 0],
               [0, 0, 1, 0],
               [0, 0, 0, 0]], dtype=int32)
    """

    ids: Converted[Any, Any] = option()

    def __post_init__(self) -> None:
        if not _is_tensor(self.ids, 2):
            raise ValueError(
                "Segments: ids: expected integers of shape (b, t), an array or a symbolic tensor, received "
                f"{describe_value(self.ids)}. Number the segments of each row from 1; 0 is padding."
            )

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        return self._allows_part(query, key, whole)

    def _allows_part(self, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
        ids = jnp.asarray(self.ids)
        if query.shape[-1] != ids.shape[1] or key.shape[-1] != ids.shape[1]:
            raise ValueError(
                f"Segments: expected queries and keys for each of the {ids.shape[1]} ids of a row, "
                f"received {query.shape[-1]} queries and {key.shape[-1]} keys. With a cache, or in "
                "attention between two sequences, give positions instead of segments."
            )
        queries, keys = _pairs(take(ids, 1), ids)
        return (queries == keys) & (keys != 0)


def _masks(value: Field) -> Field:
    if not isinstance(value, list | tuple) or not all(isinstance(m, Mask) for m in value):
        raise ValueError(
            f"expected a tuple of masks, received {describe_value(value)}. Write mask & other."
        )
    return tuple(value)


def _of_one_rank(
    masks: Sequence[Mask], query: jax.Array, key: jax.Array, take: Take
) -> list[jax.Array]:
    """Returns what each mask allows; a mask with arrays has an axis of rows in any case."""
    allowed = [mask._allows_part(query, key, take) for mask in masks]
    rank = max(a.ndim for a in allowed)
    return [jnp.reshape(a, (*(1,) * (rank - a.ndim), *a.shape)) for a in allowed]


class _Several(Mask):
    masks: Converted[Sequence[Mask], tuple[Mask, ...]] = option(convert=_masks)

    def __post_init__(self) -> None:
        masks = _masks(self.masks)
        # `a & (b & c)` equals `(a & b) & c`
        flat = [m for mask in masks for m in (mask.masks if type(mask) is type(self) else (mask,))]
        object.__setattr__(self, "masks", tuple(flat))
        if not flat:
            raise ValueError(f"{type(self).__name__}: masks: expected at least one mask.")

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        return self._allows_part(query, key, whole)


class And(_Several):
    """A query attends to keys that every mask allows; made by `mask & other`.

    Args:
        masks: the masks.

    Example:
        >>> import fkeras as fk
        >>> (fk.masks.Causal() & fk.masks.Window(4)).reach
        (3, 0)
    """

    def _allows_part(self, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
        return functools.reduce(jnp.logical_and, _of_one_rank(self.masks, query, key, take))

    @property
    def reach(self) -> Reach:
        before, after = zip(*(mask.reach for mask in self.masks), strict=True)
        return min(before), min(after)


class Or(_Several):
    """A query attends to keys that at least one mask allows; made by `mask | other`.

    Args:
        masks: the masks.

    Example:
        >>> import fkeras as fk
        >>> (fk.masks.Causal() | fk.masks.Prefix(4)).reach
        (inf, inf)
    """

    def _allows_part(self, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
        return functools.reduce(jnp.logical_or, _of_one_rank(self.masks, query, key, take))

    @property
    def reach(self) -> Reach:
        before, after = zip(*(mask.reach for mask in self.masks), strict=True)
        return max(before), max(after)


class Not(Mask):
    """A query attends to keys that the mask does not allow; made by `~mask`.

    Args:
        mask: the mask.

    Example:
        >>> import fkeras as fk
        >>> ~fk.masks.Causal()
        Not(Causal())
    """

    mask: Mask = option()

    def __post_init__(self) -> None:
        _masks((self.mask,))

    def allows(self, query: jax.Array, key: jax.Array) -> jax.Array:
        return self._allows_part(query, key, whole)

    def _allows_part(self, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
        return ~self.mask._allows_part(query, key, take)


class Slot(Configurable):
    """The place of an array in a mask that a graph stores; the array is an input of the call.

    Args:
        index: the number of the array among the arrays of the mask.

    Example:
        >>> Segments(Slot(0))
        Segments(Slot(0))
    """

    _keras_module: ClassVar[str] = "fkeras.masks"
    index: Integer = option(convert=integer(minimum=0))


def allowed_part(mask: Mask, query: jax.Array, key: jax.Array, take: Take) -> jax.Array:
    """Returns the rows of `mask.allows(query, key)` of the queries that `take` selects."""
    return mask._allows_part(query, key, take)


def band_and_segments(masks: Sequence[Mask]) -> tuple[Reach, Any, int | None] | None:
    """Returns reach, segment ids and chunk of the conjunction of masks; None if the masks have no such form.

    A query attends to the keys within reach that have its segment id, unless this id is 0, and that are in its
    chunk. The ids are None for a single segment, and the size of a chunk is None without chunks. Masks with both
    have no such form.
    """
    reach, ids, chunk = _ALL, None, None
    parts = [part for mask in masks for part in (mask.masks if type(mask) is And else (mask,))]
    for part in parts:
        # the rules of a subclass are its own
        if type(part) is Segments and ids is None:
            ids = part.ids
        elif type(part) in (Causal, Window) or (type(part) is Chunk and chunk is None):
            reach = min(reach[0], part.reach[0]), min(reach[1], part.reach[1])
            chunk = part.size if isinstance(part, Chunk) else chunk
        else:
            return None
    return None if ids is not None and chunk is not None else (reach, ids, chunk)


def split_tensors(mask: Mask) -> tuple[Mask, list[Any]]:
    """Returns the mask with slots in the places of symbolic tensors, and the tensors.

    A mask without symbolic tensors is returned unchanged.

    Example:
        >>> import fkeras as fk
        >>> split_tensors(Causal() & Segments(fk.Input((4,), dtype="int32", name="texts")))
        (And((Causal(), Segments(Slot(0)))), [<KerasTensor (b, 4) int32 from texts>])
    """
    leaves, treedef = jax.tree.flatten(mask)
    if not any(map(is_symbolic, leaves)):
        return mask, []
    return jax.tree.unflatten(treedef, [Slot(i) for i in range(len(leaves))]), leaves


def join_tensors(mask: Mask, arrays: Sequence[Any]) -> Mask:
    """Returns the mask with arrays in the places of the slots, the inverse of `split_tensors`."""
    leaves, treedef = jax.tree.flatten(mask)
    return jax.tree.unflatten(
        treedef, [arrays[x.index] if isinstance(x, Slot) else x for x in leaves]
    )


def check_static(value: Field) -> Mask | None:
    """Converts the mask of a layer: None, a mask without arrays, or the configuration of a mask.

    Raises:
        ValueError: for another value, and for a mask that holds arrays or symbolic tensors.
    """
    if value is None:
        return None
    if not isinstance(value, Mask):
        raise ValueError(
            f"expected a mask of fk.masks or None, received {describe_value(value)}. Write "
            "fk.masks.Causal(); an array is the attention_mask of a call."
        )
    if jax.tree.leaves(value):
        raise ValueError(
            f"expected a mask without arrays in the configuration of a layer, received {value!r}. Pass "
            "it to the call: attention(query, key, value, attention_mask=mask)."
        )
    return value

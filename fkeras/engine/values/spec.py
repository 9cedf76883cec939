"""Shapes and dtypes of symbolic values, with names for unknown axes.

The size of an unknown axis is a word ("b" for the batch, "d1" for axis 1) or an expression of words
("2*d1"). A spec is therefore a plain value that compares, hashes and pickles. Words become dimensions
of `jax.export` only during shape inference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from fkeras.engine.values.annotations import Leaf, Tree
from fkeras.engine.values.dimensions import FUNCTION_NAMES, WORD, evaluate_expression
from fkeras.engine.values.frozen import is_array

Dimension = int | str
#: the dtype of texts, which exist on the host only
STRING = "string"
SHAPED = (jax.ShapeDtypeStruct, ShapedArray)
# JAX compares sizes by bounds of their terms. The time grows exponentially with nested functions:
# the fortieth convolution of a network for images of unknown size took minutes.
_MOST_FUNCTIONS = 3


@dataclasses.dataclass(frozen=True)
class Spec:
    """Shape and dtype of an array.

    Attributes:
        dims: the size of each axis; a string for an unknown size.
        dtype: the name of the dtype.

    Example:
        >>> spec = as_spec((None, 8))
        >>> spec.shape, spec.dims, spec.dtype
        ((None, 8), ('b', 8), 'float32')
    """

    dims: tuple[Dimension, ...]
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes in Keras's form: None for an unknown size."""
        return tuple(d if isinstance(d, int) else None for d in self.dims)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def words(self) -> tuple[str, ...]:
        """The distinct words in the unknown sizes."""
        words = (w for d in self.dims if isinstance(d, str) for w in WORD.findall(d))
        return tuple(dict.fromkeys(w for w in words if w not in FUNCTION_NAMES))

    def shortened(self) -> Spec:
        """Returns the spec with names in the place of complicated sizes."""
        dims = tuple(shorten(d) if isinstance(d, str) else d for d in self.dims)
        return self if dims == self.dims else Spec(dims, self.dtype)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.dims))
        return f"({inner},)" if len(self.dims) == 1 else f"({inner})"


#: the type of the specs of `build` and `init_state`: a caller passes a spec, an array or a shape, and
#: the method receives a `Spec`
SpecLike: TypeAlias = Spec | Any


def name_axis(axis: int) -> str:
    """Returns the word for an unknown axis: "b" for the batch, "d1" for axis 1."""
    return "b" if axis == 0 else f"d{axis}"


def shorten(expression: str) -> str:
    """Returns a name in the place of a complicated size; simple sizes stay unchanged.

    The name depends on the expression alone, so equal sizes keep equal names.

    Example:
        >>> shorten("2*d1"), shorten("floordiv(floordiv(floordiv(mod(d1, 7), 2) + 1, 2) + 1, 2)")
        ('2*d1', 'd1__812a96f9a3')
    """
    words = WORD.findall(expression)
    names = [word for word in words if word not in FUNCTION_NAMES]
    if len(words) - len(names) <= _MOST_FUNCTIONS or not names:
        return expression
    digest = hashlib.sha1(expression.encode(), usedforsecurity=False).hexdigest()[:10]
    # the name of a shortened size begins with the axis too, not with the whole earlier name
    return f"{names[0].partition('__')[0]}__{digest}"


def as_dims(shape: Sequence[Any]) -> tuple[Dimension, ...]:
    """Returns sizes with a word in the place of each None."""
    dims = []
    for axis, size in enumerate(shape):
        if size is None:
            dims.append(name_axis(axis))
        elif isinstance(size, str):
            dims.append(size)
        elif isinstance(size, int | np.integer):
            dims.append(int(size))
        else:  # a dimension of jax.export, during the inference of an outer call
            dims.append(str(size))
    return tuple(dims)


def _is_size(value: Leaf) -> bool:
    if value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool)):
        return True
    return isinstance(value, str) or jax.export.is_symbolic_dim(value)


def is_shape(value: Leaf) -> bool:
    """Returns whether `value` is a shape: a tuple or list of sizes, names and None."""
    return isinstance(value, tuple | list) and all(_is_size(v) for v in value)


def as_spec(value: Leaf) -> Spec:
    """Returns the spec of an array, `ShapeDtypeStruct`, symbolic tensor or shape (then float32).

    Example:
        >>> as_spec((None, 3)).shape
        (None, 3)
    """
    if isinstance(value, Spec):
        return value
    spec = getattr(value, "spec", None)
    if isinstance(spec, Spec):
        return spec
    if isinstance(value, SHAPED) or is_array(value):
        return Spec(as_dims(value.shape), canonical_dtype(value.dtype))
    if is_shape(value):
        return Spec(as_dims(value))
    if hasattr(value, "array"):  # an ArrayConstant
        return Spec(as_dims(value.array.shape), canonical_dtype(value.array.dtype))
    if isinstance(value, bool | int | float):
        return Spec((), str(jnp.result_type(type(value))))
    raise TypeError(
        f"Expected a spec of an input, received {type(value).__name__}. Give a shape such as "
        "(None, 8), a jax.ShapeDtypeStruct or an array for each input."
    )


def as_specs(tree: Tree) -> Tree:
    """Applies `as_spec` to lists, tuples and dictionaries of specs; a tuple of sizes is one shape.

    None inside of them, for an optional input that a call leaves out, stays None.

    Example:
        >>> [spec.shape for spec in as_specs([(None, 3), (None, 4)])]
        [(None, 3), (None, 4)]
    """
    if isinstance(tree, Mapping):
        return {k: None if v is None else as_specs(v) for k, v in tree.items()}
    if isinstance(tree, tuple | list) and not is_shape(tree):
        return type(tree)(None if v is None else as_specs(v) for v in tree)
    return as_spec(tree)


def argument_specs(tree: Tree) -> Tree:
    """Returns the specs of the arguments of a call, and None for values that are not arrays.

    Unlike in `as_specs`, a tuple of integers is a structure of numbers and not a shape.

    Example:
        >>> argument_specs((as_spec((None, 3)), "float32", (0, None)))
        (Spec(dims=('b', 3), dtype='float32'), None, (Spec(dims=(), dtype='int32'), None))
    """
    if isinstance(tree, Mapping):
        return {key: argument_specs(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        specs = [argument_specs(value) for value in tree]
        if all(spec is None for spec in specs):
            return None  # `as_specs` reads a list of None as a shape
        return specs if isinstance(tree, list) else tuple(specs)
    try:
        return None if tree is None else as_spec(tree)
    except TypeError:  # such as the name of a dtype
        return None


def canonical_dtype(dtype: Leaf) -> str:
    """Returns the name of the dtype in which JAX computes: float32 for float64, unless x64 is enabled.

    The dtypes of NumPy's texts are "string".
    """
    if isinstance(dtype, np.dtype) and dtype.kind in "SUT":
        return STRING
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return str(dtype)
    return jax.dtypes.canonicalize_dtype(dtype).name


def as_structs(
    specs: Sequence[Spec | None], constraints: Sequence[str] | None = None
) -> list[jax.ShapeDtypeStruct | None]:
    """Returns `ShapeDtypeStruct`s with the unknown axes as dimensions of one `jax.export` scope.

    Args:
        constraints: bounds on the unknown sizes, such as "b >= 8"; None for "at least 2".
    """
    unknown = sorted({d for s in specs if s is not None for d in s.dims if isinstance(d, str)})
    sizes: dict[Any, Any] = {}
    if unknown:
        words = sorted({w for s in specs if s is not None for w in s.words})
        if constraints is None:
            # with sizes of 0 and 1 JAX could not decide broadcasts
            constraints = [f"{w} >= 2" for w in words]
        scope = jax.export.SymbolicScope(constraints)
        parsed = jax.export.symbolic_shape(", ".join(unknown), scope=scope)
        sizes = dict(zip(unknown, parsed, strict=True))
    return [
        None if s is None else jax.ShapeDtypeStruct([sizes.get(d, d) for d in s.dims], s.dtype)
        for s in specs
    ]


def named_size(text: str) -> Dimension:
    """Returns the canonical form of an unknown size from a user or a file.

    Raises:
        ValueError: for a text that is neither a name nor a short expression of names.
    """
    if _is_short(text):
        with contextlib.suppress(Exception):  # the errors of JAX's parser have several classes
            (struct,) = as_structs([Spec((text,))], ())
            (size,) = as_dims(struct.shape if struct is not None else ())
            if _is_short(str(size)):
                return size
    raise ValueError(
        f"expected the name of an unknown size or an expression of names in JAX's form, received "
        f"{text[:80]!r}. Examples: 'time', '4*h', 'floordiv(h, 2) + 1'."
    )


def _is_short(expression: str) -> bool:
    # JAX's time and memory grow with functions and powers
    functions = sum(word in FUNCTION_NAMES for word in WORD.findall(expression))
    powers = re.search(r"\^\s*\d\d", expression)
    return len(expression) <= 200 and functions <= _MOST_FUNCTIONS and powers is None


def as_probes(specs: Sequence[Spec | None], fill: int) -> list[jax.ShapeDtypeStruct | None]:
    """Returns `ShapeDtypeStruct`s with the size `fill` for every word."""
    values = {w: fill for s in specs if s is not None for w in s.words}
    return [
        None if s is None else jax.ShapeDtypeStruct([evaluate(d, values) for d in s.dims], s.dtype)
        for s in specs
    ]


def evaluate(dim: Dimension, values: Mapping[str, int]) -> int:
    """Returns the size of an expression of words, for these sizes of the words."""
    if isinstance(dim, int):
        return dim
    return int(evaluate_expression(dim, values))

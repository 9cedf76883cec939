"""Types of a layer's constructor and methods, for type checkers only.

`Layer` implements the methods. Their types are declared in a base class, because the types that
callers see differ from the code: one method returns tensors or arrays, and subclasses override
`build` with parameters of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform, overload

import jax

from fkeras.engine.call.node import SymbolicTensor
from fkeras.engine.config.configurable import option
from fkeras.engine.tree.weights import weight
from fkeras.engine.values.annotations import Option, Tree

#: the class of the symbolic inputs, which is the class of the outputs: `KerasTensor` is defined
#: above layers
Tensor = TypeVar("Tensor", bound=SymbolicTensor)


# pyright evaluates TYPE_CHECKING and reports assignments to fields. mypy takes an expression that
# it does not evaluate for False: in its frozen classes an inherited field with a converter has the
# type of the constructor's argument.
@dataclass_transform(
    frozen_default=TYPE_CHECKING, field_specifiers=(option, weight, dataclasses.field)
)
class LayerTypes:
    """Declares the types of `Layer` for type checkers; an empty class at run time.

    `dataclass_transform` covers the subclasses of the class that it decorates, not the class itself.
    A base class therefore covers the fields of `Layer` too.

    Example:
        >>> LayerTypes.__annotations__
        {}
    """

    if TYPE_CHECKING:

        @overload
        def __call__(
            self,
            inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Sequence[Sequence[Tensor]],
            /,
            *more: Tree,
            training: bool | None = None,
            mask: Tree = None,
            **options: Option,
        ) -> Tensor: ...

        @overload
        def __call__(
            self, first: Tree, second: Tensor, /, *more: Tree, mask: Tree = None, **options: Option
        ) -> Tensor: ...

        # A layer may return a list or a dictionary of arrays. `jax.Array` stands for these too:
        # indexing and unpacking an array type-check, and a union would reject most programs.
        @overload
        def __call__(
            self,
            *inputs: Tree,
            state: Mapping[str, Any] | None = None,
            training: bool | None = None,
            key: jax.Array | None = None,
            mask: Tree = None,
            **options: Option,
        ) -> jax.Array: ...

        def __call__(self, *inputs: Tree, **options: Option) -> Any: ...

        # Subclasses name the specs that they need. A type checker accepts each of these overrides
        # only for a signature with `*args: Any` and `**kwargs: Any`.
        def build(self, key: jax.Array, *specs: Tree, **named: Tree) -> Self: ...

        def init_state(self, *specs: Tree, **named: Tree) -> dict[str, Any]: ...

        # optax annotates parameters as arrays and as nested iterables and mappings of arrays. This
        # declaration makes a layer an iterable; at run time only a Sequential is one.
        def __iter__(self) -> Iterator[Any]: ...

"""Types of operations whose result is not one array, for type checkers only.

`Op` declares that an operation returns a tensor for tensors, and an array for arrays. Type checkers
have no form for "the same structure, with tensors in place of arrays", so each structure has a class.
At run time the classes are `Op`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Concatenate, overload

import jax

from fkeras.engine.layer.layer_types import Tensor
from fkeras.engine.symbolic.operation import Op, Parameters, Rest

__all__ = ("ListOp", "PairOp", "TreeOp", "TupleOp")

if TYPE_CHECKING:

    class PairOp(Op[Parameters]):
        """The type of operations that return two arrays."""

        @overload
        def __call__(
            self: PairOp[Concatenate[Any, Rest]],
            x: Tensor | Sequence[Tensor],
            /,
            *args: Rest.args,
            **kwargs: Rest.kwargs,
        ) -> tuple[Tensor, Tensor]: ...

        @overload
        def __call__(
            self, x: Tensor | Sequence[Tensor], /, *args: Any, name: str, **kwargs: Any
        ) -> tuple[Tensor, Tensor]: ...

        @overload
        def __call__(
            self, *, x: Tensor | Sequence[Tensor], **kwargs: Any
        ) -> tuple[Tensor, Tensor]: ...

        @overload
        def __call__(
            self, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> tuple[jax.Array, jax.Array]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    class TupleOp(Op[Parameters]):
        """The type of operations that return a tuple of arrays."""

        @overload
        def __call__(
            self: TupleOp[Concatenate[Any, Rest]],
            x: Tensor | Sequence[Tensor],
            /,
            *args: Rest.args,
            **kwargs: Rest.kwargs,
        ) -> tuple[Tensor, ...]: ...

        @overload
        def __call__(
            self, x: Tensor | Sequence[Tensor], /, *args: Any, name: str, **kwargs: Any
        ) -> tuple[Tensor, ...]: ...

        @overload
        def __call__(
            self, *, x: Tensor | Sequence[Tensor], **kwargs: Any
        ) -> tuple[Tensor, ...]: ...

        @overload
        def __call__(
            self, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> tuple[jax.Array, ...]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    class ListOp(Op[Parameters]):
        """The type of operations that return a list of arrays."""

        @overload
        def __call__(
            self: ListOp[Concatenate[Any, Rest]],
            x: Tensor | Sequence[Tensor],
            /,
            *args: Rest.args,
            **kwargs: Rest.kwargs,
        ) -> list[Tensor]: ...

        @overload
        def __call__(
            self, x: Tensor | Sequence[Tensor], /, *args: Any, name: str, **kwargs: Any
        ) -> list[Tensor]: ...

        @overload
        def __call__(self, *, x: Tensor | Sequence[Tensor], **kwargs: Any) -> list[Tensor]: ...

        @overload
        def __call__(
            self, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> list[jax.Array]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    class TreeOp(Op[Parameters]):
        """The type of operations whose result has the structure of an argument or of a function's result."""

        @overload
        def __call__(self, *args: Any, name: str, **kwargs: Any) -> Any: ...

        @overload
        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    PairOp = TupleOp = ListOp = TreeOp = Op

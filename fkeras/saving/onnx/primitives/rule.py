"""`Rule` and `Equation`: the ONNX form of an operation, and one operation of a traced program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fkeras.authoring.engine import as_dims
from fkeras.engine import FKerasError, Spec
from fkeras.saving.onnx.graph.writer import Operand, Writer

#: emits the nodes of an operation and returns its results
Emit: TypeAlias = Callable[["Equation"], Any]
#: emits the nodes of a nested program: `(program, operands) -> results`
Run: TypeAlias = Callable[[Any, list[Operand]], list[Operand]]

# parameters that change no result: shardings, promises about indices, hints for compilers, and accuracies,
# since ONNX has no choice of rounding
_WITHOUT_EFFECT = frozenset(
    {
        "sharding",
        "out_sharding",
        "indices_are_sorted",
        "unique_indices",
        "is_stable",
        "linear",
        "unroll",
        "_split_transpose",
        "weak_type",
        "accuracy",
    }
)


@dataclasses.dataclass(frozen=True)
class Rule:
    """The ONNX form of an operation.

    Attributes:
        emit: emits the nodes and returns the results.
        params: names of the parameters that `emit` reads or rejects, or that follow from shape and
            dtype of the results. Other parameters must be absent, None or False.
    """

    emit: Emit
    params: str = ""

    def unread(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters of an equation that the rule would ignore."""
        known = _WITHOUT_EFFECT.union(self.params.split())
        return {
            name: value
            for name, value in params.items()
            # None and False turn a feature of JAX off
            if name not in known and value is not None and value is not False
        }


@dataclasses.dataclass
class Equation:
    """One operation of a program.

    Attributes:
        writer: receives the nodes.
        name: the name of JAX's operation.
        params: the static parameters of the operation.
        inputs: the operands; all broadcasts are computed unless the rule takes them itself.
        outputs: shape and dtype of each result.
        run: emits the nodes of a nested program.
    """

    writer: Writer
    name: str
    params: Mapping[str, Any]
    inputs: list[Operand]
    outputs: list[Spec]
    run: Run

    @property
    def out(self) -> Spec:
        return self.outputs[0]

    def emit(self, op: str, *operands: Operand | None, **attributes: Any) -> Any:
        """Emits a node whose output has the shape and the dtype of the first result."""
        return self.writer.emit(
            op, *operands, dims=self.out.dims, dtype=self.out.dtype, **attributes
        )

    def error(self, reason: str, remedy: str) -> FKerasError:
        """Returns the error for an operation without ONNX form."""
        where = "/".join(self.writer.path)
        return FKerasError(
            f"export, {where!r}: JAX's operation {self.name!r} {reason} {remedy}", layer=where
        )

    def needs(self, opset: int, what: str = "") -> None:
        """Raises if the opset is lower than that of an ONNX operator."""
        if self.writer.opset < opset:
            raise self.error(
                f"{what or 'has an ONNX form'} from opset {opset} on, received "
                f"opset={self.writer.opset}.",
                f"Write fk.export(..., opset={opset}).",
            )


def dims_of(shape: Any) -> tuple:
    """Returns the sizes of a shape of JAX; symbolic sizes become strings."""
    return as_dims(shape)

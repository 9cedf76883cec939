"""Emits the calls of a model: through networks call by call, then each layer by its row or program.

`Emission` is a `Context` whose `run` emits nodes instead of computing arrays. A layer that only calls
other layers runs its own `forward`, so masks and states reach the calls inside by the rules of the
engine. A layer with a row in `rows` is emitted by the row; every other layer is traced by JAX, and
its program is emitted operation by operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.authoring.engine import (
    AttachedMasks,
    Execution,
    Leaf,
    Option,
    Tree,
    as_structs,
    prepare,
    with_masks,
)
from fkeras.authoring.saving import trace
from fkeras.engine import Context, FKerasError, Layer, Network, Output
from fkeras.layers import Pipeline, Wrapper
from fkeras.saving.onnx.graph.writer import Operand, Value, Writer
from fkeras.saving.onnx.primitives import program
from fkeras.saving.onnx.primitives.elementwise import is_float
from fkeras.saving.onnx.rows.table import row_of


class Emission(Context):
    """The environment of a call that emits nodes.

    Attributes:
        writer: receives the nodes.
    """

    __slots__ = ("writer",)

    writer: Writer

    def child(self, *args: Any, **options: Any) -> Emission:
        context: Any = super().child(*args, **options)
        context.writer = self.writer
        return context

    def run(self, layer: Layer, *inputs: Tree, **options: Option) -> Output:
        """Emits one call of a layer."""
        name = self.where.rpartition("/")[2]
        if not name and not isinstance(layer, Network):
            name = layer.name or type(layer).__name__
        with self.writer.scope(name):
            try:
                return self._emit(layer, inputs, options)
            except FKerasError:
                raise
            except (TypeError, ValueError, NotImplementedError) as error:
                raise FKerasError(
                    f"export, {layer._where}: {str(error).splitlines()[0]}", layer=layer._where
                ) from error

    def _emit(self, layer: Layer, inputs: tuple, options: dict[str, Any]) -> Output:
        if isinstance(layer, Network):
            return layer_output(self, NetworkEmission(layer, self, inputs).output())
        if type(layer) in (Wrapper, Pipeline):
            return layer._checked_forward(self, *inputs, **options)
        custom = getattr(layer, "to_onnx", None)
        row = (lambda call: custom(self.writer, *call.inputs)) if custom else row_of(layer)
        if row is not None:
            return self._by_row(layer, row, inputs, options)
        return self._traced(layer, inputs, options)

    def _by_row(self, layer: Layer, row: Any, inputs: tuple, options: dict[str, Any]) -> Output:
        layer, args, named, keeps_mask = prepare(layer, self, inputs, options, self._cast)
        if self.attached is not None and any(
            isinstance(v, Value) for v in jax.tree.leaves(options)
        ):
            self.step_mask = None
        emitted = row(Call(self, layer, args, named))
        if emitted is NotImplemented:
            # a configuration that the row does not cover
            return self._traced(layer, inputs, options)
        out = emitted if isinstance(emitted, Output) else Output(emitted, mask=self.mask)
        out = Output(jax.tree.map(self.writer.shortened, out.value), mask=out.mask)
        return with_masks(layer, self, out, keeps_mask)

    def _cast(self, tree: Any, dtype: str) -> Any:
        def cast(value: Any) -> Any:
            if isinstance(value, Value) and is_float(value.dtype):
                return self.writer.cast(value, dtype)
            if isinstance(value, jax.Array | np.ndarray) and is_float(value.dtype):
                return np.asarray(value).astype(dtype)
            return value

        return jax.tree.map(cast, tree)

    def _traced(self, layer: Layer, inputs: tuple, options: dict[str, Any]) -> Output:
        """Emits the program of a layer that JAX traced."""
        leaves, treedef = jax.tree.flatten((inputs, options))
        values = [leaf for leaf in leaves if isinstance(leaf, Value)]
        masks = None
        if self.attached is not None:
            masks = [self.attached.of_array(value) for value in values]
        mask_leaves, mask_tree = jax.tree.flatten((self.mask, self.step_mask, masks))
        tensors: list[Any] = []
        for leaf in (*values, *mask_leaves):
            if isinstance(leaf, Value) and not any(leaf is tensor for tensor in tensors):
                tensors.append(leaf)
        position = {id(tensor): index for index, tensor in enumerate(tensors)}
        shape: dict[str, Any] = {}

        def compute(*arrays: jax.Array) -> tuple:
            def place(leaf: Any) -> Any:
                return arrays[position[id(leaf)]] if isinstance(leaf, Value) else leaf

            args, named = treedef.unflatten([place(leaf) for leaf in leaves])
            mask, step_mask, own = mask_tree.unflatten([place(leaf) for leaf in mask_leaves])
            context = Context(state=self.state, mask=mask, where=self.where)
            context.step_mask = step_mask
            traced_values = [place(value) for value in values]
            if own is not None:
                context.attached = AttachedMasks(traced_values, own)
            out = context.run(layer, *args, **named)
            after = None
            if context.attached is not None:
                after = [context.attached.of_array(array) for array in traced_values]
            outputs, shape["tree"] = jax.tree.flatten((out.value, out.mask, after))
            return tuple(outputs)

        structs = as_structs([tensor.spec for tensor in tensors], ())
        traced = trace(layer._where, compute, tuple(structs), {})
        results = program.run(self.writer, traced.jaxpr, tensors)
        value, mask, after = shape["tree"].unflatten(list(map(self._value, results)))
        out = Output(value, mask=mask)
        if self.attached is None:
            return out
        for tensor, new in zip(values, after, strict=True):
            self.attached.attach(tensor, new)
        return layer_output(self, out)

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            return self.writer.shortened(operand)
        if not isinstance(operand, np.ndarray):
            where = "/".join(self.writer.path)
            raise FKerasError(
                f"export, {where!r}: returns complex numbers, which ONNX Runtime does not have. Return "
                "the real and the imaginary parts.",
                layer=where,
            )
        array = operand
        return Value("", array.shape, str(array.dtype), array)


def layer_output(context: Emission, out: Output) -> Output:
    """Returns an output whose masks are attached by Keras 3's rule, if the call follows the rule."""
    if context.attached is None:
        return out
    return Output(out.value, mask=context.attached.complete(out.value, out.mask))


class _Masks(AttachedMasks):
    """Masks by tensor of the graph."""

    def __init__(self, writer: Writer):
        super().__init__()
        self._writer = writer

    def _copy(self, array: Leaf) -> Leaf:
        return self._writer.emit("Identity", array, dims=array.dims)


class NetworkEmission(Execution):
    """One call of a network: emits the nodes of its calls."""

    def __init__(self, network: Network, context: Emission, inputs: tuple):
        self.writer = context.writer
        if context.attached is None and network.graph.attaches_masks:
            context.attached = _Masks(self.writer)
        super().__init__(network, context, inputs)

    def _checked(self, slot: int, array: Leaf) -> Leaf:
        spec = self.graph.specs[slot]
        return None if array is None else self.writer.cast(array, spec.dtype)


class Call:
    """One call of a layer, as the rows see it.

    Attributes:
        writer: receives the nodes.
        layer: the layer, with weights in the compute dtype.
        inputs: the positional arguments; floats have the compute dtype.
        options: the arguments by name.
        mask: the mask of the inputs, as in `Context`.
        step_mask: the mask of the steps, as in `Context`.
        state: the state of the layer.
    """

    def __init__(self, context: Emission, layer: Any, inputs: tuple, options: Mapping[str, Any]):
        self.context, self.writer, self.layer = context, context.writer, layer
        self.inputs, self.options = inputs, options
        self.mask, self.step_mask, self.state = context.mask, context.step_mask, context.state

    def traced(self, function: Any, *values: Any) -> Any:
        """Emits the program of a function of arrays, such as an activation.

        Returns:
            The result, or a list of results.
        """
        structs = as_structs([value.spec for value in values], ())
        traced = trace(
            self.layer._where,
            lambda *arrays: jax.tree.leaves(function(*arrays)),
            tuple(structs),
            {},
        )
        results = list(
            map(self.context._value, program.run(self.writer, traced.jaxpr, list(values)))
        )
        return results[0] if len(results) == 1 else results

"""Elementwise optimizers: whether an update of stacked weights equals the updates of single weights.

Adam computes each element of a weight from the same element of its gradient, so the weights of equal
blocks may be updated as one stack. An optimizer that reads the norm or the shape of each weight may
not. The program of an update decides: this module computes an expression for each output of the program
over stacks and of the programs over the weights of single blocks, and compares the expressions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.extend.core import JaxprEqn
from jax.tree_util import DictKey

from fkeras.engine.network.stacking import Stacking
from fkeras.optimizers import Optimizer, get, transformation
from fkeras.programs.primitives import ELEMENTWISE
from fkeras.programs.walk import called, follow

#: reductions of a whole array, with the primitive that joins the results of several arrays
_REDUCTIONS = MappingProxyType(
    {"reduce_sum": "add", "reduce_and": "and", "reduce_or": "or", "reduce_max": "max"}
)


class _NotElementwiseError(Exception):
    """A program combines the elements of a stacked weight in a way that differs for single weights."""


@dataclasses.dataclass(frozen=True)
class _Value:
    """What is known of one array in the program of an update.

    Attributes:
        expression: equal for equal computations, whatever the number of stacked blocks.
        kind: "uniform" for a number, or an array of one number; "stack" for an array with one
            element for each element of a stacked weight; "part" for a reduction of stacks, which is
            complete with the reductions of all stacks; "other" for other arrays.
        shape: the shape of a stack.
        stacks: the paths of the stacked weights in a stack or a part.
    """

    expression: Any
    kind: str
    shape: tuple[int, ...] = ()
    stacks: frozenset[str] = frozenset()


def updates_stacks(optimizer: Any, stacking: Stacking, weights: Mapping[str, Any]) -> bool:
    """Returns whether an optimizer may update the stacked weights of equal blocks."""
    stacks = [path for path in weights if path in stacking.paths]
    optimizer = get(optimizer)
    counts = {len(stacking.paths[path]) for path in stacks}
    # a rule that does not read paths treats all blocks alike
    blocks = range(1, 2) if _ignores_paths(optimizer) else range(max(counts, default=0))
    try:
        expected = _outputs(optimizer, weights, {}, stacks)
        return all(
            _outputs(optimizer, weights, stacking.names_of_block(index), stacks) == expected
            for index in blocks
        )
    # labels and masks of a user may name the weights of all blocks and reject others
    except Exception:
        return False


def _ignores_paths(optimizer: object) -> bool:
    return (
        isinstance(optimizer, Optimizer)
        and type(optimizer)._slots_at is Optimizer._slots_at
        and type(optimizer)._decay_at is Optimizer._decay_at
        and type(optimizer)._update is Optimizer._update
        and not optimizer.exclude_from_weight_decay
    )


def _outputs(
    optimizer: Any, weights: Mapping[str, Any], names: Mapping[str, str], stacks: list[str]
) -> Any:
    """Returns the expression of each output of an update, by key.

    Args:
        names: the paths of stacked weights in one block; empty for the program over stacks.
    """
    single = {
        names.get(path, path): jax.ShapeDtypeStruct(spec.shape[1:], spec.dtype)
        if path in names
        else spec
        for path, spec in weights.items()
        if not names or path in names or path not in stacks
    }
    template_of = {path: template for template, path in names.items()}
    optax_form = transformation(optimizer)
    opt_state = jax.eval_shape(optax_form.init, single)
    arguments = (single, opt_state, single)
    program, outputs = jax.make_jaxpr(optax_form.update, return_shape=True)(*arguments)
    inputs = []
    for keys, leaf in jax.tree_util.tree_flatten_with_path(arguments)[0]:
        path, key = _key(keys, template_of)
        is_stack = path in stacks and leaf.shape == single[names.get(path, path)].shape
        kind = "stack" if is_stack else "other" if leaf.shape else "uniform"
        shape, owners = (leaf.shape, frozenset([str(path)])) if is_stack else ((), frozenset())
        inputs.append(_Value(("input", key), kind, shape, owners))
    search = _Program(frozenset(path for path in stacks if not names or path in names))
    values = search.run(program, inputs)
    leaves = jax.tree_util.tree_flatten_with_path(outputs)[0]
    expressions = {}
    for (keys, _), value in zip(leaves, values, strict=True):
        path, key = _key(keys, template_of)
        if path in stacks and value.kind not in ("stack", "uniform"):
            raise _NotElementwiseError
        if path not in stacks and value.kind in ("stack", "part"):
            raise _NotElementwiseError
        expressions[key] = value.expression
    return expressions


def _key(keys: tuple, template_of: Mapping[str, str]) -> tuple[str | None, str]:
    """Returns `(path, key)`: the path of the weight that a leaf belongs to, and the key of the leaf."""
    renamed, path = [], None
    for key in keys:
        if isinstance(key, DictKey) and isinstance(key.key, str):
            path = template_of.get(key.key, key.key)
            key = DictKey(path)
        renamed.append(key)
    return path, jax.tree_util.keystr(tuple(renamed))


class _Program:
    """Follows the arrays through the program of an update.

    Args:
        stacks: the paths of all stacked weights.
    """

    def __init__(self, stacks: frozenset[str]):
        self.stacks = stacks

    def run(self, program: Any, inputs: list[_Value]) -> list[_Value]:
        """Returns the values of the outputs of a program."""
        return follow(program, inputs, lambda array, aval: _constant(array), self._apply)

    def _apply(self, equation: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        name, params = equation.primitive.name, equation.params
        inner = called(equation)
        if inner is not None:
            return self.run(inner, operands)
        if name == "cond":
            return self._cond(params["branches"], operands)
        reads_stacks = any(value.kind in ("stack", "part") for value in operands)
        if any(value.kind == "part" for value in operands):
            joined = self._join(name, operands)
            if joined is not None:
                return [joined]
            operands = [self._completed(value) for value in operands]
        expressions = tuple(value.expression for value in operands)
        stacks = [value for value in operands if value.kind == "stack"]
        if not stacks:
            return self._without_stacks(equation, operands, expressions, reads_stacks)
        owners = frozenset().union(*(value.stacks for value in stacks))
        if name in _REDUCTIONS and len(params["axes"]) == len(stacks[0].shape):
            term = (name, expressions)
            return [_Value((_REDUCTIONS[name], frozenset([term])), "part", (), owners)]
        uniform = all(value.kind in ("stack", "uniform") for value in operands)
        equal_shapes = len({value.shape for value in stacks}) == 1
        if name not in ELEMENTWISE or not uniform or not equal_shapes or len(owners) > 1:
            raise _NotElementwiseError
        expression = (name, _options(params), expressions)
        return [_Value(expression, "stack", stacks[0].shape, owners)]

    def _without_stacks(
        self, equation: Any, operands: list[_Value], expressions: tuple, reads_stacks: bool
    ) -> list[_Value]:
        name = equation.primitive.name
        is_uniform = all(value.kind == "uniform" for value in operands)
        if name == "broadcast_in_dim" and is_uniform:
            return [_Value(expressions[0], "uniform")]
        if name in ELEMENTWISE and is_uniform:
            return [_Value((name, _options(equation.params), expressions), "uniform")]
        return [
            _Value(
                (name, str(equation.params), expressions, index),
                "other" if variable.aval.shape else "uniform",
            )
            for index, variable in enumerate(equation.outvars)
        ]

    def _join(self, name: str, operands: list[_Value]) -> _Value | None:
        """Returns a part with more terms, or None for another computation."""
        joins = {v.expression[0] for v in operands if v.kind == "part"}
        if joins != {name} or any(value.kind not in ("part", "uniform") for value in operands):
            return None
        terms, owners = frozenset(), frozenset()
        for value in operands:
            if value.kind == "part":
                terms |= value.expression[1]
            else:
                terms |= {value.expression}
            if owners & value.stacks:
                raise _NotElementwiseError  # equal terms would count once
            owners |= value.stacks
        return _Value((name, terms), "part", (), owners)

    def _completed(self, value: _Value) -> _Value:
        if value.kind != "part":
            return value
        # with a single stack, the norm of all weights is not distinguishable from that of one weight
        if value.stacks != self.stacks or len(self.stacks) == 1:
            raise _NotElementwiseError
        return _Value(value.expression, "uniform")

    def _cond(self, branches: tuple, operands: list[_Value]) -> list[_Value]:
        index, *arguments = [self._completed(value) for value in operands]
        results = [self.run(branch, arguments) for branch in branches]
        merged = []
        for values in zip(*results, strict=True):
            values = tuple(map(self._completed, values))
            stacks = [value for value in values if value.kind == "stack"]
            if stacks and not all(value.kind in ("stack", "uniform") for value in values):
                raise _NotElementwiseError
            first = stacks[0] if stacks else max(values, key=lambda v: v.kind == "other")
            if any(value.stacks != first.stacks for value in stacks):
                raise _NotElementwiseError
            expression = ("cond", index.expression, tuple(v.expression for v in values))
            merged.append(dataclasses.replace(first, expression=expression))
        return merged


def _constant(value: object) -> _Value:
    if not getattr(value, "shape", ()):
        return _Value(("number", str(getattr(value, "dtype", type(value))), repr(value)), "uniform")
    array = np.asarray(value)
    return _Value(("array", str(array.dtype), array.shape, array.tobytes()), "other")


def _options(params: Mapping[str, Any]) -> str:
    return str(sorted((name, str(value)) for name, value in params.items()))

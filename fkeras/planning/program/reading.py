"""Reads a jaxpr into a program of operations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax.extend.core import Literal

from fkeras.engine.costs.counting import Costs
from fkeras.engine.costs.rules import primitive_count
from fkeras.planning.program.backends import Backend
from fkeras.planning.program.emitter import Emitter, primitive_costs
from fkeras.planning.program.kinds import is_floating, kind_of, same_array
from fkeras.planning.program.operations import Operation, Program

_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
_LOOPS = ("scan", "while", "cond")
_REMAT = ("remat2", "checkpoint", "remat")
# elementwise operations without parameters that change their results
_PLAIN = frozenset({"neg", "exp", "square", "mul", "add", "sub"})

Values = dict[Any, "int | None"]


def read(jaxpr: Any, backend: Backend) -> Program:
    """Returns the program of a jaxpr, without the operations that no result needs.

    Args:
        jaxpr: a closed jaxpr with known sizes.
        backend: how the device's compiler expands operations.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    program = Program()
    values: Values = dict.fromkeys(inner.constvars)
    arguments = [program.value(v.aval.shape, v.aval.dtype) for v in inner.invars]
    values.update(zip(inner.invars, arguments, strict=True))
    program.inputs = tuple(arguments)
    _Reader(program, backend).equations(inner, values, "")
    program.outputs = tuple(_number(values, variable) for variable in inner.outvars)
    return program.without_unused()


def _number(values: Values, variable: Any) -> int | None:
    return None if isinstance(variable, Literal) else values[variable]


class _Reader:
    def __init__(self, program: Program, backend: Backend):
        self.program, self.backend = program, backend
        self.seen: dict[Any, tuple[int, ...]] = {}
        self.transposed: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}

    def equations(self, jaxpr: Any, values: Values, outer: str) -> None:
        for equation in jaxpr.eqns:
            inputs = [_number(values, variable) for variable in equation.invars]
            stack = str(equation.source_info.name_stack)
            scope = f"{outer}/{stack}" if outer and stack else outer or stack
            results = self.equation(equation, inputs, scope)
            values.update(zip(equation.outvars, results, strict=True))

    def equation(self, equation: Any, inputs: list[int | None], scope: str) -> Sequence[int | None]:
        name, params = equation.primitive.name, equation.params
        if name in _LOOPS:
            return self.loop(equation, inputs, scope)
        if name == "optimization_barrier":
            return self.barrier(inputs, scope)
        if same_array(equation):
            return inputs[:1]
        jaxpr = next((params[key] for key in _CALLS if key in params), None)
        if jaxpr is not None and primitive_count(equation) is None:
            return self.call(equation, getattr(jaxpr, "jaxpr", jaxpr), inputs, scope)
        emitter = Emitter(self.program, self.seen, self.transposed, scope)
        expanded = self.backend.expand(emitter, equation, inputs)
        return self.plain(equation, inputs, scope) if expanded is None else expanded

    def plain(self, equation: Any, inputs: list[int | None], scope: str) -> Sequence[int]:
        name = equation.primitive.name
        kind, expensive = kind_of(equation, self.backend.name)
        avals = [variable.aval for variable in equation.outvars]
        if kind == "elementwise":
            inputs = [self.whole(number, avals[0], scope) for number in inputs]
        key = None if kind == "call" else _key(equation, inputs)
        if key is not None and key in self.seen:
            return self.seen[key]
        outputs = tuple(self.program.value(aval.shape, aval.dtype) for aval in avals)
        self.program.operations.append(
            Operation(
                kind,
                name,
                tuple(number for number in inputs if number is not None),
                outputs,
                scope,
                primitive_costs(equation),
                expensive,
                in_place=kind == "elementwise" or name.startswith("scatter"),
                floating=is_floating(avals[0].dtype),
            )
        )
        if key is not None:
            self.seen[key] = outputs
        if name == "transpose" and inputs[0] is not None:
            shape = tuple(equation.invars[0].aval.shape)
            self.transposed[outputs[0]] = (inputs[0], shape, tuple(equation.params["permutation"]))
        return outputs

    def whole(self, number: int | None, aval: Any, scope: str) -> int | None:
        """Returns the value, broadcast to the size of an elementwise result."""
        elements, sizes = self.program.elements, self.program.sizes
        if number is None or not 1 < elements[number] < math.prod(aval.shape):
            return number
        key = ("broadcast", number, aval.shape)
        if key not in self.seen:
            output = len(sizes)
            elements.append(math.prod(aval.shape))
            sizes.append(sizes[number] // elements[number] * elements[output])
            broadcast = Operation("broadcast", "broadcast_in_dim", (number,), (output,), scope)
            broadcast.floating = True
            self.program.operations.append(broadcast)
            self.seen[key] = (output,)
        return self.seen[key][0]

    def call(
        self, equation: Any, jaxpr: Any, inputs: list[int | None], scope: str
    ) -> Sequence[int | None]:
        params = equation.params
        again = equation.primitive.name in _REMAT and params.get("differentiated")
        if again and params.get("prevent_cse", True):
            inputs = list(self.barrier(inputs, scope))
        inner: Values = dict.fromkeys(jaxpr.constvars)
        inner.update(zip(jaxpr.invars, inputs[len(inputs) - len(jaxpr.invars) :], strict=True))
        self.equations(jaxpr, inner, scope)
        return [_number(inner, variable) for variable in jaxpr.outvars]

    def barrier(self, inputs: Sequence[int | None], scope: str) -> Sequence[int | None]:
        known = tuple(dict.fromkeys(number for number in inputs if number is not None))
        outputs = {}
        for number in known:
            outputs[number] = len(self.program.sizes)
            self.program.sizes.append(self.program.sizes[number])
            self.program.elements.append(self.program.elements[number])
        self.program.operations.append(
            Operation("barrier", "optimization_barrier", known, tuple(outputs.values()), scope)
        )
        return [None if number is None else outputs[number] for number in inputs]

    def loop(self, equation: Any, inputs: list[int | None], scope: str) -> Sequence[int]:
        name, params = equation.primitive.name, equation.params
        steps, unknown = 1, Costs()
        if name == "scan":
            bodies = (_scan_body(read(params["jaxpr"], self.backend), params),)
            steps = params["length"]
        elif name == "while":
            bodies = (read(params["body_jaxpr"], self.backend),)
            unknown = Costs(unknown=frozenset({name}))
        else:
            bodies = tuple(read(branch, self.backend) for branch in params["branches"])
        costs = max((body.costs() for body in bodies), key=lambda total: total.flops)
        outputs = tuple(
            self.program.value(variable.aval.shape, variable.aval.dtype)
            for variable in equation.outvars
        )
        known = tuple(number for number in inputs if number is not None)
        scopes = [f"{scope}/{inner}" for inner in bodies[0].result_scopes()]
        stacks = ()
        if name == "scan" and self.backend.is_cpu:
            carried = params["num_carry"]
            stacks = self.stacks(outputs[carried:], scopes[carried:])
        self.program.operations.append(
            Operation(
                "loop",
                name,
                (*known, *stacks),
                outputs,
                scope,
                costs * steps + unknown,
                expensive=True,
                in_place=True,
                body=bodies,
                steps=steps,
                stacks=len(stacks),
                result_scopes=tuple(scopes),
            )
        )
        return outputs

    def stacks(self, results: Sequence[int], scopes: Sequence[str]) -> tuple[int, ...]:
        """Adds the initial arrays of stacked results, which exist from the start of the program."""
        elements, sizes = self.program.elements, self.program.sizes
        stacks = []
        for number, scope in zip(results, scopes, strict=True):
            elements.append(elements[number])
            sizes.append(sizes[number])
            stacks.append(len(sizes) - 1)
            zeros = Operation("call", "broadcast_in_dim", (), (stacks[-1],), scope, looped=True)
            self.program.operations.append(zeros)
        return tuple(stacks)


def _scan_body(body: Program, params: Mapping[str, Any]) -> Program:
    """Returns the body with its reads of stacked inputs and its writes of stacked outputs.

    A step reads its slice from the stacked array, and writes its result into the stacked array: both
    are part of the loops that use or compute the slice.
    """
    first = params["num_consts"] + params["num_carry"]
    slices = body.inputs[first:]
    reads = [Operation("move", "dynamic_slice", (), (number,)) for number in slices]
    outputs = list(body.outputs)
    writes = []
    for place in range(params["num_carry"], len(outputs)):
        number = outputs[place]
        if number is not None:
            output = len(body.sizes)
            body.sizes.append(0)
            body.elements.append(body.elements[number])
            writes.append(Operation("move", "dynamic_update_slice", (number,), (output,)))
            outputs[place] = output
    return Program(
        [*reads, *body.operations, *writes],
        body.sizes,
        body.elements,
        body.inputs[:first],
        tuple(outputs),
    )


def _key(equation: Any, inputs: Sequence[int | None]) -> Any:
    """Returns a key of equal operations, or None for operations that are not compared."""
    parts: list[Any] = []
    for variable, number in zip(equation.invars, inputs, strict=True):
        if number is None:
            if not isinstance(variable, Literal) or getattr(variable.val, "ndim", 0):
                return None
            parts.append(("literal", str(variable.val)))
        else:
            parts.append(number)
    name, aval = equation.primitive.name, equation.outvars[0].aval
    params: tuple = ()
    if name not in _PLAIN:
        params = tuple((each, str(value)) for each, value in equation.params.items())
    return name, aval.shape, str(aval.dtype), params, tuple(parts)

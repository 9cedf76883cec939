"""Reads a jaxpr into a program of operations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

from fkeras.engine.costs.counting import Costs
from fkeras.engine.costs.rules import primitive_count
from fkeras.planning.program.backends import Backend
from fkeras.planning.program.emitter import Emitter, primitive_costs
from fkeras.planning.program.kinds import equation_key, is_floating, kind_of, same_array
from fkeras.planning.program.operations import Operation, Program
from fkeras.planning.program.splits import Decision, Mesh, Split, decide, local_shape, whole

_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
# the splits of a loop's carry settle after few rounds
_ROUNDS = 3
_LOOPS = ("scan", "while", "cond")
_REMAT = ("remat2", "checkpoint", "remat")


class Place(NamedTuple):
    """Where the value of a variable is.

    Attributes:
        number: the number of the value; None for a constant.
        split: the split of the variable's array over devices.
    """

    number: int | None
    split: Split


Values = dict[Any, Place]


def read(
    jaxpr: Any, backend: Backend, splits: Sequence[Split] | None = None, mesh: Mesh | None = None
) -> Program:
    """Returns the program of a jaxpr on one device, without the operations that no result needs.

    Args:
        mesh: the devices, or None for one device.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    program = Program()
    reader = _Reader(program, backend, mesh)
    values: Values = {v: Place(None, whole(v.aval.shape)) for v in inner.constvars}
    arguments = []
    for place, variable in enumerate(inner.invars):
        aval: Any = variable.aval
        split = whole(aval.shape) if splits is None else splits[place]
        arguments.append(program.value(reader.local_shape(aval.shape, split), aval.dtype))
        values[variable] = Place(arguments[-1], split)
    program.inputs = tuple(arguments)
    reader.equations(inner, values, "")
    results = [_place(values, variable) for variable in inner.outvars]
    program.outputs = tuple(place.number for place in results)
    program.splits = tuple(place.split for place in results)
    return program.without_unused()


def _place(values: Values, variable: Any) -> Place:
    aval: Any = variable.aval
    return Place(None, whole(aval.shape)) if isinstance(variable, Literal) else values[variable]


@dataclasses.dataclass(frozen=True)
class _LocalArray:
    aval: Any


@dataclasses.dataclass(frozen=True)
class _LocalEquation:
    """An equation with the shapes of one device."""

    primitive: Any
    params: Mapping[str, Any]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]


class _Reader:
    def __init__(self, program: Program, backend: Backend, mesh: Mesh | None):
        self.program, self.backend, self.mesh = program, backend, mesh
        self.seen: dict[Any, tuple[int, ...]] = {}
        self.transposed: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}

    def local_shape(self, shape: Sequence[int], split: Split) -> tuple[int, ...]:
        return tuple(shape) if self.mesh is None else local_shape(shape, split, self.mesh.sizes)

    def equations(self, jaxpr: Any, values: Values, outer: str) -> None:
        for equation in jaxpr.eqns:
            places = [_place(values, variable) for variable in equation.invars]
            stack = str(equation.source_info.name_stack)
            scope = f"{outer}/{stack}" if outer and stack else outer or stack
            results = self.equation(equation, places, scope)
            values.update(zip(equation.outvars, results, strict=True))

    def equation(self, equation: Any, places: list[Place], scope: str) -> Sequence[Place]:
        name, params = equation.primitive.name, equation.params
        if name in _LOOPS:
            return self.loop(equation, places, scope)
        if name == "optimization_barrier":
            return self.barrier(places, scope)
        jaxpr = next((params[key] for key in _CALLS if key in params), None)
        if name == "platform_form" and self.backend.is_cpu:
            avals = [variable.aval for variable in equation.invars]
            jaxpr = jax.make_jaxpr(params["form"].fast)(*avals)
        if jaxpr is not None and not same_array(equation) and primitive_count(equation) is None:
            return self.call(equation, getattr(jaxpr, "jaxpr", jaxpr), places, scope)
        if self.mesh is None:
            numbers = self.single(equation, [place.number for place in places], scope)
            pairs = zip(numbers, equation.outvars, strict=True)
            return [Place(number, whole(variable.aval.shape)) for number, variable in pairs]
        return self.on_devices(equation, places, scope)

    def on_devices(self, equation: Any, places: list[Place], scope: str) -> Sequence[Place]:
        """Adds an equation on split arrays, with the communication that it needs."""
        decision = decide(equation, [place.split for place in places])
        decision = self.split_new_rows(equation, places, decision)
        numbers, inputs = [], []
        for variable, place, split in zip(equation.invars, places, decision.inputs, strict=True):
            numbers.append(self.resplit(place, variable.aval, split, scope))
            inputs.append(variable if isinstance(variable, Literal) else self.part(variable, split))
        pairs = zip(equation.outvars, decision.outputs, strict=True)
        outputs = [self.part(variable, split) for variable, split in pairs]
        local = _LocalEquation(equation.primitive, equation.params, tuple(inputs), tuple(outputs))
        results = list(self.single(local, numbers, scope))
        if decision.partial:
            results = [self.reduced(number, scope) for number in results]
        return [Place(n, split) for n, split in zip(results, decision.outputs, strict=True)]

    def split_new_rows(self, equation: Any, places: list[Place], decision: Decision) -> Decision:
        """Splits new arrays with a row for each row of the batch, such as random numbers."""
        mesh, shape = self.mesh, equation.outvars[0].aval.shape
        if mesh is None or any(place.split for place in places) or shape[:1] != (mesh.rows,):
            return decision
        return decision._replace(outputs=((mesh.batch, *whole(shape[1:])),))

    def part(self, variable: Any, split: Split) -> Any:
        if not any(split):
            return variable
        shape = self.local_shape(variable.aval.shape, split)
        return _LocalArray(jax.ShapeDtypeStruct(shape, variable.aval.dtype))

    def resplit(self, place: Place, aval: Any, split: Split, scope: str) -> int | None:
        """Returns the value with another split: gathered from the devices, or a part of the value."""
        if place.number is None or split == place.split:
            return place.number
        key = ("resplit", place.number, place.split, split)
        if key not in self.seen:
            old = {name for names in place.split for name in names}
            gathers = bool(old - {name for names in split for name in names}) or any(
                names and names != before
                for names, before in zip(split, place.split, strict=True)
                if before
            )
            number = self.program.value(self.local_shape(aval.shape, split), aval.dtype)
            operation = Operation(
                "call" if gathers else "move",
                "all_gather" if gathers else "dynamic_slice",
                (place.number,),
                (number,),
                scope,
                traffic=self.program.sizes[number] if gathers else 0,
            )
            self.program.operations.append(operation)
            self.seen[key] = (number,)
        return self.seen[key][0]

    def reduced(self, number: int | None, scope: str) -> int | None:
        """Returns the sum of the values of all devices."""
        if number is None:
            return None
        output = len(self.program.sizes)
        self.program.sizes.append(self.program.sizes[number])
        self.program.elements.append(self.program.elements[number])
        self.program.operations.append(
            Operation(
                "call",
                "all_reduce",
                (number,),
                (output,),
                scope,
                in_place=True,
                traffic=self.program.sizes[output],
            )
        )
        return output

    def single(self, equation: Any, inputs: list[int | None], scope: str) -> Sequence[int | None]:
        if same_array(equation):
            return inputs[:1]
        emitter = Emitter(self.program, self.seen, self.transposed, scope)
        expanded = self.backend.expand(emitter, equation, inputs)
        return self.plain(equation, inputs, scope) if expanded is None else expanded

    def plain(self, equation: Any, inputs: list[int | None], scope: str) -> Sequence[int]:
        name = equation.primitive.name
        kind, expensive = kind_of(equation, self.backend.name)
        avals = [variable.aval for variable in equation.outvars]
        if kind == "elementwise":
            inputs = [self.whole(number, avals[0], scope) for number in inputs]
        key = None if kind == "call" else equation_key(equation, inputs)
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
        self, equation: Any, jaxpr: Any, places: Sequence[Place], scope: str
    ) -> Sequence[Place]:
        params = equation.params
        again = equation.primitive.name in _REMAT and params.get("differentiated")
        if again and params.get("prevent_cse", True):
            places = self.barrier(places, scope)
        inner: Values = {v: Place(None, whole(v.aval.shape)) for v in jaxpr.constvars}
        inner.update(zip(jaxpr.invars, places[len(places) - len(jaxpr.invars) :], strict=True))
        self.equations(jaxpr, inner, scope)
        return [_place(inner, variable) for variable in jaxpr.outvars]

    def barrier(self, places: Sequence[Place], scope: str) -> Sequence[Place]:
        known = tuple(dict.fromkeys(p.number for p in places if p.number is not None))
        outputs: dict[int | None, int | None] = {None: None}
        for number in known:
            outputs[number] = len(self.program.sizes)
            self.program.sizes.append(self.program.sizes[number])
            self.program.elements.append(self.program.elements[number])
        made = tuple(number for number in outputs.values() if number is not None)
        self.program.operations.append(
            Operation("barrier", "optimization_barrier", known, made, scope)
        )
        return [Place(outputs[place.number], place.split) for place in places]

    def bodies(self, equation: Any, places: Sequence[Place]) -> tuple[list[Split], list[Program]]:
        """Returns the splits of a loop's inputs, and the programs of its bodies."""
        name, params = equation.primitive.name, equation.params
        splits = [place.split for place in places]
        if name == "cond":
            branches = params["branches"]
            return splits, [read(b, self.backend, splits[1:], self.mesh) for b in branches]
        if name == "while":
            jaxpr, carry = params["body_jaxpr"], params["cond_nconsts"] + params["body_nconsts"]
            first, count = params["cond_nconsts"], len(splits) - carry
        else:
            jaxpr, carry, first = params["jaxpr"], params["num_consts"], 0
            count = params["num_carry"]
        body = Program()
        # the first step may split what the initial carry does not
        for _ in range(1 if self.mesh is None else _ROUNDS):
            inner = [
                *splits[first : carry + count],
                *(split[1:] for split in splits[carry + count :]),
            ]
            body = read(jaxpr, self.backend, inner, self.mesh)
            made = list(body.splits[:count])
            if made == splits[carry : carry + count]:
                break
            splits[carry : carry + count] = made
        return splits, [body]

    def loop(self, equation: Any, places: Sequence[Place], scope: str) -> Sequence[Place]:
        name, params = equation.primitive.name, equation.params
        splits, bodies = self.bodies(equation, places)
        results = bodies[0].splits
        steps, unknown = 1, Costs()
        if name == "scan":
            carried, steps = params["num_carry"], params["length"]
            results = (*results[:carried], *(((), *split) for split in results[carried:]))
            bodies = [_scan_body(bodies[0], params)]
        elif name == "while":
            unknown = Costs(unknown=frozenset({name}))
        costs = max((body.costs() for body in bodies), key=lambda total: total.flops)
        outputs = tuple(
            self.program.value(self.local_shape(variable.aval.shape, split), variable.aval.dtype)
            for variable, split in zip(equation.outvars, results, strict=True)
        )
        triples = zip(places, equation.invars, splits, strict=True)
        inputs = [self.resplit(place, v.aval, split, scope) for place, v, split in triples]
        scopes = [f"{scope}/{inner}" for inner in bodies[0].result_scopes()]
        stacks: tuple[int, ...] = ()
        if name == "scan" and self.backend.is_cpu:
            carried = params["num_carry"]
            stacks = self.stacks(outputs[carried:], scopes[carried:])
        self.program.operations.append(
            Operation(
                "loop",
                name,
                (*(number for number in inputs if number is not None), *stacks),
                outputs,
                scope,
                costs * steps + unknown,
                expensive=True,
                in_place=True,
                body=tuple(bodies),
                steps=steps,
                stacks=len(stacks),
                result_scopes=tuple(scopes),
            )
        )
        return [Place(number, split) for number, split in zip(outputs, results, strict=True)]

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

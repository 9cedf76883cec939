"""Loops and branches: nested graphs of ONNX."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.engine import Spec, as_spec
from fkeras.programs.walk import branch_of_cpus
from fkeras.saving.onnx.graph.writer import Body, Operand, Value
from fkeras.saving.onnx.primitives.rule import Equation, Rule


def _specs(program: Any) -> tuple[list[Spec], list[Spec]]:
    jaxpr = program.jaxpr
    return [as_spec(v.aval) for v in jaxpr.invars], [as_spec(v.aval) for v in jaxpr.outvars]


def _fresh(eq: Equation, specs: Sequence[Spec], name: str) -> list[Value]:
    path = "/".join((*eq.writer.path, name))
    return [Value(eq.writer.unique(path), spec.dims, spec.dtype) for spec in specs]


def _named(eq: Equation, values: Sequence[Operand], specs: Sequence[Spec]) -> list[Value]:
    """Results of a nested graph under names of their own, which ONNX requires."""
    pairs = zip(values, specs, strict=True)
    return [
        eq.writer.emit("Identity", value, dims=spec.dims, dtype=spec.dtype) for value, spec in pairs
    ]


def _scan(eq: Equation) -> Any:
    params, w = eq.params, eq.writer
    program, constants = params["jaxpr"], int(params["num_consts"])
    carried = int(params["num_carry"])
    fixed = eq.inputs[:constants]
    states = eq.inputs[constants : constants + carried]
    sequences = eq.inputs[constants + carried :]
    in_specs, out_specs = _specs(program)
    extra: list[Operand] = []
    if not sequences:
        # a scan of ONNX needs a sequence, which sets the number of steps
        count = w.size(
            eq.params["length"] if isinstance(params["length"], int) else str(params["length"])
        )
        bounds = np.array(0, np.int64), count, np.array(1, np.int64)
        extra = [w.emit("Range", *bounds, dims=(str(params["length"]),))]
    with w.body("scan") as nodes:
        state_values = _fresh(eq, in_specs[constants : constants + carried], "state")
        slices = _fresh(eq, in_specs[constants + carried :], "step")
        unused = _fresh(eq, [Spec((), "int64")] * len(extra), "step")
        results = eq.run(program, [*fixed, *state_values, *slices])
        named = _named(eq, results, out_specs)
    body = Body(
        w.unique("/".join((*w.path, "body"))), nodes, [*state_values, *slices, *unused], named
    )
    reverse = int(bool(params["reverse"]))
    stacked = len(out_specs) - carried
    return w.emit_several(
        "Scan",
        *states,
        *sequences,
        *extra,
        outputs=[(spec.dims, spec.dtype) for spec in eq.outputs],
        body=body,
        num_scan_inputs=len(sequences) + len(extra),
        scan_input_directions=[reverse] * (len(sequences) + len(extra)),
        scan_output_directions=[reverse] * stacked if stacked else None,
    )


def _cond(eq: Equation) -> Any:
    index, *operands = eq.inputs
    branches, w = eq.params["branches"], eq.writer
    if isinstance(index, np.ndarray):
        choice = int(np.clip(int(index), 0, len(branches) - 1))
        return eq.run(branches[choice], operands)
    if len(branches) != 2:
        raise eq.error("selects among more than two branches.", "Write nested jax.lax.cond calls.")
    bodies = []
    for branch in branches:
        with w.body("branch") as nodes:
            results = _named(eq, eq.run(branch, operands), _specs(branch)[1])
        bodies.append(Body(w.unique("/".join((*w.path, "branch"))), nodes, [], results))
    return w.emit_several(
        "If",
        w.cast(index, "bool"),
        outputs=[(spec.dims, spec.dtype) for spec in eq.outputs],
        then_branch=bodies[1],
        else_branch=bodies[0],
    )


def _while(eq: Equation) -> Any:
    params, w = eq.params, eq.writer
    test_count, count = int(params["cond_nconsts"]), int(params["body_nconsts"])
    test_constants, rest = eq.inputs[:test_count], eq.inputs[test_count:]
    constants, states = rest[:count], rest[count:]

    def again(values: Sequence[Operand]) -> Operand:
        (result,) = eq.run(params["cond_jaxpr"], [*test_constants, *values])
        return result

    first = again(states)
    specs = _specs(params["body_jaxpr"])[1]
    with w.body("loop") as nodes:
        number = _fresh(eq, [Spec((), "int64")], "number")
        going = _fresh(eq, [Spec((), "bool")], "going")
        values = _fresh(eq, specs, "state")
        results = eq.run(params["body_jaxpr"], [*constants, *values])
        named = _named(eq, [again(results), *results], [Spec((), "bool"), *specs])
    body = Body(w.unique("/".join((*w.path, "body"))), nodes, [*number, *going, *values], named)
    outputs = [(spec.dims, spec.dtype) for spec in eq.outputs]
    return w.emit_several("Loop", None, first, *states, outputs=outputs, body=body)


def _platform(eq: Equation) -> Any:
    index = branch_of_cpus(eq.params["platforms"])
    if index is None:
        raise eq.error("has no program for CPUs.", "Give jax.lax.platform_dependent a default.")
    return np.asarray(index, "int32")


RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        "scan": Rule(_scan, "jaxpr length reverse num_consts num_carry"),
        "cond": Rule(_cond, "branches branches_platforms"),
        "platform_index": Rule(_platform, "platforms"),
        "while": Rule(_while, "cond_jaxpr cond_nconsts body_jaxpr body_nconsts"),
    }
)

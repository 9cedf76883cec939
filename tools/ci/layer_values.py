"""Checks the numbers that the installed jaxlib computes for each layer, on many rows.

    python tools/ci/layer_values.py                       # all rows of the layer table
    python tools/ci/layer_values.py --part 2/8            # one part of them
    python tools/ci/layer_values.py --write numbers.npz   # also writes a sample of the numbers

The calls of the layer table (`tests/cases`) are compiled with weights and inputs as arguments, with the
weights as constants, and, as reference, without XLA's optimizations and without its libraries for
matrix products. The calls have 40,009 rows; a call with the table's few rows is part of the same
programs; its inputs are constants if the weights are. Gradients are separate programs, because XLA fuses
a call differently next to its gradient. All numbers must be equal up to rounding.

The same comparison runs over functions of reports to JAX for which some releases compute wrong numbers.
The check fails if a known error does not appear, or appears in another release.
"""

import argparse
import dataclasses
import pathlib
import re
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import fkeras as fk
from fkeras import layers
from tests.cases import Case, all_cases
from tests.support.quick_keys import QUICK

# 40,000 and a prime: no split into tasks or vectors is even
ROWS = 40_009
# rounding: the largest difference of all rows is 3e-5 of the scale, see `difference`
TOLERANCE = 1e-4
# functions with jumps, such as quantization, may fall on another side in one element of 100,000
JUMPS = 1e-5
# options of the reference; a release of jaxlib may lack the last ones
REQUIRED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
OPTIONAL = {
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_use_xnnpack": False,
}
KEY = jax.random.key(7, impl=QUICK)


# layers before reductions over the features of each row, as in the reports: the table has each layer alone
COMPOSITIONS = (
    Case(layers.Pipeline((layers.Dense(3), layers.UnitNormalization())), ((2, 3),)),
    Case(layers.Pipeline((layers.Dense(2), layers.LayerNormalization())), ((2, 3),)),
    Case(layers.Dense(3, activation="softmax"), ((2, 3),)),
    Case(layers.Pipeline((layers.Conv1D(3, 1), layers.GlobalAveragePooling1D())), ((2, 2, 3),)),
)


def sums_of_squares(x):
    """The squared length of each row after a product with a constant matrix."""
    return jax.vmap(lambda row: jnp.sum((np.eye(3, dtype="float32") @ row) ** 2))(x)


def incremented(x):
    """Each row gathered in its own order, plus one."""
    return jax.vmap(lambda row: row[jnp.arange(row.size)])(x) + 1


@dataclasses.dataclass(frozen=True)
class Report:
    """A function for which some releases of jaxlib compute wrong numbers.

    Attributes:
        case: the function as a row of the layer table.
        first: the first release with wrong numbers.
        fixed: the first release after it with right numbers.
        every_cpu: whether the numbers are wrong on each CPU; otherwise the kernels differ.
    """

    case: Case
    first: tuple
    fixed: tuple
    every_cpu: bool


REPORTS = {
    "jax#39103": Report(
        Case(layers.Lambda(sums_of_squares), ((2, 3),)), (0, 10, 2), (0, 11), every_cpu=False
    ),
    "jax#33479": Report(
        Case(layers.Lambda(incremented), (("int32", (2, 6), 9),)),
        (0, 5, 3),
        (0, 8, 2),
        every_cpu=True,
    ),
}


def release(version: str) -> tuple:
    """The numbers of a version: "0.10.2" gives (0, 10, 2)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def difference(numbers: Any, reference: Any, floor: float = 0.01) -> tuple[float, int]:
    """The largest difference relative to the scale, and the number of wrong elements.

    The scale of an element is its size, the root mean square of the array, and a floor, as sums that
    cancel have no size of their own. Numbers that are not finite must be the same ones.
    """
    numbers, reference = np.asarray(numbers), np.asarray(reference)
    wide = "complex128" if np.iscomplexobj(reference) else "float64"
    numbers, reference = numbers.astype(wide), reference.astype(wide)
    if numbers.shape != reference.shape:
        return float("inf"), max(numbers.size, reference.size, 1)
    if not reference.size:
        return 0.0, 0
    finite = np.isfinite(reference)
    same = np.where(
        finite,
        np.isfinite(numbers),
        (numbers == reference) | (np.isnan(numbers) & np.isnan(reference)),
    )
    size = np.abs(np.where(finite, reference, 0))
    scale = size + np.sqrt(np.mean(size**2)) + floor
    valid = finite & same
    error = np.abs(np.where(valid, numbers, 0) - np.where(valid, reference, 0)) / scale
    error = np.where(same, error, np.inf)
    return float(error.max()), int((error > TOLERANCE).sum())


def reference_options() -> dict[str, Any]:
    """The options of the reference that the installed jaxlib has."""
    options = dict(REQUIRED)
    for name, value in OPTIONAL.items():
        try:
            jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        else:
            options[name] = value
    return options


def _is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def _rows_of(case: Case) -> int:
    return len(jax.tree.leaves(case.arrays())[0])


class Call:
    """One call of a built layer with a number of rows."""

    def __init__(self, case: Case, layer: Any, rows: int):
        self.case = case
        self.inputs = case.arrays(batch=rows)
        self.state = layer.init_state(*self.inputs)
        self.mask = None
        if case.mask is not None:
            self.mask = np.random.default_rng(1).random((rows, *case.mask[1:])) < 0.6
            self.mask[:, 0] = True
        self.factors = self._factors(layer)

    def outputs(self, layer: Any, inputs: Any, key: jax.Array) -> tuple[Any, ...]:
        out = layer.apply(
            *inputs,
            state=self.state,
            training=self.case.training,
            key=key,
            mask=self.mask,
            **self.case.options,
        )
        return out.value, out.updates, out.losses

    def _factors(self, layer: Any) -> list[Any]:
        """A random factor for each output, so that each row matters in the gradients."""
        shapes = jax.eval_shape(self.outputs, layer, self.inputs, KEY)[0]
        rng = np.random.default_rng(5)
        return [rng.normal(size=x.shape).astype("float32") for x in jax.tree.leaves(shapes)]

    def gradients(self, layer: Any, inputs: Any, key: jax.Array, factors: Any) -> tuple[Any, Any]:
        """Gradients with respect to trained weights, and to inputs of floats."""
        trained, rest = fk.partition(layer)
        arrays, tree = jax.tree.flatten(inputs)
        floats = [x if _is_float(x) else None for x in arrays]

        def score(trained, floats):
            merged = [x if f is None else f for x, f in zip(arrays, floats, strict=True)]
            value, _, losses = self.outputs(
                fk.combine(trained, rest), jax.tree.unflatten(tree, merged), key
            )
            terms = [
                jnp.sum(x.astype("float32") * factor)
                for x, factor in zip(jax.tree.leaves(value), factors, strict=True)
                if _is_float(x)
            ]
            return sum(terms, sum(losses, jnp.float32(0)))

        return jax.grad(score, (0, 1))(trained, floats)


def check_case(case: Case, options: dict[str, Any], numbers: dict[str, Any]) -> list[str]:
    """Returns a line for each wrong array of a row of the table; adds samples to `numbers`."""
    layer, _ = case.build()
    many, few = Call(case, layer, ROWS), Call(case, layer, _rows_of(case))

    def calls(layer, inputs, small, key):
        return many.outputs(layer, inputs, key), few.outputs(layer, small, key)

    def constant_calls(inputs):
        return calls(layer, inputs, few.inputs, KEY)

    def constant_inputs():  # without weights, the rest is the program of `calls`
        return few.outputs(layer, few.inputs, KEY)

    called = layer, many.inputs, few.inputs, KEY
    differentiated = layer, many.inputs, KEY, many.factors
    lowered = jax.jit(calls).lower(*called)
    gradients = jax.jit(many.gradients).lower(*differentiated)
    right = lowered.compile(compiler_options=options)(*called)
    of_weights, of_inputs = gradients.compile(compiler_options=options)(*differentiated)
    lines = []

    def compare(kind, values, expected, floor=0.01):
        pairs = zip(
            jax.tree_util.tree_leaves_with_path(values), jax.tree.leaves(expected), strict=True
        )
        for (path, value), right in pairs:
            largest, wrong = difference(value, right, floor)
            if wrong > JUMPS * value.size:
                place = jax.tree_util.keystr(path)
                lines.append(
                    f"{kind}{place}: {wrong} of {value.size} differ, by up to {largest:.1e}"
                )
            # releases differ in gradients of weights that are zero but for rounding
            if kind in ("arguments", "gradients of inputs"):
                flat = np.asarray(right).ravel()
                numbers[f"{case.id}|{len(numbers)}"] = flat[:: -max(1, flat.size // 50)]

    compare("arguments", lowered.compile()(*called), right)
    if jax.tree.leaves((layer, many.state)):
        compare("constants", jax.jit(constant_calls)(many.inputs), right)
    else:
        compare("constants", jax.jit(constant_inputs)(), right[1])
    found_of_weights, found_of_inputs = gradients.compile()(*differentiated)
    compare("gradients of inputs", found_of_inputs, of_inputs)
    # each gradient of a weight is a sum of as many random terms as there are rows
    compare("gradients of weights", found_of_weights, of_weights, floor=ROWS**0.5)
    return lines


def check_reports(installed: tuple, options: dict[str, Any]) -> tuple[list[str], int]:
    """Lines about the functions of the reports, and the number of unexpected results."""
    lines, unexpected = [], 0
    for name, report in REPORTS.items():
        wrong = check_case(report.case, options, {})
        expected = report.first <= installed < report.fixed
        line = f"{name}: {'; '.join(wrong) or 'right numbers'}"
        if bool(wrong) == expected:
            line += " (as reported)" if expected else ""
        elif expected and not report.every_cpu:
            line += " on this CPU, wrong ones on others"
        else:
            line += " (NOT as reported for this release)"
            unexpected += 1
        lines.append(line)
    return lines, unexpected


def selected(part: str) -> list[tuple[int, Case]]:
    """The rows of a part: "2/8" has each eighth row, beginning with the second; and the compositions."""
    number, count = map(int, part.split("/"))
    cases = list(enumerate(all_cases()))[number - 1 :: count]
    return cases + list(enumerate(COMPOSITIONS, len(all_cases())))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1", metavar="K/N", help="rows of the layer table")
    parser.add_argument("--write", metavar="FILE", help="a file for a sample of the numbers")
    arguments = parser.parse_args()
    start = time.process_time()
    installed = release(jaxlib.__version__)
    options, numbers = reference_options(), {}
    lines, failures = check_reports(installed, options)
    print("\n".join(lines), flush=True)
    cases = selected(arguments.part)
    for _, case in cases:
        for line in check_case(case, options, numbers):
            failures += 1
            print(f"WRONG {case.id}: {line}", flush=True)
        jax.clear_caches()
    if arguments.write:
        np.savez(arguments.write, **numbers)
    classes = len({type(case.layer) for _, case in cases})
    print(
        f"jaxlib {jaxlib.__version__}: {len(cases)} rows of {classes} layers, {len(numbers)} arrays, "
        f"{failures} failures, {time.process_time() - start:.0f} CPU seconds"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

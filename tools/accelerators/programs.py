"""Compiles programs for a TPU v5e or an H100 without the device, and reads the compiler's report.

The wheel `libtpu` has the compiler for TPUs, `jax-cuda12-plugin` with `jax-cuda12-pjrt` the one for
GPUs; `h100.txtpb` describes the GPU (the fields are those of XLA's `device_description.proto`). With
`nvidia-cudnn-cu12`, programs for the GPU call cuDNN's attention, as on a machine with a GPU; other libraries
of CUDA are not necessary. Install the wheels of the release of jaxlib:

    python -m venv accelerators
    accelerators/bin/pip install jax[tpu]==VERSION jax-cuda12-plugin==VERSION jax-cuda12-pjrt==VERSION flax optax
    accelerators/bin/pip install nvidia-cudnn-cu12
"""

import collections
import copy
import dataclasses
import importlib.util
import math
import os
import pathlib
import re

# the lock file of libtpu would admit one process
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# JAX would look for the devices of the installed compilers, and give up a compiler without one
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

# a larger number means that the compiler has no estimate
_UNKNOWN = 10**12
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\(([^)]*)")
_ARRAY = re.compile(r"\b(pred|[a-z]+)(\d*)[a-z0-9]*\[([\d,]*)\]")
# operations that move nothing, or whose operations are counted
_FREE = (
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "while",
    "call",
    "conditional",
    # the ends of asynchronous operations
    "async-done",
    "copy-done",
    "slice-done",
)
# operations that read a part of their first operand
_PARTS = ("slice", "dynamic-slice", "gather")
# operations that write a part of their first operand in place; the part is another operand
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_COLLECTIVES = re.compile(
    r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A device without a device.

    Attributes:
        platform: JAX's name of the platform.
        package: the module of the compiler.
        install: the packages that have the compiler.
    """

    platform: str
    package: str
    install: str

    @property
    def missing(self):
        """The line that names the package to install, or None."""
        if importlib.util.find_spec(self.package) is not None:
            return None
        return f"no compiler for {self.platform}: pip install {self.install}"

    def devices(self, number):
        """Returns one device, or those of a slice of 8."""
        if self.platform == "tpu":
            one = {"topology_name": "v5e:1x1", "chips_per_host_bounds": (1, 1, 1)}
            options = one if number == 1 else {"topology_name": "v5e:2x4"}
        else:
            text = (pathlib.Path(__file__).parent / "h100.txtpb").read_text()
            options = {"target_config": text, "topology": f"1x1x{number}"}
        return topologies.get_topology_desc(platform=self.platform, **options).devices


_VERSION = jax.__version__
TARGETS = {
    "v5e": Target("tpu", "libtpu", f"jax[tpu]=={_VERSION}"),
    "h100": Target(
        "cuda",
        "jax_cuda12_plugin",
        f"jax-cuda12-plugin=={_VERSION} jax-cuda12-pjrt=={_VERSION}",
    ),
}


def specs_on(device, specs):
    """Returns shapes with the layout of one device; those that have a layout keep it."""

    def place(leaf):
        layout = getattr(leaf, "sharding", None) or SingleDeviceSharding(device)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout)

    return jax.tree.map(place, specs)


def lowered_for(platform, function, specs, donate=()):
    """Returns the lowered program, whose `compile` needs no device."""
    traced = jax.jit(function, donate_argnums=donate).trace(*specs)
    return traced.lower(lowering_platforms=(platform,))


def figures(compiled, trips=1):
    """Returns the compiler's report on a program, as a dictionary.

    Args:
        trips: the number of steps of loops whose number the program does not state.
    """
    text = compiled.as_text()
    program = Program(text, trips)
    # the GPU's compiler has no analysis of costs without the device
    cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    counts = program.counts
    return {
        "cycles": program.cycles,
        "rare": program.rare,
        "unknown": program.unknown,
        # the TPU's compiler counts one step of a loop
        "bytes": program.bytes
        if counts["while"]
        else int(cost.get("bytes accessed", program.bytes)),
        "temporary": memory.temp_size_in_bytes,
        "fusions": counts["fusion"],
        "copies": counts["copy"] + counts["copy-start"],
        "loops": counts["while"],
        "custom calls": counts["custom-call"],
        "collectives": dict(collections.Counter(_COLLECTIVES.findall(text))),
        "costly": program.costly(),
    }


def _sizes(shape):
    """Returns the sizes in bytes of the arrays in the text of a shape, such as `(f32[2,3]{1,0}, s4[])`."""
    return [
        math.ceil(math.prod(map(int, filter(None, sizes.split(",")))) * int(bits or 8) / 8)
        for _, bits, sizes in _ARRAY.findall(shape)
    ]


def _bytes(shape):
    return sum(_sizes(shape))


def _results(found):
    """Returns the names of the results of a computation, given its operations."""
    name, kind, operands = next((n, k, o) for text, n, _, k, o in found if " ROOT " in text)
    return re.findall(r"%([\w.\-]+)", operands) if kind == "tuple" else [name]


def _read_part(found, name, shape):
    """Returns the part of an array that a computation reads: less than 1 if all that read the array are slices."""
    users = [(n, s, k) for _, n, s, k, o in found if name in re.findall(r"%([\w.\-]+)", o)]
    parts = [
        _bytes(of_user) / max(_bytes(shape), 1)
        if kind in _PARTS
        else _read_part(found, user, of_user)
        if kind in ("bitcast", "convert")
        else 1
        for user, of_user, kind in users
    ]
    return min(sum(parts), 1) if parts else 1


class Program:
    """An optimized program: the operations that the device runs one after the other.

    Operations inside of a fusion are no operations of their own. The cycles of the body of a loop count
    once for each step. A conditional counts as its cheapest branch.

    Attributes:
        cycles: the estimated cycles.
        rare: the additional cycles if each conditional takes its most expensive branch.
    """

    def __init__(self, text, trips):
        self.trips, self.computations, self.unknown, self.bytes, self.rare = trips, {}, 0, 0, 0
        self.counts, self.by_operation = collections.Counter(), collections.Counter()
        entry, lines = None, []
        for line in text.splitlines():
            if head := _HEAD.match(line):
                lines = self.computations[head[2]] = []
                entry = head[2] if head[1] else entry
            else:
                lines.append(line)
        self._visit(entry, 1)
        self.cycles = self.by_operation.total()

    def costly(self, number=6):
        """Returns `(cycles, operation, where it comes from)` of the operations that cost most."""
        return [[cycles, *name] for name, cycles in self.by_operation.most_common(number)]

    def _visit(self, name, times):
        sizes = {}
        for line in self.computations[name]:
            found = _OPERATION.match(line)
            if found is None:
                continue
            operation, shape, kind, operands = found.groups()
            self.counts[kind] += 1
            sizes[operation] = _bytes(shape)
            if kind not in _FREE:
                names = re.findall(r"%([\w.\-]+)", operands)
                read, written = [sizes.get(name, 0) for name in names], sizes[operation]
                if kind == "fusion":
                    read, written = self._moved_by_fusion(line, read, written)
                elif kind in _UPDATES:
                    read[0], written = 0, min(written, read[_UPDATES[kind]])
                elif kind in ("copy-start", "slice-start"):
                    # the shape ends with that of what is moved and that of a counter
                    read, written = [], 2 * _sizes(shape)[-2]
                self.bytes += times * (written + sum(read))
            cycles = self._own_cycles(line)
            if cycles >= _UNKNOWN:
                self.unknown += 1
            elif cycles:
                origin = re.search(r'op_name="([^"]*)"', line)
                self.by_operation[operation, origin[1] if origin else ""] += cycles * times
            if kind == "while":
                condition = re.search(r"condition=%?([\w.\-]+)", line)[1]
                body = re.search(r"body=%?([\w.\-]+)", line)[1]
                self._visit(body, times * self._steps(line, condition))
            elif kind in ("call", "conditional", "async-start"):
                inner = r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)"
                branches = re.search(r"branch_computations=\{([^}]*)\}", line)
                names = re.findall(inner, line)
                names += re.findall(r"[\w.\-]+", branches[1]) if branches else []
                if kind == "conditional":
                    names = self._cheapest(names, times)
                for inner in names:
                    self._visit(inner, times)

    def _moved_by_fusion(self, line, read, written):
        """Returns the bytes that a fusion reads of each operand, and the bytes that it writes.

        Of an operand that the fusion only slices, it reads the slices; of an operand that it updates in place, it
        writes the updates.
        """
        inner = self.computations.get(re.search(r"calls=%?([\w.\-]+)", line)[1], [])
        found = [(text, *match.groups()) for text in inner if (match := _OPERATION.match(text))]
        read = list(read)
        shapes = {name: shape for _, name, shape, _, _ in found}
        results = _results(found) if found else []
        sources = {}  # the parameter that an operation is, if only its shape changes
        for _, name, shape, kind, operands in found:
            names = re.findall(r"%([\w.\-]+)", operands)
            if kind == "parameter":
                sources[name] = int(operands)
                read[sources[name]] = round(_read_part(found, name, shape) * read[sources[name]])
            elif kind == "bitcast" and names[0] in sources:
                sources[name] = sources[names[0]]
            elif kind in _UPDATES and names[0] in sources and name in results:
                read[sources[names[0]]] = 0
                written -= max(0, _bytes(shape) - _bytes(shapes[names[_UPDATES[kind]]]))
        return read, written

    def _cheapest(self, names, times):
        """Returns the cheapest branch; adds the additional cycles of the most expensive to `rare`."""
        costs = {name: self._alone(name, times) for name in names}
        names = sorted(names, key=lambda name: (costs[name].cycles, costs[name].bytes))
        expensive = costs[names[-1]]
        self.rare += expensive.cycles + expensive.rare - costs[names[0]].cycles
        return names[:1]

    def _alone(self, name, times):
        """Returns the costs of one computation."""
        alone = copy.copy(self)
        alone.unknown = alone.bytes = alone.rare = 0
        alone.counts, alone.by_operation = collections.Counter(), collections.Counter()
        alone._visit(name, times)
        alone.cycles = alone.by_operation.total()
        return alone

    def _steps(self, line, condition):
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', line):
            return int(known[1])
        text = "\n".join(self.computations[condition])
        constants = re.findall(r" = [su]32\[\]\S* constant\((\d+)\)", text)
        return int(constants[0]) if len(constants) == 1 and "direction=LT" in text else self.trips

    @staticmethod
    def _own_cycles(line):
        found = _CYCLES.search(line)
        return int(found[1]) if found else 0

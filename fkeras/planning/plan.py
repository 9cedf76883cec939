"""`plan`: memory and operations of a training step, compiled for shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from fkeras.authoring.engine import (
    Costs,
    costs_by_scope,
    explains_arguments,
    leaves_of,
    skeleton_of,
)
from fkeras.authoring.training import FSDP, whole_key_heads
from fkeras.planning import tables
from fkeras.planning.accounting import Part, call_rows, device_bytes
from fkeras.planning.arrays import Received, by_computation, cycles, largest, received
from fkeras.planning.attribution import BETWEEN, Calls
from fkeras.planning.budget import budget_bytes, largest_rows
from fkeras.planning.compiling import (
    MOST_DEVICES,
    compiled,
    device_of,
    mesh_of,
    on_device,
    platform_of,
)
from fkeras.planning.devices import CHIPS, slices
from fkeras.planning.estimate import Estimate, estimate
from fkeras.planning.kernels import attention_kernels
from fkeras.planning.request import Request, check_rows, request
from fkeras.planning.scopes import instructions, scopes
from fkeras.training import Trainer


@dataclasses.dataclass(frozen=True)
class CallPlan:
    """Memory and operations of one call of a model, in a training step.

    Attributes:
        name: path of the layer, such as "encoder/dense_1"; in parentheses, a part of the step outside
            of the model.
        layer: class of the layer.
        weights: bytes of the weights.
        state: bytes of the state, such as moving statistics.
        optimizer: bytes of the optimizer's state for these weights.
        activations: bytes of the call's intermediate arrays at the moment of the largest memory.
        flops: floating-point operations, forward and backward.
        communication: bytes that a device receives from other devices.
        cycles: cycles of the operations that the compiler of TPUs expects; 0 for other devices.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> x, y = jax.ShapeDtypeStruct((2, 8), "float32"), jax.ShapeDtypeStruct((2, 4), "float32")
        >>> plan = fk.plan(model, (x, y), fk.Trainer("sgd", "mse"))
        >>> call = plan.calls[0]
        >>> call.name, call.layer, call.weights
        ('dense', 'Dense', 144)
    """

    name: str
    layer: str = ""
    weights: int = 0
    state: int = 0
    optimizer: int = 0
    activations: int = 0
    flops: float = 0.0
    communication: int = 0
    cycles: int = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """Memory and operations of a training step, computed from shapes.

    With a mesh, all bytes and operations are those of one device.

    Attributes:
        calls: a row for each call, in running order; then the loss and the update of the weights.
        loops: for each loop over repeated blocks (`Trainer.depth`), the names of the calls of each block. The
            rows of these calls have equal shares of the loop.
        rows: number of rows of the batch.
        remat: the trainer's rematerialization.
        backend: JAX's name of the backend for which XLA compiled the step.
        weights: bytes of all weights.
        state: bytes of the model's state.
        optimizer: bytes of the optimizer's state.
        gradients: bytes of the gradients of all trainable weights. Their arrays count among the
            intermediate arrays, as far as they exist at the moment of the largest memory.
        activations: largest number of bytes of intermediate arrays that exist at the same time.
        arguments: bytes of the arguments of the step: the run and the batch.
        results: bytes of the results of the step that do not take the memory of an argument.
        flops: floating-point operations of the step, all steps of its loops included.
        transcendentals: evaluations of functions such as `exp` and `tanh`.
        communication: bytes of the arrays that collective operations (all-reduce, all-gather) return to
            a device in a step.
        devices: number of devices.
        device: the name of the device, such as "v5e"; "" for CPUs and for unknown devices.
        device_memory: bytes of the memory of this device; 0 if unknown.
        rejected: whether the compiler rejected the step, which needs more memory than the device has.
            Then the plan has the memory of the compiler's report, and neither cycles nor communication.
        cycles: cycles of all operations of a step that the compiler of TPUs expects; None for other
            devices. Waiting for other devices and for the host does not count.
        without_cycles: names of the calls with operations whose cycles the compiler does not know.
        collectives: for each kind of collective operations, such as "all-reduce", the number of
            operations in a step, and the bytes that they return to a device.
        unknown: primitives without a rule for their operations, which count as nothing; "while" stands
            for a loop of unknown length, which counts once.
        whole_key_heads: paths of weights that every device holds whole, since the mesh cannot split
            their heads of keys and values ("kv_heads") evenly.
        donate: whether the results take the memory of the arguments.
        kernels: for each `DotProductAttention`, its path and the kernel that computes its call.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> x, y = jax.ShapeDtypeStruct((2, 8), "float32"), jax.ShapeDtypeStruct((2, 4), "float32")
        >>> plan = fk.plan(model, (x, y), fk.Trainer("sgd", "mse"))
        >>> plan.peak == plan.arguments + plan.results + plan.activations
        True
        >>> str(plan).splitlines()[0]
        "Plan of a training step on 2 rows, for the backend 'cpu'"
    """

    calls: tuple[CallPlan, ...]
    loops: tuple[tuple[tuple[str, ...], ...], ...]
    rows: int
    remat: Any
    backend: str
    weights: int
    state: int
    optimizer: int
    gradients: int
    activations: int
    arguments: int
    results: int
    flops: float
    transcendentals: float
    communication: int
    devices: int
    device: str
    device_memory: int
    rejected: bool
    cycles: int | None
    without_cycles: tuple[str, ...]
    collectives: tuple[tuple[str, int, int], ...]
    unknown: frozenset[str]
    whole_key_heads: tuple[str, ...]
    donate: bool
    kernels: tuple[tuple[str, str], ...]
    _request: Request = dataclasses.field(repr=False, compare=False)

    @property
    def peak(self) -> int:
        """Largest number of bytes that the step needs at the same time."""
        return self.arguments + self.results + self.activations

    @property
    def fits(self) -> bool | None:
        """Whether the device has the memory of the step; None if the device's memory is unknown."""
        if not self.device_memory:
            return None
        return not self.rejected and self.peak <= self.device_memory

    @property
    def seconds(self) -> float | None:
        """Time of a step from `cycles`; None without cycles, or for a device without a documented clock."""
        return None if self.cycles is None or not self._clock else self.cycles / self._clock

    @property
    def _clock(self) -> float:
        return CHIPS[self.device].clock if self.device else 0.0

    @property
    def estimate(self) -> Estimate:
        """The expected time of each call, as a table and as a picture.

        Raises:
            ValueError: for a plan without cycles.
        """
        return estimate(self, self._request.run.model, self._clock)

    def fit_into(self, budget: str | int | None = None, *, device: str | None = None) -> Advice:
        """Returns batch sizes, rematerialization and devices with which the step fits into a budget.

        If the batch of the plan does not fit into one device with any `remat`, the advice also has plans for
        2, 4, 8, ... devices that split rows and weights (`sharding="fsdp"`), for devices with a name those
        that Google rents, such as 4, 8, 16, ... 256 v5e. If the machine has fewer devices without a name,
        these plans are for simulated CPUs. Each candidate needs the compilation of three to five steps.

        Args:
            budget: bytes of each device, as a number or as a text such as "16GB" or "80 GiB"; by default
                the memory of the device.
            device: plan for this device, as in `fk.plan`.

        Raises:
            TypeError: for a budget that is neither a number nor a text; without budget and device.
            ValueError: for a budget that is not positive, or has an unknown unit; for an unknown device.
            ImportError: without the compiler of the device.

        Example:
            >>> import jax, fkeras as fk
            >>> model = fk.Sequential([fk.Input((64,)), fk.layers.Dense(256), fk.layers.Dense(1)])
            >>> x, y = jax.ShapeDtypeStruct((32, 64), "float32"), jax.ShapeDtypeStruct((32, 1), "float32")
            >>> advice = fk.plan(model, (x, y), fk.Trainer("sgd", "mse")).fit_into("4MB")
            >>> advice.best.remat, advice.best.rows >= 32
            (None, True)
        """
        asked = self._request
        if device is not None:
            asked = asked._replace(trainer=on_device(asked.trainer, device, None))
            check_rows(asked)
            return _planned(asked, self.donate).fit_into(budget)
        if budget is None and not self.device_memory:
            raise TypeError(
                'fit_into: expected a budget or a device. Write plan.fit_into("16GB") or '
                'plan.fit_into(device="v5e").'
            )
        limit = self.device_memory if budget is None else budget_bytes(budget)
        remats = [self.remat, *(each for each in (None, "dots", "full") if each != self.remat)]
        candidates = [_candidate(self, asked, remat, limit) for remat in remats]
        candidates.sort(key=lambda each: each.flops_per_row)
        for count, mesh in self._larger_meshes():
            if any(each.rows >= self.rows for each in candidates):
                break
            if not asked.has_open_rows and self.rows % count:
                break
            split = dataclasses.replace(asked.trainer, mesh=mesh(), sharding=FSDP)
            more = asked._replace(trainer=split)
            candidates.append(_candidate(self, more, self.remat, limit))
        return Advice(limit, self.rows, tuple(candidates))

    def _larger_meshes(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        """Yields numbers of devices, and functions that return their mesh, for a plan of one device."""
        mesh = self._request.trainer.mesh
        if mesh is not None and (mesh.size > 1 or not self.device):
            return
        powers = [2**exponent for exponent in range(1, MOST_DEVICES.bit_length())]
        named = [each for each in slices(self.device) if each.size > 1] if self.device else []
        for chosen in named or [None] * len(powers):
            count = powers.pop(0) if chosen is None else chosen.size
            yield count, functools.partial(mesh_of, {"data": count}, chosen)

    def __str__(self) -> str:
        return tables.plan_text(self)

    def _repr_html_(self) -> str:
        return tables.plan_html(self)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run the step within a budget.

    Attributes:
        remat: the `remat` of the trainer.
        devices: number of devices; each has the budget.
        sharding: the `sharding` of the trainer; "fsdp" splits the weights over the devices.
        rows: the largest batch size that fits, among the powers of two, one and a half times the powers
            of two, and the batch size of the plan; 0 if not even one row fits.
        plan: the plan of this batch size; the plan of one row, if none fits.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> x, y = jax.ShapeDtypeStruct((2, 8), "float32"), jax.ShapeDtypeStruct((2, 4), "float32")
        >>> plan = fk.plan(model, (x, y), fk.Trainer("sgd", "mse"))
        >>> [candidate.remat for candidate in plan.fit_into("1MB").candidates]
        [None, 'dots', 'full']
    """

    remat: Any
    devices: int
    sharding: Any
    rows: int
    plan: Plan

    @property
    def flops_per_row(self) -> float:
        """Floating-point operations of all devices for each row."""
        return self.plan.flops * self.plan.devices / self.plan.rows


@dataclasses.dataclass(frozen=True)
class Advice:
    """Ways to run a step within a budget; `print(advice)` shows them as a table.

    Attributes:
        budget: bytes of the device.
        rows: the batch size of the plan.
        candidates: each with its own plan: first each `remat`, in the order of the operations for each
            row; if none fits the batch of a plan for one device, more devices with split weights.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> x, y = jax.ShapeDtypeStruct((2, 8), "float32"), jax.ShapeDtypeStruct((2, 4), "float32")
        >>> plan = fk.plan(model, (x, y), fk.Trainer("sgd", "mse"))
        >>> plan.fit_into("1KB").best is None, plan.fit_into("1MB").best.remat
        (False, None)
    """

    budget: int
    rows: int
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The first candidate that fits the batch size of the plan, or None."""
        return next((each for each in self.candidates if each.rows >= self.rows), None)

    def __str__(self) -> str:
        return tables.advice_text(self)

    def _repr_html_(self) -> str:
        return tables.advice_html(self)


@explains_arguments
def plan(
    model: Any,
    batch: Any,
    trainer: Any,
    *,
    donate: bool = True,
    mesh: Mapping[str, int] | None = None,
    device: str | None = None,
) -> Plan:
    """Computes the memory and the operations of a training step, without arrays.

    XLA compiles the step for the shapes of its arguments, and reports the memory; no operation runs. With
    `remat`, the plan assumes that the compiler keeps the recomputation, as on GPUs and TPUs; see
    `fk.transforms.remat.compiler_options` for CPUs. A second plan of the same step compiles nothing.

    Args:
        model: a model, built or not, or a run; arrays and shapes are equally good.
        batch: the batch of `trainer.step`, as arrays or as `jax.ShapeDtypeStruct`s.
        trainer: the trainer.
        donate: whether the new run takes the memory of the old run, as in `fit` of a large run.
        mesh: sizes of the axes of a mesh by name, such as `{"data": 2, "model": 8}`, in place of the
            trainer's mesh: a plan for devices that the machine does not have, of which up to 64 are
            simulated.
        device: plan for this device, which the machine need not have, by the device's own compiler: a TPU
            "v2", "v3", "v4", "v5e", "v5p", "v6e" or "tpu7x", one chip as on Colab or a slice such as
            "v5e:2x4" (`pip install "jax[tpu]"`); or a GPU "t4", "l4", "a100", "h100" or "h200", also
            several as "h100:8" (`pip install "jax[cuda12-local]"`). A slice shares the rows over a mesh
            axis "data", unless the trainer or `mesh` has other axes. With a mesh, the name of a chip
            alone means the slice of the mesh's size.

    Returns:
        A `Plan`: bytes and FLOPs by call and in total. `print(plan)` shows a table, and notebooks
        show HTML.

    Raises:
        TypeError: for an argument of another type.
        ValueError: for a batch without rows or with unknown sizes, a mesh without devices or with more
            than 64, weights or rows that the mesh cannot share, and an unknown device.
        ImportError: without the compiler of the device.
        FKerasError: for a model with unknown inputs.
        RuntimeError: for a backend that reports no memory of compiled programs.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((784,)), fk.layers.Dense(10, activation="softmax")])
        >>> batch = np.zeros((32, 784), "float32"), np.zeros(32, "int32")
        >>> plan = fk.plan(model, batch, fk.Trainer("adam", "sparse_categorical_crossentropy"))
        >>> print(plan)
        Plan of a training step on 32 rows...
        Peak memory: ... = arguments 190 KiB + ...

        The same as numbers of bytes, for a batch that does not exist; `plan.fit_into("16GB")` finds which
        batches fit:

        >>> x, y = jax.ShapeDtypeStruct((4096, 784), "float32"), jax.ShapeDtypeStruct((4096,), "int32")
        >>> plan = fk.plan(model, (x, y), fk.Trainer("adam", "sparse_categorical_crossentropy"))
        >>> plan.weights, plan.optimizer, plan.peak > plan.weights
        (31400, 62808, True)
    """
    if not isinstance(donate, bool):
        raise TypeError(f"plan: expected donate as True or False, received {donate!r}.")
    if device is not None and isinstance(trainer, Trainer):
        trainer = on_device(trainer, device, mesh)
    elif mesh is not None:
        devices = mesh_of(mesh)
        if isinstance(trainer, Trainer):
            trainer = dataclasses.replace(trainer, mesh=devices)
    return _planned(request(model, batch, trainer), donate)


def _planned(asked: Request, donate: bool) -> Plan:
    leaves, structure = jax.tree.flatten((asked.run, asked.batch))
    specs = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return _plan(asked.trainer, structure, specs, donate)


# A memo of a pure function of hashable values: compilation takes seconds, and `fit_into` asks again.
@functools.lru_cache(maxsize=64)
def _plan(trainer: Trainer, structure: Any, specs: tuple, donate: bool) -> Plan:
    leaves = [jax.ShapeDtypeStruct(*spec) for spec in specs]
    asked = Request(trainer, *jax.tree.unflatten(structure, leaves))
    step, sizes = compiled(asked, donate), device_bytes(asked)
    program = instructions(step.text)
    stacks, computations = scopes(program), by_computation(program)
    held = [Part(stacks.get(name, ""), size) for name, size in largest(computations)]
    arrived = list(received(computations))
    moved = [Part(stacks.get(each.maker, ""), each.size) for each in arrived]
    times = [(stacks.get(name, ""), number) for name, number in cycles(computations)]
    parts = [(scope, costs * step.share) for scope, costs in costs_by_scope(step.jaxpr)]
    costs, calls = sum((costs for _, costs in parts), Costs()), Calls(asked.executed_model())
    rows = call_rows(
        calls,
        sizes,
        _scaled(held, step.temporary),
        [Part(scope, costs.flops) for scope, costs in parts],
        moved,
        [Part(scope, number or 0) for scope, number in times],
    )
    device = device_of(trainer.mesh)
    skeleton = skeleton_of(asked.run.model)
    flags = zip(skeleton.trainable, leaves_of(sizes.model), strict=True)
    return Plan(
        calls=tuple(CallPlan(*row) for row in rows),
        loops=calls.loops({calls.of_scope(s) for s, _ in parts if "/while/" in f"{s}/"}),
        rows=asked.rows,
        remat=trainer.remat,
        backend=platform_of(trainer.mesh),
        weights=sum(jax.tree.leaves(sizes.model)),
        state=sum(jax.tree.leaves(sizes.state)),
        optimizer=sum(jax.tree.leaves(sizes.opt_state)),
        gradients=sum(size for flag, size in flags if flag and size is not None),
        activations=step.temporary,
        arguments=step.arguments,
        results=step.results,
        flops=costs.flops,
        transcendentals=costs.transcendentals,
        communication=sum(int(size) for _, size in moved),
        devices=asked.devices,
        device=device,
        device_memory=CHIPS[device].memory if device else 0,
        rejected=step.rejected,
        cycles=sum(number or 0 for _, number in times) if times else None,
        without_cycles=tuple(
            dict.fromkeys(
                name for scope, number in times if number is None for name in calls.owners(scope)
            )
        ),
        collectives=_by_kind(arrived),
        unknown=costs.unknown,
        whole_key_heads=whole_key_heads(trainer.mesh, trainer.sharding, asked.run.model),
        donate=donate,
        kernels=tuple(
            # XLA does not divide kernels among devices
            attention_kernels(
                asked.run.model, platform_of(trainer.mesh) if asked.devices == 1 else ""
            )
        ),
        _request=asked,
    )


def _by_kind(arrays: list[Received]) -> tuple[tuple[str, int, int], ...]:
    """Returns for each kind of collective operations the number of operations, and the bytes."""
    operations = {each.operation: each for each in arrays}
    return tuple(
        (
            kind,
            sum(each.times for each in operations.values() if each.kind == kind),
            sum(each.size for each in arrays if each.kind == kind),
        )
        for kind in sorted({each.kind for each in arrays})
    )


def _scaled(parts: list[Part], total: int) -> list[Part]:
    """Returns the parts with a given sum: arrays that share memory overlap in the program's text."""
    found = sum(size for _, size in parts)
    if not found:
        return [Part(BETWEEN, total)]
    return [Part(scope, size * total / found) for scope, size in parts]


def _candidate(plan: Plan, asked: Request, remat: Any, limit: int) -> Candidate:
    own = asked is plan._request and remat == plan.remat
    asked = asked._replace(trainer=dataclasses.replace(asked.trainer, remat=remat))
    plans: dict[int, Plan] = {plan.rows: plan} if own else {}

    def planned(rows: int) -> Plan:
        if rows not in plans:
            plans[rows] = _planned(asked.resized(rows), plan.donate)
        return plans[rows]

    parts = asked.parts
    start = -(-plan.rows // parts) * parts
    is_open = asked.has_open_rows

    def peak(rows: int) -> int:
        one = planned(rows)
        return max(one.peak, limit + 1) if one.rejected else one.peak

    rows = largest_rows(peak, start, limit, is_open, parts)
    shown = planned(rows or (parts if is_open else plan.rows))
    return Candidate(remat, shown.devices, asked.trainer.sharding, rows, shown)

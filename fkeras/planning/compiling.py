"""The training step as XLA compiles it for the devices of a request, present or simulated."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client

from fkeras.authoring.engine import describe_value
from fkeras.authoring.training import batch_entry, sharding, step
from fkeras.authoring.transforms import backend_options
from fkeras.planning.devices import Slice, name_of, slice_of
from fkeras.planning.request import Request
from fkeras.training import Trainer

# more devices need a plan of their own: which weights to split, and how
MOST_DEVICES = 64

# the code of the kernels changes no memory, and takes about half of the time of small programs
_LOW_EFFORT = MappingProxyType(
    {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)

# the compiler of TPUs rejects a program that needs more memory than the device has
_NEEDED = re.compile(r"(?:HLO temporaries \(|Used )([\d.]+)([KMGT]?)(?:\)| of [\d.]+[KMGT]? hbm)")
_FACTORS = MappingProxyType({"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40})


class CompiledStep(NamedTuple):
    """A compiled training step.

    Attributes:
        jaxpr: the step before compilation, for all devices.
        arguments: bytes of the arguments.
        results: bytes of the results that do not take the memory of an argument.
        temporary: largest number of bytes of intermediate arrays.
        text: the text of the program; "" for a backend that shows none, and for a rejected program.
        share: the part of the operations that one device computes.
        rejected: whether the compiler rejected the program, which needs more memory than the device has.
    """

    jaxpr: Any
    arguments: int
    results: int
    temporary: int
    text: str
    share: float
    rejected: bool = False


def check_sizes(sizes: Mapping[str, int]) -> int:
    """Returns the number of devices of a mesh by its sizes.

    Raises:
        TypeError: for anything but a dictionary of names and numbers.
        ValueError: for no axis, and for sizes below 1.
    """
    expected = 'expected mesh as sizes by axis name, such as {"data": 2, "model": 8}'
    if not isinstance(sizes, Mapping) or not all(
        isinstance(name, str) and isinstance(size, int) and not isinstance(size, bool)
        for name, size in sizes.items()
    ):
        hint = (
            " A mesh of devices belongs into Trainer(mesh=...)." if hasattr(sizes, "shape") else ""
        )
        raise TypeError(f"plan: {expected}, received {describe_value(sizes)}.{hint}")
    if not sizes or min(sizes.values()) < 1:
        raise ValueError(
            f"plan: {expected}, received {dict(sizes)}. Each axis has at least 1 device."
        )
    return math.prod(sizes.values())


def mesh_of(sizes: Mapping[str, int], chosen: Slice | None = None) -> Mesh:
    """Returns a mesh from its sizes by axis name: of simulated CPUs, if there are not enough devices.

    Args:
        chosen: the described devices of the mesh.

    Raises:
        TypeError: for anything but a dictionary of names and numbers.
        ValueError: for no axis, for sizes below 1, and for more devices than `MOST_DEVICES`.
        ImportError: without the compiler of described devices.
    """
    count = check_sizes(sizes)
    if chosen is not None:
        # in the order in which the connections of the devices are shortest, as on the devices
        return jax.make_mesh(tuple(sizes.values()), tuple(sizes), devices=chosen.devices())
    if count > max(MOST_DEVICES, jax.device_count()):
        raise ValueError(
            f"plan: received mesh={dict(sizes)} with {count} devices. At most {MOST_DEVICES} devices "
            "are simulated: use a smaller axis of the rows, and a batch that is as much smaller."
        )
    devices = jax.devices() if count <= jax.device_count() else _simulated_devices()
    return Mesh(np.array(devices[:count]).reshape(*sizes.values()), tuple(sizes))


# Cached: starting a client takes time, and the arrays of no step are ever on these devices.
@functools.lru_cache(maxsize=1)
def _simulated_devices() -> Sequence[Any]:
    return xla_client.make_cpu_client(num_devices=MOST_DEVICES).devices()


def on_device(trainer: Trainer, device: str, sizes: Mapping[str, int] | None) -> Trainer:
    """Returns a trainer with a mesh of devices that only their names describe.

    Args:
        device: a name such as "v5e:2x4".
        sizes: sizes of the mesh by axis name; None for those of the trainer's mesh, or one axis "data".
    """
    if sizes is None and trainer.mesh is not None:
        sizes = trainer.mesh.shape
    chosen = slice_of(device, None if sizes is None else check_sizes(sizes))
    mesh = mesh_of({"data": chosen.size} if sizes is None else sizes, chosen)
    return dataclasses.replace(trainer, mesh=mesh)


def device_of(mesh: Mesh | None) -> str:
    """Returns the name in `CHIPS` of the devices of a mesh, or of the default device; "" if unknown."""
    return name_of((jax.devices() if mesh is None else mesh.devices.flat)[0].device_kind)


def platform_of(mesh: Mesh | None) -> str:
    """Returns JAX's name of the backend of a mesh, or of the default backend."""
    return jax.default_backend() if mesh is None else mesh.devices.flat[0].platform


def compiled(asked: Request, donate: bool) -> CompiledStep:
    """Returns the compiled step of a request.

    Without donation and rematerialization, `trainer.step` and `fk.profile` use the same compiled program.

    Raises:
        RuntimeError: for a backend that reports no memory.
    """
    trainer, platform = asked.trainer, platform_of(asked.trainer.mesh)
    options: dict[str, Any] = dict(backend_options(platform)) if trainer.remat is not None else {}
    if platform == "cpu" and (donate or options):
        options.update(_LOW_EFFORT)
    function = step.donating_step if donate else step.compiled_step
    arguments = _placed(asked)
    form = step.training_form(trainer)
    traced = function.suited(platform, form, *arguments).trace(form, *arguments)
    lowered = traced.lower()
    try:
        program = lowered.compile(compiler_options=options or None)
    except jax.errors.JaxRuntimeError as error:
        needed = _NEEDED.search(str(error))
        if platform == "cpu" or not needed or "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _rejected(traced.jaxpr.jaxpr, asked, arguments, donate, needed)
    memory = program.memory_analysis()
    if memory is None:
        raise RuntimeError(
            f"plan: the backend {platform!r} reports no memory of compiled programs. "
            'Plan for CPUs: start Python with JAX_PLATFORMS="cpu".'
        )
    return CompiledStep(
        traced.jaxpr.jaxpr,
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        program.as_text() or "",
        _share(program, lowered, asked.devices),
    )


def _rejected(
    jaxpr: Any, asked: Request, arguments: tuple[Any, Any], donate: bool, needed: re.Match
) -> CompiledStep:
    """Returns a step that the compiler rejects, with the memory of the compiler's report."""
    run, batch = (sum(_shard_bytes(leaf) for leaf in jax.tree.leaves(tree)) for tree in arguments)
    results = 0 if donate else run
    rest = int(float(needed[1]) * _FACTORS[needed[2]]) - run - batch - results
    return CompiledStep(jaxpr, run + batch, results, max(rest, 0), "", 1 / asked.devices, True)


def _shard_bytes(leaf: Any) -> int:
    """Returns the bytes of an array's part on one device."""
    shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shape) * leaf.dtype.itemsize


def _share(program: Any, lowered: Any, devices: int) -> float:
    """Returns the part of the operations that one device computes, by XLA's counts of both programs."""
    if devices == 1:
        return 1.0
    part, whole = ((each.cost_analysis() or {}).get("flops") for each in (program, lowered))
    # without a device, JAX does not count the operations of a program before compilation
    return part / whole if part and whole else 1 / devices


def _placed(asked: Request) -> tuple[Any, Any]:
    """Returns the shapes of the run and the batch with the layouts of the trainer's mesh."""
    mesh, rows = asked.trainer.mesh, asked.rows
    if mesh is None:
        return asked.run, asked.batch
    split = NamedSharding(mesh, PartitionSpec(batch_entry(mesh, asked.trainer.sharding)))
    whole = NamedSharding(mesh, PartitionSpec())

    def placed(leaf: Any, layout: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout)

    run = jax.tree.map(placed, asked.run, sharding.layouts(asked.trainer, asked.run))
    batch = jax.tree.map(
        lambda leaf: placed(leaf, split if leaf.shape[:1] == (rows,) else whole), asked.batch
    )
    return run, batch

"""The training step as XLA compiles it for the devices of a request, present or simulated."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client

from fkeras.engine.messages.errors import describe_value
from fkeras.planning.request import Request
from fkeras.training.step import sharding, step
from fkeras.training.step.sharding_rules import batch_entry
from fkeras.transforms.remat import backend_options

# more devices need a plan of their own: which weights to split, and how
MOST_DEVICES = 64

# the code of the kernels changes no memory, and takes about half of the time of small programs
_LOW_EFFORT = MappingProxyType(
    {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)


class CompiledStep(NamedTuple):
    """A compiled training step.

    Attributes:
        jaxpr: the step before compilation, for all devices.
        arguments: bytes of the arguments.
        results: bytes of the results that do not take the memory of an argument.
        temporary: largest number of bytes of intermediate arrays.
        text: the text of the program; "" for a backend that shows none.
        share: the part of the operations that one device computes.
    """

    jaxpr: Any
    arguments: int
    results: int
    temporary: int
    text: str
    share: float


def mesh_of(sizes: Mapping[str, int]) -> Mesh:
    """Returns a mesh from its sizes by axis name: of simulated CPUs, if there are not enough devices.

    Raises:
        TypeError: for anything but a dictionary of names and numbers.
        ValueError: for no axis, for sizes below 1, and for more devices than `MOST_DEVICES`.
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
    count = math.prod(sizes.values())
    if not sizes or min(sizes.values()) < 1:
        raise ValueError(
            f"plan: {expected}, received {dict(sizes)}. Each axis has at least 1 device."
        )
    if count > max(MOST_DEVICES, jax.device_count()):
        raise ValueError(
            f"plan: {expected}, received {dict(sizes)} with {count} devices. At most {MOST_DEVICES} "
            "devices are simulated: use a smaller axis of the rows, and a batch that is as much smaller."
        )
    devices = jax.devices() if count <= jax.device_count() else _simulated_devices()
    return Mesh(np.array(devices[:count]).reshape(*sizes.values()), tuple(sizes))


# Cached: starting a client takes time, and the arrays of no step are ever on these devices.
@functools.lru_cache(maxsize=1)
def _simulated_devices() -> Sequence[Any]:
    return xla_client.make_cpu_client(num_devices=MOST_DEVICES).devices()


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
    traced = function.trace(step.training_form(trainer), *_placed(asked))
    lowered = traced.lower()
    program = lowered.compile(compiler_options=options or None)
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
        1.0 if asked.devices == 1 else _flops(program) / _flops(lowered),
    )


def _flops(program: Any) -> float:
    """Returns XLA's count of operations, in which a loop counts once."""
    costs = program.cost_analysis() or {}
    return costs.get("flops") or 1.0


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

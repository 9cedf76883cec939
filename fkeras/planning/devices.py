"""Devices by name, such as "v5e:2x4", whose compilers run without the device."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import jax
from jax.experimental import topologies

from fkeras.authoring.engine import describe_value
from fkeras.engine import suggest

_NAME = re.compile(r"([a-z0-9]+)(?::(\d{1,4}(?:x\d{1,4}){0,2}))?")
_MOST_DEVICES = 9216


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of TPUs or GPUs.

    Attributes:
        kind: JAX's name of the device.
        memory: bytes of each device of JAX.
        devices: number of JAX's devices on a chip.
        clock: cycles in a second; 0 if no document states the number.
        axes: number of axes of a topology: 2 for a torus of two axes, 1 for GPUs in a row.
        options: options of the compiler's topology.
        card: fields of XLA's description of a GPU.
    """

    kind: str
    memory: int
    devices: int = 1
    clock: float = 0.0
    axes: int = 2
    options: tuple[tuple[str, str], ...] = ()
    card: tuple[tuple[str, str], ...] = ()

    @property
    def platform(self) -> str:
        """JAX's name of the plugin with the compiler."""
        return "cuda" if self.card else "tpu"


def _gpu(
    name: str,
    capability: tuple[int, int],
    memory: int,
    bandwidth: float,
    clock: str,
    cores: tuple[int, int, int],
    cache: tuple[int, int, int],
) -> Chip:
    """Returns a GPU.

    Args:
        cores: multiprocessors, and FP32 units and threads of each.
        cache: bytes of the L2 cache, of shared memory of a multiprocessor, and of a block.
    """
    device = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": cache[1],
        "threads_per_core_limit": cores[2],
        "core_count": cores[0],
        "fpus_per_core": cores[1],
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": round(bandwidth),
        "l2_cache_size": cache[0],
        "clock_rate_ghz": clock,
        "device_memory_size": memory,
        "shared_memory_per_block_optin": cache[2],
        "cuda_compute_capability": f"{{ major: {capability[0]} minor: {capability[1]} }}",
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "device_vendor": '"NVIDIA Corporation"',
        "platform_version": f'"Compute Capability {capability[0]}.{capability[1]}"',
        "model_str": f'"sm_{capability[0]}.{capability[1]}"',
        "device_address_bits": 64,
        "ecc_enabled": "true",
        "name": f'"{name}"',
        "driver_version": '"12.8.0"',
        "runtime_version": '"12.8.0"',
        "compile_time_toolkit_version": '"12.8.0"',
    }
    return Chip(
        name, memory, axes=1, card=tuple((key, str(value)) for key, value in device.items())
    )


_GIB = 2**30
# Memory: Google's documentation of Cloud TPU, where one chip of v2, v3 and TPU7x has two devices. Clocks:
# v2 and v3 of "A domain-specific supercomputer for training deep neural networks" (2020), v4 of
# "TPU v4" (2023); v5e and v5p follow from the documented peak of bfloat16 and the number of the 128 x
# 128 matrix units: 197e12 / (4 * 2 * 128**2) and 459e12 / (8 * 2 * 128**2). The documents of v6e and
# TPU7x determine no clock.
CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        "v2": Chip("TPU v2", 8 * _GIB, 2, 0.70e9),
        "v3": Chip("TPU v3", 16 * _GIB, 2, 0.94e9),
        "v4": Chip("TPU v4", 32 * _GIB, 1, 1.05e9, 3, (("chip_config_name", "megacore"),)),
        "v5e": Chip("TPU v5 lite", 16 * _GIB, 1, 1.50e9),
        "v5p": Chip("TPU v5", 95 * _GIB, 1, 1.75e9, 3),
        "v6e": Chip("TPU v6 lite", 32 * _GIB),
        "tpu7x": Chip("TPU7x", 96 * _GIB, 2, 0.0, 3),
        # memory as CUDA reports the sizes; other numbers of NVIDIA's data sheets
        "t4": _gpu(
            "Tesla T4",
            (7, 5),
            15_828_320_256,
            320e9,
            "1.59",
            (40, 64, 1024),
            (4 * 2**20, 65536, 65536),
        ),
        "l4": _gpu(
            "NVIDIA L4",
            (8, 9),
            23_804_000_000,
            300e9,
            "2.04",
            (58, 128, 1536),
            (48 * 2**20, 102400, 101376),
        ),
        "a100": _gpu(
            "NVIDIA A100-SXM4-40GB",
            (8, 0),
            42_331_013_120,
            1555.2e9,
            "1.41",
            (108, 64, 2048),
            (40 * 2**20, 167936, 166912),
        ),
        "h100": _gpu(
            "NVIDIA H100 80GB HBM3",
            (9, 0),
            84_942_979_072,
            3352.3e9,
            "1.98",
            (132, 128, 2048),
            (50 * 2**20, 233472, 232448),
        ),
        "h200": _gpu(
            "NVIDIA H200",
            (9, 0),
            151_397_597_184,
            4800e9,
            "1.98",
            (132, 128, 2048),
            (50 * 2**20, 233472, 232448),
        ),
    }
)
# the sizes that Google rents; GPUs in one machine
_SLICES = MappingProxyType(
    {
        1: ("1", "2", "4", "8"),
        2: ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
        3: ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8"),
    }
)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips that a step runs on.

    Attributes:
        name: the name of the chip.
        topology: the number of chips along each axis, such as "2x4".
    """

    name: str
    topology: str

    def __str__(self) -> str:
        return f"{self.name}:{self.topology}"

    @property
    def chip(self) -> Chip:
        """The chip."""
        return CHIPS[self.name]

    @property
    def size(self) -> int:
        """Number of JAX's devices."""
        return math.prod(map(int, self.topology.split("x"))) * self.chip.devices

    def devices(self) -> list[Any]:
        """Returns descriptions of the devices, for which their compiler compiles.

        Raises:
            ImportError: without the compiler.
            ValueError: for a topology that the compiler rejects.
        """
        require_compiler(self.name)
        try:
            return _devices(self)
        except jax.errors.JaxRuntimeError as error:
            problem = str(error).splitlines()[0]
            raise ValueError(
                f"plan: the compiler rejects device={str(self)!r}: {problem}. Known sizes: "
                f"{', '.join(_SLICES[self.chip.axes])}."
            ) from None


def slice_of(device: Any, size: int | None = None) -> Slice:
    """Returns the slice with a name, such as "v5e", "v5e:2x4" or "h100:8".

    Args:
        size: number of devices; for a name without a topology, the slice has one chip by default.

    Raises:
        TypeError: for anything but a text.
        ValueError: for an unknown name, and for a name that contradicts the number of devices.
    """
    expected = 'expected device as a name such as "v5e", "v5e:2x4" or "h100:8"'
    if not isinstance(device, str):
        raise TypeError(f"plan: {expected}, received {describe_value(device)}.")
    match = _NAME.fullmatch(device.lower())
    name = match[1] if match else device.lower().partition(":")[0]
    if match is None or name not in CHIPS:
        raise ValueError(
            f"plan: {expected}, received {device!r}.{suggest(name, CHIPS)} Known names: "
            f"{', '.join(CHIPS)}."
        )
    chip = CHIPS[name]
    if match[2] is None:
        sizes = [each for each in slices(name) if each.size == (size or each.size)]
        if not sizes:
            known = ", ".join(str(each.size) for each in slices(name))
            raise ValueError(
                f"plan: device={device!r} and a mesh of {size} devices: known numbers of devices are "
                f'{known}. Name the chips along each axis, such as "{slices(name)[-1]}".'
            )
        return sizes[0]
    found = Slice(name, match[2])
    axes = [int(part) for part in match[2].split("x")]
    if len(axes) != chip.axes or not 1 <= math.prod(axes) * chip.devices <= _MOST_DEVICES:
        raise ValueError(
            f"plan: expected the chips of {name!r} along {chip.axes} "
            f"{'axes' if chip.axes > 1 else 'axis'}, such as {str(slices(name)[-1])!r}, received "
            f"{device!r}."
        )
    if size is not None and found.size != size:
        raise ValueError(
            f"plan: device={device!r} has {found.size} devices, the mesh has {size}. Give a mesh of "
            f'{found.size} devices, such as mesh={{"data": {found.size}}}, or device={name!r}.'
        )
    return found


def name_of(kind: str) -> str:
    """Returns the name of a chip by JAX's name of the device; "" for an unknown device."""
    return next((name for name, chip in CHIPS.items() if chip.kind == kind), "")


def slices(name: str) -> list[Slice]:
    """Returns the slices of a chip that a plan may choose, by increasing number of devices."""
    return [Slice(name, topology) for topology in _SLICES[CHIPS[name].axes]]


def require_compiler(name: str) -> None:
    """Raises an `ImportError` that names the package if the compiler of a chip is missing."""
    if CHIPS[name].platform == "tpu":
        if importlib.util.find_spec("libtpu") is None:
            raise ImportError(
                f"plan: device={name!r} needs the compiler of TPUs, the package libtpu, which is "
                'missing. It runs on Linux without a TPU: pip install "jax[tpu]".'
            )
    elif _cuda_plugin() is None:
        raise ImportError(
            f"plan: device={name!r} needs JAX's compiler for GPUs, the packages jax-cuda12-plugin and "
            "jax-cuda12-pjrt of the version of jax, which are missing. They run on Linux without a "
            'GPU and without CUDA: pip install "jax[cuda12-local]".'
        )


def _cuda_plugin() -> Any:
    if importlib.util.find_spec("jax_plugins") is None:
        return None
    names = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
    return next((name for name in names if importlib.util.find_spec(name)), None)


# Cached: meshes of the same description must be equal, and the compiler starts once.
@functools.lru_cache(maxsize=32)
def _devices(chosen: Slice) -> list[Any]:
    chip = chosen.chip
    if chip.card:
        text = "\n".join(f"{key}: {value}".replace(": {", " {") for key, value in chip.card)
        target = (
            f'gpu_device_info {{\n{text}\n}}\nplatform_name: "CUDA"\n'
            f"dnn_version_info {{ major: 9 minor: 10 patch: 0 }}\n"
            f"device_description_str: {dict(chip.card)['name']}\n"
        )
        return list(
            topologies.get_topology_desc(
                platform="cuda", target_config=target, topology=f"1x1x{chosen.topology}"
            ).devices
        )
    options: dict[str, Any] = dict(chip.options)
    if set(chosen.topology) <= {"1", "x"}:
        options["chips_per_host_bounds"] = (1, 1, 1)
    with _without_hosts():
        return list(
            topologies.get_topology_desc(
                platform="tpu", topology_name=str(chosen), **options
            ).devices
        )


@contextlib.contextmanager
def _without_hosts() -> Iterator[None]:
    """Starts the compiler of TPUs as on a machine without TPUs, if the machine has none.

    Otherwise the compiler asks Google's metadata server for the machine's TPUs, reports the missing
    answer on stderr, and allows one process at a time.
    """
    settings = {
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-1",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    if jax.default_backend() == "tpu":
        settings = {}
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]

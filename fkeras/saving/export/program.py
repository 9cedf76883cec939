"""Traces, checks, lowers and writes functions as `jax.export` artifacts.

`jax.export.deserialize` reads the artifact. A second file, `<path>.json`, describes the artifact:
names of inputs and outputs, which the artifact does not contain, and the digest of the artifact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.export

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine import FKerasError, suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.argument_types import FilePath
from fkeras.saving.tracing.trace import trace

PLATFORMS = ("cpu", "cuda", "tpu")
#: the lowest and the default version of ONNX's operators
OPSET = 17
_KNOWN = ("cpu", "cuda", "rocm", "tpu")


def check_platforms(platforms: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of platforms as a tuple."""
    names = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    # the empty string makes an empty sequence an error too
    for name in names or ("",):
        if name not in _KNOWN:
            hint = " Did you mean 'cuda'?" if name == "gpu" else suggest(str(name), _KNOWN)
            raise ValueError(
                f"export: expected platforms among {', '.join(_KNOWN)}, received {name!r}.{hint}"
            )
    return names


def lower(
    where: str, function: Callable, args: tuple, kwargs: Mapping[str, Any], platforms: tuple
) -> jax.export.Exported:
    """Lowers a function on specs for several platforms."""
    # traced separately for errors that name the layer; jax.export reports primitives
    trace(where, function, args, kwargs)
    try:
        return jax.export.export(jax.jit(function), platforms=platforms)(*args, **kwargs)
    except (ValueError, NotImplementedError) as error:
        raise FKerasError(
            f"export, {where}: cannot be lowered for {', '.join(platforms)}: "
            f"{str(error).splitlines()[0]} Export it for fewer platforms, platforms=('cpu',), or "
            "without the unsupported layer."
        ) from error


def describe(specs: Sequence[Any], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Describes arrays as JSON data: name, shape (strings for unknown sizes) and dtype.

    Args:
        names: name of each array; None for consecutive numbers.

    Example:
        >>> import jax
        >>> describe([jax.ShapeDtypeStruct((2, 3), "float32")], ["x"])
        [{'name': 'x', 'shape': [2, 3], 'dtype': 'float32'}]
    """
    names = [str(i) for i in range(len(specs))] if names is None else names
    return [
        {
            "name": name,
            "shape": [d if isinstance(d, int) else str(d) for d in spec.shape],
            "dtype": str(spec.dtype),
        }
        for name, spec in zip(names, specs, strict=True)
    ]


def write(path: FilePath, exported: jax.export.Exported, about: Mapping[str, Any]) -> None:
    """Writes an artifact to `path`, and the description to `<path>.json`."""
    try:
        data = exported.serialize()
    except ImportError as error:
        raise missing_package("export", "flatbuffers", error) from error
    path = as_path(path)
    description = {
        "format": "fkeras program",
        "version": 1,
        "jax": jax.__version__,
        "platforms": list(exported.platforms),
        "calling_convention_version": exported.calling_convention_version,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        **about,
    }
    # each file is replaced atomically, but not both at once: the digest in the description shows
    # whether the two files belong together
    with replacing(path) as file:
        file.write(data)
    with replacing(f"{path}.json") as file:
        file.write(json.dumps(description, indent=2).encode() + b"\n")

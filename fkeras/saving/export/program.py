"""Traces, checks, lowers and writes functions as `jax.export` artifacts.

`jax.export.deserialize` reads the artifact. A second file, `<path>.json`, describes the artifact:
names of inputs and outputs, which the artifact does not contain, and the digest of the artifact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.export
from jax import core, errors

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine import FKerasError, suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.argument_types import FilePath

PLATFORMS = ("cpu", "cuda", "tpu")
_KNOWN = ("cpu", "cuda", "rocm", "tpu")
# primitives that call Python on the host: an artifact cannot contain Python functions
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print")


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


def trace(where: str, function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Traces a function on specs, and rejects calls to the host.

    Args:
        args: arguments of the function, with `jax.ShapeDtypeStruct`s for arrays.
        kwargs: keyword arguments of the function, with `jax.ShapeDtypeStruct`s for arrays.
    """
    # the supported versions of JAX define this class in jax.core or in jax.errors
    module = errors if hasattr(errors, "InconclusiveDimensionOperation") else core
    inconclusive: type[Exception] = getattr(module, "InconclusiveDimensionOperation")  # noqa: B009
    try:
        traced = jax.jit(function).trace(*args, **kwargs)
    except inconclusive as error:
        raise FKerasError(
            f"export, {where}: a layer depends on an unknown size: "
            f"{str(error).splitlines()[0]} Constrain the size, constraints=('d1 >= 8',), or fix it, "
            "shapes=(None, 16, 8)."
        ) from error
    for name, layer in _callbacks(traced.jaxpr, ""):
        raise FKerasError(
            f"export, {where}: layer {layer!r} calls back to Python ({name}), and a file cannot "
            "hold Python functions. Export the model without that layer and do its work before "
            "the call, or write it with jax.numpy.",
            layer=layer,
        )
    return traced


def _callbacks(program: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields `(primitive, layer path)` for each call to the host in a traced program."""
    program = getattr(program, "jaxpr", program)
    for equation in getattr(program, "eqns", ()):
        # layers open named scopes, so the name stack is the path of the layer
        layer_path = "/".join(p for p in (path, str(equation.source_info.name_stack)) if p)
        if equation.primitive.name in _CALLBACKS:
            yield equation.primitive.name, layer_path
        # control flow and jit keep their nested programs among the parameters
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                yield from _callbacks(part, layer_path)


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

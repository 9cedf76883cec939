"""Functions as `jax.export` artifacts: traced, checked, lowered for platforms, written.

The artifact is a file that `jax.export.deserialize` reads. A second file, `<path>.json`, describes
the artifact: names that the artifact does not hold, and the digest of the artifact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.export
from jax import core, errors

from fkeras.engine import FKerasError, suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.files.atomic import as_path, replacing

PLATFORMS = ("cpu", "cuda", "tpu")
_KNOWN = ("cpu", "cuda", "rocm", "tpu")
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print")


def check_platforms(platforms: Any) -> tuple[str, ...]:
    """The names of platforms as a tuple.

    Raises:
        ValueError: for a name that JAX does not know.
    """
    names = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    for name in names or ("",):
        if name not in _KNOWN:
            hint = " Did you mean 'cuda'?" if name == "gpu" else suggest(str(name), _KNOWN)
            raise ValueError(
                f"export: expected platforms among {', '.join(_KNOWN)}, received {name!r}.{hint}"
            )
    return names


def trace(where: str, function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """The trace of a function on specs, where nothing in it needs the host.

    Args:
        where: who is exported, for messages.
        function: a function of arrays.
        args: its arguments, with `jax.ShapeDtypeStruct`s for arrays.
        kwargs: its keyword arguments likewise.

    Raises:
        FKerasError: where a layer calls back to Python, or depends on an unknown size.
    """
    # the class moved to jax.errors between the versions of JAX that are supported
    home = errors if hasattr(errors, "InconclusiveDimensionOperation") else core
    inconclusive: type[Exception] = getattr(home, "InconclusiveDimensionOperation")  # noqa: B009
    try:
        traced = jax.jit(function).trace(*args, **kwargs)
    except inconclusive as error:
        raise FKerasError(
            f"export, {where}: a layer decides by a size that is unknown: "
            f"{str(error).splitlines()[0]} Say what is known of it, constraints=('d1 >= 8',), or "
            "fix the size, shapes=(None, 16, 8)."
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
    """`(primitive, layer path)` for each call to the host in a traced program."""
    program = getattr(program, "jaxpr", program)
    for equation in getattr(program, "eqns", ()):
        inner = "/".join(p for p in (path, str(equation.source_info.name_stack)) if p)
        if equation.primitive.name in _CALLBACKS:
            yield equation.primitive.name, inner
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                yield from _callbacks(part, inner)


def lower(
    where: str, function: Callable, args: tuple, kwargs: Mapping[str, Any], platforms: tuple
) -> jax.export.Exported:
    """The exported form of a function on specs.

    Args:
        where: who is exported, for messages.
        function: a function of arrays.
        args: its arguments, with `jax.ShapeDtypeStruct`s for arrays.
        kwargs: its keyword arguments likewise.
        platforms: the names of the platforms.

    Raises:
        FKerasError: where a layer calls back to Python, or depends on an unknown size, or cannot
            be computed on one of the platforms.
    """
    trace(where, function, args, kwargs)
    try:
        return jax.export.export(jax.jit(function), platforms=platforms)(*args, **kwargs)
    except (ValueError, NotImplementedError) as error:
        raise FKerasError(
            f"export, {where}: cannot be lowered for {', '.join(platforms)}: "
            f"{str(error).splitlines()[0]} Export it for fewer platforms, platforms=('cpu',), or "
            "without the layer that is at fault."
        ) from error


def describe(specs: Sequence[Any], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Arrays as JSON data: name, shape (words for unknown sizes) and dtype of each.

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


def write(path: Any, exported: jax.export.Exported, about: Mapping[str, Any]) -> None:
    """Writes an artifact, and its description beside it.

    Args:
        path: the file; its folder is made.
        exported: the artifact.
        about: what the description says of the function.

    Raises:
        ImportError: without the package flatbuffers, which JAX writes and reads artifacts with.
        OSError: where a file cannot be written.
    """
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
    with replacing(path) as file:
        file.write(data)
    with replacing(f"{path}.json") as file:
        file.write(json.dumps(description, indent=2).encode() + b"\n")

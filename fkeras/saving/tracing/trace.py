"""`trace`: traces a function, and rejects calls that a file cannot hold; `uses_key`: whether a program draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from fkeras.engine import FKerasError
from fkeras.engine.values.dimensions import Inconclusive

# primitives that call Python on the host: a file cannot contain Python functions
_CALLBACKS = ("pure_callback", "io_callback", "debug_callback", "debug_print")


def trace(where: str, function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Traces a function on specs, and rejects calls to the host.

    Args:
        args: arguments of the function, with `jax.ShapeDtypeStruct`s for arrays.
        kwargs: keyword arguments of the function, with `jax.ShapeDtypeStruct`s for arrays.
    """
    try:
        traced = jax.jit(function).trace(*args, **kwargs)
    except Inconclusive as error:
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


def uses_key(traced: jax.stages.Traced) -> bool:
    """Returns whether the results of a traced program depend on its PRNG key."""
    # layers also derive keys for inner calls that draw nothing: a result does not depend on these keys
    jaxpr = traced.jaxpr.jaxpr
    _, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    keys = [jax.numpy.issubdtype(v.aval.dtype, jax.dtypes.prng_key) for v in jaxpr.invars]
    return any(a and b for a, b in zip(keys, used, strict=True))


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

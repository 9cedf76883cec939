"""Unknown sizes of a program's inputs that are multiples of a number, such as "8*d1" of a U-Net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fkeras.engine import FKerasError
from fkeras.engine.values.dimensions import WORD, Inconclusive
from fkeras.engine.values.spec import Spec, name_axis

# six levels of pooling by 2, or three by 4
_MULTIPLES = (2, 4, 8, 16, 32, 64)


def with_multiples(where: str, specs: Any, write: Callable[[Any], Any]) -> Any:
    """Returns `write(specs)`, with unknown sizes as multiples of the smallest sufficient power of 2.

    A program of unknown sizes must prove its shapes. JAX cannot prove that the pooled and upsampled
    axis `2*floordiv(d1, 2)` has the size `d1`; for a size `2*d1` JAX can.

    Args:
        where: the model, for messages.
        specs: a tree of specs.
        write: raises TypeError, ValueError or NotImplementedError for sizes without a proof.

    Raises:
        FKerasError: if no multiple has a proof.
    """
    leaves = jax.tree.leaves(specs, is_leaf=_is_spec)
    dims = {dim for spec in leaves for dim in spec.dims if isinstance(dim, str)}
    # expressions are the caller's choice: their words stay unchanged
    words = {dim for dim in dims if dim.isidentifier()} - {name_axis(0)}
    words -= {word for dim in dims if not dim.isidentifier() for word in WORD.findall(dim)}
    try:
        return write(specs)
    except (TypeError, ValueError, NotImplementedError) as error:
        # a layer that compares sizes may compute other results for multiples: the caller decides
        if any(isinstance(e, Inconclusive) for e in (error, error.__cause__)):
            raise
        for multiple in _MULTIPLES if words else ():
            names = {word: f"{multiple}*{word}" for word in words}
            multiples = jax.tree.map(
                lambda spec, names=names: Spec(
                    tuple(names.get(dim, dim) for dim in spec.dims), spec.dtype
                ),
                specs,
                is_leaf=_is_spec,
            )
            try:
                return write(multiples)
            except (TypeError, ValueError, NotImplementedError):
                continue
        if isinstance(error, FKerasError) or not words:
            raise
        raise FKerasError(
            f"export, {where}: the program does not fit every size of the unknown axes: "
            f"{str(error).splitlines()[0]} Give the sizes or their relation, such as "
            "shapes=(None, 16, 8) or shapes=[(None, 't', 8), (None, '2*t', 8)]."
        ) from error


def _is_spec(value: object) -> bool:
    return isinstance(value, Spec)

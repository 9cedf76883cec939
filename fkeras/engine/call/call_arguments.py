"""Arguments of a recorded call, with values in place of the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fkeras.engine.values import structure
from fkeras.engine.values.frozen import ArrayConstant
from fkeras.engine.values.structure import Ref


def fill_arrays(template: Any, tensors: Any) -> Any:
    """The arguments with arrays in place of the references; constants become JAX arrays."""
    return _fill(template, tensors, jnp.asarray)


def fill_tensors(template: Any, tensors: Any) -> Any:
    """The arguments with symbolic tensors in place of the references; constants stay unchanged."""
    return _fill(template, tensors, lambda array: array)


def _fill(template: Any, tensors: Any, constant: Callable[[Any], Any]) -> Any:
    def leaf(value: Any) -> Any:
        if isinstance(value, Ref):
            return tensors[value.index]
        return constant(value.array) if isinstance(value, ArrayConstant) else value

    return structure.thaw(template, leaf)

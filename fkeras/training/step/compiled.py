"""Jitted training functions; on CPUs their intermediate memory stays in the process between calls."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import jax

from fkeras.programs.walk import all_equations

#: bytes of a block of intermediate memory on CPUs
_BLOCK_BYTES = 24 * 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """A jitted function, and the same function with its intermediate memory in small blocks.

    XLA allocates the intermediate arrays of a program as one block, at each call. glibc returns blocks of
    more than 32 MiB to the system, and the first write to each page of a new block is slow: a fifth of the
    time of a training step of a small ConvNet. Small blocks stay in the process. XLA warns of arrays that
    are larger than the blocks, so programs with such arrays have one block. So do programs that JAX stores in
    its compilation cache: XLA writes no program with several blocks.
    """

    by_default: jax.stages.Wrapped
    in_blocks: jax.stages.Wrapped

    def __call__(self, key: Hashable, *arguments: Any) -> Any:
        """Calls the variant for the default backend and for the arguments.

        Args:
            key: equal for arguments of equal shapes. The first call with a key traces the function to choose.
        """
        choice = _choice_of(self, key, _is_stored())
        if choice.function is None:
            choice.function = self.suited(jax.default_backend(), *arguments)
        try:
            return choice.function(*arguments)
        except ValueError as error:
            # inside of a transformation, XLA takes the options of the outer program alone
            if choice.function is self.by_default or "top-level" not in str(error):
                raise
        return self.by_default(*arguments)

    def suited(self, platform: str, *arguments: Any) -> jax.stages.Wrapped:
        """Returns the variant for a platform ("cpu", "gpu", "tpu") and for arguments or their shapes."""
        if platform != "cpu" or _is_stored():
            return self.by_default
        program = self.by_default.trace(*arguments).jaxpr
        return self.in_blocks if _largest_array(program) <= _BLOCK_BYTES else self.by_default


@dataclasses.dataclass(eq=False)
class _Choice:
    function: jax.stages.Wrapped | None = None


# Cached: the first call with a key chooses the function for all calls with this key.
@functools.lru_cache(maxsize=256)
def _choice_of(compiled: Compiled, key: Hashable, is_stored: bool) -> _Choice:
    return _Choice()


def _is_stored() -> bool:
    """Returns whether JAX stores compiled programs in a folder."""
    config: Any = jax.config  # JAX declares its flags at run time
    return bool(config.jax_compilation_cache_dir and config.jax_enable_compilation_cache)


def compiled(function: Callable[..., Any], **options: Any) -> Compiled:
    """Returns both variants of `jax.jit(function, **options)`."""
    blocks = {"xla_multiheap_size_constraint_per_heap": str(_BLOCK_BYTES)}
    jit = functools.partial(jax.jit, function, **options)
    return Compiled(jit(), jit(compiler_options=blocks))


def _largest_array(program: Any) -> int:
    """Returns the bytes of the largest array that a jaxpr computes."""
    results = (variable for each in all_equations(program) for variable in each.outvars)
    return max((_bytes(variable.aval) for variable in results), default=0)


def _bytes(array: Any) -> int:
    # tokens of effects have no shape
    return math.prod(array.shape) * array.dtype.itemsize if hasattr(array, "shape") else 0

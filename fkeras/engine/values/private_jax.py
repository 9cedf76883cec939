"""The only dependency of the package on how JAX is implemented.

Other files use no private name of JAX, of Python or of another package; the layout test checks
this. Checked with JAX 0.7.2 and 0.10.2.
"""

from __future__ import annotations

import inspect
from typing import Any

# JAX has no public name for the client of its coordination service
from jax._src import distributed

# the file in which JAX defines the operators of arrays, in all versions from 0.4.1 on
_OPERATORS = "array_methods.py"


def asked_by_an_operator() -> bool:
    """Whether the caller's caller is an operator of a JAX array, as in `array + tensor`.

    JAX reads `__jax_array__` of a foreign operand in operators and in functions such as `jnp.sin`.
    An operator that finds no such attribute lets Python call the operand's own operator. A function
    that finds none raises an error that names no remedy. Only the calling file tells the two apart.
    If JAX renames the file, `array + tensor` raises the error for functions, which a test reports.
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(_OPERATORS)


def coordination_client() -> Any:
    """Returns the client of JAX's coordination service; None before `jax.distributed.initialize`.

    The client stores text by key for all processes. JAX's public functions exchange values through the
    devices, and wait forever for a process that has ended.
    """
    return distributed.global_state.client

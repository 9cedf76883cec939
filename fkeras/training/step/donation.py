"""Whether a step may overwrite the run that it is given.

That saves the memory of a second run. But where a weight is read after its new value is known, XLA
copies it first, and on a CPU such a step is up to three times as slow as one that overwrites
nothing; the optimised program shows it.
"""

from __future__ import annotations

import re
from typing import Any

import jax

_COPY = re.compile(r"= \w+\[([\d,]*)\](?:\{[^}]*\})? copy\(")


def copies(program: str) -> int:
    """How many arrays an optimised program copies; single numbers do not count.

    Example:
        >>> copies("%c = f32[4,2]{1,0} copy(%p), %n = s32[] copy(%q)")
        1
    """
    return sum(bool(shape) for shape in _COPY.findall(program))


def donates(plain: Any, donating: Any, *arguments: Any) -> bool:
    """Whether the program that overwrites its arguments copies no more than the one that does not.

    Compiles the second only where the first copies at all. JAX keeps what is compiled, so the call
    that follows does not compile again.

    Args:
        plain: a jitted function.
        donating: the same one with arguments that are donated.
        *arguments: what they will be called with.

    Example:
        >>> import functools, jax, jax.numpy as jnp
        >>> def step(weights): return weights - 0.1 * jnp.cos(weights)
        >>> donates(jax.jit(step), jax.jit(step, donate_argnums=0), jnp.ones((8, 8)))
        True
    """
    held = _copies(donating, arguments)
    return held == 0 or held <= _copies(plain, arguments)


def _copies(function: jax.stages.Wrapped, arguments: tuple) -> int:
    text = function.lower(*arguments).compile().as_text()
    return 0 if text is None else copies(text)

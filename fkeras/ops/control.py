"""Conditions, loops and maps, and functions of functions.

On arrays these are JAX's own transforms. On symbolic tensors each is one node of the graph that
holds the function it was given; such a function takes all that it needs as arguments, since a
symbolic tensor of the graph outside has no value inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.symbolic.define import op
from fkeras.engine.symbolic.operation import Op, lift
from fkeras.engine.values import structure
from fkeras.ops.numpy.searching import where

__all__ = (
    "associative_scan",
    "cond",
    "custom_gradient",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "vectorized_map",
    "while_loop",
)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """What one of two functions without arguments returns.

    Only that one is computed. Where the condition is a symbolic tensor both are, and one of their
    results is chosen: what a function divides by must be safe where it is not chosen, too.

    Args:
        pred: a Boolean scalar.
        true_fn: called where it holds.
        false_fn: called where it does not; it returns the same structure.

    Raises:
        ValueError: for a symbolic condition and functions that return different structures.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array(-2.0)
        >>> fk.ops.cond(x < 0, lambda: -x, lambda: x)
        Array(2., dtype=float32, weak_type=True)
    """
    if is_symbolic(pred):
        yes, no = true_fn(), false_fn()
        template, chosen = structure.number(yes)
        others = structure.match(template, no)
        if others is None:
            raise ValueError(
                "cond: expected the same structure from both functions, received two. Return as "
                "many tensors from one as from the other."
            )
        pairs = zip(chosen, others, strict=True)
        return structure.fill(template, [where(pred, a, b) for a, b in pairs])
    if isinstance(pred, Tracer):
        return jax.lax.cond(pred, true_fn, false_fn)
    return true_fn() if pred else false_fn()


@op
def switch(index: Any, branches: Sequence[Callable], *operands: Any) -> Any:
    """What the function number `index` returns for the operands; the index is kept in range.

    Args:
        index: an integer scalar.
        branches: functions of the operands that return arrays of one shape and dtype.
        *operands: what the chosen function is called with.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.switch(1, [jnp.sin, jnp.negative], jnp.array(2.0))
        Array(-2., dtype=float32, weak_type=True)
    """
    return jax.lax.switch(index, branches, *operands)


@op
def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """`(carry, ys)`: `f(carry, x) -> (carry, y)` over the first axis of `xs`.

    Args:
        f: the step; it returns a carry of the same shapes and dtypes.
        init: the first carry.
        xs: arrays with the steps on their first axis, or None.
        length: how many steps; needed where `xs` is None.
        reverse: whether to go from the last step to the first.
        unroll: how many steps are compiled into one turn of the loop.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> last, sums = fk.ops.scan(lambda c, x: (c + x, c + x), jnp.array(0), jnp.arange(4))
        >>> last, sums
        (Array(6, dtype=int32), Array([0, 1, 3, 6], dtype=int32))
    """
    return jax.lax.scan(f, init, xs, length=length, reverse=reverse, unroll=unroll)


@op
def associative_scan(f: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The results of `f` over all elements up to each, for an `f` that may be grouped freely.

    Args:
        f: `f(a, b)` of two results, with f(f(a, b), c) = f(a, f(b, c)).
        elems: an array, or a structure of arrays.
        reverse: whether to start from the last element.
        axis: along which axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.associative_scan(jnp.add, jnp.arange(4))
        Array([0, 1, 3, 6], dtype=int32)
    """
    return jax.lax.associative_scan(f, elems, reverse=reverse, axis=axis)


@op
def map(f: Callable, xs: Any) -> Any:
    """`f` of each element along the first axis, one after the other.

    Args:
        f: a function of one element.
        xs: an array, or a structure of arrays with first axes of one size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.map(jnp.sum, jnp.ones((2, 3)))
        Array([3., 3.], dtype=float32)
    """
    return jax.lax.map(f, xs)


@op
def vectorized_map(function: Callable, elements: Any) -> Any:
    """`function` of each element along the first axis, all at once.

    Args:
        function: a function of one element.
        elements: an array, or a structure of arrays with first axes of one size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.vectorized_map(lambda pair: pair[0] @ pair[1], (jnp.ones((2, 3)),) * 2)
        Array([3., 3.], dtype=float32)
    """
    return jax.vmap(function)(elements)


@op
def while_loop(
    cond: Callable, body: Callable, loop_vars: Any, maximum_iterations: int | None = None
) -> Any:
    """`loop_vars = body(*loop_vars)` while `cond(*loop_vars)` holds.

    Args:
        cond: whether to go on.
        body: the next variables, of the same shapes and dtypes.
        loop_vars: a tuple or list of variables, or one variable.
        maximum_iterations: the most turns that are made; None for no limit.

    Returns:
        The last variables: a tuple, or one where one was given.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.while_loop(lambda i: i < 10, lambda i: i + 3, jnp.array(0))
        Array(12, dtype=int32, weak_type=True)
    """
    single = not isinstance(loop_vars, tuple | list)
    variables = (loop_vars,) if single else tuple(loop_vars)

    def go_on(state: tuple) -> Any:
        turns, values = state
        held = cond(*values)
        return held if maximum_iterations is None else held & (turns < maximum_iterations)

    def turn(state: tuple) -> tuple:
        turns, values = state
        made = body(*values)
        return turns + 1, (made,) if single else tuple(made)

    _, last = jax.lax.while_loop(go_on, turn, (jnp.zeros((), "int32"), variables))
    return last[0] if single else last


@op
def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any) -> Any:
    """`value = body_fun(i, value)` for i from lower up to upper, which is left out.

    Args:
        lower: the first i.
        upper: the i after the last.
        body_fun: `(i, value) -> value`, of the same shapes and dtypes.
        init_val: the first value.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.fori_loop(0, 4, lambda i, total: total + i, jnp.array(0))
        Array(6, dtype=int32, weak_type=True)
    """
    return jax.lax.fori_loop(lower, upper, body_fun, init_val)


@op
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), its derivative along the tangents)`.

    Args:
        fun: a function of arrays.
        primals: its arguments, a tuple or list.
        tangents: the direction, of the same structure.
        has_aux: whether `fun` returns a pair whose second part is passed on, as a third result.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.jvp(jnp.square, (jnp.array(3.0),), (jnp.array(1.0),))
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    return jax.jvp(fun, tuple(primals), tuple(tangents), has_aux=has_aux)


def custom_gradient(f: Callable) -> Op:
    """The function with a gradient of its own, as an operation.

    Args:
        f: `(*args) -> (output, gradient)`, where `gradient(upstream)` returns the gradient of
            each argument.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> @fk.ops.custom_gradient
        ... def log1pexp(x):
        ...     e = jnp.exp(x)
        ...     return jnp.log1p(e), lambda upstream: upstream * (1 - 1 / (1 + e))
        >>> jax.grad(log1pexp)(0.0)
        Array(0.5, dtype=float32, weak_type=True)
    """
    return lift(jax.custom_gradient(f), name=getattr(f, "__name__", "custom_gradient"))

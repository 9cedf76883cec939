"""Control flow: conditions, loops, maps and derivatives.

On arrays these operations call JAX's transforms. On symbolic tensors each operation records one
node that holds the function. The function must receive all values as arguments: it cannot capture
symbolic tensors of the graph, which have no values inside the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.symbolic.define import elementwise, tree_op
from fkeras.engine.symbolic.operation import Op, lift
from fkeras.engine.values import structure
from fkeras.ops.numpy.searching import where

__all__ = (
    "associative_scan",
    "cond",
    "custom_gradient",
    "error_if",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "vectorized_map",
    "while_loop",
)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns the result of `true_fn()` or `false_fn()`, depending on a condition.

    Only one function is computed. If the condition is a symbolic tensor, both functions are
    computed and `where` selects a result: neither may produce NaN where the other is selected,
    since gradients would be NaN.

    Args:
        pred: a Boolean scalar.
        true_fn: function for a true condition.
        false_fn: function for a false condition; returns the same structure.

    Raises:
        ValueError: if the condition is symbolic and the functions return different structures.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array(-2.0)
        >>> fk.ops.cond(x < 0, lambda: -x, lambda: x)
        Array(2., dtype=float32, weak_type=True)
    """
    if is_symbolic(pred):
        # the functions may capture symbolic tensors, so they cannot become the body of one node
        true_outputs, false_outputs = true_fn(), false_fn()
        template, true_tensors = structure.number(true_outputs)
        false_tensors = structure.match(template, false_outputs)
        if false_tensors is None:
            raise ValueError(
                "cond: expected the same structure from both functions, received different "
                "structures. Return the same number of tensors from both."
            )
        pairs = zip(true_tensors, false_tensors, strict=True)
        return structure.fill(template, [where(pred, a, b) for a, b in pairs])
    # a concrete condition runs in Python: the functions may then return different shapes
    if isinstance(pred, Tracer):
        return jax.lax.cond(pred, true_fn, false_fn)
    return true_fn() if pred else false_fn()


@tree_op
def switch(index: Any, branches: Sequence[Callable], *operands: Any) -> Any:
    """Returns `branches[index](*operands)`, with the index clipped to the valid range.

    Args:
        index: an integer scalar.
        branches: functions of the operands that return arrays of one shape and dtype.
        *operands: arguments of the selected function.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.switch(1, [jnp.sin, jnp.negative], jnp.array(2.0))
        Array(-2., dtype=float32, weak_type=True)
    """
    # `lax.switch` clamps the index: a traced index cannot raise
    return jax.lax.switch(index, branches, *operands)


@tree_op
def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """Runs `f(carry, x) -> (carry, y)` over the first axis of `xs` and returns `(carry, ys)`.

    Args:
        f: the step; the carry keeps its shapes and dtypes.
        init: the initial carry.
        xs: arrays with the steps on their first axis, or None.
        length: number of steps; required if `xs` is None.
        reverse: whether to run from the last step to the first.
        unroll: number of steps per iteration of the compiled loop.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> last, sums = fk.ops.scan(lambda c, x: (c + x, c + x), jnp.array(0), jnp.arange(4))
        >>> last, sums
        (Array(6, dtype=int32), Array([0, 1, 3, 6], dtype=int32))
    """
    return jax.lax.scan(f, init, xs, length=length, reverse=reverse, unroll=unroll)


@tree_op
def associative_scan(f: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Returns the prefix reductions of an associative function, such as cumulative sums for `add`.

    Args:
        f: an associative function: f(f(a, b), c) = f(a, f(b, c)).
        elems: an array, or a structure of arrays.
        reverse: whether to start from the last element.
        axis: the axis of the scan.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.associative_scan(jnp.add, jnp.arange(4))
        Array([0, 1, 3, 6], dtype=int32)
    """
    return jax.lax.associative_scan(f, elems, reverse=reverse, axis=axis)


@tree_op
def map(f: Callable, xs: Any) -> Any:
    """Applies `f` to each element along the first axis, sequentially.

    Args:
        f: a function of one element.
        xs: an array, or a structure of arrays with first axes of one size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.map(jnp.sum, jnp.ones((2, 3)))
        Array([3., 3.], dtype=float32)
    """
    # a scan: `f` is compiled once and memory does not grow with the number of elements
    return jax.lax.map(f, xs)


@tree_op
def vectorized_map(function: Callable, elements: Any) -> Any:
    """Applies `function` to all elements along the first axis at once.

    Args:
        function: a function of one element.
        elements: an array, or a structure of arrays with first axes of one size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.vectorized_map(lambda pair: pair[0] @ pair[1], (jnp.ones((2, 3)),) * 2)
        Array([3., 3.], dtype=float32)
    """
    return jax.vmap(function)(elements)


@tree_op
def while_loop(
    cond: Callable, body: Callable, loop_vars: Any, maximum_iterations: int | None = None
) -> Any:
    """Repeats `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` is true.

    Args:
        cond: function of the variables that returns whether to continue.
        body: function that returns the next variables, with the same shapes and dtypes.
        loop_vars: a tuple or list of variables, or one variable.
        maximum_iterations: maximum number of iterations; None for no limit.

    Returns:
        The final variables: a tuple, or one variable if `loop_vars` is one variable.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.while_loop(lambda i: i < 10, lambda i: i + 3, jnp.array(0))
        Array(12, dtype=int32, weak_type=True)
    """
    is_single = not isinstance(loop_vars, tuple | list)
    variables = (loop_vars,) if is_single else tuple(loop_vars)

    def continues(state: tuple) -> Any:
        steps, values = state
        condition = cond(*values)
        # `&`, not `and`: both operands are traced
        return condition if maximum_iterations is None else condition & (steps < maximum_iterations)

    def step(state: tuple) -> tuple:
        steps, values = state
        new_values = body(*values)
        return steps + 1, (new_values,) if is_single else tuple(new_values)

    # the carry always holds the counter, so that both cases share this code
    _, last = jax.lax.while_loop(continues, step, (jnp.zeros((), "int32"), variables))
    return last[0] if is_single else last


@tree_op
def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any) -> Any:
    """Repeats `value = body_fun(i, value)` for i in range(lower, upper).

    Args:
        lower: the first i.
        upper: the end of the range, exclusive.
        body_fun: `(i, value) -> value`; the value keeps its shapes and dtypes.
        init_val: the initial value.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.fori_loop(0, 4, lambda i, total: total + i, jnp.array(0))
        Array(6, dtype=int32, weak_type=True)
    """
    return jax.lax.fori_loop(lower, upper, body_fun, init_val)


@tree_op
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Returns `fun(*primals)` and its directional derivative along the tangents.

    Args:
        fun: a function of arrays.
        primals: arguments of `fun`, a tuple or list.
        tangents: the direction, with the structure of `primals`.
        has_aux: whether `fun` returns a pair (output, auxiliary data); the auxiliary data is then
            the third result.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.jvp(jnp.square, (jnp.array(3.0),), (jnp.array(1.0),))
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    # JAX expects tuples; Keras also accepts lists
    return jax.jvp(fun, tuple(primals), tuple(tangents), has_aux=has_aux)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _checked(x: jax.Array, failed: jax.Array, message: str) -> jax.Array:
    def stop(failed: np.ndarray) -> np.ndarray:
        if np.any(failed):
            raise ValueError(message)
        return np.zeros(np.shape(failed), bool)

    def ask(failed: jax.Array) -> jax.Array:
        return jax.pure_callback(
            stop, jax.ShapeDtypeStruct((), bool), failed, vmap_method="expand_dims"
        )

    # the host is asked only where the condition holds; the result is False if it returns
    stopped = jax.lax.cond(failed, ask, jnp.zeros_like, failed)
    return jnp.where(stopped, jnp.zeros_like(x), x)


@_checked.defjvp
def _checked_jvp(message: str, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    return _checked(*primals, message), tangents[0]


@elementwise
def error_if(x: Any, condition: Any, message: str) -> jax.Array:
    """Returns x, and raises an error with the message if the condition holds anywhere.

    The check also runs in compiled programs, where the program asks the host only if the condition holds.
    Use the result: a program drops a check whose result nothing needs. Gradients pass unchanged.

    Args:
        x: array of any shape.
        condition: Booleans of any shape.
        message: text of the error: what was expected, and what to do.

    Raises:
        ValueError: outside of compiled programs, with the message.
        jax.errors.JaxRuntimeError: inside, when the result is used; the message is the last line. In
            some cases JAX raises a ValueError instead.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> @jax.jit
        ... def root(x):
        ...     return jnp.sqrt(fk.ops.error_if(x, x < 0, "root: expected numbers of 0 or more."))
        >>> root(4.0)
        Array(2., dtype=float32, weak_type=True)
    """
    if not isinstance(message, str):
        raise TypeError(
            f"error_if: message: expected a text, received {describe_value(message)}. Write "
            'fk.ops.error_if(x, x < 0, "expected numbers of 0 or more").'
        )
    x, failed = jnp.asarray(x), jnp.any(jnp.asarray(condition).astype(bool))
    if isinstance(failed, Tracer) or isinstance(x, Tracer):
        return _checked(x, failed, message)
    if failed:
        raise ValueError(message)
    return x


def custom_gradient(f: Callable) -> Op:
    """Returns an operation with a custom gradient.

    Args:
        f: `(*args) -> (output, gradient)`; `gradient(upstream)` returns the gradients with respect
            to the arguments.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> @fk.ops.custom_gradient
        ... def log1pexp(x):
        ...     e = jnp.exp(x)
        ...     return jnp.log1p(e), lambda upstream: upstream * (1 - 1 / (1 + e))
        >>> jax.grad(log1pexp)(0.0)
        Array(0.5, dtype=float32, weak_type=True)
    """
    # `lift` instead of `op`: the function is the user's, not part of `fkeras.ops`
    return lift(jax.custom_gradient(f), name=getattr(f, "__name__", "custom_gradient"))

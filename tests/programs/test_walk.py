"""The walk follows values through every kind of call."""

import jax
import jax.numpy as jnp
import pytest

from fkeras.programs.primitives import CALLS
from fkeras.programs.walk import all_equations, called, depends, follow, needed, text_of


@jax.custom_jvp
def with_jvp(x):
    return 3 * x


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), 3 * tangents[0]))


@jax.custom_vjp
def with_vjp(x):
    return 3 * x


with_vjp.defvjp(lambda x: (with_vjp(x), None), lambda _, g: (3 * g,))


def evaluate(program, arguments):
    """Computes a program equation by equation, and opens every call."""

    def apply(equation, values):
        inner = called(equation)
        if inner is not None:
            opened.append(equation.primitive.name)
            return evaluate(inner, values)[0]
        results = equation.primitive.bind(*values, **equation.params)
        return results if equation.primitive.multiple_results else [results]

    opened = []
    values = follow(program, arguments, lambda array, aval: jnp.asarray(array, aval.dtype), apply)
    return values, opened


@pytest.mark.parametrize(
    ("wrap", "names"),
    [
        (jax.jit, {"jit", "pjit"}),
        (jax.checkpoint, {"checkpoint", "remat", "remat2"}),
        (lambda f: lambda x: with_jvp(f(x)), {"custom_jvp_call"}),
        (lambda f: lambda x: with_vjp(f(x)), {"custom_vjp_call", "custom_vjp_call_jaxpr"}),
        (jax.named_call, None),
    ],
)
def test_every_call_is_opened(wrap, names):
    constant = jnp.arange(3.0)
    function = wrap(lambda x: jnp.sin(x) * constant + 1)
    x = jnp.float32(2) * jnp.ones(3)
    program = jax.make_jaxpr(function)(x)
    (value,), opened = evaluate(program, [x])
    assert jnp.allclose(value, function(x), atol=1e-6)
    if names is not None:
        assert names & set(opened) and names <= CALLS.keys()


def test_programs_inside_of_control_flow_are_read():
    def function(x):
        x, _ = jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=2)
        x = jax.lax.while_loop(lambda c: c.sum() < 0, jnp.cos, x)
        return jax.lax.cond(x.sum() > 0, jnp.tan, jnp.exp, x)

    program = jax.make_jaxpr(function)(jnp.ones(2))
    names = {equation.primitive.name for equation in all_equations(program)}
    assert {"sin", "cos", "tan", "exp", "scan", "while", "cond"} <= names
    outside = all_equations(program, enter=lambda equation: equation.primitive.name != "scan")
    assert "sin" not in {equation.primitive.name for equation in outside}


def test_needed_keeps_effects_by_request():
    def function(x):
        jax.debug.print("{}", x)
        return 2 * x, jnp.sin(x)

    program = jax.make_jaxpr(lambda x: function(x)[0])(1.0)
    names = [[e.primitive.name for e in needed(program, effects)] for effects in (True, False)]
    assert len(names[0]) == 2 and names[1] == ["mul"]


def test_dependence_and_text():
    program = jax.make_jaxpr(lambda a, b: jax.jit(jnp.multiply)(a, 2) + b)(1.0, 1.0)
    assert depends(program, 1)
    constant = jax.make_jaxpr(lambda a: 2.0)(1.0)
    assert not depends(constant, 1)

    def trace(function):
        return text_of(jax.make_jaxpr(function)(1.0))

    # the rules for derivatives are other objects in each program
    assert trace(lambda x: with_vjp(x)) == trace(lambda x: with_vjp(x))
    assert trace(jnp.sin) != trace(jnp.cos)

"""Arrays of compiled programs: those at the moment of the largest memory, and those of other devices."""

import jax
import jax.numpy as jnp
import pytest

from fkeras.planning.arrays import array_bytes, by_computation, largest, received
from fkeras.planning.scopes import instructions

MATRIX = jax.ShapeDtypeStruct((256, 256), "float32")


def chain(x):
    return jnp.tanh(x @ x) @ x


def shared(x):
    y = jnp.exp(x)
    return (y @ x) + (x @ y)


def scanned(x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ x), h), x, length=5)[0]


def stacked(x):
    _, ys = jax.lax.scan(lambda h, _: (h @ x, jnp.exp(h)), x, None, length=5)
    return ys.sum() + x


def attention(x):
    heads = jnp.tanh(x).reshape(8, 32, 4, 64)
    scores = jnp.einsum("bthd,bshd->bhts", heads, heads * 2)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), heads)


GRADIENTS = (
    jax.grad(lambda x: jnp.tanh(x @ x).sum()),
    jax.grad(lambda x: jax.nn.log_softmax(jnp.tanh(x @ x))[:, 0].sum()),
)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("function", [chain, shared, scanned, stacked, attention, *GRADIENTS])
def test_the_largest_memory_is_that_of_xla(function):
    compiled = jax.jit(function).lower(MATRIX).compile()
    memory = compiled.memory_analysis()
    outer = memory.argument_size_in_bytes + memory.output_size_in_bytes
    found = sum(size for _, size in largest(by_computation(instructions(compiled.as_text()))))
    # XLA also computes some operations in the memory of an operand
    assert found + outer == pytest.approx(memory.temp_size_in_bytes + outer, rel=0.35)


PROGRAM = """
%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[4]{0} get-tuple-element(%p), index=1
  %wide = f32[100]{0} broadcast(%x), dimensions={}
  %sum = f32[4]{0} all-reduce(%x), to_apply=%add
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %sum)
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} exponential(%a)
  %pair = (f32[4]{0}, f32[2]{0}) all-reduce(%b, %a), to_apply=%add
  %n = s32[] constant(0)
  %init = (s32[], f32[4]{0}) tuple(%n, %b)
  %loop = (s32[], f32[4]{0}) while(%init), condition=%until, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %last = f32[4]{0} get-tuple-element(%loop), index=1
  %start = f32[8]{0} all-gather-start(%last), dimensions={0}
  %done = f32[8]{0} all-gather-done(%start)
  ROOT %c = f32[4]{0} slice(%done), slice={[0:4]}
}
"""


def test_arrays_of_a_loop_belong_to_the_instruction_that_computes_them():
    assert dict(largest(by_computation(instructions(PROGRAM)))) == {"sum": 16, "wide": 400}


def test_loops_receive_arrays_in_each_step():
    found = sorted((a.maker, a.size) for a in received(by_computation(instructions(PROGRAM))))
    assert found == [("a", 8), ("b", 16), ("done", 32), ("sum", 5 * 16)]


def test_bytes_of_shapes():
    assert array_bytes("f32[8,128]{1,0:T(8,128)}") == [4096]
    assert array_bytes("(s4[3], f8e4m3fn[5], c64[2], token[])") == [2, 5, 16, 0]

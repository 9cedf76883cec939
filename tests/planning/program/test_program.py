"""Programs read from jaxprs: kernels, order and memory of small functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.planning.program.backends import Backend
from fkeras.planning.program.fusion import fused
from fkeras.planning.program.memory import usage
from fkeras.planning.program.products import is_matrices
from fkeras.planning.program.reading import read

N = 256
MATRIX = jax.ShapeDtypeStruct((N, N), "float32")
SIZE = 4 * N * N
CPU, GPU = Backend("cpu"), Backend("gpu")


def program(function, *arguments, backend=GPU):
    return read(jax.make_jaxpr(function)(*(arguments or (MATRIX,))), backend)


def chain(x):
    return jnp.sin(x) * 2 + 1


def shared(x):
    y = jnp.exp(x)
    return (y @ x) + (x @ y)


def repeated(x):
    y = x + 1
    return (y * 2) @ (y * 3)


def scanned(x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ x), h), x, length=5)[0]


def stacked(x):
    _, ys = jax.lax.scan(lambda h, _: (h @ x, jnp.exp(h)), x, None, length=5)
    return ys.sum() + x


# the function, the number of kernels, and the largest number of matrices between them
KERNELS = (
    pytest.param(chain, 1, 0, id="elementwise operations are one kernel"),
    pytest.param(lambda x: x.T @ x, 1, 0, id="a transposed matrix is no copy"),
    pytest.param(lambda x: jnp.tanh(x @ x) @ x, 3, 1, id="products are kernels of their own"),
    pytest.param(shared, 4, 2, id="an expensive value is stored for two readers"),
    pytest.param(repeated, 3, 2, id="a cheap value is computed twice"),
    pytest.param(lambda x: x.reshape(-1) + 1, 1, 0, id="a reshape is no kernel"),
    pytest.param(lambda x: (x + x[:1]).sum(), 1, 0, id="a reduction computes its inputs"),
)


@pytest.mark.parametrize(("function", "count", "matrices"), KERNELS)
def test_kernels_and_their_memory(function, count, matrices):
    made = program(function)
    assert len(fused(made).operations) == count
    assert usage(made, GPU).peak == matrices * SIZE


@pytest.mark.parametrize(("function", "stacks"), [(scanned, 0), (stacked, 5)])
def test_the_body_of_a_scan_counts_all_steps_but_is_stored_once(function, stacks):
    made = program(function)
    (loop,) = [operation for operation in made.operations if operation.kind == "loop"]
    assert loop.steps == 5
    assert 5 * 2 * N**3 <= loop.costs.flops <= 5 * 2 * N**3 + 12 * N**2
    assert stacks * SIZE <= usage(made, GPU).peak <= (stacks + 4) * SIZE


def test_unused_operations_are_left_out():
    made = program(lambda x: (jnp.sin(x), x + 1)[1])
    assert [operation.name for operation in made.operations] == ["add"]


def test_equal_operations_are_one():
    made = program(lambda x: jnp.exp(x) @ jnp.exp(x))
    assert [operation.name for operation in made.operations] == ["exp", "dot_general"]


@pytest.mark.parametrize(
    ("shape", "contracted", "batch", "expected"),
    [
        ((4, 5), (1,), (), True),
        ((4, 5), (0,), (), True),
        ((2, 4, 5), (1,), (0,), True),
        ((2, 4, 3, 5), (3,), (0, 2), False),
        ((2, 4, 1, 5), (3,), (0, 2), True),
        ((2, 3, 4), (0, 2), (), False),
        ((2, 3, 4), (1, 2), (), True),
    ],
)
def test_is_matrices(shape, contracted, batch, expected):
    assert is_matrices(shape, contracted, batch) == expected


def convolved(x):
    x = x.reshape(1, N, N, 1)
    kernel = jnp.ones((3, 3, 1, 8)) * x[0, 0, 0, 0]
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pooled(x):
    x = jnp.tanh(x).reshape(1, N, N, 1)
    y = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return (y * y).sum()


def attention(x):
    heads = jnp.tanh(x).reshape(8, 32, 4, 64)
    scores = jnp.einsum("bthd,bshd->bhts", heads, heads * 2)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, where=scores > 0), heads)


def half(x):
    x = x.astype("bfloat16")
    return jnp.tanh(x @ x) @ x


# functions whose memory on a CPU is compared with XLA's
COMPARED = (
    *(chain, shared, repeated, scanned, stacked, attention, half),
    *map(jax.grad, (pooled, lambda x: convolved(x).sum(), lambda x: jnp.tanh(x @ x).sum())),
    jax.grad(lambda x: jax.nn.log_softmax(jnp.tanh(x @ x))[:, 0].sum()),
)


@pytest.mark.parametrize("function", COMPARED)
def test_memory_on_a_cpu_is_that_of_xla(function):
    made = program(function, backend=CPU)
    compiled = jax.jit(function).lower(MATRIX).compile().memory_analysis()
    outer = compiled.argument_size_in_bytes + compiled.output_size_in_bytes
    planned = usage(made, CPU).peak + outer
    assert planned == pytest.approx(compiled.temp_size_in_bytes + outer, rel=0.25)


def test_a_donated_matrix_is_copied_if_a_kernel_reads_it_too_late():
    def step(w, x):
        y = jnp.tanh(x @ w)
        return w - x.T @ y, y @ w.T

    made = program(step, MATRIX, MATRIX, backend=CPU)
    plain = usage(made, CPU)
    donated = usage(made, CPU, {made.outputs[0]: made.inputs[0]})
    assert any(operation.name == "copy" for operation, _ in donated.alive)
    assert not any(operation.name == "copy" for operation, _ in plain.alive)


def test_sizes_of_dtypes():
    made = program(lambda key: jax.random.normal(key, (8,)), jax.random.key(0))
    assert made.sizes[made.inputs[0]] == 8
    assert all(isinstance(size, int | np.integer) for size in made.sizes)

"""Kernels of platforms against attention of whole arrays, interpreted on CPUs, and their choice."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers, masks
from fkeras.nn.attention import attend
from fkeras.nn.attention_blocks import whole
from fkeras.nn.attention_choice import dot_product_attention
from fkeras.nn.attention_kernels import (
    ALL,
    CAUSAL,
    KERNEL,
    Call,
    Pairs,
    attend_by_kernel,
    by_splash,
)

LENGTH = 200
SEGMENTS = np.repeat(np.array([[1, 2, 0, 3], [1, 1, 1, 2]], "int32"), 50, axis=1)


def _normal(*shape, number=0):
    return np.random.default_rng(number).normal(size=shape).astype("float32")


def _heads(queries=LENGTH, keys=LENGTH):
    sizes = (queries, 4, 8), (keys, 2, 8), (keys, 2, 16)
    return [_normal(2, *size, number=n) for n, size in enumerate(sizes)]


def _whole(*operands, call):
    heads = operands[: call.differentiable]

    def value(query, keys, values, sinks=None):
        mask = call.mask_of(operands, whole)
        arguments = query, keys, values, mask, None, call.scale
        return attend(*arguments, soft_cap=call.soft_cap, sinks=sinks)

    if len(operands) == call.number:
        return [value(*heads)]
    return list(jax.vjp(value, *heads)[1](operands[-1]))


def _pairs(band=ALL, ids=None, positions=None, query=None, key=None, shape=(2, LENGTH, LENGTH)):
    return Pairs(band, ids, ids, positions).only(query, key, shape)


ROWS = np.arange(LENGTH)[None] < np.array([[30], [170]])
VALID = SEGMENTS != 0
SINKS = np.array([[-1.0, 0.0, 1.0, 3.0], [2.0, 0.5, -9.0, 1.5]], "float32")
CALLS = {
    "all, odd lengths": (_pairs(), None, _heads(LENGTH, 77)),
    "causal, soft cap": (_pairs(CAUSAL), 2.0, _heads()),
    "window": (_pairs((9, 9)), None, _heads()),
    "rows without keys": (_pairs((math.inf, -60)), None, _heads()),
    "masks of rows": (_pairs(CAUSAL, query=ROWS, key=ROWS[::-1]), None, _heads()),
    "segments": (_pairs((70, 0), SEGMENTS, query=VALID, key=VALID), 1.5, _heads()),
    "several blocks": (_pairs((300, 2)), None, [x[:1, :, :2] for x in _heads(1030, 600)]),
    "sinks": (_pairs((70, 0), SEGMENTS, query=VALID, key=VALID), 1.5, [*_heads(), SINKS]),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", CALLS)
def test_splash_attention_equals_whole_arrays(name):
    pairs, soft_cap, heads = CALLS[name]
    ids = [x for x in pairs[1:] if x is not None]
    call = Call(pairs.band, bool(ids), False, 0.3, soft_cap, has_sinks=len(heads) == 4)
    gradient = _normal(*heads[0].shape[:3], 16, number=5)

    @functools.partial(jax.jit, static_argnums=0)
    def results(function, *operands):
        return function(*operands, call=call), function(*operands, gradient, call=call)

    def splash(*operands, call):
        role = "value" if len(operands) == call.number else "gradient"
        return by_splash(*operands, call=call, role=role, interpret=True)

    ours, expected = (jax.tree.leaves(results(f, *heads, *ids)) for f in (splash, _whole))
    for y, exact in zip(ours, expected, strict=True):
        np.testing.assert_allclose(y, exact, atol=2e-5)
    if name == "rows without keys":
        assert not ours[0][:, :60].any()
        assert ours[0][:, 60:].all()


def _lowered(function, *arguments, platforms=("tpu",)):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=platforms).as_text()


def _specs(length=2048, dtype="float32"):
    return [jax.ShapeDtypeStruct((1, length, 2, 64), dtype)] * 3


def _gradient(layer):
    return jax.grad(lambda *heads: jnp.square(layer(*heads)).sum(), (0, 1, 2))


@pytest.mark.exhaustive
def test_the_platform_of_the_program_selects_the_kernel():
    gradient = _gradient(layers.DotProductAttention(masks.Causal()))
    tpu, cpu, both = (
        _lowered(gradient, *_specs(), platforms=p) for p in (("tpu",), ("cpu",), ("cpu", "tpu"))
    )
    assert "tpu_custom_call" in tpu
    assert "2048x2048" not in tpu
    assert "tpu_custom_call" not in cpu
    assert "tpu_custom_call" in both
    for kernel, length in (("einsum", 2048), ("blockwise", 2048), (None, 1024)):
        layer = layers.DotProductAttention(masks.Causal(), kernel=kernel)
        assert "tpu_custom_call" not in _lowered(_gradient(layer), *_specs(length))
    layer = layers.DotProductAttention(masks.Causal(), kernel="splash")
    assert "tpu_custom_call" in _lowered(_gradient(layer), *_specs(128))


def test_a_gradient_computes_the_kernel_once():
    text = _lowered(_gradient(layers.DotProductAttention(masks.Causal())), *_specs())
    # the function with the first kernel is called twice, and compilers merge equal calls
    assert text.count('kernel_name = "splash_mha_fwd') == 1
    assert text.count("@tpu_custom_call(") == 3


def test_programs_without_a_kernel():
    specs = _specs()
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    on_two = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows) for x in specs]
    layer = layers.DotProductAttention(masks.Causal())
    assert "tpu_custom_call" not in _lowered(layer, *on_two)
    with jax.default_matmul_precision("high"):  # Pallas refuses this precision
        assert "tpu_custom_call" not in _lowered(layer, *specs)
    halves = _specs(dtype="float16")
    assert "tpu_custom_call" not in _lowered(layer.replace(dtype="float16"), *halves)


@pytest.mark.exhaustive
def test_every_layer_reaches_the_kernel():
    x = jax.ShapeDtypeStruct((2, 2048, 16), "float32")
    ids = jax.ShapeDtypeStruct((2, 2048), "int32")
    valid = jax.ShapeDtypeStruct((2, 2048), "bool")
    for layer in (
        layers.MultiHeadAttention(2, 8, sliding_window=100),
        layers.GroupQueryAttention(8, 2, 1),
    ):
        built = layer.build(jax.random.key(0), x, x)

        def masked(x, mask, built=built):
            return built(x, x, query_mask=mask, value_mask=mask, use_causal_mask=True)

        assert "tpu_custom_call" in _lowered(masked, x, valid)
    heads = [jax.ShapeDtypeStruct((2, 2048, 2, 8), "float32")] * 3
    for local in (masks.Window(700), masks.Chunk(700)):
        attention = layers.DotProductAttention(masks.Causal() & local)
        assert "tpu_custom_call" in _lowered(attention, *heads, ids)
        assert "tpu_custom_call" in _lowered(attention, *heads)
    causal = layers.DotProductAttention(masks.Causal())
    assert "stablehlo.case" not in _lowered(causal, *heads, ids)
    packed = _lowered(
        lambda *heads: causal(*heads[:3], attention_mask=masks.Segments(heads[3])), *heads, ids
    )
    assert "tpu_custom_call" in packed
    sinks = jax.ShapeDtypeStruct((2,), "float32")
    with_sinks = _lowered(lambda *x: dot_product_attention(*x[:3], sinks=x[3]), *heads, sinks)
    assert "tpu_custom_call" in with_sinks
    operation = functools.partial(dot_product_attention, is_causal=True)
    assert "tpu_custom_call" in _lowered(operation, *heads)
    keys = jax.ShapeDtypeStruct((2, 1, 1, 2048), "bool")
    assert "tpu_custom_call" in _lowered(operation, *heads, keys)
    pairs = jax.ShapeDtypeStruct((2, 1, 2048, 2048), "bool")
    assert "tpu_custom_call" not in _lowered(operation, *heads, pairs)


def _choices(function, *arguments):
    text = str(jax.make_jaxpr(function)(*arguments))
    return text.count(f"{KERNEL.name}[")


def test_gradients_of_short_sequences_keep_the_weights():
    heads = [jax.ShapeDtypeStruct((1, 128, 2, 8), "bfloat16")] * 3
    chosen, einsum = (
        layers.DotProductAttention(dtype="bfloat16", kernel=k) for k in (None, "einsum")
    )
    assert (
        _choices(_gradient(chosen), *heads) == 2
    )  # the value and the gradients, for the choice of a GPU
    texts = [jax.jit(_gradient(x)).lower(*heads).compile().as_text() for x in (chosen, einsum)]
    for operation in (" dot(", " exponential("):
        assert texts[0].count(operation) == texts[1].count(operation) > 0


@pytest.mark.exhaustive
def test_derivatives_of_short_sequences():
    heads = tuple(jnp.asarray(_normal(1, 128, 2, 8, number=n), "bfloat16") for n in range(3))

    def results(kernel):
        layer = layers.DotProductAttention(masks.Causal(), dtype="bfloat16", kernel=kernel)

        def loss(*heads):
            return jnp.square(layer(*heads)).sum()

        gradient, tangents = jax.grad(loss, (0, 1, 2)), tuple(jnp.cos(x) for x in heads)
        several = jnp.stack([heads[0], 2 * heads[0]])
        return (
            jax.jvp(layer, heads, tangents),
            jax.jvp(gradient, heads, tangents),
            jax.grad(jax.checkpoint(loss))(*heads),
            jax.vmap(layer, (0, None, None))(several, *heads[1:]),
        )

    for y, exact in zip(*(jax.tree.leaves(results(k)) for k in (None, "einsum")), strict=True):
        y, exact = (x.astype("float32") for x in (y, exact))
        np.testing.assert_allclose(y, exact, atol=0.02 * float(jnp.abs(exact).max()))


@pytest.mark.exhaustive
def test_derivatives_with_sinks():
    heads = (*(x[:1, :130] for x in _heads()), SINKS[:1])

    def chosen(*heads):
        return attend_by_kernel(*heads[:3], Pairs(CAUSAL), 0.3, None, heads[3])

    def exact(*heads):
        return _whole(*heads, call=Call(CAUSAL, False, False, 0.3, has_sinks=True))[0]

    def results(function):
        def loss(*heads):
            return jnp.sum(jnp.sin(function(*heads)))

        tangents = tuple(jnp.cos(x) for x in heads)
        gradient = jax.grad(loss, (0, 1, 2, 3))
        several = jnp.stack([heads[3], heads[3] + 1])
        return (
            jax.jvp(gradient, heads, tangents),
            jax.vmap(function, (None, None, None, 0))(*heads[:3], several),
            jax.vmap(function, (None, None, 0, None))(*heads[:2], several_values(heads), heads[3]),
        )

    def several_values(heads):
        return jnp.stack([heads[2], -heads[2]])

    assert _choices(chosen, *heads) == 1
    for y, value in zip(
        *(jax.tree.leaves(jax.jit(functools.partial(results, f))()) for f in (chosen, exact)),
        strict=True,
    ):
        np.testing.assert_allclose(y, value, rtol=1e-5, atol=5e-5)


@pytest.mark.exhaustive
def test_derivatives_of_all_kinds():
    heads = tuple(x[:1, :130] for x in _heads())
    ids = SEGMENTS[:1, :130]
    tangents = tuple(jnp.cos(x) for x in heads)

    def chosen(*heads):
        pairs = Pairs(CAUSAL, ids, ids)
        return attend_by_kernel(*heads, pairs, 0.3, 2.0)

    def exact(*heads):
        return _whole(*heads, ids, ids, call=Call(CAUSAL, True, False, 0.3, 2.0))[0]

    def results(function):
        def loss(*heads):
            return jnp.sum(jnp.sin(function(*heads)))

        def slope(*heads):
            return jax.jvp(loss, heads, tangents)[1]

        def row(query, value):
            return function(query[None], heads[1], value[None])[0]

        gradient = jax.grad(loss, (0, 1, 2))
        _, pushed = jax.linearize(function, *heads)
        transposed = jax.linear_transpose(lambda y: jax.vjp(function, *heads)[1](y), exact(*heads))
        return (
            slope(*heads),
            jax.grad(slope)(*heads),
            jax.jvp(gradient, heads, tangents)[1],
            jax.grad(lambda *heads: gradient(*heads)[1].sum())(*heads),
            jax.vmap(row)(heads[0], heads[2]),
            jax.grad(jax.checkpoint(loss), 2)(*heads),
            pushed(*tangents),
            transposed(tangents),
        )

    assert _choices(chosen, *heads) == 1
    ours, expected = (
        jax.tree.leaves(jax.jit(functools.partial(results, f))()) for f in (chosen, exact)
    )
    for y, value in zip(ours, expected, strict=True):
        np.testing.assert_allclose(y, value, rtol=1e-5, atol=5e-5)
    with jax.disable_jit():
        np.testing.assert_allclose(chosen(*heads), exact(*heads), atol=1e-5)

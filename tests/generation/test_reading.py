"""The parts of a model: what runs once, what runs at all positions, and what at the last one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.generation import decoding
from fkeras.generation.caches import new_state
from fkeras.generation.decoding import Prompt, read_pieces
from fkeras.generation.reading import Form, Reader, parts_of
from fkeras.programs.walk import all_equations
from tests.support import language_models


def names(part):
    return [name for name in part.model.layers if not name.startswith("input_layer")]


def test_head_and_norm_run_at_the_last_position():
    model = language_models.cached()
    parts = parts_of(model, Form("ids", (), True, 11))
    assert names(parts.head) == ["norm", "head"]
    assert names(parts.body)[-1] == "block_1" and parts.body.missing == 1
    assert parts.encoder is None


def test_angles_are_computed_once_for_all_blocks():
    model = language_models.cached(depth=3)
    body, state = parts_of(model, Form("ids", (), True, 11)).body, model.init_cache(1, 8)
    program = jax.make_jaxpr(lambda ids: body.run([ids], state).value)(jnp.ones((1, 4), jnp.int32))
    # those of the queries and those of the keys
    for equations in (program.eqns, all_equations(program)):
        assert [equation.primitive.name for equation in equations].count("cos") == 2


@pytest.mark.exhaustive
def test_calls_that_the_body_needs_stay_there():
    model = language_models.uncached()
    # the embedding reaches the head by the sum, and the attention
    parts = parts_of(model, Form("ids", (), False, 11))
    assert names(parts.head) == ["add", "norm", "head"]
    assert names(parts.body) == ["ids", "embedding", "attention"]


@pytest.mark.exhaustive
def test_scores_of_mixed_positions_are_computed_whole():
    ids = fk.Input((None,), dtype="int32", name="ids")
    x = fk.ops.cumsum(layers.Embedding(5, 5)(ids), axis=1)
    model = fk.Model(ids, x).build(jax.random.key(0))
    parts = parts_of(model, Form("ids", (), False, 5))
    assert parts.head is None
    found = fk.generate(model, None, [[1, 2], [3]], max_new_tokens=2)
    for row, text in enumerate(([1, 2], [3])):
        first = int(jnp.argmax(model(jnp.array([text]))[0, -1]))
        assert int(found.tokens[row, 0]) == first


@pytest.mark.exhaustive
def test_values_of_the_encoder_alone_are_constants():
    model = language_models.encoder_decoder(depth=2)
    parts = parts_of(model, Form("decoder_ids", ("encoder_ids",), True, 11))
    projections = [f"decoder_block_{i}_cross_{name}" for i in (0, 1) for name in ("key", "value")]
    assert names(parts.encoder) == ["encoder_ids", "encoder", *projections]
    assert not {*projections, "encoder"} & {*names(parts.body), *names(parts.head)}
    assert [name for name, _ in parts.opened] == ["decoder", "decoder_block_0", "decoder_block_1"]
    assert parts.per_row == (True,) * 4


@pytest.mark.exhaustive
def test_a_loop_on_tpus_reads_unpacked_codes():
    config = fk.pretrained.LlamaConfig(20, 8, 12, 1, 2, num_key_value_heads=1)
    model = fk.quantize(fk.pretrained.build(config).build(jax.random.key(0)), "int4")
    form = Form("ids", (), True, 20)
    reader = Reader(model, None, (), form)
    assert reader.has_packed_codes and not reader.unpacked().has_packed_codes
    ids = np.array([[1, 2, 3]], "int32")
    traced = jax.jit(lambda model: fk.generate(model, None, ids, max_new_tokens=2).tokens).trace(
        model
    )
    for platform in ("tpu", "cpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("xi4>" in text) == (platform == "tpu")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mask", [None, fk.masks.Causal() & fk.masks.Window(3)], ids=str)
def test_long_prompts_are_read_in_pieces(mask, monkeypatch):
    model = language_models.cached(depth=1, mask=mask)
    reader = Reader(model, None, (), Form("ids", (), True, 11))
    ids = np.random.default_rng(0).integers(0, 11, (3, 11)).astype("int32")
    valid = np.arange(11) < np.array([[11], [4], [1]])

    @jax.jit
    def read(ids, valid):
        state = new_state(model, True, {}, 3, 20, 0)
        first = read_pieces(reader, state, Prompt(ids[:, :3], valid[:, :3], {}))
        monkeypatch.setattr(decoding, "_PIECE", 4)
        pieces = read_pieces(reader, state, Prompt(ids, valid, {}))
        next = read_pieces(reader, first[1], Prompt(ids[:, 3:], valid[:, 3:], {}))
        return reader.read(state, ids, valid), pieces, next

    (logits, state), (found, pieces), (next, continued) = read(ids, valid)
    np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-6)
    # a state that has tokens; the last row has none behind
    np.testing.assert_allclose(next[:2], logits[:2], rtol=1e-5, atol=1e-6)
    for other in (pieces, continued):
        assert other["positions"]["length"].tolist() == [11, 4, 1]
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), other, state
        )


def test_a_prefill_copies_no_weights():
    model = language_models.cached(depth=1)
    reader = Reader(model, None, (), Form("ids", (), True, 11))
    ids = np.array([[1, 2, 3, 0]], "int32")
    prompt = Prompt(jnp.asarray(ids), jnp.asarray(ids > 0), {})
    after, state, *_ = decoding.read_prompt(reader, {}, prompt, 16, 0, False, jnp.int32(3))
    assert after.model is model
    # the prompt is read into places for itself, then the caches get room for new tokens
    shapes = [leaf.shape for leaf in jax.tree.leaves(model.init_cache(1, 16))]
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == shapes


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "mixed_bfloat16"])
def test_scales_of_norms_are_cast_before_the_loop(dtype):
    config = fk.pretrained.LlamaConfig(20, 8, 12, 1, 2, num_key_value_heads=1)
    model = fk.cast(fk.pretrained.build(config).build(jax.random.key(0)), dtype)
    reader = Reader(model, None, (), Form("ids", (), True, 20))
    ids = np.array([[1, 2, 3]], "int32")

    @jax.jit
    def read(reader):
        wide, state = reader.with_wide_scales(), model.init_cache(1, 8)
        return [r.read(state, ids, ids > 0) for r in (reader, wide)], wide.model

    (expected, found), wide = read(reader)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert wide.layers["norm"].scale.dtype == "float32"
    assert (wide.layers["embedding"] == model.layers["embedding"]) and (
        (wide == model) == (dtype in ("float32", "mixed_bfloat16"))
    )

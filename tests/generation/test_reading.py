"""The parts of a model: what runs once, what runs at all positions, and what at the last one."""

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.generation.reading import Form, parts_of
from tests.support import language_models


def names(part):
    return [name for name in part.model.layers if not name.startswith("input_layer")]


def test_head_and_norm_run_at_the_last_position():
    model = language_models.cached()
    parts = parts_of(model, Form("ids", (), True, 11))
    assert names(parts.head) == ["norm", "head"]
    assert names(parts.body)[-1] == "block_1" and parts.body.missing == 1
    assert parts.encoder is None


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

"""Loaded weights of equal blocks lie side by side, and generate with one program of a block."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.authoring.engine import weights_by_path
from fkeras.host.memory import as_one
from fkeras.pretrained import LlamaConfig
from tests.support.compile_counts import count_compiles

CONFIG = LlamaConfig(40, 128, 160, 12, 2, num_key_value_heads=2, tie_word_embeddings=True)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="memory of a CPU")
def test_loaded_blocks_lie_side_by_side(tmp_path):
    model = fk.pretrained.build(CONFIG).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, None, CONFIG)
    loaded = fk.pretrained.load(tmp_path).model
    weights, expected = weights_by_path(loaded), weights_by_path(model)
    for name in ("query/kernel", "down/kernel", "mlp_norm/scale"):
        stack = as_one([weights[f"block_{n}/{name}"] for n in range(12)])
        assert stack is not None
        assert (stack[11] == expected[f"block_11/{name}"]).all()
    prompt = np.array([[1, 2, 3]])
    results = [fk.generate(m, None, prompt, max_new_tokens=6) for m in (loaded, model)]
    assert results[0].tokens.tolist() == results[1].tokens.tolist()
    with count_compiles() as compiled:
        fk.generate(loaded, None, prompt, max_new_tokens=9)
    assert not compiled


def test_quantized_weights_have_no_room(tmp_path):
    model = fk.pretrained.build(CONFIG).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, None, CONFIG)
    loaded = fk.pretrained.load(tmp_path, quantize="int8").model
    scales = [weights_by_path(loaded)[f"block_{n}/mlp_norm/scale"] for n in range(12)]
    assert as_one(scales) is None

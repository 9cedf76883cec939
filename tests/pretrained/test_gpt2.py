"""GPT-2 against transformers, and its configuration."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained import gpt2
from fkeras.pretrained.gpt2 import GPT2Config
from fkeras.saving.containers.errors import FileError
from fkeras.saving.weights.safetensors import read_safetensors
from tests.pretrained import checks


def test_numbers_equal_those_of_transformers():
    loaded = checks.is_a_causal_decoder("gpt2", first="embedding_add")
    checks.computes_with_a_cache(loaded.model, "gpt2")


def test_a_folder_is_written_back_byte_by_byte(tmp_path):
    checks.is_written_back("gpt2", tmp_path)


def test_packed_texts_have_their_own_positions():
    model = fk.pretrained.load(checks.DATA / "gpt2").model
    ids = np.arange(1, 13, dtype="int32")[None]
    segments = np.array([[1] * 5 + [2] * 7], "int32")
    packed = model([ids, segments])
    np.testing.assert_allclose(packed[:, 5:], model(ids[:, 5:]), atol=1e-5)


def test_a_token_beyond_the_last_position_is_nan():
    model = fk.pretrained.load(checks.DATA / "gpt2").model
    logits = model(np.ones((1, 30), "int32"))
    assert np.isfinite(logits[:, :29]).all()
    assert np.isnan(logits[:, 29]).all()


def test_the_tiny_configuration_builds():
    model = fk.pretrained.build(gpt2.TINY).build(jax.random.key(0))
    assert model(np.ones((1, 3), "int32")).shape == (1, 3, 67)


def test_scales_of_scores():
    config = GPT2Config(n_embd=64, n_head=4)
    assert [config.scale(i) for i in (0, 3)] == [0.25, 0.25]
    config = GPT2Config.read({"model_type": "gpt2", "scale_attn_weights": False})
    assert config.scale(3) == 1.0
    assert gpt2.TINY.scale(2) == 6**-0.5 / 3


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"n_head": 5}, "n_head: expected a divisor of n_embd=768, received 5"),
        ({"add_cross_attention": True}, "unknown key 'add_cross_attention'"),
        ({"activation_function": "gelu2"}, "activation_function"),
        ({"n_positions": 0}, "n_positions"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GPT2Config.read({"model_type": "gpt2", **mapping})

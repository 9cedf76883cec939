"""GPT-2 against transformers, and its configuration."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import gpt2
from fkeras.pretrained.families.gpt2 import GPT2Config
from tests.pretrained import checks


@pytest.mark.exhaustive
def test_numbers_equal_those_of_transformers():
    loaded = checks.is_a_causal_decoder("gpt2", first="embedding_add")
    checks.computes_with_a_cache(loaded.model, "gpt2")


@pytest.mark.exhaustive
def test_a_folder_is_written_back_byte_by_byte(tmp_path):
    checks.is_written_back("gpt2", tmp_path)


@pytest.mark.exhaustive
def test_packed_texts_have_their_own_positions():
    model = fk.pretrained.load(checks.DATA / "gpt2").model
    ids = np.arange(1, 13, dtype="int32")[None]
    segments = np.array([[1] * 5 + [2] * 7], "int32")
    packed = model([ids, segments])
    np.testing.assert_allclose(packed[:, 5:], model(ids[:, 5:]), atol=1e-5)


@pytest.mark.exhaustive
def test_a_text_longer_than_the_positions_is_nan():
    model = fk.pretrained.load(checks.DATA / "gpt2").model
    ids = np.ones((2, 30), "int32")
    logits = model.apply(ids, mask=np.arange(30)[None] < np.array([[30], [29]])).value
    assert np.isnan(logits[0]).any(-1).all()
    assert np.isfinite(logits[1, :29]).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_files_of_older_versions(prefix, tmp_path):
    def load(change):
        def rename(arrays):
            for name in list(arrays):
                arrays[prefix + name.removeprefix("transformer.")] = arrays.pop(name)
            # masks as tensors, and a copy of the tied head
            arrays[f"{prefix}h.0.attn.bias"] = np.tril(np.ones((1, 1, 29, 29), "float32"))
            arrays[f"{prefix}h.0.attn.masked_bias"] = np.array(-1e4, "float32")
            arrays["lm_head.weight"] = arrays[f"{prefix}wte.weight"]
            change(arrays)

        return fk.pretrained.load(checks.rewritten("gpt2", tmp_path, rename)).model

    assert load(lambda arrays: None) == fk.pretrained.load(checks.DATA / "gpt2").model
    with pytest.raises(FileError, match=r"lm_head\.weight"):
        load(lambda arrays: arrays.update({"lm_head.weight": arrays["lm_head.weight"] + 1}))
    with pytest.raises(FileError, match=r"missing in the file: .*ln_f\.bias"):
        load(lambda arrays: arrays.pop(f"{prefix}ln_f.bias"))


def test_a_model_file_keeps_the_graph(tmp_path):
    checks.is_kept_by_a_model_file("gpt2", tmp_path)


@pytest.mark.exhaustive
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

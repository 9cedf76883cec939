"""GPT-NeoX and the decoders that share its blocks: their configurations, and files of other versions."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.pretrained.families import falcon, gpt_neox, opt, phi, starcoder2
from fkeras.pretrained.families.table import family_of
from tests.pretrained import option_checks

TINY = {module.TINY.model_type: module.TINY for module in (falcon, gpt_neox, opt, phi, starcoder2)}


def test_keys_of_both_versions_of_transformers():
    old = {"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 20.0}
    config = fk.pretrained.GPTNeoXConfig.read(old)
    assert config.write() == old
    new = {"rope_theta": 20.0, "partial_rotary_factor": 0.5, "rope_type": "default"}
    assert fk.pretrained.GPTNeoXConfig.read({"rope_parameters": new}) == config
    mapping = {"model_type": "gpt_neox", "rope_parameters": new}
    changed = dataclasses.replace(fk.pretrained.GPTNeoXConfig.read(mapping), rotary_pct=1.0)
    # transformers reads the keys of version 4 by the names of GPT-NeoX
    assert changed.write() == {"model_type": "gpt_neox", "rotary_pct": 1.0, "rotary_emb_base": 20.0}


@pytest.mark.parametrize(
    ("model_type", "mapping", "message"),
    [
        (
            "gpt_neox",
            {"num_attention_heads": 5},
            "expected a divisor of hidden_size=32, received 5",
        ),
        ("gpt_neox", {"rotary_pct": 0.4}, r"even number .* received 3 of 8.*rotary_pct"),
        ("gpt_neox", {"rotary_pct": 0.01}, r"received 0 of 8"),
        ("gpt_neox", {"rope_theta": 5.0}, "unknown key 'rope_theta'"),
        ("gpt_neox", {"num_key_value_heads": 2}, "unknown key 'num_key_value_heads'"),
        ("gpt_neox", {"rope_scaling": {"rope_type": "odd"}}, "rope_scaling: expected a type among"),
        ("phi", {"num_key_value_heads": 3}, "num_key_value_heads: expected a divisor"),
        ("phi", {"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ("starcoder2", {"num_key_value_heads": 8}, "num_key_value_heads: expected a divisor"),
        ("starcoder2", {"partial_rotary_factor": 0.5}, "transformers ignores the key"),
        ("starcoder2", {"sliding_window": 0}, "sliding_window"),
        ("falcon", {"alibi": True}, "alibi: expected False for query heads that share a key head"),
        ("falcon", {"num_kv_heads": 3}, "num_kv_heads: expected a divisor"),
        ("falcon", {"parallel_attn": False}, "parallel_attn: received False.*architecture=True"),
        ("falcon", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn"),
        (
            "falcon",
            {"new_decoder_architecture": False, "num_ln_in_parallel_attn": 2},
            "num_ln_in_parallel_attn: received 2, which transformers does not compute",
        ),
        (
            "falcon",
            {"new_decoder_architecture": False, "multi_query": False},
            "num_kv_heads: received 2, which transformers does not compute",
        ),
        ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm: expected false"),
        ("opt", {"word_embed_proj_dim": 0}, "word_embed_proj_dim"),
        ("opt", {"activation_function": "gelu2"}, "activation_function"),
    ],
)
def test_a_wrong_configuration_is_rejected(model_type, mapping, message):
    family, tiny = family_of({"model_type": model_type}), TINY[model_type].write()
    assert family.config.read(tiny) == TINY[model_type]
    with pytest.raises((ValueError, TypeError), match=message):
        family.config.read({**tiny, **mapping})


def folder_of(name, folder):
    entry = option_checks.stored(option_checks.DECODERS)[name]
    option_checks.write_folder(folder, entry["config"], entry["tensors"])
    return folder / "model.safetensors"


@pytest.mark.exhaustive
def test_masks_and_frequencies_in_files_of_older_versions_are_left_out(tmp_path):
    file = folder_of("gpt_neox", tmp_path)
    model = fk.pretrained.load(tmp_path).model
    arrays = safetensors.numpy.load_file(file)
    for block in range(3):
        prefix = f"gpt_neox.layers.{block}.attention."
        arrays[f"{prefix}bias"] = np.tril(np.ones((1, 1, 64, 64), "bool"))
        arrays[f"{prefix}masked_bias"] = np.array(-1e9, "float32")
        arrays[f"{prefix}rotary_emb.inv_freq"] = np.ones(2, "float32")
    safetensors.numpy.save_file(arrays, file, {"format": "pt"})
    assert fk.pretrained.load(tmp_path).model == model
    del arrays["embed_out.weight"]
    safetensors.numpy.save_file(arrays, file, {"format": "pt"})
    with pytest.raises(fk.FileError, match=r"missing in the file: embed_out\.weight"):
        fk.pretrained.load(tmp_path)


@pytest.mark.exhaustive
def test_padding_and_packed_texts_have_their_own_positions_in_opt(tmp_path):
    folder_of("opt-350m", tmp_path)
    model, ids = fk.pretrained.load(tmp_path).model, option_checks.prompts()
    packed = model([ids, np.array([[1] * 8 + [2] * 12] * 2, "int32")])
    np.testing.assert_allclose(packed[:, 8:], model(ids[:, 8:]), atol=1e-5)
    padded, mask = np.pad(ids[:, :7], ((0, 0), (3, 0))), np.arange(10)[None] >= [[3], [3]]
    greedy = option_checks.stored(option_checks.DECODERS)["opt-350m"]["greedy"]
    assert fk.generate(model, None, padded, None, 9, mask=mask).tokens.tolist() == greedy
    # no position after the last one
    assert np.isnan(model(np.ones((1, 65), "int32"))[0, -1]).all()
    assert np.isfinite(model(np.ones((1, 64), "int32"))).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_type", ["phi", "falcon", "opt"])
def test_a_model_file_keeps_the_graph(model_type, tmp_path):
    model = fk.pretrained.build(TINY[model_type]).build(jax.random.key(0))
    fk.save_model(tmp_path / "model.keras", model)
    assert fk.load_model(tmp_path / "model.keras")[0] == model

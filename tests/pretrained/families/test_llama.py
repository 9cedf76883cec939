"""The Llama family against transformers, and its configuration."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.families import llama
from fkeras.pretrained.families.llama import LlamaConfig
from tests.pretrained import checks

FOLDERS = ("llama", "llama_tied", "mistral", "qwen2", "qwen3", "smollm3", "phi3")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_numbers_equal_those_of_transformers(name):
    checks.is_a_causal_decoder(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    loaded = checks.is_written_back(name, tmp_path)
    assert loaded.config.model_type == name.partition("_")[0]


# a ring of a window; blocks without rotary positions
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["mistral", "smollm3"])
def test_a_cache_gives_the_same_tokens(name):
    model, arrays = fk.pretrained.load(checks.DATA / name).model, checks.expected(name)
    prompts = arrays["ids"][:, :7].astype("int32")
    generated = fk.generate(model, None, prompts, max_new_tokens=9)
    assert np.array_equal(generated.tokens, arrays["greedy"])


@pytest.mark.exhaustive
def test_the_default_dtype_is_that_of_the_file():
    loaded = fk.pretrained.load(checks.DATA / "llama_tied")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(loaded.model)} == {"bfloat16"}
    arrays = checks.expected("llama_tied")
    logits = np.asarray(loaded.model(arrays["ids"]), "float32")
    # 8 bits of mantissa in each of some ten products one after the other
    assert np.abs(logits - arrays["logits"]).max() < 0.05 * np.abs(arrays["logits"]).max()
    wide = fk.pretrained.load(checks.DATA / "llama_tied", dtype="mixed_bfloat16").model
    assert {leaf.dtype.name for leaf in jax.tree.leaves(wide)} == {"float32"}
    assert wide(arrays["ids"]).dtype == "bfloat16"


@pytest.mark.exhaustive
def test_packed_texts_do_not_see_each_other():
    model = fk.pretrained.load(checks.DATA / "mistral").model
    ids = np.arange(1, 13, dtype="int32")[None]
    segments = np.array([[1] * 5 + [2] * 7], "int32")
    packed = model([ids, segments])
    np.testing.assert_allclose(packed[:, 5:], model(ids[:, 5:]), atol=1e-5)
    np.testing.assert_allclose(packed[:, :5], model(ids[:, :5]), atol=1e-5)


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(tmp_path):
    checks.is_kept_by_a_model_file("qwen3", tmp_path)


@pytest.mark.exhaustive
def test_the_tiny_configuration_is_unlike_the_defaults():
    default = LlamaConfig()
    for name in ("head_size", "key_heads", "rms_norm_eps", "rope_theta", "attention_bias"):
        assert getattr(llama.TINY, name) != getattr(default, name)
    model = fk.pretrained.build(llama.TINY).build(jax.random.key(0))
    assert model(np.ones((1, 3), "int32")).shape == (1, 3, 67)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("mapping", "field", "value"),
    [
        ({"rope_theta": 5.0, "rope_scaling": None}, "rope_theta", 5.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7}}, "rope_theta", 7.0),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling",
            {"rope_type": "linear", "factor": 2.0},
        ),
        ({"model_type": "mistral"}, "sliding_window", 4096),
        ({"model_type": "mistral", "sliding_window": None}, "sliding_window", None),
        ({"model_type": "qwen2"}, "attention_bias", True),
        ({"model_type": "smollm3"}, "rope_theta", 2e6),
        ({"head_dim": None, "hidden_size": 24, "num_attention_heads": 4}, "head_size", 6),
    ],
)
def test_keys_of_both_versions_and_defaults_of_each_architecture(mapping, field, value):
    config = LlamaConfig.read({"model_type": "llama", **mapping})
    assert getattr(config, field) == value
    assert config.write() == {"model_type": "llama", **mapping}


def test_a_changed_configuration_writes_the_changed_keys():
    mapping = {"model_type": "llama", "rope_parameters": {"rope_theta": 7, "rope_type": "default"}}
    config = LlamaConfig.read(mapping)
    longer = dataclasses.replace(config, num_hidden_layers=2)
    assert longer.write() == {**mapping, "num_hidden_layers": 2}
    slower = dataclasses.replace(config, rope_theta=8.0)
    assert slower.write() == {"model_type": "llama", "rope_theta": 8.0}
    assert LlamaConfig.read(slower.write()).rope_theta == 8.0
    # the other keys of the mapping become keys of their own
    scaling = {"rope_type": "linear", "factor": 4.0}
    mapping["rope_parameters"] = {"rope_theta": 7, **scaling}
    slower = dataclasses.replace(LlamaConfig.read(mapping), rope_theta=8.0)
    assert slower.write() == {"model_type": "llama", "rope_theta": 8.0, "rope_scaling": scaling}
    scaled = dataclasses.replace(LlamaConfig.read(mapping), rope_scaling=None)
    assert scaled.write() == {"model_type": "llama", "rope_theta": 7.0, "rope_scaling": None}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"hidden_act": "swish2"}, "hidden_act"),
        ({"num_hidden_layers": 10**9}, "1 to 10000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "divisor"),
        ({"score_power": 0.5}, "unknown key 'score_power'"),
        ({"attention_multiplier": 0.5}, "attention_multiplier: expected 1.0, since transformers"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"layer_types": ["full_attention"]}, "each of 32 blocks"),
        ({"layer_types": ["odd"] * 32}, "layer_types"),
        ({"rope_theta": "1e4"}, "rope_theta"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"model_type": "mamba"}, "model_type"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        LlamaConfig.read({"model_type": "llama", **mapping})

"""Gemma 2 and 3 against transformers, and their configuration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.stored import loaded as in_memory
from fkeras.layers import rotary
from fkeras.pretrained.families import gemma
from fkeras.pretrained.families.gemma import GemmaConfig
from tests.pretrained import checks

FOLDERS = ("gemma2", "gemma3")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_numbers_equal_those_of_transformers(name):
    loaded = checks.is_a_causal_decoder(name, first="embedding_scale")
    checks.computes_with_a_cache(loaded.model, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    checks.is_written_back(name, tmp_path)


@pytest.mark.exhaustive
def test_a_gguf_file_holds_the_same_model():
    file = fk.pretrained.load(checks.DATA / "gemma2_gguf/model.gguf", dtype="float32")
    folder = fk.pretrained.load(checks.DATA / "gemma2")
    # (w + 1) - 1 is not w in the last bits
    for ours, theirs in zip(*map(jax.tree.leaves, (file.model, folder.model)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert fk.engine.unbuilt(file.model) == fk.engine.unbuilt(folder.model)
    names = ("query_pre_attn_scalar", "sliding_window", "attn_logit_softcapping", "rope_theta")
    assert [getattr(file.config, n) for n in names] == [getattr(folder.config, n) for n in names]


def test_keys_of_sliding_attention_in_a_gguf_file():
    keys = {"block_count": 4, "attention.head_count": 4, "attention.sliding_window": 5}
    pattern = "gemma3.attention.sliding_window_pattern"
    metadata = {"general.architecture": "gemma3", **{f"gemma3.{k}": v for k, v in keys.items()}}
    metadata |= {"gemma3.rope.freq_base": 500.0, "gemma3.rope.freq_base_swa": 30.0, pattern: 2}
    tensors = {"token_embd.weight": in_memory(np.zeros((67, 16), "float32"))}
    config = fk.pretrained.GemmaConfig.read(gemma.gguf_mapping(metadata, tensors))
    assert [config.window(block) for block in range(4)] == [5, None, 5, None]
    assert (config.rope_theta, config.rope_local_base_freq) == (500.0, 30.0)
    with pytest.raises(ValueError, match=f"expected '{pattern}' as int"):
        gemma.gguf_mapping({**metadata, pattern: [True, False]}, tensors)


@pytest.mark.exhaustive
def test_the_factor_of_the_embeddings_is_rounded_to_the_compute_dtype():
    model = fk.pretrained.load(checks.DATA / "gemma2", dtype="bfloat16").model
    # the root of 20 in bfloat16, whose product with 1 would have more digits in float32
    y = model.layers["embedding_scale"](np.ones((1, 1, 20)))
    assert y.dtype == "bfloat16"
    assert float(y[0, 0, 0]) == 4.46875


@pytest.mark.exhaustive
def test_shards_by_role_compute_the_same_numbers():
    mesh = jax.make_mesh((2, 2), ("data", "model"))
    roles = {"batch": "data", **dict.fromkeys(("heads", "kv_heads", "hidden"), "model")}
    sharded = fk.pretrained.load(checks.DATA / "gemma3", mesh=mesh, sharding=roles).model
    kernel = sharded.layers["block_0"].layers["key"].kernel
    assert kernel.sharding.spec == jax.sharding.PartitionSpec(None, "model")
    arrays = checks.expected("gemma3")
    logits = jax.jit(lambda model, ids: model(ids))(sharded, jnp.asarray(arrays["ids"], "int32"))
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


def test_keys_of_both_versions_give_one_configuration():
    old = {
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "rope_theta": 2000.0,
        "rope_local_base_freq": 50.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "sliding_window_pattern": 3,
        "hidden_act": "gelu",
        "cache_implementation": "hybrid",
        "use_bidirectional_attention": False,
    }
    new = {
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 2000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
        "layer_types": [*["sliding_attention"] * 2, "full_attention", "sliding_attention"],
    }
    first, second = GemmaConfig.read(old), GemmaConfig.read(new)
    assert (first.write(), second.write()) == (old, new)
    for config in (first, second):
        assert [config.window(i) for i in range(4)] == [4096, 4096, None, 4096]
        assert config.rotary(2).scaling == rotary.Linear(4.0)
        assert config.rotary(2).max_wavelength == 2000.0
        # scaling is for blocks without window
        assert config.rotary(1).scaling is None
        assert config.rotary(1).max_wavelength == 50.0
    # Gemma 2 has one base for all blocks, and every second block without window
    config = GemmaConfig.read({"model_type": "gemma2", "rope_theta": 7.0})
    assert [config.window(i) for i in range(3)] == [4096, None, 4096]
    assert {config.rotary(i).max_wavelength for i in range(3)} == {7.0}
    assert config.final_logit_softcapping == 30.0
    assert GemmaConfig.read({"model_type": "gemma3_text"}).final_logit_softcapping is None


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(tmp_path):
    checks.is_kept_by_a_model_file("gemma3", tmp_path)


@pytest.mark.exhaustive
def test_the_tiny_configuration_builds():
    model = fk.pretrained.build(gemma.TINY).build(jax.random.key(0))
    assert model(np.ones((1, 3), "int32")).shape == (1, 3, 67)
    # a new scale is 0, next to the 1 that the layer adds
    assert not model.layers["norm"].scale.any()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"hidden_activation": "swiglu"}, "hidden_activation"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "divisor"),
        ({"layer_types": ["full_attention"]}, "each of 26 blocks"),
        ({"num_hidden_layers": 1, "layer_types": ["chunked_attention"]}, "layer_types"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"is_causal": False}, "unknown key 'is_causal' with the value False"),
        ({"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "yarn"}}},
         "'default' for sliding_attention, received 'yarn'"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"attn_logit_softcapping": -1.0}, "attn_logit_softcapping"),
        ({"query_pre_attn_scalar": "256"}, "query_pre_attn_scalar"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GemmaConfig.read({"model_type": "gemma3_text", **mapping})

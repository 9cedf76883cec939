"""Llama 4: its configuration, logits, caches of chunks; test_decoder_numbers.py has more numbers of transformers."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.pretrained.families import llama4
from tests.pretrained import float8_folders, option_checks
from tests.pretrained.float8_folders import ROWS

TINY = llama4.TINY.write()
read = fk.pretrained.Llama4Config.read


def test_blocks():
    config = read(TINY)
    assert config == llama4.TINY and config.head_size == 6
    assert [config.has_rotary(i) for i in range(3)] == [True, False, True]
    assert [config.has_experts(i) for i in range(3)] == [True, False, True]
    assert [config.chunk(i) for i in range(3)] == [5, None, 5]
    # every second block; an empty list is none, and the first files have a number
    keys = {"no_rope_layers": [], "no_rope_layer_interval": 2, "attn_temperature_tuning": 4}
    mapping = {**TINY, **keys, "moe_layers": None, "interleave_moe_layer_step": 2}
    config = read(mapping)
    assert [config.has_rotary(i) for i in range(3)] == [True, False, True]
    assert [config.has_experts(i) for i in range(3)] == [False, True, False]
    assert config.attn_temperature_tuning is True and config.write() == mapping
    types = ["full_attention", "chunked_attention", "full_attention"]
    assert [read({**TINY, "layer_types": types}).chunk(i) for i in range(3)] == [None, 5, None]
    assert read({**TINY, "attention_chunk_size": None}).chunk(0) is None
    published = fk.pretrained.Llama4Config()
    assert (published.head_size, published.rope_theta, published.chunk(3)) == (128, 5e5, None)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_experts_per_tok": 5}, "num_experts_per_tok: expected at most .* 4, received 5"),
        ({"head_dim": 5}, "head_dim: expected an even number, received 5"),
        ({"no_rope_layers": [1]}, "no_rope_layers: expected 0 or 1 for each of 3 blocks"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types.*chunked_attention"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected a type for each of 3 blocks"),
        (
            {"layer_types": ["chunked_attention"] * 3, "attention_chunk_size": None},
            "attention_chunk_size: expected a number of positions",
        ),
        ({"attention_chunk_size": 0}, "attention_chunk_size"),
        ({"floor_scale": 0}, "floor_scale"),
        ({"attn_temperature_tuning": "yes"}, "attn_temperature_tuning"),
        ({"moe_layers": [-1]}, "moe_layers"),
        ({"sliding_window": 5}, "sliding_window: expected None, since transformers ignores"),
        ({"hidden_act": "tanh"}, "Experts have no other activation"),
        ({"for_llm_compressor": True}, "unknown key 'for_llm_compressor'"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read({**TINY, **mapping})


def entry_of(name, folder):
    """Loads the model of an entry of decoders.json.gz."""
    entry = option_checks.stored(option_checks.DECODERS)[name]
    option_checks.write_folder(folder, entry["config"], entry["tensors"])
    return fk.pretrained.load(folder), entry


# compiles a model of four blocks: 3 s
def test_logits_equal_those_of_transformers(tmp_path):
    loaded, entry = entry_of("llama4_text", tmp_path)
    logits = jax.jit(lambda model, ids: model(ids))(loaded.model, option_checks.prompts())
    numbers = option_checks.spread(logits, 9)
    np.testing.assert_allclose(numbers, entry["logits"], atol=1e-5, rtol=1e-4)


@pytest.mark.exhaustive
def test_padding_changes_no_token(tmp_path):
    model = entry_of("llama4_text", tmp_path)[0].model
    ids = option_checks.prompts()
    plain = fk.generate(model, None, ids, max_new_tokens=6, cache=True)
    padded = np.concatenate([np.zeros((2, 4), "int32"), ids], axis=1)
    mask = np.arange(24) >= 4
    padded = fk.generate(
        model, None, padded, max_new_tokens=6, cache=True, mask=np.stack([mask] * 2)
    )
    np.testing.assert_array_equal(padded.tokens, plain.tokens)
    full = fk.generate(model, None, ids, max_new_tokens=6, cache=False)
    np.testing.assert_array_equal(full.tokens, plain.tokens)


@pytest.mark.exhaustive
def test_half_precision_is_close(tmp_path):
    model = entry_of("llama4_text", tmp_path)[0].model
    half = fk.pretrained.load(tmp_path, dtype="bfloat16").model
    ids = option_checks.prompts()
    logits = half(ids)
    assert logits.dtype == "bfloat16"
    expected = np.asarray(model(ids))
    error = np.abs(np.asarray(logits, "float32") - expected).max() / np.abs(expected).max()
    assert error < 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [None, "text"])
def test_quantized_folders_have_each_expert_alone(part, tmp_path):
    name = "llama4_text" if part is None else "llama4"
    entry = option_checks.stored(option_checks.DECODERS)[name]
    option_checks.write_folder(tmp_path, entry["config"], entry["tensors"])
    expected = fk.pretrained.load(tmp_path, part=part)
    tensors = float8_folders.unpacked(safetensors.numpy.load_file(tmp_path / "model.safetensors"))
    folder = float8_folders.write_folder(tmp_path / "alone", tensors, mapping=entry["config"])
    loaded = fk.pretrained.load(folder, part=part)
    assert loaded.model == expected.model
    fk.pretrained.save(tmp_path / "packed", loaded.model, loaded.state, loaded.config)
    assert fk.pretrained.load(tmp_path / "packed").model == expected.model
    codes = {}
    for tensor, array in tensors.items():
        codes[tensor] = array
        if ".experts." in tensor:
            codes[tensor], codes[f"{tensor}_scale"] = float8_folders.coded(array, ROWS)
    rounded = float8_folders.floats(codes, ROWS)
    float8_folders.write_folder(tmp_path / "floats", rounded, mapping=entry["config"])
    quantization = float8_folders.compressed(strategy="channel")
    float8_folders.write_folder(tmp_path / "codes", codes, quantization, entry["config"])
    ours = fk.pretrained.load(tmp_path / "codes", part=part)
    assert ours.model == fk.pretrained.load(tmp_path / "floats", part=part).model
    assert ours.config == dataclasses.replace(expected.config, layout=None)

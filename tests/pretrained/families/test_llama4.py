"""Llama 4: its configuration, logits, caches of chunks; test_decoder_numbers.py has more numbers of transformers."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.stored import loaded as in_memory
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


# llama.cpp has no keys for these
FIXED = {
    "attention_chunk_size": 8192,
    "floor_scale": 8192,
    "attn_scale": 0.1,
    "attn_temperature_tuning": True,
    "use_qk_norm": True,
    "no_rope_layers": [],
    "no_rope_layer_interval": 4,
}
SCALING = {
    "rope_type": "llama3",
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}
OPTIONS = {
    "llama4_text": {
        "interleave_moe_layer_step": 1,
        "rope_theta": 500000.0,
        "rope_scaling": SCALING,
    },
    "llama4_text-dense": {"interleave_moe_layer_step": 2, "rope_scaling": None},
}


def folder_of(name, folder):
    """Writes a folder with the numbers that llama.cpp fixes."""
    entry = option_checks.stored(option_checks.DECODERS)[name]
    left = {"moe_layers", "layer_types", *FIXED, *OPTIONS[name]}
    config = {key: item for key, item in entry["config"].items() if key not in left}
    option_checks.write_folder(folder, {**config, **FIXED, **OPTIONS[name]}, entry["tensors"])
    return folder


def write_gguf(folder, **keys):
    """Writes the GGUF file of a folder as llama.cpp's converter does, with other values of keys."""
    gguf = pytest.importorskip("gguf")
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama4")
    head = config["head_dim"]
    numbers = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size_mlp"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head,
        "attention.value_length": head,
        "vocab_size": config["vocab_size"],
        "rope.dimension_count": head,
        "expert_count": config["num_local_experts"],
        "expert_used_count": config.get("num_experts_per_tok", 1),
        "expert_feed_forward_length": config["intermediate_size"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
        **keys,
    }
    for key, number in numbers.items():
        if number is not None:
            writer.add_uint32(f"llama4.{key}", number)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-5))
    if config["rope_scaling"]:
        lengths = 2 * np.pi * config["rope_theta"] ** (np.arange(0, head, 2) / head)
        writer.add_tensor("rope_freqs.weight", np.where(lengths < 8192, 1, 16).astype("float32"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA4, config["num_hidden_layers"])

    def add(tensor, array):
        writer.add_tensor(names.get_name(tensor, (".weight", ".bias")), np.ascontiguousarray(array))

    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    for tensor, array in tensors.items():
        if "gate_up_proj" in tensor:
            for part, half in zip(("gate", "up"), np.split(array, 2, axis=2), strict=True):
                add(tensor.replace("gate_up", part) + ".weight", half.swapaxes(1, 2))
        elif ".experts." in tensor:
            add(f"{tensor}.weight", array.swapaxes(1, 2))
        else:
            add(tensor, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "m.gguf"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_gguf_file_holds_the_same_model(name, tmp_path):
    path = write_gguf(folder_of(name, tmp_path))
    file, folder = fk.pretrained.load(path), fk.pretrained.load(tmp_path)
    assert file.model == folder.model
    assert file.config.rope_scaling == folder.config.rope_scaling
    fk.pretrained.save(tmp_path / "again", file.model, file.state, file.config)
    again = fk.pretrained.load(tmp_path / "again")
    assert again.model == folder.model
    weights = (tmp_path / "model.safetensors").read_bytes()
    assert weights == (tmp_path / "again/model.safetensors").read_bytes()


def gguf_keys(**keys):
    """The keys and tensors of a file."""
    numbers = {key: 4 for _, key in llama4._GGUF_KEYS} | {
        "block_count": 2,
        "attention.head_count": 2,
    }
    metadata = {f"llama4.{key}": number for key, number in (numbers | keys).items()}
    tensors = {"token_embd.weight": in_memory(np.zeros((7, 8), "float32"))}
    return {"general.architecture": "llama4", **metadata}, tensors


def test_gguf_keys():
    for count, has_norm in ((128, False), (16, True)):
        keys = {"expert_count": count, "attention.sliding_window": 8192, "expert_gating_func": 2}
        mapping = llama4.gguf_mapping(*gguf_keys(**keys))
        assert (mapping["num_local_experts"], mapping["use_qk_norm"]) == (count, has_norm)
        assert "sliding_window" not in mapping


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attention.sliding_window": 0}, "expected attention to chunks .*sliding_window=0"),
        ({"attention.sliding_window_pattern": 2}, "sliding_window_pattern=2"),
        ({"attention.sliding_window_pattern": [1, 0]}, "as int"),
        ({"expert_count": None}, "expected the key 'llama4.expert_count', received none"),
        ({"interleave_moe_layer_step": "2"}, "'llama4.interleave_moe_layer_step' as int"),
        ({"expert_gating_func": 2.5}, "'llama4.expert_gating_func' as int"),
    ],
)
def test_wrong_gguf_keys_are_rejected(keys, message):
    with pytest.raises(ValueError, match=message):
        llama4.gguf_mapping(*gguf_keys(**keys))

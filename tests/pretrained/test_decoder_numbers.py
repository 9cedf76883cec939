"""Decoders with unusual options: the numbers and tokens of transformers, folders and GGUF files."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras import transforms
from tests.pretrained import option_checks
from tests.support.quick_cases import quick_cases

ENTRIES = option_checks.stored(option_checks.DECODERS)
QUICK = "gpt_neox-parallel"
#: a folder with experts of 4 bits, which `save` writes as floats
MXFP4 = "gpt_oss-mxfp4"
#: folders with images, whose text part is compared
PARTS = tuple(name for name, entry in ENTRIES.items() if "vision_config" in entry["config"])


def folder_of(name, path):
    """Writes the folder of an entry."""
    entry = ENTRIES[name]
    option_checks.write_folder(path, entry["config"], entry["tensors"])
    return path


def close(array, numbers, message):
    """Compares numbers spread over an array, relative to the largest number."""
    expected = np.asarray(numbers)
    ours = np.asarray(option_checks.spread(array, 9))
    error = np.abs(ours - expected).max() / np.abs(expected).max()
    assert error < 3e-6, (message, error)


@pytest.mark.parametrize("name", quick_cases(ENTRIES, QUICK))
def test_logits_hidden_states_and_tokens_equal_those_of_transformers(name, tmp_path):
    entry, ids = ENTRIES[name], option_checks.prompts()
    part = "text" if name in PARTS else None
    model = fk.pretrained.load(folder_of(name, tmp_path), part=part).model
    count = len(entry["hidden"]) - 1
    probed = transforms.probe(model, [f"block_{n}" for n in range(count)])
    logits, values = jax.jit(lambda model, ids: model(ids))(probed, ids)
    close(logits, entry["logits"], "logits")
    # the last hidden state of transformers is that after the last norm
    for n in range(count - 1):
        close(values[f"block_{n}_ib-0"], entry["hidden"][n + 1], f"block_{n}")
    generated = fk.generate(model, None, ids[:, :7], max_new_tokens=9, cache=True)
    assert generated.tokens.tolist() == entry["greedy"]


@pytest.mark.parametrize(
    "name", quick_cases([n for n in ENTRIES if n not in (*PARTS, MXFP4)], QUICK)
)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    loaded = fk.pretrained.load(folder_of(name, tmp_path))
    fk.pretrained.save(tmp_path / "again", loaded.model, loaded.state, loaded.config)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()


# the names of old files, before one model with several parts had one prefix
OLD = {
    "llava": {
        "lm_head.": "language_model.lm_head.",
        "model.language_model.": "language_model.model.",
    },
    "gemma3": {"model.language_model.": "language_model.model.", "model.": ""},
    "qwen2_vl": {"model.language_model.": "model.", "model.visual.": "visual."},
}


@pytest.mark.parametrize("name", quick_cases(PARTS, "qwen2_vl"))
def test_the_text_part_is_written_as_a_folder(name, tmp_path):
    folder = folder_of(name, tmp_path)
    loaded = fk.pretrained.load(folder, part="text")
    fk.pretrained.save(tmp_path / "text", loaded.model, loaded.state, loaded.config)
    again = fk.pretrained.load(tmp_path / "text")
    assert (again.model, again.config) == (loaded.model, loaded.config)
    with pytest.raises(fk.FileError, match=rf"received the type '{name}'.*part=\"text\""):
        fk.pretrained.load(folder)
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    for new, old in OLD.get(name, {}).items():
        arrays = {
            old + n.removeprefix(new) if n.startswith(new) else n: a for n, a in arrays.items()
        }
    safetensors.numpy.save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    assert fk.pretrained.load(folder, part="text").model == loaded.model
    names = [n for n in arrays if "norm.weight" in n and "vis" not in n]
    twice = {
        **arrays,
        "language_model.model.a": arrays[names[0]],
        "model.language_model.a": arrays[names[0]],
    }
    safetensors.numpy.save_file(twice, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(fk.FileError, match="a name of its own for each tensor"):
        fk.pretrained.load(folder, part="text")


def test_parts_of_other_folders_are_refused(tmp_path):
    with pytest.raises(fk.FileError, match="part: expected a folder of type gemma3, .*'gpt_neox'"):
        fk.pretrained.load(folder_of(QUICK, tmp_path), part="text")
    folder_of("gemma3", tmp_path)
    with pytest.raises(fk.FileError, match="part: expected 'text' or None, received 'vision'"):
        fk.pretrained.load(tmp_path, part="vision")
    config = tmp_path / "config.json"
    mapping = json.loads(config.read_text())
    for changes, message in (
        ({"architectures": ["Gemma3ForSequenceClassification"]}, "another head"),
        ({"text_config": 3}, "text_config: expected a mapping"),
        ({"text_config": {"model_type": "gemma3_text", "score": 2}}, "unknown key 'score'"),
    ):
        config.write_text(json.dumps({**mapping, **changes}))
        with pytest.raises(fk.FileError, match=message):
            fk.pretrained.load(tmp_path, part="text")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(fk.FileError, match="a GGUF file has no parts"):
        fk.pretrained.load(tmp_path / "m.gguf", part="text")


def in_parts(array, groups, counts):
    """The rows of a fused projection, ordered by part and not by group, as llama.cpp's converter does."""
    rows = array.reshape(groups, sum(counts), -1, *array.shape[1:])
    parts = np.split(rows, np.cumsum(counts)[:-1], axis=1)
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])


def permuted(array, heads):
    """The order of the channels of a head in GGUF files of Llama."""
    split = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return split.swapaxes(1, 2).reshape(array.shape)


ARCHITECTURES = {"gpt_neox": "GPTNEOX", "phi": "PHI2"}
# the scaling of positions of gpt-oss
_YARN = {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}


def experts_of(gguf, tensor, array):
    """The tensors of the experts of gpt-oss in GGUF files, with kernels of 4 bits; None for other tensors."""
    block, _, rest = tensor.removeprefix("model.layers.").partition(".mlp.experts.")
    if not rest:
        return None
    parts = {"gate": array[..., ::2], "up": array[..., 1::2]} if "gate" in rest else {"down": array}
    kind = gguf.GGMLQuantizationType.MXFP4

    def coded(array):
        return gguf.quants.quantize(np.ascontiguousarray(array.swapaxes(1, 2)), kind)

    end = "bias" if rest.endswith("_bias") else "weight"
    return {
        f"blk.{block}.ffn_{part}_exps.{end}": (own, None) if end == "bias" else (coded(own), kind)
        for part, own in parts.items()
    }


def write_gguf(name, path):
    """Writes the GGUF file of an entry with the names of the gguf package."""
    gguf = pytest.importorskip("gguf")
    config = ENTRIES[name]["config"]
    model_type, heads = config["model_type"], config["num_attention_heads"]
    kind = gguf.MODEL_ARCH[ARCHITECTURES.get(model_type) or model_type.upper()]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    sizes = [config[key] for key in ("intermediate_size", "ffn_hidden_size") if key in config]
    writer.add_feed_forward_length(sizes[0] if sizes else 4 * config["hidden_size"])
    writer.add_head_count(heads)
    default = 1 if model_type == "falcon" else heads
    key_heads = config.get("num_key_value_heads", config.get("num_kv_heads", default))
    writer.add_head_count_kv(key_heads)
    head = config.get("head_dim", config["hidden_size"] // heads)
    writer.add_key_length(head)
    partial = config.get("rotary_pct", config.get("partial_rotary_factor"))
    if model_type in ("gpt_neox", "phi"):
        partial = partial or {"gpt_neox": 0.25, "phi": 0.5}[model_type]
        writer.add_rope_dimension_count(int(partial * head))
    writer.add_rope_freq_base(config.get("rope_theta", config.get("rotary_emb_base", 10000.0)))
    if model_type in ("gemma", "olmo2", "granite", "gpt_oss"):
        default = 1e-5 if model_type == "gpt_oss" else 1e-6
        writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", default))
    else:
        names = ("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
        writer.add_layer_norm_eps(next((config[n] for n in names if n in config), 1e-5))
    if model_type == "gpt_neox":
        writer.add_parallel_residual(config.get("use_parallel_residual", True))
    if model_type == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    scaling = config.get("rope_scaling", _YARN if model_type == "gpt_oss" else {})
    if model_type == "gpt_oss":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_value_length(head)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling.get("type") or "yarn"))
        writer.add_rope_scaling_factor(scaling["factor"])
    if "original_max_position_embeddings" in scaling:
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    source = path.parent
    if name == MXFP4:
        source = path.parent / "floats"
        loaded = fk.pretrained.load(path.parent, dtype="float32")
        fk.pretrained.save(source, loaded.model, loaded.state, loaded.config)
    arrays = safetensors.numpy.load_file(source / "model.safetensors")
    for tensor, array in arrays.items():
        experts = experts_of(gguf, tensor, array) if name == MXFP4 else None
        for part, (own, coded) in (experts or {}).items():
            writer.add_tensor(part, own, raw_dtype=coded)
        if experts:
            continue
        if "query_key_value" in tensor:
            array = in_parts(array, *_groups(config))
        if model_type == "granite" and ("q_proj" in tensor or "k_proj" in tensor):
            array = permuted(array, heads if "q_proj" in tensor else key_heads)
        if model_type == "gemma" and "norm" in tensor:
            array = array + 1
        tensor = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(f"{tensor}.weight" if "sinks" in tensor else tensor, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _groups(config):
    """The number of groups, and the heads of each part of a group."""
    heads = config["num_attention_heads"]
    if config.get("new_decoder_architecture"):
        return config["num_kv_heads"], (heads // config["num_kv_heads"], 1, 1)
    return (1, (heads, 1, 1)) if config["model_type"] == "falcon" else (heads, (1, 1, 1))


# GGUF files of DeepSeek are not read, those of Llama 4 by test_llama4.py; llama.cpp has no OPT, no norms of heads in Phi, no window in StarCoder 2, and only parallel Falcon with rotary positions
OTHERS = ("phi", "starcoder2", "falcon-sequential", "falcon-alibi", "opt", "opt-350m", "opt-plain")
OTHERS += (
    "deepseek_v2",
    "deepseek_v2-lite",
    "deepseek_v2-groups",
    "deepseek_v3",
    "deepseek_v3-plain",
    "llama4_text",
    "llama4_text-dense",
)
# GGUF files have no keys for other gates and for full attention in other blocks
OTHERS += ("gpt_oss", "gpt_oss-plain")
GGUF = [name for name in ENTRIES if name not in (*OTHERS, *PARTS)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GGUF)
def test_a_gguf_file_holds_the_same_model(name, tmp_path):
    path = write_gguf(name, folder_of(name, tmp_path) / "m.gguf")
    file, folder = fk.pretrained.load(path), fk.pretrained.load(tmp_path)
    for ours, theirs in zip(*map(jax.tree.leaves, (file.model, folder.model)), strict=True):
        # (w + 1) - 1 is not w in the last bits
        np.testing.assert_allclose(ours, theirs, atol=1e-6 if name == "gemma" else 0)
    fk.pretrained.save(tmp_path / "again", file.model, file.state, file.config)
    again = fk.pretrained.load(tmp_path / "again")
    assert again.model == file.model
    assert fk.engine.unbuilt(file.model) == fk.engine.unbuilt(folder.model)

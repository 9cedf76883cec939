"""GGUF files of the stored folders, written with the gguf package as llama.cpp's converter does."""

import json
import re

import gguf
import numpy as np
import safetensors.numpy

from tests.pretrained.checks import DATA

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
PERMUTED = ("llama", "mistral", "smollm3", "mixtral")
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, _, block, inner = stem.split(".", 3)
    return f"blk.{block}.{NAMES[inner]}.{kind}"


def permuted(rows, heads):
    """The order in which llama.cpp's converter writes query and key of Llama."""
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def stacked(tensors):
    """The tensors with those of experts stacked, as llama.cpp's converter does."""
    result, parts = {}, {}
    for name, array in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if match:
            parts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = array
        else:
            result[name] = array
    stacks = {name: [arrays[e] for e in sorted(arrays)] for name, arrays in parts.items()}
    return result | {name: np.stack(arrays) for name, arrays in stacks.items()}


def write(name, path, encode=None, **keys):
    """Writes the GGUF file of a folder.

    Args:
        encode: returns array and type for a name and an array; float32 by default.
        keys: further keys of the architecture.
    """
    config = json.loads((DATA / name / "config.json").read_text())
    model_type = config["model_type"]
    is_llama = model_type in ("mistral", "mixtral")
    architecture = "llama" if is_llama else model_type.replace("_", "")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_context_length(config["max_position_embeddings"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(head)
    turning = int(head * rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(turning)
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        size = config["shared_expert_intermediate_size"]
        writer.add_expert_shared_feed_forward_length(size)
    if config.get("sliding_window") and model_type in ("mistral", "mixtral", "phi3"):
        writer.add_sliding_window(config["sliding_window"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for kind in ("short", "long"):
            factors = np.array(rope[f"{kind}_factor"], "float32")
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)
    if rope["rope_type"] == "llama3":
        frequencies = rope["rope_theta"] ** (-np.arange(0, turning, 2) / turning)
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        share = np.clip((turns - low) / (high - low), 0, 1)
        divisors = 1 / ((1 - share) / rope["factor"] + share)
        writer.add_tensor("rope_freqs.weight", divisors.astype("float32"))
    for key, value in keys.items():
        writer.add_key_value(key, *value)
    tensors = safetensors.numpy.load_file(DATA / name / "model.safetensors")
    for tensor, array in stacked(tensors).items():
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        part = next((config[key] for word, key in heads.items() if word in tensor), None)
        if model_type in PERMUTED and part is not None:
            array = permuted(array, part)
        array, kind = encode(tensor, array) if encode else (array, None)
        writer.add_tensor(gguf_name(tensor), array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""Writes tests/pretrained/data/decoders.json.gz: what transformers computes with small decoders.

For each row: `config.json` with unusual options, the names and shapes of the tensors, numbers of the
hidden states and logits, and the tokens of greedy decoding. Tensors have the numbers of
`option_checks.weights`, which depend only on name and shape, so that the tests write them again.

Run it like option_reference.py: `python tools/references/decoder_reference.py [NAME ...]`. With
`--open FOLDER ...` it opens folders that fkeras wrote, and compares their logits with `logits.npy`.
"""

import gzip
import json
import pathlib
import sys
import tempfile
from unittest import mock

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained import option_checks

FILE = option_checks.DECODERS
SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
ROTARY = {**SMALL, "intermediate_size": 20, "rope_theta": 300.0}
KEYS = {**ROTARY, "num_key_value_heads": 2}
NEOX = {**SMALL, "intermediate_size": 20, "rotary_emb_base": 300, "layer_norm_eps": 1e-3}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
FALCON = {**SMALL, "rope_theta": 300.0}
FULL, CHUNKED = "full_attention", "chunked_attention"
LATENT = {
    **{**ROTARY, "hidden_size": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 6},
    **{"qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 5, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 12, "experts_implementation": "eager"},
}
LATENT_3 = {**LATENT, "num_key_value_heads": 4}
LLAMA_4 = {
    **{**KEYS, "hidden_size": 24, "head_dim": 8, "intermediate_size": 12, "rms_norm_eps": 1e-3},
    **{"intermediate_size_mlp": 20, "num_local_experts": 4, "attention_chunk_size": 5},
    **{"floor_scale": 3, "attn_scale": 0.5, "num_hidden_layers": 4},
}
_EYES = {
    **{"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1, "image_size": 8},
    **{"num_attention_heads": 2, "patch_size": 4},
}
_EYES_2 = {"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 32, "patch_size": 4}
_EYES_25 = {
    **{"depth": 1, "hidden_size": 16, "intermediate_size": 12, "num_heads": 2, "patch_size": 4},
    **{"out_hidden_size": 32, "fullatt_block_indexes": [0], "window_size": 16},
}
_EYES_3 = {
    **{"depth": 1, "hidden_size": 16, "intermediate_size": 12, "num_heads": 2, "patch_size": 4},
    **{"out_hidden_size": 32, "num_position_embeddings": 4, "deepstack_visual_indexes": []},
}
_LLAMA = {**KEYS, "model_type": "llama", "attention_bias": True}
_MROPE = {"type": "mrope", "mrope_section": [1, 1, 2]}
_IMAGE = {"image_token_id": 66, "video_token_id": 65, "vision_start_token_id": 64}
#: folders with images, whose text part is compared
PARTS = {
    "gemma3": (
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {
                **{**KEYS, "head_dim": 10, "sliding_window": 5, "rms_norm_eps": 1e-3},
                **{"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "hidden_size": 24},
            },
            "vision_config": _EYES,
            "eos_token_id": [1, 60],
        },
    ),
    "llama4": (
        "Llama4ForConditionalGeneration",
        {
            "text_config": {
                **{**LLAMA_4, "no_rope_layer_interval": 2, "interleave_moe_layer_step": 2},
                **{"use_qk_norm": False, "attn_temperature_tuning": True, "no_rope_layers": []},
            },
            "vision_config": {
                **{**_EYES, "vision_output_dim": 8, "projector_input_dim": 8},
                **{"projector_output_dim": 8, "intermediate_size": 64},
            },
        },
    ),
    "llava": ("LlavaForConditionalGeneration", {"text_config": _LLAMA, "vision_config": _EYES}),
    "llava_next": (
        "LlavaNextForConditionalGeneration",
        {"text_config": {**KEYS, "model_type": "mistral"}, "vision_config": _EYES},
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        {
            "text_config": {**KEYS, "model_type": "mistral", "head_dim": 10, "sliding_window": 5},
            "vision_config": {**_EYES, "model_type": "pixtral"},
        },
    ),
    "idefics3": (
        "Idefics3ForConditionalGeneration",
        {"text_config": {**_LLAMA, "tie_word_embeddings": False}, "vision_config": _EYES},
    ),
    "smolvlm": (
        "SmolVLMForConditionalGeneration",
        {"text_config": {**_LLAMA, "rms_norm_eps": 1e-3}, "vision_config": _EYES},
    ),
    # the keys of the text without a section, as in the published files
    "qwen2_vl": (
        "Qwen2VLForConditionalGeneration",
        {**KEYS, "rope_scaling": _MROPE, "vision_config": _EYES_2, **_IMAGE},
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLForConditionalGeneration",
        {
            **{**KEYS, "rope_scaling": {**_MROPE, "rope_type": "default", "type": "default"}},
            **{"vision_config": _EYES_25, "tie_word_embeddings": True, **_IMAGE},
            **{"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
        },
    ),
    "qwen3_vl": (
        "Qwen3VLForConditionalGeneration",
        {
            "text_config": {
                **{**KEYS, "head_dim": 8, "model_type": "qwen3_vl_text"},
                "rope_scaling": {
                    "mrope_section": [2, 1, 1],
                    "mrope_interleaved": True,
                    "rope_type": "default",
                },
            },
            "vision_config": _EYES_3,
            "tie_word_embeddings": True,
            **_IMAGE,
        },
    ),
}
#: name, class and keys of the configurations
ROWS = {
    "gpt_neox": ("GPTNeoXForCausalLM", {**NEOX, "rotary_pct": 0.5, "use_parallel_residual": False}),
    "gpt_neox-parallel": (
        "GPTNeoXForCausalLM",
        {
            **{**NEOX, "attention_bias": False, "tie_word_embeddings": True},
            "rope_scaling": {"type": "linear", "factor": 2.0},
        },
    ),
    "gemma": (
        "GemmaForCausalLM",
        {
            **{**ROTARY, "hidden_size": 24, "head_dim": 10, "num_key_value_heads": 1},
            **{"hidden_act": "gelu", "attention_bias": True, "rms_norm_eps": 1e-3},
        },
    ),
    "phi": (
        "PhiForCausalLM",
        {
            **{**KEYS, "qk_layernorm": True, "partial_rotary_factor": 0.75},
            **{"layer_norm_eps": 1e-3, "hidden_act": "relu"},
        },
    ),
    "phi-tied": (
        "PhiForCausalLM",
        {**ROTARY, "tie_word_embeddings": True, "num_key_value_heads": 1},
    ),
    "olmo2": (
        "Olmo2ForCausalLM",
        {**KEYS, "rope_scaling": YARN, "attention_bias": True, "rms_norm_eps": 1e-3},
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            **{**KEYS, "embedding_multiplier": 3.0, "residual_multiplier": 0.3},
            **{"attention_multiplier": 0.2, "logits_scaling": 4.0, "attention_bias": True},
            **{"mlp_bias": True, "tie_word_embeddings": True},
        },
    ),
    "starcoder2": ("Starcoder2ForCausalLM", {**KEYS, "sliding_window": 5, "norm_epsilon": 1e-3}),
    "starcoder2-plain": (
        "Starcoder2ForCausalLM",
        {**KEYS, "use_bias": False, "tie_word_embeddings": False},
    ),
    "falcon": ("FalconForCausalLM", {**FALCON, "layer_norm_epsilon": 1e-3}),
    "falcon-40b": (
        "FalconForCausalLM",
        {
            **{**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
            **{"tie_word_embeddings": False, "ffn_hidden_size": 20},
        },
    ),
    "falcon-11b": (
        "FalconForCausalLM",
        {
            **{**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
            **{"num_ln_in_parallel_attn": 1, "rope_scaling": {**YARN}},
        },
    ),
    "falcon-sequential": (
        "FalconForCausalLM",
        {
            **{**FALCON, "multi_query": False, "parallel_attn": False, "bias": True},
            **{"activation": "relu", "ffn_hidden_size": 20},
        },
    ),
    # six heads: the slopes are no powers of 2
    "falcon-alibi": (
        "FalconForCausalLM",
        {
            **{**SMALL, "hidden_size": 36, "num_attention_heads": 6, "alibi": True, "bias": True},
            **{"multi_query": False, "parallel_attn": False},
        },
    ),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {
            **{**LATENT, "q_lora_rank": 10, "attention_bias": True, "routed_scaling_factor": 2.5},
            **{"first_k_dense_replace": 1, "rms_norm_eps": 1e-3},
            "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
        },
    ),
    "deepseek_v2-lite": (
        "DeepseekV2ForCausalLM",
        {**LATENT, "q_lora_rank": None, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "deepseek_v2-groups": (
        "DeepseekV2ForCausalLM",
        {
            **{**LATENT, "q_lora_rank": 10, "n_routed_experts": 6, "n_group": 3, "topk_group": 2},
            **{"topk_method": "group_limited_greedy", "routed_scaling_factor": 4.0},
        },
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            **{**LATENT_3, "q_lora_rank": 10, "n_routed_experts": 6, "n_group": 3, "topk_group": 2},
            **{"first_k_dense_replace": 1, "attention_bias": True, "rms_norm_eps": 1e-3},
            "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
        },
    ),
    "deepseek_v3-plain": (
        "DeepseekV3ForCausalLM",
        {
            **{**LATENT_3, "q_lora_rank": None, "n_group": 1, "topk_group": 1},
            **{"norm_topk_prob": False, "rope_interleave": False, "first_k_dense_replace": 0},
            **{"n_shared_experts": 2, "tie_word_embeddings": True, "routed_scaling_factor": 1.5},
        },
    ),
    # the factors of the rotary scaling are equal, as in Scout
    "llama4_text": (
        "Llama4ForCausalLM",
        {
            **{**LLAMA_4, "no_rope_layers": [1, 0, 1, 0], "attention_bias": True},
            "rope_scaling": {
                **{"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0},
                **{"high_freq_factor": 1.0, "original_max_position_embeddings": 16},
            },
        },
    ),
    "llama4_text-dense": (
        "Llama4ForCausalLM",
        {
            **{**LLAMA_4, "moe_layers": [1, 3], "num_experts_per_tok": 2, "use_qk_norm": False},
            **{"layer_types": [FULL, CHUNKED, CHUNKED, FULL], "no_rope_layer_interval": 3},
            **{"attn_temperature_tuning": False, "tie_word_embeddings": True},
            "rope_scaling": YARN,
        },
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        {
            **{**KEYS, "hidden_size": 24, "head_dim": 10, "num_local_experts": 5},
            **{"num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 0.4},
            **{"swiglu_alpha": 1.3, "rms_norm_eps": 1e-3, "experts_implementation": "eager"},
            "rope_scaling": {**YARN, "beta_fast": 3.0, "truncate": False},
        },
    ),
    # the scaling and the factor of the gate are those of the class
    "gpt_oss-plain": (
        "GptOssForCausalLM",
        {
            **{**KEYS, "head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 1},
            **{"sliding_window": 4, "attention_bias": False, "tie_word_embeddings": True},
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            "experts_implementation": "eager",
        },
    ),
    "gpt_oss-mxfp4": (
        "GptOssForCausalLM",
        {
            **{**KEYS, "head_dim": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
            **{"intermediate_size": 64, "sliding_window": 5},
            **{"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}},
            "experts_implementation": "eager",
        },
    ),
    "opt": ("OPTForCausalLM", {**SMALL, "ffn_dim": 20, "pad_token_id": 1}),
    "opt-350m": (
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 20, "do_layer_norm_before": False, "word_embed_proj_dim": 12},
    ),
    "opt-plain": (
        "OPTForCausalLM",
        {
            **{**SMALL, "ffn_dim": 20, "enable_bias": False, "activation_function": "gelu"},
            **{"layer_norm_elementwise_affine": False, "tie_word_embeddings": False},
        },
    ),
}


#: decoders whose products and sums are computed in float64
DOUBLE = ("qwen2_5_vl",)


def in_blocks(shapes):
    """Returns the shapes of the tensors of MXFP4."""
    result = {}
    for name, shape in shapes.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, columns, rows = shape
            result[f"{name}_blocks"] = [experts, rows, columns // 32, 16]
            result[f"{name}_scales"] = [experts, rows, columns // 32]
        else:
            result[name] = shape
    return result


@torch.no_grad()
def describe(model_type, cls, keys):
    """Returns the entry of a row."""
    mapping = {"model_type": model_type, "architectures": [cls], **keys}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "config.json").write_text(json.dumps(mapping))
        kind = getattr(transformers, cls)
        kind(transformers.AutoConfig.from_pretrained(path)).save_pretrained(path)
        shapes = {n: list(a.shape) for n, a in load_file(path / "model.safetensors").items()}
        shapes = in_blocks(shapes) if "quantization_config" in keys else shapes
        arrays = {name: option_checks.weights(name, shape) for name, shape in shapes.items()}
        save_file(arrays, path / "model.safetensors", {"format": "pt"})
        (path / "config.json").write_text(json.dumps(mapping))
        mapping.pop("experts_implementation", None)
        # eager attention of Falcon adds ALiBi twice
        attention = "sdpa" if keys.get("alibi") else "eager"
        model = kind.from_pretrained(path, dtype=torch.float32, attn_implementation=attention)
        # the class of texts and images fails in transformers 5.24: its language model has no images
        model = (model.language_model if model_type == "llama4" else model).eval()
    # rounding of float32 alone is about half of the tolerance of the tests
    is_double = model_type in DOUBLE
    model = model.double() if is_double else model
    ids = torch.tensor(option_checks.prompts().astype("int64"))
    # normalizations ask for float32 by name
    with mock.patch.object(torch, "float32", torch.float64 if is_double else torch.float32):
        out = model(ids, output_hidden_states=True)
    tokens = ids[:, :7]
    for _ in range(9):
        tokens = torch.cat([tokens, model(tokens).logits[:, -1].argmax(-1, keepdim=True)], 1)
    hidden = [option_checks.spread(state.numpy(), 9) for state in out.hidden_states]
    return {
        "config": mapping,
        "tensors": shapes,
        "hidden": hidden,
        "logits": option_checks.spread(out.logits.numpy(), 9),
        "greedy": tokens[:, 7:].tolist(),
    }


@torch.no_grad()
def compare(folder):
    """Opens a folder that fkeras wrote."""
    path = pathlib.Path(folder)
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    ids = torch.tensor(option_checks.prompts().astype("int64"))
    expected = np.load(path / "logits.npy")
    error = np.abs(model.eval()(ids).logits.numpy() - expected).max() / np.abs(expected).max()
    print(f"{path.name}: relative error {error:.1e}", {k: v for k, v in loading.items() if v})


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if sys.argv[1:2] == ["--open"]:
        for chosen in sys.argv[2:]:
            compare(chosen)
        sys.exit()
    content = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else {}
    content["about"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    rows = {**ROWS, **PARTS}
    for chosen in sys.argv[1:] or rows:
        content[chosen] = describe(chosen.partition("-")[0], *rows[chosen])
    FILE.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    print(f"{FILE.stat().st_size} bytes")

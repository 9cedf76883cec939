"""Writes the tiny checkpoints of Gemma, GPT-2, mixtures of experts and T5 in tests/pretrained/data.

Run it like pretrained_reference.py, whose functions write the folders, and with the package gguf
(written with 0.19.0): `python tools/references/pretrained_decoders.py [NAME ...]`. Folders of T5 hold
the ids of encoder and decoder, the number of ids of each row, logits, hidden states and greedy tokens.
"""

import json
import sys

import gguf
import numpy as np
import torch
import transformers
from pretrained_reference import DATA, SMALL, causal, prompts, randomized, write

GEMMA = {
    **SMALL,
    "hidden_size": 20,
    "head_dim": 6,
    "query_pre_attn_scalar": 10,
    "sliding_window": 5,
}
THETA = {"rope_type": "default", "rope_theta": 300.0}


def gemma2():
    """Caps, three blocks of which one has no window; a folder, and the same weights as GGUF."""
    config = transformers.Gemma2Config(
        **{**GEMMA, "query_pre_attn_scalar": 6},
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        rope_parameters=THETA,
    )
    causal("gemma2", config, transformers.Gemma2ForCausalLM, 11)
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    write_gguf("gemma2", "gemma2", 300.0, 5, caps)


def gemma3():
    """Positions by type of block, norms of heads."""
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    full = {"rope_type": "linear", "rope_theta": 2000.0, "factor": 4.0}
    config = transformers.Gemma3TextConfig(
        **{**GEMMA, "num_hidden_layers": 4},
        layer_types=types,
        rope_parameters={
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    )
    causal("gemma3", config, transformers.Gemma3ForCausalLM, 12)


def write_gguf(name, architecture, theta, window, numbers):
    """Writes the tensors of a folder under the names of llama.cpp, with norms of 1 more."""
    config = json.loads((DATA / name / "config.json").read_text())
    (DATA / f"{name}_gguf").mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(DATA / f"{name}_gguf" / "model.gguf", architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(theta)
    writer.add_sliding_window(window)
    for key, number in numbers.items():
        writer.add_float32(f"{architecture}.{key}", number)
    kind = gguf.MODEL_ARCH[architecture.upper()]
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    from safetensors.numpy import load_file

    for tensor, array in load_file(DATA / name / "model.safetensors").items():
        array = array + 1 if tensor.endswith("norm.weight") else array
        writer.add_tensor(names.get_name(tensor, try_suffixes=(".weight", ".bias")), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=67,
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_inner=40,
        n_positions=29,
        layer_norm_epsilon=1e-3,
        scale_attn_by_inverse_layer_idx=True,
    )
    causal("gpt2", config, transformers.GPT2LMHeadModel, 13)


MIXTURE = {**SMALL, "hidden_size": 20, "head_dim": 6, "num_experts_per_tok": 2}
MIXTURE |= {"rope_parameters": THETA, "experts_implementation": "eager"}


def mixtral():
    config = transformers.MixtralConfig(
        **{**MIXTURE, "intermediate_size": 16}, num_local_experts=5, sliding_window=7
    )
    causal("mixtral", config, transformers.MixtralForCausalLM, 14)


def qwen2_moe():
    """A block with one feed-forward network, a block with a window, a gated shared expert."""
    config = transformers.Qwen2MoeConfig(
        **{**MIXTURE, "hidden_size": 24},
        moe_intermediate_size=12,
        shared_expert_intermediate_size=18,
        num_experts=6,
        mlp_only_layers=[1],
        use_sliding_window=True,
        sliding_window=6,
        max_window_layers=1,
        norm_topk_prob=False,
    )
    causal("qwen2_moe", config, transformers.Qwen2MoeForCausalLM, 15)


def qwen3_moe():
    """Norms of heads and biases, experts in every second block."""
    config = transformers.Qwen3MoeConfig(
        **MIXTURE,
        moe_intermediate_size=12,
        num_experts=6,
        decoder_sparse_step=2,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        attention_bias=True,
    )
    causal("qwen3_moe", config, transformers.Qwen3MoeForCausalLM, 16)


T5 = {
    "vocab_size": 67,
    "d_model": 20,
    "d_kv": 6,
    "d_ff": 28,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "layer_norm_epsilon": 1e-3,
    "decoder_start_token_id": 0,
}


@torch.no_grad()
def encoder_decoder(name, model, seed, config=None):
    """A folder of T5; the second row of the encoder's ids has 6 tokens and padding."""
    lengths = torch.tensor([17, 6])
    mask = torch.arange(17)[None] < lengths[:, None]
    ids = torch.where(mask, prompts(seed, 17), 0)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    targets = torch.cat([torch.zeros((2, 1), dtype=torch.long), prompts(seed + 50, 12)], 1)
    out = model(**inputs, decoder_input_ids=targets, output_hidden_states=True)
    tokens = torch.zeros((2, 1), dtype=torch.long)
    for _ in range(9):
        logits = model(**inputs, decoder_input_ids=tokens).logits[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    arrays = {"ids": ids, "lengths": lengths, "decoder_ids": targets, "logits": out.logits}
    arrays["greedy"] = tokens[:, 1:]
    states = {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}
    for part, hidden in states.items():
        arrays |= {f"{part}_{n}": state for n, state in enumerate(hidden)}
    write(name, model, arrays)
    if config is not None:
        (DATA / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def t5():
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))
    encoder_decoder("t5", randomized(model, 17), 17)


def t5_gated():
    """T5 version 1.1 and Flan: a gated network, a head of its own, the keys of transformers 4."""
    keys = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "n_positions": 512}
    keys |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "output_past": True}
    keys |= {"is_encoder_decoder": True, "transformers_version": "4.23.1", **T5}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config.from_dict(keys))
    model.lm_head.weight = torch.nn.Parameter(torch.tensor(np.ones((67, 20), "float32")))
    encoder_decoder("t5_gated", randomized(model, 18), 18, keys)


FOLDERS = (gemma2, gemma3, gpt2, mixtral, qwen2_moe, qwen3_moe, t5, t5_gated)

if __name__ == "__main__":
    for function in FOLDERS:
        if len(sys.argv) == 1 or function.__name__ in sys.argv[1:]:
            function()

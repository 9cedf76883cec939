"""Writes the tiny checkpoints of Gemma, GPT-2, mixtures of experts and T5 in `tests/pretrained/data`.

Run with transformers 5.24.0 and torch 2.13.0: `python tools/references/pretrained_decoders.py
[name ...]`. Each folder holds `config.json`, `model.safetensors` and `expected.npz`: ids, logits, the
hidden states of all blocks, and the tokens of greedy generation. Every configuration is unlike the
defaults of its family, and every weight is random, biases and norms included.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as hf

DATA = Path(__file__).parents[2] / "tests" / "pretrained" / "data"
# longer than the windows; the lengths are those of the prompts for generation
IDS = np.random.default_rng(5).integers(3, 67, (2, 17))
LENGTHS = np.array([17, 6])
NEW_TOKENS = 9
TOKENS = {"vocab_size": 67, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}


def randomized(model: torch.nn.Module) -> torch.nn.Module:
    """Draws all weights: kernels that keep the size of activations, norms and biases unlike 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim < 2:
                is_scale = ("norm" in name or "ln_" in name) and name.endswith("weight")
                weight.copy_(0.4 * noise + float(is_scale and weight.mean() > 0.5))
            elif "relative_attention_bias" in name:
                weight.copy_(noise)
            else:
                inputs = weight.shape[0] if "c_" in name else weight.shape[-1]
                weight.copy_(1.3 * inputs**-0.5 * noise)
    return model.eval()


def write(
    name: str, model: torch.nn.Module, config: dict[str, object] | None, **expected: object
) -> None:
    folder = DATA / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    arrays = {
        key: value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        for key, value in expected.items()
    }
    np.savez_compressed(folder / "expected.npz", **arrays)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(name, f"{size / 1000:.0f} kB")


def greedy(step, rows: list[list[int]]) -> np.ndarray:
    """Returns the most probable tokens of each row, computed without a cache."""
    tokens, margins = [], []
    for row in rows:
        start = len(row)
        for _ in range(NEW_TOKENS):
            with torch.no_grad():
                logits = step(torch.tensor([row]))[0, -1]
            first, second = torch.topk(logits, 2).values.tolist()
            margins.append(first - second)
            row = [*row, int(logits.argmax())]
        tokens.append(row[start:])
    # closer logits could differ between libraries by rounding
    assert min(margins) > 1e-3, min(margins)
    return np.array(tokens)


def decoder(name: str, model: torch.nn.Module, config: dict[str, object] | None = None) -> None:
    model = randomized(model)
    with torch.no_grad():
        out = model(torch.tensor(IDS), output_hidden_states=True)
    prompts = [row[:length].tolist() for row, length in zip(IDS, LENGTHS, strict=True)]
    # the last entry is the state after the final normalization
    hidden = {f"block_{i}": h for i, h in enumerate(out.hidden_states[1:-1])}
    tokens = greedy(lambda ids: model(ids).logits, prompts)
    write(
        name, model, config, ids=IDS, lengths=LENGTHS, logits=out.logits, tokens=tokens,
        normalized=out.hidden_states[-1], embedded=out.hidden_states[0], **hidden,
    )  # fmt: skip


GEMMA = dict(
    hidden_size=20, intermediate_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
    rms_norm_eps=1e-3, max_position_embeddings=64, query_pre_attn_scalar=10, sliding_window=5,
    attn_implementation="eager", **TOKENS,
)  # fmt: skip


def gemma2() -> None:
    config = hf.Gemma2Config(
        num_hidden_layers=3, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0}, **GEMMA,
    )  # fmt: skip
    decoder("gemma2", hf.Gemma2ForCausalLM(config))


def gemma3() -> None:
    """A configuration as transformers 5 writes it: rotary positions by type of layer."""
    config = hf.Gemma3TextConfig(
        num_hidden_layers=4,
        layer_types=[
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
        ],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 2000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
        **GEMMA,
    )
    decoder("gemma3", hf.Gemma3ForCausalLM(config))


def gemma3_v4() -> None:
    """The same numbers in the keys of transformers 4, with a pattern for the types of layers."""
    old = dict(
        architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", torch_dtype="float32",
        num_hidden_layers=4, sliding_window_pattern=3, rope_theta=2000.0, rope_local_base_freq=50.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0}, attn_logit_softcapping=None,
        final_logit_softcapping=None, hidden_activation="gelu_pytorch_tanh", use_cache=True,
        transformers_version="4.50.0", **{k: v for k, v in GEMMA.items() if "attn_impl" not in k},
    )  # fmt: skip
    config = hf.Gemma3TextConfig.from_dict(old)
    config._attn_implementation = "eager"
    decoder("gemma3_v4", hf.Gemma3ForCausalLM(config), old)


def gpt2() -> None:
    config = hf.GPT2Config(
        n_embd=24, n_layer=3, n_head=4, n_inner=40, n_positions=29, layer_norm_epsilon=1e-3,
        scale_attn_by_inverse_layer_idx=True, **TOKENS,
    )  # fmt: skip
    decoder("gpt2", hf.GPT2LMHeadModel(config))


MIXTURE = dict(
    hidden_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
    rms_norm_eps=1e-3, max_position_embeddings=64, num_experts_per_tok=2,
    rope_parameters={"rope_type": "default", "rope_theta": 300.0}, attn_implementation="eager",
    experts_implementation="eager", **TOKENS,
)  # fmt: skip


def mixtral() -> None:
    config = hf.MixtralConfig(
        intermediate_size=16, num_local_experts=5, sliding_window=7, **MIXTURE
    )
    decoder("mixtral", hf.MixtralForCausalLM(config))


def qwen2_moe() -> None:
    """A block with one feed-forward network, a block with a window, a gated shared expert."""
    config = hf.Qwen2MoeConfig(
        intermediate_size=28, moe_intermediate_size=12, shared_expert_intermediate_size=18,
        num_experts=6, mlp_only_layers=[1], use_sliding_window=True, sliding_window=6,
        max_window_layers=1, norm_topk_prob=False, **{**MIXTURE, "hidden_size": 24},
    )  # fmt: skip
    decoder("qwen2_moe", hf.Qwen2MoeForCausalLM(config))


def qwen3_moe() -> None:
    config = hf.Qwen3MoeConfig(
        intermediate_size=28, moe_intermediate_size=12, num_experts=6, decoder_sparse_step=2,
        norm_topk_prob=True, tie_word_embeddings=True, attention_bias=True, **MIXTURE,
    )  # fmt: skip
    decoder("qwen3_moe", hf.Qwen3MoeForCausalLM(config))


T5 = dict(
    d_model=20, d_kv=6, d_ff=28, num_layers=3, num_decoder_layers=2, num_heads=4,
    relative_attention_num_buckets=8, relative_attention_max_distance=12, layer_norm_epsilon=1e-3,
    decoder_start_token_id=0, **TOKENS,
)  # fmt: skip
TARGETS = np.concatenate([np.zeros((2, 1), int), IDS[::-1, :13]], axis=1)


def next_logits(model: torch.nn.Module, source: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=source, decoder_input_ids=ids).logits


def encoder_decoder(
    name: str, model: torch.nn.Module, config: dict[str, object] | None = None
) -> None:
    model = randomized(model)
    mask = torch.tensor(np.arange(17)[None] < LENGTHS[:, None])
    ids = torch.tensor(np.where(mask, IDS, 0))
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    with torch.no_grad():
        out = model(**inputs, decoder_input_ids=torch.tensor(TARGETS), output_hidden_states=True)
    states = {"encoder": out.encoder_hidden_states, "decoder": out.decoder_hidden_states}
    hidden = {
        f"{part}_block_{i}": h for part, all in states.items() for i, h in enumerate(all[1:-1])
    }
    rows = []
    for row, length in zip(IDS, LENGTHS, strict=True):
        source = torch.tensor(row[None, :length])
        step = functools.partial(next_logits, model, source)
        rows.append(greedy(step, [[0]])[0])
    write(
        name, model, config, ids=ids, lengths=LENGTHS, decoder_ids=TARGETS, logits=out.logits,
        tokens=rows, encoded=out.encoder_last_hidden_state, **hidden,
    )  # fmt: skip


def t5() -> None:
    encoder_decoder("t5", hf.T5ForConditionalGeneration(hf.T5Config(**T5)))


def t5_gated() -> None:
    """T5 version 1.1 and Flan: a gated feed-forward network, a head of its own, keys of version 4."""
    old = dict(
        architectures=["T5ForConditionalGeneration"], model_type="t5", output_past=True,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, is_encoder_decoder=True,
        transformers_version="4.23.1", n_positions=512, **T5,
    )  # fmt: skip
    config = hf.T5Config.from_dict(old)
    model = hf.T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.ones(67, 20))
    encoder_decoder("t5_gated", model, old)


ALL = (gemma2, gemma3, gemma3_v4, gpt2, mixtral, qwen2_moe, qwen3_moe, t5, t5_gated)

if __name__ == "__main__":
    for function in ALL:
        if len(sys.argv) == 1 or function.__name__ in sys.argv[1:]:
            function()

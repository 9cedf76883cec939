"""Writes the tiny checkpoints of tests/pretrained/data: folders by transformers, and what it computes.

Run it where torch and transformers are installed (written with torch 2.13.0, transformers 5.24.0,
safetensors 0.8.0): `python tools/references/pretrained_reference.py [NAME ...]`; without names it
writes all folders. Each has config.json, model.safetensors and expected.npz: ids, logits, the hidden
states before the first block and after each block, and the tokens of greedy decoding. All weights are
random, biases and norms too, so that a forgotten weight changes the numbers.
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

DATA = pathlib.Path(__file__).parents[2] / "tests/pretrained/data"
VOCABULARY = 67
# head size other than width / heads, fewer key heads than heads, an odd vocabulary
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-4,
}


def randomized(model, seed):
    """The model in evaluation mode, with random numbers in all weights."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        numbers = torch.randn(weight.shape, generator=generator)
        is_norm = weight.ndim == 1 and name.endswith("weight")
        weight.data = 1 + 0.3 * numbers if is_norm else 0.3 * numbers
    return model.eval()


def prompts(seed, length=20):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (2, length), generator=generator)


def write(name, model, arrays):
    """Writes a folder; checks its size."""
    folder = DATA / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    about = f"torch {torch.__version__}, transformers {transformers.__version__}"
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    np.savez_compressed(folder / "expected.npz", about=about, **arrays)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < 150_000, f"{name} has {size} bytes"
    print(f"{name}: {size} bytes, {about}")


@torch.no_grad()
def causal(name, config, cls, seed, dtype=None):
    """A folder of a causal language model."""
    config._attn_implementation = "eager"
    model = randomized(cls(config), seed)
    if dtype is not None:  # the weights alone: `model.to` would round the frequencies too
        for weight in model.parameters():
            weight.data = weight.data.to(dtype).float()
    ids = prompts(seed)
    out = model(ids, output_hidden_states=True)
    tokens = ids[:, :7]
    for _ in range(9):
        tokens = torch.cat([tokens, model(tokens).logits[:, -1].argmax(-1, keepdim=True)], 1)
    arrays = {"ids": ids, "logits": out.logits, "greedy": tokens[:, 7:]}
    # the last hidden state is that after the final norm
    arrays |= {f"hidden_{n}": state for n, state in enumerate(out.hidden_states)}
    write(name, model if dtype is None else model.to(dtype), arrays)


def llama():
    """Scaled positions, untied; and a tied one in bfloat16 without biases."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    config = transformers.LlamaConfig(
        **SMALL, head_dim=10, rope_parameters=scaling, attention_bias=True, mlp_bias=True
    )
    causal("llama", config, transformers.LlamaForCausalLM, 1)
    config = transformers.LlamaConfig(
        **SMALL,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
    )
    causal("llama_tied", config, transformers.LlamaForCausalLM, 2, torch.bfloat16)


def mistral():
    config = transformers.MistralConfig(**SMALL, head_dim=10, sliding_window=5)
    causal("mistral", config, transformers.MistralForCausalLM, 3)


def qwen2():
    """Biases, and a window in the last block alone."""
    config = transformers.Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=4, max_window_layers=2
    )
    causal("qwen2", config, transformers.Qwen2ForCausalLM, 4)


def qwen3():
    """Norms of heads, and YaRN."""
    scaling = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    config = transformers.Qwen3Config(
        **SMALL, head_dim=8, rope_parameters=scaling, tie_word_embeddings=True
    )
    causal("qwen3", config, transformers.Qwen3ForCausalLM, 5)


def smollm3():
    """Blocks without rotary positions, which have a window."""
    small = SMALL | {"num_hidden_layers": 5}
    config = transformers.SmolLM3Config(
        **small,
        no_rope_layer_interval=2,
        use_sliding_window=True,
        sliding_window=6,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=2,
    )
    causal("smollm3", config, transformers.SmolLM3ForCausalLM, 6)


def phi3():
    """Fused projections, LongRoPE over half of the channels."""
    small = SMALL | {"hidden_size": 32}
    scaling = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 6.0],
    }
    config = transformers.Phi3Config(
        **small,
        original_max_position_embeddings=16,
        rope_parameters=scaling,
        sliding_window=9,
        pad_token_id=None,
    )
    causal("phi3", config, transformers.Phi3ForCausalLM, 7)


FOLDERS = {f.__name__: f for f in (llama, mistral, qwen2, qwen3, smollm3, phi3)}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or FOLDERS:
        FOLDERS[chosen]()

"""Writes the tiny adapters of tests/pretrained/data/peft: folders by PEFT, and what it computes.

Run it where torch, transformers and peft are installed (written with torch 2.13.0, transformers 5.24.0,
peft 0.21.2): `python tools/references/peft_reference.py [NAME ...]`; without names it writes all
folders. The bases are folders of tests/pretrained/data. Each folder has adapter_config.json,
adapter_model.safetensors and expected.npz: ids and logits, or images and hidden states. The folders "v4_*"
are written with transformers 4.57.1, whose modules have other names.
"""

import pathlib
import sys

import numpy as np
import peft
import torch
import transformers

DATA = pathlib.Path(__file__).parents[2] / "tests/pretrained/data"
PROJECTIONS = ["q_proj", "v_proj", "o_proj", "down_proj"]


@torch.no_grad()
def write(name, base, config):
    """Writes a folder: an adapter of a base with random numbers in all weights."""
    generator = torch.Generator().manual_seed(len(name))
    is_vision = config.task_type is None
    auto = transformers.AutoModel if is_vision else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(DATA / base, dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(model, config).eval()
    for key, weight in model.named_parameters():
        if any(part in key for part in ("lora_A", "lora_B", "lora_embedding", "ia3_l")):
            weight.data = weight.data + 0.2 * torch.randn(weight.shape, generator=generator)
        elif "lora_magnitude" in key:
            weight.data = weight.data * (1 + 0.2 * torch.randn(weight.shape, generator=generator))
    if is_vision:
        images = torch.randn((2, 3, 20, 20), generator=generator)
        arrays = {"images": images.permute(0, 2, 3, 1).numpy()}
        arrays["hidden"] = model(images).last_hidden_state.numpy()
    else:
        ids = torch.randint(0, 67, (2, 9), generator=generator)
        arrays = {"ids": ids.numpy(), "logits": model(ids).logits.numpy()}
    folder = DATA / "peft" / name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    # not the path of the machine that ran the program
    path.write_text(path.read_text().replace(str(DATA / base), base))
    about = f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    np.savez_compressed(folder / "expected.npz", about=about, base=base, **arrays)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < 150_000, f"{name} has {size} bytes"
    print(f"{name}: {size} bytes, {about}")


def lora(**options):
    arguments = {"r": 3, "lora_alpha": 6, "target_modules": PROJECTIONS, "task_type": "CAUSAL_LM"}
    return peft.LoraConfig(**{**arguments, **options})


FOLDERS = {
    "lora": ("llama", lora()),
    "rslora": ("llama", lora(use_rslora=True)),
    "dora": ("llama", lora(use_dora=True)),
    "patterns": (
        "llama",
        lora(rank_pattern={"layers.1.self_attn.q_proj": 5}, alpha_pattern={"o_proj": 9}),
    ),
    "embedding": ("llama", lora(target_modules=["embed_tokens", "v_proj"])),
    "tied": ("llama_tied", lora(target_modules=["embed_tokens", "v_proj"])),
    "fused": ("phi3", lora(target_modules=["qkv_proj", "gate_up_proj"])),
    "regex": ("llama", lora(target_modules=r".*layers\.[02]\.mlp\..*_proj")),
    "ia3": (
        "llama",
        peft.IA3Config(
            target_modules=["k_proj", "v_proj", "down_proj"],
            feedforward_modules=["down_proj"],
            task_type="CAUSAL_LM",
        ),
    ),
    "head": ("llama", lora(target_modules=["lm_head", "v_proj"])),
    "head_dora": ("llama", lora(target_modules=["lm_head"], use_dora=True)),
    "head_embedding": (
        "llama",
        lora(target_modules=["lm_head", "embed_tokens"], rank_pattern={"lm_head": 5}),
    ),
    "tied_head": ("llama_tied", lora(target_modules=["lm_head", "v_proj"])),
    "tied_both": ("llama_tied", lora(target_modules=["lm_head", "embed_tokens"])),
    "vit": ("vit", lora(target_modules=["q_proj", "o_proj", "fc1"], task_type=None)),
    "dinov2": (
        "dinov2",
        lora(target_modules=["v_proj", "gate_proj", "up_proj", "down_proj"], task_type=None),
    ),
    "dinov2_registers": (
        "dinov2_registers",
        lora(target_modules=["k_proj", "o_proj", "fc2"], task_type=None),
    ),
    "siglip_vision": (
        "siglip_vision",
        lora(target_modules=["q_proj", "fc1"], exclude_modules="head.*", task_type=None),
    ),
    "v4_vit": (
        "vit",
        lora(
            target_modules=["query", "attention.output.dense", "intermediate.dense"], task_type=None
        ),
    ),
    "v4_dinov2": (
        "dinov2",
        lora(target_modules=["value", "weights_in", "weights_out"], task_type=None),
    ),
    "gpt2": ("gpt2", lora(target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
}

if __name__ == "__main__":
    current = not transformers.__version__.startswith("4.")
    of_version = [name for name in FOLDERS if name.startswith("v4_") != current]
    for chosen in sys.argv[1:] or of_version:
        write(chosen, *FOLDERS[chosen])

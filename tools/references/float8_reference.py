"""Writes tests/pretrained/data/float8.json: what transformers computes with a folder of 8-bit floats.

On CPUs transformers dequantizes such a folder (package accelerate). The weights become bfloat16; the numbers are those of a
model that then computes in float32. Run it like option_reference.py: `python tools/references/float8_reference.py`.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained import float8_folders, option_checks

FILE = option_checks.FILE.with_name("float8.json")

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tensors = float8_folders.arrays((16, 8))
        float8_folders.write_folder(folder, tensors, float8_folders.BLOCKS)
        model = transformers.Qwen3ForCausalLM.from_pretrained(folder, attn_implementation="eager")
    weight = model.model.layers[1].mlp.down_proj.weight
    assert weight.dtype == torch.bfloat16
    ids = torch.tensor(option_checks.prompts().astype("int64"))
    with torch.no_grad():
        logits = model.float().eval()(ids).logits
    content = {
        "about": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "down_proj": option_checks.spread(weight.detach().float().numpy(), 9),
        "logits": option_checks.spread(logits.numpy(), 9),
    }
    FILE.write_text(json.dumps(content) + "\n")

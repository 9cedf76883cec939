"""Writes tests/pretrained/data/timm.json.gz: what timm computes, and the pixels of its preprocessing.

For each architecture: `config.json` as timm writes it, the names and shapes of the tensors, the logits of
two images, and numbers of the pixels of a picture. Tensors have the numbers of `option_checks.leveled`.

Run it where torch, torchvision and timm are installed (written with torch 2.13.0, timm 1.0.31):
`python tools/references/timm_reference.py`.
"""

import gzip
import json
import pathlib
import sys
import tempfile

import numpy as np
import timm
import torch
from PIL import Image
from timm.models._hub import save_config_for_hf

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained import option_checks

FILE = option_checks.FILE.with_name("timm.json.gz")
ARCHITECTURES = (
    *("resnet18", "resnet50", "convnext_tiny", "efficientnet_b0", "efficientnet_b3"),
    *("tf_efficientnet_b1", "tf_efficientnetv2_s", "mobilenetv2_050", "mobilenetv2_140"),
    *("mobilenetv3_small_050", "tf_mobilenetv3_large_075", "mobilenetv3_large_100"),
)


@torch.no_grad()
def described(name):
    model = timm.create_model(name, num_classes=5).eval()
    tensors = {key: value for key, value in model.state_dict().items() if value.ndim}
    for key, value in tensors.items():
        value.copy_(torch.tensor(option_checks.leveled(key, tuple(value.shape))))
    with tempfile.TemporaryDirectory() as folder:
        save_config_for_hf(model, str(pathlib.Path(folder, "config.json")))
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
    images = torch.tensor(np.moveaxis(option_checks.images(), -1, 1).copy())
    options = timm.data.resolve_data_config({}, model=model)
    pixels = [
        timm.data.create_transform(**{**options, **more})(Image.fromarray(option_checks.picture()))
        for more in ({}, {"crop_mode": "squash"})
    ]
    return {
        "config": config,
        "tensors": {key: list(value.shape) for key, value in tensors.items()},
        "logits": [[float(f"{x:.7g}") for x in row] for row in model(images)],
        "pixels": option_checks.spread(np.moveaxis(pixels[0].numpy(), 0, -1)),
        "squashed": option_checks.spread(np.moveaxis(pixels[1].numpy(), 0, -1)),
    }


if __name__ == "__main__":
    content = {name: described(name) for name in ARCHITECTURES}
    content["about"] = f"torch {torch.__version__}, timm {timm.__version__}"
    FILE.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    print(
        FILE.stat().st_size, "bytes", {n: c["logits"] for n, c in content.items() if n != "about"}
    )

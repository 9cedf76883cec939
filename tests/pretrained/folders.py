"""Copies of stored folders with other tensors or another configuration."""

import json
import shutil

import safetensors.numpy

from tests.pretrained.checks import DATA


def copy(name, place, change=None, **keys):
    """A copy of a folder.

    Args:
        change: called with the dictionary of tensors, which it changes.
        keys: other values in config.json; `...` leaves a key out.
    """
    folder = place / "folder"
    shutil.copytree(DATA / name, folder, ignore=shutil.ignore_patterns("*.npz"))
    if change is not None:
        file = folder / "model.safetensors"
        tensors = dict(safetensors.numpy.load_file(file))
        change(tensors)
        safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    if keys:
        file = folder / "config.json"
        mapping = json.loads(file.read_text()) | keys
        file.write_text(json.dumps({k: v for k, v in mapping.items() if v is not ...}))
    return folder

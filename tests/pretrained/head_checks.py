"""Folders, inputs and outputs of the tiny models whose heads are compared with transformers."""

import gzip
import json

import numpy as np
import safetensors.numpy

import fkeras as fk
from tests.pretrained.option_checks import weights
from tests.support.paths import ROOT

FILE = ROOT / "tests/pretrained/data/heads.json.gz"
_IDS = (
    # padding on the right, which has the id 2, and a token with this id in the text
    [[7, 60, 2, 40, 3, 3, 59, 21, 33, 8, 17, 66], [11, 5, 61, 66, 2, 2, 2, 2, 2, 2, 2, 2]],
    # padding on the left
    [[2, 2, 2, 2, 2, 9, 30, 31, 32, 44, 45, 66], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 5, 66]],
)

# encoders, and decoders whose positions count padding on the left
_ABSOLUTE = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "modernbert", "gpt2"),
    *("mixtral", "qwen2_moe", "qwen3_moe", "smollm3", "clip_text_model", "siglip_text_model"),
    *("bart", "mbart"),
)


def stored():
    """The entries that tools/references/head_reference.py wrote, by name."""
    content = json.loads(gzip.decompress(FILE.read_bytes()))
    return {name: entry for name, entry in content.items() if name != "about"}


def write_folder(folder, entry):
    """Writes the files of an entry: `config.json`, other JSON files, and tensors."""
    files = {"config.json": entry["mapping"], **entry["beside"]}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    parts = {}
    for name, shape in entry["tensors"].items():
        part, _, short = name.rpartition("/")
        parts.setdefault(part, {})[short] = weights(short, shape)
    for part, arrays in parts.items():
        (folder / part).mkdir(exist_ok=True)
        safetensors.numpy.save_file(arrays, folder / part / "model.safetensors", {"format": "pt"})


def inputs(entry):
    """The inputs of transformers; images have the channels last."""
    mapping = entry["mapping"]
    kind = mapping["model_type"]
    if "image_size" in mapping:
        # more columns than rows, except where the size is fixed
        columns = 12 if kind == "clip_vision_model" else 16
        waves = np.sin(np.arange(2 * 12 * columns * 3)).reshape(2, 12, columns, 3)
        return {"pixel_values": waves.astype("float32")}
    ids = np.array(_IDS[0])
    # positions of encoders with a table count padding on the left in transformers
    if kind not in _ABSOLUTE:
        ids = np.concatenate(_IDS)
    if kind == "siglip_text_model":
        return {"input_ids": np.resize(ids, (2, mapping["max_position_embeddings"]))}
    if not entry["masked"]:
        return {"input_ids": ids}
    mask = np.ones_like(ids)
    for row, (texts, right) in enumerate(zip(ids, (True, True, False, False), strict=False)):
        end = np.flatnonzero(texts == 66)[0] if right else 0
        count = np.flatnonzero(texts != 2)[0]
        mask[row] = np.arange(12) <= end if right else np.arange(12) >= count
    return {"input_ids": ids, "attention_mask": mask}


def kept(array, entry_inputs):
    """The part of an output that belongs to tokens which are no padding."""
    mask = entry_inputs.get("attention_mask")
    is_of_tokens = mask is not None and array.shape[:2] == mask.shape
    return array[np.asarray(mask, bool)] if is_of_tokens else array


def outputs_of(model, entry_inputs):
    """The outputs of a model of fkeras, without padding."""
    if "pixel_values" in entry_inputs:
        out = model(entry_inputs["pixel_values"])
    else:
        mask = entry_inputs.get("attention_mask")
        mask = None if mask is None else np.asarray(mask, bool)
        out = model(entry_inputs["input_ids"].astype("int32"), mask=mask)
    return {name: kept(np.asarray(array), entry_inputs) for name, array in out.items()}


def load(folder, entry):
    """The loaded folder of an entry."""
    write_folder(folder, entry)
    return fk.pretrained.load(folder, dtype="float32")

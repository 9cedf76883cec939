"""Tensors, inputs and outputs of the tiny models whose options are compared with transformers."""

import gzip
import json
import zlib

import numpy as np
import safetensors.numpy

import fkeras as fk
from tests.support.paths import ROOT

FILE = ROOT / "tests/pretrained/data/options.json.gz"
DECODERS = FILE.with_name("decoders.json.gz")
#: numbers that are stored of each output
COUNT = 24
_IMAGES = ("vit", "dinov2", "dinov2_with_registers", "siglip_vision_model")


def stored(file=FILE):
    """The entries that option_reference.py or decoder_reference.py of tools/references wrote."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    return {name: entry for name, entry in content.items() if name != "about"}


def weights(name, shape):
    """The numbers of a tensor: random by its name, near 1 for norms."""
    numbers = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    is_norm = len(shape) == 1 and name.endswith(("weight", "gamma"))
    return np.asarray(1 + 0.3 * numbers if is_norm else 0.3 * numbers, "float32")


def prompts():
    """Ids (2, 20) of decoders."""
    return np.random.RandomState(0).randint(0, 67, (2, 20)).astype("int32")


def inputs(model_type, mapping):
    """The arguments of a model of fkeras: ids without padding, images with the channels last."""
    ids = np.arange(5, 35, dtype="int32")[None]
    if model_type in _IMAGES:
        return (_waves(1, 12, 12, mapping.get("num_channels", 3)),)
    if model_type in ("clip", "siglip"):
        ids = np.r_[ids[0, :25], 66, 5, 2, 3, 4].astype("int32")[None]
        if model_type == "siglip":  # texts of one length
            ids = np.resize(ids, (1, mapping["text_config"]["max_position_embeddings"]))
        return _waves(1, 12, 12, mapping["vision_config"].get("num_channels", 3)), ids
    if model_type == "whisper":
        return _waves(1, 2 * mapping["max_source_positions"], mapping["num_mel_bins"]), ids
    return (ids, ids[:, :20]) if model_type == "t5" else (ids,)


def _waves(*shape):
    return np.sin(np.arange(np.prod(shape))).astype("float32").reshape(shape)


def spread(array, digits=6):
    """Numbers from all parts of an array."""
    flat = np.asarray(array, "float32").ravel()
    places = np.unique(np.linspace(0, len(flat) - 1, COUNT).astype(int))
    return [float(f"{flat[n]:.{digits}g}") for n in places]


def mapping_of(model_type, entry, where, options):
    """The `config.json` of an entry with options, in the section `where` if it is not empty."""
    base = entry["base"]
    options = {where: {**base[where], **options}} if where else options
    return {"model_type": model_type, "architectures": [entry["class"]], **base, **options}


def write_folder(folder, mapping, tensors):
    """Writes a `config.json` and tensors with these shapes."""
    (folder / "config.json").write_text(json.dumps(mapping, indent=2) + "\n")
    arrays = {name: weights(name, shape) for name, shape in tensors.items()}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors", {"format": "pt"})


def computed(folder, model_type, mapping, tensors):
    """The numbers of fkeras for a `config.json` and tensors, by the names of the outputs."""
    write_folder(folder, mapping, tensors)
    # the first of two biases of logits, which transformers does not use
    unused = [name.replace(".decoder.", ".") for name in tensors if name.endswith(".decoder.bias")]
    model = fk.pretrained.load(folder, dtype="float32", ignore=unused).model
    arguments = inputs(model_type, mapping)
    out = model(arguments[0] if len(arguments) == 1 else list(arguments))
    out = out if isinstance(out, dict) else {"logits": out}
    return {name: spread(array) for name, array in out.items()}

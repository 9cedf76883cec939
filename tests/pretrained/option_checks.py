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
#: penalty of repetitions of generated tokens
PENALTY = 5.0
#: numbers that are stored of each output
COUNT = 24
_IMAGES = (
    "vit",
    "deit",
    "resnet",
    "convnext",
    "dinov2",
    "dinov2_with_registers",
    "siglip_vision_model",
)
#: architectures with an encoder and a decoder of texts
TEXT_TO_TEXT = ("t5", "mt5", "bart", "mbart", "marian", "m2m_100", "pegasus")


def stored(file=FILE):
    """The entries that option_reference.py or decoder_reference.py of tools/references wrote."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    return {name: entry for name, entry in content.items() if name != "about"}


def weights(name, shape):
    """The numbers of a tensor: random by its name, near 1 for norms, positive for variances."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith(("_blocks", "_scales")):  # of MXFP4, with numbers up to .75
        low, high = (120, 125) if name.endswith("_scales") else (0, 256)
        return random.randint(low, high, shape).astype("uint8")
    numbers = random.standard_normal(shape)
    is_norm = len(shape) == 1 and name.endswith(("weight", "gamma"))
    if name.endswith("running_var"):
        return np.exp(numbers).astype("float32")
    return np.asarray(1 + 0.3 * numbers if is_norm else 0.3 * numbers, "float32")


def prompts():
    """Ids (2, 20) of decoders."""
    return np.random.RandomState(0).randint(0, 67, (2, 20)).astype("int32")


def leveled(name, shape):
    """The numbers of `weights` for deep networks: layers keep the size of numbers, and rounding grows little."""
    numbers = weights(name, shape)
    if name.endswith("running_var"):
        return numbers ** np.float32(0.5)
    return numbers * np.float32(0.9 if len(shape) < 2 else 4 / np.prod(shape[1:]) ** 0.5)


def images():
    """Two images with the channels last."""
    return _waves(2, 64, 64, 3)


def picture():
    """A picture of bytes, whose crop by 224 begins between two pixels."""
    y, x = np.mgrid[:237, :291]
    return np.stack([7 * x + 3 * y, x * y, 255 - 4 * y], -1).astype("uint8")


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
    if model_type == "wav2vec2":
        return (_waves(1, 300),)
    if model_type == "whisper":
        return _waves(1, 2 * mapping["max_source_positions"], mapping["num_mel_bins"]), ids
    return (ids, ids[:, :20]) if model_type in TEXT_TO_TEXT else (ids,)


def _waves(*shape):
    return np.sin(np.arange(np.prod(shape))).astype("float32").reshape(shape)


def padded():
    """Two texts and their mask; the end of the second is padding."""
    ids = np.arange(5, 29, dtype="int32").reshape(2, 12)
    return ids, np.arange(12) < np.array([[12], [7]])


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


def loaded_of(folder, mapping, tensors):
    """What fkeras loads for a `config.json` and tensors."""
    write_folder(folder, mapping, tensors)
    # the first of two biases of logits, which transformers does not use
    unused = [name.replace(".decoder.", ".") for name in tensors if name.endswith(".decoder.bias")]
    return fk.pretrained.load(folder, dtype="float32", ignore=unused)


def computed(folder, model_type, mapping, tensors):
    """The numbers of fkeras for a `config.json` and tensors, by the names of the outputs."""
    loaded = loaded_of(folder, mapping, tensors)
    arguments = inputs(model_type, mapping)
    arguments = arguments[0] if len(arguments) == 1 else list(arguments)
    out = loaded.model.apply(arguments, state=loaded.state).value
    out = out if isinstance(out, dict) else {"logits": out}
    return {name: spread(array) for name, array in out.items()}


def computes_the_base(model_type, folder):
    """Compares the numbers of an entry without options with those of transformers."""
    entry = stored()[model_type]
    ours = computed(folder, model_type, mapping_of(model_type, entry, "", {}), entry["tensors"][0])
    for name, array in entry["numbers"].items():
        np.testing.assert_allclose(ours[name], array, atol=1e-5, rtol=1e-5, err_msg=name)


def generates_the_tokens(model_type, folder):
    """Compares greedy tokens with a penalty of repetitions, for texts with padding."""
    entry = stored()[model_type]
    mapping = mapping_of(model_type, entry, "", {})
    model = loaded_of(folder, mapping, entry["tensors"][0]).model
    ids, mask = padded()
    start = np.full((2, 1), entry["base"]["decoder_start_token_id"], "int32")
    sampler = fk.samplers.Chain(fk.samplers.RepetitionPenalty(PENALTY), fk.samplers.Greedy())
    generated = fk.generate(
        model,
        None,
        start,
        max_new_tokens=len(entry["tokens"][0]),
        sampler=sampler,
        inputs=ids,
        inputs_mask=mask,
        cache=True,
    )
    assert len({*entry["tokens"][0]}) > 5
    np.testing.assert_array_equal(generated.tokens, entry["tokens"])

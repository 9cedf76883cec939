"""What every stored checkpoint of an encoder must fulfil."""

import filecmp
import json
import os

import numpy as np
import pytest

import fkeras as fk
from fkeras import transforms
from tests.pretrained.checks import DATA, expected

#: names of outputs of our models and of transformers
OUTPUTS = {
    "hidden": "last_hidden_state",
    "pooled": "pooler_output",
    "logits": "logits",
    "classes": "logits",
    "sentence": "sentence",
}


def computes_the_numbers_of_transformers(loaded, arrays, inputs, first, mask=None, last=None):
    """Compares the outputs and the hidden states of all blocks, at tokens that are no padding.

    Args:
        inputs: what the model is called on.
        first: name of the layer whose output is the first hidden state.
        last: name of the layer whose output is the last; None for the last block.
    """
    blocks = sorted(key for key in arrays if key.startswith("block_"))
    end = last or f"block_{len(blocks) - 2}"
    probed = transforms.probe(loaded.model, [first, "block_*", end])
    outputs, values = probed(inputs, mask=mask)
    kept = slice(None) if mask is None else np.asarray(mask)
    places = [f"{first}_ib-0", *(f"block_{n}_ib-0" for n in range(len(blocks) - 2)), f"{end}_ib-0"]
    for key, place in zip(blocks, places, strict=True):
        value, right = np.asarray(values[place])[kept], arrays[key][kept]
        np.testing.assert_allclose(value, right, atol=1e-4, err_msg=place)
    compared = [name for name in outputs if OUTPUTS[name] in arrays]
    assert compared
    for name in compared:
        value, right = np.asarray(outputs[name]), arrays[OUTPUTS[name]]
        if value.ndim == 3:
            value, right = value[kept], right[kept]
        np.testing.assert_allclose(value, right, atol=1e-4, err_msg=name)
    return outputs


def padding_changes_no_token(model, ids, left, right=0):
    """Compares all outputs for texts without padding with those of the same texts between padding."""
    alone = model(ids)
    ends = ((0, 0), (left, right))
    # the padding is a token of the text: only the mask tells them apart
    padded = np.pad(ids, ends, constant_values=ids[0, -1])
    out = model(padded, mask=np.pad(np.ones(ids.shape, bool), ends))
    for key, value in alone.items():
        other = np.asarray(out[key])
        other = other[:, left : left + ids.shape[1]] if other.ndim == 3 else other
        np.testing.assert_allclose(other, value, atol=1e-5, err_msg=key)


def is_written_back(name, folder):
    """Writes a loaded folder, and compares all files that were read: bytes, and JSON beside them."""
    loaded = fk.pretrained.load(DATA / name)
    fk.pretrained.save(
        folder, loaded.model, loaded.state, loaded.config, tokenizer=loaded.tokenizer
    )
    written = [
        os.path.relpath(os.path.join(root, file), folder)
        for root, _, files in os.walk(folder)
        for file in files
    ]
    assert {"config.json", "model.safetensors"} <= set(written)
    _, different, missing = filecmp.cmpfiles(DATA / name, folder, written, shallow=False)
    assert missing == []
    for file in different:
        # sentence-transformers ends its files without a newline
        names = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")
        assert file in names
        assert json.loads((DATA / name / file).read_text()) == json.loads(
            (folder / file).read_text()
        )


def rows(values, kept):
    """Parameters of a test; those that are not kept run in the exhaustive suite only."""
    marks = {True: (), False: pytest.mark.exhaustive}
    return [pytest.param(value, marks=marks[value in kept]) for value in values]


def arrays_of(name):
    """The loaded folder and the arrays of transformers."""
    return fk.pretrained.load(DATA / name, dtype="float32"), expected(name)


def renamed(name, folder, rename, config=None):
    """Copies a folder with other names of tensors, and other keys of its configuration."""
    import safetensors.numpy

    tensors = safetensors.numpy.load_file(DATA / name / "model.safetensors")
    tensors = {rename(key): value for key, value in tensors.items() if rename(key)}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    mapping = json.loads((DATA / name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**mapping, **(config or {})}))
    return folder

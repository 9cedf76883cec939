"""What every stored checkpoint must fulfil: the numbers of transformers, and its own bytes when written back."""

import filecmp
import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

import fkeras as fk
from fkeras import transforms
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.safetensors import open_table, write
from tests.support.paths import ROOT

DATA = ROOT / "tests/pretrained/data"


def expected(name):
    """The arrays that transformers computed for a folder."""
    with np.load(DATA / name / "expected.npz") as file:
        return {key: file[key] for key in file.files}


def is_a_causal_decoder(name, first="embedding"):
    """Loads a folder in float32; compares logits, hidden states block by block, and greedy tokens.

    The call `first` returns the input of the first block.
    """
    loaded = fk.pretrained.load(DATA / name, dtype="float32")
    arrays = expected(name)
    ids = jnp.asarray(arrays["ids"], "int32")
    probed = transforms.probe(loaded.model, [first, "block_*", "norm"])
    logits, values = jax.jit(lambda model, ids: model(ids))(probed, ids)
    hidden = [key for key in arrays if key.startswith("hidden_")]
    blocks = [f"block_{n}_ib-0" for n in range(len(hidden) - 2)]
    # the last hidden state of transformers is that after the final norm
    for key, place in zip(hidden, [f"{first}_ib-0", *blocks, "norm_ib-0"], strict=True):
        np.testing.assert_allclose(values[place], arrays[key], atol=1e-4, err_msg=place)
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)
    greedy = arrays["greedy"]
    assert greedy_tokens(loaded.model, ids[:, :7], greedy.shape[1]).tolist() == greedy.tolist()
    return loaded


def greedy_tokens(model, ids, count):
    """The most likely tokens one after the other, without a cache."""
    rows, start = ids.shape
    padded = jnp.zeros((rows, start + count), "int32").at[:, :start].set(ids)
    step = jax.jit(lambda model, ids: jnp.argmax(model(ids), -1))
    for n in range(start, start + count):
        # tokens do not see later tokens: the zeros after them change nothing
        padded = padded.at[:, n].set(step(model, padded)[:, n - 1])
    return np.asarray(padded[:, start:])


def computes_with_a_cache(model, name):
    """Compares logits of a long piece and of single tokens beside a cache with those of transformers."""
    arrays = expected(name)
    ids = jnp.asarray(arrays["ids"], "int32")
    state = model.init_cache(*ids.shape)

    @jax.jit
    def call(model, state, ids):
        out = model.apply(ids, state=state)
        return state | out.updates, out.value

    pieces = np.split(ids, range(ids.shape[1] - 5, ids.shape[1]), axis=1)
    for start, piece in zip((0, *range(ids.shape[1] - 5, ids.shape[1])), pieces, strict=True):
        state, logits = call(model, state, piece)
        wanted = arrays["logits"][:, start : start + piece.shape[1]]
        np.testing.assert_allclose(logits, wanted, atol=1e-4, err_msg=f"token {start}")


def is_kept_by_a_model_file(name, folder):
    """Writes the model of a folder as a .keras file, and reads it again."""
    model = fk.pretrained.load(DATA / name).model
    fk.save_model(folder / "model.keras", model)
    assert fk.load_model(folder / "model.keras")[0] == model


def rewritten(name, folder, change):
    """Copies a folder with its tensors changed: `change` receives a dictionary of arrays."""
    shutil.copy(DATA / name / "config.json", folder)
    with open_table(str(DATA / name / "model.safetensors"), Limits()) as table:
        arrays = {key: stored.read() for key, stored in table.items()}
    change(arrays)
    with (folder / "model.safetensors").open("wb") as file:
        write(file, arrays, {"format": "pt"})
    return folder


def is_written_back(name, folder):
    """Loads a folder in its own dtype, writes the model, and compares the bytes of the files."""
    loaded = fk.pretrained.load(DATA / name)
    fk.pretrained.save(folder, loaded.model, loaded.state, loaded.config)
    written = sorted(os.listdir(folder))
    assert {"config.json", "model.safetensors"} <= set(written)
    same, different, missing = filecmp.cmpfiles(DATA / name, folder, written, shallow=False)
    assert (sorted(same), different, missing) == (written, [], [])
    return loaded


def split(folder):
    """Replaces the safetensors file of a folder by two and an index, as transformers writes them."""
    whole = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(whole)
    whole.unlink()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        arrays = {name: tensors[name] for name in part}
        safetensors.numpy.save_file(arrays, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / f"{whole.name}.index.json").write_text(json.dumps(index, indent=2) + "\n")

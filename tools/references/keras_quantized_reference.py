"""Writes tests/data/keras_quantized.json: quantized models of Keras 3, and what they compute.

    python tools/references/keras_quantized_reference.py

With Keras 3.15 it writes the cases of GPTQ and AWQ, which choose codes with examples; that takes
Keras half a minute. Keras 3.15 leaves the zeros of their codes out when it saves: the cases called
"lost" are as it writes them, the others have the zeros, as it reads them. With Keras 3.11 to 3.13 it
writes the cases of 4 bits as those versions keep them, in both kinds of file. Cases of other
versions stay as they are.
"""

import io
import json
import os
import pathlib
import tempfile
import unittest.mock
import zipfile

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from hdf5_as_json import packed, tree
from keras import layers, quantizers

IDS = np.random.default_rng(0).integers(0, 11, (3, 4))
KINDS = (layers.Dense, layers.EinsumDense)
OLD = tuple(map(int, keras.__version__.split(".")[:2])) < (3, 14)
# by the name of the configuration, which older versions may not have
CASES = {
    "gptq/4/2": ("GPTQConfig", {"weight_bits": 4, "group_size": 2}),
    "gptq/3/-1": ("GPTQConfig", {"weight_bits": 3, "group_size": -1}),
    "awq/4/2": ("AWQConfig", {"group_size": 2}),
    "lost, symmetric": ("GPTQConfig", {"weight_bits": 4, "symmetric": True}),
    "lost": ("AWQConfig", {"group_size": 2}),
}


def calibrated(kind, given):
    words = keras.Input((4,), dtype="int32")
    table = layers.Embedding(11, 6, name="table")
    x = keras.Input((4, 6))
    y = layers.Dense(5, name="wide")(x)
    y = layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", name="in")(y)
    y = layers.EinsumDense("abde,dec->abc", (None, 6), name="out")(y)
    block = keras.Model(x, y, name="block")
    model = keras.Model(words, block(table(words)))
    for weight in model.weights:
        weight.assign(np.random.default_rng(weight.shape[0]).normal(size=weight.shape))
    structure = {"pre_block_layers": [table], "sequential_blocks": [block]}
    model.get_quantization_layer_structure = lambda mode: structure
    config = getattr(quantizers, kind)(IDS, lambda t: t, num_samples=3, sequence_length=4, **given)
    model.quantize(config.mode, config=config, filters="wide|in|out")
    return model


def four_bits():
    keras.utils.set_random_seed(0)
    ids = keras.Input((4,), dtype="int32", name="ids")
    y = layers.Embedding(11, 6, name="table")(ids)
    y = layers.Dense(5, name="wide")(y)
    y = layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", name="in")(y)
    y = layers.EinsumDense("abde,dec->abc", (None, 6), name="out")(y)
    y = layers.MultiHeadAttention(2, 3, name="att")(y, y)
    model = keras.Model(ids, y)
    model.quantize("int4")
    return model


def with_zeros(layer):
    return layer.kernel, None, layer.kernel_zero


def save(model, path, whole):
    if not whole:
        return model.save(path)
    change = {"_get_kernel_with_merged_lora": with_zeros}
    patches = [unittest.mock.patch.multiple(kind, **change) for kind in KINDS]
    with patches[0], patches[1]:
        model.save(path)


def case(name):
    model = four_bits() if OLD else calibrated(*CASES[name])
    path = os.path.join(tempfile.mkdtemp(), "m.h5" if "h5" in name else "m.keras")
    save(model, path, "lost" not in name and not OLD)
    outputs = packed(np.asarray(model(IDS)))
    if "h5" in name:
        return {"file": tree(path), "inputs": IDS.tolist(), "outputs": outputs}
    members = {}
    with zipfile.ZipFile(path) as file:
        for member in sorted(file.namelist()):
            data = file.read(member)
            text = member.endswith(".json")
            members[member] = data.decode() if text else tree(io.BytesIO(data))
    return {"members": members, "inputs": IDS.tolist(), "outputs": outputs}


def main():
    path = pathlib.Path(__file__).parents[2] / "tests" / "data" / "keras_quantized.json"
    known = json.loads(path.read_text())["cases"] if path.exists() else {}
    names = ("int4", "int4, h5") if OLD else CASES
    cases = known | {name: case(name) for name in names}
    path.write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()

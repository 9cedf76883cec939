"""Folders of 8-bit floats with scales: the numbers of the formula and of transformers, and damaged folders."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.files.float8 import dequantize
from tests.pretrained import float8_folders, option_checks
from tests.pretrained.checks import DATA
from tests.pretrained.float8_folders import BLOCKS, ROWS, arrays, compressed, floats, write_folder

EXPECTED = json.loads((DATA / "float8.json").read_text())
GATE = "model.layers.0.mlp.gate_proj.weight"


def leaves(model):
    return jax.tree.leaves(model)


def equal(ours, theirs):
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        ((2, 3), (3, 3, 3)),
        ((8, 8), (3, 1, 1)),
        ((1, 2**40), (3, 5, 1)),
        ((2**40, 1), (3, 1, 7)),
        (None, ()),
        (None, (1,)),
    ],
)
def test_codes_times_scales(block, shape, monkeypatch):
    # several parts of a matrix
    monkeypatch.setattr("fkeras.pretrained.files.float8._COUNT", 15)
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(3, 5, 7)).astype(float8_folders.CODES)
    scale = rng.random(shape).astype(ml_dtypes.bfloat16)
    full = scale.astype("float32")
    if block is not None:
        rows, columns = min(block[0], 5), min(block[1], 7)
        full = np.repeat(np.repeat(full, rows, 1), columns, 2)[:, :5, :7]
    expected = codes.astype("float32") * full
    np.testing.assert_array_equal(dequantize(codes, scale, block, "float32"), expected)
    half = dequantize(codes, scale, block, "bfloat16")
    np.testing.assert_array_equal(half, expected.astype(ml_dtypes.bfloat16))


def test_no_rows():
    codes, scale = np.zeros((0, 3), float8_folders.CODES), np.zeros((0, 1), "float32")
    assert dequantize(codes, scale, (2, 3), "float32").shape == (0, 3)


def test_all_codes_and_overflow():
    codes = np.arange(256, dtype=np.uint8).view(float8_folders.CODES)
    ours = dequantize(codes, np.float32([1.0]), None, "float32")
    np.testing.assert_array_equal(ours, codes.astype("float32"))
    assert np.isnan(ours[0x7F]) and ours[0x7E] == 448
    assert np.isinf(dequantize(codes, np.float32(1e3), None, "float16")[0x7E])


def test_weights_equal_those_of_transformers(tmp_path):
    loaded = fk.pretrained.load(write_folder(tmp_path, arrays((16, 8)), BLOCKS))
    kernel = loaded.model.layers["block_1"].layers["down"].kernel
    assert kernel.dtype == "bfloat16"
    assert option_checks.spread(np.asarray(kernel, "float32").T, 9) == EXPECTED["down_proj"]


@pytest.mark.exhaustive
def test_logits_equal_those_of_transformers(tmp_path):
    loaded = fk.pretrained.load(write_folder(tmp_path, arrays((16, 8)), BLOCKS))
    model = fk.cast(loaded.model, "float32")
    logits = model(option_checks.prompts())
    np.testing.assert_allclose(option_checks.spread(logits, 9), EXPECTED["logits"], atol=1e-5)


SCHEMES = {
    # no block is full: 48 rows, 32 columns
    "edges": ((28, 20), "_scale_inv", {**BLOCKS, "weight_block_size": [28, 20]}),
    "one block": ((128, 128), "_scale_inv", {**BLOCKS, "weight_block_size": [128, 128]}),
    "missing": ((128, 128), "_scale_inv", {"quant_method": "fp8"}),
    # a block may not take memory beyond the tensor
    "large": (
        (2**31 - 1, 2**31 - 1),
        "_scale_inv",
        {**BLOCKS, "weight_block_size": [2**31 - 1] * 2},
    ),
    "static": (None, "_scale_inv", {"quant_method": "fp8", "activation_scheme": "static"}),
    "old": (ROWS, "_scale", {"quant_method": "fp8", "weight_block_size": None}),
    "fbgemm": (ROWS, "_scale", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}),
    "tensor": (None, "_scale", compressed(strategy="tensor")),
    "channel": (ROWS, "_scale", compressed(strategy="channel")),
    "block": ((7, 9), "_scale", compressed(strategy="block", block_structure=[7, 9])),
}


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_folder_of_codes_is_the_folder_of_its_floats(name, tmp_path):
    block, end, quantization = SCHEMES[name]
    tensors = arrays(block, end)
    plain = floats(tensors, block)
    # scales of the inputs, which are not used
    beside = {
        GATE.replace("weight", f"{n}_scale"): np.float32([2.0])
        for n in ("input", "output", "activation")
    }
    folder = write_folder(tmp_path / "codes", {**tensors, **beside}, quantization)
    expected = fk.pretrained.load(write_folder(tmp_path / "floats", plain))
    loaded = fk.pretrained.load(folder, dtype="float32")
    equal(loaded.model, expected.model)
    assert loaded.config == dataclasses.replace(expected.config, layout=None)
    halves = fk.pretrained.load(folder)
    equal(halves.model, fk.cast(expected.model, "bfloat16"))
    fk.pretrained.save(tmp_path / "again", halves.model, halves.state, halves.config)
    again = fk.pretrained.load(tmp_path / "again")
    equal(again.model, halves.model)
    assert "quantization_config" not in json.loads((tmp_path / "again/config.json").read_text())


_SMALL = {**BLOCKS, "weight_block_size": [8, 8]}
# block, end of the names of scales, dtype of the scales, quantization and part, by the name of a stored model
EXPERTS = {
    "deepseek_v3": ((8, 8), "_scale_inv", "float32", {**_SMALL, "scale_fmt": "ue8m0"}, None),
    "qwen3_moe": (
        (128, 128),
        "_scale_inv",
        "bfloat16",
        {
            **BLOCKS,
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["model.layers.0.mlp.gate"],
        },
        None,
    ),
    "qwen2_moe": ((8, 8), "_scale_inv", "float32", _SMALL, None),
    "mixtral": (
        None,
        "_scale",
        "float32",
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        None,
    ),
    "llama4": (ROWS, "_scale", "bfloat16", compressed(strategy="channel"), "text"),
}


def stored_model(name):
    """The `config.json` of a model with experts, and its tensors."""
    decoders = option_checks.stored(option_checks.DECODERS)
    if name in decoders:
        mapping, shapes = decoders[name]["config"], decoders[name]["tensors"]
    else:
        entry = option_checks.stored()[name]
        mapping, shapes = option_checks.mapping_of(name, entry, "", {}), entry["tensors"][0]
    tensors = {tensor: option_checks.weights(tensor, shape) for tensor, shape in shapes.items()}
    if name == "deepseek_v3":  # a block that predicts several tokens, which is not computed
        mapping = {**mapping, "num_nextn_predict_layers": 1}
        more = {
            n.replace(".2.", ".3.", 1): array for n, array in tensors.items() if "layers.2." in n
        }
        tensors |= more | {"model.layers.3.eh_proj.weight": np.ones((24, 48), "float32")}
    return mapping, float8_folders.unpacked(tensors) if name == "llama4" else tensors


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "deepseek_v3" else pytest.mark.exhaustive)
        for name in EXPERTS
    ],
)
def test_experts_of_codes_are_those_of_their_floats(name, tmp_path):
    block, end, dtype, quantization, part = EXPERTS[name]
    mapping, tensors = stored_model(name)
    codes = float8_folders.of_floats(tensors, block, end, dtype)
    assert any(
        ".experts.1." in name and array.dtype == float8_folders.CODES
        for name, array in codes.items()
    )
    write_folder(tmp_path / "floats", floats(codes, block), mapping=mapping)
    # scales of the inputs, which are not used
    codes |= {
        n.replace(".weight", ".input_scale"): np.float32([2.0]) for n in tensors if ".experts." in n
    }
    folder = write_folder(tmp_path / "codes", codes, quantization, mapping)
    expected = fk.pretrained.load(tmp_path / "floats", part=part)
    loaded = fk.pretrained.load(folder, dtype="float32", part=part)
    assert loaded.model == expected.model
    fk.pretrained.save(tmp_path / "again", loaded.model, loaded.state, loaded.config)
    assert fk.pretrained.load(tmp_path / "again").model == expected.model
    quantized = fk.pretrained.load(folder, dtype="float32", part=part, quantize="int4").model
    assert quantized == fk.quantize(expected.model, "int4")


@pytest.mark.exhaustive
def test_kernels_of_all_experts_with_a_scale_for_each_output(tmp_path):
    """As transformers writes Llama 4: kernels (e, i, o), and scales (e, 1, o) or, of "down_proj", (e, o, 1)."""
    entry = option_checks.stored(option_checks.DECODERS)["llama4_text"]
    tensors = {name: option_checks.weights(name, shape) for name, shape in entry["tensors"].items()}
    coded, plain = dict(tensors), dict(tensors)
    for name, array in tensors.items():
        if ".experts." not in name:
            continue
        scale = np.abs(array).max(axis=1, keepdims=True) / 448
        coded[name] = (array / scale).astype(float8_folders.CODES)
        plain[name] = coded[name].astype("float32") * scale
        coded[f"{name}_scale"] = scale.reshape(len(scale), -1, 1) if "down" in name else scale
    matrices = {n: a for n, a in tensors.items() if a.ndim == 2 and "shared_expert" in n}
    matrices = float8_folders.of_floats(matrices, ROWS, "_scale")
    coded, plain = coded | matrices, plain | floats(matrices, ROWS)
    quantization = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    folder = write_folder(tmp_path / "codes", coded, quantization, entry["config"])
    expected = fk.pretrained.load(write_folder(tmp_path / "plain", plain, None, entry["config"]))
    assert fk.pretrained.load(folder).model == expected.model
    down = next(name for name in coded if name.endswith("down_proj_scale"))
    for shape in ((4, 12, 1), (4, 1, 12), (4, 24), (24,)):
        damaged = {**coded, down: np.ones(shape, "float32")}
        write_folder(folder, damaged, quantization, entry["config"])
        with pytest.raises(fk.FileError, match=r"a scale of floats \(4, 1, 24\) or \(4, 24, 1\)"):
            fk.pretrained.load(folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_codes_of_another_kind(quantize, tmp_path):
    folder = write_folder(tmp_path, arrays((16, 8)), BLOCKS)
    loaded = fk.pretrained.load(folder, dtype="float32", quantize=quantize)
    equal(loaded.model, fk.quantize(fk.pretrained.load(folder, dtype="float32").model, quantize))


def changed(tensors, **changes):
    """Tensors with other values; None removes a tensor."""
    result = {**tensors, **{GATE + end: value for end, value in changes.items()}}
    return {name: array for name, array in result.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"_scale_inv": None},
            "gate_proj.weight: expected a scale .*'.*weight_scale_inv' or '.*weight_scale'",
        ),
        (
            {"_scale_inv": np.ones((3, 3), "float32")},
            r"weight_scale_inv: expected a scale of floats \(3, 4\) .*\(48, 32\) .*scale float32 \(3, 3\)",
        ),
        ({"_scale_inv": np.ones((3, 4), "int32")}, r"the scale int32 \(3, 4\)"),
        ({"": np.ones((48, 32), "float32")}, "not in the model: .*weight_scale_inv"),
        ({"": np.ones(48, float8_folders.CODES)}, r"expected 8-bit floats with two axes .*\(48,\)"),
    ],
)
def test_damaged_scales_are_rejected(changes, message, tmp_path):
    folder = write_folder(tmp_path, changed(arrays((16, 8)), **changes), BLOCKS)
    with pytest.raises(fk.FileError, match=message):
        fk.pretrained.load(folder)


ERRORS = [
    ("fp8", "expected a mapping, received 'fp8'"),
    ({}, "not in the model: .*weight_scale_inv"),
    (
        {"quant_method": "gptq"},
        "quant_method: expected one of fp8, fbgemm_fp8, compressed-tensors, mxfp4, received 'gptq'",
    ),
    ({"quant_method": ["fp8"]}, "quant_method: expected one of"),
    ({"bits": 8}, "quant_method: expected one of .*received None"),
    ({**BLOCKS, "rotation": 3}, r"unknown key 'quantization_config.rotation' with the value 3"),
    ({**BLOCKS, "activation_scheme": "none"}, "activation_scheme: expected 'dynamic' or 'static'"),
    (
        {**BLOCKS, "weight_block_size": 128},
        r"weight_block_size: expected two numbers, such as \[128, 128\]",
    ),
    ({**BLOCKS, "weight_block_size": [16, 8, 1]}, "weight_block_size: expected two numbers"),
    (
        {**BLOCKS, "weight_block_size": [0, 8]},
        "weight_block_size: expected an integer from 1 .*received 0",
    ),
    ({**BLOCKS, "weight_block_size": [16, "8"]}, "weight_block_size"),
    (
        {**BLOCKS, "weight_block_size": None},
        r"expected a scale of floats \(\) or \(1,\) or \(.*, 1\)",
    ),
    (
        {"quant_method": "compressed-tensors"},
        "config_groups: expected mappings by name, received None",
    ),
    ({**compressed(), "config_groups": {"g": 1}}, "config_groups: expected mappings by name"),
    ({**compressed(), "config_groups": {"g": {"weights": 1}}}, "g: weights: expected a mapping"),
    (compressed(num_bits=4), "group_0: weights: num_bits: expected 8, .*received 4"),
    (compressed(type="int"), "type: expected 'float', .*received 'int'"),
    (compressed(symmetric=False), "symmetric: expected True"),
    (
        compressed(strategy="group"),
        "strategy: expected 'tensor', 'channel' or 'block', received 'group'",
    ),
    (compressed(strategy="block"), "block_structure: expected two numbers"),
    (
        {**compressed(), "sparsity_config": {"format": "sparse-24"}},
        "sparsity_config: expected the format 'dense'",
    ),
    (
        {**compressed(), "transform_config": {"config_groups": {}}},
        "unknown key 'quantization_config.transform_config'",
    ),
]


@pytest.mark.parametrize(("quantization", "message"), ERRORS)
def test_other_quantizations_are_rejected(quantization, message, tmp_path):
    folder = write_folder(tmp_path, arrays((16, 8)), quantization)
    with pytest.raises(fk.FileError, match=message):
        fk.pretrained.load(folder)


def test_ignored_keys(tmp_path):
    tensors = arrays((16, 8))
    folder = write_folder(tmp_path, tensors, {**BLOCKS, "rotation": 3})
    loaded = fk.pretrained.load(folder, ignore_keys="quantization_config.rotation")
    assert leaves(loaded.model)[0].dtype == "bfloat16"
    # codes without scales
    with pytest.raises(fk.FileError, match="not in the model: .*weight_scale_inv"):
        fk.pretrained.load(folder, ignore_keys=["quantization_config"])
    codes = fk.pretrained.load(
        folder, ignore_keys=["quantization_config"], ignore="*_scale_inv", dtype="float32"
    )
    kernel = codes.model.layers["block_0"].layers["gate"].kernel
    np.testing.assert_array_equal(kernel, tensors[GATE].astype("float32").T)

"""MXFP4: numbers of the standard, damaged tensors, and folders that `save` writes as floats."""

import json

import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.stored import loaded
from fkeras.pretrained.files.mxfp4 import decoded
from tests.pretrained import option_checks

ENTRY = option_checks.stored(option_checks.DECODERS)["gpt_oss-mxfp4"]
NAME = "model.layers.1.mlp.experts.down_proj"


def _decoded(arrays, dtype=None):
    return decoded({name: loaded(array) for name, array in arrays.items()}, dtype)


def _number(code, exponent):
    """The number of a code by the standard: E2M1 times a power of 2."""
    sign, power, fraction = -1 if code & 8 else 1, (code >> 1) & 3, code & 1
    magnitude = fraction / 2 if power == 0 else 2.0 ** (power - 1) * (1 + fraction / 2)
    return sign * magnitude * 2.0 ** (exponent - 127)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_each_code_and_exponent(dtype):
    exponents = np.array([[[1, 100, 126]], [[127, 200, 251]]], "uint8")
    codes = np.random.default_rng(0).integers(0, 256, (2, 1, 3, 16)).astype("uint8")
    arrays = {"a_blocks": codes, "a_scales": exponents, "b": np.ones(3, "float32")}
    tensors = _decoded(arrays, dtype)
    assert tensors.keys() == {"a", "b"}
    stored = tensors["a"]
    array = stored.read()
    assert (array.shape, array.dtype) == (stored.shape, stored.dtype)
    assert (stored.shape, stored.dtype.name) == ((2, 96, 1), dtype or "bfloat16")
    for e, block, place in np.ndindex(2, 3, 16):
        for half in (0, 1):
            code = int(codes[e, 0, block, place]) >> (4 * half) & 15
            expected = _number(code, int(exponents[e, 0, block]))
            assert float(array[e, 32 * block + 2 * place + half, 0]) == expected
    # the smallest numbers are exact, 255 is NaN
    scales = np.array([[[0, 255]]], "uint8")
    pair = {"a_blocks": np.full((1, 1, 2, 16), 0x21, "uint8"), "a_scales": scales}
    array = _decoded(pair, dtype)["a"].read()[0, :, 0].astype("float64")
    assert array[:2].tolist() == [0.5 * 2.0**-127, 2.0**-127]
    assert np.isnan(array[32:]).all()


BLOCKS, SCALES = np.zeros((2, 5, 3, 16), "uint8"), np.zeros((2, 5, 3), "uint8")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a_blocks": BLOCKS}, "received blocks uint8 .2, 5, 3, 16. and no scales"),
        ({"a_blocks": BLOCKS, "a_scales": SCALES[:1]}, r"scales uint8 \(1, 5, 3\)"),
        ({"a_blocks": BLOCKS, "a_scales": SCALES.astype("float32")}, "scales float32"),
        ({"a_blocks": BLOCKS.astype("float32"), "a_scales": SCALES}, "blocks float32"),
        ({"a_blocks": BLOCKS[..., :8], "a_scales": SCALES}, r"blocks uint8 \(2, 5, 3, 8\)"),
        ({"a_blocks": BLOCKS[0], "a_scales": SCALES[0]}, r"blocks uint8 \(5, 3, 16\)"),
        ({"a_blocks": BLOCKS, "a_scales": SCALES, "a": SCALES}, "expected 'a_blocks' or 'a'"),
    ],
)
def test_damaged_tensors_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        _decoded(arrays)


@pytest.mark.exhaustive
def test_a_folder_is_written_as_floats(tmp_path):
    folder, again = tmp_path / "first", tmp_path / "again"
    folder.mkdir()
    option_checks.write_folder(folder, ENTRY["config"], ENTRY["tensors"])
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    opened = fk.pretrained.load(folder, dtype="float32")
    kernel = opened.model.layers["block_1"].layers["experts"].down_kernel
    codes, scales = arrays[f"{NAME}_blocks"], arrays[f"{NAME}_scales"]
    assert float(kernel[3, 41, 7]) == _number(codes[3, 7, 1, 4] >> 4, int(scales[3, 7, 1]))
    for dtype in ("float32", None):
        own = fk.pretrained.load(folder, dtype=dtype)
        fk.pretrained.save(again, own.model, own.state, own.config)
        mapping = json.loads((again / "config.json").read_text())
        assert mapping == {k: v for k, v in ENTRY["config"].items() if k != "quantization_config"}
        written = safetensors.numpy.load_file(again / "model.safetensors")
        assert NAME in written
        assert not any(name.endswith(("_blocks", "_scales")) for name in written)
        assert fk.pretrained.load(again).model == opened.model
    quantized = fk.pretrained.load(folder, dtype="float32", quantize="int8").model
    assert quantized == fk.quantize(opened.model, "int8")
    assert quantized.layers["block_0"].layers["experts"].up_kernel.dtype == "int8"
    ids = option_checks.prompts()[:, :6]
    exact, near = (np.asarray(model(ids)) for model in (opened.model, quantized))
    assert 0 < np.abs(near - exact).max() < 0.1 * np.abs(exact).max()


def test_other_quantizations_are_refused(tmp_path):
    safetensors.numpy.save_file({"a": np.ones(2, "float32")}, tmp_path / "model.safetensors")
    for quantization, message in (
        ({"quant_method": "awq", "bits": 4}, "compressed-tensors, mxfp4, received 'awq'"),
        (
            {"quant_method": "mxfp4", "group_size": 16},
            "unknown key 'quantization_config.group_size'",
        ),
        ("mxfp4", "quantization_config: expected a mapping"),
    ):
        mapping = {**ENTRY["config"], "quantization_config": quantization}
        (tmp_path / "config.json").write_text(json.dumps(mapping))
        with pytest.raises(fk.FileError, match=message):
            fk.pretrained.load(tmp_path)

"""Folders whose weights are 8-bit floats with scales, as DeepSeek, Qwen and compressed-tensors write them."""

import json
import math

import ml_dtypes
import numpy as np

from fkeras.host.containers.safetensors import write
from tests.pretrained import option_checks

CODES = ml_dtypes.float8_e4m3fn
ROWS = "rows"
#: `config.json` of a small model, whose sizes are multiples of the blocks
QWEN = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rope_theta": 300.0,
}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 8]}


def group(**weights):
    """The entry of a group of layers of compressed-tensors."""
    numbers = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, **weights}
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    return {"targets": ["Linear"], "weights": numbers, "input_activations": inputs}


def compressed(**weights):
    """The `quantization_config` of compressed-tensors with one group of layers."""
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group(**weights)},
        "quantization_status": "compressed",
    }


def shapes():
    """The shapes of the tensors of `QWEN`."""
    width, inner, head = QWEN["hidden_size"], QWEN["intermediate_size"], QWEN["head_dim"]
    norms = {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
    norms |= {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
    linear = {"q": (32, width), "k": (16, width), "v": (16, width), "o": (width, 32)}
    block = {f"self_attn.{name}_proj": shape for name, shape in linear.items()} | norms
    block |= {f"mlp.{name}_proj": (inner, width) for name in ("gate", "up")}
    block |= {"mlp.down_proj": (width, inner)}
    layers = [f"model.layers.{n}.{name}" for n in range(2) for name in block]
    outer = {"model.embed_tokens": (67, width), "lm_head": (67, width), "model.norm": (width,)}
    return {
        f"{name}.weight": shape
        for name, shape in (outer | dict(zip(layers, [*block.values()] * 2, strict=True))).items()
    }


def coded(array, block):
    """The codes and scales of an array: `block` is a pair of sizes, "rows", or None for one scale."""
    rows, columns = {None: array.shape, ROWS: (1, array.shape[1])}.get(block, block)
    sizes = math.ceil(array.shape[0] / rows), math.ceil(array.shape[1] / columns)
    scale = np.empty(sizes, "float32")
    for i, j in np.ndindex(sizes):
        part = array[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        scale[i, j] = np.abs(part).max() / 448
    codes = (array / spread(scale, rows, columns, array.shape)).astype(CODES)
    return codes, scale if block is not None else scale.ravel()


def spread(scale, rows, columns, shape):
    """The scale of each number."""
    height, width = shape
    rows, columns = min(rows, height), min(columns, width)
    return np.repeat(np.repeat(scale, rows, 0), columns, 1)[:height, :width]


def arrays(block, end="_scale_inv", dtype=ml_dtypes.bfloat16):
    """The tensors of a folder; only the projections of the blocks are codes."""
    tensors = {}
    for name, shape in shapes().items():
        array = option_checks.weights(name, shape)
        if "proj" in name:
            tensors[name], tensors[name + end] = coded(array, block)
        else:
            tensors[name] = array.astype(dtype)
    return tensors


def of_floats(tensors, block, end="_scale_inv", dtype="float32"):
    """The tensors of a folder with codes in the place of the projections and of the kernels of experts."""
    result = {}
    for name, array in tensors.items():
        if array.ndim == 2 and ("proj" in name or ".experts." in name):
            array, scale = coded(array, block)
            result[name + end] = scale.astype(dtype)
        result[name] = array
    return result


def unpacked(tensors):
    """The tensors of Llama 4 with a matrix for each kernel of each expert."""
    result = {}
    for name, array in tensors.items():
        place = name.removesuffix(".gate_up_proj").removesuffix(".down_proj")
        if "experts." not in name:
            result[name] = array
            continue
        parts = {"gate": array, "up": array} if "gate_up" in name else {"down": array}
        for part, kernel in parts.items():
            half = {"gate": slice(0, 12), "up": slice(12, None)}.get(part, slice(None))
            for e, matrix in enumerate(kernel[..., half]):
                result[f"{place}.{e}.{part}_proj.weight"] = np.ascontiguousarray(matrix.T)
    return result


def floats(tensors, block):
    """The tensors as float32: codes times scales."""
    result = {}
    for name, array in tensors.items():
        scale = next(
            (tensors[name + end] for end in ("_scale_inv", "_scale") if name + end in tensors), None
        )
        if scale is not None:
            size = {None: array.shape, ROWS: (1, array.shape[1])}.get(block, block)
            full = spread(np.atleast_2d(scale), *size, array.shape)
            result[name] = array.astype("float32") * full
        elif not name.endswith(("_scale_inv", "_scale")):
            result[name] = array.astype("float32")
    return result


def write_folder(folder, tensors, quantization=None, mapping=QWEN):
    """Writes a folder with tensors and a `quantization_config`."""
    folder.mkdir(exist_ok=True)
    mapping = mapping if quantization is None else {**mapping, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(mapping))
    with (folder / "model.safetensors").open("wb") as file:
        write(file, tensors, {"format": "pt"})
    return folder

"""Folders whose weights are 8-bit floats with scales, or MXFP4: every weight becomes floats when it is read.

A weight is `codes * scale`, where a scale belongs to the whole tensor, to a row or to a block. The scale of "x.weight" is
the tensor "x.weight_scale_inv" or "x.weight_scale"; both multiply. Serving engines also round the inputs of these layers
to 8-bit floats ("activation_scheme", "input_activations"): here the inputs keep the compute dtype.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
from jax.typing import DTypeLike

from fkeras.authoring.engine import describe_value
from fkeras.engine import FrozenDict
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.files.folder import Checkpoint
from fkeras.pretrained.files.mxfp4 import decoded
from fkeras.pretrained.tables.config import positive, reject_keys
from fkeras.pretrained.tables.dtypes import COMPUTED, common_dtype

KEY = "quantization_config"
_MXFP4 = "mxfp4"
_SCALES = ("_scale_inv", "_scale")
# scales of the inputs and outputs of layers and of caches, which round at run time
_OTHER_SCALES = tuple(f".{n}_scale" for n in ("input", "output", "activation", "q", "k", "v"))
_REMEDY = "Load the folder of the model before its quantization, and give load(..., quantize=...)."
# numbers that are computed at a time
_COUNT = 2**20

#: the number of rows and columns that share a scale; None for the whole tensor
Block: TypeAlias = tuple[int, int] | None
_ROW = (1, sys.maxsize)
# an output of the kernels (e, i, o) of experts
_OUTPUT = (sys.maxsize, 1)


def dequantized(checkpoint: Checkpoint, config: Any, dtype: DTypeLike | None = None) -> Checkpoint:
    """Returns the checkpoint with floats instead of codes and scales; each tensor is computed when it is read.

    Args:
        config: the value of the key `quantization_config`; with None the checkpoint is returned unchanged.
        dtype: dtype of these tensors; None for the most common dtype of the others, or bfloat16 without others.
            With MXFP4, None is bfloat16.

    Raises:
        ValueError: for another kind of quantization, an unknown key, and scales that are missing or of another shape.
    """
    if not config:
        return checkpoint
    if not isinstance(config, Mapping):
        raise ValueError(
            f"{KEY}: expected a mapping, received {describe_value(config)}. Correct config.json."
        )
    method = config.get("quant_method")
    if not isinstance(method, str) or method not in _METHODS:
        raise ValueError(
            f"{KEY}: quant_method: expected one of {', '.join(_METHODS)}, received {describe_value(method)}. {_REMEDY}"
        )
    known, read = _METHODS[method]
    unknown = {key: value for key, value in config.items() if value and key not in known}
    reject_keys(KEY, {f"{KEY}.{key}": value for key, value in unknown.items()}, "config.json")
    mapping = {key: value for key, value in checkpoint.mapping.items() if key != KEY}
    if method == _MXFP4:
        return checkpoint._replace(mapping=mapping, tensors=decoded(checkpoint.tensors, dtype))
    blocks = read(config)
    codes = {
        n: _scale_of(n, checkpoint.tensors) for n, t in checkpoint.tensors.items() if _is_code(t)
    }
    taken = {*codes, *codes.values()}
    others = {
        name: stored
        for name, stored in checkpoint.tensors.items()
        if name not in taken and not name.endswith(_OTHER_SCALES)
    }
    dtypes = {name: stored.dtype for name, stored in others.items()}
    if dtype is None:
        is_computed = any(kind.name in COMPUTED for kind in dtypes.values())
        dtype = common_dtype(dtypes) if is_computed else "bfloat16"
    tensors = {
        name: others[name]
        if name in others
        else _floats(name, checkpoint.tensors, codes[name], blocks, dtype)
        for name in checkpoint.tensors
        if name in others or name in codes
    }
    return checkpoint._replace(mapping=mapping, tensors=tensors)


def _is_code(stored: Stored) -> bool:
    return stored.dtype.name in ("float8_e4m3fn", "float8_e5m2")


def _scale_of(name: str, tensors: Mapping[str, Stored]) -> str:
    """Returns the name of the scale of a tensor."""
    found = next((name + end for end in _SCALES if name + end in tensors), None)
    if found is None:
        raise ValueError(
            f"{name}: expected a scale of the 8-bit floats, {name + _SCALES[0]!r} or {name + _SCALES[1]!r}, which the "
            "folder lacks. Download the folder again."
        )
    return found


def _floats(
    name: str,
    tensors: Mapping[str, Stored],
    scale_name: str,
    blocks: Collection[Block],
    dtype: DTypeLike,
) -> Stored:
    """Returns a tensor of 8-bit floats as a tensor of floats that is not computed yet."""
    codes, scale = tensors[name], tensors[scale_name]
    if _OUTPUT in blocks:
        blocks = (_OUTPUT if len(codes.shape) == 3 else _ROW,)
    shapes = {shape: block for block in blocks for shape in _scale_shapes(codes.shape, block)}
    if scale.shape not in shapes or scale.dtype.name not in COMPUTED:
        fitting = " or ".join(map(str, shapes))
        expected = f"a scale of floats {fitting}" if fitting else "8-bit floats with two axes"
        raise ValueError(
            f"{scale_name}: expected {expected} for the blocks of {KEY}, received {codes.dtype.name} {codes.shape} and "
            f"the scale {scale.dtype.name} {scale.shape}. Correct {KEY} in config.json, or download the folder again."
        )
    block = shapes[scale.shape]

    def read() -> np.ndarray:
        factors = scale.read()
        if block == _OUTPUT:
            factors = factors.reshape(len(factors), 1, -1)
        return dequantize(codes.read(), factors, block, dtype)

    def release() -> None:
        codes.release()
        scale.release()

    return Stored(codes.shape, np.dtype(dtype), read, release)


def _scale_shapes(shape: tuple[int, ...], block: Block) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes that a scale may have."""
    if block is None:
        return (), (1,)
    if len(shape) < 2:
        return ()
    if block == _OUTPUT:  # the scales of "gate_up_proj", and those of "down_proj"
        return (shape[0], 1, shape[2]), (shape[0], shape[2], 1)
    rows, columns = block
    return ((*shape[:-2], math.ceil(shape[-2] / rows), math.ceil(shape[-1] / columns)),)


def dequantize(codes: np.ndarray, scale: np.ndarray, block: Block, dtype: DTypeLike) -> np.ndarray:
    """Computes `codes * scale` in float32, rounded to a dtype.

    Args:
        codes: 8-bit floats (..., r, c).
        scale: floats (..., ceil(r / rows), ceil(c / columns)), or one number.
        block: the rows and columns that share a scale; the last blocks may be smaller. None for one number.

    Example:
        >>> import ml_dtypes
        >>> codes = np.ones((3, 2), ml_dtypes.float8_e4m3fn)
        >>> dequantize(codes, np.float32([[2.0], [3.0]]), (2, 2), "float32")[:, 0]
        array([2., 2., 3.], dtype=float32)
    """
    numbers = np.arange(256, dtype=np.uint8).view(codes.dtype).astype(np.float32)
    out = np.empty(codes.shape, dtype)
    *others, height, width = np.atleast_2d(codes).shape
    count = math.prod(others)
    matrices, targets = (array.reshape(count, height, width) for array in (codes, out))
    rows, columns = (max(min(pair), 1) for pair in zip(block or _ROW, (height, width), strict=True))
    grids = scale.astype(np.float32)
    grids = grids.reshape(count, *scale.shape[-2:]) if block else grids.reshape(1, 1, 1)
    if grids.shape[1] == 1:  # parts of the rows have the same factors
        rows, grids = 1, np.broadcast_to(grids, (count, height, grids.shape[2]))
    step = max(_COUNT // max(width, 1) // rows, 1)
    with np.errstate(over="ignore"):
        for n, first in itertools.product(range(count), range(0, grids.shape[1], step)):
            factors = np.repeat(grids[n, first : first + step], rows, 0)
            part = slice(first * rows, first * rows + len(factors))
            if factors.shape[1] > 1:
                factors = np.repeat(factors, columns, 1)[:, :width]
            product = numbers[matrices[n, part].view(np.uint8)]
            targets[n, part] = product * factors[: len(product)]
    return out


def _fp8(config: Mapping[str, Any]) -> tuple[Block, ...]:
    """Returns the blocks of DeepSeek's and Qwen's files, and of files with a scale for each tensor or row."""
    if config.get("activation_scheme") not in (None, "dynamic", "static"):
        raise ValueError(
            f"{KEY}: activation_scheme: expected 'dynamic' or 'static', received "
            f"{describe_value(config['activation_scheme'])}. Correct config.json."
        )
    size = config.get("weight_block_size", ...)
    if size in (None, ...):
        # transformers takes the blocks of DeepSeek for a missing key
        return (None, _ROW) if size is None else (None, _ROW, (128, 128))
    return (_block(f"{KEY}: weight_block_size", size),)


def _compressed_tensors(config: Mapping[str, Any]) -> tuple[Block, ...]:
    """Returns the blocks of the groups of layers in files of compressed-tensors."""
    groups, where = config.get("config_groups"), f"{KEY}: config_groups"
    if not isinstance(groups, Mapping) or not all(isinstance(g, Mapping) for g in groups.values()):
        raise ValueError(
            f"{where}: expected mappings by name, received {describe_value(groups)}. Correct config.json."
        )
    sparsity = config.get("sparsity_config") or {}
    if not isinstance(sparsity, Mapping) or sparsity.get("format", "dense") != "dense":
        raise ValueError(
            f"{KEY}: sparsity_config: expected the format 'dense', received {describe_value(sparsity)}. {_REMEDY}"
        )
    blocks = []
    for name, group in groups.items():
        weights = group.get("weights")
        if weights is None:  # only inputs or outputs are rounded
            continue
        if not isinstance(weights, Mapping):
            raise ValueError(
                f"{where}: {name}: weights: expected a mapping, received {describe_value(weights)}. "
                "Correct config.json."
            )
        for key, expected in (("num_bits", 8), ("type", "float"), ("symmetric", True)):
            if weights.get(key, expected) != expected:
                raise ValueError(
                    f"{where}: {name}: weights: {key}: expected {expected!r}, that of 8-bit floats, received "
                    f"{describe_value(weights[key])}. {_REMEDY}"
                )
        strategy = weights.get("strategy", "tensor")
        if strategy == "block":
            size = weights.get("block_structure")
            blocks.append(_block(f"{where}: {name}: weights: block_structure", size))
        elif strategy in ("tensor", "channel"):
            blocks.append(None if strategy == "tensor" else _ROW)
        else:
            raise ValueError(
                f"{where}: {name}: weights: strategy: expected 'tensor', 'channel' or 'block', received "
                f"{describe_value(strategy)}. {_REMEDY}"
            )
    return tuple(blocks)


def _block(where: str, size: Any) -> tuple[int, int]:
    """Returns the numbers of rows and columns of a block."""
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise ValueError(
            f"{where}: expected two numbers, such as [128, 128], received {describe_value(size)}. Correct config.json."
        )
    rows, columns = (positive.check(where, number) for number in size)
    return rows, columns


# by the method, its keys and the function that returns the possible blocks
_METHODS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[Block, ...]]]] = (
    FrozenDict(
        {
            "fp8": (
                (
                    "quant_method",
                    "activation_scheme",
                    "weight_block_size",
                    "fmt",
                    "scale_fmt",
                    "modules_to_not_convert",
                    "ignored_layers",
                    "dequantize",
                ),
                _fp8,
            ),
            "fbgemm_fp8": (
                ("quant_method", "activation_scale_ub", "modules_to_not_convert"),
                lambda config: (_ROW, _OUTPUT),
            ),
            "compressed-tensors": (
                (
                    "quant_method",
                    "config_groups",
                    "format",
                    "global_compression_ratio",
                    "ignore",
                    "kv_cache_scheme",
                    "quantization_status",
                    "run_compressed",
                    "sparsity_config",
                    "version",
                ),
                _compressed_tensors,
            ),
            _MXFP4: (("quant_method", "modules_to_not_convert", "dequantize"), lambda config: ()),
        }
    )
)

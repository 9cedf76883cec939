"""Quantized weights in files: properties that the configuration omits, inferred from the arrays.

- Keras quantizes the projections of attention layers, but does not store the quantization in their
  configuration. Keras itself cannot open these files.
- Keras 3.15 omits the zero points of GPTQ and AWQ, and cannot open these files either.
- Keras 3.11 to 3.13 packed 4-bit codes along the first contracted axis; later versions pack along
  the last axis.

Related modules: `fkeras.quantizers` (quantized numbers), `layers/quantized` (layers),
`transforms/deployment/quantizing` (models), `saving/quirks/quantized_inputs` (configurations of old files).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine import Layer, Network, replace_layers
from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.tree.sublayers import sublayers
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.stored import Stored, unread
from fkeras.layers.attention.projected import PROJECTIONS, ProjectedAttention
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.products import arrange, equation_of
from fkeras.quantizers import (
    AbsMaxQuantizer,
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    pack_int4,
    unpack_int4,
)
from fkeras.saving.weights.weight_paths import Groups, places, walk_groups

# arrays after kernel and bias, in Keras's order: of integer codes, or of float8 training
_CODES = ("kernel_scale", "kernel_zero", "g_idx")
_FLOAT8_NAMES = tuple(
    f"{name}_{kind}"
    for name in ("inputs", "kernel", "outputs_grad")
    for kind in ("scale", "amax_history")
)
# `(keys that lead to an attention layer, the layer, field of the projection) -> arrays by name`
Find = Callable[[tuple[str, ...], Any, str], Mapping[str, Stored]]


def with_stored_codes(model: Network, find: Find) -> Any:
    """Quantizes the attention projections for which the file holds codes."""
    # most models have no attention layer: leave before the arrays of the file are listed
    all_layers = [layer for _, layer in sublayers(model)]
    if not any(isinstance(layer, ProjectedAttention) for layer in all_layers):
        return model
    # Keras quantizes all layers of a model alike: other layers complete the configuration
    configs_by_mode = {
        layer.quantization.policy_mode: layer.quantization
        for layer in all_layers
        if isinstance(layer, Quantized)
    }
    configs_by_path: dict[str, dict[str, Any]] = {}
    for _, keys, layer in walk_groups(model):
        if not isinstance(layer, ProjectedAttention) or layer.quantization is not None:
            continue
        children = {name: getattr(layer, name) for name in PROJECTIONS}
        configs = {
            name: _config_of(child, find(keys, layer, name))
            for name, child in children.items()
            # the exact class: a subclass may compute something else
            if type(child) is EinsumDense
        }
        quantized_configs = {name: config for name, config in configs.items() if config is not None}
        configs_by_path["/".join(keys)] = {
            n: configs_by_mode.get(c.policy_mode, c) for n, c in quantized_configs.items()
        }
    if not any(configs_by_path.values()):
        return model

    def quantize_projections(path: str, layer: Layer) -> Any:
        configs = configs_by_path.get(path)
        if not configs:
            return None
        children = {
            name: jax.eval_shape(lambda c, q=config: QuantizedDense.of(c, q), getattr(layer, name))
            for name, config in configs.items()
        }
        return layer.replace(quantization=configs, **children)

    return replace_layers(model, quantize_projections)


def find_in(store: Store, model: Network, groups: Groups) -> Find:
    """Returns a function that finds the numbered arrays of projections in Keras 3's layout."""

    # lazily, and once: the walk visits all groups of the file
    @functools.cache
    def groups_by_keys() -> dict[tuple[str, ...], str]:
        return {keys: group for group, keys, _ in walk_groups(model, groups)}

    def find(keys: tuple[str, ...], layer: Layer, field: str) -> dict[str, Stored]:
        group = f"{groups_by_keys()[keys]}/{keras_form(layer).groups.get(field, field)}/vars"
        if not store.has(group):
            return {}
        numbers = [n for n in store.datasets(group) if n.isdecimal()]
        base_names = ["kernel"] if getattr(layer, field).bias is None else ["kernel", "bias"]
        # six arrays after kernel and bias identify float8
        extra_names = (
            _FLOAT8_NAMES if len(numbers) == len(base_names) + len(_FLOAT8_NAMES) else _CODES
        )
        names = dict(zip(map(str, range(len(numbers))), (*base_names, *extra_names), strict=False))
        return {name: unread(store, f"{group}/{n}") for n, name in names.items() if n in numbers}

    return find


def _config_of(layer: EinsumDense, arrays: Mapping[str, Stored]) -> Any:
    """Infers the quantization of a projection from its arrays; None for a float projection."""
    kernel, history = arrays.get("kernel"), arrays.get("inputs_amax_history")
    if kernel is None or "kernel_scale" not in arrays:
        return None
    # float8 keeps the kernel in floats and adds a history of maxima, whose length is an option
    if kernel.dtype != np.int8:
        if history is None or len(history.shape) != 1:
            return None
        return Float8QuantizationConfig(history.shape[0])
    # 8-bit codes keep the shape; 4-bit codes are packed, two in a byte
    if kernel.shape == tuple(layer.kernel.shape):
        return Int8QuantizationConfig()
    if kernel.shape == _old_shape(layer, layer.kernel.shape):
        return Int4QuantizationConfig(None, AbsMaxQuantizer(), None)
    index = arrays.get("g_idx")
    if index is None or len(index.shape) != 1:
        return Int4QuantizationConfig(block_size=None)
    # g_idx holds the block of each input: the number of inputs in block 0 is the block size
    block_size, default_config = max(1, int(np.sum(index.read() == 0))), Int4QuantizationConfig()
    # a single block may be any block size that covers all inputs: assume the default
    is_default = (
        default_config.block_size is not None
        and index.shape[0] == block_size <= default_config.block_size
    )
    return default_config if is_default else Int4QuantizationConfig(block_size=block_size)


def _old_shape(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a 4-bit kernel in files of Keras 3.11 to 3.13."""
    equation = equation_of(layer)
    axis = next((i for i, n in enumerate(equation.kernel) if n not in equation.output), 0)
    return tuple((n + 1) // 2 if i == axis else n for i, n in enumerate(shape))


def old_shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of kernel and scale in files of Keras 3.11 to 3.13, if they differ."""
    if not isinstance(layer, QuantizedDense) or layer.quantization.policy_mode != "int4/-1":
        return {}
    assert layer.kernel_shape is not None  # the layer is built
    kernel = _old_shape(layer.layer, layer.kernel_shape)
    if layer.kernel is None or kernel == tuple(layer.kernel.shape):
        return {}
    equation = equation_of(layer.layer)
    sizes = dict(zip(equation.kernel, layer.kernel_shape, strict=True))
    scale = tuple(sizes[n] if n in equation.kernel else 1 for n in equation.output)
    return {"kernel": kernel, "kernel_scale": scale}


def renewed(layer: QuantizedDense, name: str, array: np.ndarray) -> np.ndarray:
    """Converts a 4-bit kernel, or its scale, from the form of Keras 3.11 to 3.13."""
    equation, shape = equation_of(layer.layer), layer.kernel_shape
    assert shape is not None  # the layer is built
    # True for contracted axes: only a leading run of these can be unpacked as rows of a matrix
    is_contracted = [n not in equation.output for n in equation.kernel]
    if is_contracted != sorted(is_contracted, reverse=True):
        raise ValueError(
            f"{layer._where}: expected an equation that sums over the first axes of its kernel, "
            f"received {layer.layer.equation!r} with 4-bit codes of Keras 3.11 to 3.13, which cannot "
            "be converted. Quantize to 8 bits, or with a newer version."
        )
    if name == "kernel_scale":
        return np.asarray(arrange(array, equation.output, equation.kernel)).reshape(-1)
    codes = np.asarray(unpack_int4(array, shape[0], axis=0))
    columns = layer.kernel_scale.shape[0]
    return pack_int4(codes.reshape(-1, columns), axis=1)


def moved(
    model: Network, store: Store, groups: Groups, find: Callable[[str], str]
) -> dict[str, str | np.ndarray]:
    """Returns for the path of a place the different path of its array, or the converted array.

    Args:
        find: returns the path in the file for a path of Keras 3's layout.
    """
    replacements: dict[str, str | np.ndarray] = {}
    if not any(isinstance(layer, QuantizedDense) for _, layer in sublayers(model)):
        return replacements
    for group, keys, layer in walk_groups(model, groups):
        if not isinstance(layer, QuantizedDense):
            continue
        prefix = f"{group}/" if group else ""
        paths_by_name = {
            p.name.rpartition("/")[2]: f"{prefix}{p.path}" for p in places(layer, {}, groups)
        }
        # the shape alone distinguishes the versions: files do not store the packing
        for name, shape in old_shapes(layer).items():
            path = find(paths_by_name[name])
            if store.has(path) and tuple(store.shape(path)) == shape:
                replacements[paths_by_name[name]] = renewed(layer, name, store.read(path, shape))
        if isinstance(layer.quantization, GPTQConfig | AWQConfig):
            replacements |= _lost_zeros(layer, "/".join(keys), paths_by_name, store, find)
    return replacements


def _lost_zeros(
    layer: QuantizedDense,
    name: str,
    paths_by_name: Mapping[str, str],
    store: Store,
    find: Callable[[str], str],
) -> dict[str, str | np.ndarray]:
    """Returns the zero points of symmetric codes, and the shifted paths of later arrays."""
    config, paths = layer.quantization, list(paths_by_name.values())
    # arrays are numbered: without the zero points, exactly the last number is missing
    if store.has(find(paths[-1])) or not store.has(find(paths[-2])):
        return {}
    if not getattr(config, "symmetric", False):
        raise FileError(
            f"expected the zero points of the codes of {config.policy_mode!r}, received a file of "
            "Keras 3.15, which omits them; the weights cannot be restored. Quantize with "
            "symmetric=True, or save with another version.",
            file=store.file,
            member=store.member,
            layer=name or None,
        )
    start = list(paths_by_name).index("kernel_zero")
    # the zero point of symmetric codes is the middle of the range, by definition
    assert layer.kernel_zero is not None  # the layer is built
    zero_points = np.full(layer.kernel_zero.shape, 1 << (config.weight_bits - 1), "uint8")
    shifted_paths = zip(paths[start + 1 :], paths[start:], strict=False)
    return {
        paths[start]: zero_points,
        **{path: find(previous_path) for path, previous_path in shifted_paths},
    }

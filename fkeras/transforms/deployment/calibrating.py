"""Calibration: quantizes layers with GPTQ or AWQ while samples pass through a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.context import Context, Output
from fkeras.engine.layer.layer import Layer
from fkeras.engine.values.annotations import Tree
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.products import equation_of
from fkeras.quantizers import pack_int4
from fkeras.quantizers.calibrated import awq_codes, gptq_codes
from fkeras.transforms.intercepting import intercept


def calibrate(
    model: Layer,
    paths: Collection[str],
    config: Any,
    samples: Tree,
    state: Mapping[str, Any] | None,
) -> dict[str, Quantized]:
    """Returns the quantized layers by path, each calibrated behind the quantized layers before.

    Args:
        model: a built layer or model.
        paths: the paths of the `Dense` and `EinsumDense` layers to quantize.
        samples: one batch of inputs.
        state: the state of the model.
    """
    done: dict[str, Quantized] = {}

    def around(path: str, layer: Layer, context: Context, inputs: tuple, options: Any) -> Output:
        if path in done:
            layer = done[path]
        elif path in paths:
            layer = done[path] = _calibrated(path, layer, inputs[0], config)
        return context.run(layer, *inputs, **options)

    # one operation after the other: the codes of a layer are computed with NumPy before its call
    with jax.disable_jit():
        arrays = jax.tree.map(jnp.asarray, samples)
        Context(state=state or {}).run(intercept(model, around), arrays)
    return done


def _calibrated(path: str, layer: Layer, x: Any, config: Any) -> Quantized:
    where = f"quantize: {path or layer._where!r}"
    if isinstance(x, Tracer):
        raise ValueError(
            f"{where} computes all steps of a sequence at once, so its inputs are no arrays that "
            "could be counted. Leave it out by `pattern`."
        )
    empty: Any = QuantizedDense.of(layer, config)
    rows, columns = empty._matrix(empty.kernel_shape)
    equation = equation_of(layer).spelled(x.ndim)
    summed = "".join(letter for letter in equation.kernel if letter not in equation.output)
    count = len(summed)
    if (
        equation.kernel[:count] != summed
        or not equation.input.endswith(summed)
        or int(np.prod(empty.kernel_shape[:count])) != rows
    ):
        raise ValueError(
            f"{where}: expected a kernel whose first axes are the inputs, the model's width the largest "
            f"axis, as Keras stores calibrated codes; received the shape {empty.kernel_shape} for "
            f"{equation.text!r}. Leave it out by `pattern`, or quantize it with 'int4'."
        )
    x = np.asarray(x).astype(np.float64).reshape(-1, rows)
    if not np.isfinite(x).all() or x.size == 0:
        what = "no samples" if x.size == 0 else "inputs with NaN or infinity"
        raise ValueError(f"{where}: expected finite samples, received {what}.")
    dense: Any = layer
    kernel = np.asarray(dense.kernel).astype(np.float64).reshape(rows, columns)
    moments = x.T @ x
    try:
        if config.mode == "awq":
            codes = awq_codes(kernel, moments, np.abs(x).max(0), config)
        else:
            codes = gptq_codes(kernel, moments, config)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    packed = pack_int4(codes.codes, axis=0) if config.weight_bits == 4 else codes.codes
    arrays = {
        "quantized_kernel": packed,
        "kernel_scale": codes.scale.astype(empty.kernel_scale.dtype),
        "kernel_zero": codes.zero,
        "g_idx": codes.groups.astype("float32"),
    }
    if codes.row_scales is not None:
        arrays["awq_scales"] = codes.row_scales.astype(empty.awq_scales.dtype)
    return empty.replace(**jax.tree.map(jax.device_put, arrays))

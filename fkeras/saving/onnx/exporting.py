"""Writes a model as an ONNX file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.authoring.engine import is_array, missing_package
from fkeras.authoring.saving import OPSET
from fkeras.engine import Layer, Network, Spec
from fkeras.saving.onnx.calls import Emission
from fkeras.saving.onnx.graph import protobuf
from fkeras.saving.onnx.graph.finishing import name_outputs, remove_unused
from fkeras.saving.onnx.graph.transposes import move_transposes
from fkeras.saving.onnx.graph.writer import Value, Writer, safe_name
from fkeras.transforms import unroll


def write_model(
    model: Layer,
    state: Mapping[str, Any] | None,
    path: str,
    names: list[str],
    specs: Any,
    masks: Any,
    opset: int,
) -> None:
    """Writes a built model, whose arrays this process holds, as an ONNX file.

    Args:
        names: the name of each input.
        specs: the specs of the inputs, in their structure.
        masks: the specs of the masks of the inputs, or None.
    """
    onnx = import_onnx()
    check_opset(onnx, opset)
    writer = Writer(opset)
    proto = model_proto(onnx, writer, model, state, names, specs, masks)
    protobuf.write(onnx, proto, writer.constants, path)


def output_names(model: Layer, count: int) -> list[str]:
    """Returns a name for each output: that of the layer that computes the output."""
    names = ["output"] * count
    if isinstance(model, Network) and len(model.output_names) == count:
        names = [safe_name(name) for name in model.output_names]
    # a layer with several outputs, or several outputs of a layer without graph
    repeated = {name for name in names if names.count(name) > 1}
    return [f"{name}_{n}" if name in repeated else name for n, name in enumerate(names)]


def import_onnx() -> Any:
    """Returns the package onnx."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise missing_package("export", "onnx", error) from error


def check_opset(onnx: Any, opset: object) -> None:
    """Raises ValueError for a version of the operators that the package onnx does not have."""
    newest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not OPSET <= opset <= newest:
        raise ValueError(
            f"export: expected an opset from {OPSET} to {newest}, received {opset!r}. Leave opset "
            f"away for {OPSET}."
        )


def model_proto(
    onnx: Any,
    writer: Writer,
    model: Layer,
    state: Mapping[str, Any] | None,
    names: list[str],
    specs: Any,
    masks: Any = None,
) -> Any:
    """Returns the ONNX model of a built model, without the bytes of its constants.

    Args:
        names: the name of each input.
        specs: the specs of the inputs, in their structure.
        masks: the specs of the masks of the inputs, or None.
    """
    model = unroll(model)
    leaves, treedef = jax.tree.flatten(specs, is_leaf=_is_spec)
    mask_leaves, mask_tree = jax.tree.flatten(masks, is_leaf=_is_spec)
    inputs = [
        writer.input(safe_name(name) or "input", spec.dims, spec.dtype)
        for name, spec in zip(names, leaves, strict=True)
    ]
    mask_inputs = [writer.input("mask", spec.dims, "bool") for spec in mask_leaves]
    arrays = jax.tree.map(lambda a: np.asarray(a) if is_array(a) else a, dict(state or {}))
    context = Emission(state=arrays, mask=mask_tree.unflatten(mask_inputs))
    context.writer = writer
    out = context.run(model, treedef.unflatten(inputs))
    values = jax.tree.leaves(out.value)
    computed = [Value(writer.name_of(v), v.dims, v.dtype) for v in values]
    found = move_transposes(writer, computed)
    outputs = name_outputs(writer, values, found, output_names(model, len(values)))
    remove_unused(writer, outputs)
    return protobuf.model_proto(
        onnx, writer, outputs, safe_name(model.name or type(model).__name__)
    )


def _is_spec(value: object) -> bool:
    return isinstance(value, Spec)

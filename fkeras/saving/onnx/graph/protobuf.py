"""The protobuf form of a graph, written by the package onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.atomic_files.atomic import replacing
from fkeras.saving.onnx.graph.writer import Body, Node, Value, Writer

#: readers of ONNX from the year 2024 on open this version of the format
IR_VERSION = 10


#: protobuf's limit on the size of a file; constants of a larger model are in a second file
LIMIT = 2**31 - 1
# constants of this size and more are in the second file
_EXTERNAL = 1024


def model_proto(onnx: Any, writer: Writer, outputs: Sequence[Value], name: str) -> Any:
    """Returns a graph as `onnx.ModelProto`, without its constants.

    Args:
        onnx: the package onnx.
        writer: holds nodes, inputs and the version of the operators.
        name: the name of the graph.
    """
    helper = onnx.helper
    graph = helper.make_graph(
        [_node(onnx, node) for node in writer.nodes],
        name,
        [_info(onnx, value) for value in writer.inputs],
        [_info(onnx, value) for value in outputs],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", writer.opset)],
        ir_version=IR_VERSION,
        producer_name="fkeras",
    )


def write(onnx: Any, proto: Any, constants: Mapping[str, np.ndarray], path: str) -> None:
    """Writes a model and its constants, after the check of the package onnx.

    Protobuf reads at most 2 GiB: larger constants are in a second file, `<path>.data`.
    """
    size = sum(array.nbytes for array in constants.values())
    is_large = size + len(proto.SerializeToString()) > LIMIT
    data: list[bytes] = []
    offset = 0
    for name, array in constants.items():
        tensor = proto.graph.initializer.add()
        tensor.CopyFrom(_tensor(onnx, name, array, is_large))
        if is_large and array.nbytes >= _EXTERNAL:
            place = {
                "location": f"{os.path.basename(path)}.data",
                "offset": offset,
                "length": array.nbytes,
            }
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            data.append(_bytes(array))
            offset += array.nbytes
    if is_large:
        with replacing(f"{path}.data") as file:
            for part in data:
                file.write(part)
    else:
        onnx.checker.check_model(proto, full_check=True)
    with replacing(path) as file:
        file.write(proto.SerializeToString(deterministic=True))
    if is_large:
        # the checker reads constants in external files from the folder of the model
        onnx.checker.check_model(path, full_check=True)


def _type(onnx: Any, dtype: str) -> int:
    if dtype == "bfloat16":
        return onnx.TensorProto.BFLOAT16
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _info(onnx: Any, value: Value) -> Any:
    dims = ["batch" if dim == "b" else dim for dim in value.dims]
    return onnx.helper.make_tensor_value_info(value.name, _type(onnx, value.dtype), dims)


def _bytes(array: np.ndarray) -> bytes:
    # the bytes of an array are little-endian in the file
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _tensor(onnx: Any, name: str, array: np.ndarray, is_large: bool) -> Any:
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=_type(onnx, str(array.dtype)))
    if not is_large or array.nbytes < _EXTERNAL:
        tensor.raw_data = _bytes(array)
    return tensor


def _node(onnx: Any, node: Node) -> Any:
    attributes = {}
    for key in sorted(node.attributes):
        value = node.attributes[key]
        if key == "to":
            value = _type(onnx, value)
        if isinstance(value, Body):
            value = onnx.helper.make_graph(
                [_node(onnx, inner) for inner in value.nodes],
                value.name,
                [_info(onnx, v) for v in value.inputs],
                [_info(onnx, v) for v in value.outputs],
            )
        attributes[key] = value
    return onnx.helper.make_node(
        node.op,
        node.inputs,
        node.outputs,
        name=next(n for n in node.outputs if n),
        domain=node.domain,
        **attributes,
    )

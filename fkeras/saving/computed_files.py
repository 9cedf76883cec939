"""Table of the files that compute: what `transforms.agree` runs for a path."""

from __future__ import annotations

import importlib
import os
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax.export
import jax.numpy as jnp
import numpy as np

from fkeras.atomic_files.atomic import as_path
from fkeras.engine.messages.errors import suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers.errors import reading
from fkeras.saving.models import load_model

#: `(path, custom_objects) -> side`: `(model, state)`, or a function of the inputs
Opener = Callable[[str, Mapping[str, Any] | None], Any]


def open_computed(path: FilePath, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Returns `(model, state)` of a model file, or the function of the inputs in a program file.

    Args:
        path: the path of a file with a suffix in `OPENERS`.
        custom_objects: custom classes and functions by name, as for `load_model`.

    Raises:
        FileNotFoundError: for a missing file.
        ValueError: for another suffix.
        FileError: for a damaged file.
    """
    path = as_path(path)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in OPENERS:
        raise ValueError(
            f"transforms.agree: expected a file with a suffix among {', '.join(OPENERS)}, received "
            f"{path!r}.{suggest(suffix, OPENERS)}"
        )
    return OPENERS[suffix](path, custom_objects)


def _open_model(path: str, custom_objects: Mapping[str, Any] | None) -> Any:
    return tuple(load_model(path, custom_objects=custom_objects))


def _open_program(path: str, custom_objects: Mapping[str, Any] | None) -> Any:
    with open(path, "rb") as file:
        data = file.read()
    try:
        with reading(path):
            return jax.export.deserialize(bytearray(data)).call
    except ImportError as error:
        raise missing_package("A .jax file", "flatbuffers", error) from error


def _open_onnx(path: str, custom_objects: Mapping[str, Any] | None) -> Any:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise missing_package("Running a .onnx file", "onnxruntime", error) from error
    with reading(path):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def compute(inputs: Any) -> Any:
        leaves = inputs if isinstance(inputs, Mapping) else jax.tree.leaves(inputs)
        arrays = [inputs[name] for name in names] if isinstance(inputs, Mapping) else leaves
        # JAX's dtypes, as for a model: NumPy's integers and floats are of 64 bits
        arrays = [np.asarray(jnp.asarray(array)) for array in arrays]
        values = session.run(None, dict(zip(names, arrays, strict=True)))
        return values[0] if len(values) == 1 else values

    return compute


#: one row for each suffix
OPENERS: Mapping[str, Opener] = types.MappingProxyType(
    {
        ".keras": _open_model,
        ".h5": _open_model,
        ".hdf5": _open_model,
        ".jax": _open_program,
        ".onnx": _open_onnx,
    }
)

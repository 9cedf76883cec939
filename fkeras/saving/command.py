"""The command line: `python -m fkeras convert model.keras model.onnx`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fkeras.engine import FKerasError, Layer, suggest
from fkeras.saving.export.exporting import export
from fkeras.saving.export.program import OPSET
from fkeras.saving.formats import WRITERS
from fkeras.saving.models import load_model, save_model
from fkeras.saving.weight_files import save_weights

Write = Callable[[str, Layer, Mapping[str, Any]], None]


def _export(path: str, model: Layer, state: Mapping[str, Any]) -> None:
    export(model, state, path)


#: the writers of target files by suffix
TARGETS: Mapping[str, Write] = MappingProxyType(
    {
        ".keras": save_model,
        ".onnx": _export,
        ".jax": _export,
        **dict.fromkeys(WRITERS, save_weights),
    }
)


def convert(source: str, target: str, opset: int = OPSET) -> None:
    """Converts the file of a model to another format; the suffix of the target selects the format.

    Args:
        source: a `.keras` file, or an HDF5 file of a whole model.
        target: a path that ends in `.keras`, `.onnx` or `.jax`; `.h5`, `.hdf5`, `.safetensors` and
            `.npz` hold the weights alone.
        opset: version of ONNX's operators, for `.onnx`.

    Raises:
        ValueError: for another suffix.
        FileError: for a source that holds no model.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)]).build(jax.random.key(0))
        >>> fk.save_model(folder / "m.keras", model)
        >>> convert(str(folder / "m.keras"), str(folder / "m.safetensors"))
        >>> sorted(path.name for path in folder.iterdir())
        ['m.keras', 'm.safetensors']
    """
    suffix = next((s for s in TARGETS if target.lower().endswith(s)), None)
    if suffix is None:
        received = f".{target.rpartition('.')[2]}"
        raise ValueError(
            f"convert: expected a target that ends in {', '.join(sorted(TARGETS))}, received "
            f"{target!r}.{suggest(received, TARGETS)} The suffix selects the format."
        )
    model, state = load_model(source)
    if suffix == ".onnx":
        export(model, state, target, opset=opset)
    else:
        TARGETS[suffix](target, model, state)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error.

    Args:
        arguments: the arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fkeras", description="Converts files of models."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "convert",
        help="write the model of a file in another format",
        description="Writes the model of a .keras or .h5 file in the format of the target's suffix.",
    )
    command.add_argument("source", help="a .keras file, or an .h5 file of a whole model")
    command.add_argument("target", help=f"a path that ends in {', '.join(sorted(TARGETS))}")
    command.add_argument("--opset", type=int, default=OPSET, help="version of ONNX's operators")
    options = parser.parse_args(arguments)
    try:
        convert(options.source, options.target, options.opset)
    except (FKerasError, OSError, ImportError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0

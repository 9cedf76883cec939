"""The files of folders of sentence-transformers beside `config.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fkeras.authoring.engine import describe_value
from fkeras.engine import FrozenDict
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.rows import dense_rows

POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
#: the files that text models read; the last file has the number of tokens at which texts are cut
SENTENCE_FILES = (POOLING, MODULES, PROMPTS, "sentence_bert_config.json")
# a plain folder name: the file cannot name other places
_FOLDER = re.compile(r"\w[\w.-]{0,200}", re.ASCII)
_VECTOR = "sentence_embedding"
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
# activations of Dense by the names of PyTorch's classes
_ACTIVATIONS: Mapping[str, str] = FrozenDict(
    {
        "GELU": "gelu",
        "Identity": "linear",
        "ReLU": "relu",
        "Sigmoid": "sigmoid",
        "SiLU": "silu",
        "Tanh": "tanh",
    }
)


class Module(NamedTuple):
    """A module of `modules.json`, such as `Module("Dense", "2_Dense")`."""

    kind: str
    folder: str

    @property
    def file(self) -> str:
        """Name of the file with the configuration of the module."""
        return f"{self.folder}/config.json"


class DenseStep(NamedTuple):
    """A layer after the pooling; `folder` has its tensors."""

    name: str
    units: int
    activation: str
    bias: bool
    folder: str


def modules_of(beside: Mapping[str, Any]) -> tuple[Module, ...]:
    """Returns the modules that a folder lists.

    Args:
        beside: the parsed files of the folder, by name.

    Raises:
        ValueError: for a list of other entries, and for folders elsewhere.
    """
    entries = beside.get(MODULES, ())
    modules = []
    for entry in entries if isinstance(entries, list | tuple) else [entries]:
        keys = entry if isinstance(entry, Mapping) else {}
        kind, folder = keys.get("type"), keys.get("path", "")
        is_folder = isinstance(folder, str) and (not folder or _FOLDER.fullmatch(folder))
        if not isinstance(kind, str) or not is_folder:
            raise ValueError(
                f"{MODULES}: expected modules with a type and the name of a folder, received "
                f"{describe_value(entry)}. Correct the file."
            )
        modules.append(Module(kind.rpartition(".")[2], folder))
    return tuple(modules)


def pooling_file(beside: Mapping[str, Any]) -> str | None:
    """Returns the name of the file of the pooling; None for a folder that does not pool."""
    files = [module.file for module in modules_of(beside) if module.kind == "Pooling"]
    return next((file for file in (*files, POOLING) if file in beside), None)


def sentence_steps(beside: Mapping[str, Any]) -> tuple[DenseStep | None, ...]:
    """Returns the steps after the pooling; None for a normalization.

    Raises:
        ValueError: for other modules, and for modules Dense with other keys.
    """
    file = pooling_file(beside)
    steps = []
    for module in modules_of(beside) if file else ():
        if module.kind not in _KINDS:
            raise ValueError(
                f"{MODULES}: expected the modules {', '.join(_KINDS)}, received {module.kind[:80]}. Remove "
                f"{file} to use the hidden states."
            )
        content = beside.get(module.file) if module.folder else None
        keys = content if isinstance(content, Mapping) else {}
        ends = [keys.get(f"module_{end}put_name") for end in ("in", "out")]
        if module.kind != "Transformer" and any(end not in (None, _VECTOR) for end in ends):
            raise ValueError(
                f"{module.file}: expected a module from {_VECTOR!r} to {_VECTOR!r}, received "
                f"{describe_value(content)}. Remove {file} to use the hidden states."
            )
        if module.kind == "Normalize":
            steps.append(None)
        elif module.kind == "Dense":
            count = sum(step is not None for step in steps)
            steps.append(_dense(f"sentence_dense_{count + 1}", module, beside))
    return tuple(steps)


def _dense(name: str, module: Module, beside: Mapping[str, Any]) -> DenseStep:
    content = beside.get(module.file)
    keys = content if isinstance(content, Mapping) else {}
    units, bias = keys.get("out_features"), keys.get("bias", True)
    kind = str(keys.get("activation_function", "Tanh")).rpartition(".")[2].removesuffix("()")
    is_plain = type(bias) is bool and not keys.get("use_residual") and kind in _ACTIVATIONS
    if type(units) is not int or not 0 < units < 2**31 or not is_plain:
        raise ValueError(
            f"{module.file}: expected out_features, bias, no use_residual, and an activation_function among "
            f"{', '.join(_ACTIVATIONS)}, received {describe_value(content)}. Remove "
            f"{pooling_file(beside)} to use the hidden states."
        )
    return DenseStep(name, units, _ACTIVATIONS[kind], bias, module.folder)


def sentence_rows(beside: Mapping[str, Any]) -> tuple[Row, ...]:
    """Returns the rows of the steps, whose tensors have names such as "2_Dense/linear.weight"."""
    steps = [step for step in sentence_steps(beside) if step is not None]
    return tuple(
        row for step in steps for row in dense_rows(f"{step.folder}/linear", step.name, step.bias)
    )

"""Activations of pretrained models, by their names in `config.json`."""

from __future__ import annotations

from fkeras import ops
from fkeras.authoring.engine import choice
from fkeras.engine import KerasTensor

#: names in Hugging Face's ACT2FN; four names mean the tanh approximation of GELU
ACTIVATIONS = (
    "gelu",
    "gelu_fast",
    "gelu_new",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "relu",
    "sigmoid",
    "silu",
    "swish",
    "tanh",
)
#: converter of the fields of configurations
activation_name = choice(*ACTIVATIONS, hint="fkeras has no other activations of pretrained models.")


def activate(name: str, x: KerasTensor) -> KerasTensor:
    """Records an activation by its name in `config.json`, with operations that Keras also has."""
    if name == "quick_gelu":
        return x * ops.sigmoid(1.702 * x)
    if name.startswith("gelu"):
        return ops.gelu(x, approximate=name != "gelu")
    functions = {"relu": ops.relu, "sigmoid": ops.sigmoid, "tanh": ops.tanh}
    return functions.get(name, ops.silu)(x)

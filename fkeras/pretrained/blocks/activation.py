"""Activations of pretrained models, by the names that `config.json` has."""

from __future__ import annotations

from fkeras import ops
from fkeras.engine import KerasTensor
from fkeras.engine.config.converters import choice

#: names of Hugging Face's ACT2FN; the tanh form of GELU has four names
ACTIVATIONS = (
    *("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "sigmoid"),
    *("silu", "swish", "tanh"),
)
#: rule of a field of a configuration
activation_name = choice(*ACTIVATIONS)


def activate(name: str, x: KerasTensor) -> KerasTensor:
    """Records the activation of a name of `config.json`, as operations that Keras has too.

    Example:
        >>> import fkeras as fk
        >>> activate("gelu_new", fk.Input((4,))).shape
        (None, 4)
    """
    if name == "quick_gelu":
        return x * ops.sigmoid(1.702 * x)
    if name.startswith("gelu"):
        return ops.gelu(x, approximate=name != "gelu")
    functions = {"relu": ops.relu, "sigmoid": ops.sigmoid, "tanh": ops.tanh}
    return functions.get(name, ops.silu)(x)

"""Every public name of Keras's catalogue is in fkeras, or has a reason for its absence."""

import importlib
import types

import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

# namespace -> name -> why it is not here
EXCEPTIONS = types.MappingProxyType(
    {
        "layers": {
            "TFSMLayer": "wraps a TensorFlow SavedModel",
            "TorchModuleWrapper": "wraps a PyTorch module",
        },
        "optimizers": {"legacy": "a namespace that only raises errors about Keras 2"},
        "random": {"SeedGenerator": "draws by mutation; a key takes its place"},
    }
)
SPACES = (
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "initializers",
    "regularizers",
    "constraints",
    "ops",
    "ops.image",
    "ops.linalg",
    "ops.nn",
    "ops.numpy",
    "random",
)


def _names(space):
    module = importlib.import_module(f"{keras.__name__}.{space}")
    return {name for name in dir(module) if not name.startswith("_")}


def _ours(space):
    value = fk
    for part in space.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("space", SPACES)
def test_every_public_name_of_keras_is_here(space):
    ours, reasons = _ours(space), EXCEPTIONS.get(space, {})
    missing = {name for name in _names(space) if not hasattr(ours, name)}
    assert not missing - set(reasons), f"fk.{space} lacks {sorted(missing - set(reasons))}"
    assert set(reasons) <= missing, "an exception that is here, or that Keras does not have"


@pytest.mark.parametrize("space", SPACES)
def test_what_is_here_is_public(space):
    """`dir` and `__all__` agree on what Keras has, so that `from ... import *` gives it too."""
    listed = set(getattr(_ours(space), "__all__", ()))
    hidden = (_names(space) & set(dir(_ours(space)))) - listed
    assert not hidden, f"fk.{space}.__all__ lacks {sorted(hidden)}"

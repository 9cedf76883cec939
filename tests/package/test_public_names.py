"""Every public name of Keras's catalogue is in fkeras, or has a reason for its absence."""

import importlib
import types

import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

_NO_REGISTRY = "the package keeps no registry: custom_objects names own classes"
_NO_SWITCH = "the package keeps no global state: fit has the argument verbose"
UTILS = {
    **{
        name: _NO_REGISTRY
        for name in (
            *("CustomObjectScope", "custom_object_scope", "get_custom_objects"),
            *("get_registered_name", "get_registered_object", "register_keras_serializable"),
        )
    },
    **{
        name: _NO_SWITCH
        for name in (
            *("disable_interactive_logging", "enable_interactive_logging"),
            "is_interactive_logging_enabled",
        )
    },
    "clear_session": "the package keeps no global state",
    "set_random_seed": "the package keeps no global state: calls take keys",
    "Config": "a mutable dictionary with attributes; a frozen dataclass takes its place",
    "Progbar": "a class of mutable state; fk.callbacks.ProgressBar shows progress",
    "PyDataset": "any iterable of batches is a source",
    "Sequence": "any iterable of batches is a source",
    "bounding_boxes": "image layers and fk.ops.image move boxes",
    "deserialize_keras_object": "every namespace has its own deserialize",
    "serialize_keras_object": "every namespace has its own serialize",
    "get_file": "fk.datasets downloads files; Python's urllib downloads others",
    "get_source_inputs": "model.inputs",
    "is_keras_tensor": "isinstance(x, fk.KerasTensor)",
    "legacy": "serialization of old versions",
    "pack_x_y_sample_weight": "a tuple",
    "standardize_dtype": "jnp.dtype",
    "unpack_x_y_sample_weight": "a tuple",
}
# namespace -> name -> reason for its absence
EXCEPTIONS = types.MappingProxyType(
    {
        "layers": {
            "TFSMLayer": "wraps a TensorFlow SavedModel",
            "TorchModuleWrapper": "wraps a PyTorch module",
        },
        "optimizers": {"legacy": "a namespace that only raises errors about Keras 2"},
        "random": {"SeedGenerator": "draws by mutation; a key takes its place"},
        "utils": UTILS,
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
    "utils",
    "datasets",
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
def test_every_public_keras_name_exists_or_is_an_exception(space):
    namespace, reasons = _ours(space), EXCEPTIONS.get(space, {})
    missing = {name for name in _names(space) if not hasattr(namespace, name)}
    assert not missing - set(reasons), f"fk.{space} lacks {sorted(missing - set(reasons))}"
    assert set(reasons) <= missing, "an exception that is here, or that Keras does not have"


@pytest.mark.parametrize("space", SPACES)
def test_every_available_keras_name_is_listed(space):
    """`dir` and `__all__` agree on Keras's names, so that `from ... import *` imports them."""
    public_names = set(getattr(_ours(space), "__all__", ()))
    hidden = (_names(space) & set(dir(_ours(space)))) - public_names
    assert not hidden, f"fk.{space}.__all__ lacks {sorted(hidden)}"

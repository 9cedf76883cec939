"""fkeras: Keras's way of composing networks, as pure values on JAX."""

from types import MappingProxyType
from typing import TYPE_CHECKING

from fkeras import (
    activations,
    constraints,
    engine,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    quantizers,
    random,
    regularizers,
    transforms,
)
from fkeras.engine import (
    Configurable,
    Context,
    DisconnectedGraphError,
    DTypePolicy,
    FKerasError,
    Graph,
    Input,
    InputSpec,
    InputSpecError,
    KerasTensor,
    Layer,
    Model,
    Network,
    Node,
    Output,
    Sequential,
    SymbolicValueError,
    combine,
    constrain,
    option,
    partition,
    to_dot,
    to_mermaid,
    weight,
)
from fkeras.engine.config.late_module import late_module
from fkeras.engine.migration_hints.imports import explain_missing_modules
from fkeras.engine.migration_hints.names import explain_unknown_names, missing_name_error
from fkeras.transforms import (
    dequantize,
    freeze,
    inline,
    quantize,
    rematerialized,
    rename,
    split_host,
    unfreeze,
)

if TYPE_CHECKING:
    from fkeras import applications as applications
    from fkeras import datasets as datasets
    from fkeras import planning as planning
    from fkeras import saving as saving
    from fkeras import training as training
    from fkeras import utils as utils
    from fkeras.planning import Plan, Profile, plan, profile
    from fkeras.saving import (
        FileError,
        Limits,
        export,
        export_step,
        from_keras,
        load_model,
        load_training,
        load_weights,
        save_model,
        save_weights,
        to_keras,
    )
    from fkeras.training import (
        Callback,
        Checkpoint,
        CheckpointError,
        Finding,
        History,
        Interrupted,
        NonFiniteError,
        Stop,
        Trainer,
        TrainState,
        callbacks,
        find_nan,
    )

__version__ = "0.1.0"

__all__ = (
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "Configurable",
    "Context",
    "DTypePolicy",
    "DisconnectedGraphError",
    "FKerasError",
    "FileError",
    "Finding",
    "Graph",
    "History",
    "Input",
    "InputSpec",
    "InputSpecError",
    "Interrupted",
    "KerasTensor",
    "Layer",
    "Limits",
    "Model",
    "Network",
    "NonFiniteError",
    "Node",
    "Output",
    "Plan",
    "Profile",
    "Sequential",
    "Stop",
    "SymbolicValueError",
    "TrainState",
    "Trainer",
    "activations",
    "applications",
    "callbacks",
    "combine",
    "constrain",
    "constraints",
    "datasets",
    "dequantize",
    "engine",
    "export",
    "export_step",
    "find_nan",
    "freeze",
    "from_keras",
    "initializers",
    "inline",
    "layers",
    "load_model",
    "load_training",
    "load_weights",
    "losses",
    "metrics",
    "ops",
    "optimizers",
    "option",
    "partition",
    "plan",
    "planning",
    "profile",
    "quantize",
    "quantizers",
    "random",
    "regularizers",
    "rematerialized",
    "rename",
    "save_model",
    "save_weights",
    "split_host",
    "to_dot",
    "to_keras",
    "to_mermaid",
    "transforms",
    "unfreeze",
    "utils",
    "weight",
)

explain_unknown_names()
explain_missing_modules()

# imported at first use: these packages take a third of the import time, and programs that only
# compute do not need them
_LATE = MappingProxyType(
    {
        "applications": (),
        "saving": (
            *("FileError", "Limits", "export", "export_step", "load_model", "load_training"),
            *("load_weights", "save_model", "save_weights", "from_keras", "to_keras"),
        ),
        "training": (
            *("Callback", "Checkpoint", "CheckpointError", "Finding", "History", "Interrupted"),
            *("NonFiniteError", "Stop", "TrainState", "Trainer", "callbacks", "find_nan"),
        ),
        "planning": ("Plan", "Profile", "plan", "profile"),
        "datasets": (),
        "utils": (),
    }
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATE})


def _import_late(name: str) -> object:
    for home, names in _LATE.items():
        if name == home or name in names:
            module = late_module(home)
            return module if name == home else getattr(module, name)
    raise missing_name_error(__name__, name)


# an assignment, since with a `def __getattr__` type checkers accept every unknown name
globals()["__getattr__"] = _import_late

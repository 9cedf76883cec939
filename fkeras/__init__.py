"""fkeras: Keras's way of composing networks, as pure values on JAX."""

import types
import typing

from fkeras import activations as activations
from fkeras import constraints as constraints
from fkeras import engine as engine
from fkeras import initializers as initializers
from fkeras import layers as layers
from fkeras import losses as losses
from fkeras import masks as masks
from fkeras import metrics as metrics
from fkeras import ops as ops
from fkeras import optimizers as optimizers
from fkeras import quantizers as quantizers
from fkeras import random as random
from fkeras import regularizers as regularizers
from fkeras import transforms as transforms
from fkeras.engine import Configurable as Configurable
from fkeras.engine import Context as Context
from fkeras.engine import DisconnectedGraphError as DisconnectedGraphError
from fkeras.engine import DTypePolicy as DTypePolicy
from fkeras.engine import FKerasError as FKerasError
from fkeras.engine import Graph as Graph
from fkeras.engine import Input as Input
from fkeras.engine import InputSpec as InputSpec
from fkeras.engine import InputSpecError as InputSpecError
from fkeras.engine import KerasTensor as KerasTensor
from fkeras.engine import Layer as Layer
from fkeras.engine import Model as Model
from fkeras.engine import Network as Network
from fkeras.engine import Node as Node
from fkeras.engine import Output as Output
from fkeras.engine import Sequential as Sequential
from fkeras.engine import SymbolicValueError as SymbolicValueError
from fkeras.engine import combine as combine
from fkeras.engine import constrain as constrain
from fkeras.engine import option as option
from fkeras.engine import partition as partition
from fkeras.engine import to_dot as to_dot
from fkeras.engine import to_mermaid as to_mermaid
from fkeras.engine import weight as weight
from fkeras.engine.config.public_names import publish as _publish
from fkeras.engine.migration_hints.imports import (
    explain_missing_modules as _explain_missing_modules,
)
from fkeras.transforms import cast as cast
from fkeras.transforms import dequantize as dequantize
from fkeras.transforms import freeze as freeze
from fkeras.transforms import inline as inline
from fkeras.transforms import quantize as quantize
from fkeras.transforms import rematerialized as rematerialized
from fkeras.transforms import rename as rename
from fkeras.transforms import split_host as split_host
from fkeras.transforms import unfreeze as unfreeze

if typing.TYPE_CHECKING:
    from fkeras import applications as applications
    from fkeras import datasets as datasets
    from fkeras import generation as generation
    from fkeras import planning as planning
    from fkeras import pretrained as pretrained
    from fkeras import saving as saving
    from fkeras import training as training
    from fkeras import utils as utils
    from fkeras import wrappers as wrappers
    from fkeras.generation import Generated as Generated
    from fkeras.generation import Generator as Generator
    from fkeras.generation import Logprobs as Logprobs
    from fkeras.generation import Scores as Scores
    from fkeras.generation import generate as generate
    from fkeras.generation import samplers as samplers
    from fkeras.generation import score as score
    from fkeras.planning import Plan as Plan
    from fkeras.planning import Profile as Profile
    from fkeras.planning import plan as plan
    from fkeras.planning import profile as profile
    from fkeras.saving import FileError as FileError
    from fkeras.saving import Limits as Limits
    from fkeras.saving import export as export
    from fkeras.saving import export_step as export_step
    from fkeras.saving import from_keras as from_keras
    from fkeras.saving import load_model as load_model
    from fkeras.saving import load_patch as load_patch
    from fkeras.saving import load_training as load_training
    from fkeras.saving import load_weights as load_weights
    from fkeras.saving import model_from_json as model_from_json
    from fkeras.saving import save_model as save_model
    from fkeras.saving import save_patch as save_patch
    from fkeras.saving import save_weights as save_weights
    from fkeras.saving import to_keras as to_keras
    from fkeras.training import Callback as Callback
    from fkeras.training import Checkpoint as Checkpoint
    from fkeras.training import CheckpointError as CheckpointError
    from fkeras.training import Finding as Finding
    from fkeras.training import History as History
    from fkeras.training import Interrupted as Interrupted
    from fkeras.training import NonFiniteError as NonFiniteError
    from fkeras.training import Population as Population
    from fkeras.training import Stop as Stop
    from fkeras.training import Trainer as Trainer
    from fkeras.training import TrainState as TrainState
    from fkeras.training import callbacks as callbacks
    from fkeras.training import find_nan as find_nan
    from fkeras.training import populate as populate

__version__ = "0.2.0.dev0"

# imported at first use: these packages take a third of the import time, and programs that only
# compute do not need them
_LATE = types.MappingProxyType(
    {
        "applications": (),
        "pretrained": (),
        "saving": (
            "FileError",
            "Limits",
            "export",
            "export_step",
            "load_model",
            "load_training",
            "load_weights",
            "save_model",
            "save_weights",
            "from_keras",
            "to_keras",
            "load_patch",
            "save_patch",
            "model_from_json",
        ),
        "training": (
            "Callback",
            "Checkpoint",
            "CheckpointError",
            "Finding",
            "History",
            "Interrupted",
            "NonFiniteError",
            "Population",
            "Stop",
            "TrainState",
            "Trainer",
            "callbacks",
            "find_nan",
            "populate",
        ),
        "generation": (
            "Generated",
            "Generator",
            "Logprobs",
            "Scores",
            "generate",
            "samplers",
            "score",
        ),
        "planning": ("Plan", "Profile", "plan", "profile"),
        "datasets": (),
        "utils": (),
        "wrappers": (),
    }
)


_publish(__name__, late=_LATE)
_explain_missing_modules()

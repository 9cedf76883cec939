"""Optimizers: values with Keras's arguments and numerics that create optax transformations."""

from fkeras.engine.config.configurable import deserialize, serialize
from fkeras.optimizers import schedules
from fkeras.optimizers.adam import Adam, Adamax, AdamW, Lamb, Nadam
from fkeras.optimizers.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from fkeras.optimizers.base import BaseOptimizer
from fkeras.optimizers.by_pattern.multi import MultiOptimizer, MultiOptimizerState
from fkeras.optimizers.by_pattern.optimizer_map import OptimizerMap
from fkeras.optimizers.descent import SGD, Lion
from fkeras.optimizers.ftrl import Ftrl
from fkeras.optimizers.loss_scale import LossScaleOptimizer, LossScaleState
from fkeras.optimizers.muon import Muon
from fkeras.optimizers.naming import get, transformation
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.schedule_free import ScheduleFreeAdamW
from fkeras.optimizers.updates.rates import learning_rate, with_learning_rate
from fkeras.optimizers.updates.state import OptimizerState, ema_weights

__all__ = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "BaseOptimizer",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "LossScaleState",
    "MultiOptimizer",
    "MultiOptimizerState",
    "Muon",
    "Nadam",
    "Optimizer",
    "OptimizerMap",
    "OptimizerState",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
    "deserialize",
    "ema_weights",
    "get",
    "learning_rate",
    "schedules",
    "serialize",
    "transformation",
    "with_learning_rate",
)

"""Optimizers: values with Keras's arguments and numbers that make optax transformations."""

from fkeras.engine.config import deserialize, serialize
from fkeras.optimizers import schedules
from fkeras.optimizers.adam import Adam, Adamax, AdamW, Lamb, Nadam
from fkeras.optimizers.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from fkeras.optimizers.descent import SGD, Lion
from fkeras.optimizers.ftrl import Ftrl
from fkeras.optimizers.naming import get, transformation
from fkeras.optimizers.optimizer import Optimizer, OptimizerState

__all__ = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Nadam",
    "Optimizer",
    "OptimizerState",
    "RMSprop",
    "SGD",
    "deserialize",
    "get",
    "schedules",
    "serialize",
    "transformation",
)

"""Optimizers: values with Keras's arguments and numerics that create optax transformations."""

from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.public_names import publish as _publish
from fkeras.optimizers import schedules as schedules
from fkeras.optimizers.adam import Adam as Adam
from fkeras.optimizers.adam import Adamax as Adamax
from fkeras.optimizers.adam import AdamW as AdamW
from fkeras.optimizers.adam import Lamb as Lamb
from fkeras.optimizers.adam import Nadam as Nadam
from fkeras.optimizers.adaptive import Adadelta as Adadelta
from fkeras.optimizers.adaptive import Adafactor as Adafactor
from fkeras.optimizers.adaptive import Adagrad as Adagrad
from fkeras.optimizers.adaptive import RMSprop as RMSprop
from fkeras.optimizers.base import BaseOptimizer as BaseOptimizer
from fkeras.optimizers.by_pattern.multi import MultiOptimizer as MultiOptimizer
from fkeras.optimizers.by_pattern.multi import MultiOptimizerState as MultiOptimizerState
from fkeras.optimizers.by_pattern.optimizer_map import OptimizerMap as OptimizerMap
from fkeras.optimizers.descent import SGD as SGD
from fkeras.optimizers.descent import Lion as Lion
from fkeras.optimizers.ftrl import Ftrl as Ftrl
from fkeras.optimizers.loss_scale import LossScaleOptimizer as LossScaleOptimizer
from fkeras.optimizers.loss_scale import LossScaleState as LossScaleState
from fkeras.optimizers.muon import Muon as Muon
from fkeras.optimizers.naming import deserialize as deserialize
from fkeras.optimizers.naming import get as get
from fkeras.optimizers.naming import transformation as transformation
from fkeras.optimizers.optimizer import Optimizer as Optimizer
from fkeras.optimizers.rowwise import Rowwise as Rowwise
from fkeras.optimizers.schedule_free import ScheduleFreeAdamW as ScheduleFreeAdamW
from fkeras.optimizers.updates.rates import learning_rate as learning_rate
from fkeras.optimizers.updates.rates import with_learning_rate as with_learning_rate
from fkeras.optimizers.updates.state import OptimizerState as OptimizerState
from fkeras.optimizers.updates.state import ema_weights as ema_weights

_publish(__name__)

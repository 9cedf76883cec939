"""Training: the static `Trainer`, the pytree `TrainState`, callbacks and checkpoints."""

import typing

from fkeras.engine.config.public_names import publish as _publish
from fkeras.host.processes.service import ProcessError as ProcessError
from fkeras.training import callbacks as callbacks
from fkeras.training.callbacks import Callback as Callback
from fkeras.training.callbacks import Stop as Stop
from fkeras.training.checkpoint import Checkpoint as Checkpoint
from fkeras.training.checkpoint import CheckpointError as CheckpointError
from fkeras.training.loop.interrupts import Interrupted as Interrupted
from fkeras.training.loop.rescue import run_of as run_of
from fkeras.training.nonfinite.find_nan import find_nan as find_nan
from fkeras.training.nonfinite.nan_report import Finding as Finding
from fkeras.training.nonfinite.recovery import NonFiniteError as NonFiniteError
from fkeras.training.records.history import Fitted as Fitted
from fkeras.training.records.history import History as History
from fkeras.training.records.progress import Progress as Progress
from fkeras.training.records.state import TrainState as TrainState
from fkeras.training.trainer import Trainer as Trainer
from fkeras.transforms.remat import rematerialized as rematerialized

if typing.TYPE_CHECKING:
    from fkeras.training import population as population
    from fkeras.training.population import Population as Population
    from fkeras.training.population import populate as populate

_publish(__name__, late={"training.population": ("Population", "populate")})

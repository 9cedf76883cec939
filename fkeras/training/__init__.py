"""Training: a static `Trainer`, a pytree `TrainState`, and the loops over them."""

from fkeras.training import callbacks
from fkeras.training.callbacks import Callback, Stop
from fkeras.training.checkpoint import Checkpoint, CheckpointError
from fkeras.training.find_nan import find_nan
from fkeras.training.history import Fitted, History
from fkeras.training.interrupts import Interrupted
from fkeras.training.nan_report import Finding
from fkeras.training.progress import Progress
from fkeras.training.recovery import NonFiniteError
from fkeras.training.remat import rematerialized
from fkeras.training.rescue import run_of
from fkeras.training.state import TrainState
from fkeras.training.trainer import Trainer

__all__ = (
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "Finding",
    "Fitted",
    "History",
    "Interrupted",
    "NonFiniteError",
    "Progress",
    "Stop",
    "TrainState",
    "Trainer",
    "callbacks",
    "find_nan",
    "rematerialized",
    "run_of",
)

"""Training: the static `Trainer`, the pytree `TrainState`, callbacks and checkpoints."""

from fkeras.training import callbacks
from fkeras.training.callbacks import Callback, Stop
from fkeras.training.checkpoint import Checkpoint, CheckpointError
from fkeras.training.loop.interrupts import Interrupted
from fkeras.training.loop.rescue import run_of
from fkeras.training.nonfinite.find_nan import find_nan
from fkeras.training.nonfinite.nan_report import Finding
from fkeras.training.nonfinite.recovery import NonFiniteError
from fkeras.training.processes.service import ProcessError
from fkeras.training.records.history import Fitted, History
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState
from fkeras.training.trainer import Trainer
from fkeras.transforms.remat import rematerialized

__all__ = (
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "Finding",
    "Fitted",
    "History",
    "Interrupted",
    "NonFiniteError",
    "ProcessError",
    "Progress",
    "Stop",
    "TrainState",
    "Trainer",
    "callbacks",
    "find_nan",
    "rematerialized",
    "run_of",
)

"""Training: a static `Trainer`, a pytree `TrainState`, and the loops over them."""

from fkeras.training.callbacks import Callback, Stop
from fkeras.training.history import History
from fkeras.training.progress import Progress
from fkeras.training.recovery import NonFiniteError
from fkeras.training.state import TrainState
from fkeras.training.trainer import Trainer

__all__ = ("Callback", "History", "NonFiniteError", "Progress", "Stop", "TrainState", "Trainer")

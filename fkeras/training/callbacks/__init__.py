"""Callbacks: values with hooks that observe, change or stop a training between device calls."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.training.callbacks.average import SwapEMAWeights as SwapEMAWeights
from fkeras.training.callbacks.base.callback import Callback as Callback
from fkeras.training.callbacks.base.callback import Stop as Stop
from fkeras.training.callbacks.base.callback import call as call
from fkeras.training.callbacks.base.callback import check_callbacks as check_callbacks
from fkeras.training.callbacks.base.callback import check_logs as check_logs
from fkeras.training.callbacks.base.weights_file import load_weights as load_weights
from fkeras.training.callbacks.base.weights_file import save_weights as save_weights
from fkeras.training.callbacks.checkpoint import ModelCheckpoint as ModelCheckpoint
from fkeras.training.callbacks.early_stopping import EarlyStopping as EarlyStopping
from fkeras.training.callbacks.functions import LambdaCallback as LambdaCallback
from fkeras.training.callbacks.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from fkeras.training.callbacks.reporting.csv_logger import CSVLogger as CSVLogger
from fkeras.training.callbacks.reporting.live_curves import LiveCurves as LiveCurves
from fkeras.training.callbacks.reporting.mlflow_callback import MlflowCallback as MlflowCallback
from fkeras.training.callbacks.reporting.profiler import Profiler as Profiler
from fkeras.training.callbacks.reporting.progress_bar import ProgressBar as ProgressBar
from fkeras.training.callbacks.reporting.tensorboard import TensorBoard as TensorBoard
from fkeras.training.callbacks.reporting.wandb_metrics import (
    WandbMetricsLogger as WandbMetricsLogger,
)
from fkeras.training.callbacks.scheduler import LearningRateScheduler as LearningRateScheduler
from fkeras.training.callbacks.terminate import TerminateOnNaN as TerminateOnNaN

_publish(__name__)

"""Callbacks: values with hooks that observe, change or stop a training between device calls."""

from fkeras.engine.migration_hints.names import explain_unknown_names
from fkeras.training.callbacks.average import SwapEMAWeights
from fkeras.training.callbacks.base.callback import (
    Callback,
    Stop,
    call,
    check_callbacks,
    check_logs,
)
from fkeras.training.callbacks.base.weights_file import load_weights, save_weights
from fkeras.training.callbacks.checkpoint import ModelCheckpoint
from fkeras.training.callbacks.early_stopping import EarlyStopping
from fkeras.training.callbacks.functions import LambdaCallback
from fkeras.training.callbacks.plateau import ReduceLROnPlateau
from fkeras.training.callbacks.reporting.csv_logger import CSVLogger
from fkeras.training.callbacks.reporting.live_curves import LiveCurves
from fkeras.training.callbacks.reporting.mlflow_callback import MlflowCallback
from fkeras.training.callbacks.reporting.profiler import Profiler
from fkeras.training.callbacks.reporting.progress_bar import ProgressBar
from fkeras.training.callbacks.reporting.tensorboard import TensorBoard
from fkeras.training.callbacks.reporting.wandb_metrics import WandbMetricsLogger
from fkeras.training.callbacks.scheduler import LearningRateScheduler
from fkeras.training.callbacks.terminate import TerminateOnNaN

__all__ = (
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "LambdaCallback",
    "LearningRateScheduler",
    "LiveCurves",
    "MlflowCallback",
    "ModelCheckpoint",
    "Profiler",
    "ProgressBar",
    "ReduceLROnPlateau",
    "Stop",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
    "WandbMetricsLogger",
    "call",
    "check_callbacks",
    "check_logs",
    "load_weights",
    "save_weights",
)

explain_unknown_names(__name__)

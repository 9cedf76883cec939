"""WandbMetricsLogger and MlflowCallback log to their services, here to small replacements."""

import sys
import types

import keras
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras.training.callbacks import MlflowCallback, WandbMetricsLogger
from fkeras.training.callbacks.reporting import logs as reports
from tests.support.callback_runs import RUN, TRAINER, drive, fit, pickled


class WandbRun:
    def __init__(self):
        self.rows, self.options, self.axes = [], {}, {}
        self.config = types.SimpleNamespace(update=self.update)

    def update(self, options, allow_val_change):
        assert allow_val_change
        self.options |= options

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, row):
        self.rows.append(row)

    def column(self, name):
        return [row[name] for row in self.rows if name in row]


@pytest.fixture
def wandb(monkeypatch):
    run = WandbRun()
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
    return run


class Mlflow:
    def __init__(self):
        self.metrics, self.params, self.texts, self.started = [], {}, {}, 0
        self.info, self.data = types.SimpleNamespace(run_id="one"), self

    def active_run(self):
        return self if self.started else None

    def start_run(self):
        self.started += 1
        return self

    def get_run(self, run_id):
        assert run_id == "one"
        return self

    def log_params(self, params):
        assert not set(params) & set(self.params), "MLflow cannot change a parameter"
        self.params |= params

    def log_metrics(self, metrics, step):
        self.metrics.append((step, metrics))

    def log_text(self, text, artifact_file):
        self.texts[artifact_file] = text

    def steps(self, name="loss"):
        return [step for step, metrics in self.metrics if name in metrics]


@pytest.fixture
def mlflow(monkeypatch):
    service = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", service)
    return service


@pytest.mark.exhaustive
def test_wandb_receives_the_names_of_its_callback_for_keras(wandb):
    _, history = fit(WandbMetricsLogger(config=TRAINER), epochs=2, validation_split=0.25)
    assert wandb.axes == {"epoch/epoch": None, "epoch/*": "epoch/epoch"}
    assert wandb.column("epoch/epoch") == [0, 1]
    assert wandb.column("epoch/loss") == history["loss"]
    assert wandb.column("epoch/val_loss") == history["val_loss"]
    assert wandb.column("epoch/learning_rate") == pytest.approx([0.1, 0.1])
    assert wandb.options["optimizer_learning_rate"] == pytest.approx(0.1)
    assert not wandb.column("batch/loss")


def test_wandb_batches_continue_in_a_resumed_training(wandb):
    logger = WandbMetricsLogger(2, 100)
    run, _ = fit(logger, epochs=1, steps_per_execution=1)
    fit(logger, run=pickled(run), epochs=2, initial_epoch=1, steps_per_execution=1)
    # 3 steps an epoch
    assert wandb.column("batch/batch_step") == [102, 104, 106]
    assert wandb.column("epoch/epoch") == [0, 1]
    assert len(wandb.column("batch/learning_rate")) == 3
    assert wandb.axes["batch/*"] == "batch/batch_step"


def test_mlflow_logs_epochs_options_and_the_summary(mlflow):
    fit(MlflowCallback(config=TRAINER), epochs=2, validation_split=0.25)
    assert mlflow.started == 1
    assert mlflow.steps("loss") == mlflow.steps("val_loss") == [0, 1]
    assert mlflow.metrics[0][1]["learning_rate"] == pytest.approx(0.1)
    assert mlflow.params["optimizer"] == "SGD"
    assert "body" in mlflow.texts["model_summary.txt"]
    # a parameter of an earlier training remains
    drive(MlflowCallback(config={"optimizer": "Adam", "new": 1}), [{"loss": 1.0}])
    assert (mlflow.params["optimizer"], mlflow.params["new"]) == ("SGD", 1)


def test_mlflow_steps_continue_in_a_resumed_training(mlflow):
    callback = MlflowCallback(False, 2)
    options = {"steps_per_execution": 1, "validation_split": 1 / 3}
    run, _ = fit(callback, epochs=2, **options)
    fit(callback, run=pickled(run), epochs=3, initial_epoch=2, **options)
    # 2 steps an epoch
    assert mlflow.steps() == mlflow.steps("val_loss") == [2, 4, 6]
    assert mlflow.params == {}


def test_logs_of_several_classes_and_optimizers_without_a_rate(wandb, mlflow):
    optimizer = fk.Trainer(optax.adam(1e-3), "mse").init(RUN.model, RUN.key)
    for callback in (WandbMetricsLogger(), MlflowCallback()):
        drive(callback, [{"loss": 1.0, "f1": [0.5, 0.25]}], run=optimizer)
    expected = {"epoch/loss": 1.0, "epoch/f1_0": 0.5, "epoch/f1_1": 0.25, "epoch/epoch": 0}
    assert wandb.rows == [expected]
    assert mlflow.metrics == [(0, {"loss": 1.0, "f1_0": 0.5, "f1_1": 0.25})]


def custom_loss(y, prediction):
    return (y - prediction) ** 2


OPTIONS = (
    (None, {}),
    ({"a": np.float32(0.5), "b": None, "c": [1, "x"], "d": {}}, {"a": 0.5, "c": "int, x"}),
    ({"long": "x" * 600}, {"long": "x" * 500}),
    ({"text": "one", "flag": True, "count": 3}, {"text": "one", "flag": True, "count": 3}),
    ({"inner": {"a": custom_loss}}, {"inner": "a: custom_loss"}),
)


@pytest.mark.parametrize(("value", "expected"), OPTIONS)
def test_options(value, expected):
    assert reports.options(reports.as_options(value)) == expected


def test_options_of_trainers():
    metrics = ["mae", fk.metrics.MeanSquaredError()]
    entries = reports.options(fk.Trainer("adam", custom_loss, metrics))
    assert entries["optimizer"] == "Adam" and entries["optimizer_beta_1"] == 0.9
    assert entries["on_nonfinite"] == "raise"
    assert all(isinstance(v, bool | int | float | str) for v in entries.values())
    assert "0x" not in str(entries)
    assert reports.options(fk.optimizers.SGD(0.5))["learning_rate"] == 0.5
    schedule = fk.optimizers.schedules.CosineDecay(0.1, 10)
    entries = reports.options(fk.Trainer(fk.optimizers.SGD(schedule), "mse"))
    assert entries["optimizer_learning_rate"] == "CosineDecay"
    assert entries["optimizer_learning_rate_decay_steps"] == 10
    assert reports.options(fk.Trainer(optax.adam(1e-3), "mse"))["optimizer"]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("WandbMetricsLogger", "wandb.integration.keras"),
        ("MlflowCallback", "mlflow.keras.callback"),
    ],
)
def test_the_callback_of_the_service_for_keras_is_explained(name, module):
    foreign = type(name, (keras.callbacks.Callback,), {"__module__": module})()
    with pytest.raises(TypeError, match=rf"`fk\.callbacks\.{name}`, with the same arguments"):
        fit(foreign, epochs=1)


WRONG = (
    (lambda: WandbMetricsLogger("step"), ValueError, "'epoch' or 'batch', or a positive integer"),
    (lambda: WandbMetricsLogger(0), ValueError, "log_freq: expected"),
    (lambda: WandbMetricsLogger(1, -1), ValueError, "initial_global_step"),
    (lambda: WandbMetricsLogger(config=3), TypeError, "config: expected a trainer.*Write config="),
    (lambda: WandbMetricsLogger(config={1: 2}), TypeError, "string keys"),
    (lambda: MlflowCallback(True, 5), ValueError, "either log_every_epoch=True or a number"),
    (lambda: MlflowCallback(False), ValueError, "either log_every_epoch=True or a number"),
    (
        lambda: MlflowCallback(False, 0),
        ValueError,
        "log_every_n_steps: expected a positive integer",
    ),
    (lambda: MlflowCallback("yes"), (TypeError, ValueError), "log_every_epoch"),
    (lambda: MlflowCallback(config="adam"), TypeError, "config: expected a trainer"),
)


@pytest.mark.parametrize(("make", "error", "message"), WRONG)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_without_a_run_of_wandb_the_error_names_init(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=None))
    with pytest.raises(RuntimeError, match=r"wandb\.init\(project="):
        fit(WandbMetricsLogger(), epochs=1)


@pytest.mark.parametrize("callback", [WandbMetricsLogger(), MlflowCallback()])
def test_without_the_package_the_error_names_it(callback, monkeypatch):
    package = "wandb" if isinstance(callback, WandbMetricsLogger) else "mlflow"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}`"):
        callback.on_train_begin(RUN)

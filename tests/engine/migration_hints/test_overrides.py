"""Classes that override Keras's methods are rejected if fkeras would never call the method."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk


def anything(self, *arguments):
    return None


class Mixin:
    def train_step(self, data):
        return {}

    def on_epoch_end(self, epoch, logs=None):
        return None


MODEL_METHODS = [
    *("train_step", "test_step", "compute_loss", "compute_metrics", "make_train_function"),
    *("predict_step", "compile", "fit", "evaluate", "save_own_variables", "build_from_config"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("base", [fk.Model, fk.Sequential], ids=["model", "sequential"])
@pytest.mark.parametrize("name", MODEL_METHODS)
def test_methods_of_a_model_that_keras_calls(base, name):
    with pytest.raises(TypeError, match=f"^Mine: {name} is never called"):
        type("Mine", (base,), {name: anything})


@pytest.mark.exhaustive
def test_the_shown_objective_trains():
    with pytest.raises(TypeError, match="objective") as error:
        type("Mine", (Mixin, fk.Model), {})
    lines = str(error.value).splitlines()
    assert len(lines) <= 8
    scope = {"fk": fk, "jnp": jnp}
    exec("\n".join(line.removeprefix("    ") for line in lines[1:]), scope)
    trainer = scope["trainer"]
    model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)])
    run = trainer.init(model, jax.random.key(0))
    x = np.ones((4, 2), "float32")
    assert list(trainer.fit(run, x, x[:, :1], verbose=0).history.history) == ["loss", "mse"]


def test_overriding_the_metrics_property_and_allowed_overrides():
    with pytest.raises(TypeError, match="property metrics is never read"):
        type("Mine", (fk.Model,), {"metrics": property(anything)})

    class Fine(fk.Model):
        units: int = 2

        def call(self, x):
            return fk.layers.Dense(self.units)(x)

        def predict(self, x):  # no other method of Keras calls this method
            return self(x).argmax(-1)

    assert Fine(3)(fk.Input((2,))).shape == (None, 3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["step", "train_step", "test_step", "compute_loss", "compile"])
def test_methods_of_a_trainer_that_fit_does_not_call(name):
    with pytest.raises(TypeError, match=f"^Mine: {name} is never called, as fit compiles its own"):
        type("Mine", (fk.Trainer,), {name: anything})


KERAS_HOOKS = {
    "on_epoch_end": lambda self, epoch, logs=None: None,
    "on_epoch_begin": lambda self, epoch, logs=None: None,
    "on_train_begin": lambda self, logs=None: None,
    "on_train_end": lambda self, logs=None: None,
    "on_batch_end": lambda self, batch, logs=None: None,
    "on_test_begin": lambda self, logs=None: None,
}


@pytest.mark.parametrize("name", KERAS_HOOKS)
def test_hooks_with_the_parameters_of_keras(name):
    with pytest.raises(TypeError, match=rf"^Mine: {name} expected .*self.* run.*received .*logs\)"):
        type("Mine", (fk.Callback,), {name: KERAS_HOOKS[name]})
    with pytest.raises(TypeError, match=f"^Mine: {name} expected"):
        type("Mine", (fk.callbacks.EarlyStopping,), {name: KERAS_HOOKS[name]})


def test_hooks_of_mixins_and_functions():
    with pytest.raises(TypeError, match="on_epoch_end expected"):
        type("Mine", (Mixin, fk.Callback), {})
    with pytest.raises(TypeError, match=r"on_epoch_end=lambda epoch, run, logs"):
        fk.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
    with pytest.raises(TypeError, match="on_train_begin=lambda run"):
        fk.callbacks.LambdaCallback(on_train_begin=lambda logs: None)
    with pytest.raises(TypeError, match="extra"):
        type("Mine", (fk.Callback,), {"on_train_end": lambda self, run, extra: None})
    printer = functools.partial(print, end="")
    fk.callbacks.LambdaCallback(on_batch_end=print, on_train_end=printer, on_epoch_end=max)


def test_hooks_that_are_bound_methods():
    class Notes(list):
        def keep(self, epoch, run, logs):
            self.append((epoch, logs))

        def keep_as_keras(self, epoch, logs=None): ...

    notes = Notes()
    fk.callbacks.LambdaCallback(on_epoch_end=notes.keep).on_epoch_end(3, None, {"loss": 1.0})
    assert notes == [(3, {"loss": 1.0})]
    with pytest.raises(
        TypeError, match=r"expected .*\(epoch, run, logs\), received \(epoch, logs\)"
    ):
        fk.callbacks.LambdaCallback(on_epoch_end=notes.keep_as_keras)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("on_train_batch_end", "on_batch_end"),
        ("on_train_batch_begin", "on_batch_end"),
        ("on_test_end", "on_epoch_end"),
        ("on_predict_begin", "call no hooks"),
        ("set_model", "run.model"),
        ("on_epoch_ends", "Did you mean 'on_epoch_end'"),
    ],
)
def test_unknown_hooks_are_rejected(name, instead):
    with pytest.raises(TypeError, match=f"^Mine: {name} is never called.*{instead}"):
        type("Mine", (fk.Callback,), {name: anything})


@pytest.mark.exhaustive
def test_hooks_in_our_form():
    for method in (
        lambda self, epoch, run, logs: None,
        lambda self, e, r, l: None,
        lambda self, *arguments: None,
        lambda self, epoch, run, logs=None, more=3: None,
    ):
        type("Fine", (fk.Callback,), {"on_epoch_end": method, "on_error": anything, "helper": 3})

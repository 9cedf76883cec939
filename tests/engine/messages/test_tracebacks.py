"""Tracebacks without internal frames, and without a second exception."""

import contextlib
import os
import subprocess
import sys
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine.messages.tracebacks import hide_internal_frames, hides_internal_frames


class Composed(fk.Model):
    def call(self, x):
        return layers.Dense(3)(layers.LSTM(3)(x))


class Failing(fk.Layer):
    def call(self, x):
        return x["a"]


class FailingBuild(fk.Layer):
    def build(self, key, x):
        raise OSError("no file")

    def call(self, x):
        return x


class Chained(fk.Layer):
    def call(self, x):
        try:
            return {}["a"]
        except KeyError:
            raise RuntimeError("a second error of the user")


class Callback(fk.callbacks.Callback):
    def on_epoch_end(self, *args, **kwargs):
        raise OSError("disk full")


def source():
    yield np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    raise OSError("no more data")


def loss(y_true, y_pred):
    return jnp.reshape(y_pred, (77,))


KEY = jax.random.key(0)
WRONG: Any = 3
UNTYPED: Any = layers.Dense(3)
UNTYPED_STATE: Any = layers.BatchNormalization()
X, WIDE, Y = np.ones((4, 3), "float32"), np.ones((4, 9), "float32"), np.ones((4, 1), "float32")
DENSE = layers.Dense(3).build(KEY, (None, 3))
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(1)])
TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(MODEL, KEY)


def failing_model():
    return fk.Sequential([fk.Input((3,)), Failing()])


# a mistake, and the function of the user that the traceback ends in
MISTAKES = {
    "symbolic": (lambda: layers.LSTM(3)(fk.Input((4,))), "<lambda>"),
    "symbolic shape": (lambda: layers.Dense(3)(fk.Input((None,))), "<lambda>"),
    "symbolic, own layer": (lambda: Failing()(fk.Input((4,))), "call"),
    "symbolic, own model": (lambda: Composed()(fk.Input((4,))), "call"),
    "symbolic, own build": (lambda: FailingBuild()(fk.Input((4,))), "build"),
    "operator": (lambda: fk.Input((3,)) + fk.Input((4,)), "<lambda>"),
    "operation": (lambda: fk.ops.matmul(X, X), "<lambda>"),
    "constructor": (lambda: layers.Dense(-1), "<lambda>"),
    "model": (lambda: fk.Model(fk.Input((3,)), fk.Input((4,))), "<lambda>"),
    "build": (lambda: UNTYPED.build(KEY), "<lambda>"),
    "own build": (lambda: FailingBuild().build(KEY, X), "build"),
    "init_state": (lambda: UNTYPED_STATE.init_state(), "<lambda>"),
    "layer": (lambda: DENSE(WIDE), "<lambda>"),
    "apply": (lambda: DENSE.apply(WIDE), "<lambda>"),
    "own layer": (lambda: Failing()(X), "call"),
    "own layer, apply": (lambda: Failing().apply(X), "call"),
    "unbuilt": (lambda: MODEL(X), "<lambda>"),
    "model(x)": (lambda: RUN.model(WIDE), "<lambda>"),
    "model.apply": (lambda: RUN.model.apply(WIDE), "<lambda>"),
    "jit": (lambda: jax.jit(lambda model, x: model(x))(RUN.model, WIDE), "<lambda>"),
    "override of apply": (lambda: layers.Embedding(3, 2).apply(X), "<lambda>"),
    "override of __call__": (lambda: layers.MultiHeadAttention(1, 2)("a"), "<lambda>"),
    "init": (lambda: TRAINER.init(MODEL, WRONG), "<lambda>"),
    "argument of fit": (lambda: TRAINER.fit(RUN, X, Y, **{"lr": WRONG}), "<lambda>"),
    "fit": (lambda: TRAINER.fit(RUN, WIDE, Y, verbose=0), "<lambda>"),
    "callback": (lambda: TRAINER.fit(RUN, X, Y, callbacks=[Callback()], verbose=0), "on_epoch_end"),
    "source": (lambda: TRAINER.fit(RUN, source(), verbose=0), "source"),
    "own loss": (lambda: fk.Trainer("sgd", loss).fit(RUN, X, Y, verbose=0), "loss"),
    "evaluate": (lambda: TRAINER.evaluate(RUN, X, Y[:3], verbose=0), "<lambda>"),
    "predict": (lambda: TRAINER.predict(RUN, WIDE), "<lambda>"),
    "step": (lambda: TRAINER.step(RUN, (WIDE, Y)), "<lambda>"),
    "run": (lambda: TRAINER.run(RUN, (X, Y[:3]), 1), "<lambda>"),
    "load_model": (lambda: fk.load_model("no such file.keras"), "<lambda>"),
    "load_weights": (lambda: fk.load_weights("no such file.npz", RUN.model), "<lambda>"),
    "set_weights": (lambda: DENSE.set_weights([X]), "<lambda>"),
    "replace": (lambda: DENSE.replace(unit=3), "<lambda>"),
    "add": (lambda: fk.Sequential().add(WRONG), "<lambda>"),
    "adapt": (lambda: layers.Normalization().adapt("words"), "<lambda>"),
    "losses.get": (lambda: fk.losses.get("mze"), "<lambda>"),
    "metrics.get": (lambda: fk.metrics.get("acuracy"), "<lambda>"),
    "optimizers.get": (lambda: fk.optimizers.get("adm"), "<lambda>"),
    "activations.get": (lambda: fk.activations.get("rleu"), "<lambda>"),
    "initializers.get": (lambda: fk.initializers.get("zeroes"), "<lambda>"),
    "freeze": (lambda: fk.freeze(RUN.model, "z"), "<lambda>"),
    "rename": (lambda: fk.rename(RUN.model, {"z": "y"}), "<lambda>"),
    "inline": (lambda: fk.inline(RUN.model, "z"), "<lambda>"),
    "quantize": (lambda: fk.quantize(RUN.model, "int3"), "<lambda>"),
    "transforms.replace": (lambda: transforms.replace(RUN.model, {"z": DENSE}), "<lambda>"),
    "transforms.insert": (lambda: transforms.insert(RUN.model, DENSE, after="z"), "<lambda>"),
    "transforms.remove": (lambda: transforms.remove(RUN.model, "z"), "<lambda>"),
    "transforms.cut": (lambda: transforms.cut(RUN.model, outputs="z"), "<lambda>"),
    "transforms.edit": (lambda: transforms.edit(RUN.model, {"z": abs}), "<lambda>"),
    "transforms.probe": (lambda: transforms.probe(RUN.model, "z"), "<lambda>"),
    "transforms.fold": (lambda: transforms.fold(WRONG, {}), "<lambda>"),
    "transforms.diff": (lambda: transforms.diff(RUN.model, WRONG), "<lambda>"),
    "transforms.agree": (lambda: transforms.agree(RUN.model, "no such.keras", X), "<lambda>"),
    "populate": (lambda: fk.populate(TRAINER, {"lr": [1]}), "<lambda>"),
    "export": (lambda: fk.export(MODEL, None, "m.jax"), "<lambda>"),
    "plan": (lambda: fk.plan(WRONG, (X, Y), TRAINER), "<lambda>"),
}


@contextlib.contextmanager
def _filtering_of_jax(mode):
    before = getattr(jax.config, "jax_traceback_filtering")  # noqa: B009 - unknown to types
    jax.config.update("jax_traceback_filtering", mode)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_filtering", before)


@pytest.fixture
def filtering(monkeypatch):
    monkeypatch.delenv("FKERAS_TRACEBACK_FILTERING", raising=False)
    with _filtering_of_jax("auto"):
        yield


def _caught(mistake):
    with pytest.raises(Exception) as caught:
        mistake()
    return caught.value


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_traceback_shows_only_the_frames_of_the_user(filtering, name):
    mistake, last = MISTAKES[name]
    error = _caught(mistake)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    frames = traceback.extract_tb(error.__traceback__)
    assert {frame.filename for frame in frames} == {__file__}
    assert frames[-1].name == last


def test_donated_arrays_are_one_exception(filtering):
    layer = layers.Dense(3).build(KEY, (None, 3))
    jax.jit(lambda layer: jax.tree.map(lambda a: a + 1, layer), donate_argnums=0)(layer)
    for mistake in (lambda: layer(X), lambda: layer.apply(X)):
        error = _caught(mistake)
        assert "donated" in str(error) and error.__suppress_context__
        assert traceback.extract_tb(error.__traceback__)[-1].filename == __file__


def test_exceptions_that_the_user_chains_stay(filtering):
    error = _caught(lambda: Chained()(X))
    assert isinstance(error.__context__, KeyError) and not error.__suppress_context__
    assert traceback.extract_tb(error.__context__.__traceback__)[-1].name == "call"


def test_runs_and_notes_stay(filtering):
    error = _caught(MISTAKES["source"][0])
    run = fk.training.run_of(error)
    assert run is not None and int(run.step) == 1
    assert any("while batch 2" in note for note in error.__notes__)


def test_a_keyboard_interrupt_shows_the_frames_of_the_user(filtering):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    callback = fk.callbacks.LambdaCallback(on_epoch_end=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        _ = TRAINER.fit(RUN, X, Y, callbacks=[callback], verbose=0)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert {frame.filename for frame in frames} == {__file__}
    assert fk.training.run_of(caught.value) is not None


class Stubborn(Exception):
    """An exception whose class rejects the changes that the filter makes."""

    __traceback__ = property(lambda self: None)  # type: ignore[assignment]

    def with_traceback(self, trace):
        raise TypeError("no")


@pytest.mark.parametrize("kind", [Stubborn, SystemExit])
def test_exceptions_of_any_class_leave_unchanged(filtering, kind):
    @hides_internal_frames
    def fail():
        raise kind("as raised")

    with pytest.raises(kind, match="as raised"):
        fail()


def test_a_cycle_of_causes_ends(filtering):
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    hide_internal_frames(first)
    assert first.__cause__ is second


@pytest.mark.parametrize("library", ["FKERAS", "JAX"])
def test_a_setting_shows_all_frames(filtering, monkeypatch, library):
    if library == "FKERAS":
        monkeypatch.setenv("FKERAS_TRACEBACK_FILTERING", "off")
    with _filtering_of_jax("off" if library == "JAX" else "auto"):
        error = _caught(MISTAKES["fit"][0])
    assert len(traceback.extract_tb(error.__traceback__)) > 8


@pytest.mark.exhaustive
def test_a_script_prints_one_exception_with_the_lines_of_the_script(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import fkeras as fk\n"
        "class Scale(fk.Layer):\n"
        "    def call(self, x):\n"
        "        return x @ x\n"
        "def main():\n"
        "    return Scale()(fk.ops.ones((2, 3)))\n"
        "main()\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("TRACEBACK_FILTERING")}
    command = [sys.executable, str(script)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True).stderr
    lines = [line.strip() for line in shown.splitlines() if line.startswith("  File")]
    assert [line.rpartition(" in ")[2] for line in lines] == ["<module>", "main", "call"]
    assert all("program.py" in line for line in lines)
    assert "During handling" not in shown and "TypeError" in shown

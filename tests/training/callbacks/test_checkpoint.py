"""ModelCheckpoint saves models and weights, all or the best."""

import os

import chex
import jax
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    LambdaCallback,
    ModelCheckpoint,
    load_weights,
    save_weights,
)
from tests.support.callback_runs import (
    LOSSES,
    RUN,
    TRAINER,
    drive,
    drive_keras,
    fit,
    network,
    pickled,
    shifted,
)
from tests.support.keras_oracle import keras_rules


@pytest.mark.exhaustive
def test_models_and_weights_are_saved_in_keras_form(tmp_path):
    """Keras and `fk.load_model` read what the callback wrote after an epoch."""
    model = fk.Sequential([fk.Input((3,)), layers.BatchNormalization(), layers.Dense(2)])
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    x, y = np.ones((4, 3), "float32"), np.zeros((4, 2), "float32")
    saves = [
        ModelCheckpoint(tmp_path / "{epoch:02d}.keras"),
        ModelCheckpoint(tmp_path / "best.weights.h5", save_weights_only=True),
    ]
    run, _ = trainer.fit(run, x, y, epochs=2, callbacks=saves, verbose=0)
    assert sorted(os.listdir(tmp_path)) == ["01.keras", "02.keras", "best.weights.h5"]
    loaded, state = fk.load_model(tmp_path / "02.keras")
    chex.assert_trees_all_equal((loaded, state), (run.model, run.state))
    again, state = fk.load_weights(tmp_path / "best.weights.h5", fk.engine.unbuilt(run.model))
    chex.assert_trees_all_equal((again, state), (run.model, run.state))
    with keras_rules():
        theirs = keras.models.load_model(tmp_path / "02.keras")
        expected = theirs.predict(x, verbose=0)
        theirs.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_allclose(run.model(x, state=run.state), expected, atol=1e-6)


def test_checkpoints_hold_the_epochs_and_can_be_loaded(tmp_path, capsys):
    runs = []
    watch = LambdaCallback(on_epoch_end=lambda epoch, run, logs: runs.append(run))
    path = tmp_path / "deep" / "{epoch:02d}-{val_loss:.2f}.npz"
    saving = ModelCheckpoint(path, verbose=1)
    run, history = fit(watch, saving, epochs=2, validation_split=0.25)
    names = [f"{i + 1:02d}-{v:.2f}.npz" for i, v in enumerate(history.history["val_loss"])]
    assert sorted(os.listdir(path.parent)) == names
    assert f"Epoch 1: saved {path.parent / names[0]}." in capsys.readouterr().out
    other = TRAINER.init(network(), jax.random.key(5))
    loaded = load_weights(path.parent / names[0], other)
    chex.assert_trees_all_equal(
        (loaded.model, loaded.state, loaded.opt_state, loaded.step),
        (runs[0].model, runs[0].state, runs[0].opt_state, runs[0].step),
    )
    only = load_weights(path.parent / names[0], other, weights_only=True)
    chex.assert_trees_all_equal(only.model, runs[0].model)
    assert int(only.step) == 0
    # training goes on from there
    fit(run=loaded, epochs=1)


@pytest.mark.exhaustive
def test_only_the_best_is_saved_as_keras_decides(tmp_path):
    class Theirs(keras.callbacks.ModelCheckpoint):
        def _save_model(self, epoch, batch, logs):
            if self._should_save_model(epoch, batch, logs, ""):
                saved.append(epoch)

    sequence = [{"val_loss": value} for value in LOSSES]
    for options in (
        {},
        {"mode": "max"},
        {"initial_value_threshold": 0.75},
        {"save_best_only": False},
    ):
        options = {"save_best_only": True} | options
        saved, ours = [], []
        with keras_rules():
            drive_keras(Theirs("a.keras", **options), sequence)
        folder = tmp_path / str(options.get("mode", len(options)))

        def through(run):
            ours.append(sorted(os.listdir(folder)))
            return pickled(run)

        drive(ModelCheckpoint(folder / "{epoch:02d}.npz", **options), sequence, through=through)
        assert [int(name[:2]) - 1 for name in ours[-1]] == saved
        for name in ours[-1]:
            (folder / name).unlink()


def test_checkpoints_after_steps(tmp_path):
    saving = ModelCheckpoint(tmp_path / "{epoch}-{step}.npz", save_freq=2, save_weights_only=True)
    assert saving._watches_batches
    assert not ModelCheckpoint("a.npz")._watches_batches
    fit(saving, epochs=2, steps_per_execution=1)
    assert sorted(os.listdir(tmp_path)) == ["1-2.npz", "2-4.npz", "2-6.npz"]
    with np.load(tmp_path / "1-2.npz") as file:
        assert sorted(file.files) == [
            "about",
            "state/norm/moving_mean",
            "state/norm/moving_variance",
            "weights/body/bias",
            "weights/body/kernel",
            "weights/head/bias",
            "weights/head/kernel",
            "weights/norm/beta",
            "weights/norm/gamma",
        ]
    assert int(load_weights(tmp_path / "1-2.npz", RUN).step) == 0


def test_a_failed_save_leaves_no_partial_file(tmp_path, monkeypatch):
    path = tmp_path / "w.npz"
    save_weights(path, RUN)
    before = path.read_bytes()

    def full(*arguments, **arrays):
        arguments[0].write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="epoch 1: '.*w.npz' could not be written: No space left"):
        ModelCheckpoint(path).on_epoch_end(0, RUN, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["w.npz"]


def test_checkpoints_of_dtypes_missing_in_numpy(tmp_path):
    half = jax.tree.map(lambda a: a.astype("bfloat16"), RUN.model)
    run = RUN.replace(model=half)
    save_weights(tmp_path / "w.npz", run, weights_only=False)
    loaded = load_weights(tmp_path / "w.npz", shifted(run, 1.0))
    chex.assert_trees_all_equal_shapes_and_dtypes(loaded.model, run.model)
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda a: np.asarray(a, "float32"), r.model) for r in (loaded, run))
    )


def test_wrong_arguments_of_model_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"ends in .keras, .weights.h5 or .npz.*Write 'a.keras'"):
        ModelCheckpoint("a.h5")
    with pytest.raises(ValueError, match="save_weights_only: expected True for a .weights.h5 file"):
        ModelCheckpoint("a.weights.h5")
    with pytest.raises(ValueError, match="save_weights_only: expected False for a .keras file"):
        ModelCheckpoint("a.keras", save_weights_only=True)
    with pytest.raises(ValueError, match=r"expected a .npz file.*fk.load_weights\(path, run.model"):
        load_weights("a.weights.h5", RUN)
    with pytest.raises(TypeError, match="expected a path, a string or a pathlib.Path, received 3"):
        ModelCheckpoint(3)
    with pytest.raises(
        ValueError, match="save_freq: expected 'epoch', or a positive integer, received 0"
    ):
        ModelCheckpoint("a.npz", save_freq=0)
    fields = ModelCheckpoint(tmp_path / "{val_los:.2f}.npz")
    with pytest.raises(ValueError, match="unknown field 'val_los' in .* Did you mean 'val_l"):
        hooks.check_logs([fields], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="unknown field 'val_los'"):
        fields.on_epoch_end(0, RUN, {"loss": 1.0})
    with pytest.raises(ValueError, match="cannot format the filepath.*Write fields such as"):
        ModelCheckpoint(tmp_path / "{loss:02d}.npz").on_epoch_end(0, RUN, {"loss": 1.0})
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="ModelCheckpoint: expected filepath in a writable folder"):
        ModelCheckpoint(tmp_path / "file" / "a.npz").on_train_begin(RUN)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OSError, match="received a folder"):
        ModelCheckpoint(tmp_path / "folder.npz").on_epoch_end(0, RUN, {})

"""Rejected files of trainings, and trainings that no file can hold."""

import dataclasses
import json
import zipfile

import h5py
import jax
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import optimizers
from fkeras.saving.trained.compile_config import (
    optimizer_arrays,
    read_trainer,
    write_compile_config,
)


def half_squares(y_true, y_pred):
    return (y_true - y_pred) ** 2 * 0.5


def trained(optimizer="adam", **options):
    x = fk.Input((3,))
    model = fk.Model(x, fk.layers.Dense(3, name="alpha")(fk.layers.Dense(3, name="zeta")(x)))
    trainer = fk.Trainer(optimizer, "mse", **options)
    return trainer, trainer.init(model, jax.random.key(1))


def test_a_file_without_training_raises_a_clear_error(tmp_path):
    trainer, run = trained()
    path = tmp_path / "m.keras"
    fk.save_model(path, run.model)
    with pytest.raises(fk.FileError, match=r"never compiled.*fk\.load_model"):
        fk.load_training(path)
    # a trainer without a run: the initial state is saved
    fk.save_model(path, run.model, trainer=trainer)
    same, resumed = fk.load_training(path)
    assert same == trainer and resumed.model == run.model and int(resumed.opt_state.count) == 0
    with pytest.raises(ValueError, match="trainer= and run= of one training"):
        fk.save_model(path, run.model, run=run)


def test_options_that_change_numbers_are_rejected_and_others_ignored(tmp_path):
    path = tmp_path / "m.keras"
    for optimizer, word in (
        (optax.adam(0.1), "optax"),
        (optimizers.MultiOptimizer({"*": optax.sgd(0.1)}), "optax"),
        (optimizers.Rowwise("sgd"), "inner_optimizer"),
        (optimizers.AdamW(exclude_from_weight_decay=["bias"]), "exclude_from_weight_decay"),
    ):
        trainer, run = trained(optimizer)
        with pytest.raises(TypeError, match=word):
            fk.save_model(path, run.model, trainer=trainer, run=run)
    trainer, run = trained("adam", remat="full", on_nonfinite="skip")
    with pytest.warns(UserWarning, match="remat, on_nonfinite"):
        fk.save_model(path, run.model, trainer=trainer, run=run)
    plain = dataclasses.replace(trainer, remat=None, on_nonfinite="raise")
    assert fk.load_training(path)[0] == plain
    both = jax.tree.map(lambda a: np.stack([a, a]), run.opt_state)
    with pytest.raises(fk.FKerasError, match="expected the state of Adam"):
        optimizer_arrays(plain, run.replace(opt_state=both))


def test_the_weight_decay_of_the_run_is_saved(tmp_path):
    trainer, run = trained(optimizers.LossScaleOptimizer(optimizers.AdamW()))
    inner = run.opt_state.inner._replace(weight_decay=np.float32(0.25))
    run = run.replace(opt_state=run.opt_state._replace(inner=inner))
    fk.save_model(tmp_path / "m.keras", run.model, trainer=trainer, run=run)
    loaded, resumed = fk.load_training(tmp_path / "m.keras")
    assert loaded.optimizer.inner_optimizer.weight_decay == 0.25
    assert float(resumed.opt_state.inner.weight_decay) == 0.25


def changed(path, target, change=None, arrays=None):
    """Writes a copy of a file with a changed compile_config or changed arrays."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if change is not None:
        config = json.loads(members["config.json"])
        change(config)
        members["config.json"] = json.dumps(config).encode()
    if arrays is not None:
        weight_file = target.with_suffix(".h5")
        weight_file.write_bytes(members["model.weights.h5"])
        with h5py.File(weight_file, "a") as file:
            arrays(file["optimizer/vars"])
        members["model.weights.h5"] = weight_file.read_bytes()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def put(group, name, value):
    del group[name]
    group[name] = value


ARRAYS = {
    "too few": (lambda g: g.__delitem__("9"), "expected 10 arrays of Adam.*received 9"),
    "another name": (lambda g: g.move("4", "x"), "optimizer/vars/4 is missing"),
    "another shape": (
        lambda g: put(g, "4", np.zeros((3, 2), "float32")),
        r"momentum of 'zeta/bias' of shape \(3,\), received shape \(3, 2\)",
    ),
    "a negative count": (lambda g: put(g, "0", -1), "expected the iterations from 0"),
    "a count that is none": (lambda g: put(g, "0", 1.5), "expected the iterations as numbers"),
    "truths": (lambda g: put(g, "4", np.ones(3, bool)), "expected the momentum"),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    trainer, run = trained(metrics=["mae"])
    path = tmp_path_factory.mktemp("compiled") / "m.keras"
    fk.save_model(path, run.model, trainer=trainer, run=run)
    return path


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", ARRAYS)
def test_arrays_of_another_optimizer_are_rejected(row, file, tmp_path):
    arrays, message = ARRAYS[row]
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.load_training(changed(file, tmp_path / "bad.keras", arrays=arrays))
    assert caught.value.member.startswith("model.weights.h5:/optimizer/vars")
    assert fk.load_model(tmp_path / "bad.keras")[0].built


BAD = ([], 3, "nonsense", {"class_name": "Dense", "module": "keras.layers", "config": {"units": 1}})
BAD += (
    {"class_name": "function", "module": "os", "config": "system", "registered_name": "system"},
    {"class_name": "__lambda__", "module": "builtins", "config": {"value": "4wAAAA=="}},
    {"class_name": "system", "module": "os", "config": {}},
    {"class_name": "Adam", "module": "keras.optimizers", "config": {"learning_rate": "fast"}},
    {"class_name": "AUC", "module": "keras.metrics", "config": {"num_thresholds": 10**12}},
    {"class_name": "Huber", "module": "keras.losses", "config": []},
    {"class_name": 3, "config": None},
    [[[["mse"]]]],
    True,
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", ["optimizer", "loss", "loss_weights", "metrics", ""])
def test_any_value_of_a_key_opens_or_is_rejected(key):
    """Each value raises FileError or is valid for the key; no other exception occurs."""
    compiled = write_compile_config(fk.Trainer("adam", "mse"))
    rejected_count = 0
    for value in BAD:
        try:
            trainer = read_trainer({**compiled, key: value} if key else value, None, "m.keras")
        except fk.FileError as error:
            assert error.member.startswith("config.json") and error.file == "m.keras"
            rejected_count += 1
        else:
            assert value in ([], "nonsense") or key == "loss_weights", (key, value, trainer)
    assert rejected_count >= len(BAD) - 3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "config"),
    [("MeanIoU", {"num_classes": 10**6}), ("AUC", {"num_thresholds": 10**12})],
)
def test_metrics_beyond_the_memory_limit_are_rejected(name, config, file, tmp_path):
    metric = {"class_name": name, "module": "keras.metrics", "config": config}
    target = changed(
        file, tmp_path / "m.keras", lambda c: c["compile_config"].update(metrics=[metric])
    )
    with pytest.raises(fk.FileError, match="bytes|num_thresholds"):
        fk.load_training(target)


def test_a_missing_custom_function_is_named_in_the_error(file, tmp_path):
    function_config = {"class_name": "function", "module": "them", "config": "half_squares"}
    target = changed(
        file,
        tmp_path / "m.keras",
        lambda c: c["compile_config"].update(loss=function_config, metrics=[]),
    )
    with pytest.raises(fk.FileError, match=r"custom_objects=\{'half_squares': half_squares\}"):
        fk.load_training(target)
    trainer, _ = fk.load_training(target, custom_objects={"half_squares": half_squares})
    assert trainer.loss.fn is half_squares
    assert write_compile_config(trainer)["loss"]["config"] == "half_squares"

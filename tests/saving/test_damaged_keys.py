"""Each key of a valid file is damaged in turn: an error names the key."""

import functools
import io
import json

import h5py
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support import file_damages as damage
from tests.support.legacy_files import cases, file_bytes

X, Y = np.ones((4, 4), "float32"), np.ones((4, 2), "float32")


def _sequential():
    members = [
        layers.Dense(3, activation="relu", kernel_regularizer="l2", name="hidden"),
        layers.BatchNormalization(name="norm"),
        layers.Dropout(0.1, name="drop"),
        layers.Dense(2, name="out"),
    ]
    return fk.Sequential([fk.Input((4,), name="x"), *members], name="row")


def _nested():
    x = fk.Input((6, 4), name="x")
    y = layers.Conv1D(3, 2, padding="same", kernel_constraint="max_norm", name="conv")(x)
    y = layers.Add(name="add")([y, layers.LSTM(3, return_sequences=True, name="lstm")(x)])
    y = layers.MultiHeadAttention(1, 2, name="attention")(y, y)
    inner = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="dense")], name="inner")
    z = fk.Input((3,), name="z")
    nest = fk.Model(z, inner(layers.LayerNormalization(name="scale")(z)), name="nest")
    return fk.Model({"x": x}, [nest(y[:, 0] * 2.0), layers.Dense(1, name="last")(y)], name="whole")


@functools.cache
def _good(tmp_path):
    """Returns valid files by name: bytes, file name, loader, and the members with JSON."""
    files = {}
    trainer = fk.Trainer(fk.optimizers.Adam(0.1), "mse", ["mae", fk.metrics.AUC(9)])
    run = trainer.init(_sequential(), jax.random.key(0))
    fk.save_model(tmp_path / "m.keras", run.model, run.state, trainer=trainer, run=run)
    data = (tmp_path / "m.keras").read_bytes()
    files["training"] = data, "m.keras", fk.load_training, ["config.json", "metadata.json"]
    model = _nested().build(jax.random.key(0))
    fk.save_model(tmp_path / "m.keras", model, model.init_state())
    data = (tmp_path / "m.keras").read_bytes()
    files["nested"] = data, "m.keras", fk.load_model, ["config.json"]
    for name in ("optimizer_nadam", "shared"):
        data = file_bytes(cases()[name])
        with h5py.File(io.BytesIO(data)) as file:
            trained = "training_config" in file.attrs
        load = fk.load_training if trained else fk.load_model
        places = ["model_config", *["training_config"] * trained]
        files[name] = data, "m.h5", load, places
    return files


def _findings(tmp_path, name, every, first=0):
    data, filename, load, places = _good(tmp_path)[name]
    archive = filename.endswith(".keras")
    read = damage.member_of if archive else damage.attribute_of
    write = damage.with_member if archive else damage.with_attribute

    def attempt(damaged):
        (tmp_path / filename).write_bytes(damaged)
        try:
            load(tmp_path / filename)
        except fk.FileError as error:
            assert error.member, error
            return error
        return None

    findings = []
    for where in places:
        findings += damage.findings(attempt, data, read, write, where, every, first)
    return findings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


NAMES = ["training", "nested", "optimizer_nadam", "shared"]
FIFTHS = 5  # a test of each fifth of the damages: parts of CI and workers share them evenly


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_key(folder, name):
    every = {"training": 149, "nested": 601}.get(name, 131)
    assert not _findings(folder, name, every)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(FIFTHS))
@pytest.mark.parametrize("name", NAMES)
def test_all_errors_name_the_key(folder, name, first):
    assert not _findings(folder, name, FIFTHS, first)


def test_a_lone_surrogate_in_a_name_is_rejected(tmp_path):
    model = fk.Sequential([fk.Input((4,)), layers.Dense(2, name="dense")]).build(jax.random.key(0))
    fk.save_model(tmp_path / "m.keras", model)
    data = (tmp_path / "m.keras").read_bytes()
    text = json.dumps(damage.member_of(data, "config.json"))
    # half of a character, and an escaped character of more than 16 bits
    for name, words in (("d\ud800e", "a lone surrogate after '.*: \"d'"), ("d\U0001f600e", None)):
        config = json.loads(text.replace('"dense"', json.dumps(name)))
        (tmp_path / "m.keras").write_bytes(damage.with_member(data, "config.json", config))
        if words is None:
            assert name in fk.load_model(tmp_path / "m.keras")[0].layers
        else:
            with pytest.raises(fk.FileError, match=words):
                fk.load_model(tmp_path / "m.keras")

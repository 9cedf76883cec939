"""Layers of Keras with `enable_lora` in `.keras` files."""

import json
import zipfile

import jax
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.errors import FileError
from tests.support.keras_oracle import keras_rules


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("lora") / "lora.keras"
    with keras_rules():
        x = keras.Input((6,))
        body, head = keras.layers.Dense(4, name="body"), keras.layers.Dense(3, name="head")
        nested = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(5, name="deep")], name="nested"
        )
        model = keras.Model(x, head(nested(body(x))))
        body.enable_lora(2, lora_alpha=6)
        nested.layers[0].enable_lora(3)
        body.lora_kernel_b.assign(np.ones((2, 4), "float32"))
        model.save(file)
        rows = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 6)
        np.savez(file.with_suffix(".npz"), rows=rows, outputs=np.asarray(model(rows)))
    return file


@pytest.mark.exhaustive
def test_adapted_layers_open_frozen_with_new_adapters(path):
    model, _ = fk.load_model(path)
    with np.load(path.with_suffix(".npz")) as file:
        np.testing.assert_allclose(model(file["rows"]), file["outputs"], atol=1e-5)
    trained = list(fk.engine.trainable_weights(model))
    assert [name for name in trained if "adapters" in name] == [
        *("body/adapters/layer/a", "body/adapters/layer/b"),
        *("nested/deep/adapters/layer/a", "nested/deep/adapters/layer/b"),
    ]
    # other layers are trained as in Keras
    assert {"head/kernel", "head/bias"} <= set(trained)
    adapter = model.layers["body"].adapters["layer"]
    assert (adapter.rank, adapter.alpha, adapter.scale) == (2, 6, 3)
    assert not np.asarray(adapter.b).any()
    assert np.asarray(adapter.a).any()
    merged = fk.transforms.merge_adapters(model)
    assert not any("adapters" in name for name, _ in fk.engine.sublayers(merged))


@pytest.mark.exhaustive
def test_an_adapter_from_a_file_trains(path):
    model, _ = fk.load_model(path)
    x, y = np.ones((8, 6), "float32"), np.ones((8, 3), "float32")
    trainer = fk.Trainer(optimizer=fk.optimizers.Adam(0.01), loss="mean_squared_error")
    fitted = trainer.fit(trainer.init(model, jax.random.key(0)), x, y, epochs=2, verbose=0)
    assert np.asarray(fitted.run.model.layers["body"].adapters["layer"].b).any()


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [10**9, 0, -1, "2", 1.5])
def test_ranks_of_damaged_files(path, rank, tmp_path):
    damaged = tmp_path / "damaged.keras"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(damaged, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "config.json":
                config = json.loads(data)
                config["config"]["layers"][1]["config"]["lora_rank"] = rank
                data = json.dumps(config).encode()
            target.writestr(name, data)
    with pytest.raises((FileError, ValueError), match="rank"):
        fk.load_model(damaged)


def test_keras_has_no_class_for_adapted_layers(path):
    model, state = fk.load_model(path)
    with pytest.raises(ValueError, match="to_keras, .* has adapters.*merge_adapters"):
        fk.to_keras(model, state)
    merged = fk.transforms.merge_adapters(model)
    with keras_rules():
        theirs = fk.to_keras(merged, state)
        rows = np.ones((2, 6), "float32")
        outputs = np.asarray(theirs(rows))
    np.testing.assert_allclose(merged(rows), outputs, atol=1e-5)

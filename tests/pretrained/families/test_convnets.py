"""ResNet and ConvNeXT; `test_options.py` compares their numbers with transformers."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import convnets
from tests.pretrained.option_checks import computes_the_base

FAMILIES = {"resnet": convnets.RESNET, "convnext": convnets.CONVNEXT}
IMAGES = np.sin(np.arange(2 * 16 * 16 * 3)).astype("float32").reshape(2, 16, 16, 3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_equal_those_of_transformers(name, tmp_path):
    computes_the_base(name, tmp_path)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A folder of a model whose averages are those of two steps, the model and its state."""
    config, folder = convnets.RESNET.tiny, tmp_path_factory.mktemp("resnet")
    model = fk.pretrained.build(config).build(jax.random.key(0))
    state = model.init_state()
    state = state | model.apply(IMAGES, state=state, training=True).updates
    fk.pretrained.save(folder, model, state, config)
    return folder, model, state


def test_a_state_is_written_and_read(resnet, tmp_path):
    folder, model, state = resnet
    loaded = fk.pretrained.load(folder)
    assert loaded.model == model
    jax.tree.map(np.testing.assert_array_equal, loaded.state, state)
    means = loaded.state["block_0"]["layer_0_norm"]["moving_mean"]
    assert np.abs(means).max() > 0
    fk.pretrained.save(tmp_path, loaded.model, loaded.state, loaded.config)
    weights = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == weights


@pytest.mark.exhaustive
def test_half_precision_keeps_averages_in_float32(resnet, tmp_path):
    _, model, state = resnet
    fk.pretrained.save(tmp_path, model, state, convnets.RESNET.tiny, dtype="bfloat16")
    loaded = fk.pretrained.load(tmp_path)
    assert loaded.state["stem_norm"]["moving_mean"].dtype == "float32"
    assert loaded.model.layers["stem_conv"].kernel.dtype == "bfloat16"
    out = loaded.model.apply(IMAGES, state=loaded.state).value["classes"]
    assert np.isfinite(np.asarray(out, "float32")).all()
    fk.pretrained.save(tmp_path / "new", loaded.model, loaded.state, loaded.config)
    weights = (tmp_path / "model.safetensors").read_bytes()
    assert (tmp_path / "new/model.safetensors").read_bytes() == weights
    changed = jax.tree.map(lambda x: x + np.float32(1e-6), loaded.state)
    fk.pretrained.save(tmp_path / "new", loaded.model, changed, loaded.config)
    again = fk.pretrained.load(tmp_path / "new")
    jax.tree.map(np.testing.assert_array_equal, again.state, changed)


def test_a_state_that_is_left_out_is_reported(resnet, tmp_path):
    _, model, _ = resnet
    for state in (None, {}):
        with pytest.raises(ValueError, match=r"differs in .*moving_mean"):
            fk.pretrained.save(tmp_path, model, state, convnets.RESNET.tiny)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"resnet.embedder.embedder.normalization.running_mean": None},
            "missing in the file: .*mean",
        ),
        (
            {"resnet.embedder.embedder.normalization.running_var": np.ones(3, "float32")},
            r"running_var \(8,\) \(file: \(3,\)\)",
        ),
    ],
)
def test_wrong_averages_are_reported(change, message, resnet, tmp_path):
    folder, *_ = resnet
    tensors = safetensors.numpy.load_file(folder / "model.safetensors") | change
    tensors = {name: array for name, array in tensors.items() if array is not None}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(tmp_path)


@pytest.mark.exhaustive
def test_numbers_of_training_batches_are_not_read(resnet, tmp_path):
    folder, model, _ = resnet
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors["resnet.embedder.embedder.normalization.num_batches_tracked"] = np.array(3)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert fk.pretrained.load(tmp_path).model == model


@pytest.mark.exhaustive
def test_convnext_without_layer_scales_is_written_and_opened(tmp_path):
    config = dataclasses.replace(convnets.CONVNEXT.tiny, layer_scale_init_value=0)
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    again = fk.pretrained.load(tmp_path).model(IMAGES)
    jax.tree.map(np.testing.assert_array_equal, again, model(IMAGES))


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("resnet", {"depths": [3]}, "depths: expected 2 numbers"),
        ("resnet", {"layer_type": "wide"}, "layer_type"),
        ("resnet", {"hidden_sizes": []}, "hidden_sizes"),
        ("resnet", {"hidden_sizes": [8, 0]}, "hidden_sizes"),
        ("convnext", {"num_stages": 3}, "num_stages: expected 2"),
        ("convnext", {"patch_size": 0}, "patch_size"),
        ("convnext", {"layer_scale_init_value": -1}, "layer_scale_init_value"),
        ("convnext", {"use_grn": True}, "unknown key 'use_grn'"),
    ],
)
def test_a_wrong_configuration_is_rejected(name, keys, message):
    family = FAMILIES[name]
    with pytest.raises(ValueError, match=message):
        family.config.read({**family.tiny.write(), **keys})

"""Folders of timm: names, numbers and pixels against timm."""

import gzip
import json

import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import timm
from fkeras.pretrained.families.table import family_of
from tests.pretrained.option_checks import FILE, images, leveled, picture, spread

ENTRIES = json.loads(gzip.decompress(FILE.with_name("timm.json.gz").read_bytes()))
NAMES = sorted(name for name in ENTRIES if name != "about")


def config_of(name):
    entry = ENTRIES[name]
    config = family_of(entry["config"]).config.read(entry["config"])
    return timm.TIMM.adapted(config, entry["tensors"])


@pytest.mark.parametrize("name", NAMES)
def test_tensors_have_the_names_of_timm(name):
    config = config_of(name)
    assert (config.architecture, config.num_labels) == (name, 5)
    assert config.write() == ENTRIES[name]["config"]
    listed = [tensor for row in timm.names(config) for m in row.matches() for tensor in m.tensors]
    assert sorted(listed) == sorted(ENTRIES[name]["tensors"])


@pytest.mark.exhaustive  # networks of 11 to 29 million weights
@pytest.mark.parametrize("name", NAMES)
def test_numbers_equal_those_of_timm(name, tmp_path):
    entry = ENTRIES[name]
    tensors = {key: leveled(key, shape) for key, shape in entry["tensors"].items()}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(entry["config"]))
    loaded = fk.pretrained.load(tmp_path)
    out = loaded.model.apply(images(), state=loaded.state).value["classes"]
    right = np.array(entry["logits"])
    np.testing.assert_allclose(out, right, atol=3e-6 * np.abs(right).max())
    fk.pretrained.save(tmp_path / "new", loaded.model, loaded.state, loaded.config)
    for file in ("model.safetensors", "config.json"):
        written, read = ((tmp_path / part / file).read_bytes() for part in ("new", "."))
        assert written == read or json.loads(written) == json.loads(read)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_pixels_equal_those_of_timm(name):
    process = timm.TIMM.processor_of(config_of(name))
    np.testing.assert_allclose(spread(process(picture())[0]), ENTRIES[name]["pixels"], atol=1e-6)


def test_squashed_pixels_equal_those_of_timm():
    entry = ENTRIES["resnet18"]
    process = timm.processor({**entry["config"]["pretrained_cfg"], "crop_mode": "squash"})
    np.testing.assert_allclose(spread(process(picture())[0]), entry["squashed"], atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"architecture": "resnet50d"}, "expected a model_type among .*received 'resnet50d'"),
        ({"global_pool": "max"}, "global_pool: expected 'avg'"),
        ({"num_classes": -1}, "num_labels"),
        ({"model_args": {"in_chans": 1}}, "model_args.in_chans: expected 3"),
        ({"model_args": {"num_classes": 7}}, "model_args.num_classes: expected 5"),
        ({"model_args": {"output_stride": 16}}, "model_args.output_stride"),
        ({"model_args": 3}, "model_args: expected a mapping"),
        ({"features_only": True}, "unknown key 'features_only'"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message):
    mapping = {"architecture": "resnet18", "num_classes": 5, **keys}
    with pytest.raises(ValueError, match=message):
        family_of(mapping).config.read(mapping)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"crop_pct": 0}, "crop_pct: expected a share"),
        ({"crop_mode": "border"}, "crop_mode: expected 'center' or 'squash'"),
        ({"crop_mode": ["center"]}, "crop_mode"),
        ({"interpolation": "nearest"}, "interpolation"),
        ({"input_size": [1, 224, 224]}, "input_size"),
        ({"input_size": [3, 224, 192]}, "input_size"),
        ({"input_size": 224}, "input_size"),
        ({"mean": [0.5, "?"]}, "image_mean"),
    ],
)
def test_a_wrong_preprocessing_is_rejected(keys, message):
    with pytest.raises((ValueError, fk.FKerasError), match=message):
        timm.processor(keys)


def test_a_folder_with_a_wrong_preprocessing_is_rejected(tmp_path):
    safetensors.numpy.save_file({}, tmp_path / "model.safetensors")
    mapping = {"architecture": "resnet18", "pretrained_cfg": 3}
    (tmp_path / "config.json").write_text(json.dumps(mapping))
    with pytest.raises(FileError):
        fk.pretrained.load(tmp_path)

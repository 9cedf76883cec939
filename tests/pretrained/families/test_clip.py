"""CLIP and SigLIP against transformers."""

import json

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import transforms
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import clip
from fkeras.pretrained.families.clip import ClipConfig
from tests.pretrained import encoder_checks
from tests.pretrained.checks import DATA, expected

FOLDERS = ("clip", "clip_legacy", "siglip")


def outputs_of(model, arrays):
    mask = arrays["mask"].astype(bool) if "mask" in arrays else None
    masks = None if mask is None else [None, mask]
    return model([arrays["images"], arrays["ids"].astype("int32")], mask=masks)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(FOLDERS, ["clip", "siglip"]))
def test_numbers_equal_those_of_transformers(name):
    loaded, arrays = encoder_checks.arrays_of(name)
    outputs = outputs_of(loaded.model, arrays)
    keys = {"image": "image_embeds", "text": "text_embeds", "logits": "logits_per_image"}
    for key, right in keys.items():
        np.testing.assert_allclose(outputs[key], arrays[right], atol=1e-4, err_msg=key)
    mask = arrays["mask"].astype(bool) if "mask" in arrays else None
    sides = {
        "text": (arrays["ids"].astype("int32"), "embedding_add", mask),
        # CLIP normalizes the sequence before the first block
        "vision": (arrays["images"], "sequence" if name == "siglip" else "pre_norm", None),
    }
    for side, (inputs, first, mask) in sides.items():
        tower = transforms.probe(loaded.model.layers[side], [first, "block_*"])
        outputs, values = tower(inputs, mask=mask)
        kept = slice(None) if mask is None else mask
        for n, place in enumerate([first, "block_0", "block_1"]):
            value, right = values[f"{place}_ib-0"], arrays[f"{side}_block_{n}"]
            np.testing.assert_allclose(
                np.asarray(value)[kept], right[kept], atol=1e-4, err_msg=f"{side} {place}"
            )
        hidden, right = np.asarray(outputs["hidden"]), arrays[f"{side}_hidden_state"]
        np.testing.assert_allclose(hidden[kept], right[kept], atol=1e-4)
        if name == "siglip":
            np.testing.assert_allclose(outputs["pooled"], arrays[f"{side}_pooled"], atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(FOLDERS, ["siglip"]))
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    encoder_checks.is_written_back(name, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(["clip", "siglip"], ["clip"]))
def test_pixels_equal_those_of_transformers(name):
    arrays = expected(name)
    pixels = fk.pretrained.load(DATA / name).processor(arrays["picture"])
    np.testing.assert_allclose(pixels[0], arrays["pixels"], atol=1e-6)


@pytest.mark.exhaustive
def test_padding_after_the_end_token_changes_nothing():
    model, arrays = fk.pretrained.load(DATA / "clip").model.layers["text"], expected("clip")
    ids = arrays["ids"][1:2, :4].astype("int32")
    padded = np.concatenate([ids, np.full((1, 5), 66, "int32")], axis=1)
    alone = model(ids)["embedding"]
    # tokens see earlier tokens only, and the first end token gives the vector
    np.testing.assert_allclose(model(padded)["embedding"], alone, atol=1e-6)
    # padding with the end token on the left is no end
    encoder_checks.padding_changes_no_token(model, ids, 3, 2)


@pytest.mark.exhaustive
def test_texts_of_siglip_have_one_length():
    model = fk.pretrained.load(DATA / "siglip").model
    with pytest.raises(fk.FKerasError, match="15"):
        model.layers["text"](np.ones((1, 5), "int32"))


@pytest.mark.exhaustive
def test_another_number_of_texts_than_of_images():
    loaded, arrays = fk.pretrained.load(DATA / "clip"), expected("clip")
    images = arrays["images"]
    outputs = loaded.model([images[:1], arrays["ids"].astype("int32")])
    assert outputs["logits"].shape == (1, 3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"text_config": 3}, "text_config"),
        ({"text_config": {"vocab_size": 0}}, "vocab_size"),
        ({"text_config": {"rotary": True}}, "unknown key 'text_config.rotary'"),
        ({"vision_config": None}, "not in the model|of another shape|missing"),
        ({"projection_dim": 15}, "of another shape"),
        ({"architectures": ["CLIPForImageClassification"]}, "another head"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message, tmp_path):
    folder = encoder_checks.renamed("clip", tmp_path, lambda name: name, keys)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


def test_a_tower_that_old_files_repeat_precedes():
    mapping = json.loads((DATA / "clip/config.json").read_text())
    config = ClipConfig.read({**mapping, "text_config_dict": {"vocab_size": 99}})
    assert (config.text_config.vocab_size, config.text_config.hidden_size) == (99, 512)
    assert config.vision_config.hidden_size == 24


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", [clip.CLIP, clip.SIGLIP], ids=["clip", "siglip"])
def test_a_new_model_is_written_and_opened(family, tmp_path):
    model = fk.pretrained.build(family.tiny).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, family.tiny)
    images = np.random.default_rng(0).normal(size=(1, 20, 20, 3)).astype("float32")
    inputs = [images, np.full((2, 15), 66, "int32")]
    again = fk.pretrained.load(tmp_path).model(inputs)
    jax.tree.map(np.testing.assert_array_equal, again, model(inputs))

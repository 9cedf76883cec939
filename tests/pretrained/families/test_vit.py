"""ViT, DINOv2 and SigLIP's vision tower against transformers."""

import json

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import dinov2, vit
from tests.pretrained import encoder_checks
from tests.pretrained.checks import DATA, expected
from tests.pretrained.option_checks import computes_the_base

FIRST = {
    "vit": "sequence",
    "vit_classifier": "sequence",
    "dinov2": "sequence",
    "dinov2_classifier": "sequence",
    "dinov2_registers": "register_tokens",
    "siglip_vision": "sequence",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(FIRST, ["vit", "dinov2_registers"]))
def test_numbers_equal_those_of_transformers(name):
    loaded, arrays = encoder_checks.arrays_of(name)
    encoder_checks.computes_the_numbers_of_transformers(
        loaded, arrays, arrays["images"], FIRST[name]
    )
    if "large_images" in arrays:
        hidden = loaded.model(arrays["large_images"])["hidden"]
        np.testing.assert_allclose(hidden, arrays["large_hidden_state"], atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(["dinov2", "dinov2_registers"], ["dinov2"]))
def test_masked_patches_are_those_of_transformers(name):
    model, arrays = fk.pretrained.load(DATA / name).model, expected(name)
    images, masked = arrays["images"], arrays["masked"]
    assert masked.any() and not masked.all()
    hidden = model([images, masked])["hidden"]
    np.testing.assert_allclose(hidden, arrays["masked_hidden_state"], atol=1e-4)
    assert np.abs(hidden - model(images)["hidden"]).max() > 0.1
    none = model([images, np.zeros_like(masked)])["hidden"]
    np.testing.assert_allclose(none, arrays["last_hidden_state"], atol=1e-4)
    with pytest.raises(
        ValueError, match=r"expected masked of shape \(2, 4, 4\).*received \(2, 3, 4\)"
    ):
        model([images, masked[:, 1:]])
    # other sizes of images have other numbers of patches
    large = arrays["large_images"]
    assert model([large, np.ones((2, 3, 6), bool)])["hidden"].shape[1] >= 19


@pytest.mark.exhaustive
def test_a_checkpoint_without_mask_token_takes_images_alone():
    model = fk.pretrained.load(DATA / "dinov2_classifier").model
    assert [name for name in model.layers if name in ("masked", "mask_token")] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", encoder_checks.rows(FIRST, ["vit_classifier", "dinov2", "dinov2_registers"])
)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    encoder_checks.is_written_back(name, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(["vit", "dinov2"], ["dinov2"]))
def test_pixels_equal_those_of_transformers(name):
    arrays = expected(name)
    loaded = fk.pretrained.load(DATA / name)
    pixels = loaded.processor(arrays["picture"])
    np.testing.assert_allclose(pixels[0], arrays["pixels"], atol=1e-6)
    assert loaded.model(pixels)["hidden"].shape == (1, 17, 24)


@pytest.mark.exhaustive
def test_images_of_deit_give_the_numbers_of_transformers(tmp_path):
    computes_the_base("deit", tmp_path)


@pytest.mark.exhaustive
def test_a_folder_without_preprocessor_has_no_processor():
    assert fk.pretrained.load(DATA / "vit_classifier").processor is None


@pytest.mark.parametrize("content", [[], {"image_processor_type": "SamImageProcessor"}])
def test_a_wrong_preprocessor_is_an_error_of_the_folder(content, tmp_path):
    folder = encoder_checks.renamed("vit", tmp_path, lambda name: name)
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match="preprocessor_config.json"):
        fk.pretrained.load(folder)


@pytest.mark.exhaustive
def test_names_with_and_without_the_first_segment(tmp_path):
    folder = encoder_checks.renamed("siglip_vision", tmp_path, lambda name: f"vision_model.{name}")
    arrays = expected("siglip_vision")
    pooled = fk.pretrained.load(folder).model(arrays["images"])["pooled"]
    np.testing.assert_allclose(pooled, arrays["pooler_output"], atol=1e-4)


def test_images_of_other_channels_are_rejected():
    model = fk.pretrained.load(DATA / "vit").model
    with pytest.raises(fk.FKerasError, match="images"):
        model(np.ones((1, 20, 20, 4), "float32"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"image_size": 30}, "of another shape"),
        ({"image_size": [20]}, "image_size"),
        ({"patch_size": 0}, "patch_size"),
        ({"qkv_bias": True}, "missing in the file"),
        ({"hidden_act": "step"}, "hidden_act"),
        ({"pooler_output_size": 19}, "of another shape"),
        ({"num_register_tokens": 4}, "num_register_tokens"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message, tmp_path):
    folder = encoder_checks.renamed("vit", tmp_path, lambda name: name, keys)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "family",
    [vit.VIT, vit.DEIT, dinov2.DINOV2, dinov2.DINOV2_REGISTERS, vit.SIGLIP_VISION],
    ids=lambda f: f.prefix,
)
def test_a_new_model_is_written_and_opened(family, tmp_path):
    model = fk.pretrained.build(family.tiny).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, family.tiny)
    images = np.random.default_rng(0).normal(size=(1, 20, 20, 3)).astype("float32")
    again = fk.pretrained.load(tmp_path).model(images)
    jax.tree.map(np.testing.assert_array_equal, again, model(images))

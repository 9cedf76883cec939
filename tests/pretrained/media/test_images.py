"""`ImageProcessor`: steps, keys of preprocessor_config.json, errors."""

import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.media.images import ImageProcessor, resampling_weights, resized

CONVNEXT = {"image_processor_type": "ConvNextImageProcessor", "size": 224}
CLIP = {"image_processor_type": "CLIPImageProcessor"}
# Pillow 11.3.0: Image.fromarray(PICTURE).resize((3, 7), filter), bytes of the first channel
PICTURE = np.stack([(37 * np.arange(40).reshape(8, 5) ** 2) % 251] * 3, -1).astype("uint8")
PILLOW = {
    1: [
        [21, 103, 95],
        [161, 62, 213],
        [160, 165, 171],
        [109, 138, 171],
        [102, 98, 244],
        [150, 195, 124],
        [92, 174, 127],
    ],
    2: [
        [35, 103, 103],
        [149, 88, 194],
        [160, 144, 182],
        [121, 135, 175],
        [108, 121, 215],
        [145, 180, 139],
        [101, 169, 122],
    ],
    3: [
        [25, 105, 97],
        [153, 73, 201],
        [163, 153, 180],
        [115, 136, 172],
        [102, 110, 229],
        [150, 190, 131],
        [95, 172, 123],
    ],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("resample", [1, 2, 3])
def test_resizing_equals_that_of_pillow(resample):
    assert resized(PICTURE, (7, 3), resample)[..., 0].tolist() == PILLOW[resample]


@pytest.mark.exhaustive
def test_an_image_of_the_right_size_is_unchanged():
    assert resized(PICTURE, (8, 5)) is not PICTURE
    np.testing.assert_array_equal(resized(PICTURE, (8, 5)), PICTURE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("resample", [1, 2, 3])
@pytest.mark.parametrize(("old", "new"), [(1, 3), (9, 4), (4, 9)])
def test_weights_of_a_pixel_sum_to_one(resample, old, new):
    np.testing.assert_allclose(resampling_weights(old, new, resample).sum(1), 1, atol=1e-12)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("mapping", "processor"),
    [
        (
            {"image_processor_type": "ViTImageProcessor", "size": 9, "do_normalize": False},
            ImageProcessor((9, 9), 2),
        ),
        (
            {"feature_extractor_type": "CLIPFeatureExtractor", "size": 9, "crop_size": 8},
            ImageProcessor(9, 3, (8, 8), mean=(0.5,) * 3, std=(0.5,) * 3),
        ),
        (
            {**CLIP, "size": {"height": 9, "width": 5}, "do_center_crop": False},
            ImageProcessor((9, 5), 3, mean=(0.5,) * 3, std=(0.5,) * 3),
        ),
        (
            {**CLIP, "do_resize": False, "do_rescale": False, "do_center_crop": None},
            ImageProcessor(None, 3, factor=1.0, mean=(0.5,) * 3, std=(0.5,) * 3),
        ),
        (
            {"image_processor_type": "SiglipImageProcessorFast", "rescale_factor": 0.5},
            ImageProcessor((224, 224), 3, factor=0.5, mean=(0.5,) * 3, std=(0.5,) * 3),
        ),
        (
            {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 224, "crop_pct": 0.95},
            ImageProcessor(235, 3, (224, 224), mean=(0.5,) * 3, std=(0.5,) * 3),
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "do_normalize": False},
            ImageProcessor((384, 384), 3),
        ),
    ],
)
def test_keys_of_all_versions(mapping, processor):
    assert ImageProcessor.read(mapping) == processor


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "expected one of ViTImageProcessor"),
        ([], "expected an object of JSON"),
        ({"image_processor_type": "SamImageProcessor"}, "SamImageProcessor"),
        ({**CLIP, "do_pad": True}, "unknown key 'do_pad'"),
        ({**CLIP, "size": {"longest_edge": 9}}, "expected a size"),
        ({**CLIP, "size": 0}, "expected a size"),
        ({**CLIP, "size": True}, "expected a size"),
        ({**CLIP, "size": [1, 2, 3]}, "expected a size"),
        ({**CLIP, "size": []}, "expected a size"),
        ({**CLIP, "crop_size": "big"}, "expected a size"),
        ({**CLIP, "resample": 0}, "1, 2 or 3"),
        ({**CLIP, "resample": [3]}, "1, 2 or 3"),
        ({**CLIP, "image_mean": 0.5}, "image_mean"),
        ({**CLIP, "image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ({**CLIP, "image_mean": [0.5], "image_std": [0.5, 0.5]}, "one number for each channel"),
        ({**CLIP, "rescale_factor": "1/255"}, "rescale_factor"),
        ({**CLIP, "crop_pct": 0.9}, "unknown key 'crop_pct'"),
        ({**CONVNEXT, "crop_pct": 0}, "crop_pct: expected a share"),
        ({**CONVNEXT, "crop_pct": "all"}, "crop_pct: expected a number"),
        ({**CONVNEXT, "do_center_crop": True}, "no do_center_crop"),
        ({**CONVNEXT, "size": {"height": 9, "width": 9}}, "expected one size"),
    ],
)
def test_a_wrong_file_is_rejected(mapping, message):
    with pytest.raises(fk.FKerasError, match=message):
        ImageProcessor.read(mapping)


def test_the_shorter_side_and_the_crop():
    process = ImageProcessor(6, 2, (4, 4), factor=1.0)
    wide = np.zeros((7, 15, 3), "uint8")
    assert process(wide).shape == (1, 4, 4, 3)
    assert ImageProcessor(6)(wide).shape == (1, 6, 12, 3)
    assert process([wide, np.zeros((9, 6, 3), "uint8")]).shape == (2, 4, 4, 3)


@pytest.mark.exhaustive
def test_pixels_are_normalized_by_channel():
    process = ImageProcessor(None, factor=0.01, mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    pixels = process(np.full((1, 1, 3), 100, "uint8"))
    np.testing.assert_allclose(pixels[0, 0, 0], [1.0, 1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 4, 3)), "np.uint8"),
        (np.zeros((4, 4), "uint8"), r"shape \(h, w, 3\)"),
        (np.zeros((4, 4, 1), "uint8"), "np.repeat"),
        (np.zeros((2, 2, 3), "uint8"), "at least the crop"),
        (np.zeros((0, 4, 3), "uint8"), "at least one pixel"),
        ([], "at least one image"),
    ],
)
def test_wrong_images_are_rejected(images, message):
    with pytest.raises(fk.FKerasError, match=message):
        ImageProcessor(None, crop=(3, 3))(images)


def test_images_of_several_sizes_need_a_crop():
    images = [np.zeros((4, 4, 3), "uint8"), np.zeros((4, 5, 3), "uint8")]
    with pytest.raises(fk.FKerasError, match="one size after the steps"):
        ImageProcessor(None)(images)

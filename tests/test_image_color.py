"""Layers of colours, histograms and mixtures of images: Keras's numbers, draws, edges, departures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.layers.image.base import ImageShape
from tests.cases.image_color import CASES
from tests.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
UNIT = (0, 1)


def _images(shape=(3, 4, 5, 3), seed=0):
    return np.random.default_rng(seed).random(shape).astype("float32")


def _first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _draw(layer, shape=(3, 4, 5, 3), key=KEY):
    return layer.draw(key, ImageShape(*shape))


def _keras(layer):
    with keras_rules():
        return keras.layers.deserialize(layers.serialize(layer))


def _theirs(made, images, transformation):
    with keras_rules():
        return np.asarray(made.transform_images(jnp.asarray(images), transformation, training=True))


def _train(layer, x, key=KEY):
    return layer(x, training=True, key=key)


def _grey_ramp(channels=1):
    return jnp.broadcast_to(jnp.arange(20.0).reshape(1, 4, 5, 1), (1, 4, 5, channels))


@pytest.mark.parametrize("layer", [case.layer for case in CASES], ids=repr)
def test_keras_reads_the_configuration_and_writes_an_equal_layer(layer):
    again = layers.deserialize(keras.layers.serialize(_keras(layer)))
    assert again.replace(name=None) == layer


@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomBrightness(0.4, UNIT),
        layers.RandomContrast(0.5, UNIT),
        layers.RandomHue(0.9, UNIT),
        layers.RandomSaturation((0.3, 0.6), UNIT),
        layers.RandomColorDegeneration(0.8, UNIT),
        layers.RandomGrayscale(0.5),
        layers.RandomInvert((0.5, 1.0), UNIT),
        layers.Solarization(0.4, 0.7, UNIT),
        layers.RandomPosterization((1, 6), UNIT),
        layers.RandomSharpness(1.0, UNIT),
        layers.RandomErasing((0.8, 1.0), (0.3, 0.8), None, UNIT),
        layers.RandomErasing((1, 1), (0.3, 0.8), (0.1, 0.2, 0.3), UNIT),
        layers.MixUp(1.0),
        layers.CutMix(),
    ],
    ids=repr,
)
def test_images_are_those_of_keras_for_the_same_draw(layer):
    images, drawn = _images(), _draw(layer)
    ours = jax.jit(layer.transform_images)(images, drawn)
    theirs = _theirs(_keras(layer), images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert np.abs(theirs - images).max() > 1e-3
    # the same with the channels first, where Keras has several other axes wrong
    moved = jax.tree.map(lambda v: _first(v) if v.ndim == 4 else v, drawn)
    ours = jax.jit(layer.replace(data_format="channels_first").transform_images)
    np.testing.assert_allclose(ours(_first(images), moved), _first(theirs), rtol=1e-5, atol=1e-5)


def test_blur_is_that_of_keras_with_draws_for_each_image():
    layer = layers.RandomGaussianBlur((0.6, 1.0), (3, 5), (0.2, 1.0), UNIT)
    drawn, images = _draw(layer), _images()
    ours = layer.transform_images(jnp.asarray(images), drawn)
    for i in range(3):
        one = {
            "should_apply_blur": drawn["should_apply_blur"][i : i + 1],
            "blur_factor": drawn["blur_factor"][i],
        }
        theirs = _theirs(_keras(layer), images[i : i + 1], one)
        np.testing.assert_allclose(ours[i : i + 1], theirs, rtol=1e-5, atol=1e-5)
    assert len(np.unique(drawn["blur_factor"])) == 6


def test_histograms_are_those_of_keras():
    images = np.round(_images((1, 9, 8, 2)) * 200 + 20).astype("float32")
    for layer in (
        layers.AutoContrast(),
        layers.Equalization(bins=16),
        layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 3)),
        layers.ContrastLimitedAdaptiveHistogramEqualization(clip_limit=0.0),
    ):
        theirs = _theirs(_keras(layer), images, None)
        np.testing.assert_allclose(jax.jit(layer.__call__)(images), theirs, rtol=1e-5, atol=1e-4)
    levels = images.astype("uint8")
    assert layers.ContrastLimitedAdaptiveHistogramEqualization()(levels).dtype == jnp.uint8


def test_jitter_is_the_sequence_of_keras():
    layer = layers.RandomColorJitter(UNIT, 0.2, (0.3, 0.4), (0.3, 0.6), 0.5)
    drawn, images = _draw(layer), _images()
    theirs, made = images, _keras(layer)
    for name in ("brightness", "contrast", "saturation", "hue"):
        theirs = _theirs(getattr(made, f"random_{name}"), theirs, drawn[name])
    np.testing.assert_allclose(
        layer.transform_images(jnp.asarray(images), drawn), theirs, rtol=1e-5, atol=1e-5
    )
    first = layer.replace(data_format="channels_first")
    moved = first.transform_images(jnp.asarray(_first(images)), drawn)
    np.testing.assert_allclose(moved, _first(theirs), rtol=1e-5, atol=1e-5)


def test_rand_augment_applies_its_operations_in_order_to_images_masks_and_boxes():
    layer = layers.RandAugment(UNIT, 2, bounding_box_format="xyxy", interpolation="nearest")
    drawn, shape, images = _draw(layer), ImageShape(3, 4, 5, 3), jnp.asarray(_images())
    indices = np.array([[2, 6, 9], [0, 10, 7]])
    drawn["layer_idxes"] = jnp.asarray(indices)
    boxes = {"boxes": jnp.array([[[1.0, 1.0, 3.0, 4.0]]] * 3), "labels": jnp.array([[7]] * 3)}
    masks = jnp.arange(60).reshape(3, 4, 5, 1)
    ours = jax.jit(
        lambda: (
            layer.transform_images(images, drawn),
            layer.transform_segmentation_masks(masks, drawn),
            layer.transform_bounding_boxes(boxes, drawn, shape),
        )
    )()
    assert ours[1].dtype == masks.dtype
    operations = layer.operations()
    assert [name for name, _ in operations] == keras.layers.RandAugment._AUGMENT_LAYERS
    for image in range(3):
        expected = (images, masks, boxes)
        for index in indices[:, image]:
            name, operation = operations[index]
            part = drawn["transforms"][name]
            expected = (
                operation.transform_images(expected[0], part),
                operation.transform_segmentation_masks(expected[1], part),
                operation.transform_bounding_boxes(expected[2], part, shape),
            )
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one[image], other[image], rtol=1e-5, atol=1e-5)


def test_aug_mix_mixes_the_chains_of_keras():
    layer = layers.AugMix(UNIT, num_chains=2, chain_depth=2, all_ops=False)
    made, images = _keras(layer), _images()
    drawn = _draw(layer)
    drawn["chain_operations"] = jnp.array([[3, 7], [5, 4]])  # 7 stands for none
    names = [name for name, _ in layer.operations()]

    def at(name, *place):
        part = jax.tree.map(lambda v: v[place], drawn["chain_transforms"][name])
        return {"layer_name": name, "transformation": part}

    chains = [[at(names[3], 0, 0)], [at(names[5], 1, 0), at(names[4], 1, 1)]]
    theirs = _theirs(made, images, {**drawn, "chain_transforms": chains})
    ours = jax.jit(layer.transform_images)(images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert float(drawn["chain_mixing_weights"].sum()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="one-hot"):
        layer.transform_segmentation_masks(jnp.ones((3, 4, 5, 1), "int32"), drawn)


def test_draws_spread_over_their_ranges():
    many = (4000, 2, 2, 3)
    delta = _draw(layers.RandomBrightness((-0.2, 0.6)), many)["rgb_delta"]
    assert delta.shape == (4000, 1, 1, 1)
    np.testing.assert_allclose((delta.min(), delta.mean(), delta.max()), (-51, 51, 153), atol=3)
    contrast = _draw(layers.RandomContrast((0.2, 0.4)), many)["contrast_factor"]
    np.testing.assert_allclose((contrast.min(), contrast.max()), (0.8, 1.4), atol=0.01)
    turns = _draw(layers.RandomHue((0.5, 1.0)), many)["factor"]
    assert abs(float((turns > 0).mean()) - 0.5) < 0.05
    np.testing.assert_allclose((jnp.abs(turns).min(), turns.max()), (0.25, 0.5), atol=0.01)
    amounts = _draw(layers.RandomSaturation(0.5), many)["factor"]
    np.testing.assert_allclose((amounts.min(), amounts.max()), (0, 1), atol=0.01)
    bits = 8 - _draw(layers.RandomPosterization((2, 4)), many)["shift_factor"]
    assert set(np.unique(bits)) == {2, 3, 4}
    chosen = _draw(layers.RandomInvert((0.2, 0.4)), many)["apply_inversion"]
    assert abs(float(chosen.mean()) - 0.3) < 0.05
    assert abs(float(_draw(layers.RandomGrayscale(0.2), many).mean()) - 0.2) < 0.05
    erased = _draw(layers.RandomErasing(scale=(0.25, 0.25)), (500, 8, 8, 1))
    np.testing.assert_array_equal(erased["batch_masks"].sum(axis=(1, 2, 3)), 16)
    solar = _draw(layers.Solarization((0.5, 1.0), 1.0), many)
    np.testing.assert_allclose(
        (solar["additions"].min(), solar["thresholds"].max()), (127.5, 255), 0.02
    )
    which = _draw(layers.RandAugment(num_ops=2), (300, 2, 2, 3))["layer_idxes"]
    assert which.shape == (2, 300)
    assert set(np.unique(which)) == set(range(11))


def test_mixing_draws_permutations_and_weights():
    weights = _draw(layers.MixUp(0.2), (2000, 2, 2, 3))
    assert sorted(np.asarray(weights["permutation_order"])) == list(range(2000))
    assert abs(float(weights["mix_weight"].mean()) - 0.5) < 0.05
    assert float(jnp.var(weights["mix_weight"])) == pytest.approx(0.25 / 1.4, abs=0.02)
    np.testing.assert_array_equal(_draw(layers.MixUp(0.0))["mix_weight"], 1)
    cut = _draw(layers.CutMix((1.0, 1.0)), (2000, 8, 8, 3))
    np.testing.assert_allclose(
        cut["mix_weight"], 1 - cut["batch_masks"].mean(axis=(1, 2, 3)), rtol=1e-5
    )
    assert abs(float(cut["mix_weight"].mean()) - 0.5) < 0.05
    none = _draw(layers.CutMix(0.0))  # all or nothing, and no nan
    assert set(np.unique(none["mix_weight"])) <= {0.0, 1.0}


@pytest.mark.parametrize("layer", [c.layer for c in CASES if c.training and not c.keras], ids=repr)
def test_the_key_decides_and_inference_needs_none(layer):
    x = _images((4, 5, 6, 3)) if layer.data_format == "channels_last" else _images((4, 3, 5, 6))
    np.testing.assert_array_equal(layer(x), x)
    with pytest.raises(ValueError, match="key"):
        layer(x, training=True)
    shape = ImageShape(4, 5, 6, 3)
    one, two, other = (layer.draw(jax.random.key(i), shape) for i in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in pairs)


def test_labels_are_mixed_with_their_images():
    hot = jnp.eye(3)
    for layer in (layers.MixUp(1.0), layers.CutMix()):
        images = jnp.broadcast_to(hot[:, None, None, :], (3, 8, 8, 3))
        data = {"images": images, "labels": hot, "segmentation_masks": images, "id": hot}
        out = _train(layer, data)
        np.testing.assert_allclose(out["images"].mean(axis=(1, 2)), out["labels"], atol=1e-6)
        np.testing.assert_allclose(out["segmentation_masks"], out["images"], atol=1e-6)
        np.testing.assert_array_equal(out["id"], hot)
        ints = _train(layer, {"images": images, "labels": jnp.eye(3, dtype="int32")})
        np.testing.assert_allclose(ints["labels"], out["labels"], atol=1e-6)
        amounts = _train(layer, {"images": images, "labels": jnp.arange(3.0)})["labels"]
        np.testing.assert_allclose(amounts, out["labels"] @ jnp.arange(3.0), atol=1e-6)
        for ids in (jnp.arange(3), jnp.arange(3)[:, None]):
            with pytest.raises(ValueError, match="one-hot"):
                _train(layer, {"images": images, "labels": ids})


def test_boxes_of_both_images_are_kept_by_mix_up_and_refused_by_cut_mix():
    boxes = {"boxes": jnp.arange(24.0).reshape(3, 2, 4), "labels": jnp.arange(6).reshape(3, 2)}
    data = {"images": _images(), "bounding_boxes": boxes}
    out = _train(layers.MixUp(), data)["bounding_boxes"]
    assert out["boxes"].shape == (3, 4, 4)
    # Keras joins labels along the batch, where they no longer fit the boxes
    np.testing.assert_array_equal(out["labels"] * 4, out["boxes"][..., 0] // 1)
    with pytest.raises(ValueError, match="CutMix: expected images and labels"):
        _train(layers.CutMix(), data)


def test_departures_from_keras():
    # one number: Keras's code disagrees with its documentation
    assert layers.RandomContrast(0.3).factor == (0.3, 0.3)
    assert _keras(layers.RandomContrast(0.3)).factor == (0.3, 0.3)
    assert keras.layers.RandomContrast(0.3).factor == (0, 0.3)
    assert layers.RandomSaturation(0.3).factor == (0, 0.3)
    assert keras.layers.RandomSaturation(0.3).factor == (-0.3, 0.3)
    assert layers.RandomColorDegeneration(0.3).factor == (0, 0.3)
    written = keras.layers.serialize(keras.layers.RandomSaturation(0.3))
    assert layers.deserialize(written).factor == (-0.3, 0.3)
    # pure colours are the most that saturation reaches
    x = _images((1, 3, 3, 3)) * 255
    pure = _train(layers.RandomSaturation((0.99, 0.99)), x)
    assert float(pure.min()) >= 0
    assert _theirs(_keras(layers.RandomSaturation(0.5)), x, {"factor": jnp.array([99.0])}).min() < 0
    # negatives stay in a range that does not start from 0
    negative = _train(layers.RandomInvert((1, 1), (-1, 1)), x / 255)
    np.testing.assert_allclose(negative, -x / 255, atol=1e-6)
    # each image of a batch is equalized alone, in inference too
    ramps = jnp.concatenate((_grey_ramp(), _grey_ramp() + 100))
    both = layers.Equalization()(ramps)
    np.testing.assert_array_equal(both[0], both[1])
    # the axes of images with the channels first
    x = _images((2, 3, 4, 5))
    stretched = layers.AutoContrast(UNIT, data_format="channels_first")(x)
    np.testing.assert_allclose(stretched.max(axis=(2, 3)), 1, rtol=1e-5)


def test_constant_images_bytes_and_half_precision():
    flat = jnp.full((2, 4, 4, 3), 100, "uint8")
    for layer in (layers.AutoContrast(), layers.Equalization()):
        np.testing.assert_array_equal(layer(flat), 100.0)
        half = layer.replace(dtype="mixed_bfloat16")
        assert jax.eval_shape(half.__call__, flat).dtype == jnp.bfloat16

        def total(x, layer=layer):
            return layer(x).sum()

        assert bool(jnp.isfinite(jax.grad(total)(flat.astype("float32"))).all())
    clahe = layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
    for limit in (0.0, 4.0):
        assert bool(jnp.isfinite(clahe.replace(clip_limit=limit)(flat.astype("float32"))).all())
    out = _train(layers.RandomBrightness((0.1, 0.1)), flat)
    np.testing.assert_allclose(out, 125.5)


@pytest.mark.parametrize("value", [0.0, 100.0])
def test_gradients_at_black_and_grey_pixels_are_finite(value):
    x = jnp.full((1, 2, 2, 3), value)
    for layer in (
        layers.RandomHue((0.5, 0.5)),
        layers.RandomSaturation((0.9, 1.0)),
        layers.RandomContrast(0.5),
        layers.RandomSharpness((1, 1)),
        layers.RandomGaussianBlur((1, 1), sigma=(0.0, 0.0)),
    ):
        out, slope = jax.value_and_grad(lambda x, layer=layer: _train(layer, x).sum())(x)
        assert bool(jnp.isfinite(slope).all()), layer
        assert float(out) == pytest.approx(float(x.sum()), rel=0.5)


def test_factor_zero_changes_nothing():
    x = _images((2, 4, 4, 3)) * 255
    for layer in (
        layers.RandomBrightness(0),
        layers.RandomContrast(0),
        layers.RandomHue(0),
        layers.RandomSaturation((0.5, 0.5)),
        layers.RandomColorDegeneration(0),
        layers.RandomGrayscale(0),
        layers.RandomColorJitter((0, 255)),
        layers.RandomInvert(0),
        layers.RandomGaussianBlur(0),
        layers.RandomSharpness((0.5, 0.5)),
        layers.RandomErasing(0),
        layers.MixUp(0),
    ):
        np.testing.assert_allclose(_train(layer, x), x, rtol=1e-5, atol=1e-3, err_msg=repr(layer))


def test_one_channel_is_taken_where_colour_is_not_needed():
    grey = _images((2, 4, 4, 1)) * 255
    for layer in (
        layers.RandomGrayscale(1.0),
        layers.RandomColorDegeneration((1, 1)),
        layers.MixUp(0),
    ):
        np.testing.assert_array_equal(_train(layer, grey), grey)
    for layer in (layers.RandomHue(0.5), layers.RandomSaturation(0.5)):
        with pytest.raises(ValueError, match="expected 3 channels on axis 3, received 1"):
            _train(layer, grey)
    with pytest.raises(ValueError, match="RandomErasing: expected images of 3 channels"):
        _train(layers.RandomErasing((1, 1), fill_value=(1, 2, 3)), grey)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.RandomBrightness(1.5), "RandomBrightness: factor: expected a number from"),
        (lambda: layers.RandomContrast((0.1, 2)), "RandomContrast: factor"),
        (lambda: layers.RandomSaturation(-0.1), "RandomSaturation: factor"),
        (lambda: layers.RandomPosterization(9), "bits from 1 to 8"),
        (lambda: layers.RandomPosterization(2.5), "bits from 1 to 8"),
        (lambda: layers.RandomGaussianBlur(kernel_size=4), "odd numbers"),
        (lambda: layers.AutoContrast((5, 5)), "lowest and the highest"),
        (lambda: layers.AutoContrast(255), "lowest and the highest"),
        (lambda: layers.RandomErasing(fill_value=(1, 2)), "three of them"),
        (lambda: layers.RandomColorJitter(hue_factor=2), "RandomHue: factor"),
        (lambda: layers.MixUp(-1), "MixUp: alpha"),
        (lambda: layers.AugMix(alpha=0), "AugMix: alpha"),
        (lambda: layers.AugMix(interpolation="cubic"), "AugMix: interpolation"),
        (lambda: layers.RandAugment(num_ops=0), "RandAugment: num_ops"),
        (lambda: layers.Equalization(bins=0), "Equalization: bins"),
        (
            lambda: layers.ContrastLimitedAdaptiveHistogramEqualization(clip_limit=None),
            "clip_limit: expected a number",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_chain_of_layers_records_and_runs():
    x = fk.Input((4, 4, 3))
    y = layers.MixUp()(layers.RandomColorJitter((0, 255), 0.1)(layers.AutoContrast()(x)))
    assert y.shape == (None, 4, 4, 3)

"""Layers of colors and histograms: Keras's numbers, draws, edges, differences from Keras.

Each test computes in one compiled program, or reuses the draws of another test.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.layers.image.common.base import ImageShape
from tests.cases import marked
from tests.cases.image_color import CASES
from tests.support.image_draws import (
    SHAPE,
    UNIT,
    by_keras,
    channels_first,
    compiled,
    drawing,
    fresh_draw,
    oracle,
    pictures,
    trained,
)
from tests.support.keras_oracle import keras, keras_rules


@pytest.mark.one_in(3)
@pytest.mark.parametrize("layer", [case.layer for case in CASES], ids=repr)
def test_keras_reads_the_configuration_and_writes_an_equal_layer(layer):
    again = layers.deserialize(keras.layers.serialize(oracle(layer)))
    assert again.replace(name=None) == layer


@pytest.mark.exhaustive
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
def test_images_match_keras_for_the_same_draw(layer):
    images, reference = pictures(), oracle(layer)
    drawn = fresh_draw(layer)
    first = layer.replace(data_format="channels_first")
    moved_draws = jax.tree.map(lambda v: channels_first(v) if v.ndim == 4 else v, drawn)
    ours, theirs, ours_first = compiled(
        lambda x, y, d, m: (
            layer.transform_images(x, d),
            by_keras(reference, x, d),
            first.transform_images(y, m),
        ),
        images,
        channels_first(images),
        drawn,
        moved_draws,
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert np.abs(theirs - images).max() > 1e-3
    # the same for channels first, where Keras uses wrong axes in several layers
    np.testing.assert_allclose(ours_first, channels_first(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_blur_matches_keras_with_draws_for_each_image():
    layer = layers.RandomGaussianBlur((0.6, 1.0), (3, 5), (0.2, 1.0), UNIT)
    drawn, images, reference = fresh_draw(layer), pictures(), oracle(layer)

    def compute(images, drawn):
        theirs = []
        for i in range(3):
            image_draw = {
                "should_apply_blur": drawn["should_apply_blur"][i : i + 1],
                "blur_factor": drawn["blur_factor"][i],
            }
            theirs.append(by_keras(reference, images[i : i + 1], image_draw)[0])
        return layer.transform_images(images, drawn), theirs

    ours, theirs = compiled(compute, images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert len(np.unique(drawn["blur_factor"])) == 6


@pytest.mark.exhaustive
def test_histograms_match_keras():
    images = np.round(pictures((1, 9, 8, 2)) * 200 + 20).astype("float32")
    for layer in (
        layers.AutoContrast(),
        layers.Equalization(bins=16),
        layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 3)),
        layers.ContrastLimitedAdaptiveHistogramEqualization(clip_limit=0.0),
    ):
        reference = oracle(layer)
        ours, theirs = compiled(lambda x: (layer(x), by_keras(reference, x, None)), images)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)
    levels = images.astype("uint8")
    clahe = layers.ContrastLimitedAdaptiveHistogramEqualization()
    assert jax.eval_shape(clahe.__call__, levels).dtype == jnp.uint8


@pytest.mark.exhaustive
def test_jitter_is_the_sequence_of_keras():
    layer = layers.RandomColorJitter(UNIT, 0.2, (0.3, 0.4), (0.3, 0.6), 0.5)
    drawn, images, reference = fresh_draw(layer), pictures(), oracle(layer)
    first = layer.replace(data_format="channels_first")

    def compute(images, images_first, drawn):
        return layer.transform_images(images, drawn), first.transform_images(images_first, drawn)

    ours, ours_first = compiled(compute, images, channels_first(images), drawn)
    theirs = images
    # one program per step: Keras's hue selects the color that equals the maximum, and a program
    # that computes colors twice may round them differently
    for name in ("brightness", "contrast", "saturation", "hue"):
        step = getattr(reference, f"random_{name}")
        theirs = compiled(lambda x, d, step=step: by_keras(step, x, d), theirs, drawn[name])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours_first, channels_first(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_draws_spread_over_their_ranges():
    batch_shape = (4000, 2, 2, 3)

    def drawn(key):
        def draw(layer, shape=batch_shape):
            return layer.draw(key, ImageShape(*shape))

        return {
            "delta": draw(layers.RandomBrightness((-0.2, 0.6)))["rgb_delta"],
            "contrast": draw(layers.RandomContrast((0.2, 0.4)))["contrast_factor"],
            "turns": draw(layers.RandomHue((0.5, 1.0)))["factor"],
            "amounts": draw(layers.RandomSaturation(0.5))["factor"],
            "bits": 8 - draw(layers.RandomPosterization((2, 4)))["shift_factor"],
            "chosen": draw(layers.RandomInvert((0.2, 0.4)))["apply_inversion"],
            "grey": draw(layers.RandomGrayscale(0.2)),
            "erased": draw(layers.RandomErasing(scale=(0.25, 0.25)), (500, 8, 8, 1)),
            "solar": draw(layers.Solarization((0.5, 1.0), 1.0)),
            "which": draw(layers.RandAugment(num_ops=2), (300, 2, 2, 3))["layer_idxes"],
        }

    draws = compiled(drawn, jax.random.key(3))
    delta = draws["delta"]
    assert delta.shape == (4000, 1, 1, 1)
    np.testing.assert_allclose((delta.min(), delta.mean(), delta.max()), (-51, 51, 153), atol=3)
    contrast = draws["contrast"]
    np.testing.assert_allclose((contrast.min(), contrast.max()), (0.8, 1.4), atol=0.01)
    turns = draws["turns"]
    assert abs(float((turns > 0).mean()) - 0.5) < 0.05
    np.testing.assert_allclose((np.abs(turns).min(), turns.max()), (0.25, 0.5), atol=0.01)
    amounts = draws["amounts"]
    np.testing.assert_allclose((amounts.min(), amounts.max()), (0, 1), atol=0.01)
    assert set(np.unique(draws["bits"])) == {2, 3, 4}
    assert abs(float(draws["chosen"].mean()) - 0.3) < 0.05
    assert abs(float(draws["grey"].mean()) - 0.2) < 0.05
    np.testing.assert_array_equal(draws["erased"]["batch_masks"].sum(axis=(1, 2, 3)), 16)
    solar = draws["solar"]
    np.testing.assert_allclose(
        (solar["additions"].min(), solar["thresholds"].max()), (127.5, 255), 0.02
    )
    which = draws["which"]
    assert which.shape == (2, 300)
    assert set(np.unique(which)) == set(range(11))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer", marked((c for c in CASES if c.training and not c.keras), lambda c: c.layer), ids=repr
)
def test_the_key_determines_draws_and_inference_needs_no_key(layer):
    x = pictures() if layer.data_format == "channels_last" else channels_first(pictures())
    np.testing.assert_array_equal(layer(x), x)
    with pytest.raises(ValueError, match="key"):
        layer(x, training=True)
    draw = drawing(layer, SHAPE)
    draws, same_draws, other_draws = (jax.device_get(draw(seed)) for seed in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(draws), jax.tree.leaves(same_draws), strict=True):
        np.testing.assert_array_equal(a, b)
    pairs = zip(jax.tree.leaves(draws), jax.tree.leaves(other_draws), strict=True)
    assert any((a != b).any() for a, b in pairs)


@pytest.mark.exhaustive
def test_deliberate_differences_from_keras():
    # one number: Keras's code disagrees with its documentation
    assert layers.RandomContrast(0.3).factor == (0.3, 0.3)
    assert oracle(layers.RandomContrast(0.3)).factor == (0.3, 0.3)
    assert keras.layers.RandomContrast(0.3).factor == (0, 0.3)
    assert layers.RandomSaturation(0.3).factor == (0, 0.3)
    assert keras.layers.RandomSaturation(0.3).factor == (-0.3, 0.3)
    assert layers.RandomColorDegeneration(0.3).factor == (0, 0.3)
    config = keras.layers.serialize(keras.layers.RandomSaturation(0.3))
    assert layers.deserialize(config).factor == (-0.3, 0.3)
    x, reference = pictures((1, 4, 5, 3)) * 255, oracle(layers.RandomSaturation(0.5))
    ramp = np.arange(20, dtype="float32").reshape(1, 4, 5, 1)

    def computed(x, images_first, ramps):
        return (
            trained(layers.RandomSaturation((0.99, 0.99)), x),
            by_keras(reference, x, {"factor": jnp.array([99.0])}),
            trained(layers.RandomInvert((1, 1), (-1, 1)), x / 255),
            layers.Equalization()(ramps),
            layers.AutoContrast(UNIT, data_format="channels_first")(images_first),
        )

    pure, theirs, negative, equalized, stretched = compiled(
        computed, x, pictures((2, 3, 4, 5)), np.concatenate((ramp, ramp + 100))
    )
    # pure colours are the most that saturation reaches
    assert float(pure.min()) >= 0
    assert theirs.min() < 0
    # negatives stay in a range that does not start from 0
    np.testing.assert_allclose(negative, -x / 255, atol=1e-6)
    # each image of a batch is equalized alone, in inference too
    np.testing.assert_array_equal(equalized[0], equalized[1])
    # the axes of images with the channels first
    np.testing.assert_allclose(stretched.max(axis=(2, 3)), 1, rtol=1e-5)


@pytest.mark.exhaustive
def test_constant_images_bytes_and_half_precision():
    flat = np.full((2, 4, 4, 3), 100, "uint8")
    levelling = layers.AutoContrast(), layers.Equalization()
    clahe = layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
    brighter = layers.RandomBrightness((0.1, 0.1))

    def computed(flat):
        images = flat.astype("float32")
        return (
            [layer(flat) for layer in levelling],
            [jax.grad(lambda x, layer=layer: layer(x).sum())(images) for layer in levelling],
            [clahe.replace(clip_limit=limit)(images) for limit in (0.0, 4.0)],
            trained(brighter, flat),
        )

    results, slopes, tiles, out = compiled(computed, flat)
    for layer, result in zip(levelling, results, strict=True):
        np.testing.assert_array_equal(result, 100.0)
        half = layer.replace(dtype="mixed_bfloat16")
        assert jax.eval_shape(half.__call__, flat).dtype == jnp.bfloat16
    assert np.isfinite(slopes).all()
    assert np.isfinite(tiles).all()
    np.testing.assert_allclose(out, 125.5)


@jax.jit
def _sums_and_slopes(x):
    return [
        jax.value_and_grad(lambda x, layer=layer: trained(layer, x).sum())(x)
        for layer in (
            layers.RandomHue((0.5, 0.5)),
            layers.RandomSaturation((0.9, 1.0)),
            layers.RandomContrast(0.5),
            layers.RandomSharpness((1, 1)),
            layers.RandomGaussianBlur((1, 1), sigma=(0.0, 0.0)),
        )
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", [0.0, 100.0])
def test_gradients_at_black_and_grey_pixels_are_finite(value):
    x = np.full((1, 2, 2, 3), value, "float32")
    for out, slope in jax.device_get(_sums_and_slopes(x)):
        assert np.isfinite(slope).all()
        assert float(out) == pytest.approx(float(x.sum()), rel=0.5)


@pytest.mark.exhaustive
def test_factor_zero_changes_nothing():
    x = pictures((2, 4, 4, 3)) * 255
    idle = (
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
    )
    results = compiled(lambda x: [trained(layer, x) for layer in idle], x)
    for layer, result in zip(idle, results, strict=True):
        np.testing.assert_allclose(result, x, rtol=1e-5, atol=1e-3, err_msg=repr(layer))


def test_layers_without_color_accept_one_channel():
    grey = pictures((2, 4, 4, 1)) * 255
    idle = layers.RandomGrayscale(1.0), layers.RandomColorDegeneration((1, 1)), layers.MixUp(0)
    for result in compiled(lambda x: [trained(layer, x) for layer in idle], grey):
        np.testing.assert_array_equal(result, grey)
    for layer in (layers.RandomHue(0.5), layers.RandomSaturation(0.5)):
        with pytest.raises(ValueError, match="expected 3 channels on axis 3, received 1"):
            jax.eval_shape(lambda x, layer=layer: trained(layer, x), grey)
    with pytest.raises(ValueError, match="RandomErasing: expected images of 3 channels"):
        jax.eval_shape(
            lambda x: trained(layers.RandomErasing((1, 1), fill_value=(1, 2, 3)), x), grey
        )


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
        (lambda: layers.RandomErasing(fill_value=(1, 2)), "three numbers"),
        (lambda: layers.RandomColorJitter(hue_factor=2), "RandomColorJitter: hue_factor: expected"),
        (lambda: layers.MixUp(-1), "MixUp: alpha"),
        (lambda: layers.AugMix(alpha=0), "AugMix: alpha"),
        (lambda: layers.AugMix(interpolation="cubic"), "AugMix: interpolation"),
        (lambda: layers.RandAugment(num_ops=0), "RandAugment: num_ops"),
        (lambda: layers.Equalization(bins=0), "Equalization: bins"),
        (
            lambda: layers.ContrastLimitedAdaptiveHistogramEqualization(clip_limit=None),
            "clip_limit: expected a finite number",
        ),
    ],
)
def test_bad_arguments_are_reported(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_chain_of_layers_records_and_runs():
    x = fk.Input((4, 4, 3))
    y = layers.MixUp()(layers.RandomColorJitter((0, 255), 0.1)(layers.AutoContrast()(x)))
    assert y.shape == (None, 4, 4, 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["RandomHue", "RandomContrast", "RandomInvert"])
def test_colors_of_integers_are_floats_in_every_call(name):
    """Keras returns the integers in inference, but floats in training and on symbolic inputs."""
    x = np.full((1, 4, 4, 3), 7, "uint8")
    layer = getattr(layers, name)(0.2)
    trained = layer.apply(x, training=True, key=jax.random.key(0)).value
    symbolic = layer(fk.Input((4, 4, 3), dtype="uint8"))
    assert layer(x).dtype == trained.dtype == symbolic.dtype == "float32"
    np.testing.assert_array_equal(layer(x), x.astype("float32"))
    with keras_rules():
        assert getattr(keras.layers, name)(0.2)(x, training=False).dtype == "uint8"

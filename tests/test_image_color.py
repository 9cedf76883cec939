"""Layers of colours, histograms and mixtures of images: Keras's numbers, draws, edges, departures.

Each test computes in one compiled program, or takes the draws that another one has made.
"""

import functools

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
SHAPE = ImageShape(3, 4, 5, 3)


def _images(shape=SHAPE, seed=0):
    return np.random.default_rng(seed).random(shape).astype("float32")


def _first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _compiled(function, *args):
    """The numbers of a function, as one program."""
    return jax.device_get(jax.jit(function)(*args))


@functools.cache
def _drawing(layer, shape):
    draw = functools.partial(layer.draw, shape=ImageShape(*shape))
    # eagerly, these take the programs of their distributions from one another
    kinds = layers.MixUp | layers.CutMix | layers.AugMix | layers.RandAugment
    return draw if isinstance(layer, kinds) else jax.jit(draw)


@functools.cache
def _drawn(layer, shape, seed):
    return jax.device_get(_drawing(layer, shape)(jax.random.key(seed)))


def _draw(layer, shape=SHAPE, seed=3):
    return jax.tree.map(lambda v: v, _drawn(layer, shape, seed))  # dictionaries of their own


def _keras(layer):
    with keras_rules():
        return keras.layers.deserialize(layers.serialize(layer))


def _theirs(made, images, transformation):
    with keras_rules():
        return made.transform_images(jnp.asarray(images), transformation, training=True)


def _train(layer, x, key=KEY):
    return layer(x, training=True, key=key)


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
    images, made = _images(), _keras(layer)
    drawn = _draw(layer)
    first = layer.replace(data_format="channels_first")
    moved = jax.tree.map(lambda v: _first(v) if v.ndim == 4 else v, drawn)
    ours, theirs, turned = _compiled(
        lambda x, y, d, m: (
            layer.transform_images(x, d),
            _theirs(made, x, d),
            first.transform_images(y, m),
        ),
        images,
        _first(images),
        drawn,
        moved,
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert np.abs(theirs - images).max() > 1e-3
    # the same with the channels first, where Keras has several other axes wrong
    np.testing.assert_allclose(turned, _first(theirs), rtol=1e-5, atol=1e-5)


def test_blur_is_that_of_keras_with_draws_for_each_image():
    layer = layers.RandomGaussianBlur((0.6, 1.0), (3, 5), (0.2, 1.0), UNIT)
    drawn, images, made = _draw(layer), _images(), _keras(layer)

    def both(images, drawn):
        theirs = []
        for i in range(3):
            one = {
                "should_apply_blur": drawn["should_apply_blur"][i : i + 1],
                "blur_factor": drawn["blur_factor"][i],
            }
            theirs.append(_theirs(made, images[i : i + 1], one)[0])
        return layer.transform_images(images, drawn), theirs

    ours, theirs = _compiled(both, images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert len(np.unique(drawn["blur_factor"])) == 6


def test_histograms_are_those_of_keras():
    images = np.round(_images((1, 9, 8, 2)) * 200 + 20).astype("float32")
    for layer in (
        layers.AutoContrast(),
        layers.Equalization(bins=16),
        layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 3)),
        layers.ContrastLimitedAdaptiveHistogramEqualization(clip_limit=0.0),
    ):
        made = _keras(layer)
        ours, theirs = _compiled(lambda x: (layer(x), _theirs(made, x, None)), images)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)
    levels = images.astype("uint8")
    whole = layers.ContrastLimitedAdaptiveHistogramEqualization()
    assert jax.eval_shape(whole.__call__, levels).dtype == jnp.uint8


def test_jitter_is_the_sequence_of_keras():
    layer = layers.RandomColorJitter(UNIT, 0.2, (0.3, 0.4), (0.3, 0.6), 0.5)
    drawn, images, made = _draw(layer), _images(), _keras(layer)
    first = layer.replace(data_format="channels_first")

    def all_three(images, turned, drawn):
        theirs = images
        for name in ("brightness", "contrast", "saturation", "hue"):
            theirs = _theirs(getattr(made, f"random_{name}"), theirs, drawn[name])
        ours = layer.transform_images(images, drawn)
        return ours, theirs, first.transform_images(turned, drawn)

    ours, theirs, moved = _compiled(all_three, images, _first(images), drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moved, _first(theirs), rtol=1e-5, atol=1e-5)


def test_rand_augment_applies_its_operations_in_order_to_images_masks_and_boxes():
    layer = layers.RandAugment(UNIT, 2, bounding_box_format="xyxy", interpolation="nearest")
    drawn = _draw(layer)
    indices = np.array([[2, 6, 9], [0, 10, 7]], "int32")
    drawn["layer_idxes"] = indices
    boxes = {
        "boxes": np.array([[[1.0, 1.0, 3.0, 4.0]]] * 3, "float32"),
        "labels": np.array([[7]] * 3, "int32"),
    }
    masks = np.arange(60, dtype="int32").reshape(3, 4, 5, 1)
    operations = layer.operations()
    assert [name for name, _ in operations] == keras.layers.RandAugment._AUGMENT_LAYERS

    def transformed(layer, values, drawn):
        images, masks, boxes = values
        return (
            layer.transform_images(images, drawn),
            layer.transform_segmentation_masks(masks, drawn),
            layer.transform_bounding_boxes(boxes, drawn, SHAPE),
        )

    def both(given, drawn):
        expected = [given] * 3
        for image in range(3):
            for index in indices[:, image]:
                name, operation = operations[index]
                part = drawn["transforms"][name]
                expected[image] = transformed(operation, expected[image], part)
        return transformed(layer, given, drawn), expected

    ours, expected = _compiled(both, (_images(), masks, boxes), drawn)
    assert ours[1].dtype == masks.dtype
    for image in range(3):
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected[image]), strict=True):
            np.testing.assert_allclose(one[image], other[image], rtol=1e-5, atol=1e-5)


def test_aug_mix_mixes_the_chains_of_keras():
    layer = layers.AugMix(UNIT, num_chains=2, chain_depth=2, all_ops=False)
    made, images = _keras(layer), _images()
    drawn = _draw(layer)
    drawn["chain_operations"] = np.array([[3, 7], [5, 4]], "int32")  # 7 stands for none
    names = [name for name, _ in layer.operations()]

    def both(images, drawn):
        def at(name, *place):
            part = jax.tree.map(lambda v: v[place], drawn["chain_transforms"][name])
            return {"layer_name": name, "transformation": part}

        chains = [[at(names[3], 0, 0)], [at(names[5], 1, 0), at(names[4], 1, 1)]]
        theirs = _theirs(made, images, {**drawn, "chain_transforms": chains})
        return layer.transform_images(images, drawn), theirs

    ours, theirs = _compiled(both, images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert float(drawn["chain_mixing_weights"].sum()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="one-hot"):
        layer.transform_segmentation_masks(jnp.ones((3, 4, 5, 1), "int32"), drawn)


def test_draws_spread_over_their_ranges():
    many = (4000, 2, 2, 3)

    def drawn(key):
        def draw(layer, shape=many):
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

    draws = _compiled(drawn, KEY)
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


def test_mixing_draws_permutations_and_weights():
    weights = _draw(layers.MixUp(0.2), (2000, 2, 2, 3))
    assert sorted(weights["permutation_order"]) == list(range(2000))
    assert abs(float(weights["mix_weight"].mean()) - 0.5) < 0.05
    assert float(weights["mix_weight"].var()) == pytest.approx(0.25 / 1.4, abs=0.02)
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
    x = _images() if layer.data_format == "channels_last" else _first(_images())
    np.testing.assert_array_equal(layer(x), x)
    with pytest.raises(ValueError, match="key"):
        layer(x, training=True)
    draw = _drawing(layer, SHAPE)
    one, two, other = (jax.device_get(draw(jax.random.key(i))) for i in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    assert any((a != b).any() for a, b in pairs)


@pytest.mark.parametrize("layer", [layers.MixUp(1.0), layers.CutMix()], ids=repr)
def test_labels_are_mixed_with_their_images(layer, monkeypatch):
    monkeypatch.setattr(type(layer), "draw", lambda self, key, shape: _drawn(layer, shape, 3))
    hot = np.eye(3, dtype="float32")
    images = np.broadcast_to(hot[:, None, None, :], SHAPE)
    data = {"images": images, "segmentation_masks": images, "id": hot}
    kinds = {"hot": hot, "ints": hot.astype("int32"), "amounts": np.arange(3, dtype="float32")}

    def train(data, kinds):
        return {name: _train(layer, {**data, "labels": v}) for name, v in kinds.items()}

    found = _compiled(train, data, kinds)
    out = found["hot"]
    np.testing.assert_allclose(out["images"].mean(axis=(1, 2)), out["labels"], atol=1e-6)
    np.testing.assert_allclose(out["segmentation_masks"], out["images"], atol=1e-6)
    np.testing.assert_array_equal(out["id"], hot)
    np.testing.assert_allclose(found["ints"]["labels"], out["labels"], atol=1e-6)
    amounts = found["amounts"]["labels"]
    np.testing.assert_allclose(amounts, out["labels"] @ kinds["amounts"], atol=1e-6)
    for ids in (jnp.arange(3), jnp.arange(3)[:, None]):
        with pytest.raises(ValueError, match="one-hot"):
            _train(layer, {"images": images, "labels": ids})


def test_boxes_of_both_images_are_kept_by_mix_up_and_refused_by_cut_mix():
    boxes = {
        "boxes": np.arange(24, dtype="float32").reshape(3, 2, 4),
        "labels": np.arange(6, dtype="int32").reshape(3, 2),
    }
    data = {"images": _images(), "bounding_boxes": boxes}
    # eagerly, with the program of the beta distribution of the other tests
    out = jax.device_get(_train(layers.MixUp(), data)["bounding_boxes"])
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
    x, made = _images((1, 4, 5, 3)) * 255, _keras(layers.RandomSaturation(0.5))
    ramp = np.arange(20, dtype="float32").reshape(1, 4, 5, 1)

    def computed(x, turned, ramps):
        return (
            _train(layers.RandomSaturation((0.99, 0.99)), x),
            _theirs(made, x, {"factor": jnp.array([99.0])}),
            _train(layers.RandomInvert((1, 1), (-1, 1)), x / 255),
            layers.Equalization()(ramps),
            layers.AutoContrast(UNIT, data_format="channels_first")(turned),
        )

    pure, theirs, negative, both, stretched = _compiled(
        computed, x, _images((2, 3, 4, 5)), np.concatenate((ramp, ramp + 100))
    )
    # pure colours are the most that saturation reaches
    assert float(pure.min()) >= 0
    assert theirs.min() < 0
    # negatives stay in a range that does not start from 0
    np.testing.assert_allclose(negative, -x / 255, atol=1e-6)
    # each image of a batch is equalized alone, in inference too
    np.testing.assert_array_equal(both[0], both[1])
    # the axes of images with the channels first
    np.testing.assert_allclose(stretched.max(axis=(2, 3)), 1, rtol=1e-5)


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
            _train(brighter, flat),
        )

    same, slopes, tiles, out = _compiled(computed, flat)
    for layer, found in zip(levelling, same, strict=True):
        np.testing.assert_array_equal(found, 100.0)
        half = layer.replace(dtype="mixed_bfloat16")
        assert jax.eval_shape(half.__call__, flat).dtype == jnp.bfloat16
    assert np.isfinite(slopes).all()
    assert np.isfinite(tiles).all()
    np.testing.assert_allclose(out, 125.5)


@jax.jit
def _sums_and_slopes(x):
    return [
        jax.value_and_grad(lambda x, layer=layer: _train(layer, x).sum())(x)
        for layer in (
            layers.RandomHue((0.5, 0.5)),
            layers.RandomSaturation((0.9, 1.0)),
            layers.RandomContrast(0.5),
            layers.RandomSharpness((1, 1)),
            layers.RandomGaussianBlur((1, 1), sigma=(0.0, 0.0)),
        )
    ]


@pytest.mark.parametrize("value", [0.0, 100.0])
def test_gradients_at_black_and_grey_pixels_are_finite(value):
    x = np.full((1, 2, 2, 3), value, "float32")
    for out, slope in jax.device_get(_sums_and_slopes(x)):
        assert np.isfinite(slope).all()
        assert float(out) == pytest.approx(float(x.sum()), rel=0.5)


def test_factor_zero_changes_nothing():
    x = _images((2, 4, 4, 3)) * 255
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
    found = _compiled(lambda x: [_train(layer, x) for layer in idle], x)
    for layer, same in zip(idle, found, strict=True):
        np.testing.assert_allclose(same, x, rtol=1e-5, atol=1e-3, err_msg=repr(layer))


def test_one_channel_is_taken_where_colour_is_not_needed():
    grey = _images((2, 4, 4, 1)) * 255
    idle = layers.RandomGrayscale(1.0), layers.RandomColorDegeneration((1, 1)), layers.MixUp(0)
    for same in _compiled(lambda x: [_train(layer, x) for layer in idle], grey):
        np.testing.assert_array_equal(same, grey)
    for layer in (layers.RandomHue(0.5), layers.RandomSaturation(0.5)):
        with pytest.raises(ValueError, match="expected 3 channels on axis 3, received 1"):
            jax.eval_shape(lambda x, layer=layer: _train(layer, x), grey)
    with pytest.raises(ValueError, match="RandomErasing: expected images of 3 channels"):
        jax.eval_shape(
            lambda x: _train(layers.RandomErasing((1, 1), fill_value=(1, 2, 3)), x), grey
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

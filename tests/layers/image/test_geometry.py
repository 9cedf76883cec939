"""Layers that move pixels: Keras's numbers for the same draws, distributions of draws, edges.

Each test computes in one compiled program, which includes Keras's draws.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.layers.image.common.base import ImageShape
from fkeras.nn.image.boxes import convert_format
from tests.support.keras_oracle import keras, keras_rules
from tests.support.quick_keys import QUICK

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(0, 255, (3, 6, 5, 2)).astype("float32")
MASKS = RNG.integers(0, 9, (3, 6, 5, 1)).astype("int32")
BOXES = {
    "boxes": np.array([[[1, 1, 4, 5], [0, 2, 5, 3]]] * 3, "float32"),
    "labels": np.array([[1, 2]] * 3, "int32"),
}
KEY = jax.random.key(0, impl=QUICK)

RANDOM = (
    layers.RandomFlip("horizontal", seed=1),
    layers.RandomFlip("vertical"),
    layers.RandomTranslation(0.4, (-0.1, 0.6), "constant", fill_value=3.0),
    layers.RandomRotation(0.3, "reflect"),
    layers.RandomRotation((-0.1, 0.4), "constant", "nearest", data_format="channels_first"),
    layers.RandomZoom(0.4, fill_mode="nearest"),
    layers.RandomZoom((-0.3, 0.1), (0.2, 1.0), "wrap"),
    layers.RandomShear(0.4, (0.1, 0.3)),
    layers.RandomPerspective(0.8, 0.4),
    layers.RandomElasticTransform(0.8, (0.2, 1.0), value_range=(0, 300)),
    layers.RandomCrop(2, 3, seed=5),
)
FIXED = (
    layers.Resizing(4, 7, "bicubic", True, fill_value=1.0, antialias=True),
    layers.Resizing(4, 7, pad_to_aspect_ratio=True, data_format="channels_first"),
    layers.CenterCrop(3, 2),
    layers.MaxNumBoundingBoxes(4, -2),
)
ONE_OF_EACH = list({type(layer): layer for layer in RANDOM}.values())
each_random = pytest.mark.parametrize("layer", ONE_OF_EACH, ids=repr)


def oracle(layer, **changes):
    with keras_rules():
        return keras.layers.deserialize(layers.serialize(layer.replace(**changes)))


def compiled(function, *args):
    """Calls a function as one compiled program, and returns NumPy arrays."""
    return jax.device_get(jax.jit(function)(*args))


def train(layer, data, key=KEY):
    return compiled(lambda data, key: layer(data, training=True, key=key), data, key)


def drawn(reference, layer, images):
    """Returns Keras's draw for a layer, and the same draw in fkeras's format."""
    with keras_rules(), keras.StatelessScope():
        theirs = reference.get_random_transformation(images, training=True)
    if isinstance(layer, layers.RandomFlip):
        flips = theirs["flips"][:, 0, 0, 0]
        no_flips = jnp.zeros_like(flips)
        ours = {w: flips if w == layer.mode else no_flips for w in ("horizontal", "vertical")}
    elif isinstance(layer, layers.RandomCrop):
        ours = theirs
    else:
        names = jax.eval_shape(lambda: layer.draw(KEY, ImageShape(*images.shape)))
        ours = {name: theirs[name] for name in names}
    return theirs, ours


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer",
    [v for v in RANDOM if not isinstance(v, layers.RandomElasticTransform)],
    ids=repr,
)
def test_images_equal_keras_for_the_same_draws(layer):
    images = IMAGES if layer.data_format == "channels_last" else IMAGES.transpose(0, 3, 1, 2)
    reference = oracle(layer)

    def compute(images):
        theirs, ours = drawn(reference, layer, images)
        with keras_rules():
            expected = reference.transform_images(images, theirs, training=True)
        return layer.transform_images(images, ours), expected

    # Keras slices with the drawn positions, which a compiled program cannot do
    crops = isinstance(layer, layers.RandomCrop)
    actual, expected = compute(images) if crops else compiled(compute, images)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual / 255, expected / 255, atol=2e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomFlip("horizontal", bounding_box_format="rel_yxyx"),
        layers.RandomTranslation(0.6, 0.6, bounding_box_format="xywh"),
        layers.RandomRotation(0.3, bounding_box_format="xyxy"),
        layers.RandomZoom(0.4, (0.1, 0.5), bounding_box_format="center_xywh"),
        layers.RandomPerspective(0.9, 0.3, bounding_box_format="xyxy"),
        layers.RandomShear(0.4, bounding_box_format="xyxy"),
        layers.CenterCrop(3, 2, bounding_box_format="rel_xywh"),
        layers.CenterCrop(12, 4, bounding_box_format="xyxy"),
        layers.Resizing(12, 15, bounding_box_format="yxyx"),
        layers.Resizing(12, 6, crop_to_aspect_ratio=True, bounding_box_format="xyxy"),
        layers.Resizing(12, 14, pad_to_aspect_ratio=True, bounding_box_format="xyxy"),
    ],
    ids=repr,
)
def test_boxes_match_keras(layer):
    square = isinstance(
        layer, layers.RandomShear
    )  # Keras shears fractions of the image: correct only for squares
    images = IMAGES[:, :5] if square else IMAGES
    shape = ImageShape(*images.shape)
    reference = oracle(layer)
    utils = keras.utils.bounding_boxes
    box_format = layer.bounding_box_format

    def compute(images, corners):
        theirs = ours = None
        if hasattr(layer, "draw"):
            theirs, ours = drawn(reference, layer, images)
        with keras_rules():
            size = shape.height, shape.width
            boxes = utils.convert_format(dict(corners), "xyxy", box_format, *size)
            if theirs is None:
                theirs = reference.get_random_transformation(images, training=True)
            expected = reference.transform_bounding_boxes(dict(boxes), theirs, training=True)
        return layer.transform_bounding_boxes(boxes, ours, shape), expected

    actual, expected = compiled(compute, images, BOXES)
    np.testing.assert_allclose(actual["boxes"], expected["boxes"], atol=1e-4)
    np.testing.assert_array_equal(actual["labels"], expected["labels"])


@pytest.mark.parametrize("layer", [*RANDOM, *FIXED], ids=repr)
def test_keras_json_round_trip(layer):
    reference = oracle(layer)
    with keras_rules():
        config = keras.layers.serialize(reference)
    if isinstance(layer, layers.MaxNumBoundingBoxes):  # Keras does not write the field
        config["config"]["fill_value"] = layer.fill_value
    again = layers.deserialize(config)
    assert again.replace(name=None) == layer


@pytest.mark.exhaustive
@each_random
def test_the_key_determines_draws_and_inference_needs_no_key(layer):
    images = IMAGES[..., :1] if layer.data_format == "channels_last" else IMAGES[:, :1]
    if not isinstance(layer, layers.RandomCrop):
        np.testing.assert_array_equal(layer(images), images)
        assert jax.eval_shape(layer.__call__, images.astype("uint8")).dtype == jnp.float32
    with pytest.raises(ValueError, match="needs a key"):
        layer(images, training=True)
    program = jax.jit(lambda key: layer(images, training=True, key=key))
    keys = [jax.random.key(i, impl=QUICK) for i in range(6)]
    results = [np.asarray(program(key)) for key in keys]
    np.testing.assert_array_equal(program(keys[3]), results[3])
    assert len({r.tobytes() for r in results}) > 1
    assert np.isfinite(results).all()


@pytest.mark.exhaustive
def test_a_seed_changes_the_draws_of_a_key():
    unseeded, seeded = layers.RandomRotation(0.3), layers.RandomRotation(0.3, seed=77)
    program = jax.jit(
        lambda key: [layer(IMAGES, training=True, key=key) for layer in (unseeded, seeded)]
    )
    unseeded_images, seeded_images = jax.device_get(program(KEY))
    assert not (unseeded_images == seeded_images).all()
    np.testing.assert_array_equal(program(KEY)[1], seeded_images)


@pytest.mark.exhaustive
def test_draws_are_spread_over_their_ranges():
    batch_shape = ImageShape(4000, 10, 20, 1)

    def draws(key, keys):
        crop = layers.RandomCrop(8, 18)
        return {
            "moves": layers.RandomTranslation((-0.5, 0.1), 0.2).draw(key, batch_shape)[
                "translations"
            ],
            "angles": layers.RandomRotation((0.0, 0.5)).draw(key, batch_shape)["angle"],
            "zooms": layers.RandomZoom((0.0, 0.5), (-0.5, 0.0)).draw(key, batch_shape),
            "both": layers.RandomZoom(0.5).draw(key, batch_shape),
            "shears": layers.RandomShear((0.2, 0.3), 0.5).draw(key, batch_shape)["shear_factor"],
            "perspective": layers.RandomPerspective((0.2, 0.4), 0.5).draw(key, batch_shape),
            "starts": jax.vmap(lambda key: crop.draw(key, batch_shape))(keys),
        }

    keys = jax.vmap(jax.random.key)(np.arange(60, dtype="uint32"))
    results = compiled(draws, jax.random.key(0), keys)
    translations, angles, shears = results["moves"], results["angles"], results["shears"]
    np.testing.assert_allclose(translations.min(0), [-4, -5], atol=0.05)
    np.testing.assert_allclose(translations.max(0), [4, 1], atol=0.05)
    np.testing.assert_allclose(translations.mean(0), [0, -2], atol=0.15)
    np.testing.assert_allclose([angles.min(), angles.mean(), angles.max()], [0, 90, 180], atol=3)
    assert results["zooms"]["height_zoom"].min() >= 1 >= results["zooms"]["width_zoom"].max()
    np.testing.assert_array_equal(results["both"]["height_zoom"], results["both"]["width_zoom"])
    low, high = np.float32([0.2, 0.3])
    assert low <= np.abs(shears[:, 0]).min() <= np.abs(shears[:, 0]).max() <= high
    np.testing.assert_allclose((shears > 0).mean(0), 0.5, atol=0.05)
    perspective = results["perspective"]
    np.testing.assert_allclose(perspective["apply_perspective"].mean(), 0.3, atol=0.03)
    offsets = (perspective["end_points"] - perspective["start_points"])[:, 3, 0]
    np.testing.assert_allclose([offsets.min(), offsets.max()], [-0.25 * 19, 0.25 * 19], atol=0.05)
    for starts in results["starts"]:
        assert set(starts.tolist()) == {0, 1, 2}


def test_both_flips_are_drawn_independently():
    """Keras flips either both directions or none."""
    flips, vertical = compiled(
        lambda key: (
            layers.RandomFlip().draw(key, ImageShape(4000, 2, 2, 1)),
            layers.RandomFlip("vertical").draw(key, ImageShape(50, 2, 2, 1)),
        ),
        KEY,
    )
    fraction = (flips["vertical"] & ~flips["horizontal"]).mean()
    np.testing.assert_allclose(fraction, 0.25, atol=0.03)
    assert vertical["vertical"].any()
    assert not vertical["horizontal"].any()


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", [RANDOM[0], *RANDOM[-3:], *FIXED[1:]], ids=repr)
def test_dictionaries_keep_their_structure(layer):
    layer = layer.replace(bounding_box_format="xyxy", data_format="channels_last")
    labels = np.arange(3, dtype="int32")
    data = {"images": IMAGES, "labels": labels, "bounding_boxes": BOXES, "path": labels + 7}
    data["segmentation_masks"] = MASKS
    out, alone = compiled(
        lambda data, single: [layer(d, training=True, key=KEY) for d in (data, single)],
        data,
        jax.tree.map(lambda x: x[0], data),
    )
    assert set(out) == set(data)
    np.testing.assert_array_equal(out["labels"], labels)
    np.testing.assert_array_equal(out["path"], data["path"])
    assert out["segmentation_masks"].dtype == MASKS.dtype
    assert out["segmentation_masks"].shape == (*out["images"].shape[:3], 1)
    assert set(np.unique(out["segmentation_masks"])) <= set(range(9))
    assert out["bounding_boxes"]["boxes"].dtype == jnp.float32
    for unbatched, batched in zip(jax.tree.leaves(alone), jax.tree.leaves(out), strict=True):
        assert unbatched.shape == batched.shape[1:]
        assert unbatched.dtype == batched.dtype


@pytest.mark.exhaustive
def test_masks_and_boxes_follow_their_images():
    """The image equals its mask, and its bright square equals its box."""
    mask = np.zeros((40, 10, 10, 1), "int32")
    mask[:, 3:7, 2:6] = 5
    boxes = {"boxes": np.array([[[2.0, 3, 6, 7]]] * 40), "labels": np.ones((40, 1), "int32")}
    data = {"images": mask * 51.0, "segmentation_masks": mask, "bounding_boxes": boxes}
    for layer in (
        layers.RandomTranslation(0.3, 0.3, "constant", "nearest"),
        layers.RandomRotation(0.5, "constant", "nearest"),
        layers.RandomZoom(0.3, 0.3, "constant", "nearest"),
        layers.RandomShear(0.3, 0.3, "nearest", "constant"),
        layers.RandomPerspective(1.0, 0.4, "nearest"),
        layers.RandomElasticTransform(1.0, 1.0, "nearest", "constant"),
        layers.RandomCrop(8, 9),
        layers.RandomFlip(),
    ):
        layer = layer.replace(bounding_box_format="xyxy")
        out = train(layer, data)
        np.testing.assert_array_equal(out["images"], out["segmentation_masks"] * 51.0)
        for image, box in zip(out["images"], out["bounding_boxes"]["boxes"][:, 0], strict=True):
            rows, columns = np.nonzero(image[..., 0])
            visible = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            # upright boxes around rotated squares are larger; a pixel counts if its center is inside
            tolerance = isinstance(layer, layers.RandomRotation) * 2 + 1.6
            np.testing.assert_allclose(box, visible, atol=tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer", [layers.RandomRotation(0.3), layers.RandomPerspective(1.0, 0.4)], ids=repr
)
def test_boxes_move_equally_in_every_format(layer):
    """Keras rotates every format as "xyxy", and its perspective layer always returns "xyxy"."""

    def moved(box_format, images, boxes):
        boxes = convert_format(boxes, "xyxy", box_format, 6, 5)
        formatted = layer.replace(bounding_box_format=box_format)
        out = formatted({"images": images, "bounding_boxes": boxes}, training=True, key=KEY)
        return convert_format(out["bounding_boxes"], box_format, "xyxy", 6, 5)["boxes"]

    results = compiled(
        lambda *data: [moved(box_format, *data) for box_format in ("xyxy", "rel_center_xywh")],
        IMAGES,
        BOXES,
    )
    np.testing.assert_allclose(*results, atol=1e-5)


def test_resizing_moves_boxes_exactly():
    """Keras truncates the width of the padding to whole pixels, unlike the image itself."""
    layer = layers.Resizing(4, 3, pad_to_aspect_ratio=True, bounding_box_format="xyxy")
    boxes = {"boxes": np.array([[0.0, 0, 5, 4], [0, 0, 0, 0]]), "labels": np.array([1, 1])}
    out = compiled(layer, {"images": np.ones((4, 5, 1), "float32"), "bounding_boxes": boxes})
    # 5 x 6 pixels around 5 x 4, one row above: rows 1 to 5 of 6 become 2/3 to 10/3 of 4
    np.testing.assert_allclose(out["bounding_boxes"]["boxes"][0], [0, 2 / 3, 3, 10 / 3], rtol=1e-6)
    assert out["bounding_boxes"]["labels"].tolist() == [1, -1]


@pytest.mark.exhaustive
def test_random_crop_of_small_images_and_in_inference():
    """The result is the largest central part, as Keras documents; Keras distorts it or does nothing."""
    x = np.arange(40.0, dtype="float32").reshape(1, 4, 10, 1)
    layer = layers.RandomCrop(8, 4)
    expected, cropped, trained = compiled(
        lambda x: (
            layers.Resizing(8, 4, crop_to_aspect_ratio=True)(x),
            layer(x),
            layer(x, training=True, key=KEY),
        ),
        x,
    )
    np.testing.assert_array_equal(cropped, expected)
    np.testing.assert_array_equal(trained, expected)
    assert jax.eval_shape(fk.layers.RandomCrop(2, 2), x).shape == (1, 2, 2, 1)
    # one direction fits exactly; the position along the other is still drawn
    wide = layers.RandomCrop(4, 2)
    program = jax.jit(lambda key: wide(x, training=True, key=key)[0, 0, 0, 0])
    corners = {float(program(jax.random.key(i, impl=QUICK))) for i in range(12)}
    assert len(corners) > 3


@pytest.mark.exhaustive
def test_elastic_boxes_cover_the_visible_region():
    layer = layers.RandomElasticTransform((1, 1), bounding_box_format="xyxy")
    boxes = {"boxes": np.array([[1.0, 1, 4, 5], [2, 2, 2.1, 2.1]]), "labels": np.array([4, 5])}
    data = {"images": IMAGES[0], "bounding_boxes": boxes}
    out = train(layer, data)
    assert out["bounding_boxes"]["labels"].tolist()[0] == 4
    unchanged = train(layer.replace(scale=(0, 0)), data)
    np.testing.assert_array_equal(
        unchanged["bounding_boxes"]["boxes"], boxes["boxes"].astype("float32")
    )


@pytest.mark.exhaustive
@each_random
def test_images_of_one_pixel(layer):
    layer = layer.replace(data_format="channels_last")
    x = jnp.full((2, 1, 1, 1), 0.5)

    def total(x):
        return layer.apply(x, training=True, key=KEY).value.astype("float32").sum()

    value, grad = jax.jit(jax.value_and_grad(total))(x)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomTranslation(0, 0),
        layers.RandomRotation(0),
        layers.RandomZoom(0),
        layers.RandomShear(),
        layers.RandomPerspective(0.0),
        layers.RandomPerspective(1.0, 0.0),
        layers.RandomElasticTransform(scale=0.0),
    ],
    ids=repr,
)
def test_factors_of_zero_change_nothing(layer):
    np.testing.assert_allclose(train(layer, IMAGES), IMAGES, rtol=1e-5, atol=1e-4)


@pytest.mark.exhaustive
def test_half_precision_keeps_boxes_exact():
    layer = layers.RandomTranslation((0.1, 0.1), 0, bounding_box_format="xyxy")
    half = layer.replace(dtype="mixed_bfloat16")
    boxes = {"boxes": np.array([[0.0, 0, 1001, 901]]), "labels": np.array([1])}
    data = {"images": np.ones((1010, 1010, 1), "uint8"), "bounding_boxes": boxes}
    out = train(half, data)
    assert out["images"].dtype == jnp.bfloat16
    np.testing.assert_allclose(out["bounding_boxes"]["boxes"], [[0, 101, 1001, 1002]], rtol=1e-6)


def test_resizing_keeps_integers_and_stops_at_their_ends():
    x = np.zeros((1, 8, 8, 1), "uint8")
    x[:, 2:6, 2:6] = 255
    y = compiled(layers.Resizing(16, 16, "bicubic"), x)
    assert y.dtype == jnp.uint8
    assert int(y.max()) == 255
    assert int(y[0, 8, 8, 0]) == 255  # not wrapped around


@pytest.mark.exhaustive
def test_layers_can_be_recorded_on_dictionaries():
    images = fk.Input((6, 5, 2), dtype="uint8")
    boxes = {"boxes": fk.Input((2, 4)), "labels": fk.Input((2,), dtype="int32")}
    layer = layers.RandomRotation(0.1, bounding_box_format="xyxy")
    out = layers.Resizing(3, 3, bounding_box_format="xyxy")(
        layer({"images": images, "bounding_boxes": boxes})
    )
    assert out["images"].shape == (None, 3, 3, 2)
    assert out["bounding_boxes"]["boxes"].shape == (None, 2, 4)
    model = fk.Model([images, boxes["boxes"], boxes["labels"]], out["images"])
    arrays = [IMAGES.astype("uint8"), BOXES["boxes"], BOXES["labels"]]
    result = compiled(lambda arrays: model.apply(arrays, training=True, key=KEY).value, arrays)
    assert result.shape == (3, 3, 3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.Resizing(0, 2), "Resizing: height: expected a positive integer"),
        (lambda: layers.Resizing(2, 2, "area"), "interpolation: expected"),
        (lambda: layers.Resizing(2, 2, "nearest", True, True), "at most one of"),
        (lambda: layers.CenterCrop(2, 0), "CenterCrop: width"),
        (lambda: layers.RandomFlip("sideways"), "RandomFlip: mode: expected"),
        (lambda: layers.RandomTranslation(1.5, 0), "height_factor: expected a number from -1 to 1"),
        (lambda: layers.RandomRotation((1, 2, 3)), "or a pair"),
        (lambda: layers.RandomZoom(-1.0), "above -1 and up to 1"),
        (lambda: layers.RandomShear(-0.5), "x_factor: expected a number from 0"),
        (lambda: layers.RandomRotation(0.1, "mirror"), "fill_mode: expected"),
        (lambda: layers.RandomPerspective(scale=2), "scale: expected a number from 0 to 1"),
        (lambda: layers.RandomElasticTransform(value_range=(1, 1)), "value_range: expected"),
        (lambda: layers.RandomFlip(bounding_box_format="xyxx"), "Did you mean 'yxyx'"),
        (lambda: layers.RandomFlip()(IMAGES[0, 0]), r"\(b, h, w, c\), or one image"),
        (lambda: layers.RandomFlip()({"labels": IMAGES}), "a dictionary with 'images'"),
        (
            lambda: layers.CenterCrop(2, 2)({"images": IMAGES, "bounding_boxes": BOXES}),
            "bounding_box_format='xyxy'",
        ),
        (
            lambda: layers.CenterCrop(2, 2)({"images": IMAGES, "bounding_boxes": BOXES["boxes"]}),
            "'boxes': ",
        ),
        (
            lambda: layers.CenterCrop(2, 2)({"images": IMAGES, "segmentation_masks": IMAGES[0]}),
            "as many axes as the images",
        ),
    ],
)
def test_error_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Rows of the layer table: resizing, cropping, flipping, moving and distorting images.

tests/layers/image/test_geometry.py compares the random layers with Keras for the same draws.
"""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.Resizing(4, 7), ((2, 5, 3, 2),)),
    Case(layers.Resizing(3, 3, "bicubic", True, antialias=True), ((2, 5, 8, 2),)),
    Case(
        layers.Resizing(
            4, 4, "nearest", pad_to_aspect_ratio=True, fill_value=2.0, data_format="channels_first"
        ),
        ((2, 1, 3, 7),),
    ),
    Case(layers.Resizing(4, 3, "lanczos3"), (("uint8", (2, 5, 6, 1), 256),)),
    Case(layers.CenterCrop(2, 3), ((2, 5, 4, 2),)),
    Case(layers.CenterCrop(6, 3, data_format="channels_first"), ((2, 1, 4, 5),)),
    Case(layers.MaxNumBoundingBoxes(3), ((2, 2, 2, 1),)),
    Case(layers.MaxNumBoundingBoxes(2, fill_value=-2), (("uint8", (2, 3, 2, 1), 256),)),
    Case(layers.RandomCrop(6, 4, seed=3), ((2, 3, 2, 2),), training=True),
    Case(layers.RandomCrop(2, 3), ((2, 5, 4, 2),), keras=False, training=True),
    Case(layers.RandomFlip(seed=1), ((3, 3, 2, 2),), keras=False, training=True),
    Case(layers.RandomFlip("vertical"), (("uint8", (2, 3, 2, 2), 256),)),
    Case(
        layers.RandomTranslation(0.4, (0.1, 0.3), "wrap", data_format="channels_first"),
        ((2, 1, 4, 5),),
        keras=False,
        training=True,
    ),
    Case(layers.RandomRotation(0.2), ((2, 4, 5, 1),), keras=False, training=True),
    Case(layers.RandomZoom(0.4, fill_mode="constant"), ((2, 4, 5, 1),), keras=False, training=True),
    Case(layers.RandomShear(0.4, (0.1, 0.2)), ((2, 4, 5, 1),), keras=False, training=True),
    Case(layers.RandomPerspective(0.9, 0.5), ((2, 4, 5, 1),), keras=False, training=True),
    Case(layers.RandomElasticTransform(), ((2, 8, 9, 1),), keras=False, training=True),
    # identities in inference
    Case(layers.RandomTranslation(0.2, 0.1), ((2, 3, 4, 1),)),
    Case(layers.RandomRotation(0.1, "nearest", "nearest"), ((2, 3, 4, 1),)),
    Case(layers.RandomZoom(0.2, 0.3, data_format="channels_first"), ((2, 1, 3, 4),)),
    Case(layers.RandomShear(0.2, 0.3, "nearest"), ((2, 3, 4, 1),)),
    Case(layers.RandomPerspective(0.5, 0.3, "nearest"), ((2, 3, 4, 1),)),
    Case(layers.RandomElasticTransform(0.5, 0.7), ((2, 3, 4, 1),)),
)

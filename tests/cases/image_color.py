"""Rows of the layer table: colors, filters, histograms and mixtures of images."""

from fkeras import layers
from tests.cases import Case

IMAGES = ((2, 4, 5, 3),)
FIRST = ((2, 3, 4, 5),)
UNIT = (-2, 2)  # the table draws normal samples


def random(layer, inputs=IMAGES, **options):
    """In training; Keras draws other numbers, so it is compared in tests/layers/image/test_color.py."""
    return Case(layer, inputs, training=True, keras=False, **options)


CASES = (
    Case(layers.AutoContrast(UNIT), IMAGES),
    Case(layers.Equalization(UNIT, 16), ((1, 4, 5, 2),), training=True),
    Case(
        layers.ContrastLimitedAdaptiveHistogramEqualization(UNIT, 4.0, (2, 3), "channels_first"),
        FIRST,
    ),
    Case(layers.RandomBrightness(0.3, UNIT), IMAGES),
    random(layers.RandomBrightness((-0.1, 0.3), UNIT, 5)),
    random(layers.RandomContrast(0.4, UNIT, data_format="channels_first"), FIRST),
    random(layers.RandomHue((0.1, 0.8), UNIT)),
    random(layers.RandomSaturation((0.2, 0.8), UNIT, "channels_first"), FIRST),
    random(layers.RandomColorDegeneration(0.5, UNIT)),
    Case(layers.RandomGrayscale(), IMAGES),
    random(layers.RandomGrayscale(0.5, "channels_first"), FIRST),
    random(layers.RandomColorJitter(UNIT, 0.2, 0.3, 0.6, 0.1, 3)),
    random(layers.RandomInvert(1.0, UNIT), ((3, 2, 2, 1),)),
    random(layers.Solarization(0.2, (0.3, 0.6), UNIT)),
    random(layers.RandomPosterization((2, 4), UNIT)),
    random(layers.RandomGaussianBlur((0.5, 1.0), (3, 5), (0.3, 1.0), UNIT)),
    random(layers.RandomSharpness(1.0, UNIT, "channels_first"), FIRST),
    random(layers.RandomErasing((1, 1), 0.5, value_range=UNIT)),
    random(layers.MixUp()),
    random(layers.CutMix(data_format="channels_first"), FIRST),
    random(layers.RandAugment(UNIT, 1)),
    random(layers.AugMix(UNIT, 1, 1, all_ops=False)),
    # the same with each operation twice and four times: seconds to compile
    random(layers.RandAugment(UNIT), exhaustive=True),
    random(layers.AugMix(UNIT, 2, 2), exhaustive=True),
    # of other arguments, in inference
    Case(layers.AutoContrast(UNIT, data_format="channels_first"), FIRST, keras=False),
    Case(layers.Equalization(UNIT, 8, "channels_first"), ((1, 2, 4, 5),), keras=False),
    Case(layers.ContrastLimitedAdaptiveHistogramEqualization(UNIT, 2.0, 2), IMAGES),
    Case(layers.RandomContrast(0.2, UNIT), IMAGES),
    Case(layers.RandomHue(0.2, UNIT), IMAGES),
    Case(layers.RandomSaturation(0.5, UNIT), IMAGES),
    Case(layers.RandomColorDegeneration((0.2, 0.4), UNIT), IMAGES),
    Case(layers.RandomInvert(0.5, UNIT), IMAGES),
    Case(layers.RandomPosterization(4, UNIT), IMAGES),
    Case(layers.RandomSharpness(0.5, UNIT), IMAGES),
    Case(layers.RandomErasing(0.5, value_range=UNIT), IMAGES),
    Case(layers.RandomGaussianBlur(value_range=UNIT), IMAGES),
    Case(layers.RandomColorJitter(UNIT, 0.1), IMAGES),
    Case(layers.MixUp(0.4), IMAGES),
    Case(layers.CutMix(0.5), IMAGES),
    Case(layers.RandAugment(UNIT, 1), IMAGES),
    Case(layers.AugMix(UNIT), IMAGES),
)

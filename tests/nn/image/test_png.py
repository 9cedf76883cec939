"""PNG files, read by Pillow."""

import io

import numpy as np
import pytest

from fkeras.nn.image.png import png


@pytest.mark.one_in(4)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (4, 1, 3), (3, 5, 4)])
def test_pillow_reads_the_same_pixels(shape):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, "uint8")
    opened = np.asarray(image.open(io.BytesIO(png(pixels))))
    np.testing.assert_array_equal(opened, pixels.squeeze(-1) if shape[2:] == (1,) else pixels)

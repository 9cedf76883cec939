"""`cubic_weights` against PyTorch's interpolation."""

import numpy as np
import pytest

from fkeras.nn.image.cubic import cubic_weights

# torch 2.13.0: nn.functional.interpolate(mode="bicubic", align_corners=False) of unit vectors
TORCH = {
    (3, 4, False): [
        [1.071777, -0.071777, 0.0],
        [0.360352, 0.749512, -0.109863],
        [-0.109863, 0.749512, 0.360352],
        [0.0, -0.071777, 1.071777],
    ],
    (4, 3, False): [
        [0.856482, 0.16088, -0.017361, 0.0],
        [-0.09375, 0.59375, 0.59375, -0.09375],
        [0.0, -0.017361, 0.16088, 0.856482],
    ],
    (4, 2, True): [
        [0.458678, 0.458678, 0.119835, -0.03719],
        [-0.03719, 0.119835, 0.458678, 0.458678],
    ],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", TORCH)
def test_weights_equal_those_of_pytorch(case):
    np.testing.assert_allclose(cubic_weights(*case), TORCH[case], atol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("antialias", [False, True])
def test_an_axis_of_the_same_size_is_unchanged(antialias):
    np.testing.assert_allclose(cubic_weights(5, 5, antialias), np.eye(5), atol=1e-12)

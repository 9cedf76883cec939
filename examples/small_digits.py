"""Reads scikit-learn's 1,797 digits of 8 x 8 pixels; measures and prints generated digits."""

import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]


def load_small_digits(test_count=297, seed=0):
    """Returns `(x_train, x_test)`: images (n, 8, 8, 1) from 0 to 1."""
    rows, _ = load_digits(return_X_y=True)
    images = np.asarray(rows, "float32").reshape(-1, 8, 8, 1) / 16
    images = np.random.default_rng(seed).permutation(images)
    return images[:-test_count], images[-test_count:]


def kernel_distance(a, b):
    """Returns the kernel inception distance of two sets of images, with pixels instead of features.

    The estimate is unbiased: its mean is 0 for two sets from the same distribution.
    """
    a, b = (np.asarray(rows, "float64").reshape(len(rows), -1) for rows in (a, b))

    def kernel(x, y):
        return (x @ y.T / x.shape[1] + 1) ** 3

    within = [(kernel(x, x).sum() - np.trace(kernel(x, x))) / len(x) / (len(x) - 1) for x in (a, b)]
    return sum(within) - 2 * kernel(a, b).mean()


def print_row(images):
    """Prints images (n, 8, 8, 1) side by side as characters."""
    for row in np.asarray(images)[..., 0].transpose(1, 0, 2).reshape(8, -1).repeat(2, axis=1):
        print("".join(" .:-=+*#%@"[int(min(max(v, 0), 1) * 9.99)] for v in row))

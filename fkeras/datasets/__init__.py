"""Datasets with Keras's names: each module has `load_data`.

`load_data` reads a file in Keras's folder (`~/.keras/datasets`) or at a path. Nothing is downloaded except
with `download=True`. Files are not trusted: pickles run no code, and archives write no files.
"""

from fkeras.datasets import (
    boston_housing,
    california_housing,
    cifar10,
    cifar100,
    fashion_mnist,
    imdb,
    mnist,
    reuters,
)
from fkeras.engine.migration_hints.names import explain_unknown_names

__all__ = (
    "boston_housing",
    "california_housing",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "imdb",
    "mnist",
    "reuters",
)

explain_unknown_names(__name__)

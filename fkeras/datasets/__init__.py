"""Datasets with Keras's names: each module has `load_data`.

`load_data` reads a file of Keras's folder (`~/.keras/datasets`) or of a path, and downloads only with
`download=True`. Files are not trusted: pickles and archives run no code and name no places.
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

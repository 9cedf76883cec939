"""Datasets with Keras's names: each module has `load_data`.

`load_data` reads a file in Keras's folder (`~/.keras/datasets`) or at a path. Nothing is downloaded except
with `download=True`. Files are not trusted: pickles run no code, and archives write no files.
"""

from fkeras.datasets import boston_housing as boston_housing
from fkeras.datasets import california_housing as california_housing
from fkeras.datasets import cifar10 as cifar10
from fkeras.datasets import cifar100 as cifar100
from fkeras.datasets import fashion_mnist as fashion_mnist
from fkeras.datasets import imdb as imdb
from fkeras.datasets import mnist as mnist
from fkeras.datasets import reuters as reuters
from fkeras.engine.config.public_names import publish as _publish

_publish(__name__)

"""Functions from model to model: freezing, replacing, renaming, quantizing, rematerializing.

Each transform returns a new model and keeps all arrays that it does not change.
"""

from fkeras.transforms.freezing import freeze, unfreeze
from fkeras.transforms.quantizing import dequantize, quantize
from fkeras.transforms.remat import rematerialized
from fkeras.transforms.replacing import replace_layers
from fkeras.transforms.rewriting import inline, rename, split_host

__all__ = (
    "dequantize",
    "freeze",
    "inline",
    "quantize",
    "rematerialized",
    "rename",
    "replace_layers",
    "split_host",
    "unfreeze",
)

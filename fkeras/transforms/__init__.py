"""Functions from model to model: freezing, replacing, renaming, quantizing, rematerializing, rolling.

Each transform returns a new model and keeps all arrays that it does not change.
"""

from fkeras.transforms.depth import roll, unroll
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
    "roll",
    "split_host",
    "unfreeze",
    "unroll",
)

"""Layers that give numbers another shape: reshaped, padded, cropped, enlarged."""

from fkeras.layers.reshaping.borders import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
    crop,
    zero_pad,
)
from fkeras.layers.reshaping.resampling import (
    UpSampling1D,
    UpSampling2D,
    UpSampling3D,
    repeat,
    resize,
)
from fkeras.layers.reshaping.shapes import Flatten, Permute, RepeatVector, Reshape

__all__ = (
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "crop",
    "repeat",
    "resize",
    "zero_pad",
)

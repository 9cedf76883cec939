"""Rows of the layer table: zero padding, cropping, upsampling."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.ZeroPadding1D(), ((2, 3, 2),)),
    Case(layers.ZeroPadding1D((0, 2), "channels_first"), ((2, 3, 2),)),
    Case(layers.ZeroPadding2D(), ((2, 3, 2, 2),)),
    Case(layers.ZeroPadding2D((1, 2)), ((2, 3, 2, 2),)),
    Case(layers.ZeroPadding2D(((0, 1), (2, 3)), "channels_first"), ((2, 3, 2, 2),)),
    Case(layers.ZeroPadding3D(), ((2, 2, 3, 2, 2),)),
    Case(layers.ZeroPadding3D((0, (1, 2), 1), "channels_first"), ((2, 2, 3, 2, 2),)),
    Case(layers.Cropping1D(), ((2, 5, 2),)),
    Case(layers.Cropping1D((0, 2)), ((2, 5, 2),)),
    Case(layers.Cropping2D(), ((2, 3, 4, 2),)),
    Case(layers.Cropping2D(1, "channels_first"), ((2, 3, 4, 5),)),
    Case(layers.Cropping2D(((0, 1), (2, 0))), ((2, 3, 4, 5),)),
    Case(layers.Cropping3D(), ((2, 3, 4, 5, 2),)),
    Case(layers.Cropping3D(((0, 1), (0, 0), (1, 2)), "channels_first"), ((2, 3, 4, 5, 6),)),
    Case(layers.UpSampling1D(3), ((2, 3, 2),)),
    Case(layers.UpSampling1D(), (("int32", (2, 3, 2), 9),)),
    Case(layers.UpSampling2D((2, 3)), ((2, 3, 4, 2),)),
    Case(layers.UpSampling2D(2, "channels_first", "bilinear"), ((2, 3, 4, 2),)),
    Case(layers.UpSampling2D((3, 2), interpolation="bicubic"), ((2, 3, 4, 2),)),
    Case(layers.UpSampling2D(2, interpolation="lanczos3"), ((2, 6, 5, 2),)),
    Case(layers.UpSampling2D(2, interpolation="lanczos5"), ((2, 6, 5, 2),)),
    Case(layers.UpSampling3D((1, 2, 3)), ((2, 2, 3, 2, 2),)),
    Case(layers.UpSampling3D(2, "channels_first"), ((2, 2, 3, 2, 2),)),
)

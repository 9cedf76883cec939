"""Rows of the layer table: pooling."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.MaxPooling1D(), ((2, 5, 3),)),
    Case(layers.MaxPooling1D(3, 1, "same", "channels_first"), ((2, 3, 5),)),
    Case(layers.MaxPooling2D((2, 3), 2), ((2, 5, 6, 2),)),
    Case(layers.MaxPooling2D(3, 2, "same"), ((2, 5, 6, 2),)),
    Case(layers.MaxPooling2D(2, data_format="channels_first"), ((2, 3, 4, 5),)),
    Case(layers.MaxPooling3D(2), ((2, 4, 3, 2, 2),)),
    Case(layers.MaxPooling3D((1, 2, 2), 1, "same"), ((2, 2, 3, 3, 2),)),
    Case(layers.AveragePooling1D(2), ((2, 5, 3),)),
    Case(layers.AveragePooling1D(3, 2, "same", "channels_first"), ((2, 3, 6),)),
    Case(layers.AveragePooling2D((2, 3), 1), ((2, 5, 4, 2),)),
    Case(layers.AveragePooling2D(3, 2, "same"), ((2, 5, 6, 2),)),
    Case(layers.AveragePooling2D(2, padding="same", data_format="channels_first"), ((2, 3, 4, 5),)),
    # Keras adds a float to integers here, and fails
    Case(layers.AveragePooling2D(2), (("int32", (2, 4, 4, 2), 9),), keras=False),
    Case(layers.AveragePooling3D(2), ((2, 4, 3, 2, 2),)),
    Case(layers.AveragePooling3D(2, 1, "same"), ((2, 2, 3, 3, 2),)),
    Case(layers.GlobalMaxPooling1D(), ((2, 5, 3),)),
    Case(layers.GlobalMaxPooling2D(data_format="channels_first", keepdims=True), ((2, 3, 4, 5),)),
    Case(layers.GlobalMaxPooling3D(), ((2, 3, 2, 2, 2),)),
    Case(layers.GlobalAveragePooling1D(), ((2, 5, 3),)),
    Case(layers.GlobalAveragePooling1D(), ((2, 5, 3),), mask=(2, 5)),
    Case(layers.GlobalAveragePooling1D(keepdims=True), ((2, 5, 3),), mask=(2, 5)),
    Case(layers.GlobalAveragePooling1D("channels_first"), ((2, 3, 5),)),
    Case(layers.GlobalAveragePooling2D(), ((2, 3, 4, 2),)),
    Case(layers.GlobalAveragePooling2D("channels_first", keepdims=True), ((2, 3, 4, 5),)),
    Case(layers.GlobalAveragePooling3D(keepdims=True), ((2, 3, 2, 2, 2),)),
    Case(layers.AdaptiveAveragePooling1D(3), ((2, 7, 2),)),
    Case(layers.AdaptiveAveragePooling2D((2, 5), "channels_first"), ((2, 2, 6, 3),)),
    Case(layers.AdaptiveAveragePooling3D((1, 2, 3)), ((2, 3, 5, 4, 2),)),
    Case(layers.AdaptiveMaxPooling1D(4, "channels_first"), ((2, 2, 7),)),
    Case(layers.AdaptiveMaxPooling2D((3, 2)), ((2, 5, 4, 2),)),
    # Keras reduces integers from minus infinity, and fails
    Case(layers.AdaptiveMaxPooling2D(2), (("int32", (2, 5, 4, 2), 9),), keras=False),
    Case(layers.AdaptiveMaxPooling3D(2), ((2, 3, 2, 5, 2),)),
)

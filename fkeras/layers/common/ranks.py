"""Base classes of layers over the axis of a sequence, the axes of an image or of a volume."""

from __future__ import annotations

from typing import ClassVar

from fkeras.layers.common import authoring as fk


class Spatial(fk.Layer):
    """Layer over `rank` axes between the batch and the channels."""

    rank: ClassVar[int]

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(ndim=self.rank + 2)


class OverSequences(Spatial):
    """Layer over sequences.

    Args of the family:
        data_format: "channels_last" (also None) for inputs (b, t, c), "channels_first" for
            (b, c, t).
    """

    rank: ClassVar[int] = 1


class OverImages(Spatial):
    """Layer over images.

    Args of the family:
        data_format: "channels_last" (also None) for inputs (b, h, w, c), "channels_first" for
            (b, c, h, w).
    """

    rank: ClassVar[int] = 2


class OverVolumes(Spatial):
    """Layer over volumes.

    Args of the family:
        data_format: "channels_last" (also None) for inputs (b, d1, d2, d3, c), "channels_first" for
            (b, c, d1, d2, d3).
    """

    rank: ClassVar[int] = 3

"""Default names of the layers that Keras's architectures do not name."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from fkeras.engine import Layer, snake_case

Unnamed = TypeVar("Unnamed", bound=Layer)


class Names:
    """Names layers by class and number in the order of creation, as a new Keras session does.

    `fk.Model` numbers unnamed layers from the outputs backwards, whereas Keras numbers layers when the
    program creates them. The two orders differ for branches, and files store layers by name, so the
    architectures number their layers here. Each model that is composed has its own counts.

    Example:
        >>> import fkeras as fk
        >>> named = Names()
        >>> named(fk.layers.Conv2D(2, 3)).name, named(fk.layers.Conv2D(2, 3)).name
        ('conv2d', 'conv2d_1')
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, layer: Unnamed) -> Unnamed:
        """Returns the layer with the next name of its class."""
        base = snake_case(type(layer).__name__)
        number = self._counts[base]
        self._counts[base] += 1
        return layer.replace(name=f"{base}_{number}" if number else base)

"""Names for the layers that Keras's architectures leave unnamed."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from fkeras.engine import Layer, snake_case

Unnamed = TypeVar("Unnamed", bound=Layer)


class Names:
    """Names unnamed layers in the order of their creation, as a new Keras session does.

    `fk.Model` numbers unnamed layers from the outputs backwards, and Keras in the order in which the
    program creates them. Branches make the two orders differ, and files store layers by name. The
    count belongs to one architecture that is being composed.

    Example:
        >>> import fkeras as fk
        >>> named = Names()
        >>> named(fk.layers.Conv2D(2, 3)).name, named(fk.layers.Conv2D(2, 3)).name
        ('conv2d', 'conv2d_1')
    """

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def __call__(self, layer: Unnamed) -> Unnamed:
        """Returns the layer with the next name of its class."""
        base = snake_case(type(layer).__name__)
        number = self._numbers[base]
        self._numbers[base] += 1
        return layer.replace(name=f"{base}_{number}" if number else base)

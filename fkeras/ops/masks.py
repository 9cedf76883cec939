"""`unmask`: drops the mask of a tensor."""

from __future__ import annotations

from typing import Any, TypeVar

import jax

from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.node import TensorLike
from fkeras.engine.layer.layer import Layer

__all__ = ("Unmask", "unmask")


Masked = TypeVar("Masked", bound=TensorLike)


class Unmask(Layer):
    """Layer that returns x and drops the mask of x; recorded by `unmask`.

    Example:
        >>> import fkeras as fk
        >>> type(fk.ops.unmask(fk.Input((5,))).node.layer).__name__
        'Unmask'
    """

    _keras_module = "fkeras.ops"
    # accepts a mask, so that `forward` can leave the mask out of its output
    supports_masking = True

    def forward(self, context: Context, x: jax.Array) -> Output:
        # no `mask` in the output: the mask ends here
        return Output(x)


def unmask(x: Masked) -> Masked:
    """Returns x without its mask, so that layers without mask support accept x.

    Args:
        x: a symbolic tensor, or an array.

    Example:
        >>> import fkeras as fk
        >>> ids = fk.Input((5,), dtype="int32")
        >>> words = fk.layers.Embedding(10, 4, mask_zero=True)(ids)
        >>> fk.layers.Flatten()(fk.ops.unmask(words)).shape
        (None, 20)
    """
    unmasked: Any = Unmask()(x)
    return unmasked

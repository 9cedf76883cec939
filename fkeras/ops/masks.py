"""`unmask`: a tensor whose mask goes no further."""

from __future__ import annotations

from typing import Any

from fkeras.engine.call.context import Context, Output
from fkeras.engine.layer.layer import Layer

__all__ = ("Unmask", "unmask")


class Unmask(Layer):
    """x itself, without its mask; what `unmask` records.

    Example:
        >>> import fkeras as fk
        >>> type(fk.ops.unmask(fk.Input((5,))).node.layer).__name__
        'Unmask'
    """

    keras_module = "fkeras.ops"
    supports_masking = True

    def forward(self, context: Context, x: Any) -> Output:
        return Output(x)


def unmask(x: Any) -> Any:
    """x itself, whose mask goes no further.

    Args:
        x: a symbolic tensor, or an array.

    Example:
        >>> import fkeras as fk
        >>> ids = fk.Input((5,), dtype="int32")
        >>> words = fk.layers.Embedding(10, 4, mask_zero=True)(ids)
        >>> fk.layers.Flatten()(fk.ops.unmask(words)).shape
        (None, 20)
    """
    return Unmask()(x)

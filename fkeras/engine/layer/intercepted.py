"""`Intercepted`: a layer whose calls a function computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fkeras.engine.call.context import Context, Output
from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.layer.layer import Layer

#: `(path, layer, context, inputs, options) -> Output`
Around = Callable[[str, Layer, Context, tuple, Mapping[str, Any]], Output]


class Intercepted(Layer):
    """Passes each call of a layer to a function, which computes the output.

    The leaves are the layer's weights; other attributes are read from the layer.

    Args:
        layer: the layer.
        around: `(path, layer, context, inputs, options) -> Output`.
        path: the path of the layer in the outermost layer.
    """

    layer: Layer
    around: Around
    path: str = option(default="", convert=text(empty=True))

    # the inner layer handles masks and casts: `around` calls the layer with all checks
    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False
    # `around` may hold layers too, in a closure or as a bound method
    _child_fields: ClassVar[tuple[str, ...] | None] = ("layer",)

    @property
    def built(self) -> bool:
        return self.layer.built

    @property
    def stateful(self) -> bool:
        return self.layer.stateful

    @property
    def _where(self) -> str:
        return self.layer._where

    def _checked_forward(self, context: Context, *inputs: Any, **options: Any) -> Output:
        return self.around(self.path, self.layer, context, inputs, options)

    def forward(self, context: Context, *inputs: Any, **options: Any) -> Output:
        return self._checked_forward(context, *inputs, **options)

    def __getattr__(self, name: str) -> Any:
        # `layer` may not be joined yet, and private names such as `_leaves` belong to this object
        if name == "layer" or name.startswith("_"):
            layer: Any = super()  # `Layer` hides `__getattr__` from type checkers
            return layer.__getattr__(name)
        return getattr(self.layer, name)


def computed_layer(layer: Any) -> Any:
    """Returns the layer that a call computes: the layer inside an interception, or the layer itself."""
    return layer.layer if isinstance(layer, Intercepted) else layer

"""`Wrapper`: a layer around another layer, the base of those that change one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import jax

from fkeras.engine import Context, Layer, Output, option, subkey


def wrapped_layer(layer: Any) -> Layer:
    """A converter that takes a layer; a class or function is refused with what to write."""
    if isinstance(layer, Layer):
        return layer
    found = layer.__name__ if isinstance(layer, type) else type(layer).__name__
    remedy = f"Write {found}(...)." if isinstance(layer, type) else "Pass one: layers.Dense(8)."
    raise ValueError(
        f"expected a layer, received "
        f"{f'the class {found}' if isinstance(layer, type) else found}. {remedy}"
    )


class Wrapper(Layer):
    """Computes what the layer inside computes: the base of layers that change another one.

    A subclass overrides `forward`; weights, state and masks of the layer inside are looked after
    here.

    Args:
        layer: the layer inside.

    Shapes:
        those of the layer inside.

    Raises:
        ValueError: where `layer` is no layer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> class Doubled(fk.layers.Wrapper):
        ...     def forward(self, context, x):
        ...         inner = super().forward(context, x)
        ...         return fk.Output(2 * inner.value, updates=inner.updates)
        >>> layer = Doubled(fk.layers.Dense(1, kernel_initializer="ones"))
        >>> layer.build(jax.random.key(0), (None, 2))(jnp.ones((1, 2)))
        Array([[4.]], dtype=float32)
    """

    layer: Layer = option(convert=wrapped_layer)

    @property
    def supports_masking(self) -> bool:
        """Whether a mask may reach the layer inside."""
        return self.layer.supports_masking

    def loses_masks(self, masks: Sequence[Any]) -> bool:
        return self.layer.loses_masks(masks)

    @property
    def built(self) -> bool:
        return self.layer.built

    @property
    def stateful(self) -> bool:
        return self.layer.stateful

    @property
    def input_spec(self) -> Any:
        return self.layer.input_spec

    def build(self, key: jax.Array, *specs: Any) -> Self:
        if self.layer.built:
            return self
        return self.replace(layer=self.layer.build(subkey(key, "layer"), *specs))

    def init_state(self, *specs: Any) -> dict[str, Any]:
        inner = self.layer.init_state(*specs)
        return {"layer": inner} if inner else {}

    def forward(self, context: Context, *inputs: Any, **options: Any) -> Output:
        out = context.child("layer", mask=context.mask).run(self.layer, *inputs, **options)
        updates = {**context.state, "layer": out.updates} if out.updates else {}
        return Output(out.value, updates, out.losses, out.metrics, out.mask)

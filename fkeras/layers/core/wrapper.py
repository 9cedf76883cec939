"""`Wrapper`: the base class of layers that modify another layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax

from fkeras.layers.common import authoring as fk


def wrapped_layer(layer: fk.Layer) -> fk.Layer:
    """Returns `layer`; the converter of fields that hold a layer.

    Raises:
        ValueError: for other values; for a layer class the message shows how to instantiate the
            class.
    """
    if isinstance(layer, fk.Layer):
        return layer
    received = layer.__name__ if isinstance(layer, type) else type(layer).__name__
    remedy = f"Write {received}(...)." if isinstance(layer, type) else "Pass one: layers.Dense(8)."
    raise ValueError(
        f"expected a layer, received "
        f"{f'the class {received}' if isinstance(layer, type) else received}. {remedy}"
    )


class Wrapper(fk.KeepsTokens, fk.Layer):
    """Computes the wrapped layer; the base class of layers that modify another layer.

    A subclass overrides `forward`. This class builds the wrapped layer, and passes state, updates
    and masks to and from the wrapped layer.

    Args:
        layer: wrapped layer.

    Shapes:
        those of the wrapped layer.

    Raises:
        ValueError: where `layer` is not a layer.

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

    layer: fk.Layer = fk.option(convert=wrapped_layer)

    @property
    def supports_masking(self) -> bool:
        """Whether the wrapped layer supports masks."""
        return self.layer.supports_masking

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        return fk.loses_masks(self.layer, masks)

    @property
    def built(self) -> bool:
        return self.layer.built

    @property
    def stateful(self) -> bool:
        return self.layer.stateful

    @property
    def input_spec(self) -> Any:
        return self.layer.input_spec

    def build(self, key: jax.Array, *specs: fk.Tree) -> Self:
        # keep the weights of a layer that was built, or loaded, before it was wrapped
        if self.layer.built:
            return self
        return self.replace(layer=self.layer.build(fk.subkey(key, "layer"), *specs))

    def init_state(self, *specs: fk.Tree) -> dict[str, Any]:
        inner = self.layer.init_state(*specs)
        # no entry for a stateless layer: an empty dictionary would change the tree of the state
        return {"layer": inner} if inner else {}

    def _state_with_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
        inner = fk.state_with_cache(self.layer, size, *specs)
        return {**self.init_state(*specs), **({"layer": inner} if inner else {})}

    def _capacity(self, state: Mapping[str, Any]) -> int | None:
        return fk.tokens_of(self.layer)._capacity(state.get("layer", {}))

    def _keeps_tokens(self, inputs: tuple) -> bool:
        return fk.tokens_of(self.layer)._keeps_tokens(inputs)

    def _lengths_after(self, state: Mapping[str, Any], inputs: tuple, mask: fk.Tree) -> Any:
        return fk.tokens_of(self.layer)._lengths_after(state.get("layer", {}), inputs, mask)

    def _check_capacity(self, state: Mapping[str, Any], inputs: tuple, mask: fk.Tree) -> None:
        fk.tokens_of(self.layer)._check_capacity(state.get("layer", {}), inputs, mask)

    def forward(self, context: fk.Context, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        out = context.child("layer", mask=context.mask).run(self.layer, *inputs, **options)
        updates = {**context.state, "layer": out.updates} if out.updates else {}
        return fk.Output(out.value, updates, out.losses, out.metrics, out.mask)

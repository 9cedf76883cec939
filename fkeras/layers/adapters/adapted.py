"""`Adapted`: a frozen layer with adapters of the layer or of layers inside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.engine.layer.intercepted import Intercepted
from fkeras.engine.tree.sublayers import replace_children
from fkeras.engine.tree.walk import join_path
from fkeras.layers.adapters.adapter import Adapter, adapters_by_path
from fkeras.layers.adapters.kernels import (
    LOGITS,
    Logits,
    adapted_layers,
    apply_activation,
    float_layer,
    has_logits,
    kernel_of,
    without_activation,
)
from fkeras.layers.adapters.prompts import SoftPrompt
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.wrapper import Wrapper

#: the key of an adapter of the frozen layer itself; layers inside have keys such as "layer/query_dense"
BASE = "layer"


def inner_path(key: str) -> str:
    """Returns the path, in the frozen layer, of the layer that the adapter of a key adapts."""
    return key.removeprefix(BASE).removeprefix("/")


class Adapted(Wrapper):
    """Computes a frozen layer with adapters.

    `transforms.adapt` puts the layer in the place of the layer that it adapts, under the same name.
    Adapters of layers inside change the calls of these layers, so a layer that makes its children in
    `build`, such as `MultiHeadAttention`, keeps its class and configuration.

    Args:
        layer: the frozen layer.
        adapters: adapters by path: "layer" for the frozen layer, "layer/query_dense" for a layer
            inside, "layer/reverse_embeddings" for the untied logits of a `ReversibleEmbedding`.

    Shapes:
        those of the frozen layer.

    Raises:
        ValueError: for another value than a dictionary of adapters; in `build` for an adapter that
            cannot adapt its layer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> layer = fk.layers.Dense(1, kernel_initializer="ones").build(jax.random.key(0), (None, 2))
        >>> adapted = transforms.adapt(layer, "*", transforms.LoRA(rank=1), jax.random.key(1))
        >>> type(adapted).__name__, adapted.layer.trainable, adapted(jnp.ones((1, 2)))
        ('Adapted', False, Array([[2.]], dtype=float32))
    """

    adapters: Mapping[str, Any] = fk.option(convert=adapters_by_path)

    # the frozen layer casts its inputs itself
    _autocast: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layer", _frozen(self.layer))

    def replace(self, **fields: fk.Field) -> Self:
        """Returns a copy with other values in some fields; the layer inside stays frozen."""
        copy = super().replace(**fields)
        if not copy.layer.trainable:
            return copy
        return super(Adapted, copy).replace(layer=_frozen(copy.layer))

    @property
    def _keras_form(self) -> fk.KerasForm:  # type: ignore[override]
        """The form of the frozen layer's calls, under this class and its own groups of weights."""
        own = {"class_name": None, "groups": fk.FrozenDict(), "early_weights": ()}
        return dataclasses.replace(fk.keras_form(self.layer), quantized_as=None, **own)

    @property
    def built(self) -> bool:
        return self.layer.built and all(adapter.built for adapter in self.adapters.values())

    @property
    def _own(self) -> Adapter | None:
        """The adapter of the frozen layer itself."""
        return self.adapters.get(BASE)

    @property
    def prompt_ids(self) -> jax.Array:
        """The ids of the virtual tokens of a `SoftPrompt`; empty without a `SoftPrompt`."""
        count = self.id_count or 0
        return jnp.arange(count - self._virtual, count, dtype="int32")

    @property
    def _virtual(self) -> int:
        """The number of virtual tokens."""
        return self._own.length if isinstance(self._own, SoftPrompt) else 0

    @property
    def id_count(self) -> int | None:
        """Number of ids that the layer looks up; None for a layer without a lookup."""
        count = getattr(self.layer, "id_count", None)
        return None if count is None else count + self._virtual

    @property
    def axis_names(self) -> fk.AxisNames:
        names = self.layer.axis_names
        letters: dict[str, str] = {}
        for key, adapter in self.adapters.items():
            owner = self._inner(key)
            if owner is None or not owner.built or (kernel := kernel_of(owner)) is None:
                continue
            axes = fk.weight_letters(float_layer(owner)).get(kernel.name, "_" * len(kernel.shape))
            outer = names.weights.get(join_path(inner_path(key), kernel.name))
            if owner is not self.layer and outer is not None:
                # an attention layer has its own letters for the axes of its projections; packed codes
                # have those of some axes
                renamed = dict(zip(fk.weight_letters(owner)[kernel.name], outer, strict=True))
                axes = "".join(renamed.get(letter, "_") for letter in axes)
            for name, weight_letters in adapter.letters(kernel, axes).items():
                letters[f"adapters/{key}/{name}"] = weight_letters
        return fk.AxisNames(fk.FrozenDict(letters), names.roles, names.output)

    def _inner(self, key: str) -> Any:
        """Returns the layer that an adapter adapts; None if `build` has not made the layer yet."""
        path = inner_path(key)
        return next((layer for at, layer in adapted_layers(self.layer) if at == path), None)

    def build(self, key: jax.Array, *specs: fk.Tree) -> Self:
        base = super().build(key, *specs)
        adapters = {}
        for at, adapter in self.adapters.items():
            inner = base._inner(at)
            if inner is None:
                raise ValueError(f"{self._where}: has no layer {at!r} for the adapter {adapter!r}.")
            reason = adapter.refusal(inner)
            if reason is not None:
                raise ValueError(f"{self._where}: {at!r} cannot be adapted: {reason}.")
            salt = fk.subkey(key, f"adapters/{at}")
            adapters[at] = adapter if adapter.built else adapter.fitted(salt, inner)
        return base.replace(adapters=adapters)

    def forward(self, context: fk.Context, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        inner = context.child("layer", mask=context.mask)
        base = self._adapted_inside()

        def run(layer: Any, inputs: tuple) -> fk.Output:
            return inner.run(layer, *inputs, **options)

        key, view, reverse = _adapted_part(BASE, base, options)
        if key not in self.adapters:
            out = run(base, inputs)
        else:
            out = _compute(self.adapters[key], context, view, base, inputs, run, reverse)
        updates = {**context.state, "layer": out.updates} if out.updates else {}
        return dataclasses.replace(out, updates=updates)

    def _adapted_inside(self) -> Any:
        """Returns the frozen layer, inside which calls of adapted layers compute their adapters."""
        keys = {inner_path(key): key for key in self.adapters if key != BASE}
        if not keys or has_logits(self.layer):  # an embedding has no layers inside
            return self.layer

        def around(
            path: str, layer: Any, context: fk.Context, inputs: tuple, options: Mapping
        ) -> fk.Output:
            def run(layer: Any, inputs: tuple) -> fk.Output:
                return layer._checked_forward(context, *inputs, **options)

            place, view, reverse = _adapted_part(path, layer, options)
            if place not in keys:
                return run(layer, inputs)
            adapter = self.adapters[keys[place]]
            return _compute(adapter, context, view, layer, inputs, run, reverse)

        def change(path: str, layer: Any) -> Any:
            if isinstance(layer, Intercepted):
                # an interception shows the adapted output, and its layer has the same path
                inner = change(path, layer.layer)
                return layer if inner is layer.layer else layer.replace(layer=inner)
            layer = replace_children(layer, change, path)
            if path not in keys and not (has_logits(layer) and join_path(path, LOGITS) in keys):
                return layer
            marks = {"name": layer.name, "trainable": layer.trainable, "dtype": layer.dtype}
            return Intercepted(layer, around, path, **marks)

        return change("", self.layer)


def _adapted_part(place: str, layer: Any, options: Mapping) -> tuple[str, Any, bool]:
    """Returns the path of the adapter of a call, the layer or `Logits`, and whether it computes tied logits."""
    reverse = bool(options.get("reverse", False))
    if reverse and has_logits(layer):
        return f"{place}/{LOGITS}", Logits(layer), False
    return place, layer, reverse


def _compute(
    adapter: Adapter,
    context: fk.Context,
    view: Any,
    layer: Any,
    inputs: tuple,
    run: Callable[[Any, tuple], fk.Output],
    reverse: bool,
) -> fk.Output:
    """Computes a frozen layer with an adapter.

    Args:
        view: the layer, or its `Logits`.
        reverse: whether the call computes logits from the table of an embedding.
    """
    x, *more = inputs
    if adapter.changes_end:
        out = run(layer, inputs)
        return dataclasses.replace(out, value=adapter.after(context, view, x, out.value, reverse))
    out = run(without_activation(layer), (x if reverse else adapter.before(view, x), *more))
    y = adapter.after(context, view, x, out.value, reverse)
    y, losses = apply_activation(layer, y, reverse or isinstance(view, Logits))
    return dataclasses.replace(out, value=y, losses=(*out.losses, *losses))


def _frozen(layer: fk.Layer) -> fk.Layer:
    return layer.replace(trainable=False) if layer.trainable else layer

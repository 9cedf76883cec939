"""`Adapters`: the adapters of a model as a pytree, which models share or exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, overload

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.layer.layer import Layer
from fkeras.engine.layer.trainable import set_trainable
from fkeras.engine.messages.errors import suggest
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.models.partition import require_layer
from fkeras.engine.network.network import Network
from fkeras.layers.adapters.adapter import adapters_by_path
from fkeras.layers.adapters.kernels import adapted_layers
from fkeras.transforms.adapting.places import ROOT, put_in, take_out
from fkeras.transforms.comparison.fingerprinting import fingerprint

Model = TypeVar("Model", bound=Network)


class Adapters(Layer):
    """The adapters of a model: a pytree of their weights, with their configuration.

    The leaves are the weights of the adapters, so optax, `jax.grad` and `jax.vmap` take the
    value unchanged. `fk.save_weights` and `fk.load_weights` write and read the weights.
    `transforms.adapters` takes the adapters out of a model, `transforms.with_adapters` puts them into
    a model.

    Args:
        layers: the adapters by the path of the layer in the model without adapters.
        base: fingerprint of the model without adapters; None for any model.
        base_weights: fingerprint of that model with its weights; None for any weights.

    Raises:
        ValueError: if `layers` is no dictionary of adapters.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(rank=2), jax.random.key(1))
        >>> tree = transforms.adapters(adapted)
        >>> [leaf.shape for leaf in jax.tree.leaves(tree)], tree.layers["head"].rank
        ([(4, 2), (2, 3)], 2)
    """

    layers: Mapping[str, Any] = option(convert=adapters_by_path)
    base: str | None = option(default=None, convert=text(optional=True))
    base_weights: str | None = option(default=None, convert=text(optional=True))

    _child_fields: ClassVar[tuple[str, ...] | None] = ("layers",)


@hides_internal_frames
def adapters(model: Layer, weights: bool = False) -> Adapters:
    """Returns the adapters of a model as a pytree.

    Args:
        model: a model with adapters.
        weights: whether to include a fingerprint of the weights of the base, which reads all of them;
            `with_adapters` then rejects a base with other weights.

    Raises:
        ValueError: for a model without adapters.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(rank=2), jax.random.key(1))
        >>> transforms.adapters(adapted).layers["head"].b.shape
        (2, 3)
    """
    require_layer(model, "transforms.adapters")
    base, by_path = take_out(model)
    if not by_path:
        raise ValueError(
            f"transforms.adapters, {model._where}: has no adapters. Adapt it: transforms.adapt(model, "
            "pattern, transforms.LoRA(rank=8), key)."
        )
    base = set_trainable(base, False)
    return Adapters(
        by_path,
        base=fingerprint(base),
        base_weights=fingerprint(base, weights=True) if weights else None,
    )


@overload
def with_adapters(model: Model, tree: Adapters) -> Model: ...


@overload
def with_adapters(model: Layer, tree: Adapters) -> Any: ...


@hides_internal_frames
def with_adapters(model: Layer, tree: Adapters) -> Any:
    """Returns a model with these adapters, instead of any adapters that the model has.

    No array is copied. `jax.vmap` over stacked adapters computes several adapters of one base in one
    program:
    `jax.vmap(lambda tree: transforms.with_adapters(model, tree)(x))(stacked)`.

    Args:
        model: the base, or a model with adapters over the same base.
        tree: adapters from `transforms.adapters`, with any values of their weights.

    Raises:
        TypeError: if `tree` is no `Adapters`.
        ValueError: for adapters of another base, and for weights of other shapes.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="head")])
        >>> model = model.build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "head", transforms.LoRA(rank=2), jax.random.key(1))
        >>> tree = jax.tree.map(lambda array: array + 1, transforms.adapters(adapted))
        >>> transforms.adapters(transforms.with_adapters(model, tree)) == tree
        True
    """
    require_layer(model, "transforms.with_adapters")
    if not isinstance(tree, Adapters):
        raise TypeError(
            f"transforms.with_adapters: expected adapters, received {type(tree).__name__}. Pass the "
            "result of transforms.adapters(model), or a tree of the same class."
        )
    base = set_trainable(take_out(model)[0], False)
    _check_base(base, tree)
    inner = {path or ROOT: layer for path, layer in adapted_layers(base)}
    for path, adapter in tree.layers.items():
        if path not in inner:
            raise ValueError(
                f"transforms.with_adapters, {model._where}: has no layer {path!r}."
                f"{suggest(path, inner)} The adapters belong to another model."
            )
        reason = adapter.refusal(inner[path])
        shapes = {} if reason else adapter.expects(inner[path])
        differing = [n for n, size in shapes.items() if getattr(adapter, n).shape != size]
        if reason or differing:
            received = "" if reason else getattr(adapter, differing[0]).shape
            raise ValueError(
                f"transforms.with_adapters, {model._where}: {path!r}: "
                + (
                    reason
                    or f"expected {differing[0]!r} of shape {shapes[differing[0]]}, received "
                )
                + f"{received}. For stacked adapters call with_adapters inside jax.vmap."
            )
    return put_in(base, tree.layers)


def _check_base(base: Layer, tree: Adapters) -> None:
    if tree.base is not None and tree.base != fingerprint(base):
        raise ValueError(
            f"transforms.with_adapters, {base._where}: the adapters were made for another model: the "
            "fingerprints of configuration, graph and shapes differ. Load the base that was adapted, with "
            "the same quantization. To skip this check: tree.replace(base=None)."
        )
    if tree.base_weights is not None and tree.base_weights != fingerprint(base, weights=True):
        raise ValueError(
            f"transforms.with_adapters, {base._where}: the adapters were made for other weights of this "
            "model. Load the weights that were adapted, or pass tree.replace(base_weights=None)."
        )

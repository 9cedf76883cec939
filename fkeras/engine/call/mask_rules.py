"""Mask rules: how masks of inputs reach a call, and how its outputs get masks.

Every call in a graph has a rule:

| rule | origin of the call | a mask that reaches a layer without mask support | masks belong to |
|---|---|---|---|
| "strict" | models written with this library | is an error | outputs of calls |
| "drop" | files of Keras 1, Keras 2 and tf.keras | is dropped | outputs of calls |
| "keras" | files of Keras 3 | is dropped | arrays |

Keras 3 attaches masks to arrays while a model runs: a layer attaches a mask to its output, and every
later call on that array finds the mask, across the borders of nested models and wrappers. Four
consequences follow, which `AttachedMasks` reproduces:

- A layer without mask support drops the mask, unless the layer returns its input itself (`Permute`
  by the identity, `Reshape` to the same shape, `Dropout` in inference): the mask stays attached.
- A call with several tensors, such as `LSTM(...)(x, initial_state=[h, c])`, computes without the mask
  of `x`, although the mask is attached to the outputs.
- `MultiHeadAttention` detaches the masks of its query, value and key.
- An explicit mask of a call replaces the attached mask.

The rule also decides the order of calls at one depth of the graph, see `Graph.run_order`: a shared
layer with state updates the state call by call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.config_walk import mappings
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.structure import Branch, Ref

STRICT, DROP, KERAS = "strict", "drop", "keras"
RULES = (STRICT, DROP, KERAS)
#: the key of a rule in configurations of networks and of calls; Keras ignores the key
KEY = "mask_rule"

_MAKERS = ("Masking", "Lambda")
_NO_LAYERS = ("build_config", "compile_config")
_NETWORKS = ("Functional", "Sequential", "Model")


class AttachedMasks:
    """Masks by array during one run of a model, as Keras 3 attaches them.

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask, attached = jnp.ones((1, 2)), jnp.array([True]), AttachedMasks()
        >>> attached.attach(x, mask)
        >>> attached.of([x, jnp.ones(3)])
        [Array([ True], dtype=bool), None]
    """

    def __init__(self) -> None:
        # the arrays stay referenced, since Python reuses the id of a freed array
        self._masks: dict[int, tuple[Any, Any]] = {}

    def attach(self, array: Any, mask: Any) -> None:
        """Attaches a mask to an array instead of its previous mask; None detaches."""
        if mask is None:
            self._masks.pop(id(array), None)
        else:
            self._masks[id(array)] = (array, mask)

    def of_array(self, array: Any) -> Any:
        """The mask of an array, or None."""
        entry = self._masks.get(id(array))
        return None if entry is None else entry[1]

    def of(self, tree: Any) -> Any:
        """The masks of a tree of arrays in the same structure; None if no array has a mask."""
        masks = jax.tree.map(self.of_array, tree)
        return masks if jax.tree.leaves(masks) else None

    def follow(self, old: Any, new: Any) -> None:
        """Attaches the masks of the arrays in `old` to the arrays in `new`, cast from them."""
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        for old_array, new_array in pairs:
            if new_array is not old_array and self.of_array(old_array) is not None:
                self.attach(new_array, self.of_array(old_array))

    def separate(self, array: Any, mask: Any) -> Any:
        """The output of a call that follows another rule, with the mask that the call computed.

        A copy if the array has another mask: the array may be an input too, whose mask must stay.
        """
        if self.of_array(array) is mask:
            return array
        copy = jnp.array(array, copy=True)
        self.attach(copy, mask)
        return copy

    def complete(self, value: Any, mask: Any) -> Any:
        """Attaches computed masks to those outputs of a call that have no mask yet.

        Args:
            value: the outputs.
            mask: the masks that the layer computed, in the same structure.

        Returns:
            The masks of the outputs.
        """
        if mask is not None:
            outputs, treedef = jax.tree.flatten(value)
            for array, computed in zip(outputs, treedef.flatten_up_to(mask), strict=True):
                if computed is not None and self.of_array(array) is None:
                    self.attach(array, computed)
        return self.of(value)


def call_mask(layer: Any, rule: str, args: Branch, options: dict[str, Any], masks: Any) -> Any:
    """The mask that a call in a graph passes on to its layer.

    Args:
        layer: the layer.
        rule: the rule of the call.
        args: frozen tree of the positional arguments, `Ref(i)` for the tensor of `masks[i]`.
        options: the options; an explicit mask for the inputs is taken out.
        masks: mask of each tensor, or None.
    """
    explicit, mask = take_mask(layer, options)
    if not explicit and rule != KERAS:  # by "keras", the layer looks up the masks of its arrays
        mask = masks_of(args, masks)
    return None if rule == DROP and loses(layer, mask) else mask


def masks_of(args: Branch, masks: Any) -> Any:
    """The masks of a call's inputs in the structure of `Context.mask`; None if no input has a mask."""
    references = [leaf for leaf in structure.leaves(args) if isinstance(leaf, Ref)]
    if all(masks[r.index] is None for r in references):
        return None
    trees = structure.thaw(args, lambda v: masks[v.index] if isinstance(v, Ref) else None)
    return trees[0] if len(trees) == 1 else trees


def mask_leaves(value: Any, mask: Any) -> list[Any]:
    """The mask (or None) of each output in the frozen tree `value`; a single mask counts for all.

    Raises:
        FKerasError: for masks in another structure.
    """
    count = sum(isinstance(leaf, Ref) for leaf in structure.leaves(value))
    if mask is None:
        return [None] * count
    if is_array(mask) or hasattr(mask, "shape"):
        return [mask] * count
    leaves = structure.match(value, mask) if isinstance(value, Branch) else None
    if leaves is None:
        received = len(mask) if isinstance(mask, list | tuple | dict) else 1
        raise FKerasError(
            f"expected a mask for each of the {count} outputs, received {received} masks. Return a "
            "mask or None for each output in Output.mask, in the structure of the value."
        )
    return leaves


def with_output_masks(layer: Any, out: Any) -> Any:
    """The `Output` with its mask in the structure of the value; None if no output has a mask.

    Raises:
        FKerasError: for masks in another structure.
    """
    if out.mask is None:
        return out
    template, _ = structure.number(out.value)
    try:
        masks = mask_leaves(template, out.mask)
    except FKerasError as error:
        raise FKerasError(f"{layer.where}: {error}", layer=layer.where) from None
    if all(mask is None for mask in masks):
        return dataclasses.replace(out, mask=None)
    return dataclasses.replace(out, mask=structure.fill(template, masks))


def take_mask(layer: Any, options: dict[str, Any]) -> tuple[bool, Any]:
    """`(explicit, mask)`: whether the options hold a mask for the inputs, and that mask, removed.

    An argument `mask` with another meaning, such as that of `dot_product_attention`, stays an option.
    """
    if "mask" in options and layer.masks_inputs(options["mask"]):
        return True, options.pop("mask")
    return False, None


def receive_masks(layer: Any, context: Any, inputs: tuple, options: Mapping[str, Any]) -> bool:
    """Decides which mask a layer computes with, by the rule of the running call.

    By Keras 3's rule, an explicit mask reaches layers without mask support too, since Keras's `call`
    receives it; without an explicit mask, the masks attached to the inputs count.

    Returns:
        Whether the outputs get masks that the layer computes.

    Raises:
        FKerasError: by the other rules, for a mask at a layer without mask support.
    """
    if context.attached is None:
        if context.mask is not None and not layer.supports_masking:
            raise FKerasError(
                f"{layer.where}: received a mask, and this layer has no mask support. If its result "
                "may depend on masked steps, drop the mask where you mean to: fk.ops.unmask(x); if "
                "your layer treats every step alike, declare supports_masking = True.",
                layer=layer.where,
            )
        return True
    if context.mask is not None:
        return not loses(layer, context.mask)
    masks = context.attached.of(inputs)
    context.mask = None if masks is None else masks[0] if len(masks) == 1 else masks
    if loses(layer, context.mask):
        context.mask = None
    if any(map(is_array, jax.tree.leaves(dict(options)))):
        context.step_mask = None
    return True


def loses(layer: Any, mask: Any) -> bool:
    """Whether Keras drops this mask, or tree of masks, before it calls the layer."""
    if mask is None:
        return False
    return layer.loses_masks(jax.tree.leaves(mask, is_leaf=lambda m: m is None))


def check_rule(rule: Any, where: str) -> str:
    """Returns the rule of a configuration.

    Raises:
        FKerasError: for any other value.
    """
    if rule not in RULES:
        raise FKerasError(
            f"{where}: {KEY}: expected one of {', '.join(map(repr, RULES))}, received "
            f"{str(rule)[:80]!r}. Correct the configuration, or remove the key."
        )
    return rule


def read_rule(config: Mapping[str, Any], custom: Any, where: str) -> tuple[str, Mapping[str, Any]]:
    """`(rule, config)`: the rule of a network's calls, and the configuration with rules inside.

    A configuration without a rule comes from Keras 3. If the network can make masks or calls a layer
    twice, its calls and those of all nested networks follow the rule "keras". In all other networks
    the rules compute the same, and "strict" keeps files free of the extra key.

    Args:
        config: the configuration of a network.
        custom: user classes by name, or None.
        where: the network, for messages.
    """
    if KEY in config:
        return check_rule(config[KEY], where), config
    names = frozenset(custom or ())
    if not _rules_differ(config, lambda i: i["class_name"] in names or _is_foreign(i)):
        return STRICT, config
    return KERAS, with_rule(config, KERAS)


def written_rule(config: Mapping[str, Any], rule: str) -> dict[str, str]:
    """The entry for the rule in a network's configuration; empty if all rules compute the same."""
    return {KEY: rule} if rule != STRICT or _rules_differ(config, _is_foreign) else {}


def with_rule(config: Any, rule: str) -> Any:
    """The configuration of a model, with this rule for every network that has none.

    Example:
        >>> with_rule({"class_name": "Sequential", "config": {"layers": []}}, "drop")
        {'class_name': 'Sequential', 'config': {'layers': [], 'mask_rule': 'drop'}}
    """
    # no recursion: the depth of the configuration comes from a file
    root: list[Any] = [config]
    pending: list[tuple[Any, Any]] = [(root, 0)]
    while pending:
        parent, key = pending.pop()
        item = parent[key]
        if isinstance(item, list):
            copy: Any = list(item)
            pending.extend((copy, index) for index in range(len(copy)))
        elif isinstance(item, Mapping):
            copy = dict(item)
            inner = copy.get("config")
            if copy.get("class_name") in _NETWORKS and isinstance(inner, Mapping):
                if KEY not in inner:
                    copy["config"] = {**inner, KEY: rule}
            pending.extend((copy, name) for name in copy if name != "inbound_nodes")
        else:
            continue
        parent[key] = copy
    return root[0]


def makes_masks(config: Any, is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether a model may have masks: from a layer that makes masks, or from an explicit mask.

    Args:
        config: the configuration of a model.
        is_maker: returns whether any other object, `{"class_name": ..., "config": ...}`, may make masks.
    """
    return any(_makes_masks(item, is_maker) for item in mappings(config, _NO_LAYERS))


def _rules_differ(config: Any, is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether the rules may differ: with masks, or by the order of the calls of a shared layer."""
    return any(
        _makes_masks(item, is_maker) or _is_shared(item) for item in mappings(config, _NO_LAYERS)
    )


def _makes_masks(item: Mapping[str, Any], is_maker: Callable[[Mapping[str, Any]], bool]) -> bool:
    kind, inner = item.get("class_name"), item.get("config")
    if isinstance(kind, str) and isinstance(inner, Mapping):
        if kind in _MAKERS or inner.get("mask_zero") or is_maker(item):
            return True
    options = item.get("kwargs")
    return isinstance(options, Mapping) and _is_given(options.get("mask"))


def _is_shared(item: Mapping[str, Any]) -> bool:
    calls = item.get("inbound_nodes")
    return isinstance(calls, list) and len(calls) > 1


def _is_foreign(item: Mapping[str, Any]) -> bool:
    """Whether an object's class is in neither Keras nor this library."""
    module = item.get("module")
    return isinstance(module, str) and not f"{module}.".startswith(
        ("keras.", "fkeras.", "builtins.")
    )


def _is_given(mask: Any) -> bool:
    """Whether at least one mask is present; files hold None for a missing mask."""
    return any(map(_is_given, mask)) if isinstance(mask, list) else mask is not None

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

A table of masks by tensor cannot replace the masks by array: two calls of one nested network may pass
one array twice, or two arrays. A layer in the network that detaches the mask of its input then detaches
the mask of the other input too, or not, although both calls run one graph.

The rule also decides the order of calls at one depth of the graph, see `Graph.run_order`: a shared
layer with state updates the state call by call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config.keras_form import loses_masks
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Context, Layer, Leaf, Output, Tree
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.structure import Branch, Ref

STRICT, DROP, KERAS = "strict", "drop", "keras"
RULES = (STRICT, DROP, KERAS)


class AttachedMasks:
    """Masks by array during one run of a model, as Keras 3 attaches them.

    Args:
        arrays: arrays to which masks are attached at the start.
        masks: the mask of each array, or None.

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask, attached = jnp.ones((1, 2)), jnp.array([True]), AttachedMasks()
        >>> attached.attach(x, mask)
        >>> attached.of([x, jnp.ones(3)])
        [Array([ True], dtype=bool), None]
    """

    def __init__(self, arrays: Iterable[Any] = (), masks: Iterable[Any] = ()):
        # the arrays stay referenced, since Python reuses the id of a freed array
        self._masks: dict[int, tuple[Any, Any]] = {}
        for array, mask in zip(arrays, masks, strict=True):
            self.attach(array, mask)

    def attach(self, array: Leaf, mask: Tree) -> None:
        """Attaches a mask to an array instead of its previous mask; None detaches."""
        if mask is None:
            self._masks.pop(id(array), None)
        else:
            self._masks[id(array)] = (array, mask)

    def of_array(self, array: Leaf) -> Tree:
        """The mask of an array, or None."""
        entry = self._masks.get(id(array))
        return None if entry is None else entry[1]

    def of(self, tree: Tree) -> Any:
        """The masks of a tree of arrays in the same structure; None if no array has a mask."""
        masks = jax.tree.map(self.of_array, tree)
        return masks if jax.tree.leaves(masks) else None

    def receive(
        self, layer: Layer, context: Context, inputs: tuple, options: Mapping[str, Any]
    ) -> bool:
        """Decides which mask a layer computes with: an explicit mask, or the masks of its inputs.

        An explicit mask reaches layers without mask support too, since Keras's `call` receives it.

        Returns:
            Whether the outputs get masks that the layer computes.
        """
        if context.mask is not None:
            return not loses(layer, context.mask)
        masks = self.of(inputs)
        context.mask = None if masks is None else masks[0] if len(masks) == 1 else masks
        if loses(layer, context.mask):
            context.mask = None
        if any(map(is_array, jax.tree.leaves(dict(options)))):
            context.step_mask = None
        return True

    def follow(self, old: Tree, new: Tree) -> None:
        """Attaches the masks of the arrays in `old` to the arrays in `new`, cast from them."""
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        for old_array, new_array in pairs:
            if new_array is not old_array and self.of_array(old_array) is not None:
                self.attach(new_array, self.of_array(old_array))

    def separate(self, value: Tree, mask: Tree) -> Tree:
        """The outputs of a call that follows another rule, with the masks that the call computed.

        Copies an output that has another mask: the array may be an input too, whose mask must stay.
        """
        outputs, treedef, masks = _with_masks(value, mask)
        for index, computed in enumerate(masks):
            if self.of_array(outputs[index]) is not computed:
                outputs[index] = self._copy(outputs[index])
                self.attach(outputs[index], computed)
        return jax.tree.unflatten(treedef, outputs)

    def _copy(self, array: Leaf) -> Leaf:
        """Returns another array with the same elements."""
        return jnp.array(array, copy=True)

    def complete(self, value: Tree, mask: Tree) -> Tree:
        """Attaches computed masks to those outputs of a call that have no mask yet.

        Returns:
            The masks of the outputs.
        """
        outputs, _, masks = _with_masks(value, mask)
        for array, computed in zip(outputs, masks, strict=True):
            if computed is not None and self.of_array(array) is None:
                self.attach(array, computed)
        return self.of(value)


def _with_masks(value: Tree, mask: Tree) -> tuple[list[Any], Any, list[Any]]:
    """Returns outputs, their structure, and the mask of each output."""
    outputs, treedef = jax.tree.flatten(value)
    return outputs, treedef, [None] * len(outputs) if mask is None else treedef.flatten_up_to(mask)


def call_mask(
    layer: Layer, rule: str, args: Branch, options: dict[str, Any], mask_of: Callable[[int], Any]
) -> Tree:
    """The mask that a call in a graph passes on to its layer.

    Args:
        args: frozen tree of the positional arguments, `Ref(i)` for tensor i.
        options: the options; an explicit mask for the inputs is taken out.
        mask_of: returns the mask of a tensor by its number, or None.
    """
    explicit, mask = take_mask(layer, options)
    if not explicit and rule != KERAS:  # by "keras", the layer looks up the masks of its arrays
        mask = masks_of(args, mask_of)
    return None if rule == DROP and loses(layer, mask) else mask


def masks_of(args: Branch, mask_of: Callable[[int], Any]) -> Tree:
    """The masks of a call's inputs in the structure of `Context.mask`; None if no input has a mask."""
    trees = structure.thaw(args, lambda v: mask_of(v.index) if isinstance(v, Ref) else None)
    return None if not jax.tree.leaves(trees) else trees[0] if len(trees) == 1 else trees


def mask_leaves(value: Tree, mask: Tree) -> list[Any]:
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


def with_output_masks(layer: Layer, out: Any) -> Output:
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
        raise FKerasError(f"{layer._where}: {error}", layer=layer._where) from None
    if all(mask is None for mask in masks):
        return dataclasses.replace(out, mask=None)
    return dataclasses.replace(out, mask=structure.fill(template, masks))


def take_mask(layer: Layer, options: dict[str, Any]) -> tuple[bool, Any]:
    """`(explicit, mask)`: whether the options hold a mask for the inputs, and that mask, removed.

    An argument `mask` with another meaning, such as that of `dot_product_attention`, stays an option.
    """
    if "mask" in options and layer._masks_inputs(options["mask"]):
        return True, options.pop("mask")
    return False, None


def check_support(layer: Layer, mask: Tree) -> None:
    """Raises FKerasError for a mask that reaches a layer without mask support."""
    if mask is not None and not layer.supports_masking:
        raise FKerasError(
            f"{layer._where}: received a mask, and this layer has no mask support. If its result "
            "may depend on masked steps, drop the mask where you mean to: fk.ops.unmask(x); if "
            "your layer treats every step alike, declare supports_masking = True.",
            layer=layer._where,
        )


def loses(layer: Layer, mask: Tree) -> bool:
    """Whether Keras drops this mask, or tree of masks, before it calls the layer."""
    if mask is None:
        return False
    return loses_masks(layer, jax.tree.leaves(mask, is_leaf=lambda m: m is None))

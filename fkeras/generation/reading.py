"""Reads tokens with a model: the logits of the next token, and the state after the tokens.

A model with KV caches receives the new tokens only. A model without caches recomputes all tokens, and
its state holds the tokens. The body of the model runs at all positions, the head at the last position
only. Tensors that depend on the encoder's input alone are computed once: nested networks that join
encoder and decoder are inlined, so that these tensors include the keys and values of cross-attention.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from fkeras.authoring.engine import Tree, new_slots, run_calls, structure
from fkeras.authoring.layers import Quantized
from fkeras.authoring.transforms import runs_graph, with_depth
from fkeras.engine import Call, Layer, Model, Network, Output, sublayers
from fkeras.generation.caches import State, map_rows, row_axes, state_specs
from fkeras.generation.positions import Entry, Uses, follow, token_entry, whole_entry
from fkeras.layers import LayerNormalization, RMSNormalization
from fkeras.transforms import inline, replace_layers

#: a value and its mask, or None
Constant: TypeAlias = tuple[jax.Array, jax.Array | None]
#: by name, the inputs beside the token ids
Inputs: TypeAlias = Mapping[str, Constant]

_NORMALIZATIONS = (LayerNormalization, RMSNormalization)


@dataclasses.dataclass(frozen=True)
class Form:
    """The inputs and the vocabulary of a model, and whether the model has caches.

    Attributes:
        ids: the name of the input of the token ids.
        others: the names of the other inputs that have a value.
        cached: whether the model has KV caches; otherwise all tokens are recomputed.
        vocabulary: the number of tokens that may be sampled.
        stacked: for each leaf of the model, whether several models are stacked in the leaf; None for one
            model.
        positions: the number of positions that the tables of the model have; None without a table.
        scaled: whether the rotary positions of the model depend on the length of a text.
        boundaries: lengths of texts beyond which cached keys do not fit; see `Scaling.boundary`.
    """

    ids: str
    others: tuple[str, ...]
    cached: bool
    vocabulary: int
    stacked: tuple[bool, ...] | None = None
    positions: int | None = None
    scaled: bool = False
    boundaries: tuple[int, ...] = ()


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["model", "rows", "constants"],
    meta_fields=["form"],
)
@dataclasses.dataclass(frozen=True)
class Reader:
    """A model, and its tensors that do not depend on the token ids.

    Attributes:
        model: the model; the leaves of several models are stacked.
        rows: the index of the model of each row; None for one model.
        constants: tensors that depend only on inputs other than the ids; see `with_constants`.
        form: the inputs of the model, and whether the model has caches.
    """

    model: Any
    rows: jax.Array | None
    constants: tuple[Constant, ...]
    form: Form

    def read(
        self, state: State, ids: jax.Array, valid: jax.Array, *, last: bool = True
    ) -> tuple[jax.Array, State]:
        """Returns `(logits, state)`: float32 logits (b, v) of the next token, and the next state.

        Args:
            state: the state before these tokens.
            ids: new tokens, int32 (b, t), padded on the right.
            valid: bool (b, t), False for padding.
            last: False for the logits (b, t, v) after each token.
        """
        if self.rows is None:
            parts = parts_of(self.model, self.form)
            return _read(parts, self.form, self.constants, state, ids, valid, last)

        axes = self.row_axes(state)
        treedef = jax.tree.structure(self.model)

        def one_row(leaves: list, constants: list, state: State, ids: Any, valid: Any) -> Any:
            model = jax.tree.unflatten(treedef, leaves)
            pairs = zip(constants, per_row, strict=True)
            constants = [_expanded(c) if own else c for c, own in pairs]
            state = map_rows(jnp.expand_dims, state, axes)
            logits, state = _read(
                parts_of(model, self.form),
                self.form,
                constants,
                state,
                ids[None],
                valid[None],
                last,
            )
            return logits[0], map_rows(jnp.squeeze, state, axes)

        per_row = self.constants_per_row
        leaves, leaf_axes = self._own_leaves()
        constant_axes = [0 if own else None for own in per_row]
        state_axes = jax.tree.map(lambda axis: None if axis < 0 else axis, axes)
        return jax.vmap(
            one_row,
            in_axes=(leaf_axes, constant_axes, state_axes, 0, 0),
            out_axes=(0, state_axes),
        )(leaves, list(self.constants), state, ids, valid)

    def with_constants(self, inputs: Inputs) -> Reader:
        """Returns the reader with the tensors that depend only on the other inputs.

        Args:
            inputs: the values of the inputs `form.others`.
        """
        if not inputs:
            return self
        if self.rows is None:
            constants = _constants(parts_of(self.model, self.form), self.form, inputs)
            return dataclasses.replace(self, constants=tuple(constants))
        treedef, per_row = jax.tree.structure(self.model), self.constants_per_row

        def one_row(leaves: list, inputs: Inputs) -> list[Constant]:
            parts = parts_of(jax.tree.unflatten(treedef, leaves), self.form)
            values = zip(_constants(parts, self.form, _expanded(inputs)), per_row, strict=True)
            return [jax.tree.map(lambda a: a[0], c) if own else c for c, own in values]

        leaves, leaf_axes = self._own_leaves()
        axes = [0 if own else None for own in per_row]
        constants = jax.vmap(one_row, in_axes=(leaf_axes, 0), out_axes=axes)(leaves, dict(inputs))
        return dataclasses.replace(self, constants=tuple(constants))

    @property
    def constants_per_row(self) -> tuple[bool, ...]:
        """For each constant, whether axis 0 is the batch axis."""
        return parts_of(self.any_model(), self.form).per_row

    def row_axes(self, state: State) -> Any:
        """Returns the batch axis of each leaf of a state, -1 for a leaf without a batch axis."""
        if self.form.cached:
            return row_axes(self.any_model())
        own = jax.tree.map(lambda _: -1, state["model"])
        return {**dict.fromkeys(state, 0), "model": own}

    def repeat(self, count: int) -> Reader:
        """Returns the reader of a batch that repeats each row `count` times."""
        pairs = zip(self.constants, self.constants_per_row, strict=True)
        constants = tuple(
            jax.tree.map(lambda a: jnp.repeat(a, count, axis=0), c) if own else c
            for c, own in pairs
        )
        rows = None if self.rows is None else jnp.repeat(self.rows, count)
        return dataclasses.replace(self, constants=constants, rows=rows)

    @functools.cached_property
    def has_packed_codes(self) -> bool:
        """Whether a layer of the model has packed 4-bit codes; False for several models."""
        layers = sublayers(self.model) if self.rows is None else ()
        return any(isinstance(x, Quantized) and x.has_packed_codes for _, x in layers)

    def unpacked(self) -> Reader:
        """Returns the reader of the model with unpacked codes; see `Quantized.unpacked`."""

        def change(path: str, layer: Layer) -> Layer | None:
            return layer.unpacked() if isinstance(layer, Quantized) else None

        return dataclasses.replace(self, model=replace_layers(self.model, change))

    def with_wide_scales(self) -> Reader:
        """Returns the reader whose normalizations have float32 in place of 16-bit scales, with equal results.

        Normalizations compute in float32: outside of a loop the scales are cast once.
        """
        if self.rows is not None:
            return self

        def change(path: str, layer: Layer) -> Layer | None:
            policy = layer.dtype
            is_half = policy.variable_dtype == policy.compute_dtype in ("bfloat16", "float16")
            if not isinstance(layer, _NORMALIZATIONS) or not is_half:
                return None
            wide = jax.tree.map(lambda leaf: leaf.astype("float32"), layer)
            return wide.replace(dtype=f"mixed_{policy.compute_dtype}")

        return dataclasses.replace(self, model=replace_layers(self.model, change))

    def any_model(self) -> Network:
        """Returns one of the models, which all have the same graph."""
        if self.form.stacked is None:
            return self.model
        leaves, treedef = jax.tree.flatten(self.model)
        pairs = zip(leaves, self.form.stacked, strict=True)
        return jax.tree.unflatten(treedef, [leaf[0] if own else leaf for leaf, own in pairs])

    def _own_leaves(self) -> tuple[list[jax.Array], list[int | None]]:
        assert self.form.stacked is not None
        assert self.rows is not None
        pairs = [*zip(jax.tree.leaves(self.model), self.form.stacked, strict=True)]
        leaves = [leaf[self.rows] if own else leaf for leaf, own in pairs]
        return leaves, [0 if own else None for _, own in pairs]


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a model.

    Attributes:
        model: computes a list of tensors from a list of tensors.
        missing: the number of optional inputs without a value, which come last.
    """

    model: Network
    missing: int

    def run(
        self, inputs: Sequence[Any], state: Mapping[str, Any], masks: Sequence[Any] = ()
    ) -> Output:
        """Returns the output; its value is a list."""
        own = {name: state[name] for name in self.model.layers if name in state}
        values = [*inputs, *[None] * self.missing]
        masks = [*masks, *[None] * (len(values) - len(masks))]
        mask = None if all(mask is None for mask in masks) else masks
        return self.model.apply(values, state=own, mask=mask)


@dataclasses.dataclass(frozen=True)
class Parts:
    """The three parts of a model: encoder, body and head.

    Attributes:
        encoder: computes the constants from the inputs other than the ids.
        body: computes the hidden states of all positions from ids and constants.
        head: computes the logits from the hidden states; None if the body computes the logits.
        opened: the names of the inlined networks, each with the names of its layers.
        per_row: for each constant, whether axis 0 is the batch axis.
    """

    encoder: Part | None
    body: Part
    head: Part | None
    opened: tuple[tuple[str, tuple[str, ...]], ...]
    per_row: tuple[bool, ...]


def parts_of(model: Network, form: Form) -> Parts:
    """Returns the parts of a model."""
    opened: list[tuple[str, tuple[str, ...]]] = []
    while (name := (uses := _Uses(model, form)).joining_network()) is not None:
        nested = model.layers[name]
        assert isinstance(nested, Network)
        opened.append((name, tuple(nested.layers)))
        model = inline(model, name)
    graph = model.graph
    (end,) = graph.output_slots
    inputs = dict(zip(graph.input_names, graph.input_slots, strict=True))
    cut = _head_inputs(model, form, uses)
    encoder = (
        _part(model, [inputs[n] for n in form.others], uses.constants) if uses.constants else None
    )
    return Parts(
        encoder,
        _part(model, [inputs[form.ids], *uses.constants], cut),
        None if cut == [end] else _part(model, cut, [end]),
        tuple(opened),
        tuple(isinstance(graph.specs[slot].dims[0], str) for slot in uses.constants),
    )


def _part(model: Network, starts: list[int], ends: list[int]) -> Part:
    """Returns the part of a model from the slots `starts` to the slots `ends`."""
    graph, missing = model.graph, list[int]()
    pending, seen = list(ends), set(starts)
    while pending:
        slot = pending.pop()
        if slot not in seen:
            seen.add(slot)
            call = graph.calls[graph.producer(slot)[0]]
            missing.extend([slot] if call.is_input else ())
            pending.extend(call.inputs)
    tensors = [
        [model.tensor(*graph.coords[s]) for s in slots] for slots in ([*starts, *missing], ends)
    ]
    # equal blocks are traced once
    part = with_depth(Model(*tensors, dtype=model.dtype), "share")
    return Part(part, len(missing))


class _Uses:
    """The tensors of a model that depend on the token ids.

    Attributes:
        kinds: for each slot "ids" if the slot depends on the ids, "other" if it depends on other inputs
            only, "free" if it depends on no input with a value.
        constants: slots of the kind "other" used by calls that depend on the ids.
    """

    def __init__(self, model: Network, form: Form):
        graph = model.graph
        self.model = model
        kinds = {form.ids: "ids", **dict.fromkeys(form.others, "other")}
        self.kinds = new_slots(graph, [kinds.get(name, "free") for name in graph.input_names])
        self.calls: list[tuple[int, Call]] = []
        run_calls(graph, self.kinds, self._kind)
        used = dict.fromkeys(slot for _, call in self.calls for slot in call.inputs)
        self.constants = [slot for slot in used if self.kinds[slot] == "other"]

    def _kind(self, number: int, call: Call) -> Tree:
        kinds = {self.kinds[slot] for slot in call.inputs}
        kind = next((kind for kind in ("ids", "other") if kind in kinds), "free")
        if kind == "ids":
            self.calls.append((number, call))
        return structure.fill(call.value, [kind] * len(call.outputs))

    def joining_network(self) -> str | None:
        """Returns the name of a nested network that takes both ids and constants."""
        for _, call in self.calls:
            layer = self.model.layers[call.layer]
            joins = any(self.kinds[slot] == "other" for slot in call.inputs)
            if joins and isinstance(layer, Network) and layer.graph is not None:
                # a class that overrides `forward` is not inlined
                if runs_graph(layer) and not call.signature.options.children:
                    return call.layer
        return None


def _head_inputs(model: Network, form: Form, uses: _Uses) -> list[int]:
    """Returns the slots after which the model computes each position separately: the inputs of the head."""
    graph = model.graph
    (end,) = graph.output_slots
    found = positions_of(model, form)
    if found is None:
        return [end]
    users: dict[int, set[int]] = {}
    for number, call in uses.calls:
        for slot in call.inputs:
            users.setdefault(slot, set()).add(number)
    head, frontier = set[int](), {end: None}
    while True:
        # a call stays in the body if the body uses its result
        ready = [
            number
            for number in (graph.producer(slot)[0] for slot in frontier)
            if number in found.separate
            and all(users.get(s, set()) <= head for s in graph.output_slots_of(number))
            # the gather needs the positions in axis 1 of every input
            and all(found.axes[s] == 1 for s in graph.calls[number].inputs)
        ]
        if not ready:
            return [*frontier]
        head.update(ready)
        made = {slot for number in ready for slot in graph.output_slots_of(number)}
        taken = dict.fromkeys(slot for number in ready for slot in graph.calls[number].inputs)
        frontier = {slot: None for slot in (*frontier, *taken) if slot not in made}


def positions_of(model: Network, form: Form) -> Uses | None:
    """Classifies the calls by their use of positions; returns None for a fixed number of positions."""
    leaves, structure = jax.tree.flatten(model)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return _positions_of(structure, shapes, Form(form.ids, form.others, form.cached, 1))


# cached: the check of a model, prefill and decoding need the result
@functools.lru_cache(maxsize=64)
def _positions_of(structure: Any, shapes: tuple, form: Form) -> Uses | None:
    model = structure.unflatten([jax.ShapeDtypeStruct(*shape) for shape in shapes])
    graph, kinds = model.graph, _Uses(model, form).kinds
    entries: list[Entry | None] = []
    for slot in graph.input_slots:
        spec = graph.specs[slot]
        if kinds[slot] == "ids" and isinstance(spec.dims[1], int):
            return None
        # sizes of an encoder's input that differ from the numbers of positions
        sizes = [s if isinstance(s, int) else (2, 17)[min(i, 1)] for i, s in enumerate(spec.dims)]
        whole = whole_entry(jax.ShapeDtypeStruct(tuple(sizes), spec.dtype))
        entries.append({"ids": token_entry(spec.dtype), "other": whole}.get(kinds[slot]))
    state = state_specs(model)
    return follow(model, entries, state, state_specs(model, 2, 64) if form.cached else state)


def _constants(parts: Parts, form: Form, inputs: Inputs) -> list[Constant]:
    assert parts.encoder is not None
    values, masks = zip(*(inputs[name] for name in form.others), strict=True)
    out = parts.encoder.run(values, {}, masks)
    masks = [None] * len(out.value) if out.mask is None else out.mask
    return [*zip(out.value, masks, strict=True)]


def _read(
    parts: Parts,
    form: Form,
    constants: Sequence[Constant],
    state: State,
    ids: jax.Array,
    valid: jax.Array,
    last: bool,
) -> tuple[jax.Array, State]:
    count = jnp.sum(valid, axis=1, dtype=jnp.int32)
    values, masks = [c[0] for c in constants], [c[1] for c in constants]
    if form.cached:
        before, opened = jnp.zeros_like(count), _open_state(state, parts)
        out = parts.body.run([ids, *values], opened, [valid, *masks])
        opened = {**opened, **out.updates}
        state = _close_state(opened, parts)
    else:
        before, rows = state["length"], jnp.arange(ids.shape[0])[:, None]
        # `drop`: the index of padding is out of bounds
        places = jnp.where(
            valid, before[:, None] + jnp.arange(ids.shape[1])[None], state["ids"].shape[1]
        )
        tokens = state["ids"].at[rows, places].set(ids, mode="drop")
        opened = _open_state(state["model"], parts)
        # other models are causal: padding behind the text changes nothing
        held = jnp.arange(tokens.shape[1])[None] < (before + count)[:, None]
        mask = held if form.scaled else None
        out = parts.body.run([tokens, *values], opened, [mask, *masks])
        state = {**state, "ids": tokens, "length": before + count}
    if last:
        index = jnp.maximum(before + count - 1, 0)[:, None]
    else:
        index = before[:, None] + jnp.arange(ids.shape[1])[None]
    hidden = [_gather(value, index) for value in out.value]
    logits = hidden[0] if parts.head is None else parts.head.run(hidden, opened).value[0]
    logits = logits[..., : form.vocabulary].astype(jnp.float32)
    return (logits[:, 0] if last else logits), state


def _expanded(tree: Tree) -> Any:
    return jax.tree.map(lambda a: a[None], tree)


def _gather(value: jax.Array, index: jax.Array) -> jax.Array:
    if value.shape[1] == index.shape[1]:
        return value
    index = index.reshape(*index.shape, *[1] * (value.ndim - 2))
    return jnp.take_along_axis(value, index, axis=1)


def _open_state(state: Mapping[str, Any], parts: Parts) -> dict[str, Any]:
    """Returns the state under the layer names of the inlined model."""
    opened = dict(state)
    for name, _ in parts.opened:
        opened.update({f"{name}_{key}": value for key, value in opened.pop(name, {}).items()})
    return opened


def _close_state(state: Mapping[str, Any], parts: Parts) -> dict[str, Any]:
    closed = dict(state)
    for name, layers in reversed(parts.opened):
        inner = {key: closed.pop(f"{name}_{key}") for key in layers if f"{name}_{key}" in closed}
        if inner:
            closed[name] = inner
    return closed

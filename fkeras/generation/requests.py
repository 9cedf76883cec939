"""Checks and converts the arguments of `fk.generate`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.authoring.engine import check_key, describe_value, id_tables
from fkeras.engine import FKerasError, InputLayer, Network, sublayers
from fkeras.generation.caches import state_specs
from fkeras.generation.decoding import Prompt
from fkeras.generation.positions import position_count
from fkeras.generation.reading import Constant, Form, Reader, positions_of
from fkeras.generation.samplers.grammars import Constraint
from fkeras.generation.samplers.rules import Beam, Sampler
from fkeras.layers.rotary import Scaling

WHERE = "fk.generate"


def is_traced(tree: Any) -> bool:
    """Returns whether a tree contains a tracer."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def check_model(model: Any, what: str = "model") -> Network:
    """Returns `model` after checking that it is a built model with one output of logits (b, t, v).

    Raises:
        TypeError: for a value that is no model.
        ValueError: for an unbuilt model, and for other outputs.
    """
    if not isinstance(model, Network):
        raise TypeError(
            f"{WHERE}: expected a model for `{what}`, received {describe_value(model)}. Pass a fk.Model "
            "from token ids to logits; of a loaded model pass loaded.model."
        )
    if not model.built:
        raise ValueError(
            f"{WHERE}: {model._where} has no weights yet. Build it first: `model = "
            "model.build(jax.random.key(0))`."
        )
    graph = model.graph
    specs = [graph.specs[slot] for slot in graph.output_slots]
    if len(specs) != 1 or len(specs[0].dims) != 3 or not isinstance(specs[0].dims[2], int):
        shapes = ", ".join(map(str, specs))
        raise ValueError(
            f"{WHERE}: expected a model with one output of logits (b, t, vocabulary), received "
            f"{model._where} with the outputs {shapes}. Cut the other outputs off with "
            "transforms.cut(model, outputs=name)."
        )
    if isinstance(model.outputs, Mapping) and [*model.outputs] == ["hidden"]:
        raise ValueError(
            f"{WHERE}: expected a model with one output of logits (b, t, vocabulary), received "
            f"{model._where} with the output 'hidden'. Load a checkpoint of a language model, whose class "
            "has a name such as LlamaForCausalLM."
        )
    return model


def reader_of(
    models: Any, rows: Any, batch: int, others: Any, vocabulary: int | None, cache: bool | None
) -> tuple[Reader, dict[str, Constant]]:
    """Returns the reader of one or several models, and the inputs other than the ids by name.

    Args:
        others: the arguments `inputs` and `inputs_mask` of `generate`.
    """
    several = isinstance(models, list | tuple)
    if several and not models:
        raise ValueError(f"{WHERE}: expected a model or a list of models, received an empty list.")
    model = check_model(models[0] if several else models)
    ids, inputs = _inputs(model, others[0], others[1], batch)
    size = _vocabulary(model, vocabulary)
    names = tuple(inputs)
    cached = _is_cached(model, ids, names, cache)
    positions, scaled, boundaries = _limits(*_shapes(model), ids)
    form = Form(
        ids,
        names,
        cached,
        size,
        positions=positions,
        scaled=scaled,
        boundaries=boundaries if cached else (),
    )
    if not several:
        if rows is not None:
            raise ValueError(
                f"{WHERE}: expected a list of models beside rows, received one model. Pass "
                "[model_a, model_b] with rows=[0, 1, ...], or leave rows out."
            )
        return Reader(model, None, (), form), inputs
    stacked, own = _stacked([check_model(one) for one in models])
    if rows is None:
        if len(models) != batch:
            raise ValueError(
                f"{WHERE}: expected rows=, the number of the model of each row, for {len(models)} models "
                f"and {batch} rows. Pass {batch} integers from 0 to {len(models) - 1}."
            )
        rows = np.arange(batch)
    rows = integers(rows, "rows", (batch,), 0, len(models) - 1)
    return Reader(stacked, rows, (), dataclasses.replace(form, stacked=own)), inputs


# cached, as `_mixing_layers`
@functools.lru_cache(maxsize=64)
def _limits(structure: Any, shapes: tuple, ids: str) -> tuple[int | None, bool, tuple[int, ...]]:
    """Returns `positions`, `scaled` and `boundaries` of `Form`."""
    model = structure.unflatten([jax.ShapeDtypeStruct(*shape) for shape in shapes])
    found = (getattr(layer, "scaling", None) for _, layer in sublayers(model))
    scalings = [s for s in found if isinstance(s, Scaling) and s.needs_length]
    boundaries = tuple(sorted({s.boundary for s in scalings if s.boundary is not None}))
    return position_count(model, ids), bool(scalings), boundaries


def _shapes(model: Network) -> tuple[Any, tuple]:
    leaves, structure = jax.tree.flatten(model)
    return structure, tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves)


def _inputs(model: Network, inputs: Any, masks: Any, batch: int) -> tuple[str, dict[str, Constant]]:
    """Returns the name of the input of the ids, and the other inputs with their masks by name."""
    names = model.graph.input_names
    required = _required(model) or [*names]
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        several = inputs if isinstance(inputs, list | tuple) else [inputs]
        values = [] if inputs is None else [*several]
        # Keras's order: the input of the encoder, then that of the decoder
        given = dict(zip(required[:-1], values, strict=False))
        if len(values) != len(required) - 1:
            raise ValueError(
                f"{WHERE}: {model._where} takes {', '.join(required)}: expected "
                f"{len(required) - 1} inputs beside the ids of {required[-1]!r}, received {len(values)}. "
                "Pass inputs= as a list of arrays, or as a dictionary by these names."
            )
    rest = [name for name in required if name not in given]
    unknown = [name for name in given if name not in names]
    if unknown or len(rest) != 1:
        raise ValueError(
            f"{WHERE}: {model._where} takes {', '.join(names)}: expected `inputs` with all but one of "
            f"them, received {', '.join(map(str, given)) or 'none'}. The ids of the prompt are the "
            "remaining input."
        )
    slot = model.graph.input_slots[names.index(rest[0])]
    spec = model.graph.specs[slot]
    if len(spec.dims) != 2 or not spec.dtype.startswith(("int", "uint")):
        raise ValueError(
            f"{WHERE}: expected token ids (b, t) of an integer dtype as the input {rest[0]!r} of "
            f"{model._where}, received an input {spec} of {spec.dtype}. Declare it with "
            "fk.Input((None,), dtype='int32')."
        )
    given = {name: value for name, value in given.items() if value is not None}
    for index, layer, count in id_tables(model):
        if (name := names[index]) in given:
            ids = given[name] if is_traced(given[name]) else np.asarray(given[name])
            noun = f"ids of {layer!r} in the input {name!r}"
            _check_range(ids, count, noun, "Pass ids of the tokenizer of this model.")
    arrays = {name: jnp.asarray(value) for name, value in given.items()}
    if masks is not None and not arrays:
        raise ValueError(
            f"{WHERE}: expected inputs_mask beside inputs, whose padding the mask marks, received no "
            "inputs. For padded prompts pass lengths=."
        )
    if not isinstance(masks, Mapping):
        masks = {} if masks is None else dict.fromkeys([*arrays][:1], masks)
    for kind, values in (("input", arrays), ("mask of the input", masks)):
        for name, value in values.items():
            shape = np.shape(value)
            if name not in arrays or shape[:1] != (batch,):
                raise ValueError(
                    f"{WHERE}: expected {batch} rows, as in ids, in the {kind} {name!r}, received the "
                    f"shape {shape}. Masks belong to {', '.join(arrays) or 'no input'}."
                )
    return rest[0], {
        name: (value, jnp.asarray(masks[name], bool) if name in masks else None)
        for name, value in arrays.items()
    }


def check_draft(draft: Any, model: Network, vocabulary: int | None) -> None:
    """Raises an error for a draft that is no model and state, or has another vocabulary.

    Args:
        model: the model that verifies the tokens.
        vocabulary: the argument `vocabulary_size` of `generate`.
    """
    if not isinstance(draft, tuple) or len(draft) != 2:
        received = draft._where if isinstance(draft, Network) else describe_value(draft)
        raise TypeError(
            f"{WHERE}: expected draft as (model, state), received {received}. Pass draft=(model, None)."
        )
    guesser = check_model(draft[0], "draft")
    total, own = logits_of(model), logits_of(guesser)
    # with vocabulary_size the padding of the two vocabularies may differ
    if own != total if vocabulary is None else own < vocabulary:
        raise ValueError(
            f"{WHERE}: expected a draft model with the vocabulary of {model._where}, {total} tokens, "
            f"received {guesser._where} with {own} tokens. Use a draft model with the same tokenizer; if "
            "only the padding of the vocabularies differs, pass vocabulary_size=tokenizer.size."
        )


def inputs_for(model: Network, inputs: Any, masks: Any) -> tuple[Any, Any]:
    """Returns the other inputs of a draft model: None for a draft model of one input."""
    return (inputs, masks) if len(_required(model)) > 1 else (None, None)


def _required(model: Network) -> list[str]:
    """Returns the names of the inputs that are not optional."""
    layers = ((name, model.layers[name]) for name in model.graph.input_names)
    return [name for name, x in layers if not (isinstance(x, InputLayer) and x.optional)]


def _vocabulary(model: Network, size: int | None) -> int:
    total = logits_of(model)
    if size is None:
        return total
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 0 < size <= total:
        raise ValueError(
            f"{WHERE}: expected vocabulary_size from 1 to {total}, the number of logits of "
            f"{model._where}, received {size!r}."
        )
    return int(size)


def _is_cached(model: Network, ids: str, others: tuple[str, ...], cache: bool | None) -> bool:
    if cache is not None and not isinstance(cache, bool):
        raise TypeError(
            f"{WHERE}: expected True, False or None for cache, received {describe_value(cache)}. The "
            "dtype of the caches is an option of the layers: layers.DotProductAttention(cache='int8')."
        )
    if cache is False:
        return False
    try:
        mixing = _mixing(model, ids, others)
    except (FKerasError, TypeError, ValueError) as error:
        if not others:
            raise
        raise ValueError(
            f"{WHERE}: expected inputs that do not depend on the number of tokens, such as the input of "
            f"an encoder, received {', '.join(others)}: {error} Leave inputs with a value for each token "
            "out, such as segments: each row of ids is one text."
        ) from error
    if mixing == ():
        return True
    if cache is None:
        return False
    if mixing is None:
        found = "no layer of this model has a cache"
    else:
        found = f"{', '.join(mixing[:4])} need the earlier tokens and have no cache"
    raise ValueError(
        f"{WHERE}: expected a model with caches for cache=True, but {found}. Use "
        "layers.DotProductAttention with layers.Positions, or cache=None, which recomputes all tokens "
        "for each new token."
    )


def _mixing(model: Network, ids: str, others: tuple[str, ...]) -> tuple[str, ...] | None:
    return _mixing_layers(*_shapes(model), ids, others)


# cached: the analysis traces all layers, and each `generate` needs the result
@functools.lru_cache(maxsize=64)
def _mixing_layers(
    structure: Any, shapes: tuple, ids: str, others: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Returns the layers that mix positions without a cache; None for a model without caches."""
    model = structure.unflatten([jax.ShapeDtypeStruct(*shape) for shape in shapes])
    if jax.tree.structure(state_specs(model)) == jax.tree.structure(state_specs(model, 2, 64)):
        return None
    found = positions_of(model, Form(ids, others, True, 1))
    return None if found is None else found.mixing


def _stacked(models: Sequence[Network]) -> tuple[Network, tuple[bool, ...]]:
    """Returns a model with stacked leaves, and for each leaf whether it is stacked or shared."""
    trees = [jax.tree.flatten(model) for model in models]
    structure = trees[0][1]
    for number, (_, other) in enumerate(trees):
        if other != structure:
            raise ValueError(
                f"{WHERE}: expected models that differ in arrays alone, but model {number} differs from "
                "model 0 in its layers. Give each the same layers, such as an adapter or an edit of "
                "zeros: print(transforms.diff(models[0], models[1]))."
            )
    leaves, own = [], []
    for group in zip(*(leaves for leaves, _ in trees), strict=True):
        shapes = {leaf.shape for leaf in group}
        if len(shapes) > 1:
            raise ValueError(
                f"{WHERE}: expected models whose weights have equal shapes, received "
                f"{' and '.join(map(str, sorted(shapes)))}. Adapters of one program have one rank."
            )
        is_own = any(leaf is not group[0] for leaf in group)
        leaves.append(jnp.stack(group) if is_own else group[0])
        own.append(is_own)
    return jax.tree.unflatten(structure, leaves), tuple(own)


def check_state(state: Any) -> None:
    """Raises an error for a value that is no state."""
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(
            f"{WHERE}: expected state as a dictionary, such as model.init_state(), or None, received "
            f"{describe_value(state)}. The ids are the third argument: fk.generate(model, None, ids)."
        )


def integers(values: Any, name: str, shape: tuple[int, ...], least: int, most: int) -> jax.Array:
    """Returns an argument with an integer from `least` to `most` for each row."""
    array: Any = values if isinstance(values, jax.Array | np.ndarray) else np.asarray(values)
    if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"{WHERE}: expected {name} as integers of shape {shape}, one for each row, received {array.dtype} "
            f"of shape {array.shape}."
        )
    if not isinstance(array, Tracer) and not np.all((array >= least) & (array <= most)):
        raise ValueError(
            f"{WHERE}: expected {name} from {least} to {most}, received {np.asarray(array).tolist()}."
        )
    # NumPy stays NumPy: `jnp.asarray` compiles a program
    return array.astype("int32")


def check_causal(reader: Reader, causal: jax.Array) -> None:
    """Raises ValueError for a model without caches whose logits depend on later tokens."""
    if not is_traced(causal) and not bool(causal):
        raise ValueError(
            f"{WHERE}: {reader.any_model()._where} has no caches and is not causal, or its logits are "
            "not finite: the logits of the next token depend on later tokens. Use a causal mask, such "
            "as use_causal_mask=True in MultiHeadAttention."
        )


def check_ids(prompt: Prompt, model: Network, size: int | None = None) -> Prompt:
    """Returns the prompt with int32 ids; raises an error for ids outside of the vocabulary.

    Args:
        size: the number of ids; None for all that the model has.
    """
    # before the cast, which would wrap large ids around
    size = logits_of(model) if size is None else size
    _check_range(prompt.ids, size, "ids", "Pass lengths= if the rows are padded.")
    return prompt._replace(ids=prompt.ids.astype("int32"))


def _check_range(ids: Any, size: int, noun: str, remedy: str) -> None:
    if isinstance(ids, Tracer):
        return
    wrong = (ids < 0) | (ids >= size)
    if wrong.any():
        row, *place = map(int, np.argwhere(np.asarray(wrong))[0])
        value = np.asarray(ids)[row, *place]
        raise ValueError(
            f"{WHERE}: expected {noun} from 0 to {size - 1}, received {value} in row {row} at position "
            f"{', '.join(map(str, place))}. {remedy}"
        )


def logits_of(model: Network) -> int:
    """Returns the number of logits of a position: the vocabulary with its padding."""
    (slot,) = model.graph.output_slots
    total: Any = model.graph.specs[slot].dims[2]
    return total


def samplers_of(
    sampler: Any, batch: int, model: Network
) -> tuple[tuple[Sampler, ...], jax.Array | None]:
    """Returns the different samplers, and the index of the sampler of each row."""
    if isinstance(sampler, Sampler):
        _check_sampler(sampler, model)
        return (sampler,), None
    if isinstance(sampler, type) and issubclass(sampler, Sampler):
        raise TypeError(
            f"{WHERE}: expected a sampler, received the class {sampler.__name__}. Call it: "
            f"samplers.{sampler.__name__}()."
        )
    if not isinstance(sampler, list | tuple) or not all(isinstance(s, Sampler) for s in sampler):
        raise TypeError(
            f"{WHERE}: expected a sampler such as samplers.Greedy(), or a list with a sampler for each "
            f"row, received {describe_value(sampler)}."
        )
    if len(sampler) != batch:
        raise ValueError(
            f"{WHERE}: expected a sampler for each of {batch} rows, received {len(sampler)}. To apply "
            "several samplers to all rows, write samplers.Chain(first, second)."
        )
    if any(one.find(Beam) is not None for one in sampler):
        raise ValueError(
            f"{WHERE}: expected one Beam for all rows. Pass sampler=samplers.Beam(...)."
        )
    different: list[Sampler] = []
    which = []
    for one in sampler:
        place = next((i for i, s in enumerate(different) if s is one or _same(s, one)), None)
        if place is None:
            place = len(different)
            _check_sampler(one, model)
            different.append(one)
        which.append(place)
    return tuple(different), jnp.asarray(which, jnp.int32)


def _check_sampler(sampler: Sampler, model: Network) -> None:
    """Raises an error for fields without a hash, and for ids outside of the vocabulary."""
    total = logits_of(model)
    for part in sampler.parts:
        for name, value in vars(part).items():
            if name not in part.leaves and not isinstance(value, Hashable):
                raise TypeError(
                    f"{WHERE}: expected values with a hash in the fields of {type(part).__name__}, which "
                    f"are constants of the compiled program, received {describe_value(value)} in "
                    f"`{name}`. Use a tuple; for arrays declare leaves = ({name!r},) in the class."
                )
        for name in part.id_fields:
            # ids of the padding are valid: these tokens are never sampled
            wrong = [i for i in getattr(part, name) if not 0 <= i < total]
            if wrong:
                raise ValueError(
                    f"{WHERE}: expected ids from 0 to {total - 1} for `{name}` of samplers."
                    f"{type(part).__name__}, received {wrong[0]}, which is no token of "
                    f"{model._where}. Pass ids of the tokenizer of this model."
                )


def _same(a: Sampler, b: Sampler) -> bool:
    # the comparison of arrays has no truth value
    has_arrays = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((a, b)))
    return not has_arrays and a == b


def keys_of(key: Any, samplers: Sequence[Sampler], batch: int) -> jax.Array | None:
    """Returns a key for each row: the keys that were passed, or keys split from one key."""
    if key is None:
        drawing = next((s for s in samplers if s.draws), None)
        if drawing is not None:
            raise ValueError(
                f"{WHERE}: {drawing!r} draws tokens and needs a key. Pass key=jax.random.key(0), or choose "
                "the most likely tokens with samplers.Chain(samplers.Greedy(), ...)."
            )
        return None
    if getattr(key, "ndim", 0) == 1 and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if len(key) != batch:
            raise ValueError(
                f"{WHERE}: expected one key, or an array with a key for each of {batch} rows, received "
                f"{len(key)} keys. Pass jax.random.split(key, {batch})."
            )
        return key
    check_key(key, f"{WHERE}: for `key`")
    return key[None] if batch == 1 else jax.random.split(key, batch)


def check_ends(samplers: Sequence[Sampler], ends: jax.Array) -> None:
    """Raises ValueError if the end tokens of a grammar end no row."""
    for sampler in samplers:
        constraint = sampler.find(Constraint)
        if constraint is not None and not is_traced(ends):
            if not np.isin(np.asarray(ends), constraint.end_ids).any():
                raise ValueError(
                    f"{WHERE}: expected end_ids with an end token of the grammar, one of "
                    f"{list(constraint.end_ids)}, received {np.asarray(ends).tolist()}: no row would end "
                    f"after a complete text. Pass end_ids={list(constraint.end_ids)}."
                )


def ends_of(end_ids: Any, size: int) -> jax.Array:
    """Returns the ids of the end tokens as an array.

    Args:
        size: the number of tokens that may be sampled.
    """
    ids: Any = () if end_ids is None else end_ids
    if not isinstance(ids, jax.Array | np.ndarray):
        ids = np.asarray([*ids] if isinstance(ids, Iterable) else [ids])
    if ids.ndim > 1 or (ids.size and not jnp.issubdtype(ids.dtype, jnp.integer)):
        raise ValueError(
            f"{WHERE}: expected end_ids as an id or a sequence of ids, received "
            f"{describe_value(end_ids)}. Pass a text that ends a row as stop=."
        )
    ids = ids.reshape(-1)
    if not isinstance(ids, Tracer) and ids.size and not np.all((ids >= 0) & (ids < size)):
        wrong = next(i for i in ids.tolist() if not 0 <= i < size)
        raise ValueError(
            f"{WHERE}: expected end_ids from 0 to {size - 1}, the tokens that may be sampled, received "
            f"{wrong}, which would never end a row. Pass ids of the tokenizer of this model."
        )
    return ids.astype("int32")


def stop_of(stop: Any, decode: Any) -> tuple[str, ...]:
    """Returns the stop strings; raises an error for other values, and for stop strings without `decode`."""
    texts = [*stop] if isinstance(stop, Iterable) and not isinstance(stop, str) else [stop]
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError(
            f"{WHERE}: expected strings that are not empty for stop, received {stop!r}. Pass ids of "
            "tokens as end_ids."
        )
    if texts and decode is None:
        raise ValueError(
            f"{WHERE}: stop searches the text of the tokens and needs `decode`. Pass "
            "decode=tokenizer.decode."
        )
    check_function("decode", decode, "tokenizer.decode, which returns the text of a list of ids")
    return tuple(texts)


def check_function(name: str, function: Any, example: str) -> None:
    """Raises TypeError for a value that is neither a function nor None.

    Args:
        name: the name of the argument.
        example: a function that the error suggests.
    """
    if function is not None and not callable(function):
        raise TypeError(
            f"{WHERE}: expected a function for {name}, received {describe_value(function)}. Pass "
            f"{name}={example}."
        )


def width_of(ids: Any, prompt: Prompt, is_traced: bool) -> int:
    """Returns the number of tokens of the longest prompt; inside `jax.jit` that of the array."""
    if not is_traced:
        return int(np.max(prompt.valid.sum(1)))
    return ids.shape[1] if isinstance(ids, jax.Array | np.ndarray) else max(map(len, ids))


def top_of(value: Any, reader: Reader) -> int | None:
    """Returns the argument `logprobs`: a number of most likely tokens, or None."""
    if value is None:
        return None
    size = reader.form.vocabulary
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= size:
        raise ValueError(
            f"{WHERE}: expected logprobs from 0 to {size}, the number of most likely tokens whose "
            f"log-probabilities are returned, or None, received {value!r}."
        )
    return int(value)


def count_of(value: Any, name: str) -> int:
    """Returns `value` after checking that it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{WHERE}: expected an integer for {name}, received {value!r}.")
    if value < 1:
        raise ValueError(f"{WHERE}: expected at least 1 for {name}, received {value}.")
    return int(value)

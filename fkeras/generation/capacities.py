"""Room for a prompt and new tokens: the positions of a model, and the entries of its caches."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.engine import Network
from fkeras.generation.caches import (
    can_take_back,
    capacity_of,
    lengths_of,
    ring_slack,
    state_specs,
)
from fkeras.generation.decoding import Prompt
from fkeras.generation.reading import Reader
from fkeras.generation.requests import WHERE, is_traced


def capacity(reader: Reader, tokens: int, slack: int) -> int:
    """Returns the capacity of new KV caches, or the number of tokens that a model without caches computes.

    Args:
        tokens: the number of tokens of a row.
        slack: the maximum number of tokens of a rollback.
    """
    if (fixed := fixed_length(reader)) is not None:
        return fixed
    if reader.form.cached:
        return tokens + slack
    # a power of two, like the length of many tables of learned positions
    return min(1 << (tokens - 1).bit_length(), reader.form.positions or tokens * 2)


def fixed_length(reader: Reader) -> int | None:
    """Returns the number of tokens of a model whose input has a fixed length; None for other models."""
    graph = reader.any_model().graph
    dims = graph.specs[graph.input_slots[graph.input_names.index(reader.form.ids)]].dims
    return dims[1] if isinstance(dims[1], int) else None


def check_length(reader: Reader, state: Any, prompt: Prompt, width: int, new: int) -> None:
    """Raises ValueError if prompt and new tokens exceed the tokens that a model takes.

    Args:
        state: a state with caches; empty for new caches.
        width: the number of tokens of the longest prompt.
    """
    where, held = reader.any_model()._where, lengths_of(state)
    fixed, most = fixed_length(reader), reader.form.positions
    for size, noun in ((fixed, "the length of the input"), (most, "the positions")):
        if held is None and size is not None and width + new > size:
            raise ValueError(
                f"{WHERE}: expected at most {size} tokens, {noun} of {where}, received a prompt of "
                f"{width} and max_new_tokens={new}. Pass max_new_tokens={max(size - width, 1)} or less."
            )
    if held is None or is_traced((held, prompt.valid)):
        return
    before = np.asarray(held)
    after = before + np.asarray(prompt.valid).sum(1)
    if most is not None and int(after.max()) + new > most:
        raise ValueError(
            f"{WHERE}: expected at most {most} tokens, the positions of {where}, received "
            f"{int(after.max())} with those of the state and max_new_tokens={new}."
        )
    for boundary in reader.form.boundaries:
        if ((before > 0) & (before <= boundary) & (after + new > boundary)).any():
            row = int(np.argmax((before > 0) & (before <= boundary) & (after + new > boundary)))
            raise ValueError(
                f"{WHERE}: {where} turns the keys of texts of more than {boundary} tokens by other "
                f"factors, and the state holds {before[row]} tokens of row {row} without their ids: "
                f"expected at most {boundary} tokens, received {after[row]} and max_new_tokens={new}. "
                "Pass the whole text as ids with state=None, or a smaller max_new_tokens."
            )


def _check_entries(model: Network, state: Any, allowed: Any, needed: Any) -> None:
    """Raises an error for a state whose entries are not those of the model's state."""
    held, known, required = (
        {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs}
        for pairs in map(jax.tree_util.tree_leaves_with_path, (state, allowed, needed))
    )
    wrong = [
        f"{what} {', '.join(sorted(names)[:3])}"
        for what, names in (("unknown:", held - known), ("missing:", required - held))
        if names
    ]
    if wrong:
        raise ValueError(
            f"{WHERE}: expected a state of {model._where}, received one with other entries "
            f"({'; '.join(wrong)}). Make it with model.init_cache(batch, length), or pass None."
        )


class Shortage(NamedTuple):
    """Too little room in the caches of the caller.

    Attributes:
        used: the number of tokens of the longest row, with those of the prompt.
        needed: the number of tokens for which the caches need room.
        room: the number of tokens for which the caches have room.
        slack: the slack of the ring buffers; None if the caches cannot grow.
    """

    used: int
    needed: int
    room: int
    slack: int | None


def shortage_of(model: Network, state: Any, prompt: Prompt, new: int) -> Shortage | None:
    """Returns the missing room for prompt and new tokens; None if the room suffices, and inside `jax.jit`."""
    lengths, room = lengths_of(state), capacity_of(model, state)
    if room is None or is_traced((lengths, prompt.valid)):
        return None
    used = int(np.max(np.asarray(lengths) + np.asarray(prompt.valid).sum(1)))
    if used + new <= room:
        return None
    return Shortage(used, used + new, room, ring_slack(model, state))


def check_cache(reader: Reader, state: Any, prompt: Prompt, new: int, slack: int) -> bool:
    """Returns whether a state has caches.

    Args:
        slack: the maximum number of tokens of a rollback.

    Raises:
        ValueError: for the state of another model, and for caches of another batch size, caches that
            cannot be rolled back, caches that are too short and cannot grow, as with a draft model, and
            caches that the model does not use.
    """
    lengths = lengths_of(state)
    model, batch = reader.any_model(), prompt.ids.shape[0]
    if lengths is None:
        _check_entries(model, state, state_specs(model), ())
        return False
    if not reader.form.cached:
        raise ValueError(
            f"{WHERE}: received a state with caches, but {model._where} computes all tokens again. Pass "
            "model.init_state()."
        )
    if lengths.shape != (batch,):
        raise ValueError(
            f"{WHERE}: expected a state of {batch} rows, as in ids, received {lengths.shape[0]}. Make it "
            f"with model.init_cache({batch}, length)."
        )
    specs = state_specs(model, batch, 8)
    _check_entries(model, state, specs, specs)
    shortage = shortage_of(model, state, prompt, new + slack)
    if shortage is not None and (slack or shortage.slack is None):
        raise ValueError(
            f"{WHERE}: expected a state with room for {shortage.needed} tokens in a row, received "
            f"room for {shortage.room}. Make a longer state: model.init_cache({batch}, {shortage.needed})."
        )
    if slack and not can_take_back(model, state, slack):
        raise ValueError(
            f"{WHERE}: expected a state from which {slack} rejected tokens of a draft can be taken "
            f"back, received caches of {model._where} that hold the tokens of a window alone. Make the "
            f"state with model.init_cache({batch}, length, slack={slack}), or leave draft out."
        )
    return True

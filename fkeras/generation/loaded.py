"""The model of a result of `fk.pretrained.load`, with its end tokens and its tokenizer."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from fkeras.engine import Network
from fkeras.generation.requests import WHERE, check_model, logits_of


class LoadedModel(Protocol):
    """The result of `fk.pretrained.load`, which this package does not import."""

    @property
    def model(self) -> Any: ...
    @property
    def state(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def generation(self) -> Any: ...


class Parts(NamedTuple):
    """Arguments of `Generator` from a result of `fk.pretrained.load`."""

    model: Any
    end_ids: Any = ()
    decode: Any = None
    vocabulary_size: int | None = None


def parts_of(loaded: Any) -> Parts:
    """Returns the parts of the result of `fk.pretrained.load`; another value is the model alone.

    Raises:
        TypeError: for a model with a state, which a call takes apart from the model, and for a result
            without settings of generation.
    """
    if isinstance(loaded, Network) or not (hasattr(loaded, "model") and hasattr(loaded, "state")):
        return Parts(loaded)
    if not hasattr(loaded, "generation") or jax.tree.leaves(loaded.state):
        kind = type(loaded).__name__
        raise TypeError(
            f"{WHERE}: expected a model and its state, received {kind}, which holds both. Write "
            "fk.generate(loaded.model, loaded.state, ids)."
        )
    tokenizer, ends = loaded.tokenizer, loaded.generation.end_ids
    if tokenizer is None:
        return Parts(loaded.model, ends)
    size = min(tokenizer.size, logits_of(check_model(loaded.model)))
    return Parts(loaded.model, ends, tokenizer.decode, size)

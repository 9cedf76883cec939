"""Cached outputs of the frozen part of a model: the inputs of the part that is trained.

With `Trainer(cache_frozen=True)` the batches of a training hold `Features` in the place of inputs, and
the compiled steps compute the rest of the model behind them. The run holds the whole model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from fkeras.engine import Network, replace_weights
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.transforms.splitting import Cut, front_weights


@dataclasses.dataclass(frozen=True)
class Features:
    """Outputs of the front of a model for some rows, in the order of `rest_of(model, cut).inputs`.

    Attributes:
        values: an array for each input of the rest.
        masks: the mask of each value or None; None without masks.
        cut: where the model is split.
    """

    values: list[Any]
    masks: list[Any] | None
    cut: Cut


jax.tree_util.register_dataclass(Features, data_fields=["values", "masks"], meta_fields=["cut"])


@dataclasses.dataclass(frozen=True)
class Cached:
    """The sources of the features of a feed.

    Attributes:
        rows: the arrays of the feed before.
        model: the device part of the model.
        values: weights and state of the front, by path.
        cut: where the model is split.
    """

    rows: Any
    model: Network
    values: Mapping[str, Any]
    cut: Cut


def cut_of(batch: object) -> Cut | None:
    """Returns where the model of a batch is split; None for a batch of inputs."""
    x = batch[0] if isinstance(batch, tuple) and batch else None
    return x.cut if isinstance(x, Features) else None


def without_front(model: Any, cut: Cut | None) -> Any:
    """Returns a model with None in the place of the weights that only the front reads."""
    if cut is None:
        return model
    return replace_weights(model, dict.fromkeys(front_weights(model, cut)))


def with_front(model: Any, other: Any) -> Any:
    """Returns a model from `without_front` with the missing weights of another model."""
    others = zip(skeleton_of(other).names, leaves_of(other), strict=True)
    pairs = zip(leaves_of(model), others, strict=True)
    missing = {name: leaf for own, (name, leaf) in pairs if own is None and leaf is not None}
    return replace_weights(model, missing) if missing else model

"""Converts the weights and the state of a run to arrays by path, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from fkeras.engine import replace_weights, suggest, trainable_weights, unfreeze
from fkeras.training.records.state import TrainState


def weights_of(run: TrainState) -> dict[str, Any]:
    """Returns all weights of a run's model by path, including frozen weights."""
    return trainable_weights(unfreeze(run.model))


def by_path(tree: object) -> dict[str, Any]:
    """Returns the leaves of a tree by path."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in pairs}


def filled(tree: object, leaves: Mapping[str, Any]) -> Any:
    """Returns the tree with other leaves, given by path."""
    # by path, not by order: a file or a memory may hold the leaves in another order
    structure = jax.tree.structure(tree)
    return structure.unflatten([leaves[path] for path in by_path(tree)])


def take(run: TrainState) -> dict[str, dict[str, Any]]:
    """Returns the weights and the state of a run, each by path.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1, name="d")])
        >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
        >>> sorted(take(run)["weights"])
        ['d/bias', 'd/kernel']
    """
    return {"weights": weights_of(run), "state": by_path(run.state)}


def put(run: TrainState, kept: Mapping[str, Mapping[str, Any]]) -> TrainState:
    """Returns the run with the weights and state of `take`; all other fields are unchanged."""
    return run.replace(
        model=replace_weights(run.model, kept["weights"]), state=filled(run.state, kept["state"])
    )


def check_paths(where: str, what: str, have: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Raises a `ValueError` if arrays differ from those of a run in path or shape."""
    missing = [path for path in want if path not in have]
    if missing:
        raise ValueError(
            f"{where}: missing {what} {missing[0]!r}"
            f"{f' and {len(missing) - 1} more' if missing[1:] else ''}."
            f"{suggest(missing[0], have)} The file belongs to another model: build the saved "
            "model, with the same names."
        )
    unknown = [path for path in have if path not in want]
    if unknown:
        raise ValueError(
            f"{where}: unexpected {what} {unknown[0]!r}, which the run does not have."
            f"{suggest(unknown[0], want)} The file belongs to another model: build the saved "
            "model, with the same names."
        )
    for path, array in want.items():
        if tuple(have[path].shape) != tuple(array.shape):
            raise ValueError(
                f"{where}: expected the {what} {path!r} of shape {tuple(array.shape)}, received "
                f"{tuple(have[path].shape)}. The file belongs to another model: build the saved "
                "model."
            )

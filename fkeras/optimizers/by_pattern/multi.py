"""`MultiOptimizer`: several optimizers, each for the weights whose paths match its pattern."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import optax

from fkeras.engine.config.configurable import option, serialize, suggest, with_fields
from fkeras.engine.config.converters import real, text
from fkeras.engine.config.field_types import OptionalReal
from fkeras.optimizers.base import BaseOptimizer, check_has_config, mapped, scaled
from fkeras.optimizers.by_pattern import keras_map
from fkeras.optimizers.by_pattern.optimizer_map import OptimizerMap
from fkeras.optimizers.loss_scale import LossScaleOptimizer
from fkeras.optimizers.naming import Identifier, get, transformation
from fkeras.optimizers.rowwise import Rowwise
from fkeras.optimizers.updates.extra import in_form
from fkeras.optimizers.updates.paths import flatten

_EXAMPLE = "For example MultiOptimizer({'encoder/*': 'sgd', '*': fk.optimizers.Adam(1e-4)})."
# matches the remaining weights; the only pattern that may match no weight
_REST = "*"


class MultiOptimizerState(NamedTuple):
    """The state of a `MultiOptimizer`.

    Attributes:
        states: the state of each optimizer, by pattern. Each state is that of a dictionary of the
            optimizer's weights by path.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> tx = fk.optimizers.MultiOptimizer({"*bias": "sgd", "*": "adam"}).transformation()
        >>> state = tx.init({"kernel": jnp.ones(2), "bias": jnp.ones(2)})
        >>> state.states["*"].slots["momentum"]
        {'kernel': Array([0., 0.], dtype=float32)}
    """

    states: dict[str, Any]


def _pairs(value: Any) -> tuple[tuple[str, Any], ...]:
    if isinstance(value, OptimizerMap):
        value = value.pairs()
    elif isinstance(value, Mapping):
        value = tuple(value.items())
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise TypeError(
            f"MultiOptimizer: expected optimizers by patterns of paths, received {value!r}. "
            f"{_EXAMPLE}"
        )
    pairs = []
    for pair in value:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(
                f"MultiOptimizer: expected a pattern and its optimizer, received {pair!r}. "
                f"{_EXAMPLE}"
            )
        pairs.append((_pattern(pair[0]), _single(*pair)))
    patterns = [pattern for pattern, _ in pairs]
    repeated = next((p for p in patterns if patterns.count(p) > 1), None)
    if repeated is not None:
        raise ValueError(
            f"MultiOptimizer: duplicate pattern {repeated!r}. Only the first would apply: remove "
            "the second."
        )
    return tuple(pairs)


def _pattern(pattern: str) -> str:
    try:
        re.compile(keras_map.expression(pattern))
    except re.error as error:
        raise ValueError(
            f"MultiOptimizer: expected a regular expression after 're:', received {pattern!r}: "
            f"{error}."
        ) from None
    return pattern


def _single(pattern: str, value: Identifier) -> Any:
    optimizer: Any = get(value)
    if optimizer is None or isinstance(optimizer, MultiOptimizer | LossScaleOptimizer | Rowwise):
        raise TypeError(
            f"MultiOptimizer: {pattern!r}: expected an optimizer of single weights, received "
            f"{optimizer!r}. Put LossScaleOptimizer or Rowwise around the MultiOptimizer, and add the "
            "patterns of an inner MultiOptimizer to the outer MultiOptimizer."
        )
    # MultiOptimizer divides all gradients by its own factor; a second division would be wrong
    if getattr(optimizer, "loss_scale_factor", None) is not None:
        return dataclasses.replace(optimizer, loss_scale_factor=None)
    return optimizer


class MultiOptimizer(BaseOptimizer):
    """Updates each weight with the optimizer of the first pattern that matches the weight's path.

    Each optimizer has a separate state, count and limits: a `global_clipnorm` applies to the
    optimizer's weights only. `opt_state.states[pattern].learning_rate` is an optimizer's learning
    rate.

    Keras's maps have no order, and have a default. `OptimizerMap` has this form and is accepted
    here. In configurations of Keras, regular expressions become patterns that begin with "re:",
    and the default becomes the pattern "*". A function instead of a map is rejected, since a
    function has no equality and no configuration.

    Args:
        optimizer_map: optimizers, or their names, by pattern, or an `OptimizerMap`. A pattern
            matches a whole path such as "encoder/dense/kernel" and may contain *, ? and []. After
            "re:" the pattern is a regular expression. A final "*" matches all remaining weights.
        loss_scale_factor: the loss scale of all weights, as in `Optimizer`; the factors of the
            inner optimizers are ignored.
        name: label in the config; has no effect.

    Raises:
        ValueError: in `init` and `update`, for a weight without a matching pattern; in
            `_check_paths`, which `Trainer.init` calls, for a pattern other than "*" that is the
            first match of no weight. A pattern may match frozen weights only.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> optimizer = MultiOptimizer({"encoder/*": fk.optimizers.SGD(0.1), "*": "adam"})
        >>> weights = {"encoder/kernel": jnp.ones(2), "head/kernel": jnp.ones(2)}
        >>> state = optimizer.transformation().init(weights)
        >>> {pattern: float(own.learning_rate) for pattern, own in state.states.items()}
        {'encoder/*': 0.10000000149011612, '*': 0.0010000000474974513}
        >>> optimizer == MultiOptimizer({"encoder/*": fk.optimizers.SGD(0.1), "*": "adam"})
        True
    """

    optimizer_map: Any = option(convert=_pairs)
    loss_scale_factor: OptionalReal = option(default=None, convert=real(above=0, optional=True))
    name: str | None = option(default=None, convert=text(optional=True))

    def _canonical(self) -> Self:
        pairs = tuple(
            (pattern, o._canonical() if isinstance(o, BaseOptimizer) else o)
            for pattern, o in self.optimizer_map
        )
        return dataclasses.replace(self, optimizer_map=pairs, name=None)

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        return loss if self.loss_scale_factor is None else scaled(loss, self.loss_scale_factor)

    def finalize(self, opt_state: MultiOptimizerState, weights: optax.Params) -> Any:
        paths, leaves, structure = flatten(weights)
        weights_by_path = dict(zip(paths, leaves, strict=True))
        final_weights = dict(weights_by_path)
        for pattern, group_paths in self._groups(paths).items():
            optimizer = dict(self.optimizer_map)[pattern]
            if isinstance(optimizer, BaseOptimizer):
                group_weights = {path: weights_by_path[path] for path in group_paths}
                final_weights |= optimizer.finalize(opt_state.states[pattern], group_weights)
        return jax.tree.unflatten(structure, [final_weights[path] for path in paths])

    def _init(self, weights: optax.Params) -> MultiOptimizerState:
        paths, leaves, _ = flatten(weights)
        weights_by_path = dict(zip(paths, leaves, strict=True))
        optimizers = dict(self.optimizer_map)
        groups = self._groups(paths)
        return MultiOptimizerState(
            {
                pattern: transformation(optimizers[pattern]).init(
                    {path: weights_by_path[path] for path in group_paths}
                )
                for pattern, group_paths in groups.items()
            }
        )

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> Self:
        groups = self._groups(paths)
        pairs = ((p, mapped(optimizer, function, groups[p])) for p, optimizer in self.optimizer_map)
        return with_fields(self, {"optimizer_map": tuple(pairs)})

    def _update(
        self,
        gradients: optax.Updates,
        state: MultiOptimizerState,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, MultiOptimizerState]:
        paths, leaves, structure = flatten(gradients)
        if self.loss_scale_factor is not None:
            leaves = [(g / self.loss_scale_factor).astype(g.dtype) for g in leaves]
        if "grad" in extra:
            extra["grad"] = structure.unflatten(leaves)
        gradients_by_path = dict(zip(paths, leaves, strict=True))
        weights_by_path = None
        if weights is not None:
            weights_by_path = dict(zip(paths, structure.flatten_up_to(weights), strict=True))
        optimizers, states = dict(self.optimizer_map), {}
        deltas_by_path: dict[str, Any] = {}
        for pattern, group_paths in self._groups(paths).items():
            group_weights = (
                None
                if weights_by_path is None
                else {path: weights_by_path[path] for path in group_paths}
            )
            group_deltas: Any
            inner = optax.with_extra_args_support(transformation(optimizers[pattern]))

            # the loss as a function of the weights of the group, and its gradients
            def whole(group: Mapping[str, Any]) -> Any:
                all_weights = {**(weights_by_path or {}), **group}
                return structure.unflatten([all_weights[path] for path in paths])

            def part(gradients: Any, group_paths: Sequence[str] = group_paths) -> dict[str, Any]:
                parts = dict(zip(paths, structure.flatten_up_to(gradients), strict=True))
                return {path: parts[path] for path in group_paths}

            group_deltas, states[pattern] = inner.update(
                {path: gradients_by_path[path] for path in group_paths},
                state.states[pattern],
                group_weights,
                **in_form(extra, whole, part),
            )
            deltas_by_path |= group_deltas
        # back in the order of the gradients' leaves
        deltas = [deltas_by_path[path] for path in paths]
        return jax.tree.unflatten(structure, deltas), MultiOptimizerState(states)

    def _groups(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """Returns the paths of each pattern's weights."""
        patterns = [pattern for pattern, _ in self.optimizer_map]
        groups: dict[str, list[str]] = {pattern: [] for pattern in patterns}
        # the states hold weights by path, so that two equal paths would lose a weight
        if len(set(paths)) < len(paths):
            repeated = next(path for path in paths if list(paths).count(path) > 1)
            raise ValueError(
                f"MultiOptimizer: expected weights with unique paths, received two at "
                f"{repeated!r}. Rename a key of the tree."
            )
        for path in paths:
            first = next((p for p in patterns if keras_map.fits(p, path)), None)
            if first is None:
                raise ValueError(
                    f"MultiOptimizer: no pattern matches the weight {path!r}; the patterns are "
                    f"{', '.join(map(repr, patterns))}.{suggest(path, patterns)} Add a pattern for "
                    "this weight, or '*' at the end for all remaining weights."
                )
            groups[first].append(path)
        return groups

    def _check_paths(self, paths: Sequence[str]) -> None:
        groups = self._groups(paths)
        unused = next(
            (p for p, group_paths in groups.items() if not group_paths and p != _REST), None
        )
        if unused is not None:
            raise ValueError(self._idle(unused, paths))

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        groups = self._groups(paths)
        for pattern, optimizer in self.optimizer_map:
            if isinstance(optimizer, BaseOptimizer):
                yield from optimizer._idle_names(groups[pattern])

    def _idle(self, pattern: str, paths: Sequence[str]) -> str:
        shown = ", ".join(paths[:12]) + ", ..." * (len(paths) > 12)
        if any(keras_map.fits(pattern, path) for path in paths):
            reason = "matches only weights of earlier patterns. Move the pattern before them"
        else:
            reason = "matches no weight. Correct or remove the pattern"
        return (
            f"MultiOptimizer: the pattern {pattern!r} {reason}. The weights are: {shown or 'none'}."
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data, in Keras's format.

        Raises:
            TypeError: for an optax transformation, which has no JSON form.
        """
        for pattern, optimizer in self.optimizer_map:
            check_has_config(f"MultiOptimizer: {pattern!r}", optimizer)
        pairs = [(pattern, serialize(optimizer)) for pattern, optimizer in self.optimizer_map]
        return {
            "optimizer_map": keras_map.write(pairs),
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates an optimizer from the data of `get_config`, of this package or of Keras.

        Raises:
            ValueError: for an `optimizer_map` in another format.
        """
        config = dict(config)
        pairs = keras_map.read(config.pop("optimizer_map", None))
        return cls(
            tuple((pattern, get(optimizer, custom_objects)) for pattern, optimizer in pairs),
            **config,
        )

"""`OptimizerState`, the state of an `Optimizer`, and access to the average of the weights."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import jax
import optax

# names of the slots that options of `Optimizer` add
AVERAGE = "average"
ACCUMULATOR = "gradient_accumulator"


class OptimizerState(NamedTuple):
    """The state of an `Optimizer`.

    Learning rate and weight decay are leaves, so that one compiled training serves all their
    values: replace them during a training (`state._replace(learning_rate=jnp.float32(1e-4))`),
    give each member of a population different values under `jax.vmap`, or differentiate with
    respect to them.

    Attributes:
        count: the number of calls of `update`, int32; with gradient accumulation, of batches.
        learning_rate: the learning rate, float32; None if a schedule computes the rate.
        slots: trees with the weights' structure by name, such as "momentum"; with `use_ema` also
            "average", with `gradient_accumulation_steps` also "gradient_accumulator".
        weight_decay: the weight decay, float32; None for an optimizer without weight decay.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> state = fk.optimizers.SGD(momentum=0.9).transformation().init({"w": jnp.ones(2)})
        >>> state.slots
        {'momentum': {'w': Array([0., 0.], dtype=float32)}}
    """

    count: jax.Array
    learning_rate: jax.Array | None
    slots: dict[str, Any]
    weight_decay: jax.Array | None = None


def ema_weights(opt_state: optax.OptState) -> Any:
    """Returns the moving average of the weights from the state of an optimizer with `use_ema=True`.

    Before the first update, the average equals the initial weights. The method
    `optimizer.finalize(opt_state, weights)` returns the average in the weights' dtypes.

    Args:
        opt_state: the state of an optimizer of `fk.optimizers`, such as `run.opt_state`.

    Returns:
        A tree with the weights' structure, in float32. For several averaging optimizers in a
        `MultiOptimizer`: a dictionary by path of the weights with an average.

    Raises:
        ValueError: if the state holds no average.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> weights = {"w": jnp.ones(2)}
        >>> optimizer = fk.optimizers.SGD(0.5, use_ema=True).transformation()
        >>> _, state = optimizer.update({"w": jnp.ones(2)}, optimizer.init(weights), weights)
        >>> ema_weights(state)
        {'w': Array([0.5, 0.5], dtype=float32)}
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=_is_state)
    averages = [n.slots[AVERAGE] for n in nodes if _is_state(n) and AVERAGE in n.slots]
    if not averages:
        raise ValueError(
            "ema_weights: expected the state of an optimizer that averages the weights, received "
            f"{type(opt_state).__name__} without an average. Make the optimizer with use_ema=True."
        )
    if len(averages) == 1:
        return averages[0]
    return {path: leaf for average in averages for path, leaf in average.items()}


def _is_state(node: object) -> TypeGuard[OptimizerState]:
    return isinstance(node, OptimizerState)

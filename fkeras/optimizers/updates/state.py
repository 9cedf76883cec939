"""The state of an optimizer of one rule for all weights, and the average of the weights in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

# the names of the slots that an option adds to an optimizer's own
AVERAGE = "average"
ACCUMULATOR = "gradient_accumulator"


class OptimizerState(NamedTuple):
    """The state of an optimizer.

    Learning rate and weight decay are leaves, so that one compiled training serves all their
    values: replace them (`state._replace(learning_rate=jnp.float32(1e-4))`) in a running training,
    give each member of a population its own under `jax.vmap`, or differentiate by them.

    Attributes:
        count: the number of updates asked for, int32; with gradient accumulation that of batches.
        learning_rate: the learning rate, float32; None where a schedule gives it.
        slots: trees of the weights' shape by name, such as "momentum"; with `use_ema` also
            "average", with `gradient_accumulation_steps` also "gradient_accumulator".
        weight_decay: the weight decay, float32; None where the optimizer has none.

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


def ema_weights(opt_state: Any) -> Any:
    """The moving average of the weights that an optimizer with `use_ema=True` keeps.

    Until the first update it is the weights as they were. `optimizer.finalize(opt_state, weights)` gives the same in the
    weights' dtypes.

    Args:
        opt_state: the state of any optimizer of `fk.optimizers`, `run.opt_state` for one.

    Returns:
        A tree like the weights, in float32. Of a `MultiOptimizer` a dictionary by path, of the
        weights whose optimizer keeps an average.

    Raises:
        ValueError: where the state holds no average.

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


def _is_state(node: Any) -> bool:
    return isinstance(node, OptimizerState)

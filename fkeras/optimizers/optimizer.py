"""What an optimizer is: a frozen value with Keras's arguments that makes an optax transformation.

An optimizer says what one weight's state is (`slots`) and what one step does with one gradient
(`step`). All else is here: the count of steps, the learning rate, clipping, weight decay, the
walk over the tree.

State and arithmetic are float32 also for weights of lower precision; only the update itself has
the weight's dtype. The state is a legal carry of `jax.lax.scan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fkeras.engine.config import Configurable, from_configuration, option
from fkeras.optimizers import schedules

# what Keras writes into each optimizer's configuration and means nothing as it stands
_NEUTRAL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("use_ema", (False, None)),
    ("ema_overwrite_frequency", (None,)),
    ("loss_scale_factor", (None,)),
    ("gradient_accumulation_steps", (None,)),
)


class OptimizerState(NamedTuple):
    """The state of an optimizer.

    Attributes:
        count: the number of steps taken, int32.
        learning_rate: the learning rate, float32; None where a schedule gives it. Replace it to
            change the rate of a running training without compiling again:
            `state._replace(learning_rate=jnp.float32(1e-4))`.
        slots: trees of the weights' shape by name, such as "momentum".

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


def rate(value: Any) -> Any:
    """A learning rate: a number above or equal to 0, or a function of the step."""
    if isinstance(value, Mapping):
        value = schedules.deserialize(value)
    if callable(value):
        return value
    if isinstance(value, bool | str) or value is None:
        raise TypeError(
            f"learning_rate: expected a number, a schedule or a function of the step, received "
            f"{value!r}. For example 1e-3, or schedules.CosineDecay(1e-3, 10_000)."
        )
    return float(value)


def positive(name: str) -> Any:
    """A converter that takes numbers above 0, and None."""

    def convert(value: Any) -> Any:
        if value is not None and not value > 0:
            raise ValueError(f"{name}: expected a number above 0 or None, received {value!r}.")
        return value

    return convert


def clip_norm(gradient: jax.Array, limit: float) -> jax.Array:
    """The gradient scaled down to Euclidean norm `limit` where its own is larger."""
    norm = jnp.sqrt(jnp.sum(jnp.square(gradient)))
    return gradient * limit / jnp.maximum(norm, limit)


def working_dtype(weight: jax.Array) -> Any:
    """The dtype of a weight's state: float64 for float64, otherwise float32."""
    return jnp.dtype("float64") if weight.dtype == "float64" else jnp.dtype("float32")


class Optimizer(Configurable):
    """A rule that turns gradients into updates of the weights, as a value.

    Subclass it and write `slots` and `step`, both for a single weight.

    Args:
        learning_rate: a number, a schedule, or a function of the number of steps taken.
        weight_decay: each step first takes `learning_rate * weight_decay * weight` from each
            weight; None for none.
        clipnorm: the largest Euclidean norm of each gradient by itself.
        clipvalue: the largest absolute value of an entry of a gradient.
        global_clipnorm: the largest Euclidean norm of all gradients together.
        name: a word of your own.

    Raises:
        ValueError: for more than one of `clipnorm`, `clipvalue` and `global_clipnorm`.

    Example:
        >>> import fkeras as fk
        >>> class Signs(fk.optimizers.Optimizer):
        ...     def step(self, gradient, weight, slots, rate, count):
        ...         return -rate * gradient / abs(gradient), slots
        >>> Signs(learning_rate=0.1)
        Signs(0.1)
    """

    # whether `step` looks at the weights
    reads_weights: ClassVar[bool] = False

    learning_rate: Any = option(0.001, convert=rate)
    weight_decay: float | None = option(None, kw_only=True)
    clipnorm: float | None = option(None, convert=positive("clipnorm"), kw_only=True)
    clipvalue: float | None = option(None, convert=positive("clipvalue"), kw_only=True)
    global_clipnorm: float | None = option(None, convert=positive("global_clipnorm"), kw_only=True)
    name: str | None = option(None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {
            "clipnorm": self.clipnorm,
            "clipvalue": self.clipvalue,
            "global_clipnorm": self.global_clipnorm,
        }
        given = [f"{name}={value}" for name, value in limits.items() if value is not None]
        if len(given) > 1:
            raise ValueError(
                f"{type(self).__name__}: expected at most one of clipnorm, clipvalue and "
                f"global_clipnorm, received {' and '.join(given)}. Leave out all but one."
            )

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        """The first state of one weight: arrays by name. The same names for every weight."""
        return {}

    def step(
        self,
        gradient: jax.Array,
        weight: jax.Array,
        slots: dict[str, jax.Array],
        rate: jax.Array,
        count: jax.Array,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """What is added to one weight, and its next state.

        Args:
            gradient: the gradient, clipped.
            weight: the weight after weight decay.
            slots: its state.
            rate: the learning rate, a scalar.
            count: the number of this step as a float, counted from 1.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer needs its own step(gradient, weight, slots, "
            "rate, count). Write one that returns (delta, slots)."
        )

    def transformation(self) -> optax.GradientTransformation:
        """The optimizer as a pair of pure functions, `init` and `update`, as optax has them.

        Returns:
            A transformation whose updates `optax.apply_updates` adds to the weights.

        Example:
            >>> import jax.numpy as jnp
            >>> import fkeras as fk
            >>> optimizer = fk.optimizers.SGD(0.5).transformation()
            >>> state = optimizer.init({"w": jnp.ones(2)})
            >>> optimizer.update({"w": jnp.ones(2)}, state)[0]
            {'w': Array([-0.5, -0.5], dtype=float32)}
        """
        return optax.GradientTransformation(self._init, self._update)

    def _init(self, weights: Any) -> OptimizerState:
        leaves, structure = jax.tree.flatten(weights)
        slots = [self.slots(jnp.asarray(w)) for w in leaves]
        names = slots[0] if slots else {}
        by_name = {n: jax.tree.unflatten(structure, [s[n] for s in slots]) for n in names}
        constant = not callable(self.learning_rate)
        return OptimizerState(
            count=jnp.zeros((), "int32"),
            learning_rate=jnp.asarray(self.learning_rate, "float32") if constant else None,
            slots=by_name,
        )

    def _update(
        self, gradients: Any, state: OptimizerState, weights: Any = None
    ) -> tuple[Any, OptimizerState]:
        if weights is None and (self.weight_decay or self.reads_weights):
            raise ValueError(
                f"{type(self).__name__}: expected the weights too, since its step depends on "
                "them. Call update(gradients, state, weights)."
            )
        current = state.learning_rate
        if current is None:
            current = jnp.asarray(self.learning_rate(state.count)).astype("float32")
        count = optax.safe_increment(state.count)
        leaves, structure = jax.tree.flatten(gradients)
        # without weights their place is taken by something of the same shape and dtype
        weight_leaves = leaves if weights is None else structure.flatten_up_to(weights)
        leaves = [jnp.asarray(g) for g in leaves]
        leaves = self._clip([g.astype(working_dtype(g)) for g in leaves])
        slot_leaves = {n: structure.flatten_up_to(tree) for n, tree in state.slots.items()}
        deltas, slots = [], []
        for index, (gradient, weight) in enumerate(zip(leaves, weight_leaves, strict=True)):
            own = {n: values[index] for n, values in slot_leaves.items()}
            delta, own = self._leaf(gradient, weight, own, current, count)
            deltas.append(delta)
            slots.append(own)
        by_name = {n: jax.tree.unflatten(structure, [s[n] for s in slots]) for n in slot_leaves}
        deltas = jax.tree.unflatten(structure, deltas)
        return deltas, OptimizerState(count, state.learning_rate, by_name)

    def _leaf(
        self, gradient: Any, weight: Any, slots: Any, current: jax.Array, count: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        weight = jnp.asarray(weight)
        dtype = working_dtype(weight)
        full, lr = weight.astype(dtype), current.astype(dtype)
        decay = lr * self.weight_decay * full if self.weight_decay else 0.0
        delta, new = self.step(
            jnp.asarray(gradient).astype(dtype), full - decay, slots, lr, count.astype(dtype)
        )
        kept = {n: new[n].astype(slots[n].dtype) for n in slots}
        return (delta - decay).astype(weight.dtype), kept

    def _clip(self, gradients: list[jax.Array]) -> list[jax.Array]:
        if self.clipnorm is not None:
            return [clip_norm(g, self.clipnorm) for g in gradients]
        if self.clipvalue is not None:
            limit = self.clipvalue
            return [jnp.clip(g, -limit, limit) for g in gradients]
        if self.global_clipnorm is not None:
            clip = optax.clip_by_global_norm(self.global_clipnorm)
            return clip.update(gradients, clip.init(gradients))[0]
        return gradients

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The optimizer that `get_config`, of this package or of Keras, described.

        Raises:
            ValueError: for what Keras can do and this package cannot, where it is switched on.
        """
        config = dict(config)
        for key, neutral in _NEUTRAL:
            value = config.pop(key, neutral[0])
            if value not in neutral:
                raise ValueError(
                    f"{cls.__name__}.from_config: there is no {key} here, received {value!r}. "
                    "Take it out, and add it to the transformation with optax."
                )
        config.pop("ema_momentum", None)
        if isinstance(config.get("learning_rate"), Mapping):
            learning_rate = schedules.deserialize(config["learning_rate"], custom_objects)
            config["learning_rate"] = learning_rate
        elif isinstance(config.get("learning_rate"), float):
            config["learning_rate"] = _shortest(config["learning_rate"])
        return from_configuration(cls, config, custom_objects)


def _shortest(value: float) -> float:
    # Keras writes 0.001 as 0.0010000000474974513, what float32 makes of it
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value

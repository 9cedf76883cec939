"""`BatchNormalization`: normalizes by the batch in training, by moving averages in inference.

The averages are state: training returns new averages in its updates, and nothing else changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.normalization import batch_normalization, moments, moving_average, renorm_correction
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.dtypes import wide_dtype

_one_axis = fk.integer(hint="Give the feature axis: -1, or 1 for channels first.")


def _axis(value: fk.Field) -> int:
    return _one_axis(value[0] if isinstance(value, list | tuple) and len(value) == 1 else value)


def _unsynchronized(value: fk.Field) -> bool:
    if fk.boolean(value):
        raise ValueError(
            "expected False, received True. Leave it out: under jax.jit, the statistics of a "
            "batch sharded over devices already cover the whole batch."
        )
    return False


def _clipping(value: fk.Field) -> Mapping[str, float]:
    names = ("rmin", "rmax", "dmax")
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(
            f"expected a dictionary with the keys {', '.join(names)}, or None, received "
            f"{fk.describe_value(value)}. For example: {{'rmax': 3.0, 'dmax': 5.0}}."
        )
    value = dict(value or {})
    for name in value:
        if name not in names:
            raise ValueError(
                f"expected the keys {', '.join(names)}, received {name!r}.{fk.suggest(name, names)} "
                "Leave the others out."
            )
    rmin, rmax, dmax = (value.get(name) for name in names)
    if (rmin is not None and rmax is not None and rmax < rmin) or (dmax is not None and dmax < 0):
        raise ValueError(
            f"expected rmin <= rmax and dmax >= 0, received {value}. The paper's final values are "
            "rmax=3, rmin=1/3, dmax=5."
        )
    return value


def _initializer(value: fk.Field) -> Callable:
    """Converts an initializer, and rejects None, because no default would replace it."""
    if value is None:
        raise ValueError("expected an initializer, received None. For example: 'zeros'.")
    return fk.initializers.get(value)


class BatchNormalization(fk.Layer):
    """Normalizes each feature to mean 0 and variance 1, then scales and shifts.

    Training uses the mean and the (biased) variance of the batch, which also update the moving
    averages in the state. Inference uses the moving averages. A layer with `trainable=False` never
    updates the averages, and its training calls compute as in inference, unless `frozen` is
    "batch". Masked positions are excluded from all means.

    Statistics and averages are float32 even if the compute dtype is half precision. The policies
    "bfloat16" and "float16" also have float32 averages; Keras keeps these averages in half
    precision, where steps of `1 - momentum` are lost to rounding. Under `jax.jit` the statistics
    of a sharded batch are those of the whole batch; under `jax.shard_map` and `jax.vmap` they are
    those of the part.

    Args:
        axis: the feature axis.
        momentum: weight of the old average in an update.
        moving_mean_initializer: draws the initial moving mean.
        moving_variance_initializer: draws the initial moving variance.
        renorm: whether training normalizes by separate moving averages (batch renormalization).
        renorm_clipping: bounds "rmin", "rmax" and "dmax" of the correction.
        renorm_momentum: weight of the old average in an update of the averages of `renorm`.
        synchronized: must be False: a batch sharded over devices is one array, normalized as one.
        frozen: statistics in training calls of a layer with `trainable=False`: "moving" uses the
            moving averages; "batch" uses the batch (with `renorm` also its correction), like Keras
            until 2.3.1 and TensorFlow 1. Neither updates the averages. Files of those versions
            load with "batch" for frozen layers. Keras 3 supports only "moving": it loads a
            `.keras` file with "batch" as "moving", and rejects the JSON.
        Other arguments: those of `LayerNormalization`, without `rms_scaling`.

    Shapes:
        (b, ..., c) -> (b, ..., c); gamma, beta (c,); state moving_mean, moving_variance (c,), with
        `renorm` also moving_stddev, renorm_mean, renorm_stddev (c,).

    Raises:
        ValueError: for `synchronized=True`, a momentum outside of [0, 1], invalid bounds, an
            unknown `frozen`, or a mask without exactly the axes of the input except the last.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.BatchNormalization(momentum=0.5, epsilon=0.0)
        >>> layer = layer.build(jax.random.key(0), (None, 1))
        >>> state = layer.init_state((None, 1))
        >>> out = layer.apply(jnp.array([[1.0], [3.0]]), state=state, training=True)
        >>> out.value.ravel(), out.updates["moving_mean"]
        (Array([-1.,  1.], dtype=float32), Array([1.], dtype=float32))

    References:
        Ioffe and Szegedy, 2015, Batch normalization, https://arxiv.org/abs/1502.03167
        Ioffe, 2017, Batch renormalization, https://arxiv.org/abs/1702.03275
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        option_names=("training", "mask"),
        training_default=None,
        state_order=(
            "moving_mean",
            "moving_variance",
            "moving_stddev",
            "renorm_mean",
            "renorm_stddev",
        ),
    )

    axis: fk.Integer = fk.option(default=-1, convert=_axis)
    momentum: fk.Real = fk.option(default=0.99, convert=fk.probability)
    epsilon: fk.Real = fk.option(default=1e-3, convert=fk.real(minimum=0))
    center: bool = fk.option(default=True, convert=fk.boolean)
    scale: bool = fk.option(default=True, convert=fk.boolean)
    beta_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    gamma_initializer: fk.Initializer = fk.option(default="ones", convert=fk.initializer)
    moving_mean_initializer: fk.Initializer = fk.option(default="zeros", convert=_initializer)
    moving_variance_initializer: fk.Initializer = fk.option(default="ones", convert=_initializer)
    beta_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    gamma_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    beta_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    gamma_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    renorm: bool = fk.option(default=False, convert=fk.boolean)
    renorm_clipping: fk.Converted[Mapping[str, float] | None, Mapping[str, float]] = fk.option(
        default=fk.FrozenDict(), convert=_clipping
    )
    renorm_momentum: fk.Real = fk.option(default=0.99, convert=fk.probability)
    synchronized: bool = fk.option(default=False, convert=_unsynchronized)
    frozen: str = fk.option(default="moving", convert=fk.choice("moving", "batch"), kw_only=True)

    gamma: jax.Array | None = fk.weight(axes="c")
    beta: jax.Array | None = fk.weight(axes="c")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    supports_masking: ClassVar[bool] = True
    # gamma, beta and the statistics remain float32; forward casts the input itself
    _autocast: ClassVar[bool] = False

    @property
    def input_spec(self) -> fk.InputSpec:
        sizes = [w.shape[0] for w in (self.gamma, self.beta) if w is not None]
        return fk.InputSpec(
            min_ndim=max(2, self.axis + 1, -self.axis),
            axes={self.axis: sizes[0] if sizes else None},
        )

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        shape = (self._features(x),)
        return self.with_weights(
            key, gamma=shape if self.scale else None, beta=shape if self.center else None
        )

    def init_state(self, x: fk.SpecLike) -> dict[str, jax.Array]:
        """Returns the initial averages; a random initializer always draws the same values."""
        size = self._features(x)
        dtype = wide_dtype(self.policy.variable_dtype)
        key = jax.random.key(0)
        mean = self.moving_mean_initializer(key, (size,), dtype)
        variance = self.moving_variance_initializer(key, (size,), dtype)
        state = {"moving_mean": mean, "moving_variance": variance}
        if self.renorm:
            # separate arrays: one buffer in two entries of the state could not be donated
            state["moving_stddev"] = jnp.sqrt(variance)
            state["renorm_mean"] = self.moving_mean_initializer(key, (size,), dtype)
            state["renorm_stddev"] = jnp.sqrt(variance)
        return state

    def _features(self, x: fk.Spec) -> int:
        size = x.shape[self.axis] if -x.ndim <= self.axis < x.ndim else None
        if size is None:
            raise ValueError(
                f"{self._where}: expected an input with a known size on axis {self.axis}, received "
                f"{x}. Give the features a size, as in fk.Input((None, 8))."
            )
        return size

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.frozen == "moving":  # Keras has no such argument
            del config["frozen"]
        return config

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        self._check(context, x)
        dtype = self.policy.compute_dtype
        if jnp.issubdtype(x.dtype, jnp.floating):
            # first round to the compute dtype, as Keras does, then compute statistics in float32
            x = x.astype(dtype)
        from_bfloat16, x = x.dtype == jnp.bfloat16, x.astype(wide_dtype(dtype))
        gamma, beta = (w if w is None else w.astype(x.dtype) for w in (self.gamma, self.beta))
        updates: dict[str, jax.Array] = {}
        uses_batch = context.training and (self.trainable or self.frozen == "batch")
        # a batch without rows has no statistics
        if uses_batch and 0 not in x.shape:
            mean, variance = moments(x, self.axis, context.mask, from_bfloat16)
            if self.renorm:
                stddev = jnp.sqrt(variance + self.epsilon)
                gamma, beta = self._renormalize(context.state, mean, stddev, gamma, beta)
                updates = self._move_renorm(context.state, mean, stddev)
            else:
                updates = self._move(context.state, mean, variance)
            updates = updates if self.trainable else {}
        else:
            mean = context.state["moving_mean"].astype(x.dtype)
            variance = context.state["moving_variance"].astype(x.dtype)
        y = batch_normalization(x, mean, variance, gamma, beta, self.axis, self.epsilon)
        return fk.Output(y.astype(dtype), updates=updates, mask=context.mask)

    def _check(self, context: fk.Context, x: jax.Array) -> None:
        size, features = context.state["moving_mean"].shape[0], x.shape[self.axis]
        if size != features:
            raise ValueError(
                f"{self._where}: expected {size} features on axis {self.axis}, as its state has, "
                f"received {format_shape(x.shape)}. Make the state for this input: "
                "layer.init_state(x)."
            )
        if context.mask is not None and context.mask.ndim != x.ndim - 1:
            raise ValueError(
                f"{self._where}: expected a mask with the axes of the input but the last, received "
                f"{format_shape(context.mask.shape)} for {format_shape(x.shape)}. Add the missing "
                "axes to the mask: mask[:, :, None]."
            )

    def _move(self, state: Mapping, mean: jax.Array, variance: jax.Array) -> dict[str, jax.Array]:
        return {
            "moving_mean": moving_average(state["moving_mean"], mean, self.momentum),
            "moving_variance": moving_average(state["moving_variance"], variance, self.momentum),
        }

    def _renormalize(
        self,
        state: Mapping,
        mean: jax.Array,
        stddev: jax.Array,
        gamma: jax.Array | None,
        beta: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns `(gamma, beta)` including the correction of batch renormalization."""
        # the moving standard deviation includes epsilon, so its lower bound is sqrt(epsilon)
        smallest = self.epsilon**0.5
        tracked = jnp.maximum(state["renorm_stddev"].astype(mean.dtype), smallest)
        centre = state["renorm_mean"].astype(mean.dtype)
        r, d = renorm_correction(mean, stddev, centre, tracked, self.renorm_clipping)
        if gamma is not None:
            r, d = r * gamma, d * gamma
        return r, d if beta is None else d + beta

    def _move_renorm(
        self, state: Mapping, mean: jax.Array, stddev: jax.Array
    ) -> dict[str, jax.Array]:
        moving_stddev = moving_average(state["moving_stddev"], stddev, self.momentum)
        # renormalization averages the standard deviation; the variance is derived from it
        return {
            "moving_mean": moving_average(state["moving_mean"], mean, self.momentum),
            "moving_variance": jnp.maximum(jnp.square(moving_stddev) - self.epsilon, 0.0),
            "moving_stddev": moving_stddev,
            "renorm_mean": moving_average(state["renorm_mean"], mean, self.renorm_momentum),
            "renorm_stddev": moving_average(state["renorm_stddev"], stddev, self.renorm_momentum),
        }

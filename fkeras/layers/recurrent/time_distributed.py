"""`TimeDistributed`: applies a layer to every step of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.wrapper import Wrapper
from fkeras.nn.numerics.axes import may_equal


class TimeDistributed(Wrapper):
    """Applies one layer to every step of a sequence.

    Each step is a separate call with its own random numbers. The state of a layer passes from step
    to step. A layer that supports masks receives the mask (b, t, ...) step by step. The losses of
    the steps are added, metrics are averaged.

    Args:
        layer: the layer to apply.

    Shapes:
        (b, t, ...) -> (b, t, ...), where the layer maps (b, ...) -> (b, ...).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.LayerNormalization())
        >>> layer = layer.build(jax.random.key(0), (None, 5, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape
        (2, 5, 3)
    """

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        option_names=("training", "mask"), training_default=None
    )
    input_spec: ClassVar[None] = None

    @property
    def id_count(self) -> int | None:
        """Number of ids that the layer looks up; None for a layer without a lookup."""
        return getattr(self.layer, "id_count", None)

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        return False

    def build(self, key: jax.Array, x: fk.Tree) -> Self:
        if self.layer.built:
            return self
        return self.replace(layer=self.layer.build(fk.subkey(key, "layer"), self._step_spec(x)))

    def init_state(self, x: fk.Tree) -> dict[str, Any]:
        inner = self.layer.init_state(self._step_spec(x))
        return {"layer": inner} if inner else {}

    def _state_with_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
        # each step is a call of its own: the layer inside keeps no tokens of other steps
        return self.init_state(*specs)

    def forward(self, context: fk.Context, x: fk.Tree) -> fk.Output:
        mask = self._checked_mask(context, x)
        state = context.state.get("layer", {})
        time = jax.tree.leaves(x)[0].shape[1]

        def step(x_t: fk.Tree, mask_t: fk.Tree, index: jax.Array, state: fk.Tree) -> fk.Output:
            layer_context = context.child("layer", mask=mask_t, state=state)
            # the step's index separates the draws of the steps
            return layer_context.repeat(index).run(self.layer, x_t)

        steps = (x, mask if self.layer.supports_masking else None)
        steps = (*steps, jnp.arange(time, dtype="uint32"))
        # vmap computes the steps in parallel; only layers that change state need a sequential scan
        if not _changes_state(step, steps, state):
            return self._merge(context, self._map(step, steps, state), mask)

        def body(state: fk.Tree, inputs: fk.Tree) -> fk.Tree:
            x_t, mask_t, index = inputs
            out = step(x_t, mask_t, index, state)
            return {**state, **out.updates}, (out.value, out.mask, out.losses, out.metrics)

        # `lax.scan` runs over the first axis
        step_inputs = jax.tree.map(lambda v: jnp.swapaxes(v, 0, 1), steps[:2])
        state, outputs = lax.scan(body, state, (*step_inputs, steps[2]))
        value, out_mask = jax.tree.map(lambda v: jnp.swapaxes(v, 0, 1), outputs[:2])
        return self._merge(context, (value, out_mask, *outputs[2:]), mask, {"layer": state})

    def _map(self, step: Callable, steps: tuple, state: fk.Tree) -> tuple:
        def step_outputs(x_t: fk.Tree, mask_t: fk.Tree, index: jax.Array) -> tuple:
            out = step(x_t, mask_t, index, state)
            return out.value, out.mask, out.losses, out.metrics

        # no step depends on another step: compute all steps as one batch
        return jax.vmap(step_outputs, in_axes=(1, 1, 0), out_axes=(1, 1, 0, 0))(*steps)

    def _merge(
        self, context: fk.Context, outputs: tuple, mask: fk.Tree, updates: dict | None = None
    ) -> fk.Output:
        value, out_mask, losses, metrics = outputs
        if context.attached is not None:
            out_mask = None  # Keras drops the masks that the wrapped layer returns
        if out_mask is None and mask is not None:
            out_mask = mask if mask.ndim == 2 else mask.any(axis=tuple(range(2, mask.ndim)))
        return fk.Output(
            value,
            updates=updates or {},
            losses=tuple(loss.sum() for loss in losses),
            metrics={name: m.mean() for name, m in metrics.items()},
            mask=out_mask,
        )

    def _step_spec(self, x: fk.Tree) -> fk.Tree:
        def drop_time(spec: fk.Spec) -> fk.Spec:
            if spec.ndim < 3:
                raise ValueError(
                    f"{self._where}: expected an input of shape (b, t, ...) with at least three "
                    f"axes, received {spec}. Add the missing axis, such as x[..., None]."
                )
            return fk.Spec((spec.dims[0], *spec.dims[2:]), spec.dtype)

        return jax.tree.map(drop_time, x, is_leaf=lambda v: isinstance(v, fk.Spec))

    def _checked_mask(self, context: fk.Context, x: fk.Tree) -> fk.Mask:
        mask = context.mask
        for leaf in jax.tree.leaves(x):
            self._step_spec(fk.as_spec(leaf))
            leading_sizes = leaf.shape[:2]
            if mask is None:
                continue
            if not may_equal(mask.shape[:2], leading_sizes):
                raise ValueError(
                    f"{self._where}: expected a mask of shape ({leading_sizes[0]}, "
                    f"{leading_sizes[1]}, ...), one value per step, received {fk.as_spec(mask)}. Give "
                    "the mask the batch and time axes of the input."
                )
        return mask


def _changes_state(step: Callable, steps: tuple, state: fk.Tree) -> bool:
    """Returns whether a step returns updates, which the next step must receive."""
    if not state:
        return False
    x, mask, index = steps
    # traced abstractly: all steps return updates with the structure of the first
    output = jax.eval_shape(
        lambda x, mask, index: step(*jax.tree.map(lambda v: v[:, 0], (x, mask)), index[0], state),
        x,
        mask,
        index,
    )
    return bool(output.updates)

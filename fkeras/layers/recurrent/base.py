"""`Recurrent`: base class of SimpleRNN, LSTM, GRU, RNN and ConvLSTM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.namespaces import find
from fkeras.engine.config.policy_maps import policy_at, policy_map
from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.states import as_state, convert_initial_state, from_state
from fkeras.nn.recurrence import Step, scan_sequence

#: arguments of Keras's recurrent layers after the regularizers, in the order of the signatures
PENALTIES = ("activity_regularizer", "kernel_constraint", "recurrent_constraint", "bias_constraint")
DROPOUT = ("dropout", "recurrent_dropout")
SEQUENCES = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll")


class Recurrent(fk.Layer):
    """Scans a step along time; a subclass defines the step and the states.

    Args of the family:
        return_sequences: whether to return the outputs of all steps, or only the last output.
        return_state: whether to also return the final states.
        go_backwards: whether to start at the last step; outputs are in the order of computation.
        stateful: whether a call starts from the final states of the previous call. The carry is
            the layer's state, returned in `updates`, in training and in inference.
        unroll: whether to unroll the loop over time: slower compilation; only for short sequences
            of known length.
        zero_output_for_mask: whether the output is 0 at masked steps, instead of the previous
            output. Without return_sequences, the output is 0 if the last step is masked. Has no
            effect with unroll, as in Keras.
        activity_regularizer: penalty on the output.
    """

    # Keras's sequence layers hold a cell, and Keras's files hold no carry
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        input_names=("sequences",),
        option_names=("initial_state", "mask", "training"),
        groups=fk.FrozenDict({"": "cell"}),
        stores_state=False,
    )

    return_sequences: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    return_state: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    go_backwards: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    stateful: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    unroll: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    zero_output_for_mask: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    activity_regularizer: fk.Regularizer = fk.option(
        default=None, convert=fk.regularizer, kw_only=True
    )

    supports_masking: ClassVar[bool] = True
    #: the cell of Keras's layer, for which a policy map may contain a separate dtype policy
    cell_class: ClassVar[str | None] = None
    _scan: ClassVar[Callable[..., tuple[jax.Array, Any]]] = staticmethod(scan_sequence)

    def zero_states(self, batch: fk.Tree) -> list:
        """Returns the states before the first step, in the compute dtype."""
        raise NotImplementedError(f"{self._where}: has no zero_states. Use RNN(cell).")

    def first_states(self, x: fk.Tree) -> list:
        """Returns `zero_states` for sequences of the shape of `x`, an array or a spec."""
        return self.zero_states(x.shape[0])

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        """Returns `(x_t, states) -> (output, new_states)` with bound weights and dropout masks."""
        raise NotImplementedError(f"{self._where}: has no step_function. Use RNN(cell).")

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Any:
        """Reads a configuration; returns an `RNN` if the cell has another dtype policy.

        Keras's maps of dtype policies name the layer and the cell separately.
        """
        # Keras's LSTM contains an LSTMCell with a dtype policy; here the layer has one policy
        dtype, cell = config.get("dtype"), cls.__dict__.get("cell_class")
        if cell is None or policy_map(dtype) is None:
            return super().from_config(config, custom_objects)
        layer_dtype, name = policy_at(dtype, config.get("name")), fk.snake_case(cell)
        cell_dtype = policy_at(dtype, f"{config.get('name')}/{name}")
        if fk.get_policy(layer_dtype) == fk.get_policy(cell_dtype):
            return super().from_config({**config, "dtype": layer_dtype}, custom_objects)
        cell = find(cell, "keras.layers")
        cell_fields = {f.name for f in dataclasses.fields(cell) if f.init}
        cell_config = {k: v for k, v in config.items() if k in cell_fields} | {
            "name": name,
            "dtype": cell_dtype,
        }
        layer_fields = {f.name for f in dataclasses.fields(Recurrent)}
        layer_config = {k: v for k, v in config.items() if k in layer_fields} | {
            "dtype": layer_dtype
        }
        cell_layer = cell.from_config(cell_config, custom_objects=custom_objects)
        return find("RNN", "keras.layers")(cell_layer, **fk.decode(layer_config, custom_objects))

    @property
    def output_of(self) -> Callable[[Any], jax.Array] | None:
        """Function that returns the last output given the states; None if states lack it."""
        return first_state

    def init_state(self, x: fk.SpecLike) -> dict[str, Any]:
        if not self.stateful:
            return {}
        batch = x.shape[0]
        if batch is None:
            raise ValueError(
                f"{self._where}: stateful=True needs a known batch size, received sequences of "
                f"shape {x}. The state has one row per sample: give `fk.Input(..., batch_size=n)`, "
                "or init_state a shape such as (32, None, 8)."
            )
        return as_state(self.first_states(x), self.policy.variable_dtype)

    def reset_state(self, state: fk.Tree) -> dict[str, Any]:
        """Returns the state before the first call: zeros of the same shapes as `state`."""
        return jax.tree.map(jnp.zeros_like, state)

    def forward(
        self, context: fk.Context, x: jax.Array, *, initial_state: fk.Tree = None
    ) -> fk.Output:
        self._check_length(context, x)
        zeros = self.first_states(x)
        # an explicit initial state takes precedence over a stored carry, as in Keras
        if initial_state is not None:
            first_states = convert_initial_state(self._where, initial_state, zeros)
        elif self.stateful:
            first_states = from_state(self._where, context.state, zeros)
        else:
            first_states = zeros
        output, states = self._scan(
            self.step_function(context, x),
            x,
            first_states,
            context.step_mask,
            go_backwards=self.go_backwards,
            unroll=self.unroll,
            zero_output_for_mask=self.zero_output_for_mask,
            return_sequences=self.return_sequences,
            output_of=self.output_of,
        )
        # stored in the dtype of variables: a half-precision carry would lose digits at each call
        updates = as_state(states, self.policy.variable_dtype) if self.stateful else {}
        # the cell may compute in another dtype
        output, *states = fk.cast_floats((output, *states), self.policy.compute_dtype)
        # a mask of steps has no meaning for the last output alone
        mask = context.mask if self.return_sequences else None
        if not self.return_state:
            return fk.Output(output, updates=updates, mask=mask)
        masks = (mask, *jax.tree.map(lambda _: None, states))
        return fk.Output((output, *states), updates=updates, mask=masks)

    def _check_length(self, context: fk.Context, x: jax.Array) -> None:
        if self.unroll and not isinstance(x.shape[1], int):
            raise ValueError(
                f"{self._where}: unroll=True needs a known number of steps, received a time axis "
                "of unknown size. Give the length, as in fk.Input((10, 8)), or leave unroll out."
            )
        mask = context.mask
        if mask is not None and len(mask.shape) != 2:
            raise ValueError(
                f"{self._where}: expected a mask of shape (b, t), one value per step, received "
                f"{len(mask.shape)} axes: {mask.shape}. Reduce it: mask.any(axis=-1)."
            )


def first_state(states: fk.Tree) -> jax.Array:
    """Returns the first state, which equals the last output in SimpleRNN, LSTM and GRU."""
    return states[0]

"""Fields and methods shared by SimpleRNN, LSTM, GRU and their cells.

A cell computes one step of its layer, with the same weights. Each family declares its fields in one
class. The cell inherits from this class and `UnitCell`, the layer from this class and
`UnitRecurrent`. Dataclass fields are ordered by the bases from right to left, which gives Keras's
order of constructor arguments.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from fkeras import activations
from fkeras.engine import Context, InputSpec, Layer, Output, option, weight
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Activation, Integer
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step


class UnitStep(Layer):
    """Step whose states have `units` entries: common fields, weights and state sizes."""

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default="tanh", convert=activations.get)

    kernel: jax.Array = weight()
    recurrent_kernel: jax.Array = weight(prefix="recurrent")
    bias: jax.Array | None = weight()

    @property
    def axis_names(self) -> AxisNames:
        # "g" holds the units of all gates in turn: a device with a part of the axis would lack gates
        # GRU has a row of biases for each of its two products
        bias = "g" if self.bias is None else f"{'_' * (self.bias.ndim - 1)}g"
        return AxisNames(FrozenDict({"kernel": "ig", "recurrent_kernel": "ug", "bias": bias}))

    # private, because a public `state_size` marks cells, see `check_cell`
    @property
    def _state_sizes(self) -> int | list[int]:
        return self.units

    def step_function(self, context: Context, x: jax.Array) -> Step:
        """Returns `(x_t, states) -> (output, new_states)` with bound weights and dropout masks."""
        raise NotImplementedError(f"{self.where}: has no step_function.")


class UnitCell(UnitStep):
    """Base class of cells: one call computes one step."""

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("inputs", "states"))
    #: the output of a step is its first new state
    output_is_state: ClassVar[bool] = True

    @property
    def state_size(self) -> int | list[int]:
        return self._state_sizes

    @property
    def output_size(self) -> int:
        return self.units

    def get_initial_state(self, batch_size: Any) -> list[jax.Array]:
        """Returns zeros for a batch of this size."""
        return zero_states(self._state_sizes, batch_size, self.policy.compute_dtype)

    def forward(self, context: Context, x: jax.Array, states: Any) -> Output:
        return Output(self.step_function(context, x)(x, states))


class UnitRecurrent(UnitStep, Recurrent):
    """Base class of layers: one call computes all steps of a sequence."""

    @property
    def input_spec(self) -> InputSpec:
        # before `build` any number of features is accepted
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return InputSpec(ndim=3, axes=axes)

    def zero_states(self, batch: Any) -> list[jax.Array]:
        return zero_states(self._state_sizes, batch, self.policy.compute_dtype)

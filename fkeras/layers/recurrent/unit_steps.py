"""Fields and methods shared by SimpleRNN, LSTM, GRU, their cells and ConvLSTM.

A cell computes one step of its layer, with the same weights. Each family collects its fields in one
class. The cell inherits from this class and `UnitCell`, the layer from this class and
`UnitRecurrent`. Dataclass fields are ordered by the bases from right to left, which gives Keras's
order of constructor arguments: `Gates`, `Kernels`, `ForgetBias`, `Penalties`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import Context, InputSpec, Layer, Output, option, weight
from fkeras.engine.config.converters import boolean, integer, probability
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    Initializer,
    Integer,
    Real,
    Regularizer,
)
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step


class Gates(Layer):
    """Step with gates.

    Args of the family:
        recurrent_activation: function or its name, for the gates.
        use_cudnn: accepted for compatibility with Keras, without effect: XLA compiles the loop.
        implementation: 1 draws dropout separately for each gate, 2 once for all gates; always 1
            with recurrent_dropout.
    """

    recurrent_activation: Activation = option(default="sigmoid", convert=activations.get)


class Kernels(Layer):
    """Step with a kernel for the input and a kernel for the state.

    Args of the family:
        use_bias: whether to add a bias.
        kernel_initializer: draws `kernel`.
        recurrent_initializer: draws `recurrent_kernel`.
        bias_initializer: draws `bias`.
    """

    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    recurrent_initializer: Initializer = option(default="orthogonal", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)


class ForgetBias(Layer):
    """Step with a forget gate.

    Args of the family:
        unit_forget_bias: whether the bias of the forget gate starts at one.
    """

    unit_forget_bias: bool = option(default=True, convert=boolean)


class Penalties(Layer):
    """Step with penalties and projections of `Kernels`, and dropout.

    Args of the family:
        kernel_regularizer: penalty on `kernel`.
        recurrent_regularizer: penalty on `recurrent_kernel`.
        bias_regularizer: penalty on `bias`.
        kernel_constraint: projection of `kernel` after each update.
        recurrent_constraint: projection of `recurrent_kernel` after each update.
        bias_constraint: projection of `bias` after each update.
        dropout: probability of dropping an input entry in training, drawn once for all steps.
        recurrent_dropout: probability of dropping an entry of the state h in training, drawn once
            for all steps.
        seed: folded into the key of each call; None uses the key alone.
    """

    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    recurrent_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    recurrent_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)
    dropout: Real = option(default=0.0, convert=probability)
    recurrent_dropout: Real = option(default=0.0, convert=probability)


class UnitStep(Layer):
    """Step whose states have `units` entries: common fields, weights and state sizes.

    Args of the family:
        units: size `u` of each state and of the output.
        activation: function or its name; None is the identity.
    """

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
        raise NotImplementedError(f"{self._where}: has no step_function.")


class UnitCell(UnitStep):
    """Base class of cells: one call computes one step."""

    _keras_form: ClassVar[KerasForm] = KerasForm(input_names=("inputs", "states"))
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

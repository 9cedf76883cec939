"""Fields and methods shared by SimpleRNN, LSTM, GRU, their cells and ConvLSTM.

A cell computes one step of its layer, with the same weights. Each family collects its fields in one
class. The cell inherits from this class and `UnitCell`, the layer from this class and
`UnitRecurrent`. Dataclass fields are ordered by the bases from right to left, which gives Keras's
order of constructor arguments: `Gates`, `Kernels`, `ForgetBias`, `Penalties`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.recurrent.base import Recurrent
from fkeras.layers.recurrent.states import zero_states
from fkeras.nn.recurrence import Step
from fkeras.nn.recurrent_products import scan_products


class Gates(fk.Layer):
    """Step with gates.

    Args of the family:
        recurrent_activation: function or its name, for the gates.
        use_cudnn: accepted for compatibility with Keras, without effect: XLA compiles the loop.
        implementation: 1 draws dropout separately for each gate, 2 once for all gates; always 1
            with recurrent_dropout.
    """

    recurrent_activation: fk.Activation = fk.option(default="sigmoid", convert=fk.activation)


class Kernels(fk.Layer):
    """Step with a kernel for the input and a kernel for the state.

    Args of the family:
        use_bias: whether to add a bias.
        kernel_initializer: draws `kernel`.
        recurrent_initializer: draws `recurrent_kernel`.
        bias_initializer: draws `bias`.
    """

    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    recurrent_initializer: fk.Initializer = fk.option(default="orthogonal", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)


class ForgetBias(fk.Layer):
    """Step with a forget gate.

    Args of the family:
        unit_forget_bias: whether the bias of the forget gate starts at one.
    """

    unit_forget_bias: bool = fk.option(default=True, convert=fk.boolean)


class Penalties(fk.Layer):
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
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
    """

    kernel_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    recurrent_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    kernel_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    recurrent_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    recurrent_dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)


class UnitStep(fk.Layer):
    """Step whose states have `units` entries: common fields, weights and state sizes.

    Args of the family:
        units: size `u` of each state and of the output.
        activation: function or its name; None is the identity.
    """

    units: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default="tanh", convert=fk.activation)

    kernel: jax.Array = fk.weight()
    recurrent_kernel: jax.Array = fk.weight(prefix="recurrent")
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        # "g" holds the units of all gates in turn: a device with a part of the axis would lack gates
        # GRU has a row of biases for each of its two products
        bias = "g" if self.bias is None else f"{'_' * (self.bias.ndim - 1)}g"
        return fk.AxisNames(fk.FrozenDict({"kernel": "ig", "recurrent_kernel": "ug", "bias": bias}))

    # private, because a public `state_size` marks cells, see `check_cell`
    @property
    def _state_sizes(self) -> int | list[int]:
        return self.units

    def step_function(self, context: fk.Context, x: jax.Array) -> Step:
        """Returns `(x_t, states) -> (output, new_states)` with bound weights and dropout masks."""
        raise NotImplementedError(f"{self._where}: has no step_function.")


class UnitCell(UnitStep):
    """Base class of cells: one call computes one step."""

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(input_names=("inputs", "states"))
    #: the output of a step is its first new state
    output_is_state: ClassVar[bool] = True

    @property
    def state_size(self) -> int | list[int]:
        return self._state_sizes

    @property
    def output_size(self) -> int:
        return self.units

    def get_initial_state(self, batch_size: int | None) -> list[jax.Array]:
        """Returns zeros for a batch of this size."""
        return zero_states(self._state_sizes, batch_size, self.policy.compute_dtype)

    def forward(self, context: fk.Context, x: jax.Array, states: fk.Tree) -> fk.Output:
        return fk.Output(self.step_function(context, x)(x, states))


class UnitRecurrent(UnitStep, Recurrent):
    """Base class of layers: one call computes all steps of a sequence."""

    _scan: ClassVar[Callable[..., tuple[jax.Array, Any]]] = staticmethod(scan_products)

    @property
    def input_spec(self) -> fk.InputSpec:
        # before `build` any number of features is accepted
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return fk.InputSpec(ndim=3, axes=axes)

    def zero_states(self, batch: fk.Tree) -> list[jax.Array]:
        return zero_states(self._state_sizes, batch, self.policy.compute_dtype)

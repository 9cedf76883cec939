"""`Signature`: everything about a call except the layer and the tensors that it connects.

A recorded `Node` and a `Call` of a closed graph hold the same `Signature` object. They differ in how
they name the layer and the inputs: a node by objects, a graph's call by the layer's name and by slots.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from fkeras.engine.call.mask_rules import STRICT
from fkeras.engine.values.annotations import Template
from fkeras.engine.values.spec import Spec
from fkeras.engine.values.structure import Ref


class RecordedCall(NamedTuple):
    """The part of a signature that the caller chooses; `inference` computes the rest."""

    args: Any
    options: Any
    training: bool | None = None
    mask_rule: str = STRICT


@dataclasses.dataclass(frozen=True)
class Signature:
    """Arguments, mode and outputs of one call.

    Attributes:
        args: frozen tree of the positional arguments, `Ref(i)` for input tensor i; None for an input
            of a graph.
        options: frozen dictionary of the arguments by name, likewise.
        training: True or False where the call pins the mode, otherwise None.
        mask_rule: how masks reach the call; see `mask_rules`.
        value: frozen tree of the outputs, `Ref(i)` for output i.
        outputs: spec of each output.
        masks: spec of each output's mask, None for an output without a mask.
        largest_bytes: size of the largest array that the call computes; unknown sizes count as 1.
    """

    args: Any
    options: Any
    training: bool | None
    mask_rule: str
    value: Any
    outputs: tuple[Spec, ...]
    masks: tuple[Spec | None, ...]
    # follows from the other fields and the layer
    largest_bytes: int = dataclasses.field(default=0, compare=False, repr=False)

    @property
    def recorded(self) -> RecordedCall:
        """Arguments, mode and mask rule, from which the outputs are inferred."""
        return RecordedCall(self.args, self.options, self.training, self.mask_rule)


def input_signature(spec: Spec, mask: Spec | None = None) -> Signature:
    """The signature of a graph's input."""
    return Signature(None, None, None, STRICT, Ref(0), (spec,), (mask,))


@dataclasses.dataclass(frozen=True)
class Effects:
    """Results of a training call besides its value.

    Effects depend on the layer's `trainable` and regularizers, which differ between networks of one
    graph. Signatures and graphs therefore store no effects: `Node.effects` and `Graph.effects` compute
    them.

    Attributes:
        losses: number of losses that the call adds.
        penalties: number of regularization losses of the layer's weights, whatever the inputs.
        metrics: names of the metrics that the call reports.
        updates: whether the call changes the layer's state.
    """

    losses: int = 0
    penalties: int = 0
    metrics: tuple[str, ...] = ()
    updates: bool = False


class SignatureFields:
    """The fields of `self.signature` as attributes, for records that hold a signature."""

    __slots__ = ()

    signature: Signature

    @property
    def training(self) -> bool | None:
        """True or False where the call pins the mode, otherwise None."""
        return self.signature.training

    @property
    def mask_rule(self) -> str:
        """How masks reach the call; see `mask_rules`."""
        return self.signature.mask_rule

    @property
    def value(self) -> Template:
        """Frozen tree of the outputs, `Ref(i)` for output i."""
        return self.signature.value

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """Spec of each output."""
        return self.signature.outputs

    @property
    def masks(self) -> tuple[Spec | None, ...]:
        """Spec of each output's mask, None for an output without a mask."""
        return self.signature.masks

"""The time of each call that the compiler of a TPU expects, as a table and as a picture."""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.authoring.engine import to_svg
from fkeras.planning import tables


@dataclasses.dataclass(frozen=True)
class CallEstimate:
    """Expected time of one call of a model, in a training step on a TPU.

    Attributes:
        name: path of the layer, such as "encoder/dense_1"; in parentheses, a part of the step outside
            of the model.
        layer: class of the layer.
        cycles: cycles of the call's operations, forward and backward.
        share: part of the cycles of all calls.
        flops: floating-point operations, forward and backward.

    Example:
        >>> import fkeras as fk
        >>> call = fk.planning.CallEstimate("dense", "Dense", cycles=300, share=0.75, flops=6e4)
        >>> call.flops / call.cycles
        200.0
    """

    name: str
    layer: str
    cycles: int
    share: float
    flops: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Expected time of each call in a training step on a TPU; `print(estimate)` shows a table.

    The numbers are the compiler's. Waiting for other devices and for the host does not count.

    Attributes:
        calls: a row for each call in running order; then the loss and the update of the weights.
        cycles: sum of the cycles.
        clock: cycles in a second; 0 if no document states the number.
        device: the name of the device.
        rows: number of rows of the batch.
        without_cycles: names of the calls with operations whose cycles the compiler does not know.
        svg: a drawing of the model's graph, in which the color of a call shows its share of the cycles;
            "" for a model without a graph.

    Example:
        >>> import fkeras as fk
        >>> call = fk.planning.CallEstimate("dense", "Dense", cycles=300, share=1.0, flops=6e4)
        >>> estimate = fk.planning.Estimate((call,), 300, 1.5e9, "v5e", 8, (), "")
        >>> f"{estimate.seconds:.1e}"
        '2.0e-07'
        >>> str(estimate).splitlines()[0]
        'Expected time of a training step on 8 rows, by the compiler of a v5e'
    """

    calls: tuple[CallEstimate, ...]
    cycles: int
    clock: float
    device: str
    rows: int
    without_cycles: tuple[str, ...]
    svg: str = dataclasses.field(repr=False)

    @property
    def seconds(self) -> float | None:
        """Time of all calls; None for a device without a documented clock."""
        return self.cycles / self.clock if self.clock else None

    def __str__(self) -> str:
        return tables.estimate_text(self)

    def _repr_html_(self) -> str:
        return tables.estimate_html(self)


def estimate(plan: Any, model: Any, clock: float) -> Estimate:
    """Returns the expected times of a plan.

    Raises:
        ValueError: for a plan without cycles.
    """
    if plan.cycles is None:
        reason = (
            "since the step does not fit into the device"
            if plan.rejected
            else f"which the compiler of the backend {plan.backend!r} does not state"
        )
        raise ValueError(
            f"estimate: the plan has no cycles, {reason}. Plan for a TPU, "
            'fk.plan(model, batch, trainer, device="v5e"), or measure the time with fk.profile.'
        )
    total = plan.cycles or 1
    calls = tuple(
        CallEstimate(call.name, call.layer, call.cycles, call.cycles / total, call.flops)
        for call in plan.calls
    )
    svg = ""
    if getattr(model, "graph", None) is not None:
        svg = to_svg(model, shapes=False, shares={call.name: call.share for call in calls})
    return Estimate(calls, plan.cycles, clock, plan.device, plan.rows, plan.without_cycles, svg)

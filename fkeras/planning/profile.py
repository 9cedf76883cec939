"""`profile`: the measured time of each call in a training step, next to the plan."""

from __future__ import annotations

import dataclasses
import operator
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fkeras.authoring.engine import check_not_keras, describe_value, hides_internal_frames
from fkeras.authoring.training import checks, step
from fkeras.planning import tables
from fkeras.planning.attribution import BETWEEN, RUNTIME, Calls
from fkeras.planning.plan import CallPlan, Plan, plan
from fkeras.planning.scopes import awaited, instructions, scopes
from fkeras.planning.traces import IDLE, measure
from fkeras.training import Trainer, TrainState


@dataclasses.dataclass(frozen=True)
class CallProfile:
    """Measured time of one call of a model, in a training step.

    Attributes:
        name: path of the layer, such as "encoder/dense_1"; in parentheses, a part of the step outside
            of the model.
        layer: class of the layer.
        seconds: time of the call's operations, forward and backward.
        plan: the row of the plan: FLOPs and bytes.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> profile = fk.profile(trainer, run, (np.ones((2, 8)), np.ones((2, 4))), steps=1)
        >>> profile.calls[0].name, profile.calls[0].layer
        ('dense', 'Dense')
    """

    name: str
    layer: str
    seconds: float
    plan: CallPlan


@dataclasses.dataclass(frozen=True)
class Profile:
    """Measured times of a training step by call; `print(profile)` shows a table.

    Attributes:
        calls: a row for each call in running order; then the loss, the update of the weights, and
            the time in which no operation ran.
        step_seconds: median time of a step without a trace.
        steps: number of measured steps.
        plan: the plan of the step.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((8,)), fk.layers.Dense(4)])
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> profile = fk.profile(trainer, run, (np.ones((2, 8)), np.ones((2, 4))), steps=2)
        >>> profile.seconds > 0, [call.name for call in profile.calls]
        (True, ['dense', '(loss, metrics)', '(update)', '(runtime)'])
    """

    calls: tuple[CallProfile, ...]
    step_seconds: float
    steps: int
    plan: Plan

    @property
    def seconds(self) -> float:
        """Sum of the times of all rows: the time of a step with the trace."""
        return sum(call.seconds for call in self.calls)

    def __str__(self) -> str:
        return tables.profile_text(self)

    def _repr_html_(self) -> str:
        return tables.profile_html(self)


@hides_internal_frames
def profile(trainer: Any, run: Any, batch: Any, *, steps: int = 5) -> Profile:
    """Measures the time of each call in a training step.

    The step is compiled and runs `1 + 2 * steps` times: once to warm up, then without and with a trace
    of `jax.profiler`. The operations of the compiled program carry the names of their calls. A kernel with operations of
    several calls counts for the call of its last operation. Operations that run at the same
    time, on several threads, share the time, so the rows sum to the time of the step. The reported
    step is the one of median duration.

    Args:
        trainer: the trainer.
        run: a run; unchanged.
        batch: the batch of `trainer.step`, as arrays.
        steps: number of steps with a trace, and without.

    Raises:
        TypeError: for arguments of other types, and for shapes in the place of arrays.
        ValueError: for fewer than one step.
        RuntimeError: for a run with donated arrays; if another trace is running; if the backend traces no
            operations.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((32,)), fk.layers.Dense(64, name="wide")])
        >>> trainer = fk.Trainer("adam", "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> profile = fk.profile(trainer, run, (np.ones((16, 32)), np.ones((16, 64))), steps=3)
        >>> abs(sum(call.seconds for call in profile.calls) - profile.seconds) < 1e-9
        True
        >>> profile.calls[0].plan.flops > 0
        True
    """
    _check(trainer, run, steps)
    batch = step.as_arrays(trainer, run.model, batch, "step")
    batch = jax.tree.map(_array, batch)
    planned = plan(run, batch, trainer, donate=False)
    arguments = step.training_form(trainer), run, batch
    function = step.compiled_step.suited(jax.default_backend(), *arguments)
    compiled = function.lower(*arguments).compile()
    text = compiled.as_text()
    if text is None:
        raise RuntimeError(
            f"profile: the backend {jax.default_backend()!r} shows no text of compiled programs, so "
            "operations have no names. Use jax.profiler.trace, and read the trace in TensorBoard."
        )

    def call() -> Any:
        return compiled(run, batch)

    jax.block_until_ready(call())
    # before and after the trace, since the speed of a machine drifts
    plain = [_seconds(call) for _ in range((steps + 1) // 2)]
    program = instructions(text)
    traced = measure(call, steps, awaited(program))
    plain += [_seconds(call) for _ in range(steps // 2)]
    if not any(set(seconds) - {IDLE} for seconds in traced):
        raise RuntimeError(
            f"profile: the trace of the backend {jax.default_backend()!r} contains no operations of the "
            "step. Use jax.profiler.trace, and read the trace in TensorBoard."
        )
    chosen = sorted(traced, key=lambda seconds: sum(seconds.values()))[len(traced) // 2]
    rows = _by_call(chosen, scopes(program), Calls(planned._request.executed_model()))
    if BETWEEN not in {call.name for call in planned.calls}:
        rows[RUNTIME] = rows.get(RUNTIME, 0.0) + rows.pop(BETWEEN, 0.0)
    return Profile(
        (
            *(CallProfile(c.name, c.layer, rows.get(c.name, 0.0), c) for c in planned.calls),
            CallProfile(RUNTIME, "", rows.get(RUNTIME, 0.0), CallPlan(RUNTIME)),
        ),
        statistics.median(plain),
        steps,
        planned,
    )


def _check(trainer: Any, run: Any, steps: Any) -> None:
    if not isinstance(trainer, Trainer):
        check_not_keras(trainer, "profile")
        raise TypeError(
            f"profile: expected a Trainer first, received {describe_value(trainer)}. Write "
            "fk.profile(trainer, run, batch)."
        )
    if not isinstance(run, TrainState):
        raise TypeError(
            f"profile: expected a run as the second argument, received {describe_value(run)}. Write "
            "run = trainer.init(model, jax.random.key(0)), then fk.profile(trainer, run, batch)."
        )
    for leaf in jax.tree.leaves(run):
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise TypeError(
                f"profile: expected a run with arrays, received {describe_value(leaf)}. For shapes use "
                "fk.plan."
            )
    checks.check_alive(run, "step")
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise TypeError(f"profile: expected steps as an integer, received {describe_value(steps)}.")
    if operator.index(steps) < 1:
        raise ValueError(f"profile: expected at least one step, received steps={steps}.")


def _array(leaf: Any) -> jax.Array:
    if not isinstance(leaf, jax.Array | np.ndarray):
        raise TypeError(
            f"profile: expected arrays in the batch, received {describe_value(leaf)}. For shapes use "
            "fk.plan."
        )
    return jax.device_put(leaf)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def _by_call(seconds: dict[str, float], names: dict[str, str], calls: Calls) -> dict[str, float]:
    rows: dict[str, float] = {}
    for operation, duration in seconds.items():
        # an operation that the text does not contain belongs to another program
        known = operation != IDLE and operation in names
        owners = calls.owners(names[operation]) if known else (RUNTIME,)
        for owner in owners:
            rows[owner] = rows.get(owner, 0.0) + duration / len(owners)
    return rows

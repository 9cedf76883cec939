"""`find_nan`: finds the first NaN or infinity of a step, and the layer that computed it.

The search repeats a step outside of jit, call by call, in the order of the data flow: the batch,
the weights, the calls of layers, the losses, then the gradients from the loss back to the inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine import (
    Context,
    Layer,
    Output,
    replace_weights,
    subkey,
    sublayers,
    trainable_weights,
)
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.strings.network import device_part
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.weights import own_weights, weight_losses
from fkeras.training.data import batch_parts, host_arrays, texts
from fkeras.training.nonfinite.nan_report import (
    GROWN,
    LOSS,
    REMEDY,
    SLOPE,
    Finding,
    check_arrays,
    count,
    first_operation,
    span,
)
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs
from fkeras.training.step.objective_call import Objective, call_objective, label_of
from fkeras.transforms.intercepting import (
    TracedCall,
    add_floating,
    floating,
    put_floating,
    trace_calls,
    trace_gradients,
    trace_values,
    zeros_like,
)


@hides_internal_frames
def find_nan(
    run: TrainState, batch: object, trainer: Trainer | None = None, *, training: bool = True
) -> Finding | None:
    """Returns the first NaN or infinity of a step, or None if all values are finite.

    The search follows the data: the arrays of the batch; the model's weights and state; every call
    of a layer in the order of computation, the innermost layer if layers are nested; the losses;
    the gradients from the loss back to the inputs. Random layers draw the samples of the step.

    The search runs outside of jit, operation by operation, with loops over time unrolled, so it
    takes seconds. With a trainer, a gradient that reaches no trainable weight is ignored.

    Args:
        run: the state before the step.
        batch: `(x, y)` or `(x, y, sample_weight)`. Without a trainer or without its loss, `x` alone
            is enough: an array, or a list or dictionary of arrays. For an objective, its batch.
        trainer: the trainer whose loss is computed; without a trainer, the gradients are those of
            the sum of the outputs.
        training: whether layers run in training mode.

    Raises:
        TypeError: for a `run` that is not a `TrainState`, or a batch without targets for a trainer
            with a loss.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.nonfinite.find_nan import find_nan
        >>> x = fk.Input((2,))
        >>> model = fk.Model(x, fk.layers.Dense(1)(fk.layers.Lambda(jax.numpy.log, name="log")(x)))
        >>> run = fk.Trainer("sgd", "mse").init(model, jax.random.key(0))
        >>> found = find_nan(run, np.array([[1.0, 0.0]], "float32"))
        >>> found.phase, found.path
        ('forward', 'log')
    """
    if not isinstance(run, TrainState):
        raise TypeError(
            f"find_nan: expected a TrainState, received {type(run).__name__}. Write "
            "find_nan(run, (x, y), trainer), with a run from trainer.init or trainer.fit."
        )
    if trainer is not None and trainer.objective is not None:
        arrays = _on_device({"batch": batch})
    else:
        needs_targets = trainer is not None and batch_parts.has_loss(trainer.loss)
        arrays = _arrays(run.model, batch, needs_targets)
        run = run.replace(model=device_part(run.model))
    if trainer is not None and {"y", "sample_weight"} <= arrays.keys():
        heads = outputs.heads(trainer, run.model, arrays["y"])
        for name in ("x", "y"):  # rows of weight 0 may hold any value
            weights = arrays["sample_weight"]
            arrays[name] = objective.without_removed(heads, arrays[name], weights)
    first = next(check_arrays(arrays, "batch, "), None)
    return first or next(_Step(run, arrays, trainer, training).findings(), None)


def _arrays(model: Layer, batch: object, targets: bool) -> dict[str, Any]:
    names = ("x", "y", "sample_weight")
    parts = batch if isinstance(batch, tuple | list if targets else tuple) else (batch,)
    if not (2 if targets else 1) <= len(parts) <= 3:
        raise TypeError(
            "find_nan: expected a batch (x, y) or (x, y, sample_weight), received "
            f"{len(parts)} {'part' if len(parts) == 1 else 'parts'}. Write find_nan(run, (x, y), "
            "trainer), or without a trainer find_nan(run, x)."
        )
    arrays = {n: v for n, v in zip(names, parts, strict=False) if v is not None}
    arrays["x"] = texts.numbers(model, parts[0], "find_nan: x")
    return _on_device(arrays)


def _on_device(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns the arrays in the dtypes and on the device of a compiled step."""
    host = {n: host_arrays.as_host(v, f"find_nan: {n}") for n, v in arrays.items()}
    for name, tree in host.items():
        host_arrays.check_fits(tree, f"find_nan: {name}")
    return {
        n: jax.device_put(jax.tree.map(host_arrays.canonical, tree)) for n, tree in host.items()
    }


class _Step:
    """One step, repeated outside of jit; `findings` yields the findings in order."""

    def __init__(
        self, run: TrainState, arrays: dict[str, Any], trainer: Trainer | None, training: bool
    ):
        self.run, self.model, self.trainer = run, run.model, trainer
        self.x, self.y = arrays.get("x"), arrays.get("y")
        self.sample_weight, self.batch = arrays.get("sample_weight"), arrays.get("batch")
        self.heads = () if trainer is None else outputs.heads(trainer, run.model, self.y)
        self.layers = dict(sublayers(run.model))
        # The key of `train_step`: dropout masks are the same as in the step that failed.
        key = subkey(run.key, run.step)
        self.context = Context(state=run.state, training=training, key=key)

    def findings(self) -> Iterator[Finding]:
        names = skeleton_of(self.model).names
        for name, leaf in zip(names, leaves_of(self.model), strict=True):
            yield from check_arrays({name: leaf}, "weight ")
        yield from check_arrays(self.run.state, "state ")
        if self.trainer is not None and self.trainer.objective is not None:
            yield from self._objective(self.trainer.objective)
            return
        calls = trace_values(self.model, self.context, self.x)
        yield from self._forward(calls)
        yield from self._losses(calls)
        yield from self._backward(calls)

    def _objective(self, objective: Objective) -> Iterator[Finding]:
        where, context = label_of(objective), self.context

        def compute(model: Layer) -> jax.Array:
            arguments = self.run.state, self.batch, context.key, context.training
            return call_objective(objective, model, *arguments)[0]

        calls, value = trace_calls(self.model, compute)
        yield from self._forward(calls)
        if count(value):
            name = first_operation(lambda: compute(self.model))
            cause = f", first in the operation {name}. {REMEDY[name][0]}" if name else f". {GROWN}"
            yield Finding(where, "", "loss", f"{where}: its value is {float(value)}{cause}")

        # Without jit, `debug_nans` in `first_operation` names the operation, not the program.
        def gradients() -> dict[str, jax.Array]:
            with jax.disable_jit():
                return jax.grad(lambda weights: compute(replace_weights(self.model, weights)))(
                    trainable_weights(self.model)
                )

        nonfinite = {
            path: count(gradient) for path, gradient in gradients().items() if count(gradient)
        }
        if nonfinite:
            path, report = next(iter(nonfinite.items()))
            name = first_operation(gradients)
            cause = f", first in the operation {name}. {REMEDY[name][1]}" if name else f". {GROWN}"
            text = f"{where}: its gradient for the weight {path!r} has {report}{cause}"
            yield Finding(where, path, "backward", text)

    def _forward(self, calls: tuple[TracedCall, ...]) -> Iterator[Finding]:
        for call in calls:
            out = call.output
            for kind, tree in (("output", out.value), ("new state", out.updates)):
                report = next(filter(None, map(count, jax.tree.leaves(tree))), None)
                if report:
                    name = first_operation(lambda call=call: self._again(call))
                    yield self._finding(call, "forward", f"its {kind} has {report}", name)

    def _again(self, call: TracedCall) -> Output:
        layer = self.layers[call.path]
        return call.context.run(layer, *call.inputs, **call.options)

    def _finding(self, call: TracedCall, phase: str, report: str, name: str | None) -> Finding:
        layer = self.layers[call.path]
        class_name = type(layer).__name__
        where = f"{call.path!r} ({class_name}), call {call.number}" if call.path else layer._where
        input_range = span((call.inputs, dict(call.options))) or "only integers"
        remedy = REMEDY[name][phase == "backward"] if name else GROWN
        cause = f", first in the operation {name}" if name else ""
        text = f"{where}: {report}{cause}; its inputs: {input_range}. {remedy}"
        return Finding(where, call.path, phase, text)

    def _losses(self, calls: tuple[TracedCall, ...]) -> Iterator[Finding]:
        for call in calls:
            for loss in call.output.losses:
                if count(loss):
                    text = f"its added loss is {float(loss)}, its output is "
                    yield self._finding(call, "loss", text + span(call.output.value), None)
        for path, weight, value, regularizer in self._penalties():
            if count(regularizer(value)):
                where = f"the penalty on the weight {_join(path, weight)!r}"
                report = f"it is {float(regularizer(value))}; the weight is {span(value)}"
                yield Finding(where, path, "loss", f"{where}: {report}. {GROWN}")
        if self.trainer is None:
            return
        out = calls[-1].output
        with jax.disable_jit():
            total = self._total(self.model, out)
            if not count(total):
                return
            for head, y, y_pred in self._outputs(out):
                losses = head.loss.per_sample(y, y_pred) if head.loss is not None else jnp.zeros(())
                if count(losses):
                    yield self._loss_finding(head, y, y_pred, "loss", count(losses))
        # Each sample's loss is finite, so the weighting or the sum of the terms overflows.
        where = "the total loss"
        text = f"{where}: it is {float(total)}, and each sample's loss is finite. {GROWN}"
        yield Finding(where, "", "loss", text)

    def _penalties(self) -> Iterator[tuple[str, str, Any, Callable]]:
        for path, layer in self.layers.items():
            if layer.trainable:
                for weight, value, regularizer in own_weights(layer, "regularizer"):
                    yield path, weight, value, regularizer

    def _outputs(self, out: Output) -> Iterator[tuple[Any, Any, Any]]:
        """Returns `(head, targets, predictions)` of each output."""
        names = [head.name for head in self.heads]
        values = out.value if isinstance(out.value, Mapping) else jax.tree.leaves(out.value)
        targets = [None] * len(names)
        if self.y is not None:
            targets = outputs.by_output(self.y, names, "targets")
        predictions = outputs.by_output(values, names, "predictions")
        return zip(self.heads, targets, predictions, strict=True)

    def _loss_finding(
        self, head: outputs.Head, y: object, y_pred: jax.Array, phase: str, report: str
    ) -> Finding:
        where = f"{head.loss._label}, the loss of the output {head.name!r}"
        text = f"predictions: {span(y_pred)}; targets: {span(y) or 'integers'}"
        return Finding(where, head.name, phase, f"{where}: {report}; {text}. {LOSS}")

    def _total(self, model: Layer, out: Output) -> jax.Array:
        if self.trainer is None:
            return sum((jnp.sum(v, dtype="float32") for v in floating(out.value)), jnp.float32(0))
        out = dataclasses.replace(out, losses=(*out.losses, *weight_losses(model)))
        return objective.measure(self.heads, out, self.y, self.sample_weight, None)[0]

    def _backward(self, calls: tuple[TracedCall, ...]) -> Iterator[Finding]:
        weights, gradients = trace_gradients(
            self.model, self.context, (self.x,), calls, self._total
        )
        nonfinite = [path for path, gradient in weights.items() if count(gradient)]
        # NaN in the gradient of an input (of a frozen part) never reaches the run.
        if self.trainer is not None and not nonfinite:
            return
        if self.trainer is not None:
            out = calls[-1].output
            gradient_out = dataclasses.replace(
                out, value=put_floating(out.value, gradients[calls[-1].ticket][0])
            )
            rows = zip(self._outputs(out), self._outputs(gradient_out), strict=True)
            for (head, y, y_pred), (*_, derivative) in rows:
                if head.loss is not None and count(derivative):
                    report = f"the gradient for the predictions has {count(derivative)}"
                    yield self._loss_finding(head, y, y_pred, "backward", report)
        yield from self._find_cause(calls, gradients, nonfinite)
        for path, weight, value, regularizer in self._penalties():
            derivative = jax.grad(regularizer)(value)
            if count(derivative):
                where = f"the penalty on the weight {_join(path, weight)!r}"
                report = f"its gradient has {count(derivative)}; the weight is {span(value)}"
                yield Finding(where, path, "backward", f"{where}: {report}. {SLOPE}")
        for call in reversed(calls):
            for derivative in gradients[call.ticket][0]:
                if count(derivative):
                    report = f"the gradient for its output has {count(derivative)}"
                    yield self._finding(call, "backward", report, None)

    def _find_cause(self, calls: tuple, gradients: dict, nonfinite: list[str]) -> Iterator[Finding]:
        """Yields the call that turns a finite gradient of its output into NaN or infinity.

        The first such call on the way back is chosen, and of nested calls the innermost.
        """
        chosen = None
        for call in reversed(calls):
            outer, inner = gradients[call.ticket]
            if chosen is not None:
                # Calls inside the chosen call have a path below its path and a later ticket.
                around = chosen[0]
                if not call.path.startswith(_join(around.path, "")) or call.ticket < around.ticket:
                    continue
            if any(map(count, outer)):
                continue
            report = next(filter(None, map(count, inner)), None)
            text = f"the gradient for its input has {report}"
            weight_paths = [path for path in nonfinite if path.startswith(_join(call.path, ""))]
            # The gradient of shared weights sums over calls: recompute the part of this call.
            if not report and weight_paths:
                report = next(filter(None, map(count, self._call_gradients(call, outer)[0])), None)
                text = f"the gradient for its weights has {report}"
            if report:
                chosen = (call, outer, text)
        if chosen is not None:
            call, outer, text = chosen
            name = first_operation(lambda: self._call_gradients(call, outer))
            yield self._finding(call, "backward", text, name)

    def _call_gradients(self, call: TracedCall, outer: list) -> tuple[list, list]:
        """Returns the gradients of one call for its weights and inputs, given its output's."""
        arguments = (call.inputs, dict(call.options))

        # Differentiates with respect to zeros that are added to the floating-point leaves, because
        # weights and inputs also hold leaves without gradients: ids, masks, keys.
        def compute(*terms: list) -> list:
            layer = add_floating(self.layers[call.path], terms[0])
            inputs, options = add_floating(arguments, terms[1])
            return floating(call.context.run(layer, *inputs, **options).value)

        layer = self.layers[call.path]
        zeros = [zeros_like(tree) for tree in (layer, arguments)]
        with jax.disable_jit():
            return jax.vjp(compute, *zeros)[1](outer)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name

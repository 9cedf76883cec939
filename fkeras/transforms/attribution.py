"""Attributions: which inputs, or which places of a feature map, an answer of a model depends on."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine import Network
from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.argument_types import ArrayLike, Arrays
from fkeras.transforms.graph.editing import edit
from fkeras.transforms.graph.probing import probe
from fkeras.transforms.graph.selecting import Place
from fkeras.transforms.last_activation import SIGMOID, SOFTMAX, without_activation

#: class numbers, a function `outputs -> (b,)`, or None for the class with the largest output
Targets: TypeAlias = ArrayLike | Callable[[Any], jax.Array] | None

_STEPS = integer(minimum=1)


@hides_internal_frames
def saliency(
    model: Network,
    x: Arrays,
    targets: Targets = None,
    *,
    layer: Place | None = None,
    state: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the gradient of an output of each row with respect to the inputs (Simonyan et al., 2014).

    For classes the output is the logit: a softmax or sigmoid at the end of the model is left out, because
    the gradient of a certain probability is near 0. The functions compile one program for equal models
    and shapes.

    Args:
        model: a built model.
        x: inputs of the model, with a batch axis.
        targets: class numbers (b,); None for the class with the largest output; or a function of the
            outputs that returns a number for each row, `lambda y: y[:, 3] - y[:, 6]`.
        layer: a selector of one call, as of `transforms.probe`, for the gradient with respect to the
            value of the call, such as that of an `Embedding`.
        state: the state of the model, as of `model.apply`.

    Returns:
        An array of the shape of `x`, or of the value of the layer.

    Raises:
        TypeError: for a value that is no model, and for inputs of integers without a layer.
        ValueError: for targets that do not fit the outputs.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2, "softmax")])
        >>> model = model.build(jax.random.key(0))
        >>> gradient = transforms.saliency(model, jnp.ones((4, 3)), [0, 1, 1, 0])
        >>> kernel = model.layers["dense"].kernel
        >>> gradient.shape, bool(jnp.allclose(gradient[1], kernel[:, 1]))
        ((4, 3), True)
    """
    return _saliency(*_prepared("transforms.saliency", model, x, targets, state, layer))


@hides_internal_frames
def integrated_gradients(
    model: Network,
    x: Arrays,
    targets: Targets = None,
    *,
    baseline: ArrayLike = 0.0,
    steps: int = 64,
    state: Mapping[str, Any] | None = None,
) -> jax.Array:
    """Returns the share of each input number in an output, by Sundararajan, Taly and Yan (2017).

    The mean gradient on the straight way from the baseline to the inputs, times the difference of inputs
    and baseline. The shares of a row sum up to the difference of the two outputs, up to the error of
    `steps` points.

    Args:
        model: a built model with one input of floats.
        x: inputs of the model, with a batch axis.
        targets: as of `saliency`; None for the class with the largest output for `x`.
        baseline: a number, or an array that broadcasts to `x`: the inputs without information.
        steps: number of points on the way.
        state: the state of the model, as of `model.apply`.

    Returns:
        An array of the shape of `x`.

    Raises:
        TypeError: for a value that is no model, and for inputs of integers.
        ValueError: for targets that do not fit the outputs, or a baseline that does not fit `x`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> entries = [fk.Input((3,)), fk.layers.Dense(8, "tanh"), fk.layers.Dense(1)]
        >>> model = fk.Sequential(entries).build(jax.random.key(0))
        >>> x = jnp.ones((1, 3))
        >>> shares = transforms.integrated_gradients(model, x)
        >>> bool(jnp.allclose(shares.sum(), model(x) - model(0 * x), atol=1e-4))
        True
    """
    where = "transforms.integrated_gradients"
    call, arrays = _prepared(where, model, x, targets, state)
    rows = arrays[2]
    steps = _STEPS.check(f"{where}: steps", steps)
    if not isinstance(rows, jax.Array):
        raise TypeError(
            f"{where}: expected one array, received {type(x).__name__}. Make a model of one input: "
            "transforms.cut(model, inputs='name')."
        )
    start = jnp.asarray(baseline, rows.dtype)
    sizes = zip(start.shape[::-1], rows.shape[::-1], strict=False)
    if start.ndim > rows.ndim or any(size not in (1, whole) for size, whole in sizes):
        raise ValueError(
            f"{where}: baseline: expected a shape that broadcasts to {rows.shape}, received "
            f"{start.shape}."
        )
    return _integrated(call, steps, arrays, start)


@hides_internal_frames
def grad_cam(
    model: Network,
    x: Arrays,
    targets: Targets = None,
    *,
    layer: Place | None = None,
    resize: bool = True,
    state: Mapping[str, Any] | None = None,
) -> jax.Array:
    """Returns where in a picture the evidence for an output is: Grad-CAM (Selvaraju et al., 2017).

    The sum of the feature maps of a layer, weighted by the mean of their gradients, without its negative
    part. `fk.utils.image_grid(images, heat=maps)` draws the maps on the pictures.

    Args:
        model: a built model of images (b, h, w, c), sequences (b, t, c) or volumes.
        x: inputs of the model, with a batch axis.
        targets: as of `saliency`.
        layer: a selector of one call, as of `transforms.probe`; by default the last call whose value has
            as many axes as `x`. A layer of a nested model is "backbone/conv5".
        resize: whether to interpolate the maps to the size of `x`.
        state: the state of the model, as of `model.apply`.

    Returns:
        Maps without the channel axis, such as (b, h, w): 0 or more, not normalized.

    Raises:
        TypeError: for a value that is no model.
        ValueError: for targets that do not fit the outputs, and for a layer without positions.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> entries = [layers.Conv2D(4, 3, activation="relu"), layers.GlobalAveragePooling2D()]
        >>> model = fk.Sequential([fk.Input((8, 8, 1)), *entries, layers.Dense(2)])
        >>> model = model.build(jax.random.key(0))
        >>> transforms.grad_cam(model, jnp.ones((5, 8, 8, 1))).shape
        (5, 8, 8)
    """
    where = "transforms.grad_cam"
    leaf: Any = next(iter(jax.tree.leaves(x)), x)
    if layer is None and isinstance(model, Network) and model.graph is not None:
        layer = _last_map(where, model, np.ndim(leaf))
    call, arrays = _prepared(where, model, x, targets, state, layer)
    return _grad_cam(call, np.shape(leaf)[:-1] if resize else None, arrays)


@dataclasses.dataclass(frozen=True)
class _Call:
    """The parts of a call that select its program.

    Attributes:
        where: name of the public function, for messages.
        layer: a selector of one call inside the model, or None for the inputs.
        function: the function of the outputs, or None for classes.
    """

    where: str
    layer: Any
    function: Any


def _prepared(
    where: str, model: Network, x: Any, targets: Targets, state: Any, layer: Any = None
) -> tuple[_Call, tuple]:
    """Returns the static part of a call and its arrays: model, state, inputs and class numbers."""
    if not isinstance(model, Network) or model.graph is None:
        raise TypeError(
            f"{where}: expected a model with known inputs, received {describe_value(model)}. Pass the model "
            "before the arrays: transforms.saliency(model, x)."
        )
    leaves = jax.tree.leaves(x)
    if not leaves or not all(np.ndim(leaf) for leaf in leaves):
        raise ValueError(
            f"{where}: expected arrays with a batch axis, received {describe_value(x)}. A single sample "
            "is x[None], and a list of numbers np.asarray(x)."
        )
    if isinstance(layer, list):
        raise ValueError(
            f"{where}: layer: expected a selector of one call, received a list. Call the function once for "
            "each layer."
        )
    if layer is None and model.graph.takes_integers:
        raise TypeError(
            f"{where}: expected inputs of floats, received a model of integers, which have no gradient. "
            'Name the layer whose value counts: layer="embedding".'
        )
    x = jax.tree.map(lambda a: jnp.asarray(a) if layer else jnp.asarray(a, _floating(a)), x)
    if callable(targets):
        return _Call(where, layer, targets), (model, state, x, None)
    shapes: list[Any] = [model.graph.specs[slot].shape for slot in model.graph.output_slots]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise ValueError(
            f"{where}: expected a model with one output (b, classes) or a function of the outputs, "
            f"received {' and '.join(map(str, shapes))}. Write targets=lambda y: y[:, 3, 5], a number for "
            "each row."
        )
    numbers: Any = None
    if targets is not None:
        numbers = targets if isinstance(targets, Tracer) else np.asarray(targets)
        count, largest = len(leaves[0]), max(shapes[0][1] or 2, 2)
        if numbers.dtype.kind not in "iu" or numbers.shape not in ((), (count,)):
            raise ValueError(
                f"{where}: targets: expected class numbers of shape ({count},), one for each row, received "
                f"{numbers.dtype} of shape {numbers.shape}. Class numbers of one-hot rows are "
                "y.argmax(-1)."
            )
        known = numbers.size and not isinstance(numbers, Tracer)
        if known and not 0 <= numbers.min() <= numbers.max() < largest:
            wrong = numbers.min() if numbers.min() < 0 else numbers.max()
            raise ValueError(
                f"{where}: targets: expected class numbers from 0 to {largest - 1}, received {wrong}."
            )
        numbers = jnp.broadcast_to(numbers, (count,)).astype("int32")
    found = without_activation(model, 0, _is_last)
    model = model if found is None else found[0]
    return _Call(where, layer, None), (model, state, x, numbers)


def _floating(array: Any) -> Any:
    dtype = jnp.asarray(array).dtype
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def _is_last(activation: Callable, axis: int = -1) -> bool:
    return activation in (*SOFTMAX, *SIGMOID)


def _scores(call: _Call, outputs: Any, numbers: Any) -> jax.Array:
    """Returns the number of each row whose gradient is computed."""
    if call.function is not None:
        scores = call.function(outputs)
        rows = jnp.shape(jax.tree.leaves(outputs)[0])[:1]
        if jnp.shape(scores) != rows:
            raise ValueError(
                f"{call.where}: targets: expected a number for each row, of shape {rows}, received "
                f"{jnp.shape(scores)}. Write lambda y: y[:, 3]."
            )
        return scores
    if outputs.shape[1] == 1:  # the logit of the second of two classes
        return outputs[:, 0] if numbers is None else jnp.where(numbers == 1, 1, -1) * outputs[:, 0]
    numbers = outputs.argmax(-1) if numbers is None else numbers
    return jnp.take_along_axis(outputs, numbers[:, None], -1)[:, 0]


def _gradient(call: _Call, model: Network, state: Any, x: Any, numbers: Any) -> tuple[Any, Any]:
    """Returns a value inside the model, or the inputs, and the gradient of the scores."""

    def total(outputs: Any) -> jax.Array:
        return _scores(call, outputs, numbers).sum()

    if call.layer is None:
        return x, jax.grad(lambda x: total(model.apply(x, state=state).value))(x)
    _, values = probe(model, call.layer).apply(x, state=state).value
    if len(values) != 1:
        raise ValueError(
            f"{call.where}: layer: expected one call, received {', '.join(values)}. Select one: "
            "layer=('name', 0)."
        )
    (value,) = values.values()

    def changed(shift: jax.Array) -> jax.Array:
        return total(edit(model, {call.layer: lambda v: v + shift}).apply(x, state=state).value)

    return value, jax.grad(changed)(jnp.zeros_like(value))


@functools.partial(jax.jit, static_argnums=0)
def _saliency(call: _Call, arrays: tuple) -> Any:
    return _gradient(call, *arrays)[1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _integrated(call: _Call, steps: int, arrays: tuple, start: jax.Array) -> jax.Array:
    model, state, x, numbers = arrays
    if numbers is None and call.function is None:
        outputs = model.apply(x, state=state).value
        numbers = outputs.argmax(-1) if outputs.shape[1] > 1 else None

    # one point after the other: all points at once would need the memory of `steps` batches
    def add(number: Any, total: jax.Array) -> jax.Array:
        point = start + (number + 0.5) / steps * (x - start)
        return total + _gradient(call, model, state, point.astype(x.dtype), numbers)[1]

    return (x - start) * jax.lax.fori_loop(0, steps, add, jnp.zeros_like(x)) / steps


@functools.partial(jax.jit, static_argnums=(0, 1))
def _grad_cam(call: _Call, shape: tuple[int, ...] | None, arrays: tuple) -> jax.Array:
    maps, gradients = _gradient(call, *arrays)
    if maps.ndim < 3:
        raise ValueError(
            f"{call.where}: layer: expected a call with feature maps (b, ..., c), received the shape "
            f"{maps.shape}. Name a convolution: layer='conv5'."
        )
    weights = gradients.mean(tuple(range(1, maps.ndim - 1)), keepdims=True)
    heat = jax.nn.relu((maps * weights).sum(-1))
    if shape is None or len(shape) != heat.ndim:
        return heat
    return jax.image.resize(heat, shape, "linear")


def _last_map(where: str, model: Network, axes: int) -> Place:
    """Returns the coordinates of the last value with as many axes as the inputs."""
    graph = model.graph
    places = [
        graph.coords[slot]
        for slot, spec in enumerate(graph.specs)
        if len(spec.shape) == axes and slot not in graph.input_slots
    ]
    if axes < 3 or not places:
        raise ValueError(
            f"{where}: expected a model whose layers compute feature maps of {max(axes, 3)} axes, received "
            f"{model._where}. Name the layer: layer='backbone/conv5'."
        )
    layer, node, tensor = places[-1]
    return layer, node, tensor

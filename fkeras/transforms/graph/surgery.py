"""Surgery: replaces, inserts and removes calls in the graph of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, overload

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.models.partition import require_layer
from fkeras.engine.symbolic.input import InputLayer, is_input
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import SomeLayer, Tree
from fkeras.transforms.graph.rebuilding import Site, carry_state, rebuild
from fkeras.transforms.graph.selecting import Place, Selected, select, select_all

#: a layer, or a function on symbolic tensors
Part: TypeAlias = Layer | Callable[..., Any]
State: TypeAlias = Mapping[str, Any]


@overload
def replace(model: SomeLayer, changes: Mapping[Any, Part | KerasTensor]) -> SomeLayer: ...


@overload
def replace(
    model: SomeLayer, changes: Mapping[Any, Part | KerasTensor], state: State
) -> tuple[SomeLayer, dict[str, Any]]: ...


@hides_internal_frames
def replace(
    model: Any, changes: Mapping[Any, Part | KerasTensor], state: State | None = None
) -> Any:
    """Returns the model with other layers in the places of selected layers.

    A new layer is called on the inputs of the layer before it. Layers that stay keep their weights
    and names; new layers have none until `build`, which keeps the others.

    Args:
        model: a model with a graph.
        changes: by selector, the new layer, or a function from the old layer to the new one. The
            function may also return a function of the symbolic inputs: `lambda block: lambda x: x +
            block(x)` adds a connection around a block. A selector is a path ("encoder/block3"), a
            pattern ("*bn*"), coordinates (`("dense", 1)`: the second call of a shared layer), or a
            function of path and layer. An input takes an `fk.Input`. A new layer without a name takes
            the name of the layer before it; for several places the layer is copied.
        state: the state of the model; the result is then `(model, state)`. The new state holds no
            entries of replaced layers.

    Raises:
        ValueError: if a selector matches no layer, if two select one layer, and for a layer that no
            longer fits the shapes of its inputs.
        TypeError: for a value that is neither a layer nor a function.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> x = fk.Input((4,))
        >>> body = fk.layers.Dense(3, "relu", name="body")
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(body(x))).build(jax.random.key(0))
        >>> new = transforms.replace(model, {"head": fk.layers.Dense(5)})
        >>> new.layers["head"].units, new.layers["body"] is model.layers["body"]
        (5, True)
        >>> new = new.build(jax.random.key(1))
    """
    where = "transforms.replace"
    check_model(model, where)
    check_changes(changes, where, "{'head': layers.Dense(5)}")
    found: dict[Selected, tuple[Any, bool]] = {}
    inputs: dict[str, InputLayer] = {}
    by_path = dict(sublayers(model))
    for place, change in changes.items():
        selected = select(model, place, where)
        if isinstance(by_path[selected[0].path], InputLayer) and len(selected) == 1:
            inputs[selected[0].path] = _new_input(change, selected[0], where)
            continue
        check_part(change, where, selected[0])
        for one in selected:
            _check_call(one, where)
            _check_apart(one, found, where)
            found[one] = (change, len(selected) > 1)
    made: dict[Selected, Any] = {}

    def new_part(one: Selected, layer: Layer) -> Part:
        change, several = found[one]
        if isinstance(change, Layer):
            return change.replace() if several or change.name is None else change
        part = change(layer)
        check_part(part, where, one, "the function's result")
        return part

    def operation(site: Site) -> Tree:
        every = Selected(site.path)
        one = every if every in found else Selected(site.path, site.node)
        if one not in found:
            return site.keep()
        if one not in made:
            part = new_part(one, site.layer)
            if isinstance(part, Layer) and part is not site.layer:
                part = _named(site, part, one)
            made[one] = part
        part = made[one]
        return site.keep() if part is site.layer else site.put(part)

    def replace_child(path: str, layer: Layer) -> Layer:
        part = new_part(Selected(path), layer)
        if not isinstance(part, Layer):
            raise TypeError(
                f"{where}: {path!r} is called by the layer around it, so it needs a layer in its place, "
                f"received {describe_value(part)}."
            )
        return part

    operations = {one.path: operation for one in found}
    new = rebuild(model, operations, where, replace_child=replace_child, inputs=inputs)
    return result_with_state(model, new, state, where, "model = transforms.replace(model, changes)")


def _named(site: Site, part: Layer, one: Selected) -> Layer:
    """Returns a replacement with its name: its own, or that of the layer whose calls it all takes."""
    takes_all = one.node is None
    if takes_all:
        site.names.discard(site.call.layer)
    if part.name is None and takes_all:
        part = part.replace(name=site.call.layer)
    return site.unique(part)


@overload
def insert(
    model: SomeLayer,
    layer: Part,
    *,
    after: Place | Sequence[Place] | None = None,
    before: Place | Sequence[Place] | None = None,
) -> SomeLayer: ...


@overload
def insert(
    model: SomeLayer,
    layer: Part,
    *,
    after: Place | Sequence[Place] | None = None,
    before: Place | Sequence[Place] | None = None,
    state: State,
) -> tuple[SomeLayer, dict[str, Any]]: ...


@hides_internal_frames
def insert(
    model: Any,
    layer: Part,
    *,
    after: Place | Sequence[Place] | None = None,
    before: Place | Sequence[Place] | None = None,
    state: State | None = None,
) -> Any:
    """Returns the model with a layer behind or in front of selected layers.

    `after` puts the layer on the output: all consumers, and the model's output where it is one, take
    the layer's output. `before` puts the layer on the input of the selected call alone.

    Args:
        model: a model with a graph.
        layer: a layer, or a function of one symbolic tensor. A layer for several places is copied,
            and names that are taken get a number; the calls of a shared layer share one copy.
        after: a selector as for `replace`, or a list of selectors; `("lstm", 0, 1)` is the second
            output of a call.
        before: a selector or a list; `("add", 0, 1)` is the second input of a call.
        state: the state of the model; the result is then `(model, state)`.

    Raises:
        ValueError: if no layer matches, for a layer with several outputs or inputs without
            coordinates, and for a layer that no longer fits the shapes of its inputs.
        TypeError: for a value that is neither a layer nor a function, and unless exactly one of
            `after` and `before` is given.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3), fk.layers.Dense(2, name="head")])
        >>> list(transforms.insert(model, fk.layers.Dropout(0.1), before="head").layers)
        ['input_layer', 'dense', 'dropout', 'head']
    """
    where = "transforms.insert"
    check_model(model, where)
    if (after is None) == (before is None):
        raise TypeError(
            f"{where}: expected either `after` or `before`, received "
            f"{'neither' if after is None else 'both'}. Write `transforms.insert(model, layer, "
            "after='dense')`."
        )
    place = before if after is None else after
    assert place is not None
    selected = tuple(dict.fromkeys(select_all(model, place, where)))
    for number, one in enumerate(selected):
        _check_overlap(one, selected[:number], where)
    check_part(layer, where, selected[0])
    made: dict[str, Any] = {}

    def part_for(site: Site) -> Part:
        if site.path not in made:
            made[site.path] = site.unique(layer) if isinstance(layer, Layer) else layer
        return made[site.path]

    def operation(site: Site) -> Tree:
        here = [s for s in selected if s.path == site.path and s.node in (None, site.node)]
        if after is None:
            for one in here:
                site = _before(site, part_for(site), one)
            return site.keep()
        value = site.keep()
        for one in here:
            value = behind(site, value, part_for(site), one)
        return value

    new = rebuild(model, {one.path: operation for one in selected}, where)
    return result_with_state(
        model, new, state, where, "model = transforms.insert(model, layer, after=name)"
    )


def behind(site: Site, value: Tree, part: Part, one: Selected) -> Tree:
    """Returns the outputs of a call with a layer or function on the selected output."""
    template, outputs = structure.number(value)
    index = _index(one, len(outputs), "output", site)
    outputs[index] = site.pass_on(part, outputs[index])
    return structure.fill(template, outputs)


def _before(site: Site, part: Part, one: Selected) -> Site:
    if site.call.is_input:
        raise ValueError(
            f"{site.where}: {site.path!r} is an input, in front of which nothing stands. Write "
            f"`after={site.path!r}`."
        )
    tensors = list(site.tensors)
    index = _index(one, len(tensors), "input", site)
    tensors[index] = site.pass_on(part, tensors[index])
    return site.on(tuple(tensors))


def _index(one: Selected, count: int, noun: str, site: Site) -> int:
    index = 0 if one.tensor is None and count == 1 else one.tensor
    if index is None or not 0 <= index < count:
        asked = "" if one.tensor is None else f", asked for {noun} {one.tensor}"
        raise ValueError(
            f"{site.where}: {site.path!r} has {count} {noun}s{asked}. Give coordinates with the number "
            f"of the {noun}: ({site.path!r}, {site.node}, 0)."
        )
    return index


@overload
def remove(model: SomeLayer, place: Place | Sequence[Place]) -> SomeLayer: ...


@overload
def remove(
    model: SomeLayer, place: Place | Sequence[Place], state: State
) -> tuple[SomeLayer, dict[str, Any]]: ...


@hides_internal_frames
def remove(model: Any, place: Any, state: State | None = None) -> Any:
    """Returns the model without selected layers: consumers take the input of the layer instead.

    Args:
        model: a model with a graph.
        place: a selector as for `replace`, or a list of selectors.
        state: the state of the model; the result is then `(model, state)`.

    Raises:
        ValueError: if no layer matches, for a layer with several inputs or outputs, and for a layer
            that no longer fits the shapes of its inputs.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dropout(0.1), fk.layers.Dense(2)])
        >>> list(transforms.remove(model, "dropout*").layers)
        ['input_layer', 'dense']
    """
    where = "transforms.remove"
    check_model(model, where)
    found: dict[Selected, Any] = {}
    for one in select_all(model, place, where):
        _check_call(one, where)
        _check_apart(one, found, where)
        found[one] = None

    def operation(site: Site) -> Tree:
        if Selected(site.path) not in found and Selected(site.path, site.node) not in found:
            return site.keep()
        if site.call.is_input or len(site.tensors) != 1 or len(site.call.outputs) != 1:
            what = (
                "is an input of the model"
                if site.call.is_input
                else f"takes {len(site.tensors)} tensors and returns {len(site.call.outputs)}"
            )
            raise ValueError(
                f"{where}: expected a layer with one input and one output, received {site.path!r}, "
                f"which {what}. Choose the tensor that takes its place: transforms.replace(model, "
                f"{{{site.path!r}: lambda layer: lambda *inputs: jax.tree.leaves(inputs)[0]}})."
            )
        return structure.fill(site.call.value, site.tensors)

    new = rebuild(model, {one.path: operation for one in found}, where)
    return result_with_state(model, new, state, where, "model = transforms.remove(model, name)")


def check_model(model: object, where: str) -> None:
    """Raises a TypeError for a value that is no model."""
    if isinstance(model, tuple) and model and isinstance(model[0], Layer):
        raise TypeError(
            f"{where}: expected a model, received a tuple. Write `model, state = ...` and pass both: "
            f"{where}(model, ..., state=state)."
        )
    require_layer(model, where)


def check_changes(changes: object, where: str, example: str) -> None:
    """Raises a TypeError for a value that is no dictionary."""
    if not isinstance(changes, Mapping):
        raise TypeError(
            f"{where}: expected a dictionary such as {example}, received {describe_value(changes)}."
        )


def check_part(part: object, where: str, one: Selected, noun: str = "the change") -> None:
    """Raises a TypeError unless a value is a layer or a function."""
    check_not_keras(part, f"{where}, {one}")
    if isinstance(part, type):
        raise TypeError(
            f"{where}, {one}: expected a layer, received the class {part.__name__}. Write "
            f"{part.__name__}(...)."
        )
    if is_symbolic(part) or not (isinstance(part, Layer) or callable(part)):
        raise TypeError(
            f"{where}, {one}: expected a layer or a function as {noun}, received "
            f"{describe_value(part)}."
        )


def _new_input(change: object, one: Selected, where: str) -> InputLayer:
    layer = change
    if isinstance(change, KerasTensor) and is_input(change):
        layer = change.node.layer
    if not isinstance(layer, InputLayer):
        raise TypeError(
            f"{where}, {one}: an input takes another input, such as fk.Input((8,)), received "
            f"{describe_value(change)}. To transform the input, use transforms.insert(model, layer, "
            f"after={one.path!r})."
        )
    return layer


def _check_apart(one: Selected, found: Mapping[Selected, Any], where: str) -> None:
    _check_overlap(one, found, where)
    for other in found:
        inside = f"{one.path}/".startswith(f"{other.path}/") and one.path != other.path
        around = f"{other.path}/".startswith(f"{one.path}/") and one.path != other.path
        if inside or around:
            raise ValueError(
                f"{where}: two selectors select {other} and {one}. Apply changes of a layer and of "
                "layers inside it one after the other."
            )


def _check_overlap(one: Selected, others: Iterable[Selected], where: str) -> None:
    for other in others:
        if one.path == other.path and all(
            None in pair or pair[0] == pair[1] for pair in zip(one[1:], other[1:], strict=True)
        ):
            raise ValueError(
                f"{where}: two selectors select {other} and {one}. Give each layer one change."
            )


def _check_call(one: Selected, where: str) -> None:
    if one.tensor is not None:
        raise ValueError(
            f"{where}: expected a layer or a call, received the output {one}. Pass the call "
            f"({one.path!r}, {one.node}), or put a layer behind the output with transforms.insert."
        )


def result_with_state(model: Layer, new: Layer, state: State | None, where: str, line: str) -> Any:
    if state is not None:
        return new, carry_state(model, new, state)
    return returned(new, where, line, depth=3)

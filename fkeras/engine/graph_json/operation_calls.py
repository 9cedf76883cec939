"""Calls of operations in Keras's files: some arguments belong to a constructor, the rest to the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.symbolic.operation_forms import OperationForm
from fkeras.engine.values.annotations import Json
from fkeras.engine.values.structure import Branch

Layout = tuple[tuple[str, ...], tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class SplitCall:
    """A call in Keras's form.

    Attributes:
        fixed: the arguments of the constructor.
        args: the arguments of the call by position.
        kwargs: the arguments of the call by name.
        layout: the names of the arguments that the recorded call passed by position, and by name;
            None if `joined` restores them without the layout.
    """

    fixed: dict[str, Any]
    args: tuple
    kwargs: dict[str, Any]
    layout: Layout | None


def split(form: OperationForm, args: Branch, options: Branch) -> SplitCall | None:
    """Returns a recorded call in Keras's form; None for a call that Keras's form cannot hold.

    Example:
        >>> from fkeras.engine.symbolic.operation_forms import operation_form
        >>> from fkeras.engine.values.structure import Ref, freeze
        >>> args, options = freeze((Ref(0), -1), lambda v: v), freeze({}, lambda v: v)
        >>> split(operation_form(op="sum"), args, options).fixed
        {'axis': -1}
    """
    named = dict(zip(options.keys, options.children, strict=True))
    values: dict[str, Any] = {}
    variadic_values: tuple | None = None
    names = form.parameters
    limit = names.index(form.variadic) if form.variadic else len(names)
    for index, value in enumerate(args.children):
        if index < limit:
            values[names[index]] = value
        elif form.variadic:
            variadic_values = (*(variadic_values or ()), value)
        else:
            return None
    by_position = tuple(values)
    if variadic_values is not None and form.variadic:
        by_position = (*by_position, form.variadic)
    if any(name in values or name == form.variadic for name in named):
        return None
    values |= named
    fixed = {name: value for name, value in values.items() if name in form.fixed}
    positional: list[Any] = []
    for name in names:
        if name in form.fixed:
            continue
        if name == form.variadic:
            positional.extend(variadic_values or ())
            break
        if name not in values:
            break
        positional.append(values.pop(name))
    kwargs = {name: value for name, value in values.items() if name not in form.fixed}
    order = _order(form, fixed, positional, kwargs)
    layout: Layout = (tuple(by_position), tuple(named))
    stored_layout = None if _layout(form, order) == layout else layout
    # Keras writes null for a missing argument too, so an explicit None needs the layout
    if any(value is None and name in form.nullable for name, value in kwargs.items()):
        stored_layout = layout
    kwargs |= {name: None for name in form.nullable if name not in order}
    return SplitCall(fixed, tuple(positional), kwargs, stored_layout)


def _order(
    form: OperationForm, fixed: Mapping, args: Sequence[Any], kwargs: Mapping
) -> tuple[str, ...]:
    """Returns the names of a stored call's arguments: constructor, by position, by name."""
    call_parameters = [name for name in form.parameters if name not in form.fixed]
    limit = call_parameters.index(form.variadic) if form.variadic else len(call_parameters)
    names = call_parameters[: min(limit, len(args))]
    variadic_names = [form.variadic] if form.variadic and len(args) > limit else []
    return (*fixed, *names, *variadic_names, *kwargs)


def _layout(form: OperationForm, order: Sequence[str]) -> Layout:
    """Returns the layout of a call with arguments of these names, for a file without a layout."""
    first: list[str] = []
    for name in form.parameters:
        if name not in order or (name in form.fixed and form.variadic not in order):
            break
        first.append(name)
        if name == form.variadic:
            break
    return tuple(first), tuple(name for name in order if name not in first)


def joined(
    form: OperationForm,
    fixed: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    layout: Json,
    where: str,
) -> tuple[list, dict[str, Any]]:
    """Returns `(args, options)` of the call to record, from a call in Keras's form.

    Args:
        layout: the layout in the file, or None.

    Raises:
        FKerasError: for arguments that the operation does not take.
    """
    # constructors of some versions have further arguments, which are off by default
    fixed = {k: v for k, v in fixed.items() if k in form.fixed or v not in (None, False)}
    named = layout if isinstance(layout, list) else []
    # null is Keras's form of a missing argument, unless the layout lists the name
    in_layout = [
        name for layout_names in named if isinstance(layout_names, list) for name in layout_names
    ]
    null_names = [k for k in form.nullable if kwargs.get(k, 0) is None and k not in in_layout]
    kwargs = {k: v for k, v in kwargs.items() if k not in null_names}
    order = _order(form, fixed, args, kwargs)
    call_parameters = [name for name in form.parameters if name not in form.fixed]
    if (len(args) > len(call_parameters) and not form.variadic) or len(set(order)) < len(order):
        raise FKerasError(
            f"{where}: expected the arguments {', '.join(call_parameters)} in a call of {form.class_name}, "
            f"received {len(args)} by position and {', '.join(kwargs) or 'none'} by name. Correct "
            "its inbound_nodes.",
            layer=where,
        )
    limit = call_parameters.index(form.variadic) if form.variadic else len(call_parameters)
    values = {**fixed, **dict(zip(call_parameters[:limit], args, strict=False)), **kwargs}
    first, second = _layout(form, order) if layout is None else _checked(form, order, layout, where)
    positional: list[Any] = []
    for name in first:
        if name == form.variadic:
            positional.extend(args[limit:])
        else:
            positional.append(values[name])
    return positional, {name: values[name] for name in second}


def _checked(form: OperationForm, order: Sequence[str], layout: Json, where: str) -> Layout:
    name_lists: list[Any] = layout if isinstance(layout, list) and len(layout) == 2 else [None]
    if all(
        isinstance(names, list) and all(isinstance(n, str) for n in names) for names in name_lists
    ):
        first, second = tuple(name_lists[0]), tuple(name_lists[1])
        if first == form.parameters[: len(first)] and sorted(first + second) == sorted(order):
            return first, second
    raise FKerasError(
        f"{where}: expected 'layout' as a list of positional names and a list of keyword names, all "
        f"of {', '.join(order)}, received {layout!r:.80}. Remove the key.",
        layer=where,
    )

"""Configuration from dataclass fields: constructor, equality and JSON from one declaration.

A subclass of `Configurable` is a frozen dataclass. The fields declared with `option` define the
constructor's arguments, equality and hash, and the keys of `get_config`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

import numpy as np

from fkeras.engine.config.namespaces import find
from fkeras.engine.config.policy_maps import policy_at, policy_map, quantization
from fkeras.engine.config.serialization import decode as decode
from fkeras.engine.config.serialization import deserialize as deserialize
from fkeras.engine.config.serialization import deserializer as deserializer
from fkeras.engine.config.serialization import encode as encode
from fkeras.engine.config.serialization import lookup as lookup
from fkeras.engine.config.serialization import serialize as serialize
from fkeras.engine.messages.docstrings import complete_docstring
from fkeras.engine.messages.errors import add_note
from fkeras.engine.messages.errors import suggest as suggest
from fkeras.engine.messages.key_paths import add_key, within
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.arguments import unknown_argument
from fkeras.engine.migration_hints.attributes import (
    MissingAttributeError,
    rejected_field_assignment,
)
from fkeras.engine.migration_hints.declarations import (
    check_declared,
    check_defaults,
    check_layer_arguments,
)
from fkeras.engine.migration_hints.keras_objects import check_no_keras_in
from fkeras.engine.values.annotations import Field
from fkeras.engine.values.frozen import freeze_value, short_array

T = TypeVar("T")

_CONVERT = "fkeras.convert"
# immutable types, which need no freezing; most fields hold one of them
_PLAIN = frozenset((bool, int, float, str, type(None)))
# Keras keys that are safe to ignore: a saved kernel already includes the LoRA product, and the
# quantization keys have no effect when the dtype is not a quantized one
_SAY_NOTHING = ("lora_rank", "lora_alpha", "quantization_config", "gptq_unpacked_column_size")
# a longer tuple is shown without its middle
_LONGEST_TUPLE = 16


def option(
    *positional: Field,
    default: Field = dataclasses.MISSING,
    convert: Callable[[Any], Any] | None = None,
    kw_only: bool = False,
) -> Any:
    """Declares a field of static configuration.

    Args:
        *positional: the default, in programs written before type checkers were supported. A type
            checker takes a field with a positional default for a required one.
        default: the value of an omitted argument; without a default the argument is required.
        convert: called with the value at construction. The constructor puts the class and the
            field before the message of a ValueError or TypeError. `fkeras.engine.config.converters`
            has rules for types, ranges and choices.
        kw_only: whether the constructor accepts the argument by keyword only.

    Example:
        >>> import fkeras as fk
        >>> class Scale(fk.Layer):
        ...     factor: float = fk.option(default=2.0, convert=float)
        ...     def call(self, x):
        ...         return x * self.factor
        >>> Scale("3")
        Scale(3.0)
    """
    if positional:
        (default,) = positional
    return dataclasses.field(
        default=default, kw_only=kw_only, metadata={_CONVERT: convert} if convert else {}
    )


def make_dataclass(cls: Any) -> None:
    """Turns `cls` into a dataclass whose constructor reports misspelt arguments with a suggestion.

    `dataclasses` generates and compiles source code for the methods of each class. One shared
    constructor makes the import of the package several times faster.
    """
    defines_init = "__init__" in cls.__dict__
    check_defaults(cls)
    dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
    complete_docstring(cls, [field.name for field in _arguments(cls)])
    cls.__init__ = hides_internal_frames(cls.__init__) if defines_init else _Constructor(cls)


def _construct(self: Configurable, *args: Field, **kwargs: Field) -> None:
    fields = [f for f in dataclasses.fields(self) if f.init]
    positional = _positional(type(self), fields) if args else []
    cls = type(self).__name__
    if len(args) > len(positional):
        check_layer_arguments(type(self), args)
        raise TypeError(
            f"{cls}: expected at most {len(positional)} arguments by position, received "
            f"{len(args)}. It takes: {', '.join(f.name for f in fields) or 'no arguments'}."
        )
    arguments = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in arguments:
            raise TypeError(f"{cls}: the argument {name!r} is given twice. Leave one out.")
        arguments[name] = value
    names = [f.name for f in fields]
    unknown = next((name for name in arguments if name not in names), None)
    # unknown arguments are reported before missing ones: a misspelt argument causes both errors
    if unknown is not None:
        check_declared(type(self), unknown)
        raise TypeError(unknown_argument(cls, unknown, names))
    set_field = object.__setattr__  # the class's own __setattr__ rejects every assignment
    if isinstance(self, Configurable):  # layers have no defaults that depend on arguments
        arguments = {**self._other_defaults(arguments), **arguments}
    for field in fields:
        if field.name in arguments:
            set_field(self, field.name, arguments[field.name])
        elif field.default is not dataclasses.MISSING:
            set_field(self, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            set_field(self, field.name, field.default_factory())
        else:
            raise TypeError(
                f"{cls}: the argument {field.name!r} is missing. It takes: "
                f"{', '.join(f.name for f in fields)}."
            )
    try:
        self.__post_init__()
    except (TypeError, ValueError):
        check_layer_arguments(type(self), args)
        raise


def _arguments(cls: type) -> list[dataclasses.Field]:
    """Returns the fields that are arguments of the constructor, in the order of the signature."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    positions = {name: n for n, name in enumerate(_positional(cls, fields))}
    return sorted(fields, key=lambda field: positions.get(field.name, len(positions)))


def _positional(cls: type, fields: Collection[dataclasses.Field]) -> list[str]:
    """Returns the names of the arguments that may be given by position, in order.

    `_positional` of a class lists names in Keras's order. The list overrides the order and `kw_only` of
    the fields, which a shared base class may declare first.
    """
    names = [f.name for f in fields if not f.kw_only]
    declared = getattr(cls, "_positional", ())
    start = next((n for n, name in enumerate(names) if name in declared), len(names))
    rest = [name for name in names[start:] if name not in declared]
    return [*names[:start], *declared, *rest]


def with_fields(value: T, fields: Mapping[str, Any]) -> T:
    """Returns a copy with other values in some fields, without conversion, checks and hash.

    The constructor would convert the values, which tracers do not allow. A copy with tracers has no hash.

    Example:
        >>> import fkeras as fk
        >>> with_fields(fk.losses.Huber(2.0), {"delta": 3.0}).delta
        3.0
    """
    copied = copy.copy(value)
    for name, field in fields.items():
        object.__setattr__(copied, name, field)
    return copied


class _Constructor:
    """The `__init__` of a class, with the signature of the fields for `help` and editors.

    The signature is computed at each access: most programs never read the signatures of most classes.
    """

    __name__ = "__init__"

    def __init__(self, cls: type):
        self.cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @hides_internal_frames
    def __call__(self, instance: Configurable, *args: Field, **kwargs: Field) -> None:
        _construct(instance, *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = [inspect.Parameter("self", kinds[0])]
        positional = _positional(self.cls, [f for f in dataclasses.fields(self.cls) if f.init])
        parameters += [
            inspect.Parameter(
                f.name,
                kinds[f.name not in positional],
                default=inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default,
            )
            for f in _arguments(self.cls)
        ]
        return inspect.Signature(parameters)


def convert_fields(obj: Any) -> None:
    """Runs the converters of the fields of `obj` and freezes the values.

    Each constructor calls this function once, at the end.
    """
    for field in dataclasses.fields(obj):
        if not field.init:
            continue
        value, owner = getattr(obj, field.name), type(obj).__name__
        is_default = value is field.default
        value = _default(owner, field) if is_default else convert_value(owner, field, value)
        object.__setattr__(obj, field.name, value)


# A memo of a pure function: most arguments of most constructors are omitted, and converting a
# default, such as the name of an initializer, takes longer than the rest of the constructor.
@functools.lru_cache(maxsize=4096)
def _default(owner: str, field: dataclasses.Field) -> Any:
    """Returns the converted default of a field."""
    return convert_value(owner, field, field.default)


def convert_value(owner: str, field: dataclasses.Field, value: Field) -> Field:
    """Returns a field's value, converted and frozen; errors name the class and the field."""
    convert = field.metadata.get(_CONVERT)
    try:
        if type(value) not in _PLAIN:
            check_no_keras_in(value)
        if convert is not None:
            value = convert(value)
        # jit hashes static configuration, so lists, dictionaries and arrays become hashable values
        return value if type(value) in _PLAIN else freeze_value(value)
    except (TypeError, ValueError, OverflowError) as error:
        _name_argument(error, owner, field.name)
        add_key(error, field.name)
        raise


def _name_argument(error: Exception, owner: str, argument: str) -> None:
    """Prefixes the message of a converter's error with the class and the argument."""
    if len(error.args) != 1 or not isinstance(error.args[0], str):
        add_note(error, f"{owner}: {argument}")
        return
    message = error.args[0]
    start = f"{owner}: {argument}:"
    if message.startswith(start):  # the message already names the class and the argument
        return
    if message.startswith(f"{argument}: "):
        message = f"{owner}: {message}"
    else:
        message = f"{start} {message.removeprefix(f'{owner}: ')}"
    error.args = (message,)


def configuration(obj: Any) -> dict[str, Any]:
    """Returns the constructor's arguments of `obj` as JSON data, in the order of declaration."""
    where = type(obj).__name__
    return {
        f.name: encode(getattr(obj, f.name), f"{where}.{f.name}")
        for f in dataclasses.fields(obj)
        if f.init
    }


def from_configuration(
    cls: type, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Creates an instance of `cls` from the JSON data that `configuration` returned.

    Keys that `cls` does not declare are rejected, since ignoring a Keras option could change the
    model's outputs. The exceptions have no effect: keys whose value is None, `autocast=True`, keys
    of LoRA (a saved kernel already includes the LoRA product) and keys of a quantization that was
    not applied.
    """
    if policy_map(config.get("dtype")) is not None:
        with within("dtype"):
            config = {**config, "dtype": policy_at(config["dtype"], config.get("name"))}
    # not inherited: a subclass may compute something that the quantized form does not
    form = cls.__dict__.get("_keras_form")
    # a property where the form depends on the layer inside
    other = getattr(form, "quantized_as", None)
    if other is not None and quantization(config.get("dtype")) is not None:
        return find(other, "keras.layers").quantized(cls, config, custom_objects)
    names = {f.name for f in dataclasses.fields(cls) if f.init}
    arguments = {}
    for key, value in config.items():
        if key in names:
            # a layer name is never decoded, even if it equals the name of a custom function
            with within(key):
                arguments[key] = value if key == "name" else _decode_field(value, custom_objects)
        elif value is not None and key not in _SAY_NOTHING and (key, value) != ("autocast", True):
            with within(key):
                raise ValueError(
                    f"{cls.__name__}.from_config: unknown key {str(key)[:80]!r}."
                    f"{suggest(key, names)} Its keys are: {', '.join(sorted(names))}."
                )
    return cls(**arguments)


def _decode_field(value: Field, custom_objects: Mapping[str, Any] | None) -> Field:
    if isinstance(value, str) and custom_objects and value in custom_objects:
        return custom_objects[value]
    return decode(value, custom_objects)


# TYPE_CHECKING: see `Traits`
@dataclass_transform(frozen_default=TYPE_CHECKING, field_specifiers=(option, dataclasses.field))
class DeclaresFields:
    """Declares to type checkers that annotated fields of subclasses are constructor arguments.

    `dataclass_transform` applies to the subclasses of the decorated class, not to the class
    itself. With this empty base it applies to the fields of `Configurable` too.
    """


class Configurable(DeclaresFields):
    """Base class of frozen dataclasses that compare by their fields and convert to and from JSON.

    Example:
        >>> from fkeras import initializers
        >>> initializers.Constant(2.0) == initializers.Constant(2.0)
        True
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        make_dataclass(cls)

    def __post_init__(self) -> None:
        convert_fields(self)

    @classmethod
    def _other_defaults(cls, arguments: Mapping[str, Field]) -> Mapping[str, Field]:
        """Returns defaults that replace those of fields, for the arguments of the constructor."""
        return {}

    def __setattr__(self, name: str, value: Field) -> None:
        raise dataclasses.FrozenInstanceError(rejected_field_assignment(self, name))

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}: is a value, so {name!r} cannot be deleted."
        )

    if not TYPE_CHECKING:  # with a __getattr__, type checkers accept every attribute name

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)

    def _values(self) -> tuple:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def __eq__(self, other: object) -> bool:
        # a subclass may compute something else from equal fields
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        # jit hashes its static arguments at every call, so the hash is cached
        cached = self.__dict__.get("_hash")
        if cached is None:
            cached = self.__dict__["_hash"] = hash((type(self), self._values()))
        return cached

    def __getstate__(self) -> dict[str, Any]:
        # string hashes are randomized per process, so a pickled hash would be wrong
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return describe(self)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data."""
        return configuration(self)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates an instance from the data that `get_config` returned."""
        return from_configuration(cls, config, custom_objects)


def describe(
    obj: Any,
    omitted: Collection[str] = (),
    weights: Collection[str] = (),
    shown: Collection[str] = (),
) -> str:
    """Returns the constructor call of `obj` as text, without arguments equal to their defaults.

    Args:
        omitted: fields that are left out.
        weights: fields of arrays that follow the arguments, except those that are None.
        shown: fields that are shown even with their defaults.
    """
    arguments = []
    positional = True
    for field in _arguments(type(obj)):
        if field.name in omitted:
            continue
        value = getattr(obj, field.name)
        default = field.default
        convert = field.metadata.get(_CONVERT)
        positional = positional and not field.kw_only
        if default is not dataclasses.MISSING:
            if convert is not None:
                default = convert(default)
            if freeze_value(default) == value and field.name not in shown:
                positional = False
                continue
        text = getattr(value, "__name__", None) if callable(value) else None
        text = text if isinstance(text, str) else _shown(value)
        arguments.append(text if positional else f"{field.name}={text}")
    arrays = {n: getattr(obj, n) for n in weights if not type(obj).__dataclass_fields__[n].init}
    arguments += [f"{n}={_shown(array)}" for n, array in arrays.items() if array is not None]
    return f"{type(obj).__name__}({', '.join(arguments)})"


def _shown(value: Field) -> str:
    """Returns a value as text; of an array the shape, of a long tuple not the middle."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic):
        return short_array(value)
    if type(value) is not tuple or len(value) < 2:
        return repr(value)
    if len(value) <= _LONGEST_TUPLE:
        return f"({', '.join(map(_shown, value))})"
    return (
        f"({', '.join(map(_shown, value[:3]))}, ... {len(value) - 4} more ..., {_shown(value[-1])})"
    )

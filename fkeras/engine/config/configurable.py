"""Configuration out of dataclass fields: one declaration gives constructor, value and JSON.

A class that subclasses `Configurable` is a frozen dataclass. Its fields, declared with `option`,
are its constructor's arguments, what it compares and hashes by, and its `get_config`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

from fkeras.engine.config.namespaces import find
from fkeras.engine.config.policy_maps import policy_at, policy_map
from fkeras.engine.config.quantized_policy import quantization
from fkeras.engine.config.rules import Rule
from fkeras.engine.config.serialization import decode, deserialize, encode, lookup, serialize
from fkeras.engine.messages.errors import suggest
from fkeras.engine.messages.key_paths import add_key, within
from fkeras.engine.migration_hints.arguments import unknown_argument
from fkeras.engine.migration_hints.attributes import MissingAttributeError
from fkeras.engine.migration_hints.keras_objects import check_no_keras_in
from fkeras.engine.values.frozen import freeze_value

__all__ = (
    "Configurable",
    "configuration",
    "decode",
    "deserialize",
    "encode",
    "from_configuration",
    "lookup",
    "make_dataclass",
    "option",
    "serialize",
    "suggest",
)

_CONVERT = "fkeras.convert"
# types that are frozen already; most fields hold one of them
_PLAIN = frozenset((bool, int, float, str, type(None)))
# of LoRA, whose product is in the kernel, and of quantization, where the dtype says there is none
_SAY_NOTHING = ("lora_rank", "lora_alpha", "quantization_config", "gptq_unpacked_column_size")


def option(
    *positional: Any,
    default: Any = dataclasses.MISSING,
    convert: Callable[[Any], Any] | None = None,
    kw_only: bool = False,
) -> Any:
    """Declares a field of static configuration.

    Args:
        *positional: the default, in programs written before type checkers were supported. A type
            checker takes a field with a positional default for a required one.
        default: the value of an omitted argument; without a default the argument is required.
        convert: called with the value at construction. The constructor puts the class and the
            field before the message of a ValueError or TypeError. `fkeras.engine.config.converters` has
            rules for types, ranges and choices.
        kw_only: whether the constructor takes it by keyword only.

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


def make_dataclass(cls: type) -> None:
    """Makes `cls` a frozen dataclass whose constructor names a misspelt argument.

    The standard library writes and compiles source for each class's methods; one constructor for
    all classes imports several times faster.
    """
    own_init = "__init__" in cls.__dict__
    dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
    if not own_init:
        cls.__init__ = _construct
        cls.__signature__ = _Signature()


def _construct(self: Any, *args: Any, **kwargs: Any) -> None:
    fields = [f for f in dataclasses.fields(self) if f.init]
    positional = [f.name for f in fields if not f.kw_only]
    cls = type(self).__name__
    if len(args) > len(positional):
        raise TypeError(
            f"{cls}: expected at most {len(positional)} arguments by position, received "
            f"{len(args)}. It takes: {', '.join(f.name for f in fields) or 'no arguments'}."
        )
    given = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"{cls}: the argument {name!r} is given twice. Leave one out.")
        given[name] = value
    names = [f.name for f in fields]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:  # before what is missing: it may be that argument, misspelt
        raise TypeError(unknown_argument(cls, unknown, names))
    put = object.__setattr__
    for field in fields:
        if field.name in given:
            put(self, field.name, given[field.name])
        elif field.default is not dataclasses.MISSING:
            put(self, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            put(self, field.name, field.default_factory())
        else:
            raise TypeError(
                f"{cls}: the argument {field.name!r} is missing. It takes: "
                f"{', '.join(f.name for f in fields)}."
            )
    self.__post_init__()


class _Signature:
    """The constructor's signature for help and editors, made when somebody asks for it."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = [
            inspect.Parameter(
                f.name,
                kinds[bool(f.kw_only)],
                default=inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default,
            )
            for f in dataclasses.fields(owner)
            if f.init
        ]
        return inspect.Signature(sorted(parameters, key=lambda p: p.kind))


def convert_fields(obj: Any) -> None:
    """Runs the converters of the fields of `obj` and freezes their values, once, at construction."""
    for field in dataclasses.fields(obj):
        if not field.init:
            continue
        value = convert_value(type(obj).__name__, field, getattr(obj, field.name))
        object.__setattr__(obj, field.name, value)


def convert_value(owner: str, field: dataclasses.Field, value: Any) -> Any:
    """A field's value, converted and frozen; errors name the class `owner` and the field."""
    convert = field.metadata.get(_CONVERT)
    try:
        if type(value) not in _PLAIN:
            check_no_keras_in(value)
        if convert is not None:
            value = convert(value)
        return value if type(value) in _PLAIN else freeze_value(value)
    except (TypeError, ValueError, OverflowError) as error:
        _name_argument(error, owner, field.name)
        add_key(error, field.name)
        raise


def declares_rule(field: dataclasses.Field) -> bool:
    """Whether the converter of a field only checks and converts plain values."""
    return isinstance(field.metadata.get(_CONVERT), Rule)


def _name_argument(error: Exception, owner: str, argument: str) -> None:
    """Puts the class and the argument before the message of an error in a converter."""
    if len(error.args) != 1 or not isinstance(error.args[0], str):
        error.add_note(f"{owner}: {argument}")
        return
    message = error.args[0]
    start = f"{owner}: {argument}:"
    if message.startswith(start):
        return
    if message.startswith(f"{argument}: "):
        message = f"{owner}: {message}"
    else:
        message = f"{start} {message.removeprefix(f'{owner}: ')}"
    error.args = (message,)


def configuration(obj: Any) -> dict[str, Any]:
    """The constructor's arguments of `obj` as JSON data, in declared order."""
    where = type(obj).__name__
    return {
        f.name: encode(getattr(obj, f.name), f"{where}.{f.name}")
        for f in dataclasses.fields(obj)
        if f.init
    }


def from_configuration(
    cls: type, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """The value of class `cls` that `configuration` described.

    Keys of Keras that this class does not have are refused, unless they say nothing: those that
    are None, `autocast`, which it writes for layers without a configuration of their own, those of
    LoRA, whose product a file has in the kernel already, and of a quantization that failed.
    """
    if policy_map(config.get("dtype")) is not None:
        with within("dtype"):
            config = {**config, "dtype": policy_at(config["dtype"], config.get("name"))}
    form = cls.__dict__.get("keras_form")  # a subclass may compute something else
    other = form.quantized_as if form is not None else None
    if other is not None and quantization(config.get("dtype")) is not None:
        return find(other, "keras.layers").quantized(cls, config, custom_objects)
    names = {f.name for f in dataclasses.fields(cls) if f.init}
    arguments = {}
    for key, value in config.items():
        if key in names:
            # a name is a name, though a function may go by it
            with within(key):
                arguments[key] = value if key == "name" else _decode_field(value, custom_objects)
        elif value is not None and key not in _SAY_NOTHING and (key, value) != ("autocast", True):
            with within(key):
                raise ValueError(
                    f"{cls.__name__}.from_config: unknown key {str(key)[:80]!r}."
                    f"{suggest(key, names)} Its keys are: {', '.join(sorted(names))}."
                )
    return cls(**arguments)


def _decode_field(value: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    if isinstance(value, str) and custom_objects and value in custom_objects:
        return custom_objects[value]
    return decode(value, custom_objects)


# TYPE_CHECKING: see `LayerTypes`
@dataclass_transform(frozen_default=TYPE_CHECKING, field_specifiers=(option, dataclasses.field))
class DeclaresFields:
    """Tells type checkers that the annotated fields of subclasses are constructor arguments.

    `dataclass_transform` covers the subclasses of the class that it decorates, not the class itself.
    An empty base therefore covers the fields of `Configurable` too.
    """


class Configurable(DeclaresFields):
    """A frozen dataclass that compares by its fields and goes to JSON and back.

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

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}: is a value, so {name!r} cannot be set. Make a copy: "
            f"dataclasses.replace(value, {name}=...)."
        )

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}: is a value, so {name!r} cannot be deleted."
        )

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)

    def _values(self) -> tuple:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        # hashed at every dispatch where it is a static argument, so kept
        known = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash((type(self), self._values()))
        return known

    def __getstate__(self) -> dict[str, Any]:
        # strings hash differently in another process
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return describe(self)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as JSON data."""
        return configuration(self)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The value that `get_config` described."""
        return from_configuration(cls, config, custom_objects)


def describe(obj: Any) -> str:
    """The constructor call that makes `obj`, without the arguments that have their defaults."""
    parts = []
    positional = True
    fields = [f for f in dataclasses.fields(obj) if f.init]
    for field in sorted(fields, key=lambda f: bool(f.kw_only)):
        value = getattr(obj, field.name)
        default = field.default
        convert = field.metadata.get(_CONVERT)
        positional = positional and not field.kw_only
        if default is not dataclasses.MISSING:
            if convert is not None:
                default = convert(default)
            if freeze_value(default) == value:
                positional = False
                continue
        text = getattr(value, "__name__", None) if callable(value) else None
        text = repr(value) if text is None or not isinstance(text, str) else text
        parts.append(text if positional else f"{field.name}={text}")
    return f"{type(obj).__name__}({', '.join(parts)})"

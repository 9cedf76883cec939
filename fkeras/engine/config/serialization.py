"""Conversion of objects to and from JSON, in Keras 3's format.

`{"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": None}`.
`fkeras.engine.config.namespaces` lists the names that a file may use: "keras.layers" means
`fkeras.layers`, and a file cannot cause the import of a module. The user's classes come from an
explicit mapping, `custom_objects`. fkeras has no registry, which would be global state.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (a dependency of jax: gives NumPy the names of its small floats)
import numpy as np

from fkeras.engine.config.config_checks import entry, expect
from fkeras.engine.config.custom_objects import custom_object
from fkeras.engine.config.late_module import late_module
from fkeras.engine.config.namespaces import find, without_module
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.messages.key_paths import within
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.values.annotations import Field, Json
from fkeras.engine.values.frozen import ArrayConstant, FrozenDict

_PACKAGE = "fkeras"
# objects of these modules are valid only for arguments of their own kind, apart from _SERVES_AS
_FAMILIES = (
    "keras.initializers",
    "keras.regularizers",
    "keras.constraints",
    "keras.losses",
    "keras.metrics",
    "keras.optimizers",
    "keras.optimizers.schedules",
    "keras.layers",
)
_STATEFUL = ("metric", "optimizer")
_SERVES_AS = (("activation", "keras.layers"), ("metric", "keras.losses"))
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS += ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def keras_module(cls: type) -> str | None:
    """Returns Keras's public module for a class of fkeras, or None for any other class."""
    declared = cls.__dict__.get("_keras_module")
    if declared is not None:
        return declared
    parts = cls.__module__.split(".")
    if parts[0] != _PACKAGE or len(parts) < 2:
        return None
    # a namespace of its own, as `file_namespace` reads it
    own = parts[1:3] == ["layers", "adapters"]
    return "keras.layers.adapters" if own else f"keras.{parts[1]}"


def encode(value: Json, where: str = "") -> Json:
    """Converts a configuration value to JSON data.

    Raises:
        TypeError: for a value without a JSON form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [encode(v, where) for v in value]
    if isinstance(value, Mapping):
        return {str(k): encode(v, f"{where}[{k!r}]") for k, v in value.items()}
    if isinstance(value, ArrayConstant):
        data = {"value": value.array.tolist(), "dtype": str(value.array.dtype)}
        return {"class_name": "__numpy__", "config": data}
    if hasattr(value, "get_config") and not isinstance(value, type):
        return serialize(value)
    # after get_config: layers and losses are callable too
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) or callable(value):
        return _encode_function(value, where)
    if isinstance(value, np.dtype):
        return value.name
    raise TypeError(
        f"{where or 'The configuration'}: a value of type {type(value).__name__} has no JSON "
        "form. Use numbers, strings, lists, dictionaries, arrays, or an object with get_config."
    )


def _encode_function(function: Any, where: str) -> Json:
    builtin = getattr(function, "builtin", None)  # of an operation, as in `namespaces.public`
    if builtin is False:
        return _encode_function(function.function, where)
    if builtin is True:
        module, _, name = f"keras.ops.{function.name}".rpartition(".")
        return {
            "module": module,
            "class_name": "function",
            "config": name,
            "registered_name": "function",
        }
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise TypeError(
            f"{where or 'The configuration'}: {name or type(function).__name__} has no name to be "
            "saved under. Define it with `def`, and pass it again on loading with "
            "custom_objects={'its_name': its_function}."
        )
    module = getattr(function, "__module__", None) or ""
    parts = module.split(".")
    if parts[0] == _PACKAGE and len(parts) >= 2:
        namespace = late_module(parts[1])
        # identity: a helper may share the name of a public function
        if getattr(namespace, name, None) is function:
            return name
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": name,
    }


def serialize(obj: Any) -> Json:
    """Converts an object to JSON data in Keras 3's format.

    Args:
        obj: an object with `get_config`, a function of this package or a named function of yours.

    Returns:
        A dictionary with `module`, `class_name`, `config` and `registered_name`, or the name of a
        function of this package.

    Raises:
        TypeError: if a value in the object's configuration has no JSON form.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.serialize(fk.layers.Dropout(0.5))["class_name"]
        'Dropout'
    """
    if obj is None or isinstance(obj, str):
        return obj
    if not hasattr(obj, "get_config"):
        return encode(obj)
    cls = type(obj)
    module, form = keras_module(cls), getattr(obj, "_keras_form", None)
    return {
        "module": module if module is not None else cls.__module__,
        "class_name": getattr(form, "class_name", None) or cls.__name__,
        "config": obj.get_config(),
        "registered_name": None if module is not None else cls.__name__,
    }


def deserialize(config: Json, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Creates the object that `config`, written by `serialize` or Keras 3, describes.

    Args:
        config: JSON data with `class_name` and `config`.
        custom_objects: your classes and functions by name.

    Raises:
        TypeError: if `config` is not a dictionary.
        ValueError: for an unknown name; the message shows how to pass a class of yours.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.deserialize(fk.layers.serialize(fk.layers.Dropout(0.5)))
        Dropout(0.5)
    """
    if not isinstance(config, Mapping):
        raise TypeError(
            "deserialize: expected a dictionary with 'class_name' and 'config', received "
            f"{type(config).__name__}. Pass the result of serialize."
        )
    if "class_name" not in config:
        raise ValueError(
            "deserialize: the dictionary has no 'class_name' (its keys: "
            f"{', '.join(map(str, config)) or 'none'}). Pass the result of serialize; for a layer's "
            "own get_config() call its class's from_config."
        )
    name = config["class_name"]
    if name in ("__numpy__", "__tensor__"):
        with within("config"):
            return _numbers(config.get("config"))
    # Keras stores a lambda as marshalled bytecode: running code from a file is never safe
    if name == "__lambda__":
        raise ValueError(
            "deserialize: received a Python function as bytecode, which fkeras never runs. Define "
            "the function with `def` and pass it, for a Lambda layer under the layer's name: "
            "custom_objects={'lambda_name': function}."
        )
    if name == "function":
        with within("config"):
            function: Any = config.get("config")
            return resolve(function, config.get("module"), custom_objects)
    with within("config"):
        inner = expect(config.get("config"), (Mapping, type(None)), f"the 'config' of {name!s:.80}")
        # a SeedGenerator mutates its state; here random layers use the key of the call
        if name == "SeedGenerator":
            return entry(inner, "seed", (int, type(None)))
    with within("class_name"):
        registered = config.get("registered_name")
        cls = resolve(name, config.get("module"), custom_objects, registered)
        if not callable(getattr(cls, "from_config", None)):
            raise ValueError(
                f"deserialize: expected a class with from_config, and {name[:80]!r} is a "
                f"{type(cls).__name__}. Name it as {{'class_name': 'function', 'config': "
                f"{name[:80]!r}}}."
            )
    with within("config"):
        return cls.from_config(dict(inner or {}), custom_objects=custom_objects)


def inner_config(config: Json, class_names: tuple[str, ...], where: str) -> Any:
    """Returns the inner "config" of a model in the form of Keras's `to_json`; other data unchanged.

    Args:
        class_names: the class names that are accepted.
        where: the class whose `from_config` received `config`.

    Raises:
        ValueError: for an object of another class.

    Example:
        >>> inner_config({"class_name": "Model", "config": {"layers": []}}, ("Model",), "Model")
        {'layers': []}
    """
    if not isinstance(config, Mapping) or "class_name" not in config or "config" not in config:
        return config
    if config["class_name"] not in class_names:
        raise ValueError(
            f"{where}.from_config: expected the configuration of a {where}, received that of a "
            f"{str(config['class_name'])[:80]}. fk.model_from_json opens the JSON of any model."
        )
    return config["config"]


def _numbers(data: Json) -> np.ndarray:
    """Converts an array that a configuration stores as nested lists to a NumPy array."""
    dtype = entry(data, "dtype", str)
    # an allow-list: "S1000000000" would allocate far more than the file's size
    if dtype not in _NUMBERS:
        raise ValueError(
            f"deserialize: expected an array of numbers, received dtype {dtype[:40]!r}. Known: "
            f"{', '.join(_NUMBERS)}."
        )
    return np.asarray(entry(data, "value", (list, tuple, int, float, bool)), dtype=dtype)


def resolve(
    name: str,
    module: str | None,
    custom_objects: Mapping[str, Any] | None = None,
    registered: str | None = None,
) -> Any:
    """Returns the class or function for a file's name, module and registered name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.
    """
    return find(name, module, custom_objects, registered)


def decode(value: Json, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Converts JSON data from `encode` back, creating the objects that the data describes.

    An object without a module remains data if several classes have its name, such as "Identity": the
    converter of the field knows the kind.
    """
    if isinstance(value, Mapping):
        if "class_name" in value and "config" in value:
            name = value["class_name"]
            if value.get("module") is None and isinstance(name, str):
                if not custom_object(custom_objects, name) and len(without_module(name)) > 1:
                    return FrozenDict(value)
            return deserialize(value, custom_objects)
        entries = {}
        for key, item in value.items():
            with within(key):
                entries[key] = decode(item, custom_objects)
        return FrozenDict(entries)
    if isinstance(value, list | tuple):
        items = []
        for index, item in enumerate(value):
            with within(index):
                items.append(decode(item, custom_objects))
        return items
    return value


def lookup(
    identifier: Field,
    kind: str,
    names: Mapping[str, Any],
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the object for an identifier: a name, a class, a configuration or the object itself.

    Args:
        identifier: None, a name in `names`, a dictionary from `serialize`, a class, or a callable.
        kind: the noun for messages, such as "initializer".
        names: classes and functions by name.
        custom_objects: your classes and functions by name, which take precedence over `names`.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.
        TypeError: for an identifier of another type, or an object of another kind.

    Example:
        >>> import math
        >>> lookup("root", "function", {"root": math.sqrt})(4.0)
        2.0
    """
    if identifier is None:
        return None
    if isinstance(identifier, str):
        if custom_objects and identifier in custom_objects:
            identifier = custom_objects[identifier]
        elif identifier in names:
            identifier = names[identifier]
        else:
            # an object may have several names; the message lists the lower-case names only
            known_names = [n for n in names if n == n.lower()]
            raise ValueError(
                f"There is no {kind} {identifier!r}.{suggest(identifier, names)} Known: "
                f"{', '.join(sorted(known_names))}; or pass a custom function or object."
            )
    if isinstance(identifier, Mapping):
        identifier = _of_kind(identifier, names, custom_objects)
    check_not_keras(identifier, kind)
    if isinstance(identifier, type):
        identifier = identifier()
    if _may_be(identifier, kind):
        return identifier
    raise TypeError(
        f"Expected a name, a configuration or a callable for the {kind}, received "
        f"{describe_value(identifier)}. For example: {_examples(kind, names)}."
    )


def _examples(kind: str, names: Mapping[str, Any]) -> str:
    # a factor is the number that users pass
    with_factor = " or fk.regularizers.L2(0.01)" if kind == "regularizer" else ""
    return f"{next(iter(names), None)!r}{with_factor}"


def _of_kind(config: Json, names: Mapping[str, Any], custom_objects: Any) -> Any:
    """Returns the object of a configuration; a name in `names` needs no module."""
    name, inner = config.get("class_name"), config.get("config")
    target = inner if name == "function" else name
    is_named = isinstance(target, str) and target in names and config.get("module") is None
    if not is_named or custom_object(custom_objects, target, config.get("registered_name")):
        return deserialize(config, custom_objects)
    found = names[target]
    if not isinstance(found, type):  # a function has no arguments
        return found if name == "function" or not inner else deserialize(config, custom_objects)
    return deserialize(
        {**config, "class_name": found.__name__, "module": keras_module(found)}, custom_objects
    )


def deserializer(get: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `deserialize` that accepts names, and data without a module, of one kind.

    Args:
        get: the lookup of the kind, `(identifier, custom_objects)`.

    Example:
        >>> import fkeras as fk
        >>> fk.initializers.deserialize({"class_name": "HeNormal", "config": {}})
        HeNormal()
    """

    def deserialize_kind(config: Json, custom_objects: Mapping[str, Any] | None = None) -> Any:
        name = config.get("class_name") if isinstance(config, Mapping) else None
        # the kind decides for a name of several classes, and for aliases
        is_clear = isinstance(name, str) and len(without_module(name)) == 1
        if isinstance(config, Mapping) and (config.get("module") is not None or is_clear):
            return deserialize(config, custom_objects)
        known = isinstance(config, str) or name is not None
        return get(config, custom_objects) if known else deserialize(config)

    return hides_internal_frames(functools.update_wrapper(deserialize_kind, deserialize))


def _may_be(value: Json, kind: str) -> bool:
    """Returns whether an object may be used as a `kind`, that is, has no other kind."""
    family = keras_module(type(value))
    if family not in _FAMILIES:
        return callable(value) or (kind in _STATEFUL and hasattr(value, "get_config"))
    own_families = (f"keras.{kind}s", f"keras.{kind}es")
    return family in own_families or (kind, family) in _SERVES_AS

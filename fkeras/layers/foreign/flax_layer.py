"""`FlaxLayer`: wraps a Flax module (`flax.linen`, `flax.nnx`) as a layer."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
from jax.typing import DTypeLike

from fkeras.engine.config.serialization import resolve
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.callables import argument_names
from fkeras.layers.common import authoring as fk
from fkeras.layers.foreign.base import ForeignLayer
from fkeras.layers.foreign.nnx_module import NnxModule, is_nnx, split_nnx

_OWN = ("parent", "name")  # fields that every Flax module has
_DROPOUT = ("dropout",)


class HashedModule:
    """Wraps a module that is not hashable because it holds a list; compares the modules.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Stack:
        ...     layers: list
        >>> HashedModule(Stack([1])) == HashedModule(Stack([1])), len({HashedModule(Stack([1]))})
        (True, 1)
    """

    __slots__ = ("module",)

    def __init__(self, module: Any):
        object.__setattr__(self, "module", module)

    def __setattr__(self, name: str, value: fk.Field) -> None:
        raise AttributeError(
            "A HashedModule is immutable. Create a new HashedModule from the new module."
        )

    def init(self, *args: fk.Option, **kwargs: fk.Option) -> Any:
        return self.module.init(*args, **kwargs)

    def apply(self, *args: fk.Option, **kwargs: fk.Option) -> Any:
        return self.module.apply(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedModule) and bool(self.module == other.module)

    def __hash__(self) -> int:
        # equal modules must have equal hashes, and the class is all that is certainly hashable
        return hash(type(self.module))

    def __repr__(self) -> str:
        return repr(self.module)

    def __reduce__(self):
        return (HashedModule, (self.module,))


def _module(value: fk.Field) -> Any:
    if hasattr(value, "init") and hasattr(value, "apply") and not isinstance(value, type):
        try:
            # static parts of a jitted call must be hashable
            hash(value)
        except TypeError:
            return HashedModule(value)
        return value
    received = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TypeError(
        f"FlaxLayer: module: expected a module with init and apply, received {received}. Pass an "
        "object such as flax.linen.Dense(8); for a pair of functions use layers.JaxLayer."
    )


class FlaxLayer(ForeignLayer):
    """Computes a module of `flax.linen`, `module.apply(variables, inputs)`, or of `flax.nnx`.

    The collection "params" is the layer's weights; all other collections, such as "batch_stats",
    are its state. In training, the module receives a key for each name in `rngs`; in inference,
    it receives none.

    Values sown into "intermediates" are dropped. Values sown into other collections are state,
    whose structure must not change: give `sow` a `reduce_fn` and an `init_fn`, because its tuples
    grow otherwise. Floating outputs are cast to the compute dtype, whatever the dtype of the
    module; Keras does not cast them.

    A module of `flax.nnx` has arrays from its constructor. The layer splits the module into a graph and
    arrays, and merges both in each call: variables of the type `Param` are the layer's weights, all
    other variables except random streams are its state. A call runs the module's `train()` in training
    and `eval()` in inference, and draws from the key of the call. The module does not change. The layer
    has no JSON form: `fk.save_weights` writes its arrays, and `fk.load_weights` reads them into the same
    layer.

    `training_argument` names the module's argument for the training mode, if the module has this
    argument. As in Keras, an argument with the name `training` is found. Only modules of Flax need the package:
    `pip install flax`.

    Args:
        module: the module, not bound to variables, or a module of `flax.nnx`; a module that holds
            lists is stored as a `HashedModule`.
        method: method to call, or its name; None for `__call__`.
        variables: initial variables, as returned by `module.init`; None to draw them.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        training_argument: name of the argument that is True in training; the prefix "not " inverts
            the argument, for example "not deterministic"; None for "training", if the method has
            this argument. Keyword only.
        rngs: names of the module's random streams in training. Keyword only.

    Shapes:
        Those of the module.

    Raises:
        TypeError: for anything but a module, and when saving a module whose fields are not JSON.

    Example:
        >>> import dataclasses, jax, jax.numpy as jnp, fkeras as fk
        >>> @dataclasses.dataclass(frozen=True)
        ... class Scale:  # as a module of flax.linen, such as flax.linen.Dense(2)
        ...     def init(self, rngs, x, method=None):
        ...         return {"params": {"scale": jnp.full((), 2.0)}}
        ...     def apply(self, variables, x, rngs=None, method=None, mutable=False):
        ...         return variables["params"]["scale"] * x, {}
        >>> layer = fk.layers.FlaxLayer(Scale()).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.ones((1, 2)))
        Array([[2., 2.]], dtype=float32)
    """

    module: Any = fk.option(convert=_module)
    method: Any = fk.option(
        default=None, convert=fk.either(fk.text(), fk.function(), optional=True)
    )
    seed: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(optional=True), kw_only=True
    )
    training_argument: str | None = fk.option(
        default=None, convert=fk.text(optional=True), kw_only=True
    )
    rngs: fk.Words = fk.option(
        default=_DROPOUT,
        convert=fk.several(fk.text(), "a list of names of random streams", least=0),
        kw_only=True,
    )

    def __init__(
        self,
        module: Any,
        method: Callable | str | None = None,
        variables: fk.Tree = None,
        *,
        seed: int | None = None,
        training_argument: str | None = None,
        rngs: Sequence[str] = _DROPOUT,
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike = "float32",
    ):
        # a method object is bound to one module; its name works for the module of any copy
        method_name = getattr(method, "__name__", "")
        if method_name and hasattr(type(module), method_name):
            method = method_name
        if is_nnx(module):
            if variables is not None:
                raise ValueError(
                    "FlaxLayer: variables: expected None for a module of flax.nnx, which has its "
                    "variables. Leave the argument out."
                )
            module, variables = split_nnx(module)
        fields = {
            "module": module,
            "method": method,
            "seed": seed,
            "training_argument": training_argument,
            "rngs": rngs,
            "name": name,
            "trainable": trainable,
            "dtype": dtype,
        }
        params, state = (None, None) if variables is None else _split(variables)
        self._start(fields, params, state)

    @property
    def draws(self) -> bool:
        """Returns whether a training call receives a PRNG key."""
        drawing = self.module.are_keys if isinstance(self.module, NnxModule) else self.rngs
        return bool(drawing)

    def initialize(self, key: jax.Array, inputs: fk.Tree) -> tuple[Any, Any]:
        """Returns `(params, state)` of a newly initialized module."""
        names = ("params", *self.rngs)
        keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        try:
            variables = self.module.init(keys, inputs, method=self.method, **self._option(True))
        except TypeError as error:
            if "argument" in str(error):
                error.add_note(
                    f"{self._where}: the module was called with one array and "
                    f"training_argument={self.training_argument!r}. If the module has a training "
                    "flag, name it: training_argument='train', or 'not deterministic'."
                )
            raise
        return _split(variables)

    def compute(
        self,
        params: fk.Tree,
        state: fk.Tree,
        key: jax.Array | None,
        inputs: fk.Tree,
        training: bool,
    ) -> tuple[Any, Any]:
        """Returns the module's `(outputs, state)`."""
        keys = {}
        # without keys, Flax's stochastic layers raise an error if they are not deterministic
        if key is not None:
            keys = dict(zip(self.rngs, jax.random.split(key, len(self.rngs)), strict=True))
        value, updates = self.module.apply(
            {**state, "params": params} if params else state,
            inputs,
            rngs=keys,
            method=self.method,
            mutable=list(state),
            **self._option(training),
        )
        return value, {**state, **updates}

    def _option(self, training: bool) -> dict[str, bool]:
        options = {"is_training": training} if isinstance(self.module, NnxModule) else {}
        name = self.training_argument or self._found_argument()
        if name is None:
            return options
        opposite = name.startswith("not ")
        return {**options, name.removeprefix("not "): training != opposite}

    def _found_argument(self) -> str | None:
        """Returns Keras's name of the training flag if the method has an argument of this name."""
        module = self.module.module if isinstance(self.module, HashedModule) else self.module
        method = self.method or "__call__"
        function = getattr(type(module), method, None) if isinstance(method, str) else method
        has_flag = "training" in argument_names(function)
        return "training" if has_flag and not isinstance(module, NnxModule) else None

    def get_config(self) -> dict[str, Any]:
        """Returns the module's class and fields, and deviations from Keras's defaults."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        where = type(self).__name__
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": self.policy.name,
            "module": _encode(self.module, where),
            "method": fk.encode(self.method, f"{where}.method"),
        }
        defaults = {"seed": None, "training_argument": None, "rngs": _DROPOUT}
        deviations = {
            n: fk.encode(fields[n], where)
            for n, default in defaults.items()
            if fields[n] != default
        }
        return {**config, **deviations}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Reads the configuration that `get_config` wrote; `custom_objects` holds user classes."""
        config = dict(config)
        module = _decode(config.pop("module"), custom_objects)
        options = {name: fk.decode(value, custom_objects) for name, value in config.items()}
        return cls(module, **options)


def _split(variables: fk.Tree) -> tuple[Any, Any]:
    return variables.get("params", {}), {
        name: v for name, v in variables.items() if name != "params"
    }


def _encode(value: fk.Field, where: str) -> Any:
    """Encodes a module as JSON data: its class, and the fields that differ from the defaults."""
    if isinstance(value, NnxModule):
        raise TypeError(
            f"{where}: a module of flax.nnx ({value.name}) has no JSON form. Save the arrays: "
            "fk.save_weights(path, model, state)."
        )
    if isinstance(value, HashedModule):
        value = value.module
    if isinstance(value, list | tuple):
        return [_encode(v, where) for v in value]
    if not (dataclasses.is_dataclass(value) and hasattr(value, "apply")):
        return fk.encode(value, where)
    cls = type(value)
    fields = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.init and field.name not in _OWN and inner is not field.default:
            fields[field.name] = _encode(inner, f"{where}.{cls.__name__}.{field.name}")
    if getattr(value, "name", None):
        fields["name"] = value.name
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "config": fields,
        "registered_name": cls.__name__,
    }


def _decode(value: fk.Field, custom_objects: Mapping[str, Any] | None) -> Any:
    if isinstance(value, list):
        return [_decode(v, custom_objects) for v in value]
    if not isinstance(value, Mapping) or value.get("class_name") in (None, "function"):
        return fk.decode(value, custom_objects)
    name, module_path = value["class_name"], str(value.get("module"))
    if name not in (custom_objects or {}) and module_path.startswith("flax.linen"):
        linen = _linen()
        module_class = getattr(linen, name, None) if isinstance(name, str) else None
        # security: a file may name modules of Flax, but no other callable of the package, so
        # loading cannot run arbitrary functions
        if isinstance(module_class, type) and issubclass(module_class, linen.Module):
            custom_objects = {**(custom_objects or {}), name: module_class}
    cls = resolve(name, module_path, custom_objects)
    return cls(**{k: _decode(v, custom_objects) for k, v in value["config"].items()})


def _linen() -> Any:
    try:
        return importlib.import_module("flax.linen")
    except ImportError as error:
        raise missing_package("FlaxLayer.from_config", "flax.linen", error) from error

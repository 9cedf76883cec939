"""`JaxLayer`: wraps a pair of functions of any JAX library as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.typing import DTypeLike

from fkeras.layers.common import authoring as fk
from fkeras.layers.foreign.base import ForeignLayer

_CALL = ("params", "state", "rng", "inputs", "training")
_INIT = ("rng", "inputs", "training")
_INIT_DEFAULT = ("rng", "inputs")


def _function(optional: bool = False) -> Callable[[Any], Any]:
    def convert(value: fk.Field) -> Any:
        if (callable(value) and not isinstance(value, type)) or (value is None and optional):
            return value
        hint = ""
        if isinstance(value, str):
            hint = f" A file stores only its name: load it with custom_objects={{{value!r}: f}}."
        raise TypeError(
            f"expected a function, received {fk.describe_value(value)}."
            f"{hint or ' Pass the function itself, such as model.apply.'}"
        )

    return convert


def _arguments(allowed: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    def convert(value: fk.Field) -> tuple[str, ...]:
        names = tuple(value) if isinstance(value, list | tuple) else (value,)
        for name in names:
            if name not in allowed:
                raise ValueError(
                    f"expected names of {', '.join(allowed)}, received "
                    f"{name!r}.{fk.suggest(str(name), allowed)} Name the function's arguments, in their "
                    "order."
                )
        if "inputs" not in names or len(set(names)) != len(names):
            raise ValueError(
                f"expected unique names that include 'inputs', received {names}. For f(params, "
                "inputs) give ('params', 'inputs')."
            )
        return names

    return convert


def _own_arguments(
    function: Callable | None, allowed: tuple[str, ...], otherwise: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the names of a function's parameters, or `otherwise` if a name is not allowed."""
    # functions of other libraries may be wrapped, as by jax.jit, or bound to an object
    inner = None if function is None else inspect.unwrap(function)
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    if code is None or code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS:
        return otherwise
    names = code.co_varnames[hasattr(inner, "__self__") : code.co_argcount]
    return names if "inputs" in names and {*names} <= {*allowed} else otherwise


class JaxLayer(ForeignLayer):
    """Computes `call_fn(params, state, rng, inputs, training)`, a function of any JAX library.

    The arrays of the pytree `params` are the layer's weights, and those of the pytree `state` its
    state. As in Keras, the names of the parameters of `call_fn` select its arguments; for a function
    with other names, such as `model.apply`, `call_arguments` lists them in order. `call_fn` receives
    the arguments by position. Without "state", `call_fn` returns the outputs and `init_fn` returns
    `params`; with "state", they return `(outputs, new_state)` and `(params, state)`.

    `rng` is a key in training and None in inference, as in Keras. Floating weights are cast to the
    compute dtype. Floating outputs are cast too, unlike in Keras; the state keeps its dtypes.
    Examples for several libraries:

    - Haiku: `JaxLayer(f.apply, f.init)` with `call_arguments=("params", "rng", "inputs")` for
      `f = haiku.transform(...)`, `("params", "state", "rng", "inputs")` for
      `haiku.transform_with_state(...)`.
    - Equinox: `params, rest = equinox.partition(module, equinox.is_inexact_array)`, and
      `JaxLayer(lambda params, inputs: jax.vmap(equinox.combine(params, rest))(inputs), params=params)`.
    - Flax: `layers.FlaxLayer`.

    Args:
        call_fn: function that computes the outputs.
        init_fn: function that returns initial weights, and the state if the model has state. Its
            inputs are arrays of ones, with size 1 for unknown sizes. Not needed with `params`.
        params: initial weights, a pytree of arrays; None to call `init_fn`.
        state: initial state, a pytree of arrays; None to call `init_fn`.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        native_serialization_platforms: must be None; Keras uses the argument for another backend.
        call_arguments: names of the arguments of `call_fn`, in order, from "params", "state",
            "rng", "inputs" and "training". None for the names of the function's parameters, or for
            all five names if the function has other parameters. Keyword only.
        init_arguments: names of the arguments of `init_fn`, in order, from "rng", "inputs" and
            "training", which is True. None for the names of the function's parameters, or for
            ("rng", "inputs") if the function has other parameters. Keyword only.

    Shapes:
        Those of `call_fn`.

    Raises:
        ValueError: for unknown names, and if weights are needed but not given.
        TypeError: for anything but a function, and for arguments that the function does not have.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> def init(rng, inputs):
        ...     return {"scale": jnp.full(inputs.shape[-1], 3.0)}
        >>> def scaled(params, inputs):
        ...     return params["scale"].reshape(1, -1) * inputs
        >>> layer = fk.layers.JaxLayer(scaled, init)
        >>> layer = layer.build(jax.random.key(0), (None, 2))
        >>> layer(jnp.ones((1, 2)))
        Array([[3., 3.]], dtype=float32)
    """

    call_fn: Callable = fk.option(convert=_function())
    init_fn: Callable | None = fk.option(default=None, convert=_function(optional=True))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    call_arguments: fk.Words = fk.option(default=_CALL, convert=_arguments(_CALL), kw_only=True)
    init_arguments: fk.Words = fk.option(
        default=_INIT_DEFAULT, convert=_arguments(_INIT), kw_only=True
    )

    def __init__(
        self,
        call_fn: Callable,
        init_fn: Callable | None = None,
        params: fk.Tree = None,
        state: fk.Tree = None,
        seed: int | None = None,
        native_serialization_platforms: None = None,
        *,
        call_arguments: Sequence[str] | None = None,
        init_arguments: Sequence[str] | None = None,
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike = "float32",
    ):
        if native_serialization_platforms is not None:
            raise ValueError(
                "JaxLayer: native_serialization_platforms: expected None, received "
                f"{native_serialization_platforms!r}. Leave it out: nothing is converted here."
            )
        fields = {
            "call_fn": call_fn,
            "init_fn": init_fn,
            "seed": seed,
            "call_arguments": call_arguments or _own_arguments(call_fn, _CALL, _CALL),
            "init_arguments": init_arguments or _own_arguments(init_fn, _INIT, _INIT_DEFAULT),
            "name": name,
            "trainable": trainable,
            "dtype": dtype,
        }
        self._start(fields, params, state)
        needed_names = [n for n in ("params", "state") if n in self.call_arguments]
        if init_fn is None and params is None and state is None and needed_names:
            raise ValueError(
                f"{self._where}: expected init_fn, params or state, as call_fn takes "
                f"{' and '.join(needed_names)}, received none. Pass init_fn=model.init, or the weights."
            )

    @property
    def draws(self) -> bool:
        """Returns whether a training call receives a PRNG key."""
        return "rng" in self.call_arguments

    def initialize(self, key: jax.Array, inputs: fk.Tree) -> tuple[Any, Any]:
        """Returns `(params, state)` from `init_fn`."""
        if self.init_fn is None:
            if {"params", "state"} & set(self.call_arguments):
                raise ValueError(
                    f"{self._where}: expected init_fn to initialize new weights, received None. "
                    "Pass init_fn=model.init, or keep the params of the constructor."
                )
            return None, None
        arguments = {"rng": key, "inputs": inputs, "training": True}
        result = self._run("init_fn", self.init_fn, self.init_arguments, arguments)
        return self._pair("init_fn", result) if "state" in self.call_arguments else (result, None)

    def compute(
        self,
        params: fk.Tree,
        state: fk.Tree,
        key: jax.Array | None,
        inputs: fk.Tree,
        training: bool,
    ) -> tuple[Any, Any]:
        """Returns `(outputs, state)` from `call_fn`."""
        arguments = {"params": params, "state": state, "rng": key, "inputs": inputs}
        result = self._run(
            "call_fn", self.call_fn, self.call_arguments, {**arguments, "training": training}
        )
        return self._pair("call_fn", result) if "state" in self.call_arguments else (result, state)

    def _run(self, field: str, function: Callable, names: tuple[str, ...], values: dict) -> Any:
        try:
            return function(*(values[name] for name in names))
        except TypeError as error:
            # rewrite only the error of this call, not a TypeError from inside of the function
            function_name = getattr(function, "__name__", "")
            if "positional argument" not in str(error) or f"{function_name}()" not in str(error):
                raise
            arguments = f"{field.removesuffix('_fn')}_arguments"
            raise TypeError(
                f"{self._where}: {field} was called with ({', '.join(names)}), as {arguments} says: "
                f"{error}. Name its arguments, in order: {arguments}=('params', 'inputs')."
            ) from error

    def _pair(self, field: str, result: fk.Tree) -> tuple[Any, Any]:
        if isinstance(result, tuple) and len(result) == 2:
            return result
        expected = "(outputs, new_state)" if field == "call_fn" else "(params, state)"
        raise TypeError(
            f"{self._where}: expected {field} to return {expected}, as call_arguments has 'state', "
            f"received {type(result).__name__}. Return both, or leave 'state' out."
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the functions' names, and deviations from Keras's defaults."""
        config = super().get_config()
        defaults = (
            ("seed", None),
            ("call_arguments", _own_arguments(self.call_fn, _CALL, _CALL)),
            ("init_arguments", _own_arguments(self.init_fn, _INIT, _INIT_DEFAULT)),
        )
        for name, default in defaults:
            if getattr(self, name) == default:
                del config[name]
        return config

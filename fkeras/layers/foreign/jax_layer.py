"""`JaxLayer`: a pair of functions of any JAX library as a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from fkeras.engine import option, subkey, suggest
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import OptionalInteger, Words
from fkeras.engine.messages.errors import describe_value
from fkeras.layers.foreign.base import ForeignLayer

_CALL = ("params", "state", "rng", "inputs", "training")
_INIT = ("rng", "inputs", "training")
_INIT_DEFAULT = ("rng", "inputs")


def _function(none: bool = False) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if (callable(value) and not isinstance(value, type)) or (value is None and none):
            return value
        hint = ""
        if isinstance(value, str):
            hint = f" A file holds its name only: load it with custom_objects={{{value!r}: f}}."
        raise TypeError(
            f"expected a function, received {describe_value(value)}."
            f"{hint or ' Pass the function itself, such as model.apply.'}"
        )

    return convert


def _arguments(allowed: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    def convert(value: Any) -> tuple[str, ...]:
        names = tuple(value) if isinstance(value, list | tuple) else (value,)
        for name in names:
            if name not in allowed:
                raise ValueError(
                    f"expected names of {', '.join(allowed)}, received "
                    f"{name!r}.{suggest(str(name), allowed)} Name the function's arguments, in their "
                    "order."
                )
        if "inputs" not in names or len(set(names)) != len(names):
            raise ValueError(
                f"expected different names with 'inputs' among them, received "
                f"{names}. For f(params, inputs) give ('params', 'inputs')."
            )
        return names

    return convert


class JaxLayer(ForeignLayer):
    """Computes `call_fn(params, state, rng, inputs, training)`, a function of any JAX library.

    The arrays of `params` are the layer's weights, those of `state` its state, both pytrees of any
    kind. `call_arguments` names the arguments of `call_fn`, in order; `call_fn` receives them by
    position. (Keras reads the names off the function.) Without "state" it returns the outputs
    alone, with "state" `(outputs, new_state)`; `init_fn` then returns `(params, state)`, and
    `params` otherwise.

    `rng` is a key in training and None in inference, as in Keras. Floating weights are cast to the
    compute dtype, and so are floating outputs, which Keras leaves as they are; the state keeps its
    dtypes. Models of several libraries:

    - Haiku: `JaxLayer(f.apply, f.init)` with `call_arguments=("params", "rng", "inputs")` for
      `f = haiku.transform(...)`, `("params", "state", "rng", "inputs")` for
      `haiku.transform_with_state(...)`.
    - Equinox: `params, rest = equinox.partition(model, equinox.is_inexact_array)`, and a function
      that calls `jax.vmap(equinox.combine(params, rest))(inputs)` with
      `call_arguments=("params", "inputs")`, `params=params`.
    - Flax: `layers.FlaxLayer`.

    Args:
        call_fn: computes the outputs.
        init_fn: makes the weights, and the state where there is one; it is called with arrays of
            ones, of size 1 where a size is not known. Not needed where `params` are given.
        params: first weights, a pytree of arrays; those of `init_fn` otherwise.
        state: the first state, a pytree of arrays; that of `init_fn` otherwise.
        seed: folded into the key of each call; the key alone decides where it is None.
        native_serialization_platforms: None; Keras takes it for another backend.
        call_arguments: the names among "params", "state", "rng", "inputs" and "training" of the
            arguments of `call_fn`, in its order; by keyword only.
        init_arguments: the names among "rng", "inputs" and "training" of the arguments of
            `init_fn`, in its order; `training` is True then. By keyword only.

    Shapes:
        those of `call_fn`.

    Raises:
        ValueError: for names that are unknown, or where weights can come from nowhere.
        TypeError: for anything but a function, and for arguments that the function lacks.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> def init(rng, inputs):
        ...     return {"scale": jnp.full(inputs.shape[-1], 3.0)}
        >>> def scaled(params, inputs):
        ...     return params["scale"].reshape(1, -1) * inputs
        >>> layer = fk.layers.JaxLayer(scaled, init, call_arguments=("params", "inputs"))
        >>> layer = layer.build(jax.random.key(0), (None, 2))
        >>> layer(jnp.ones((1, 2)))
        Array([[3., 3.]], dtype=float32)
    """

    call_fn: Callable = option(convert=_function())
    init_fn: Callable | None = option(default=None, convert=_function(none=True))
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    call_arguments: Words = option(default=_CALL, convert=_arguments(_CALL), kw_only=True)
    init_arguments: Words = option(default=_INIT_DEFAULT, convert=_arguments(_INIT), kw_only=True)

    def __init__(
        self,
        call_fn: Callable,
        init_fn: Callable | None = None,
        params: Any = None,
        state: Any = None,
        seed: int | None = None,
        native_serialization_platforms: None = None,
        *,
        call_arguments: Sequence[str] = _CALL,
        init_arguments: Sequence[str] = _INIT_DEFAULT,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = "float32",
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
            "call_arguments": call_arguments,
            "init_arguments": init_arguments,
            "name": name,
            "trainable": trainable,
            "dtype": dtype,
        }
        self._start(fields, params, state)
        needs = [n for n in ("params", "state") if n in self.call_arguments]
        if init_fn is None and params is None and state is None and needs:
            raise ValueError(
                f"{self.where}: expected init_fn, params or state, as call_fn takes "
                f"{' and '.join(needs)}, received none. Pass init_fn=model.init, or the weights."
            )

    @property
    def draws(self) -> bool:
        """Whether a training call is given a key."""
        return "rng" in self.call_arguments

    def initialize(self, key: jax.Array, inputs: Any) -> tuple[Any, Any]:
        """`(params, state)` that `init_fn` makes."""
        if self.init_fn is None:
            if {"params", "state"} & set(self.call_arguments):
                raise ValueError(
                    f"{self.where}: expected init_fn to make new weights, received None. Pass "
                    "init_fn=model.init, or use the layer with the params it was made with."
                )
            return None, None
        given = {"rng": key, "inputs": inputs, "training": True}
        made = self._run("init_fn", self.init_fn, self.init_arguments, given)
        return self._pair("init_fn", made) if "state" in self.call_arguments else (made, None)

    def compute(
        self, params: Any, state: Any, key: jax.Array | None, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        """`(outputs, state)` that `call_fn` returns."""
        if key is not None and self.seed is not None:
            key = subkey(key, self.seed)
        given = {"params": params, "state": state, "rng": key, "inputs": inputs}
        made = self._run(
            "call_fn", self.call_fn, self.call_arguments, {**given, "training": training}
        )
        return self._pair("call_fn", made) if "state" in self.call_arguments else (made, state)

    def _run(self, field: str, function: Callable, names: tuple[str, ...], given: dict) -> Any:
        try:
            return function(*(given[name] for name in names))
        except TypeError as error:
            own = getattr(function, "__name__", "")
            if "positional argument" not in str(error) or f"{own}()" not in str(error):
                raise
            arguments = f"{field.removesuffix('_fn')}_arguments"
            raise TypeError(
                f"{self.where}: {field} was called with ({', '.join(names)}), as {arguments} says: "
                f"{error}. Name its arguments, in order: {arguments}=('params', 'inputs')."
            ) from error

    def _pair(self, field: str, made: Any) -> tuple[Any, Any]:
        if isinstance(made, tuple) and len(made) == 2:
            return made
        parts = "(outputs, new_state)" if field == "call_fn" else "(params, state)"
        raise TypeError(
            f"{self.where}: expected {field} to return {parts}, as call_arguments has 'state', "
            f"received {type(made).__name__}. Return both, or leave 'state' out."
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the functions' names, and deviations from Keras's defaults."""
        config = super().get_config()
        plain = (("seed", None), ("call_arguments", _CALL), ("init_arguments", _INIT_DEFAULT))
        for name, default in plain:
            if getattr(self, name) == default:
                del config[name]
        return config

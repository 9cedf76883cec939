"""`Bidirectional`: a recurrent layer for each direction of time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from fkeras.engine.config.policy_maps import policy_at
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.layers.common import authoring as fk

_MODES = ("concat", "sum", "mul", "ave")
_SHARED = ("stateful", "return_sequences", "return_state")


def merge_directions(mode: str | None, forward: jax.Array, backward: jax.Array) -> Any:
    """Merges the outputs of two directions: concatenated, added, multiplied, averaged or as a pair.

    Example:
        >>> import jax.numpy as jnp
        >>> merge_directions("ave", jnp.array([1.0]), jnp.array([3.0]))
        Array([2.], dtype=float32)
    """
    if mode is None:
        return forward, backward
    if mode == "concat":
        return jnp.concatenate([forward, backward], axis=-1)
    if mode == "mul":
        return forward * backward
    total = forward + backward
    return total / 2 if mode == "ave" else total


# the explicit constructor below sets the field
_SET_LATER: Any = None


class Bidirectional(fk.Layer):
    """Runs one recurrent layer forward and another backward in time, and merges their outputs.

    With return_sequences, the outputs of both layers are in the order of time, and zero at masked
    steps.

    Args:
        layer: the recurrent layer; any weights of this argument are not used.
        merge_mode: "concat", "sum", "mul", "ave", or None to return both outputs.
        weights: initial weights as a list of arrays, those of the forward layer first.
        backward_layer: the layer for the other direction, with the opposite `go_backwards`; None
            for a copy of `layer`.

    Call:
        initial_state: initial states, those of the forward layer first.

    Shapes:
        (b, t, d) -> (b, 2u), or (b, u) without concatenation; (b, t, ...) with return_sequences;
        with return_state a tuple of the output (two outputs with merge_mode None), the forward
        states and the backward states.

    Raises:
        ValueError: for two layers of the same direction, or with different return values.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Bidirectional(fk.layers.GRU(4))
        >>> layer = layer.build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape
        (2, 8)

    References:
        Schuster and Paliwal, Bidirectional recurrent neural networks (1997).
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        input_names=("sequences",),
        option_names=("initial_state", "mask", "training"),
        training_default=None,
    )

    forward_layer: Any = dataclasses.field(default=_SET_LATER, init=False)
    merge_mode: str | None = fk.option(default="concat", convert=fk.choice(*_MODES, optional=True))
    weights: tuple | None = fk.option(
        default=None, convert=fk.several(fk.numeric(), "a list of arrays", least=0, optional=True)
    )
    backward_layer: fk.Converted[fk.Layer | None, fk.Layer] = fk.option(default=None)

    supports_masking: ClassVar[bool] = True

    def __init__(
        self,
        layer: fk.Layer,
        merge_mode: str | None = "concat",
        weights: Sequence[Any] | None = None,
        backward_layer: fk.Layer | None = None,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike = "float32",
    ):
        _check_layer("layer", layer)
        # Keras stores the two layers under these prefixed names
        base_name = layer.name or fk.snake_case(type(layer).__name__)
        if backward_layer is None:
            backward = layer.replace(
                go_backwards=True, name=f"backward_{base_name.removeprefix('backward_')}"
            )
        else:
            _check_layer("backward_layer", backward_layer)
            backward = backward_layer
        forward = layer.replace(name=f"forward_{base_name.removeprefix('forward_')}")
        _check_pair(forward, backward)
        fields = {
            # weights of a built argument would be shared by both directions
            "forward_layer": _zero_masked(forward)._unbuilt(),
            "merge_mode": merge_mode,
            "weights": weights,
            "backward_layer": _zero_masked(backward)._unbuilt(),
            "name": name,
            "trainable": trainable,
            "dtype": dtype,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        # a dataclass with its own constructor must run the converters and checks itself
        self.__post_init__()

    @property
    def built(self) -> bool:
        return self.forward_layer.built and self.backward_layer.built

    @property
    def stateful(self) -> bool:
        return self.forward_layer.stateful

    @property
    def return_sequences(self) -> bool:
        return self.forward_layer.return_sequences

    @property
    def return_state(self) -> bool:
        return self.forward_layer.return_state

    @property
    def input_spec(self) -> fk.InputSpec | None:
        return self.forward_layer.input_spec

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        layers = {
            name: getattr(self, name).build(fk.subkey(key, name), x)
            for name in ("forward_layer", "backward_layer")
        }
        built = self.replace(**layers, weights=None, _built=True)
        if self.weights is None:
            return built
        # Keras's `weights` argument lists the forward layer's arrays first
        return built.set_weights([jnp.asarray(w) for w in self.weights])[0]

    def init_state(self, x: fk.SpecLike) -> dict[str, Any]:
        states = {
            "forward_layer": self.forward_layer.init_state(x),
            "backward_layer": self.backward_layer.init_state(x),
        }
        return states if any(states.values()) else {}

    def reset_state(self, state: fk.Tree) -> dict[str, Any]:
        """Returns the initial state: zeros of the same shapes as `state`."""
        return jax.tree.map(jnp.zeros_like, state)

    def forward(
        self, context: fk.Context, x: jax.Array, *, initial_state: fk.Tree = None
    ) -> fk.Output:
        # Keras's order of initial_state: first the forward layer's half, then the backward's
        forward_states, backward_states = self._halves(initial_state)
        mask = context.mask
        forward, backward = (
            context.child(name, mask=context.step_mask).run(getattr(self, name), x, **states)
            for name, states in (
                ("forward_layer", forward_states),
                ("backward_layer", backward_states),
            )
        )
        y, states = _split(forward.value, self.return_state)
        y_back, states_back = _split(backward.value, self.return_state)
        # the backward layer returns its outputs in the order of its steps, the last step first
        if self.return_sequences:
            y_back = jnp.flip(y_back, axis=1)
        # the two layers may have different dtype policies
        y, y_back = fk.cast_floats((y, y_back), self.policy.compute_dtype)
        merged = merge_directions(self.merge_mode, y, y_back)
        value = merged if self.merge_mode is None else (merged,)
        masks = (mask if self.return_sequences else None,) * len(value)
        if self.return_state:
            all_states = (*states, *states_back)
            value, masks = (
                (*value, *all_states),
                (*masks, *jax.tree.map(lambda _: None, all_states)),
            )
        elif self.merge_mode is not None:
            value, masks = merged, masks[0]
        updates = {}
        if forward.updates or backward.updates:
            # an update replaces the whole entry of a child: keep the state that did not change
            updates = {
                "forward_layer": context.state.get("forward_layer", {}) | forward.updates,
                "backward_layer": context.state.get("backward_layer", {}) | backward.updates,
            }
        return fk.Output(
            value,
            updates=updates,
            losses=(*forward.losses, *backward.losses),
            metrics={**forward.metrics, **backward.metrics},
            mask=masks,
        )

    def _halves(self, initial_state: fk.Tree) -> tuple[dict, dict]:
        if initial_state is None:
            return {}, {}
        if not isinstance(initial_state, list | tuple) or len(initial_state) % 2:
            received = len(initial_state) if isinstance(initial_state, list | tuple) else "one"
            raise ValueError(
                f"{self._where}: expected an even number of states in initial_state, the forward "
                f"layer's and then the backward layer's, received {received}. Pass one list with "
                "the states of both."
            )
        half = len(initial_state) // 2
        return (
            {"initial_state": list(initial_state[:half])},
            {"initial_state": list(initial_state[half:])},
        )

    def __repr__(self) -> str:
        return f"Bidirectional({self.forward_layer!r}, merge_mode={self.merge_mode!r})"

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": self.policy.name,
            "merge_mode": self.merge_mode,
            "layer": fk.serialize(self.forward_layer),
            "backward_layer": fk.serialize(self.backward_layer),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        fields = {**config, "dtype": policy_at(config.get("dtype"), config.get("name"))}
        return cls(**{key: fk.decode(value, custom_objects) for key, value in fields.items()})


def _split(value: fk.Field, has_state: bool) -> tuple[Any, tuple]:
    return (value[0], tuple(value[1:])) if has_state else (value, ())


def _check_layer(argument: str, layer: fk.Layer) -> None:
    check_not_keras(layer, f"Bidirectional: {argument}")
    needed = (*_SHARED, "go_backwards")
    missing = (
        [n for n in needed if not hasattr(layer, n)] if isinstance(layer, fk.Layer) else needed
    )
    if missing:
        received = layer._where if isinstance(layer, fk.Layer) else type(layer).__name__
        raise ValueError(
            f"Bidirectional: {argument}: expected a recurrent layer, received {received}, which has "
            f"no {', no '.join(missing)}. Wrap fk.layers.LSTM(8), GRU, SimpleRNN or RNN(cell)."
        )


def _check_pair(forward: fk.Tree, backward: fk.Tree) -> None:
    if forward.go_backwards == backward.go_backwards:
        raise ValueError(
            "Bidirectional: expected layers of opposite directions, received "
            f"go_backwards={forward.go_backwards} in both. Set "
            f"go_backwards={not forward.go_backwards} in backward_layer."
        )
    for name in _SHARED:
        forward_value, backward_value = getattr(forward, name), getattr(backward, name)
        if forward_value != backward_value:
            raise ValueError(
                f"Bidirectional: expected the same {name} in both layers, received {forward_value} in "
                f"layer and {backward_value} in backward_layer. Make them equal."
            )


def _zero_masked(layer: Any) -> Any:
    """Returns the layer with zeros at masked steps of a sequence, which merging relies on."""
    if not hasattr(layer, "zero_output_for_mask"):
        return layer
    return layer.replace(zero_output_for_mask=layer.return_sequences)

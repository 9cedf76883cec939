"""`RotaryEmbedding`: turns the channels of queries and keys by angles that grow with the position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.attention.positions import given_or_counted
from fkeras.layers.attention.rotary_scaling import Scaling
from fkeras.layers.common import authoring as fk
from fkeras.nn import rotary
from fkeras.nn.numerics.axes import format_shape


def _scaling(value: fk.Field) -> fk.Field:
    if value is not None and not isinstance(value, Scaling):
        raise fk.FKerasError(
            f"expected a scaling of fk.layers.rotary or None, received {fk.describe_value(value)}. Write "
            "fk.layers.rotary.Linear(8.0)."
        )
    return value


def _without_hub_keys(name: str, config: fk.Json) -> dict[str, Any]:
    """Returns the configuration of KerasHub's layer with its scaling as a value of `fk.layers.rotary`."""
    config = dict(config)
    names = ("beta_fast", "beta_slow", "original_max_position_embeddings", "truncate")
    numbers = {key: config.pop(key) for key in names if key in config}
    kind, denominator = config.pop("rope_type", "linear"), config.pop("denominator_dim", None)
    if kind not in ("linear", "yarn") or denominator is not None:
        raise ValueError(
            f"{name}.from_config: expected rope_type 'linear' or 'yarn' without denominator_dim, received "
            f"{kind!r} and {denominator!r}, for which this layer has no equal."
        )
    if kind == "yarn":
        factor = config.pop("scaling_factor", 1.0)
        config["scaling"] = {"module": "fkeras.layers.rotary", "class_name": "Yarn"}
        config["scaling"]["config"] = {"factor": factor, **numbers}
    return config


def text_lengths(positions: jax.Array) -> jax.Array:
    """Returns, for each position, the length of the text that determines the frequencies.

    A row with position 0 is a whole text: all tokens have its length. Other rows continue a text whose
    earlier tokens are in a cache. Their tokens count the tokens up to their own position, so that the
    results do not depend on the number of tokens in a call.
    """
    whole = jnp.any(positions == 0, axis=-1, keepdims=True)
    return jnp.where(whole, jnp.max(positions, axis=-1, keepdims=True), positions) + 1


class RotaryEmbedding(fk.Layer):
    """Turns pairs of channels by the position times the pair's frequency.

    Scores of a query and a key then depend on the difference of their positions. Angles, cosines and
    sines are float32 in every policy.

    Args:
        max_wavelength: wavelength of the slowest pair, divided by 2 pi; called theta or base elsewhere.
        scaling_factor: divisor of all positions; `fk.layers.rotary.Linear` is the same.
        sequence_axis: the axis of the tokens. This and all arguments below by keyword only.
        feature_axis: the axis of the channels.
        partial: share of the channels that turn: the first `int(d * partial)`.
        interleaved: whether pairs are adjacent channels, as in GPT-J and in GGUF files of Llama,
            instead of the two halves.
        scaling: a value of `fk.layers.rotary` for long texts, such as `Yarn(4.0, 32768)`; None for
            none. (KerasHub's layer has `rope_type` and one argument for each number instead.)

    Call:
        positions: integers (t,) or (b, t); None counts from `start_index`.
        start_index: the position of the first token, where no positions are given.

    Shapes:
        (b, t, ..., d) -> (b, t, ..., d), usually (b, t, h, d). A list, such as [query, key], gives a
        list.

    Raises:
        ValueError: for an odd number of channels that turn, or axes that the input does not have.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RotaryEmbedding(scaling=fk.layers.rotary.Llama3())
        >>> query, key = layer([jnp.ones((2, 5, 4, 8)), jnp.ones((2, 5, 2, 8))])
        >>> query.shape, key.shape
        ((2, 5, 4, 8), (2, 5, 2, 8))

    References:
        Su et al., RoFormer: enhanced transformer with rotary position embedding (2021),
        https://arxiv.org/abs/2104.09864
    """

    max_wavelength: fk.Real = fk.option(default=10000.0, convert=fk.real(above=0))
    scaling_factor: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))
    sequence_axis: fk.Integer = fk.option(default=1, convert=fk.integer(), kw_only=True)
    feature_axis: fk.Integer = fk.option(default=-1, convert=fk.integer(), kw_only=True)
    partial: fk.Real = fk.option(default=1.0, convert=fk.real(above=0, maximum=1), kw_only=True)
    interleaved: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)
    scaling: Scaling | None = fk.option(default=None, convert=_scaling, kw_only=True)

    supports_masking: ClassVar[bool] = True
    # with a cache, the angles of a token depend only on its position
    separate_positions: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.rotary_embedding"

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data; KerasHub reads them without own options."""
        config = super().get_config()
        own = {"partial": 1.0, "interleaved": False, "scaling": None}
        return {
            name: value for name, value in config.items() if name not in own or value != own[name]
        }

    @classmethod
    def from_config(
        cls, config: fk.Json, custom_objects: Mapping[str, Any] | None = None
    ) -> RotaryEmbedding:
        """Reads the configuration that `get_config` or KerasHub wrote."""
        return super().from_config(_without_hub_keys(cls.__name__, config), custom_objects)

    def forward(
        self,
        context: fk.Context,
        x: Any,
        positions: jax.Array | None = None,
        start_index: Any = 0,
    ) -> fk.Output:
        arrays = x if isinstance(x, list | tuple) else [x]
        turned = [self._turn(array, positions, start_index) for array in arrays]
        masks = context.mask if isinstance(context.mask, tuple) else (context.mask,)
        return fk.Output(turned if isinstance(x, list | tuple) else turned[0], mask=masks[0])

    def _turn(self, x: jax.Array, positions: Any, start_index: Any) -> jax.Array:
        axes = self._axes(x)
        x = jnp.moveaxis(x, axes, (1, -1)) if axes != (1, x.ndim - 1) else x
        positions = given_or_counted(self._where, x.shape[1], positions, start_index)
        size = int(x.shape[-1] * self.partial)
        if size % 2 or size == 0:
            raise fk.FKerasError(
                f"{self._where}: expected an even number of channels that turn, received {size} of "
                f"{x.shape[-1]} channels. Change the size of the heads, or partial={self.partial}."
            )
        frequencies = self._frequencies(size, positions)
        scale = 1.0 if self.scaling is None else self.scaling.scale
        y = rotary.rotate(x, positions, frequencies, scale, self.interleaved)
        return jnp.moveaxis(y, (1, -1), axes) if axes != (1, x.ndim - 1) else y

    def _frequencies(self, size: int, positions: jax.Array) -> jax.Array:
        if self.scaling is None:
            frequencies = rotary.inverse_frequencies(size, self.max_wavelength)
        elif not self.scaling.needs_length:
            frequencies = self.scaling.frequencies(size, self.max_wavelength, None)
        else:
            lengths = text_lengths(positions)
            frequencies = self.scaling.frequencies(size, self.max_wavelength, lengths.reshape(-1))
            frequencies = jnp.reshape(frequencies, (*lengths.shape, -1))
        return rotary.linear(frequencies, self.scaling_factor)

    def _axes(self, x: jax.Array) -> tuple[int, int]:
        axes = tuple(
            axis + x.ndim if axis < 0 else axis for axis in (self.sequence_axis, self.feature_axis)
        )
        if x.ndim < 3 or not all(0 < axis < x.ndim for axis in axes) or axes[0] == axes[1]:
            raise fk.FKerasError(
                f"{self._where}: expected an array (b, t, ..., d) with two different axes "
                f"sequence_axis={self.sequence_axis} and feature_axis={self.feature_axis} after the batch, "
                f"received {format_shape(x.shape)}."
            )
        return axes[0], axes[1]

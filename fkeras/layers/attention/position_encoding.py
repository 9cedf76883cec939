"""`SinePositionEncoding` and `PositionEmbedding`: a vector for each position, to add to token vectors."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.attention.positions import given_or_counted
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.embedding import embed
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.rotary import sinusoids


def _positions_of(where: str, x: jax.Array, positions: Any, start_index: Any) -> jax.Array:
    """Returns the positions (1 or b, t) of the tokens of an array (b, ..., t, d)."""
    if x.ndim < 3:
        raise fk.FKerasError(
            f"{where}: expected an array (b, t, d), received {format_shape(x.shape)}. Add the missing "
            "axis: x[None]."
        )
    positions = given_or_counted(where, x.shape[-2], positions, start_index)
    return positions[None] if positions.ndim == 1 else positions


def _spread(encodings: jax.Array, x: jax.Array) -> jax.Array:
    """Broadcasts vectors (1 or b, t, d) to the shape (b, ..., t, d) of `x`."""
    lead, *rest = encodings.shape
    return jnp.broadcast_to(jnp.reshape(encodings, (lead, *(1,) * (x.ndim - 3), *rest)), x.shape)


class SinePositionEncoding(fk.Layer):
    """Computes sines and cosines of the positions of the tokens: one vector for each token.

    Even channels are sines, odd channels cosines, of wavelengths from 2 pi to `2 pi *
    max_wavelength`. Add the result to the token vectors. (KerasHub's layer computes the angles in the
    compute dtype; here they are float32 in every policy.)

    Args:
        max_wavelength: the longest wavelength, divided by 2 pi.

    Call:
        start_index: the position of the first token, where no positions are given.
        positions: integers (t,) or (b, t); None counts from `start_index`.

    Shapes:
        (b, t, d) -> (b, t, d).

    Raises:
        ValueError: for an input without a time axis, and for positions of another shape.

    Example:
        >>> import numpy as np, fkeras as fk
        >>> y = fk.layers.SinePositionEncoding()(np.zeros((1, 2, 2), "float32"))
        >>> print(np.asarray(y[0]).round(2))
        [[0.   1.  ]
         [0.84 0.54]]

    References:
        Vaswani et al., Attention is all you need (2017), https://arxiv.org/abs/1706.03762
    """

    max_wavelength: fk.Real = fk.option(default=10000.0, convert=fk.real(above=0))

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.sine_position_encoding"

    def forward(
        self, context: fk.Context, x: jax.Array, positions: Any = None, start_index: Any = 0
    ) -> fk.Output:
        positions = _positions_of(self._where, x, positions, start_index)
        encodings = sinusoids(positions, x.shape[-1], self.max_wavelength)
        return fk.Output(_spread(encodings, x).astype(x.dtype), mask=context.input_masks(1)[0])


class PositionEmbedding(fk.Layer):
    """Looks up a learned vector for the position of each token. Add the result to the token vectors.

    Position -1 is padding and gives a vector of zeros. A compiled program gives NaN for a position
    beyond the table; a call on concrete positions raises an error.

    Args:
        sequence_length: number `s` of positions.
        initializer: draws the vectors.

    Call:
        start_index: the position of the first token, where no positions are given.
        positions: integers (t,) or (b, t), usually from `fk.layers.Positions`; None counts from
            `start_index`.

    Shapes:
        (b, t, d) -> (b, t, d); position_embeddings (s, d).

    Raises:
        ValueError: for an input without a time axis or with more tokens than positions, and for
            positions of another shape or beyond the table.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.PositionEmbedding(16).build(jax.random.key(0), (None, None, 4))
        >>> layer(jnp.zeros((2, 3, 4)), jnp.array([0, 1, -1]))[0, 2]
        Array([0., 0., 0., 0.], dtype=float32)
    """

    sequence_length: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)

    position_embeddings: jax.Array = fk.weight(axes="sd")

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.position_embedding"

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(output="...d")

    @property
    def position_embeddings_initializer(self) -> Any:
        """The initializer, under the name by which `with_weights` looks it up."""
        return self.initializer

    def build(self, key: jax.Array, x: fk.SpecLike, *more: fk.Tree) -> Self:
        if x.ndim < 3 or not isinstance(x.dims[-1], int):
            raise fk.FKerasError(
                f"{self._where}: expected an array (b, t, d) with a known size d, received "
                f"{format_shape(x.shape)}."
            )
        return self.with_weights(key, position_embeddings=(self.sequence_length, x.dims[-1]))

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; rejects concrete positions beyond the table."""
        positions = options.get("positions", inputs[1] if len(inputs) > 1 else None)
        if fk.is_array(positions) and not isinstance(positions, Tracer):
            last = int(np.max(np.asarray(positions), initial=-1))
            if last >= self.sequence_length:
                raise fk.FKerasError(
                    f"{self._where}: expected positions from 0 to {self.sequence_length - 1}, and -1 at "
                    f"padding, received {last}. Shorten the texts, or give the layer a larger "
                    "sequence_length."
                )
        return super().apply(*inputs, **options)

    def forward(
        self, context: fk.Context, x: jax.Array, positions: Any = None, start_index: Any = 0
    ) -> fk.Output:
        length = x.shape[-2] if x.ndim > 2 else 0
        if positions is None and isinstance(length, int) and isinstance(start_index, int):
            if start_index < 0 or start_index + length > self.sequence_length:
                raise fk.FKerasError(
                    f"{self._where}: expected tokens at positions from 0 to {self.sequence_length - 1}, "
                    f"received {length} tokens from position {start_index} on. Shorten the texts, or "
                    "give the layer a larger sequence_length."
                )
        if x.shape[-1] != self.position_embeddings.shape[-1]:
            raise fk.FKerasError(
                f"{self._where}: expected vectors of size {self.position_embeddings.shape[-1]}, received "
                f"{format_shape(x.shape)}."
            )
        steps = _positions_of(self._where, x, positions, start_index)
        encodings = embed(jnp.where(steps == -1, 0, steps), self.position_embeddings)
        encodings = jnp.where((steps == -1)[..., None], jnp.zeros_like(encodings), encodings)
        return fk.Output(_spread(encodings, x).astype(x.dtype), mask=context.input_masks(1)[0])

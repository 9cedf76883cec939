"""Spatial dropout: zeroes whole channels at random, with one draw for all positions."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes, Spatial
from fkeras.nn.noise import spatial_dropout


class _SpatialDropout(Spatial):
    """Zeroes whole channels in training; a subclass defines the number of spatial axes.

    Args of the family:
        rate: probability of dropping a channel, from 0 to 1.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.

    Raises of the family:
        ValueError: for a rate outside of [0, 1]; in training without a key.

    References of the family:
        Tompson et al., 2014, Efficient object localization using convolutional networks,
        https://arxiv.org/abs/1411.4280
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype")

    # subclasses declare `seed` and `data_format`, in Keras's order of arguments
    rate: fk.Real = fk.option(convert=fk.probability)

    supports_masking: ClassVar[bool] = True

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; `trainable` only if False, as Keras lacks it."""
        config = super().get_config()
        if self.trainable:
            del config["trainable"]
        return config

    def _drop(
        self,
        context: fk.Context,
        x: jax.Array,
        seed: int | None,
        data_format: str = "channels_last",
    ) -> fk.Output:
        if context.training and self.rate > 0:
            if not jnp.issubdtype(x.dtype, jnp.floating):
                # integers cannot hold multiples of `1 / (1 - rate)`
                x = x.astype(self.policy.compute_dtype)
            x = spatial_dropout(context.seeded_key(seed), x, self.rate, data_format)
        return fk.Output(x, mask=context.mask)


class _GridDropout(_SpatialDropout):
    """Zeroes whole channels of images or volumes in training."""

    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        return self._drop(context, x, self.seed, self.data_format)


class SpatialDropout1D(OverSequences, _SpatialDropout):
    """Zeroes whole channels of a sequence in training; identity in inference.

    The remaining channels are divided by `1 - rate`. Adjacent steps are correlated, so dropping
    single elements would remove little information. Training draws from the key of the call.

    Shapes:
        (b, t, c) -> (b, t, c).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SpatialDropout1D(0.5)
        >>> y = layer(jnp.ones((4, 5, 2)), training=True, key=jax.random.key(0))
        >>> bool((y == y[:, :1]).all()), sorted(set(y.ravel().tolist()))
        (True, [0.0, 2.0])
    """

    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        # Keras's SpatialDropout1D has no data_format
        return self._drop(context, x, self.seed)


class SpatialDropout2D(OverImages, _GridDropout):
    """Zeroes whole channels of an image in training; identity in inference.

    The remaining channels are divided by `1 - rate`. Adjacent pixels are correlated, so dropping
    single elements would remove little information. Training draws from the key of the call.

    Shapes:
        (b, h, w, c) -> (b, h, w, c).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SpatialDropout2D(0.5)
        >>> y = layer(jnp.ones((4, 5, 5, 2)), training=True, key=jax.random.key(0))
        >>> bool((y == y[:, :1, :1]).all())
        True
    """


class SpatialDropout3D(OverVolumes, _GridDropout):
    """Zeroes whole channels of a volume in training; identity in inference.

    The remaining channels are divided by `1 - rate`. Adjacent cells are correlated, so dropping
    single elements would remove little information. Training draws from the key of the call.

    Shapes:
        (b, h, w, d, c) -> (b, h, w, d, c).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SpatialDropout3D(0.5)
        >>> y = layer(jnp.ones((4, 2, 2, 2, 3)), training=True, key=jax.random.key(0))
        >>> bool((y == y[:, :1, :1, :1]).all())
        True
    """

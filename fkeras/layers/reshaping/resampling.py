"""Upsampling of sequences, images and volumes: `UpSampling1D` to `3D`."""

from __future__ import annotations

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes
from fkeras.nn.resampling import repeat, resize


class UpSampling1D(OverSequences):
    """Repeats each step of a sequence.

    Args:
        size: number of times that each step occurs in the output.

    Shapes:
        (b, t, c) -> (b, size * t, c).

    Raises:
        ValueError: where `size` is not a positive integer; for inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.UpSampling1D(2)(jnp.array([[[1.0], [2.0]]]))[0, :, 0]
        Array([1., 1., 2., 2.], dtype=float32)
    """

    # no `data_format`: Keras's UpSampling1D has no such argument
    size: fk.Integer = fk.option(default=2, convert=fk.integer(minimum=1))

    def call(self, x: jax.Array) -> jax.Array:
        return repeat(x, (self.size,))


class UpSampling2D(OverImages):
    """Enlarges an image by integer factors.

    Args:
        size: factors of height and width; one integer sets both.
        interpolation: "nearest" repeats cells; "bilinear", "bicubic", "lanczos3" and "lanczos5"
            interpolate between cells.

    Shapes:
        (b, h, w, c) -> (b, size[0] * h, size[1] * w, c).

    Raises:
        ValueError: where a size is not a positive integer, or the interpolation is unknown; for
            inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(2.0).reshape(1, 1, 2, 1)
        >>> fk.layers.UpSampling2D(2)(x)[0, :, :, 0]
        Array([[0., 0., 1., 1.],
               [0., 0., 1., 1.]], dtype=float32)
    """

    size: fk.Sizes = fk.option(default=2, convert=fk.sizes(2))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    interpolation: str = fk.option(
        default="nearest",
        convert=fk.choice("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"),
    )

    def call(self, x: jax.Array) -> jax.Array:
        # repetition is exact and keeps integers; the other methods compute means of cells
        if self.interpolation == "nearest":
            return repeat(x, self.size, self.data_format)
        x = x.astype(self.policy.compute_dtype)
        return resize(x, self.size, self.interpolation, self.data_format)


class UpSampling3D(OverVolumes):
    """Repeats each cell of a volume.

    Args:
        size: number of repetitions along each of the three axes; one integer sets all.

    Shapes:
        (b, d1, d2, d3, c) -> (b, size[0] * d1, size[1] * d2, size[2] * d3, c).

    Raises:
        ValueError: where a size is not a positive integer; for inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(2.0).reshape(1, 1, 1, 2, 1)
        >>> fk.layers.UpSampling3D((1, 2, 2))(x)[0, 0, :, :, 0]
        Array([[0., 0., 1., 1.],
               [0., 0., 1., 1.]], dtype=float32)
    """

    size: fk.Sizes = fk.option(default=2, convert=fk.sizes(3))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def call(self, x: jax.Array) -> jax.Array:
        return repeat(x, self.size, self.data_format)

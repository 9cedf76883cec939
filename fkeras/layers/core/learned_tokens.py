"""Learned vectors beside those of the input: `LearnedTokens`, `MaskedPatches`, `PatchSequence`."""

from __future__ import annotations

from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.image.cubic import cubic_weights


class LearnedTokens(fk.Layer):
    """Returns learned vectors, the same for each sample: class tokens, registers, probes.

    Concatenate the vectors with those of the input, or attend from them.

    Args:
        count: number `n` of vectors.
        tokens_initializer: draws the vectors.

    Shapes:
        (b, ..., d) -> (b, n, d); tokens (n, d).

    Raises:
        ValueError: where `count` is not a positive integer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LearnedTokens(1).build(jax.random.key(0), (None, 9, 4))
        >>> layer(jnp.ones((2, 9, 4))).shape
        (2, 1, 4)
    """

    count: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    tokens_initializer: fk.Initializer = fk.option(default="normal", convert=fk.initializer)

    tokens: jax.Array = fk.weight(axes="nd")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(output="...d")

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        return self.with_weights(key, tokens=(self.count, x.shape[-1]))

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        return fk.Output(jnp.broadcast_to(self.tokens, (x.shape[0], *self.tokens.shape)))


class MaskedPatches(fk.Layer):
    """Replaces masked patches of images by a learned vector, for training with masked images.

    Args:
        token_initializer: draws the vector.

    Call:
        masked: True for patches to replace, (b, ...); None to replace no patch.

    Shapes:
        (b, ..., d) -> (b, ..., d); token (d,).

    Raises:
        ValueError: for `masked` of another shape than that of the patches.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.MaskedPatches("zeros").build(jax.random.key(0), (None, 2, 3))
        >>> layer(jnp.ones((1, 2, 3)), jnp.array([[True, False]]))
        Array([[[0., 0., 0.],
                [1., 1., 1.]]], dtype=float32)

    References:
        Bao et al., 2022, BEiT: BERT pre-training of image transformers,
        https://arxiv.org/abs/2106.08254
    """

    token_initializer: fk.Initializer = fk.option(default="normal", convert=fk.initializer)

    token: jax.Array = fk.weight(axes="d")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(output="...d")

    def build(self, key: jax.Array, x: fk.SpecLike, masked: fk.SpecLike | None = None) -> Self:
        return self.with_weights(key, token=(x.shape[-1],))

    def call(self, x: jax.Array, masked: jax.Array | None = None) -> jax.Array:
        if masked is None:
            return x
        pairs = list(zip(masked.shape, x.shape[:-1], strict=False))
        differ = any(isinstance(n, int) and isinstance(m, int) and n != m for n, m in pairs)
        if masked.ndim != x.ndim - 1 or differ:
            raise ValueError(
                f"{self._where}: expected masked of shape {x.shape[:-1]}, one value for each patch, "
                f"received {masked.shape}."
            )
        for axis, (own, size) in enumerate(pairs):
            if own != size:  # of symbolic sizes JAX knows only that both are sizes
                masked = jnp.take(masked, jnp.arange(size), axis=axis, mode="clip")
        return jnp.where(masked.astype(bool)[..., None], self.token, x)


class PatchSequence(fk.Layer):
    """Flattens patches of images to a sequence, with class tokens before them and learned positions.

    The first step of a vision transformer. The table of positions is resized by cubic interpolation
    where images have another size than in training.

    Args:
        grid: rows and columns (h, w) of patches in training.
        prefix: number `n` of class tokens.
        antialias: whether a position of a smaller grid is a mean over all positions it replaces.
        tokens_initializer: draws the class tokens.
        embeddings_initializer: draws the positions.

    Shapes:
        (b, h2, w2, d) -> (b, n + h2 * w2, d); tokens (n, d) where n is not 0, embeddings
        (n + h * w, d).

    Raises:
        ValueError: where a size is not a positive integer, and for inputs without two grid axes.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.PatchSequence((4, 4), prefix=1)
        >>> layer = layer.build(jax.random.key(0), (None, 4, 4, 8))
        >>> layer(jnp.ones((2, 6, 3, 8))).shape
        (2, 19, 8)

    References:
        Dosovitskiy et al., 2021, An image is worth 16x16 words, https://arxiv.org/abs/2010.11929
    """

    grid: fk.Sizes = fk.option(convert=fk.sizes(2))
    prefix: fk.Integer = fk.option(default=0, convert=fk.integer(minimum=0))
    antialias: bool = fk.option(default=False, convert=fk.boolean)
    tokens_initializer: fk.Initializer = fk.option(default="normal", convert=fk.initializer)
    embeddings_initializer: fk.Initializer = fk.option(default="normal", convert=fk.initializer)

    tokens: jax.Array | None = fk.weight(axes="nd")
    embeddings: jax.Array = fk.weight(axes="_d")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(output="...d")

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(ndim=4)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        rows, columns = self.grid
        width = x.shape[-1]
        tokens = (self.prefix, width) if self.prefix else None
        table = (self.prefix + rows * columns, width)
        return self.with_weights(key, tokens=tokens, embeddings=table)

    def call(self, x: jax.Array) -> jax.Array:
        prefix, patches = self.embeddings[: self.prefix], self.embeddings[self.prefix :]
        patches = jnp.reshape(patches, (*self.grid, x.shape[-1]))
        # `int`: a symbolic size raises an error here, and the engine then infers with numbers
        sizes = tuple(int(size) for size in x.shape[1:3])
        if sizes != self.grid:
            rows, columns = (
                jnp.asarray(cubic_weights(old, new, self.antialias), x.dtype)
                for old, new in zip(self.grid, sizes, strict=True)
            )
            # highest precision: a table is small, and errors of all positions add up in the blocks
            patches = jnp.einsum("oh,pw,hwd->opd", rows, columns, patches, precision="highest")
        y = jnp.reshape(x + patches[None], (x.shape[0], -1, x.shape[-1]))
        if self.tokens is None:
            return y
        tokens = self.tokens + prefix
        return jnp.concatenate([jnp.broadcast_to(tokens, (x.shape[0], *tokens.shape)), y], axis=1)

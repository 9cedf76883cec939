"""`AugMix`: mixtures of several augmentation chains."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range
from fkeras.layers.image.common.values import check_amounts, value_range
from fkeras.layers.image.mixing.operations import Operations, draw_all, operations
from fkeras.nn.image.layout import image_axes

_NAMES = (
    "random_shear",
    "random_translation",
    "random_rotation",
    "random_posterization",
    "solarization",
    "auto_contrast",
    "equalization",
)
_MORE_NAMES = (
    "random_brightness",
    "random_color_degeneration",
    "random_contrast",
    "random_sharpness",
)


class AugMix(RandomImageLayer):
    """Mixes images with the results of random chains of operations, in training only.

    `num_chains` chains of up to `chain_depth` operations start from the images. The layer mixes
    their results by random weights, and this mixture with the images. Operations and weights are
    drawn once for a batch, the strengths of operations for each image. (Keras draws the operations
    outside of the compiled program, so under `jit` they never change.)

    Labels and bounding boxes are unchanged. Segmentation masks are mixed like images.

    Args:
        num_chains: number of chains.
        chain_depth: number of draws in a chain; a draw may select no operation.
        factor: strength: two numbers from 0 to 1 between which each operation draws, or one number
            f for (0, f).
        alpha: parameter of the Dirichlet distribution of the chain weights, and both parameters of
            the Beta distribution of the images' weight; above 0.
        all_ops: whether to include brightness, colour degeneration, contrast and sharpness, in
            addition to shear, translation, rotation, posterization, solarization, auto contrast
            and equalization.
        interpolation: interpolation of geometric operations: "nearest" or "bilinear".

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b; or one channel.

    Raises:
        ValueError: for factors outside of [0, 1], and for integer masks of class ids; in training
            without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.AugMix(num_chains=1, chain_depth=1, all_ops=False)
        >>> x = jnp.arange(32.0).reshape(2, 4, 4, 1)
        >>> layer.apply(x, training=True, key=jax.random.key(0)).value.shape
        (2, 4, 4, 1)

    References:
        Hendrycks et al., 2019, AugMix: A Simple Data Processing Method to Improve Robustness and
        Uncertainty, https://arxiv.org/abs/1912.02781
    """

    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    num_chains: fk.Integer = fk.option(default=3, convert=fk.integer(minimum=1))
    chain_depth: fk.Integer = fk.option(default=3, convert=fk.integer(minimum=1))
    factor: fk.Range = fk.option(default=0.3, convert=factor_range(0, 1))
    alpha: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))
    all_ops: bool = fk.option(default=True, convert=fk.boolean)
    interpolation: str = fk.option(default="bilinear", convert=fk.choice("nearest", "bilinear"))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def operations(self) -> Operations:
        """Returns the layers to choose from, by name, in the order of `chain_operations`."""
        return operations(self, _NAMES + _MORE_NAMES if self.all_ops else _NAMES)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws the weights, the operation at each position of each chain, and their strengths.

        "chain_mixing_weights" has the shape (num_chains,), "weight_sample" (), "chain_operations"
        (num_chains, chain_depth), where the number of operations means no operation.
        "chain_transforms" has the draws of each operation, with these two leading axes.
        """
        mixture_key, weight_key, operation_key, strength_key = jax.random.split(key, 4)
        named_layers, chain_shape = self.operations(), (self.num_chains, self.chain_depth)
        concentration = jnp.full((self.num_chains,), self.alpha, "float32")
        return {
            "chain_mixing_weights": jax.random.dirichlet(mixture_key, concentration),
            "weight_sample": jax.random.beta(weight_key, self.alpha, self.alpha, (), "float32"),
            "chain_operations": jax.random.randint(
                operation_key, chain_shape, 0, len(named_layers) + 1
            ),
            "chain_transforms": jax.vmap(jax.vmap(lambda k: draw_all(named_layers, k, shape)))(
                jax.random.split(strength_key, chain_shape)
            ),
        }

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        mixture = self._mixture(images, transformation, "transform_images")
        return jnp.clip(mixture, *self.value_range)

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: fk.Tree
    ) -> jax.Array:
        masks = segmentation_masks
        if not jnp.issubdtype(masks.dtype, jnp.floating):
            axis = image_axes(masks.ndim, self.data_format)[2]
            check_amounts(self._where, "segmentation_masks", masks, axis)
            # a mixture of integer masks has fractions
            masks = masks.astype("float32")
        return self._mixture(masks, transformation, "transform_segmentation_masks")

    def _mixture(self, values: jax.Array, transformation: fk.Tree, hook: str) -> jax.Array:
        branches = [
            _branch(getattr(operation, hook), name) for name, operation in self.operations()
        ]
        branches.append(lambda values, draws: values)

        # scan and switch compile each operation once, not once per position
        def step(values: jax.Array, chain_step: tuple) -> tuple[jax.Array, None]:
            index, draws = chain_step
            return jax.lax.switch(index, branches, values, draws), None

        def chain(total: jax.Array, chain_values: tuple) -> tuple[jax.Array, None]:
            weight, indices, draws = chain_values
            end, _ = jax.lax.scan(step, values, (indices, draws))
            return total + weight.astype(values.dtype) * end, None

        names = "chain_mixing_weights", "chain_operations", "chain_transforms"
        chain_values = tuple(transformation[name] for name in names)
        mixture, _ = jax.lax.scan(chain, jnp.zeros_like(values), chain_values)
        original_weight = transformation["weight_sample"].astype(values.dtype)
        return original_weight * values + (1 - original_weight) * mixture


def _branch(hook: Callable, name: str) -> Callable:
    # the branches of a switch must agree in dtype
    return lambda values, draws: hook(values, draws[name]).astype(values.dtype)

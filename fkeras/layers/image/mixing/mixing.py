"""`MixUp` and `CutMix`: mixtures of images and labels with others of the batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range, uniform
from fkeras.layers.image.common.patches import patches
from fkeras.layers.image.common.values import mixed
from fkeras.nn.image.layout import image_axes

# smallest parameter of CutMix's Beta distribution
_EPSILON = 1e-6


def _permutation(key: jax.Array, count: int) -> jax.Array:
    # jax.random.permutation needs a static size; the size is symbolic while a graph is recorded
    return jnp.argsort(jax.random.uniform(key, (count,))).astype("int32")


class MixUp(RandomImageLayer):
    """Mixes each image with another image of its batch in training; changes nothing in inference.

    Images, labels and segmentation masks become `weight * own + (1 - weight) * other`, and the
    bounding boxes of both images are kept. Each image draws its weight from a Beta distribution.

    Args:
        alpha: both parameters of the Beta distribution: 0 for weights of 1, 1 for uniform weights.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b. Labels of any shape (b, ...): floating,
        or one-hot. Boxes (b, n, 4) -> (b, 2n, 4).

    Raises:
        ValueError: for integer labels and masks of class ids; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> data = {"images": jnp.ones((2, 4, 4, 1)), "labels": jnp.eye(2)}
        >>> out = fk.layers.MixUp(1.0)(data, training=True, key=jax.random.key(0))
        >>> out["labels"].sum(axis=1)
        Array([1., 1.], dtype=float32)

    References:
        Zhang et al., 2017, mixup: Beyond Empirical Risk Minimization,
        https://arxiv.org/abs/1710.09412
    """

    alpha: fk.Real = fk.option(default=0.2, convert=fk.real(minimum=0))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"mix_weight": (b,), "permutation_order": (b,)}: weights, and the other images."""
        weight, order = jax.random.split(key)
        weights = jnp.ones((shape.batch,), "float32")
        # Beta(0, 0) is not defined; 0 means no mixing
        if self.alpha > 0:
            weights = jax.random.beta(weight, self.alpha, self.alpha, (shape.batch,), "float32")
        return {"mix_weight": weights, "permutation_order": _permutation(order, shape.batch)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        return self._mixed("images", images, transformation, -1)

    def transform_labels(self, labels: jax.Array, transformation: fk.Tree) -> jax.Array:
        return self._mixed("labels", labels, transformation, -1)

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: fk.Tree
    ) -> jax.Array:
        # the class axis of masks is the channel axis
        axis = image_axes(4, self.data_format)[2]
        return self._mixed("segmentation_masks", segmentation_masks, transformation, axis)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        order = transformation["permutation_order"]
        return jax.tree.map(
            lambda array: jnp.concatenate((array, jnp.take(array, order, axis=0)), axis=1),
            bounding_boxes,
        )

    def _mixed(self, name: str, values: jax.Array, transformation: fk.Tree, axis: int) -> jax.Array:
        order, weight = transformation["permutation_order"], transformation["mix_weight"]
        return mixed(self._where, name, values, order, weight, axis)


class CutMix(RandomImageLayer):
    """Pastes a rectangle of another image of the batch in training; changes nothing in inference.

    The rectangle has the same position in both images. Labels become
    `weight * own + (1 - weight) * other`, where the weight is the fraction of unchanged pixels;
    segmentation masks are pasted like images.

    Args:
        factor: both parameters of the Beta distribution of the rectangle's area: two numbers from
            0 to 1 between which each image draws, or one number f for (0, f).
        bounding_box_format: format of the boxes; this layer rejects boxes.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b. Labels of any shape (b, ...): floating,
        or one-hot.

    Raises:
        ValueError: for factors outside of [0, 1], integer labels of class ids, and bounding boxes;
            in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> images = jnp.broadcast_to(jnp.arange(2.0).reshape(2, 1, 1, 1), (2, 4, 4, 1))
        >>> data = {"images": images, "labels": jnp.eye(2)}
        >>> out = fk.layers.CutMix()(data, training=True, key=jax.random.key(1))
        >>> bool((out["images"].mean(axis=(1, 2, 3)) == out["labels"][:, 1]).all())
        True

    References:
        Yun et al., 2019, CutMix: Regularization Strategy to Train Strong Classifiers with
        Localizable Features, https://arxiv.org/abs/1905.04899
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"permutation_order": (b,), "batch_masks": (b, h, w, 1), "mix_weight": (b,)}."""
        alpha, weight, position_key, order = jax.random.split(key, 4)
        # both parameters of a Beta distribution must be positive
        alpha = uniform(alpha, (shape.batch,), self.factor) + _EPSILON
        side = jnp.sqrt(1 - jax.random.beta(weight, alpha, alpha, (shape.batch,), "float32"))
        masks = patches(position_key, shape, side, side, self.data_format)
        return {
            "permutation_order": _permutation(order, shape.batch),
            "batch_masks": masks,
            # counted, not drawn: whole pixels round the area of the rectangle
            "mix_weight": 1 - jnp.mean(masks.astype("float32"), axis=(1, 2, 3)),
        }

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        others = jnp.take(images, transformation["permutation_order"], axis=0)
        return jnp.where(transformation["batch_masks"], others, images)

    def transform_labels(self, labels: jax.Array, transformation: fk.Tree) -> jax.Array:
        order, weight = transformation["permutation_order"], transformation["mix_weight"]
        return mixed(self._where, "labels", labels, order, weight)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        raise ValueError(
            f"{self._where}: expected only images and labels, also received 'bounding_boxes'. A "
            "pasted rectangle may cut objects: leave the boxes out, or use MixUp, which keeps all "
            "boxes."
        )

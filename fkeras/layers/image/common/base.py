"""`ImageLayer` and `RandomImageLayer`: base classes of image layers.

The input is an array of images, (b, h, w, c) or one image (h, w, c), or a dictionary with more
entries:

- "images": as above, required;
- "labels": (b, ...), of any dtype;
- "bounding_boxes": {"boxes": (b, n, 4), "labels": (b, n) or (b, n, k)};
- "segmentation_masks": (b, h, w, k), of any dtype.

The output has the same form. Other entries pass through; missing entries cost nothing. The base
class adds a batch axis to single images and removes the axis afterwards, so the hooks below always
see batches. Images are cast to the compute dtype first (a class with `casts_images = False`
keeps integer images), boxes to float32; labels and masks keep their dtype.

A layer overrides the hooks of the entries that it changes; a hook receives a whole batch, and
returns it unchanged by default:

    transform_images(images, transformation) -> images
    transform_labels(labels, transformation) -> labels
    transform_bounding_boxes(bounding_boxes, transformation, shape) -> bounding_boxes
    transform_segmentation_masks(segmentation_masks, transformation) -> segmentation_masks

An `ImageLayer` draws nothing: its hooks run in training and inference alike, with None as the
transformation. A `RandomImageLayer` draws first, in training only; inference casts the images and
changes nothing more, and needs no key:

    draw(key, shape) -> transformation

The transformation is a pytree of arrays, with the batch as the first axis wherever one image
differs from another; `shape` is the `ImageShape` of the images. Every hook is given the same
transformation, so images, boxes and masks move together; a layer that mixes images of a batch puts
the permutation there. The hooks are plain functions of arrays: a layer made of image layers calls
`child.draw(key, shape)` and `child.transform_images(images, transformation)` of each.

A concrete class declares the field `data_format` at the place that it has in Keras's constructor,
with `data_format_name` as its converter, and a random one the field `seed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import choice
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.nn.image.boxes import FORMATS
from fkeras.nn.numerics.axes import format_shape

_ENTRIES = ("images", "labels", "bounding_boxes", "segmentation_masks")


class ImageShape(NamedTuple):
    """The sizes of a batch of images, wherever the channels lie.

    Example:
        >>> ImageShape(8, 32, 32, 3).height
        32
    """

    batch: int
    height: int
    width: int
    channels: int


_box_format = choice(*FORMATS, optional=True)


class ImageLayer(Layer):
    """Base class of layers that change images with their labels, boxes and masks.

    Args:
        bounding_box_format: how boxes are written, for example "xyxy"; needed only where boxes
            are given to a layer that moves them.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> from fkeras.layers.image.common.base import ImageLayer
        >>> class Negative(ImageLayer):
        ...     def transform_images(self, images, transformation):
        ...         return 255.0 - images
        >>> out = Negative()({"images": jnp.zeros((2, 2, 1), "uint8"), "labels": jnp.array(3)})
        >>> float(out["images"].max()), int(out["labels"])
        (255.0, 3)
    """

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("data",), training_default=True)

    bounding_box_format: str | None = option(default=None, convert=_box_format, kw_only=True)

    # boxes of hundreds of pixels and ids of masks do not survive a cast to half precision
    autocast: ClassVar[bool] = False
    #: whether integer images become floating before the hooks
    casts_images: ClassVar[bool] = True
    # where the channels are: a field of the concrete classes. An annotation here would fix the
    # field's place among their arguments
    data_format = "channels_last"

    # -- what authors write -------------------------------------------------------------------

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        """The new images (b, h2, w2, c2) for images (b, h, w, c), or with the channels first."""
        return images

    def transform_labels(self, labels: jax.Array, transformation: Any) -> jax.Array:
        """The new labels of the images."""
        return labels

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: Any, shape: ImageShape
    ) -> dict[str, jax.Array]:
        """The new {"boxes": (b, n, 4), "labels": ...}; `shape` is that of the given images."""
        return bounding_boxes

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: Any
    ) -> jax.Array:
        """The new masks, whose values are ids and must not be blended."""
        return segmentation_masks

    # -- calls --------------------------------------------------------------------------------

    def forward(self, context: Context, data: Any) -> Output:
        return Output(self._transformed(data, lambda shape: (True, None)))

    def image_shape(self, images: jax.Array) -> ImageShape:
        """The sizes of a batch of images of this layer's data format."""
        if self.data_format == "channels_first":
            b, c, h, w = images.shape
        else:
            b, h, w, c = images.shape
        return ImageShape(b, h, w, c)

    def box_format(self) -> str:
        """Returns the format of the boxes.

        Raises:
            ValueError: for a layer without `bounding_box_format`.
        """
        if self.bounding_box_format is None:
            raise ValueError(
                f"{self.where}: expected a bounding_box_format, received 'bounding_boxes' without "
                "this argument. Write bounding_box_format='xyxy', or the format of your boxes, in "
                "the layer's constructor."
            )
        return self.bounding_box_format

    def _transformed(self, data: Any, draw: Any) -> Any:
        entries = dict(data) if isinstance(data, Mapping) else {"images": data}
        single = self._is_single(entries)
        given = {name: entries[name] for name in _ENTRIES if entries.get(name) is not None}
        if single:
            # hooks see batches only
            given = jax.tree.map(lambda x: jnp.asarray(x)[None], given)
        images = given["images"] = self._cast(jnp.asarray(given["images"]))
        shape = self.image_shape(images)
        change, transformation = draw(shape)
        self._check_masks(given.get("segmentation_masks"), images)
        if "bounding_boxes" in given:
            given["bounding_boxes"] = self._checked_boxes(given["bounding_boxes"])
        if change:
            given["images"] = self.transform_images(images, transformation)
            for name, hook, extra in (
                ("labels", self.transform_labels, ()),
                ("bounding_boxes", self.transform_bounding_boxes, (shape,)),
                ("segmentation_masks", self.transform_segmentation_masks, ()),
            ):
                if name in given:
                    given[name] = hook(given[name], transformation, *extra)
        if single:
            given = jax.tree.map(lambda x: x[0], given)
        return {**entries, **given} if isinstance(data, Mapping) else given["images"]

    def _cast(self, images: jax.Array) -> jax.Array:
        floating = jnp.issubdtype(images.dtype, jnp.floating)
        if floating or self.casts_images:
            return images.astype(self.policy.compute_dtype)
        return images

    def _is_single(self, entries: Mapping[str, Any]) -> bool:
        images = entries.get("images")
        if images is None:
            raise ValueError(
                f"{self.where}: expected a dictionary with 'images', received the keys "
                f"{sorted(entries)}. Give the images by that name: the size of all else is theirs."
            )
        shape = jnp.shape(images)
        if len(shape) not in (3, 4):
            order = "c, h, w" if self.data_format == "channels_first" else "h, w, c"
            raise ValueError(
                f"{self.where}: expected images of shape (b, {order}), or one image ({order}), "
                f"received {format_shape(shape)}. Grey images have a channel axis of size 1."
            )
        return len(shape) == 3

    def _check_masks(self, masks: Any, images: jax.Array) -> None:
        if masks is not None and jnp.ndim(masks) != images.ndim:
            raise ValueError(
                f"{self.where}: expected segmentation_masks with as many axes as the images, "
                f"received {format_shape(jnp.shape(masks))} beside {format_shape(images.shape)}. "
                "Masks of one id a pixel have a channel axis of size 1."
            )

    def _checked_boxes(self, value: Any) -> dict[str, jax.Array]:
        good = isinstance(value, Mapping) and "boxes" in value and "labels" in value
        boxes = jnp.asarray(value["boxes"]) if good else None
        if boxes is None or boxes.ndim != 3 or boxes.shape[-1] != 4:
            found = repr(type(value))
            if boxes is not None:
                found = f"boxes of shape {format_shape(boxes.shape)}"
            raise ValueError(
                f"{self.where}: expected bounding_boxes={{'boxes': (b, n, 4), 'labels': (b, n)}}, "
                f"without b for one image, received {found}. Fill up images with fewer boxes by "
                "boxes of zeros with the label -1."
            )
        return {**value, "boxes": boxes.astype(jnp.float32), "labels": jnp.asarray(value["labels"])}


class RandomImageLayer(ImageLayer):
    """Changes images at random in training, and leaves them as they are in inference.

    A subclass declares the field `seed`, draws in `draw` and transforms in the hooks of
    `ImageLayer`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras.layers.image.common.base import RandomImageLayer
        >>> class Noise(RandomImageLayer):
        ...     def draw(self, key, shape):
        ...         return jax.random.normal(key, shape)
        ...     def transform_images(self, images, transformation):
        ...         return images + transformation
        >>> x = jnp.zeros((2, 4, 4, 1))
        >>> bool((Noise()(x) == x).all())
        True
        >>> bool((Noise()(x, training=True, key=jax.random.key(0)) == x).any())
        False
    """

    # folded into the key of each call: a field of the concrete classes
    seed = None

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """The random transformation of a batch: a pytree of arrays."""
        raise NotImplementedError(
            f"{self.where}: has no `draw`. Write `def draw(self, key, shape): ...`, which returns "
            "the arrays that the hooks use."
        )

    def forward(self, context: Context, data: Any) -> Output:
        # inference still casts the images, so that both modes return one dtype
        if not context.training:
            return Output(self._transformed(data, lambda shape: (False, None)))
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        return Output(self._transformed(data, lambda shape: (True, self.draw(key, shape))))

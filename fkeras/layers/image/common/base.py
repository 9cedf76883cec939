"""`ImageLayer` and `RandomImageLayer`: base classes of image layers.

The input is an array of images, (b, h, w, c), a single image (h, w, c), or a dictionary with
further entries:

- "images": as above, required;
- "labels": (b, ...), of any dtype;
- "bounding_boxes": {"boxes": (b, n, 4), "labels": (b, n) or (b, n, k)};
- "segmentation_masks": (b, h, w, k), of any dtype.

The output has the same form. Other entries pass through, and missing entries cost nothing. The base
class adds a batch axis to single images and removes the axis afterwards, so hooks always receive
batches. Images are first cast to the compute dtype (a class with `casts_images = False` keeps
integer images), and boxes to float32; labels and masks keep their dtype.

A layer overrides the hooks of the entries that it changes. A hook receives a whole batch; the
default returns the batch unchanged:

    transform_images(images, transformation) -> images
    transform_labels(labels, transformation) -> labels
    transform_bounding_boxes(bounding_boxes, transformation, shape) -> bounding_boxes
    transform_segmentation_masks(segmentation_masks, transformation) -> segmentation_masks
    moved(images_or_masks, transformation, interpolation) -> images_or_masks

An `ImageLayer` draws nothing: its hooks run in training and in inference, with the transformation
None. A `RandomImageLayer` first draws a transformation, in training only. In inference it only
casts the images, and needs no key:

    draw(key, shape) -> transformation

The transformation is a pytree of arrays. Arrays that differ between images have the batch as their
first axis. `shape` is the `ImageShape` of the images. All hooks receive the same transformation, so
images, boxes and masks change consistently; a layer that mixes the images of a batch puts the
permutation into the transformation. Hooks are plain functions of arrays: a layer composed of image
layers calls `child.draw(key, shape)` and `child.transform_images(images, transformation)`.

A concrete class declares the field `data_format` at its position in Keras's constructor, with the
converter `data_format_name`; a random layer also declares the field `seed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.image.boxes import FORMATS
from fkeras.nn.numerics.axes import format_shape

_ENTRIES = ("images", "labels", "bounding_boxes", "segmentation_masks")


class ImageShape(NamedTuple):
    """Sizes of a batch of images, independent of the data format."""

    batch: int
    height: int
    width: int
    channels: int


_box_format = fk.choice(*FORMATS, optional=True)


class ImageLayer(fk.Layer):
    """Base class of layers that transform images with their labels, boxes and masks.

    Args of the family:
        value_range: (lowest, highest) value of a pixel; results are clipped to this range.
        fill_mode: values outside the image: "reflect" (b a | a b c | c b), "wrap"
            (b c | a b c | a b), "nearest" (a a | a b c | c c) or "constant" (k k | a b c | k k).
        interpolation: "bilinear" or "nearest".
        fill_value: the k of "constant".
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        data_format: "channels_last" (also None) or "channels_first".
        bounding_box_format: format of the boxes, for example "xyxy"; required only if a layer that
            moves boxes receives boxes. Layers that change only colors leave boxes unchanged.

    Shapes of the family:
        (b, h, w, c) -> (b, h, w, c), the same without b.

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

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(input_names=("data",), training_default=True)

    bounding_box_format: str | None = fk.option(default=None, convert=_box_format, kw_only=True)

    # boxes of hundreds of pixels and mask ids lose precision in half precision
    _autocast: ClassVar[bool] = False
    #: whether integer images are cast to floating before the hooks
    casts_images: ClassVar[bool] = True
    # default of a field of the concrete classes. A type annotation here would make it a field of
    # this class, and fix its position among their constructor arguments
    data_format = "channels_last"

    # Hooks for subclasses

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        """Returns the new images (b, h2, w2, c2), or with the channels first."""
        return self.moved(images, transformation, getattr(self, "interpolation", "bilinear"))

    def transform_labels(self, labels: jax.Array, transformation: fk.Tree) -> jax.Array:
        """Returns the new labels of the images."""
        return labels

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        """Returns the new {"boxes": (b, n, 4), "labels": ...}; `shape` is that of the input."""
        return bounding_boxes

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: fk.Tree
    ) -> jax.Array:
        """Returns the new masks; an override must not blend their values, which are ids."""
        return self.moved(segmentation_masks, transformation, "nearest")

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        """Moves the pixels of images or masks, for layers that move both alike."""
        return images

    def forward(self, context: fk.Context, data: fk.Tree) -> fk.Output:
        return fk.Output(self._transformed(data, lambda shape: (True, None)))

    def image_shape(self, images: jax.Array) -> ImageShape:
        """Returns the sizes of a batch of images in this layer's data format."""
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
                f"{self._where}: expected a bounding_box_format, received 'bounding_boxes' without "
                "this argument. Write bounding_box_format='xyxy', or the format of your boxes, in "
                "the layer's constructor."
            )
        return self.bounding_box_format

    def _transformed(self, data: fk.Tree, draw: Callable) -> fk.Tree:
        entries = dict(data) if isinstance(data, Mapping) else {"images": data}
        is_single = self._is_single(entries)
        values = {name: entries[name] for name in _ENTRIES if entries.get(name) is not None}
        if is_single:
            # hooks receive only batches
            values = jax.tree.map(lambda x: jnp.asarray(x)[None], values)
        images = values["images"] = self._cast(jnp.asarray(values["images"]))
        shape = self.image_shape(images)
        change, transformation = draw(shape)
        self._check_masks(values.get("segmentation_masks"), images)
        if "bounding_boxes" in values:
            values["bounding_boxes"] = self._checked_boxes(values["bounding_boxes"])
        if change:
            values["images"] = self.transform_images(images, transformation)
            for name, hook, extra in (
                ("labels", self.transform_labels, ()),
                # boxes need the shape before the transformation: their format may be relative to it
                ("bounding_boxes", self.transform_bounding_boxes, (shape,)),
                ("segmentation_masks", self.transform_segmentation_masks, ()),
            ):
                if name in values:
                    values[name] = hook(values[name], transformation, *extra)
        if is_single:
            values = jax.tree.map(lambda x: x[0], values)
        return {**entries, **values} if isinstance(data, Mapping) else values["images"]

    def _cast(self, images: jax.Array) -> jax.Array:
        floating = jnp.issubdtype(images.dtype, jnp.floating)
        if floating or self.casts_images:
            return images.astype(self.policy.compute_dtype)
        return images

    def _is_single(self, entries: Mapping[str, Any]) -> bool:
        images = entries.get("images")
        if images is None:
            raise ValueError(
                f"{self._where}: expected a dictionary with 'images', received the keys "
                f"{sorted(entries)}. Pass the images under the key 'images': they determine the "
                "sizes of the other entries."
            )
        shape = jnp.shape(images)
        if len(shape) not in (3, 4):
            order = "c, h, w" if self.data_format == "channels_first" else "h, w, c"
            raise ValueError(
                f"{self._where}: expected images of shape (b, {order}), or one image ({order}), "
                f"received {format_shape(shape)}. Grey images have a channel axis of size 1."
            )
        return len(shape) == 3

    def _check_masks(self, masks: fk.Tree, images: jax.Array) -> None:
        if masks is not None and jnp.ndim(masks) != images.ndim:
            raise ValueError(
                f"{self._where}: expected segmentation_masks with as many axes as the images, "
                f"received {format_shape(jnp.shape(masks))} beside {format_shape(images.shape)}. "
                "Masks with one id per pixel need a channel axis of size 1."
            )

    def _checked_boxes(self, value: fk.Field) -> dict[str, jax.Array]:
        is_complete = isinstance(value, Mapping) and "boxes" in value and "labels" in value
        boxes = jnp.asarray(value["boxes"]) if is_complete else None
        if boxes is None or boxes.ndim != 3 or boxes.shape[-1] != 4:
            received = repr(type(value))
            if boxes is not None:
                received = f"boxes of shape {format_shape(boxes.shape)}"
            raise ValueError(
                f"{self._where}: expected bounding_boxes={{'boxes': (b, n, 4), 'labels': (b, n)}}, "
                f"without b for one image, received {received}. Pad images with fewer boxes by "
                "boxes of zeros with the label -1."
            )
        # float32 also for relative formats: half precision has 11 bits, too few for pixels
        return {**value, "boxes": boxes.astype(jnp.float32), "labels": jnp.asarray(value["labels"])}


class RandomImageLayer(ImageLayer):
    """Transforms images at random in training, and leaves them unchanged in inference.

    A subclass declares the field `seed`, overrides `draw`, and applies the draw in the hooks of
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

    # default of a field of the concrete classes
    seed = None

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Returns the random transformation of a batch: a pytree of arrays."""
        raise NotImplementedError(
            f"{self._where}: has no `draw`. Write `def draw(self, key, shape): ...`, which returns "
            "the arrays that the hooks use."
        )

    def forward(self, context: fk.Context, data: fk.Tree) -> fk.Output:
        # inference still casts the images, so that both modes return one dtype
        if not context.training:
            return fk.Output(self._transformed(data, lambda shape: (False, None)))
        key = context.seeded_key(self.seed)
        return fk.Output(self._transformed(data, lambda shape: (True, self.draw(key, shape))))

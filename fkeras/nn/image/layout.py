"""Layouts of images: conversion of data formats, of single images and of batches."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fkeras.nn.numerics.array_types import Numbers


def data_format_of(data_format: str | None) -> str:
    """Checks a data format; None means "channels_last".

    Args:
        data_format: "channels_last", "channels_first" or None.

    Raises:
        ValueError: for another string.
    """
    if data_format is None:
        return "channels_last"
    return one_of("data_format", data_format, "channels_last", "channels_first")


def one_of(argument: str, value: object, *words: str) -> str:
    """Checks that a value is one of the accepted strings, and returns it.

    Raises:
        ValueError: if the value is not an accepted string.
    """
    if value not in words:
        raise ValueError(
            f"{argument}: expected {' or '.join(map(repr, words))}, received {value!r}. Give one "
            "of these words."
        )
    return str(value)


def image_axes(ndim: int, data_format: str | None = None) -> tuple[int, int, int]:
    """Returns the axes of height, width and channels, of one image or a batch, counted from 0.

    Args:
        ndim: number of axes of the images: 3, or 4 with the batch axis.

    Raises:
        ValueError: if `ndim` is not 3 or 4.
    """
    if ndim not in (3, 4):
        raise ValueError(
            f"images: expected 3 axes (one image) or 4 (a batch), received {ndim}. Give (h, w, c) "
            "or (b, h, w, c); grey images have one channel."
        )
    first = ndim - 3
    if data_format_of(data_format) == "channels_last":
        return first, first + 1, first + 2
    return first + 1, first + 2, first


def image_size(images: jax.Array, data_format: str | None = None) -> tuple[int, int]:
    """Returns height and width.

    Example:
        >>> import jax.numpy as jnp
        >>> image_size(jnp.ones((2, 3, 4, 5)), "channels_first")
        (4, 5)
    """
    h, w, _ = image_axes(images.ndim, data_format)
    return images.shape[h], images.shape[w]


def as_batch(
    images: Numbers, data_format: str | None = None
) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """Converts images to a batch with the channels last, and returns the inverse function too.

    Args:
        data_format: "channels_last" (also None) or "channels_first".

    Returns:
        `(batch, unbatch)`: the array (b, h, w, c), and a function that converts an array (b, h2, w2,
        c2) to the layout of `images`.
    """
    images = jnp.asarray(images)
    _, _, channels = image_axes(images.ndim, data_format)
    single, first = images.ndim == 3, channels != images.ndim - 1
    batch = images[None] if single else images
    batch = jnp.moveaxis(batch, 1, -1) if first else batch

    def unbatch(result: jax.Array) -> jax.Array:
        result = jnp.moveaxis(result, -1, 1) if first else result
        return result[0] if single else result

    return batch, unbatch

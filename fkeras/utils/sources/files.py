"""Datasets of images, texts and sounds in folders.

Arguments that all functions share, documented here only:
    directory: path of the folder; with `labels="inferred"` each subfolder is a class.
    labels: "inferred" to derive class numbers from the subfolders, None for no labels, or a class
        number for each file in the order of the sorted paths.
    label_mode: "int" for class numbers (int32), "categorical" for one-hot vectors (float32),
        "binary" for 0.0 and 1.0 of shape (b, 1), or None for no labels.
    class_names: names of the subfolders in the order of their class numbers; None for the sorted
        names.
    batch_size: number of samples of a batch, over all shares together; None for single samples.
    shuffle: whether to shuffle the files, in another order in each epoch of `fit`.
    seed: seed of the order; None for 0, so that each run of a program has the same order.
    validation_split: fraction of the files for validation, such as 0.2.
    subset: "training", "validation", or "both" for a pair of datasets.
    follow_links: whether to enter symbolic links to folders.
    format: "grain"; Keras's "tf" is rejected. Sounds have no such argument.
    verbose: whether to print the number of files and of classes.
    shard: `(index, count)`: this process reads block number `index` of the `count` equal blocks of
        each batch, as in `Dataset`; for example `(jax.process_index(), jax.process_count())`.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fkeras.engine.config.converters import boolean, choice, data_format_name, integer, sizes
from fkeras.engine.values.argument_types import FilePath, Integer
from fkeras.utils.images import read_image
from fkeras.utils.sources.directory import Options, build_datasets, check_format, unreadable_file
from fkeras.utils.sources.resizing import METHODS, resize_image
from fkeras.utils.sources.wav import read_wav, resample

_IMAGE_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = types.MappingProxyType({"grayscale": 1, "rgb": 3, "rgba": 4})
_COLOR, _METHOD, _SIZE = choice(*_CHANNELS), choice(*METHODS), sizes(2)
_LENGTH = integer(minimum=1, optional=True)


def image_dataset_from_directory(
    directory: FilePath,
    labels: Literal["inferred"] | Sequence[Integer] | np.ndarray | None = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: Sequence[Integer] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "grain",
    verbose: bool = True,
    shard: tuple[int, int] = (0, 1),
) -> Any:
    """Returns a dataset of the images (BMP, GIF, JPEG, PNG) in a folder.

    Args:
        color_mode: "rgb", "rgba" or "grayscale".
        image_size: `(height, width)` to which images are resized.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        crop_to_aspect_ratio: whether to crop the borders instead of distorting the image.
        pad_to_aspect_ratio: whether to add black borders instead of distorting the image.
        data_format: "channels_last" or "channels_first"; None for "channels_last".

    Returns:
        A `Dataset` of `(images, labels)`, or of images without labels: float32 of shape
        (b, h, w, c) with numbers from 0 to 255; (b, c, h, w) for "channels_first". Its attributes are
        `class_names` and `file_paths`. With `subset="both"`, the pair of training and validation
        data.

    Raises:
        NotADirectoryError: if the folder is missing.
        ValueError: for arguments that do not fit the files; when a batch is read, for files that are
            not images.
        ImportError: if grain or Pillow is missing.

    Example:
        >>> import pathlib, tempfile
        >>> from fkeras.utils import save_img
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     save_img(folder / name / "1.png", np.ones((5, 4, 3)))
        >>> data = image_dataset_from_directory(folder, image_size=(8, 8), verbose=False)
        >>> images, labels = next(iter(data))
        >>> data.class_names, images.shape, labels.shape
        (('cat', 'dog'), (2, 8, 8, 3), (2,))
    """
    where = "image_dataset_from_directory"
    check_format(where, format)
    mode = _COLOR.check(f"{where}: color_mode", color_mode)
    size = _SIZE.check(f"{where}: image_size", image_size)
    method = _METHOD.check(f"{where}: interpolation", interpolation)
    crop = boolean.check(f"{where}: crop_to_aspect_ratio", crop_to_aspect_ratio)
    pad = boolean.check(f"{where}: pad_to_aspect_ratio", pad_to_aspect_ratio)
    if crop and pad:
        raise ValueError(
            f"{where}: expected at most one of crop_to_aspect_ratio and pad_to_aspect_ratio, "
            "received both. Choose one."
        )
    channels_first = data_format_name(data_format) == "channels_first"

    def read(paths: list[str]) -> np.ndarray:
        batch = np.empty((len(paths), *size, _CHANNELS[mode]), "float32")
        for row, path in zip(batch, paths, strict=True):
            image = np.asarray(read_image(path, mode, where))
            image = image[:, :, None] if image.ndim == 2 else image
            row[:] = resize_image(image, size, method, crop, pad)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) if channels_first else batch

    options = Options(
        where,
        directory,
        labels,
        label_mode,
        class_names,
        batch_size,
        shuffle,
        seed,
        validation_split,
        subset,
        follow_links,
        verbose,
        shard,
    )
    return build_datasets(options, _IMAGE_EXTENSIONS, read)


def text_dataset_from_directory(
    directory: FilePath,
    labels: Literal["inferred"] | Sequence[Integer] | np.ndarray | None = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "grain",
    verbose: bool = True,
    shard: tuple[int, int] = (0, 1),
) -> Any:
    """Returns a dataset of the texts (.txt in UTF-8) in a folder.

    Models train on numbers. `data.map(lambda texts, labels: (vectorize(texts), labels))` converts the
    texts in the background, where `vectorize` is an adapted `layers.TextVectorization`.

    Args:
        max_length: number of characters after which texts are truncated; None for complete texts.

    Returns:
        A `Dataset` of `(texts, labels)`, or of texts without labels: arrays of strings of shape
        (b,). Its attributes are `class_names` and `file_paths`. With `subset="both"`, the pair of
        training and validation data.

    Raises:
        NotADirectoryError: if the folder is missing.
        ValueError: for arguments that do not fit the files; when a batch is read, for files in
            another encoding.
        ImportError: if grain is missing.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name, text in (("bad", "so dull"), ("good", "so new")):
        ...     (folder / name).mkdir()
        ...     _ = (folder / name / "1.txt").write_text(text)
        >>> data = text_dataset_from_directory(folder, shuffle=False, verbose=False)
        >>> next(iter(data))
        (array(['so dull', 'so new'], dtype=object), array([0, 1], dtype=int32))
    """
    where = "text_dataset_from_directory"
    check_format(where, format)
    length = _LENGTH.check(f"{where}: max_length", max_length)

    def read(paths: list[str]) -> np.ndarray:
        # objects: NumPy's fixed-width strings would reserve the longest text's memory for each text
        texts = np.empty(len(paths), object)
        for index, path in enumerate(paths):
            try:
                with open(path, encoding="utf-8") as file:
                    texts[index] = file.read(-1 if length is None else length)
            except UnicodeDecodeError as error:
                raise unreadable_file(path, "a text in UTF-8", str(error), where) from None
        return texts

    options = Options(
        where,
        directory,
        labels,
        label_mode,
        class_names,
        batch_size,
        shuffle,
        seed,
        validation_split,
        subset,
        follow_links,
        verbose,
        shard,
    )
    return build_datasets(options, (".txt",), read)


def audio_dataset_from_directory(
    directory: FilePath,
    labels: Literal["inferred"] | Sequence[Integer] | np.ndarray | None = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
    shard: tuple[int, int] = (0, 1),
) -> Any:
    """Returns a dataset of the sounds (.wav with integers or floats) in a folder.

    Args:
        sampling_rate: samples per second to which sounds are resampled; None for each file's rate.
        output_sequence_length: number of samples to which sounds are truncated or padded with 0; None
            for the length of the longest sound of a batch. `fit` needs one length for all batches.
        ragged: must be False: JAX's arrays are dense.

    Returns:
        A `Dataset` of `(sounds, labels)`, or of sounds without labels: float32 of shape
        (b, t, channels) from -1 to 1. Its attributes are `class_names` and `file_paths`. With
        `subset="both"`, the pair of training and validation data.

    Raises:
        NotADirectoryError: if the folder is missing.
        ValueError: for arguments that do not fit the files; when a batch is read, for files that are
            not WAV files, and for different numbers of channels.
        ImportError: if grain is missing.

    Example:
        >>> import pathlib, tempfile, wave
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "beep")
        >>> folder.mkdir()
        >>> with wave.open(str(folder / "1.wav"), "wb") as file:
        ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
        ...     file.writeframes(np.asarray([0, 16384], "<i2").tobytes())
        >>> sounds, labels = next(iter(audio_dataset_from_directory(folder.parent, verbose=False)))
        >>> sounds.tolist(), labels.tolist()
        ([[[0.0], [0.5]]], [0])
    """
    where = "audio_dataset_from_directory"
    rate = _LENGTH.check(f"{where}: sampling_rate", sampling_rate)
    length = _LENGTH.check(f"{where}: output_sequence_length", output_sequence_length)
    if boolean.check(f"{where}: ragged", ragged):
        raise ValueError(
            f"{where}: ragged: expected False, since JAX's arrays are dense, received True. Pass "
            "output_sequence_length=..., which pads all sounds to one length."
        )

    def read(paths: list[str]) -> np.ndarray:
        sounds = [_read_sound(path, rate, where) for path in paths]
        channels = sounds[0].shape[1]
        for path, sound in zip(paths, sounds, strict=True):
            if sound.shape[1] != channels:
                expected = f"{channels} channels as in {paths[0]!r}"
                raise unreadable_file(path, expected, str(sound.shape[1]), where)
        longest = length or max(len(sound) for sound in sounds)
        batch = np.zeros((len(sounds), longest, sounds[0].shape[1]), "float32")
        for row, sound in zip(batch, sounds, strict=True):
            row[: len(sound)] = sound[:longest]
        return batch

    options = Options(
        where,
        directory,
        labels,
        label_mode,
        class_names,
        batch_size,
        shuffle,
        seed,
        validation_split,
        subset,
        follow_links,
        verbose,
        shard,
    )
    return build_datasets(options, (".wav",), read)


def _read_sound(path: str, rate: int | None, where: str) -> np.ndarray:
    try:
        samples, file_rate = read_wav(path)
    except ValueError as error:
        raise unreadable_file(path, "a WAV file of integers or floats", str(error), where) from None
    return samples if rate is None else resample(samples, file_rate, rate)

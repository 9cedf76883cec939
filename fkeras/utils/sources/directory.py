"""Datasets of the files in a folder with their labels; shared by images, texts and sounds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fkeras.atomic_files.atomic import as_path
from fkeras.engine.config.converters import boolean, choice, integer, real, several, text
from fkeras.utils.categories import to_categorical
from fkeras.utils.sources.dataset import Dataset

_MODE = choice("int", "categorical", "binary", optional=True)
_SUBSET = choice("training", "validation", "both", optional=True)
_SPLIT = real(above=0, below=1, optional=True, hint="Write 0.2 for one fifth.")
_NAMES = several(text(), "a list of names", optional=True)
_LABELS = several(integer(minimum=0), "a list of class numbers")
_SEED = integer(minimum=0, maximum=2**32 - 1, optional=True)
_FORMAT = choice(
    "grain", hint="TensorFlow's datasets (format='tf') cannot resume a training at a position."
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments that the functions for images, texts and sounds share, documented in `files`.

    Attributes:
        where: name of the public function, for messages.
    """

    where: str
    directory: Any
    labels: Any
    label_mode: str | None
    class_names: Any
    batch_size: int | None
    shuffle: bool
    seed: int | None
    validation_split: float | None
    subset: str | None
    follow_links: bool
    verbose: bool
    shard: tuple[int, int]

    def __post_init__(self) -> None:
        rules = {
            "label_mode": _MODE,
            "class_names": _NAMES,
            "shuffle": boolean,
            "seed": _SEED,
            "validation_split": _SPLIT,
            "subset": _SUBSET,
            "follow_links": boolean,
            "verbose": boolean,
        }
        for name, rule in rules.items():
            value = rule.check(f"{self.where}: {name}", getattr(self, name))
            object.__setattr__(self, name, value)
        object.__setattr__(self, "directory", as_path(self.directory))
        if self.label_mode is None or self.labels is None:
            object.__setattr__(self, "labels", None)
            object.__setattr__(self, "label_mode", None)
        if self.labels is not None and self.labels != "inferred":
            labels = _LABELS.check(f"{self.where}: labels", self.labels)
            object.__setattr__(self, "labels", labels)
        if self.class_names is not None and self.labels != "inferred":
            raise ValueError(
                f"{self.where}: class_names: expected None unless labels='inferred', received "
                f"{self.class_names}. Remove class_names: only inferred labels have folders of classes."
            )
        if (self.validation_split is None) != (self.subset is None):
            raise ValueError(
                f"{self.where}: expected validation_split and subset together, received "
                f"{self.validation_split} and {self.subset!r}. Write validation_split=0.2, "
                "subset='both'."
            )


def check_format(where: str, value: object) -> None:
    """Rejects formats other than "grain"."""
    _FORMAT.check(f"{where}: format", value)


def build_datasets(
    options: Options, extensions: tuple[str, ...], read: Callable[[list[str]], np.ndarray]
) -> Any:
    """Returns the dataset of a folder, or the two datasets of `subset="both"`."""
    paths, labels, names = _list_files(options, extensions)
    if not paths:
        raise ValueError(
            f"{options.where}: expected files with the extension {', '.join(extensions)} in "
            f"{options.directory!r}, received none. With labels='inferred', put the files of each "
            "class into a subfolder."
        )
    if options.label_mode == "binary" and len(names or ()) != 2:
        raise ValueError(
            f"{options.where}: label_mode='binary': expected two classes, received {names}. Write "
            "label_mode='int'."
        )
    if options.validation_split is None:
        return _build_dataset(options, paths, labels, names, read, options.shuffle)
    count = int(options.validation_split * len(paths))
    if not 0 < count < len(paths):
        raise ValueError(
            f"{options.where}: validation_split: expected a fraction that leaves files for training "
            f"and for validation, received {options.validation_split} of {len(paths)} files. Use more "
            "files, or another fraction."
        )
    parts = []
    for subset, rows in (("training", slice(-count)), ("validation", slice(-count, None))):
        if options.subset in (subset, "both"):
            if options.verbose:
                print(f"Using {len(paths[rows])} files for {subset}.")
            part_labels = None if labels is None else labels[rows]
            # as in Keras, "both" does not shuffle the validation data in each epoch
            shuffle = options.shuffle and (options.subset != "both" or subset == "training")
            parts.append(_build_dataset(options, paths[rows], part_labels, names, read, shuffle))
    return tuple(parts) if options.subset == "both" else parts[0]


def _build_dataset(
    options: Options,
    paths: list[str],
    labels: np.ndarray | None,
    names: tuple[str, ...] | None,
    read: Callable[[list[str]], np.ndarray],
    shuffle: bool,
) -> Dataset:
    targets = _encode_labels(options, labels, names or ())

    def read_batch(ids: np.ndarray) -> Any:
        samples = read([paths[index] for index in ids])
        return samples if targets is None else (samples, targets[ids])

    return Dataset(
        count=len(paths),
        read=read_batch,
        batch_size=options.batch_size,
        shuffle=shuffle,
        seed=options.seed,
        shard=options.shard,
        class_names=None if names is None else tuple(names),
        file_paths=tuple(paths),
    )


def _encode_labels(
    options: Options, labels: np.ndarray | None, names: tuple[str, ...]
) -> np.ndarray | None:
    if labels is None:
        return None
    if options.label_mode == "int":
        return labels
    if labels.max() >= len(names):
        raise ValueError(
            f"{options.where}: labels: expected class numbers from 0 to {len(names) - 1} for the "
            f"{len(names)} different labels, received {labels.max()}. Number the classes without gaps."
        )
    if options.label_mode == "binary":
        return labels.astype("float32")[:, None]
    return to_categorical(labels, len(names)).astype("float32")


def _list_files(options: Options, extensions: tuple[str, ...]) -> tuple[list[str], Any, Any]:
    """Returns the paths, class numbers and class names of the files, in Keras's order."""
    folder = options.directory
    if not os.path.isdir(folder):
        raise NotADirectoryError(
            f"{options.where}: expected a folder, received {folder!r}, which is "
            f"{'a file' if os.path.exists(folder) else 'missing'}. Check the path."
        )
    names: Any = None
    if options.labels == "inferred":
        names = _class_folders(options)
        paths_by_class = [
            [*_walk_files(os.path.join(folder, name), options, extensions)] for name in names
        ]
        paths = [path for class_paths in paths_by_class for path in class_paths]
        counts = [len(class_paths) for class_paths in paths_by_class]
        labels = np.repeat(np.arange(len(names), dtype="int32"), counts)
    else:
        paths = [*_walk_files(folder, options, extensions)]
        labels = None
        if options.labels is not None:
            if len(options.labels) != len(paths):
                raise ValueError(
                    f"{options.where}: labels: expected {len(paths)} class numbers, one for each file "
                    f"in {folder!r}, received {len(options.labels)}. Order the class numbers as the "
                    "sorted paths of the files."
                )
            labels = np.asarray(options.labels, "int32")
            names = [str(label) for label in sorted(set(options.labels))]
    if options.verbose:
        classes = "" if names is None else f" belonging to {len(names)} classes"
        print(f"Found {len(paths)} files{classes}.")
    if options.shuffle:
        # Keras's order: a validation split then selects the same files as in Keras
        order = np.arange(len(paths))
        np.random.RandomState(options.seed or 0).shuffle(order)
        paths = [paths[index] for index in order]
        labels = None if labels is None else labels[order]
    return paths, labels, names


def _class_folders(options: Options) -> list[str]:
    folder = options.directory
    folders = [
        name
        for name in sorted(os.listdir(folder))
        if os.path.isdir(os.path.join(folder, name)) and not name.startswith(".")
    ]
    if options.class_names is None:
        return folders
    names = list(options.class_names)
    # this comparison also rejects ".." and "/", which would read files outside of the directory
    missing = [name for name in names if name not in folders]
    if missing or len(set(names)) < len(names):
        raise ValueError(
            f"{options.where}: class_names: expected different names of folders in {folder!r}, "
            f"received {names[:10]}. Choose among {folders[:10]}."
        )
    return names


def _walk_files(folder: str, options: Options, extensions: tuple[str, ...]) -> Iterator[str]:
    walk = os.walk(folder, followlinks=options.follow_links)
    for root, _, names in sorted(walk, key=lambda entry: entry[0]):
        for name in sorted(names):
            if name.lower().endswith(extensions):
                yield os.path.join(root, name)


def unreadable_file(path: str, expected: str, content: str, where: str) -> ValueError:
    """Returns the error for a file that cannot be read."""
    return ValueError(
        f"{where}: {path!r}: expected {expected}, received {content}. Convert or remove the file."
    )

"""Writes a save atomically: into a partial folder, flushed, then published by a rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.arrays import facts_of
from fkeras.training.checkpoint.storage.manifest import WHOLE, write_manifest
from fkeras.training.checkpoint.storage.orbax_files import write_arrays
from fkeras.training.checkpoint.storage.record import write_record

LATEST, BEST, PARTIAL = "latest", "best", "partial"
SAVE = "save"


def write_save(
    directory: str,
    step: int,
    arrays: Mapping[str, np.ndarray],
    info: Mapping[str, Any],
    best: bool,
    keep: int,
    broken: Iterable[str] = (),
) -> None:
    """Writes a save and removes older saves; readers never see an incomplete save.

    Args:
        arrays: the arrays by name; no other code may change them.
        best: whether the save is the best one, too.
        broken: folders of damaged saves, which do not count towards `keep`.
    """
    aside = start_save(directory, step)
    try:
        save = os.path.join(aside, SAVE)
        os.mkdir(save)
        write_arrays(os.path.join(save, "arrays"), arrays)
        facts = {name: facts_of(array) for name, array in arrays.items()}
        write_manifest(save, WHOLE, step, facts, disk.checksums(save), info)
        disk.flush_all(save)
        finish_save(directory, step, aside, best, keep, broken)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def start_save(directory: str, step: int) -> str:
    """Creates and returns a folder for an incomplete save."""
    partial = os.path.join(directory, PARTIAL)
    # Orbax's threads may write files after orbax has raised, so a failed save may leave files.
    for name in os.listdir(partial):
        shutil.rmtree(os.path.join(partial, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{step}-", dir=partial)


def finish_save(
    directory: str, step: int, aside: str, best: bool, keep: int, broken: Iterable[str]
) -> None:
    """Publishes a save that has all its files and is flushed to disk, and removes older saves.

    Args:
        aside: the result of `start_save`, with the files in its folder `save`.
        best: whether the save is the best one, too.
        broken: folders of damaged saves, which do not count towards `keep`.
    """
    save, second = os.path.join(aside, SAVE), os.path.join(aside, "best")
    if best:
        disk.twin(save, second)
        # Publish `best` first: a run that is killed between the two renames resumes from an
        # older step, reaches this step again, and saves both.
        published = disk.publish(second, os.path.join(directory, BEST), step)
        _forget(os.path.join(directory, BEST), published, 1, (), aside)
    published = disk.publish(save, os.path.join(directory, LATEST), step)
    write_record(directory, published, aside)
    _forget(os.path.join(directory, LATEST), published, keep, broken, aside)


def _forget(folder: str, newest: disk.Save, keep: int, broken: Iterable[str], aside: str) -> None:
    """Removes all but `keep` undamaged saves; saves of later steps stay."""
    older = [save for save in disk.saves(folder) if save < newest]
    undamaged = [save for save in older if save.path not in broken]
    for save in older:
        if save not in undamaged[: keep - 1]:
            disk.set_aside(save, aside)

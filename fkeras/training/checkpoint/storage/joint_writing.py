"""Writes a save of several processes: each writes its parts, process 0 publishes the save."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fkeras.host.processes.alone import Alone
from fkeras.training.checkpoint.storage import disk, part_files
from fkeras.training.checkpoint.storage.errors import JointSaveError, is_disk_full
from fkeras.training.checkpoint.storage.manifest import NAME, PARTS, write_manifest
from fkeras.training.checkpoint.storage.part_files import Part
from fkeras.training.checkpoint.storage.shared_failure import describe
from fkeras.training.checkpoint.storage.writing import (
    LATEST,
    PARTIAL,
    SAVE,
    finish_save,
    start_save,
)


def write_joint_save(
    group: Alone,
    directory: str,
    step: int,
    tree: tuple[Mapping[str, Any], list[Part]],
    info: Mapping[str, Any],
    best: bool,
    keep: int,
    broken: Iterable[str] = (),
) -> None:
    """Writes a save together with the other processes, as `write_save` does in one process.

    Args:
        group: the processes; no other thread may use their sequence of exchanges.
        tree: the result of `own_parts`.
        info: JSON data; the save has the data of process 0.
        best: whether the save is the best one, too.
        broken: folders of damaged saves, which do not count towards `keep`.

    Raises:
        JointSaveError: if any process fails; the same in all processes.
        ProcessError: if a process has ended.
    """
    aside = None

    def start() -> str | None:
        nonlocal aside
        if not group.leads:
            return None
        aside = start_save(directory, step)
        os.mkdir(os.path.join(aside, SAVE))
        return os.path.basename(aside)

    def write() -> None:
        arrays, parts = tree
        path = os.path.join(folder, SAVE, part_files.folder_name(group.index))
        facts = part_files.write_parts(path, arrays, parts)
        part_files.write_facts(_facts_path(folder, group.index), arrays, facts)

    def finish() -> None:
        if not group.leads:
            return
        save = os.path.join(folder, SAVE)
        paths = [_facts_path(folder, index) for index in range(group.count)]
        arrays, files = part_files.join_facts(save, paths)
        write_manifest(save, PARTS, step, arrays, files, info)
        # each process has flushed the files in its folder
        disk.flush(os.path.join(save, NAME))
        disk.flush(save)
        finish_save(directory, step, folder, best, keep, broken)

    try:
        name = _do(group, directory, "the start of a save", start)
        folder = os.path.join(directory, PARTIAL, name)
        _do(group, directory, "the parts of a save", write)
        _do(group, directory, "the end of a save", finish)
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _facts_path(folder: str, index: int) -> str:
    return os.path.join(folder, f"{part_files.folder_name(index)}.json")


def _do(group: Alone, directory: str, what: str, function: Callable[[], Any]) -> Any:
    """Calls a function in every process; returns the result of process 0."""
    value, failure = None, None
    try:
        value = function()
    except Exception as error:
        failure = error
    outcome = {"value": value, "error": None, "newest": None}
    if failure is not None:
        outcome |= {"error": describe(failure), "full": is_disk_full(failure)}
    if group.leads:
        older_saves = disk.saves(os.path.join(directory, LATEST))
        outcome["newest"] = older_saves[0].step if older_saves else None
    outcomes = group.agree(outcome, what)
    for other in outcomes:
        if other["error"] is not None:
            newest = outcomes[0]["newest"]
            raise JointSaveError(other["error"], other["full"], newest) from failure
    return outcomes[0]["value"]

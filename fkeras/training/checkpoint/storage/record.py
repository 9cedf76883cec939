"""`last.json`: a record of the newest save of a folder, to detect that the save was deleted.

The record is written after the save is published. If a run is killed between the two, the record
is older than the newest save, which is harmless. A save is missing only if the newest save is
older than the record. Folders of earlier versions have no record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from fkeras.training.checkpoint.storage import disk

NAME = "last.json"


def write_record(directory: str, save: disk.Save, aside: str) -> None:
    """Records the newest save of a folder.

    Args:
        aside: a folder on the same file system, for the file before its rename.
    """
    path = os.path.join(aside, NAME)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"step": save.step, "again": save.again}, file)
    # Not flushed to disk: after a power cut, an older record or no record is harmless.
    os.replace(path, os.path.join(directory, NAME))


def recorded(directory: str) -> tuple[int, int] | None:
    """Returns `(step, again)` of the recorded save; None without a readable record."""
    try:
        with open(os.path.join(directory, NAME), encoding="utf-8") as file:
            entry = json.load(file)
        step, again = entry["step"], entry["again"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (step, again) if type(step) is type(again) is int else None


def missing_save(
    directory: str, record: tuple[int, int] | None, saves: Sequence[disk.Save]
) -> str | None:
    """Returns a sentence about the recorded save if the save is missing, else None.

    Args:
        record: the result of `recorded`, read before the saves were listed.
    """
    if record is None or (saves and saves[0][:2] >= record):
        return None
    return (
        f"Checkpoint {directory!r}: the newest recorded save, of step {record[0]}, is missing: it "
        "was deleted or moved."
    )

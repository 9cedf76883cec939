"""Reads the newest undamaged save from disk, bit for bit, or reports the damage."""

from __future__ import annotations

import dataclasses
import os
import types
import warnings
from collections.abc import Mapping
from typing import Any

from fkeras.engine import suggest
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.compare import compare
from fkeras.training.checkpoint.plan import Checkpoint
from fkeras.training.checkpoint.storage import arrays as named
from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.errors import BrokenSaveError, CheckpointError
from fkeras.training.checkpoint.storage.manifest import read_manifest
from fkeras.training.checkpoint.storage.orbax_files import load_orbax
from fkeras.training.checkpoint.storage.record import missing_save, recorded
from fkeras.training.checkpoint.storage.shards import read_tree
from fkeras.training.checkpoint.storage.shared_failure import do_together
from fkeras.training.checkpoint.storage.writing import BEST, LATEST


@dataclasses.dataclass(frozen=True)
class Restored:
    """Save that was read from disk.

    Attributes:
        tree: the arrays, in the requested structure.
        info: the JSON data of the save.
        step: the step of the save.
        path: the folder of the save.
        messages: a sentence for each newer save that is damaged or missing.
        broken: the folders of the damaged saves.
    """

    tree: Any
    info: dict[str, Any]
    step: int
    path: str
    messages: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def restore(
    directory: Any,
    like: object,
    *,
    kind: str = LATEST,
    fingerprint: Mapping[str, Any] | None = None,
) -> Restored | None:
    """Reads the newest undamaged save of a folder; needs no lock, even while a run writes there.

    Args:
        directory: the folder of a `Checkpoint`, or the `Checkpoint`.
        like: a pytree of arrays or `ShapeDtypeStruct`s with the structure, dtypes, shapes and
            shardings of the result; or a function that returns this pytree from the save's info
            and the facts of the save's arrays by name.
        kind: "latest" or "best".
        fingerprint: facts to compare with `info["fingerprint"]` before reading any array.

    Returns:
        The save, or None if the folder has no save. If the recorded newest save was deleted, the
        function warns, or adds a message to an older save.

    Raises:
        CheckpointError: if the save has another structure or fingerprint, with the differences; or
            if all saves are damaged, with the damage of each.
        ValueError: for an unknown kind.

    Example:
        >>> import tempfile, numpy as np
        >>> from fkeras.training.checkpoint import Checkpoint, open_store, restore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open_store(Checkpoint(folder)) as store:
        ...         store.save(7, {"w": np.float32([1, 2])}, {"epoch": 1})
        ...     found = restore(folder, {"w": np.zeros(2, "float32")})
        >>> found.step, found.info, found.tree
        (7, {'epoch': 1}, {'w': array([1., 2.], dtype=float32)})
    """
    return restore_together(directory, like, kind, fingerprint, ALONE)


def restore_together(
    directory: Any,
    like: object,
    kind: str,
    fingerprint: Mapping[str, Any] | None,
    group: Alone,
) -> Restored | None:
    """Reads the newest save that no process of a group finds damaged; see `restore`."""
    if kind not in (LATEST, BEST):
        raise ValueError(
            f"restore: expected {LATEST!r} or {BEST!r} as kind, received {kind!r}."
            f"{suggest(kind, (LATEST, BEST))}"
        )
    load_orbax()
    if not isinstance(directory, Checkpoint):
        directory = Checkpoint(directory)
    folder = os.path.join(directory.directory, kind)
    # Read the record before listing the saves: a run that writes at the same time only adds newer
    # saves, so no save seems to be missing.
    record = recorded(directory.directory) if kind == LATEST else None
    # Process 0 looks at the folder for all: a network file system may show an older list elsewhere.
    missing = group.agree(
        missing_save(directory.directory, record, disk.saves(folder)), "the recorded save"
    )[0]
    reasons: dict[str, str] = {}
    # List the folder again after each failure: a running training publishes and removes saves.
    while True:
        candidates = [save for save in disk.saves(folder) if save.path not in reasons]
        candidate = group.agree(candidates[0] if candidates else None, "the newest save")[0]
        if candidate is None:
            break
        save = disk.Save(*candidate)
        tree, info, reason = _read_together(save, like, fingerprint, group)
        if reason is not None:
            # otherwise a running training has removed the save
            if group.agree(os.path.isdir(save.path), "a damaged save")[0]:
                reasons[save.path] = reason
            continue
        messages = [
            f"Skipped the damaged checkpoint {path}: {reason}. Using step {save.step} in "
            f"{save.path}."
            for path, reason in reasons.items()
        ]
        if missing is not None:
            used = f"Using step {save.step} in {save.path}; later steps are trained again."
            messages.append(f"{missing} {used}")
        return Restored(tree, info, save.step, save.path, tuple(messages), tuple(reasons))
    if reasons:
        lines = "".join(f"  {path}: {reason}\n" for path, reason in reasons.items())
        raise CheckpointError(
            f"Checkpoint {folder!r}: all {len(reasons)} saves are damaged:\n"
            f"{lines}Remove the folder to start from step 0, or restore a save from a backup."
        )
    if missing is not None:
        warnings.warn(f"{missing} No other save exists: training starts from step 0.", stacklevel=3)
    return None


def _read_together(
    save: disk.Save, like: object, fingerprint: Mapping[str, Any] | None, group: Alone
) -> tuple[Any, Any, str | None]:
    """Returns tree, info and None; or the reason why a process finds the save damaged, as the third."""
    tree = info = None

    def read() -> str | None:
        nonlocal tree, info
        try:
            tree, info = _read(save, like, fingerprint)
        except BrokenSaveError as error:
            return str(error)
        return None

    reasons = [text for text in do_together(group, "a restored save", read) if text is not None]
    return tree, info, reasons[0] if reasons else None


def _read(
    save: disk.Save, like: object, fingerprint: Mapping[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    body = read_manifest(save.path)
    where = f"Checkpoint {save.path!r}"
    if fingerprint is not None:
        check_fingerprint(where, body["info"].get("fingerprint"), fingerprint)
    saved = body["arrays"]
    if isinstance(like, types.FunctionType):
        like = like(body["info"], saved)
    named.check_structure(where, saved, like)
    return read_tree(save.path, body, like), body["info"]


def check_fingerprint(where: str, saved: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Raises a `CheckpointError` if the fingerprint of a save differs from the current one."""
    differences = compare(saved, now)
    if differences:
        lines = "".join(f"  {line}\n" for line in differences)
        raise CheckpointError(
            f"{where}: expected a save of this training, received a save of another training:\n"
            f"{lines}Use another folder, or restore the saved configuration."
        )

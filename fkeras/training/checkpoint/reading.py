"""Saves off the disk: the newest that is whole, bit for bit, or word of what is wrong."""

from __future__ import annotations

import dataclasses
import os
import types
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.engine import suggest
from fkeras.training.checkpoint.compare import compare
from fkeras.training.checkpoint.files import arrays as named
from fkeras.training.checkpoint.files import disk
from fkeras.training.checkpoint.files.errors import BrokenSaveError, CheckpointError
from fkeras.training.checkpoint.files.manifest import read_manifest
from fkeras.training.checkpoint.files.orbax_files import load_orbax, read_arrays
from fkeras.training.checkpoint.files.record import missing_save, recorded
from fkeras.training.checkpoint.files.writing import BEST, LATEST
from fkeras.training.checkpoint.plan import Checkpoint


@dataclasses.dataclass(frozen=True)
class Restored:
    """A save that was read.

    Attributes:
        tree: the arrays, in the structure that was asked for.
        info: the JSON data beside them.
        step: the step that they are of.
        path: the folder that they came from.
        messages: why saves newer than this one were passed over or are missing, a sentence each.
        broken: the folders of those.
    """

    tree: Any
    info: dict[str, Any]
    step: int
    path: str
    messages: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def restore(
    directory: Any,
    like: Any,
    *,
    kind: str = LATEST,
    fingerprint: Mapping[str, Any] | None = None,
) -> Restored | None:
    """The newest whole save in a folder; it takes no lock, a run may be writing there.

    Args:
        directory: the folder of a `Checkpoint`, or the `Checkpoint`.
        like: a pytree of arrays or `ShapeDtypeStruct`s: the structure, dtypes, shapes and places
            that the arrays shall have; or a function that makes it of the save's info and the
            facts of its arrays by name.
        kind: "latest" or "best".
        fingerprint: facts to compare with `info["fingerprint"]` before anything else.

    Returns:
        None where the folder has no save. If the folder had one that was deleted, that is a
        warning here, and one of `messages` where an older save is left.

    Raises:
        CheckpointError: where the save is of another structure or fingerprint, or where no save is
            whole; it lists what differs, or what is wrong with each.
        ValueError: for a kind that there is not.

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
    if kind not in (LATEST, BEST):
        raise ValueError(
            f"restore: expected {LATEST!r} or {BEST!r} as kind, received {kind!r}."
            f"{suggest(kind, (LATEST, BEST))} Pass one of these."
        )
    load_orbax()
    if not isinstance(directory, Checkpoint):
        directory = Checkpoint(directory)
    folder = os.path.join(directory.directory, kind)
    # the record before the saves: a run that writes meanwhile makes the saves newer, not older
    record = recorded(directory.directory) if kind == LATEST else None
    lost = missing_save(directory.directory, record, disk.saves(folder))
    reasons: dict[str, str] = {}
    while True:
        left = [save for save in disk.saves(folder) if save.path not in reasons]
        if not left:
            break
        save = left[0]
        try:
            tree, info = _read(save, like, fingerprint)
        except BrokenSaveError as error:
            if os.path.isdir(save.path):  # otherwise the run that writes here removed it meanwhile
                reasons[save.path] = str(error)
            continue
        messages = [
            f"The checkpoint {path} was passed over: {reason}. Step {save.step} in {save.path} is "
            "used."
            for path, reason in reasons.items()
        ]
        if lost is not None:
            used = f"Step {save.step} in {save.path} is used; later steps are trained again."
            messages.append(f"{lost} {used}")
        return Restored(tree, info, save.step, save.path, tuple(messages), tuple(reasons))
    if reasons:
        listed = "".join(f"  {path}: {reason}\n" for path, reason in reasons.items())
        raise CheckpointError(
            f"Checkpoint {folder!r}: expected a whole save, and none of {len(reasons)} is:\n"
            f"{listed}Remove the folder to begin anew, or bring one back from a copy."
        )
    if lost is not None:
        warnings.warn(f"{lost} No other save is left: a training begins anew.", stacklevel=2)
    return None


def _read(
    save: disk.Save, like: Any, fingerprint: Mapping[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    body = read_manifest(save.path)
    where = f"Checkpoint {save.path!r}"
    if fingerprint is not None:
        check_fingerprint(where, body["info"].get("fingerprint"), fingerprint)
    saved = body["arrays"]
    if isinstance(like, types.FunctionType):
        like = like(body["info"], saved)
    named.check_structure(where, saved, like)
    for name, facts in body["files"].items():
        path = os.path.join(save.path, *name.split("/"))
        disk.check_file(path, name, facts["bytes"], int(facts["crc32"], 16))
    filled = [name for name, facts in saved.items() if 0 not in facts["shape"]]
    try:
        found = read_arrays(os.path.join(save.path, "arrays"), filled)
    except Exception as error:
        # orbax and the libraries under it have no error of their own
        text = str(error).splitlines() or [""]
        raise BrokenSaveError(
            f"arrays cannot be read by orbax ({type(error).__name__}: {text[0]:.200})"
        ) from error
    for name, facts in saved.items():
        if name not in filled:
            found[name] = np.zeros(facts["shape"], named.dtype_of(facts["dtype"]))
        elif named.facts_of(found[name]) != facts:
            raise BrokenSaveError(f"the array {name} in arrays is not the one that was saved")
    return named.put_into(found, like), body["info"]


def check_fingerprint(where: str, saved: Any, now: Mapping[str, Any]) -> None:
    """Raises where the facts of a save differ from those of now."""
    differences = compare(saved, now)
    if differences:
        listed = "".join(f"  {line}\n" for line in differences)
        raise CheckpointError(
            f"{where}: expected a save of this training, received one of another:\n{listed}Use "
            "another folder, or go back to what was saved."
        )

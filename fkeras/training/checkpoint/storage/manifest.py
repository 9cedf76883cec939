"""`manifest.json`: the contents of a save, with checksums of all arrays, all files, and itself."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.errors import BrokenSaveError, CheckpointError
from fkeras.training.checkpoint.storage.orbax_files import load_orbax

NAME = "manifest.json"
#: arrays in orbax's format, written by one process
WHOLE = 1
#: parts of arrays in folders in orbax's format, written by several processes (`part_files`)
PARTS = 2


def as_json(info: object) -> dict[str, Any]:
    """Returns a copy of `info` after a round trip through JSON: tuples become lists, keys strings.

    Raises:
        TypeError: if JSON cannot represent `info`.
    """
    if not isinstance(info, Mapping):
        raise TypeError(
            f"Store.save: expected a dictionary as info, received {type(info).__name__}. For "
            'example {"epoch": 3}.'
        )
    try:
        return json.loads(json.dumps(dict(info), default=_number))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Store.save: expected info as JSON data: {error}. Put arrays into the tree, and "
            "numbers, strings, lists and dictionaries into info."
        ) from None


def _number(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}")


def in_parts(body: Mapping[str, Any]) -> bool:
    """Returns whether a manifest describes a save of several processes."""
    return body["format"] == PARTS


def write_manifest(
    folder: str,
    form: int,
    step: int,
    arrays: Mapping[str, Any],
    files: Mapping[str, Any],
    info: Mapping[str, Any],
) -> None:
    """Writes the manifest of a save.

    Args:
        form: `WHOLE` or `PARTS`.
        arrays: `facts_of` each array; for parts, the result of `join_facts`.
        files: `disk.checksums` of all other files of the save, which exist already.
    """
    body = {
        "format": form,
        "step": step,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {
            "fkeras": sys.modules[__name__.split(".")[0]].__version__,
            "jax": jax.__version__,
            "orbax-checkpoint": load_orbax().__version__,
        },
        "info": info,
        "arrays": arrays,
        "files": files,
    }
    with open(os.path.join(folder, NAME), "w", encoding="utf-8") as file:
        json.dump({"crc32": _own_checksum(body), **body}, file, indent=1)


def read_manifest(folder: str) -> dict[str, Any]:
    """Reads the manifest of a save.

    Raises:
        BrokenSaveError: if the manifest is missing or damaged.
        CheckpointError: if a later version of fkeras wrote the manifest.
    """
    try:
        with open(os.path.join(folder, NAME), encoding="utf-8") as file:
            body = json.load(file)
        saved_checksum = body.pop("crc32")
    except OSError as error:
        raise BrokenSaveError(f"{NAME} cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BrokenSaveError(f"{NAME} is not a manifest ({error})") from error
    computed_checksum = _own_checksum(body)
    if computed_checksum != saved_checksum:
        raise BrokenSaveError(
            f"{NAME} has the checksum {computed_checksum}, expected {saved_checksum}"
        )
    if body["format"] not in (WHOLE, PARTS):
        raise CheckpointError(
            f"Checkpoint {folder!r}: expected a manifest of format {WHOLE} or {PARTS}, received format "
            f"{body['format']}, of fkeras {body['versions']['fkeras']}. Install that version."
        )
    return body


def _own_checksum(body: Mapping[str, Any]) -> str:
    # Of the parsed data, not of the file: the checksum is an entry of the file itself.
    return f"{disk.checksum(json.dumps(body, sort_keys=True).encode()):08x}"

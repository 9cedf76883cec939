"""Event files, the form that TensorBoard reads, appended to record by record.

A file of tensorboardX's own writer begins anew with each writer, and a writer is a thread that
would have to live as long as the training. What a callback writes is there when its hook returns.
"""

from __future__ import annotations

import importlib
import os
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.optional_packages import missing_package

_NAME = "events.out.tfevents.fkeras"


def require(where: str) -> None:
    """Raises where tensorboardX is not installed.

    Args:
        where: who needs it, for the message.
    """
    _module("summary", where)


def _module(name: str, where: str = "TensorBoard") -> Any:
    try:
        return importlib.import_module(f"tensorboardX.{name}")
    except ImportError as error:
        raise missing_package(where, "tensorboardX", error) from error


def scalar(name: str, value: float) -> Any:
    """A number under a name."""
    return _module("summary").scalar(name, float(value))


def text(name: str, value: str) -> Any:
    """A text in Markdown under a name."""
    return _module("summary").text(name, value)


def histogram(name: str, values: np.ndarray) -> Any:
    """The distribution of the finite ones of some numbers under a name."""
    finite = values[np.isfinite(values)]
    return _module("summary").histogram(name, finite if finite.size else np.zeros(1), bins=30)


class EventFile:
    """The file in a folder that events are appended to.

    Args:
        folder: the folder, which is made.
    """

    def __init__(self, folder: str):
        self.path = os.path.join(folder, _NAME)

    def write(self, summaries: Sequence[Any], step: int, *, anew: bool = False) -> None:
        """Appends summaries of a step.

        Args:
            summaries: what `scalar`, `text` and `histogram` made.
            step: the number that they stand at.
            anew: whether what the file has at this number and later ones is to be hidden.
        """
        event, now = _module("proto.event_pb2"), time.time()
        made = []
        if not os.path.exists(self.path):
            made.append(event.Event(wall_time=now, file_version="brain.Event:2"))
        if anew:
            log = event.SessionLog(status=event.SessionLog.START)
            made.append(event.Event(wall_time=now, step=step, session_log=log))
        made += [event.Event(wall_time=now, step=step, summary=summary) for summary in summaries]
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(b"".join(_record(one.SerializeToString()) for one in made))


def _record(data: bytes) -> bytes:
    """A record as TensorFlow frames it: length, its checksum, the data, its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    crc = _module("crc32c").crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

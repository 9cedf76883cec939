"""Appends records to event files, the file format of TensorBoard.

tensorboardX's writer starts a new file each time, and runs a thread that would have to live as long
as the training. `EventFile` appends to one file, and the records are written when a hook returns.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.nn.image.png import png
from fkeras.training.callbacks.reporting.logs import service

_NAME = "events.out.tfevents.fkeras"


def _module(name: str) -> Any:
    return service("TensorBoard", f"tensorboardX.{name}")


def scalar(name: str, value: float) -> Any:
    """Returns the summary of a scalar."""
    return _module("summary").scalar(name, float(value))


def text(name: str, value: str) -> Any:
    """Returns the summary of a Markdown text."""
    return _module("summary").text(name, value)


def histogram(name: str, values: np.ndarray) -> Any:
    """Returns the histogram of the finite values of an array."""
    # NumPy cannot compute bins over NaN or infinite values, nor tensorboardX an empty histogram
    finite = values[np.isfinite(values)]
    return _module("summary").histogram(name, finite if finite.size else np.zeros(1), bins=30)


def image(name: str, values: np.ndarray) -> Any:
    """Returns a gray image of an array of two axes; the smallest value is black, the largest white.

    Values that are not finite are black.
    """
    rows = gray(values)
    height, width = rows.shape
    summary = _module("proto.summary_pb2").Summary
    picture = summary.Image(
        height=height, width=width, colorspace=1, encoded_image_string=png(rows)
    )
    return summary(value=[summary.Value(tag=name, image=picture)])


def gray(values: np.ndarray) -> np.ndarray:
    """Returns the values as uint8, from the smallest finite value (0) to the largest (255)."""
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    shares = np.where(finite, values - low, 0.0) / ((high - low) or 1.0)
    return np.rint(shares * 255).astype("uint8")


class EventFile:
    """Event file in a folder, to which events are appended."""

    def __init__(self, folder: str):
        self.path = os.path.join(folder, _NAME)

    def write(self, summaries: Sequence[Any], step: int, *, anew: bool = False) -> None:
        """Appends summaries of a step.

        Args:
            summaries: results of `scalar`, `text`, `histogram` and `image`.
            anew: whether to hide the existing events of this step and later steps.
        """
        event, now = _module("proto.event_pb2"), time.time()
        records = []
        if not os.path.exists(self.path):
            records.append(event.Event(wall_time=now, file_version="brain.Event:2"))
        # TensorBoard discards events from the step of a START event on, as after a restart
        if anew:
            log = event.SessionLog(status=event.SessionLog.START)
            records.append(event.Event(wall_time=now, step=step, session_log=log))
        records += [event.Event(wall_time=now, step=step, summary=summary) for summary in summaries]
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(b"".join(_record(record.SerializeToString()) for record in records))


def _record(data: bytes) -> bytes:
    """Returns a record in TensorFlow's framing: length, checksum, data, checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    # TFRecord masks checksums by a rotation and a constant
    crc = _module("crc32c").crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

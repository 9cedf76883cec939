"""Images as PNG files, without another package."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """Returns a PNG file with 8 bits for each value.

    Args:
        pixels: uint8, `(h, w)` for gray, or `(h, w, c)` with 1 channel for gray, 3 for RGB, or 4 for
            RGB and opacity.
    """
    height, width, *channels = pixels.shape
    count = channels[0] if channels else 1
    color_type = {1: 0, 3: 2, 4: 6}[count]
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    # each row begins with the number of its filter: 0 for none
    rows = np.pad(pixels.reshape(height, width * count), ((0, 0), (1, 0)))
    parts = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(rows.tobytes())),
            (b"IEND", b""),
        )
    )
    return b"\x89PNG\r\n\x1a\n" + parts

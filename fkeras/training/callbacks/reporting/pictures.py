"""Kernels as pictures, and embeddings as files of TensorBoard's projector."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np

from fkeras.atomic_files.atomic import replacing
from fkeras.engine import Layer, sublayers, suggest
from fkeras.engine.tree.local_arrays import check_local
from fkeras.engine.tree.walk import join_path
from fkeras.layers.core.embedding import Embedding

# browsers do not show larger images in a useful way
_LARGEST_PICTURE = 2**22


def picture(weight: np.ndarray) -> np.ndarray | None:
    """Returns a weight as an array of two axes; None for a weight that has no picture.

    A vector is a row, and a matrix is wider than high. A kernel `(h, w, c, f)` is a table of `c` rows
    and `f` columns, whose cells are the kernels of `h * w` pixels, separated by one pixel.
    """
    # a convolution of one axis has no second axis of pixels: (w, c, f) is (1, w, c, f)
    weight = weight[None] if weight.ndim == 3 else weight
    if weight.ndim == 4:
        height, width, rows, columns = weight.shape
        # NaN becomes black, as every value that is not finite
        cells = np.full((rows, height + 1, columns, width + 1), np.nan)
        cells[:, :height, :, :width] = weight.transpose(2, 0, 3, 1)
        weight = cells.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]
    elif weight.ndim == 2 and weight.shape[0] > weight.shape[1]:
        weight = weight.T
    elif weight.ndim < 2:
        weight = weight.reshape(1, -1)
    return weight if weight.ndim == 2 and 0 < weight.size <= _LARGEST_PICTURE else None


def embeddings_of(model: Layer) -> dict[str, Any]:
    """Returns the layers `Embedding` of a model by path."""
    return {path: layer for path, layer in sublayers(model) if isinstance(layer, Embedding)}


def check_projector(
    where: str, model: Layer, metadata: str | Mapping[str, str] | None
) -> dict[str, str]:
    """Returns the file of metadata of each embedding layer by the layer's path.

    Args:
        metadata: a file for all embedding layers, a file by layer, or None.

    Raises:
        ValueError: for a model without embedding layers, and for a name that is no such layer.
    """
    paths = list(embeddings_of(model))
    if not paths:
        raise ValueError(
            f"{where}: expected a model with layers Embedding, received a model without such layers. "
            "Write embeddings_freq=0."
        )
    if metadata is None or isinstance(metadata, str):
        return dict.fromkeys(paths, metadata) if metadata else {}
    unknown = next((name for name in metadata if name not in paths), None)
    if unknown is not None:
        raise ValueError(
            f"{where}: expected the names of embedding layers in embeddings_metadata, received "
            f"{unknown!r}.{suggest(unknown, paths)} The layers are: {', '.join(paths)}."
        )
    return dict(metadata)


def write_projector(folder: str, model: Layer, metadata: Mapping[str, str]) -> None:
    """Writes the vectors of all embedding layers, and the configuration of the projector.

    Args:
        folder: folder of the logs; `projector_config.pbtxt` and the folder `projector` are written
            there.
    """
    entries = []
    for path, layer in embeddings_of(model).items():
        # one file for each layer, whatever characters its path has
        name = f"projector/{quote(path, safe='')}.tsv"
        with replacing(os.path.join(folder, *name.split("/"))) as file:
            vectors = check_local(layer.embeddings, "TensorBoard", join_path(path, "embeddings"))
            np.savetxt(file, np.asarray(vectors, "float32"), "%.6g", delimiter="\t")
        lines = {"tensor_name": join_path(path, "embeddings"), "tensor_path": name}
        if path in metadata:
            lines["metadata_path"] = metadata[path]
        # texts of the protocol buffer's text form are quoted as in JSON
        body = "".join(
            f"  {key}: {json.dumps(text, ensure_ascii=False)}\n" for key, text in lines.items()
        )
        entries.append(f"embeddings {{\n{body}}}\n")
    with replacing(os.path.join(folder, "projector_config.pbtxt")) as file:
        file.write("".join(entries).encode())

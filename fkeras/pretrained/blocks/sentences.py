"""Sentence embeddings: the pooling of the hidden states in folders of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras import layers, ops
from fkeras.pretrained.blocks.encoder_blocks import Tensor, first_token
from fkeras.pretrained.tables.config import Config

POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
# supported pooling modes, in the order of their concatenation
_MODES = ("cls_token", "max_tokens", "mean_tokens")


def _modes(pooling: Mapping[str, Any]) -> list[str]:
    """Returns the pooling modes of a `1_Pooling/config.json` of any version."""
    modes = [
        key.removeprefix("pooling_mode_")
        for key, value in pooling.items()
        if key.startswith("pooling_mode_") and value
    ]
    # version 5 of sentence-transformers writes the names of the modes
    value = pooling.get("pooling_mode", ())
    names = (value,) if isinstance(value, str) else value
    return modes + [
        next((m for m in _MODES if m.startswith(f"{name}_")), str(name)) for name in names
    ]


def sentence(config: Config, x: Tensor, positions: Tensor) -> Tensor:
    """Records the sentence embedding: pooling, and normalization if the folder has the module.

    Args:
        positions: the positions (b, t) of the tokens, -1 at padding.

    Raises:
        ValueError: for unsupported pooling modes and modules.
    """
    modes = _modes(config.beside[POOLING])
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown or not modes:
        raise ValueError(
            f"{POOLING}: expected the pooling modes {', '.join(_MODES)}, received "
            f"{', '.join(modes) or 'none'}. Remove the file to use the hidden states."
        )
    vectors = []
    for mode in _MODES:
        if mode not in modes:
            continue
        if mode == "mean_tokens":
            vectors.append(layers.GlobalAveragePooling1D(name="mean")(x))
        elif mode == "max_tokens":
            valid = ops.expand_dims(ops.unmask(positions) >= 0, -1)
            vectors.append(ops.max(ops.where(valid, ops.unmask(x), -1e9), axis=1))
        else:
            vectors.append(first_token(x, positions))
    y = vectors[0] if len(vectors) == 1 else layers.Concatenate(name="pooling")(vectors)
    kinds = [str(module["type"]).rpartition(".")[2] for module in config.beside.get(MODULES, ())]
    other = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if other:
        raise ValueError(
            f"{MODULES}: expected the modules Transformer, Pooling and Normalize, received "
            f"{other[0]}. Remove 1_Pooling/config.json to use the hidden states."
        )
    if "Normalize" in kinds:
        y = layers.UnitNormalization(name="normalize")(y)
    return y

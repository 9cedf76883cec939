"""Sentence embeddings: the pooling of the hidden states in folders of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras import layers, ops
from fkeras.authoring.engine import describe_value
from fkeras.pretrained.blocks.encoder_blocks import Tensor, first_token, last_token
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.sentence_files import MODULES as MODULES
from fkeras.pretrained.tables.sentence_files import POOLING as POOLING
from fkeras.pretrained.tables.sentence_files import pooling_file, sentence_steps

# supported pooling modes, in the order of their vectors in files of older versions
_MODES = (
    "cls_token",
    "max_tokens",
    "mean_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)


def _modes(pooling: Mapping[str, Any]) -> list[str]:
    """Returns the pooling modes of a `1_Pooling/config.json` of any version, in the order of their vectors."""
    if "pooling_mode" not in pooling:
        keys = {key for key, value in pooling.items() if key.startswith("pooling_mode_") and value}
        known = [mode for mode in _MODES if f"pooling_mode_{mode}" in keys]
        others = keys - {f"pooling_mode_{mode}" for mode in known}
        return known + sorted(key.removeprefix("pooling_mode_") for key in others)
    # version 5 of sentence-transformers writes the names of the modes
    value = pooling["pooling_mode"]
    names = [value] if isinstance(value, str) else list(value)
    return [
        next((m for m in _MODES if m in (name, f"{name}_token", f"{name}_tokens")), str(name))
        for name in names
    ]


def sentence(config: Config, x: Tensor, positions: Tensor) -> Tensor:
    """Records the sentence embedding: pooling, then the modules Dense and Normalize of the folder.

    Args:
        positions: the positions (b, t) of the tokens, -1 at padding.

    Raises:
        ValueError: for unsupported pooling modes and modules.
    """
    y = _pooled(config, x, positions)
    for step in sentence_steps(config.beside):
        if step is None:
            y = layers.UnitNormalization(name="normalize")(y)
        else:
            dense = layers.Dense(step.units, step.activation, use_bias=step.bias, name=step.name)
            y = dense(y)
    return y


def _pooled(config: Config, x: Tensor, positions: Tensor) -> Tensor:
    file = pooling_file(config.beside) or POOLING
    content = config.beside[file]
    modes = _modes(content)
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown or not modes:
        raise ValueError(
            f"{file}: expected the pooling modes {', '.join(_MODES)}, received "
            f"{', '.join(modes) or 'none'}. Remove the file to use the hidden states."
        )
    if content.get("include_prompt", True) is not True:
        raise ValueError(
            f"{file}: expected include_prompt true, received {describe_value(content['include_prompt'])}: "
            "pooling without the tokens of the prompt is not supported. Remove the file to use the hidden "
            "states."
        )
    vectors = []
    for mode in modes:
        if mode == "mean_tokens":
            vectors.append(layers.GlobalAveragePooling1D(name="mean")(x))
        elif mode == "max_tokens":
            valid = ops.expand_dims(ops.unmask(positions) >= 0, -1)
            vectors.append(ops.max(ops.where(valid, ops.unmask(x), -1e9), axis=1))
        elif mode == "cls_token":
            vectors.append(first_token(x, positions))
        elif mode == "lasttoken":
            vectors.append(last_token(x, positions))
        else:
            # float32: the weights are integers up to the number of tokens
            count = ops.maximum(ops.unmask(positions) + 1, 0)
            count = ops.minimum(count, 1) if mode == "mean_sqrt_len_tokens" else count
            weights = ops.expand_dims(ops.cast(count, "float32"), -1)
            total = ops.maximum(ops.sum(weights, axis=1), 1.0)
            total = ops.sqrt(total) if mode == "mean_sqrt_len_tokens" else total
            vectors.append(ops.sum(ops.cast(ops.unmask(x), "float32") * weights, axis=1) / total)
    return vectors[0] if len(vectors) == 1 else layers.Concatenate(name="pooling")(vectors)

"""The keys of GGUF files that all decoders share, as keys of `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.pretrained.files.gguf import value
from fkeras.saving.weights.weight_source import Stored

_KEYS = (
    ("num_hidden_layers", "block_count", int),
    ("hidden_size", "embedding_length", int),
    ("intermediate_size", "feed_forward_length", int),
    ("num_attention_heads", "attention.head_count", int),
    ("num_key_value_heads", "attention.head_count_kv", int),
    ("head_dim", "attention.key_length", int),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon", float),
    ("rope_theta", "rope.freq_base", float),
    ("max_position_embeddings", "context_length", int),
    ("sliding_window", "attention.sliding_window", int),
)
# scaling factors in use with Llama 3.1 and 3.2, whose other numbers are these
_LLAMA3_FACTORS = (8.0, 16.0, 32.0)
_LLAMA3 = (
    ("low_freq_factor", 1.0),
    ("high_freq_factor", 4.0),
    ("original_max_position_embeddings", 8192),
)


def decoder_keys(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys that a file has, with the vocabulary, the tied head, positions and token ids.

    Raises:
        ValueError: for a missing number of blocks, values of another type, and a missing embedding.
    """
    architecture = metadata["general.architecture"]
    found = {name: value(metadata, f"{architecture}.{key}", kind) for name, key, kind in _KEYS}
    mapping: dict[str, Any] = {name: item for name, item in found.items() if item is not None}
    # single precision: 1e-5 is stored as 9.9999997e-06
    mapping = {
        k: float(np.float32(v).astype(str)) if isinstance(v, float) else v
        for k, v in mapping.items()
    }
    embeddings = tensors.get("token_embd.weight")
    if embeddings is None or len(embeddings.shape) != 2:
        raise ValueError("expected the tensor 'token_embd.weight' (v, d). Convert the model again.")
    for name in ("num_hidden_layers", "num_attention_heads"):
        if name not in mapping:
            raise ValueError(f"expected a key for {name}, received none. Convert the model again.")
    mapping["vocab_size"] = embeddings.shape[0]
    mapping["tie_word_embeddings"] = "output.weight" not in tensors
    for name in ("bos", "eos"):
        token = value(metadata, f"tokenizer.ggml.{name}_token_id", int)
        if token is not None:
            mapping[f"{name}_token_id"] = token
    head = mapping.get("head_dim") or embeddings.shape[1] // mapping["num_attention_heads"]
    turning = value(metadata, f"{architecture}.rope.dimension_count", int)
    if turning is not None and turning != head:
        mapping["partial_rotary_factor"] = turning / head
    scaling = _scaling(metadata, architecture, tensors, mapping, turning or head)
    if scaling is not None:
        mapping["rope_scaling"] = scaling
    return mapping


def _scaling(
    metadata: Mapping[str, Any],
    architecture: str,
    tensors: Mapping[str, Stored],
    mapping: Mapping[str, Any],
    turning: int,
) -> dict[str, Any] | None:
    """Returns `rope_scaling`, by the keys of the file or by its tensors of factors."""
    prefix = f"{architecture}.rope.scaling"
    original = value(metadata, f"{prefix}.original_context_length", int)
    if "rope_freqs.weight" in tensors:
        return _by_factors(tensors["rope_freqs.weight"].read(), mapping, turning)
    if "rope_factors_short.weight" in tensors and "rope_factors_long.weight" in tensors:
        scaling = {
            "rope_type": "longrope",
            "short_factor": tensors["rope_factors_short.weight"].read().tolist(),
            "long_factor": tensors["rope_factors_long.weight"].read().tolist(),
            "attention_factor": value(metadata, f"{prefix}.attn_factor", float),
            "original_max_position_embeddings": original,
        }
        return {key: item for key, item in scaling.items() if item is not None}
    kind = value(metadata, f"{prefix}.type", str, "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(
            f"expected the scaling of rotary positions as none, linear or yarn, received {kind[:80]!r}."
        )
    scaling = {"rope_type": kind, "factor": value(metadata, f"{prefix}.factor", float)}
    if kind == "yarn":
        scaling |= {
            "original_max_position_embeddings": original,
            "beta_fast": value(metadata, f"{prefix}.yarn_beta_fast", float),
            "beta_slow": value(metadata, f"{prefix}.yarn_beta_slow", float),
        }
    return {key: item for key, item in scaling.items() if item is not None}


def _by_factors(factors: np.ndarray, mapping: Mapping[str, Any], turning: int) -> dict[str, Any]:
    """Returns the scaling of a file that stores the divisor of each frequency.

    The usual numbers of Llama 3 are recognized, so that other programs read the written
    configuration; other divisors are written as those of LongRoPE, for short and long texts.
    """
    frequencies = mapping.get("rope_theta", 10000.0) ** (-np.arange(0, turning, 2) / turning)
    for factor in _LLAMA3_FACTORS if factors.shape == frequencies.shape else ():
        options = dict(_LLAMA3)
        turns = options["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        share = np.clip((turns - 1.0) / 3.0, 0.0, 1.0)
        if np.allclose(1 / ((1 - share) / factor + share), factors, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **options}
    return {
        "rope_type": "longrope",
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        "attention_factor": 1.0,
        "original_max_position_embeddings": mapping.get("max_position_embeddings", 2048),
    }

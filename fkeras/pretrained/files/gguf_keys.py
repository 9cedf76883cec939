"""The keys of GGUF files that all decoders share, as keys of `config.json`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fkeras.engine import FrozenDict
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.files.gguf import value

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
_LAYER_NORM = ("layer_norm_eps", "attention.layer_norm_epsilon", float)
# scaling factors in use with Llama 3.1, 3.2 and 4, whose other numbers are these
_LLAMA3_FACTORS = (8.0, 16.0, 32.0)
_LLAMA3_HIGH = (4.0, 1.0)
_LLAMA3 = (("low_freq_factor", 1.0), ("original_max_position_embeddings", 8192))
# keys of an architecture that llama.cpp does not read, or that do not change numbers
_INERT = FrozenDict(
    {
        "the order of channels of the converted checkpoint": ("tensor_data_layout",),
        "whether the checkpoint was trained with its scaling": ("rope.scaling.finetuned",),
        "only decoders with layer normalizations read the key": ("attention.layer_norm_epsilon",),
    }
)
# keys that `decoder_keys` does not read, with the values that change nothing
_WITHOUT_EFFECT = FrozenDict(
    {
        "attention.causal": (True,),
        **dict.fromkeys(("attention.scale", "attention.clamp_kqv"), (0.0,)),
        **dict.fromkeys(("attention.max_alibi_bias", "rope.scaling.alpha"), (0.0,)),
        **dict.fromkeys(("logit_scale", "embedding_scale", "residual_scale"), (0.0, 1.0)),
        **dict.fromkeys(("rope.scaling.attn_factor", "rope.scaling.factor"), (0.0, 1.0)),
        **dict.fromkeys(("expert_weights_scale", "rope.scaling.yarn_attn_factor"), (0.0, 1.0)),
        **dict.fromkeys(("expert_count", "expert_used_count", "expert_shared_count"), (0,)),
        **dict.fromkeys(("leading_dense_block_count", "expert_group_count"), (0,)),
        **dict.fromkeys(("pooling_type", "nextn_predict_layers"), (0,)),
        "use_parallel_residual": (False,),
        # tensors of factors take precedence
        "rope.scaling.type": ("none", "longrope"),
        # softmax
        "expert_gating_func": (0, 1),
    }
)


class ReadKeys(Mapping[str, Any]):
    """The keys and values of a file, with a record of the keys that were read.

    Attributes:
        read: the keys that were read.

    Example:
        >>> keys = ReadKeys({"llama.block_count": 3, "llama.logit_scale": 2.0})
        >>> keys["llama.block_count"], keys.unknown("llama", {})
        (3, {'llama.logit_scale': 2.0})
    """

    def __init__(self, metadata: Mapping[str, Any]):
        self.metadata, self.read = metadata, set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self.metadata[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metadata)

    def __len__(self) -> int:
        return len(self.metadata)

    def unknown(self, architecture: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the unread keys of the architecture that may change the computation.

        llama.cpp computes from no other keys: those of other namespaces name the model, the tokenizer,
        and the programs that wrote the file.

        Args:
            sizes: keys and values that repeat sizes of tensors.
        """
        inert = {key for keys in _INERT.values() for key in keys}
        unknown = {}
        for key in self.metadata.keys() - self.read:
            name, found = key.removeprefix(f"{architecture}."), self.metadata[key]
            effectless = (sizes[name],) if name in sizes else _WITHOUT_EFFECT.get(name, ())
            if name != key and name not in inert and found not in effectless:
                unknown[key] = found
        return dict(sorted(unknown.items()))


def single(number: float) -> float:
    """Returns the shortest decimal number of a float32: 1e-5 is stored as 9.9999997e-06."""
    return float(np.float32(number).astype(str))


def decoder_keys(
    metadata: Mapping[str, Any], tensors: Mapping[str, Stored], layer_norms: bool = False
) -> dict[str, Any]:
    """Returns the keys that a file has, with the vocabulary, the tied head, positions and token ids.

    Args:
        layer_norms: whether the decoder has layer normalizations, with the key `layer_norm_eps`.

    Raises:
        ValueError: for a missing number of blocks, values of another type, and a missing embedding.
    """
    architecture = metadata["general.architecture"]
    keys = (*_KEYS, *((_LAYER_NORM,) if layer_norms else ()))
    found = {name: value(metadata, f"{architecture}.{key}", kind) for name, key, kind in keys}
    mapping: dict[str, Any] = {name: item for name, item in found.items() if item is not None}
    mapping = {k: single(v) if isinstance(v, float) else v for k, v in mapping.items()}
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
    # llama.cpp reads a factor without a type as linear scaling, and the factor of old files
    kind = value(metadata, f"{prefix}.type", str, "linear")
    if kind == "none":
        return None
    factor = value(metadata, f"{prefix}.factor", float)
    if factor is None:
        factor = value(metadata, f"{architecture}.rope.scale_linear", float)
    if kind == "linear" and factor in (None, 0.0, 1.0):
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(
            f"expected the scaling of rotary positions as none, linear or yarn, received {kind[:80]!r}."
        )
    scaling = {"rope_type": kind, "factor": factor}
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
    pairs = itertools.product(_LLAMA3_FACTORS, _LLAMA3_HIGH)
    for factor, high in pairs if factors.shape == frequencies.shape else ():
        options = {**dict(_LLAMA3), "high_freq_factor": high}
        turns = options["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        # Llama 4 has no frequencies between the two
        share = np.clip((turns - 1.0) / 3.0, 0.0, 1.0) if high > 1 else turns > 1
        if np.allclose(1 / ((1 - share) / factor + share), factors, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **options}
    return {
        "rope_type": "longrope",
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        "attention_factor": 1.0,
        "original_max_position_embeddings": mapping.get("max_position_embeddings", 2048),
    }

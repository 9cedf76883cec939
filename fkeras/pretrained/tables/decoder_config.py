"""Base class of the configurations of decoders with rotary positions, such as Llama and Gemma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import boolean, describe_value
from fkeras.engine import FrozenDict, option
from fkeras.pretrained.tables.config import (
    Config,
    block_types,
    check_heads,
    count,
    factor,
    number,
    optional_positive,
    positive,
)

SLIDING, FULL = "sliding_attention", "full_attention"


def _scaling(value: Any) -> Mapping[str, Any] | None:
    """Accepts None or a mapping whose numbers are within the range of float32."""
    if value is None:
        return value
    if not isinstance(value, Mapping):
        raise ValueError(
            f"expected a mapping with the key 'rope_type' or None, received {describe_value(value)}. "
            "Correct config.json."
        )
    for key, item in value.items():
        for entry in item if isinstance(item, list | tuple) else (item,):
            if isinstance(entry, int | float) and not isinstance(entry, bool):
                (factor if entry > 0 else number).check(key, entry)
    return value


class DecoderConfig(Config):
    """Fields that decoders share.

    Args of the family:
        model_type: architecture; keyword only.
        num_attention_heads: number of query heads.
        num_key_value_heads: number of key and value heads; None for the number of query heads.
        head_dim: size of a head; None for `hidden_size / num_attention_heads`.
        max_position_embeddings: context length, from which some kinds of `rope_scaling` are computed.
        rms_norm_eps: epsilon of the RMS normalizations.
        rope_theta: base of the rotary frequencies.
        rope_scaling: scaling of the rotary frequencies: the key "rope_type" and the parameters of that
            type; None for no scaling.
        attention_bias: whether the attention projections have biases.
        sliding_window: window of sliding attention, in tokens.
        layer_types: "full_attention" or "sliding_attention" for each block; None to derive the types
            from the other fields.

    Raises of the family:
        ValueError: for values out of range, a number of query heads that is no multiple of the number of
            key heads, and lists whose length does not match the number of blocks.
    """

    vocab_size: int = option(default=32000, convert=positive)
    hidden_size: int = option(default=4096, convert=positive)
    intermediate_size: int = option(default=11008, convert=positive)
    num_hidden_layers: int = option(default=32, convert=count)
    num_attention_heads: int = option(default=32, convert=positive)
    num_key_value_heads: int | None = option(default=None, convert=optional_positive)
    head_dim: int | None = option(default=None, convert=optional_positive)
    max_position_embeddings: int = option(default=2048, convert=positive)
    rms_norm_eps: float = option(default=1e-6, convert=factor)
    rope_theta: float = option(default=10000.0, convert=factor)
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=_scaling)
    attention_bias: bool = option(default=False, convert=boolean)
    sliding_window: int | None = option(default=None, convert=optional_positive)
    layer_types: tuple[str, ...] | None = option(default=None, convert=block_types(SLIDING, FULL))
    tie_word_embeddings: bool = option(default=False, convert=boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_attention_heads % self.key_heads:
            raise ValueError(
                f"{type(self).__name__}: num_key_value_heads: expected a divisor of num_attention_heads="
                f"{self.num_attention_heads}, received {self.key_heads}. Correct config.json."
            )
        if self.head_dim is None:
            check_heads(self, "num_attention_heads", "hidden_size")
        types = self.layer_types
        if types is not None and len(types) != self.num_hidden_layers:
            raise ValueError(
                f"{type(self).__name__}: layer_types: expected a type for each of "
                f"{self.num_hidden_layers} blocks, received {len(types)}. Correct config.json."
            )

    @property
    def key_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def output_bias(self) -> bool:
        """Whether the output projection of attention has a bias."""
        return self.attention_bias

    @property
    def head_norms(self) -> bool:
        """Whether queries and keys are normalized, head by head."""
        return False

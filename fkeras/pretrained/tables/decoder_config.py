"""Base classes of the configurations of decoders, such as GPT-2, and of decoders with rotary positions, such as Llama."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar

from fkeras.authoring.engine import OptionalInteger, boolean, describe_value, integer, several, text
from fkeras.engine import FrozenDict, option
from fkeras.pretrained.tables.config import (
    block_types,
    check_heads,
    count,
    factor,
    number,
    optional_positive,
    positive,
)
from fkeras.pretrained.tables.heads import TextHeadsConfig
from fkeras.pretrained.tables.inert_keys import Reasons

C = TypeVar("C", bound="CausalConfig")

#: id of the padding token; old files have -1
pad_id = integer(minimum=-1, maximum=2**31 - 1, optional=True)
SLIDING, FULL = "sliding_attention", "full_attention"


def rotary_scaling(value: Any) -> Mapping[str, Any] | None:
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


class CausalConfig(TextHeadsConfig):
    """Fields that all decoders with heads share.

    Args of the family:
        parts: head of the checkpoint: ("causal",) for the logits of the next token, ("classifier",) for
            classes of texts, ("token_classifier",) for classes of tokens, ("answers",) for the first and
            last token of an answer, () for the hidden states. Not a key of `config.json`: `load` derives
            the head from the key `architectures`.
        num_labels: number of classes of the classifier of texts or tokens.
        pad_token_id: id of the padding token: the classifier of texts classifies the last token with another
            id. None for the last token.
    """

    parts: tuple[str, ...] = option(
        default=("causal",), convert=several(text(), "a tuple of names", least=0), kw_only=True
    )
    pad_token_id: OptionalInteger = option(default=None, convert=pad_id, kw_only=True)

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "causal": ("lm_head.weight",),
            "classifier": ("score.weight",),
            "token_classifier": ("score.bias", "classifier.bias"),
            "answers": ("qa_outputs.weight",),
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {"attention to earlier tokens, which a decoder has": ("is_causal",)}
    )

    @classmethod
    def _unknown(cls, mapping: Mapping[str, Any]) -> dict[str, Any]:
        # whether transformers then attends to later tokens depends on the implementation of attention
        refused = {"is_causal": False} if mapping.get("is_causal") is False else {}
        return super()._unknown(mapping) | refused

    @property
    def returns_logits(self) -> bool:
        """Whether the model returns the logits of the next token alone, and not a dictionary."""
        return self.parts == ("causal",) and not self.has_sentence


def with_head(config: C, tensors: Collection[str]) -> C:
    """Returns the configuration with the head of the checkpoint.

    The class in `config.json` names the head, if the file has a class. Folders of sentence-transformers
    often name the class of the language model from which the weights come.
    """
    named = config.named_parts
    found = [
        part
        for part, endings in config.endings.items()
        if any(name.endswith(endings) for name in tensors)
    ]
    if named is None:
        named = (found[-1],) if found else ("causal",)
    if named == ("causal",) and config.has_sentence and "causal" not in found:
        named = ()
    return dataclasses.replace(config, parts=named)


class DecoderConfig(CausalConfig):
    """Fields that decoders with rotary positions share.

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
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=rotary_scaling)
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
        """Whether queries and keys are normalized."""
        return False

    @property
    def joint_norms(self) -> bool:
        """Whether these normalizations take all heads together, not head by head."""
        return False

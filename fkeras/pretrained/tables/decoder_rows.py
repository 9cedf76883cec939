"""Rows of the tables of names that decoders share, and the tensor names of GGUF files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from fkeras.pretrained.tables.decoder_config import CausalConfig, DecoderConfig
from fkeras.pretrained.tables.names import Add, HeadBias, Permuted, Row, Same, Then, Transpose
from fkeras.pretrained.tables.rows import attention_rows, dense_rows, logit_row, token_head_rows
from fkeras.pretrained.tables.sentence_files import sentence_rows

# architectures whose class for answers has the model under another name
_TRANSFORMER = ("llama", "smollm3", "qwen2", "qwen3", "qwen3_moe")
_GGUF_PERMUTED = ("llama", "mistral", "smollm3", "mixtral", "granite")
_GGUF_NAMES = (
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
)


def outer_rows(config: DecoderConfig) -> tuple[Row, ...]:
    """Returns the rows of the embedding, the final norm and the head."""
    return (
        Row("model.embed_tokens.weight", "embedding/embeddings"),
        Row("model.norm.weight", "norm/scale"),
        *decoder_head_rows(config, config.tie_word_embeddings),
    )


def decoder_head_rows(
    config: CausalConfig, tied: bool, token_classifier: str = "score", head: str = "lm_head"
) -> tuple[Row, ...]:
    """Returns the rows of the heads and of the modules of sentence-transformers.

    Args:
        tied: whether the token embeddings are also the kernel of the logits.
        token_classifier: tensor name of the classifier of tokens.
        head: tensor name of the logits of the next token.
    """
    rows = token_head_rows(config.parts, token_classifier)
    if "causal" in config.parts:
        rows = (logit_row(f"{head}.weight", tied), *rows)
    if "classifier" in config.parts:
        rows = (*dense_rows("score", "classifier", bias=False), *rows)
    return (*rows, *sentence_rows(config.beside))


def answer_rows(config: CausalConfig, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Returns the rows with the prefix "transformer.", which classes such as LlamaForQuestionAnswering have."""
    if "answers" not in config.parts or config.model_type not in _TRANSFORMER:
        return rows
    return tuple(
        dataclasses.replace(row, tensors=re.sub(r"^model\.", "transformer.", row.tensors))
        for row in rows
    )


def self_attention_rows(config: DecoderConfig) -> tuple[Row, ...]:
    """Returns the rows of self-attention with separate projections, and of query and key norms."""
    prefix, layer = "model.layers.{i}.self_attn.", "block_{i}/"
    norms = (("query", config.num_attention_heads), ("key", config.key_heads))
    return (
        *attention_rows(
            prefix,
            layer,
            config.num_attention_heads,
            config.head_size,
            ("q_proj", "k_proj", "v_proj", "o_proj"),
            key_heads=config.key_heads,
            bias=config.attention_bias,
            output_bias=config.output_bias,
        ),
        *(
            Row(
                f"{prefix}{part[0]}_norm.weight",
                f"{layer}{part}_norm/scale",
                HeadBias(heads, config.head_size) if config.joint_norms else Same(),
            )
            for part, heads in (norms if config.head_norms else ())
        ),
    )


def gguf_rows(
    config: DecoderConfig, rows: Iterable[Row], more: Iterable[tuple[str, str]] = ()
) -> tuple[Row, ...]:
    """Converts the rows for Hugging Face checkpoints to rows for GGUF files.

    llama.cpp's converter for Llama permutes the kernels of query and key, and stacks the kernels of all experts.

    Args:
        more: additional pairs of a part of a tensor name and the part of the name in GGUF files.
    """
    is_permuted = config.model_type in _GGUF_PERMUTED
    counts = {"q": config.num_attention_heads, "k": config.key_heads}
    renamed = []
    for row in rows:
        first, _, rest = row.tensors.partition(".layers.{i}.")
        tensor = f"blk.{{i}}.{rest}" if rest else first
        operation = row.operation
        if row.experts:
            row, operation = dataclasses.replace(row, experts=0), Transpose()
            tensor = tensor.replace(".{e}", "")
        for old, new in (*more, *_GGUF_NAMES):
            tensor = tensor.replace(old, new)
        heads = counts.get(rest.removeprefix("self_attn.")[:1]) if "_proj." in rest else None
        if is_permuted and heads is not None:
            operation = Then(Permuted(heads), operation)
        renamed.append(dataclasses.replace(row, tensors=tensor, operation=operation))
    return tuple(renamed)


def with_offset(rows: Iterable[Row], offset: float) -> tuple[Row, ...]:
    """Returns rows of a GGUF file, whose norm scales include the number that the layers add."""
    return tuple(
        dataclasses.replace(row, operation=Add(offset)) if offset and "norm" in row.tensors else row
        for row in rows
    )

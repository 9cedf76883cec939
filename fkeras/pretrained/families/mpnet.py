"""MPNet: the graph of BERT with biases of relative positions, which all blocks share."""

from __future__ import annotations

from typing import ClassVar

from fkeras.authoring.engine import Integer, Real, integer
from fkeras.engine import option
from fkeras.pretrained.families import bert
from fkeras.pretrained.tables.config import epsilon, positive
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.rows import dense_rows, token_head_rows
from fkeras.pretrained.tables.sentence_files import sentence_rows

# transformers computes 32 buckets, whatever the size of the table
_BUCKETS = 32


class MPNetConfig(bert.PostNormConfig):
    """Configuration of MPNet: the fields are the keys of `config.json`.

    Args:
        relative_attention_num_buckets: number of buckets of relative positions: 32.
        parts: heads that the checkpoint has, of "pooler", "masked" (masked language model) and
            "classifier" (of texts), "token_classifier" and "answers"; `load` finds them by the tensor names and
            the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.MPNetConfig().relative_attention_num_buckets
        32
    """

    vocab_size: Integer = option(default=30527, convert=positive)
    relative_attention_num_buckets: Integer = option(
        default=_BUCKETS, convert=integer(minimum=_BUCKETS, maximum=_BUCKETS)
    )
    layer_norm_eps: Real = option(default=1e-12, convert=epsilon)

    pooling: ClassVar[tuple[str, ...]] = ("classifier.out_proj.weight",)
    # the padding token has the index 1 in all checkpoints
    first_position: ClassVar[int] = 2
    head_activation = property(lambda self: "gelu")


def names(config: MPNetConfig) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    p, tensors = "mpnet.", ("attn.q", "attn.k", "attn.v", "attn.o")
    relative = f"{p}encoder.relative_attention_bias.weight"
    rows = [
        *bert.embedding_rows(config, p),
        *bert.block_rows(config, p, tensors, "LayerNorm"),
        Row(relative, "position_bias/embeddings"),
    ]
    if "pooler" in config.parts:
        rows += dense_rows(f"{p}pooler.dense", "pooler")
    if "masked" in config.parts:
        rows += bert.masked_rows(config, "lm_head.", "lm_head.", "layer_norm")
    if "classifier" in config.parts:
        rows += dense_rows("classifier.dense", "classifier_dense")
        rows += dense_rows("classifier.out_proj", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


MPNET = Family(
    classes={"mpnet": tuple(f"MPNet{end}" for end in bert.USUAL)},
    config=MPNetConfig,
    names=names,
    tiny=MPNetConfig(**bert.TINY, parts=("masked",), model_type="mpnet"),
    prefix="mpnet.",
    adapted=bert.adapted,
    **bert.COMMON,
)

"""ELECTRA and ALBERT: the graph of BERT with smaller embeddings, which a layer projects to the hidden states.

All blocks of ALBERT share the weights of one block, or of a few. The models return the outputs of BERT.
"replaced" (b, t) of ELECTRA's discriminator is the logit that another token stood at the place;
"sentence_order" of ALBERT has the logits of the order of two sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.authoring.engine import Integer
from fkeras.engine import FrozenDict, option
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.families import bert
from fkeras.pretrained.tables.config import count, positive
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    logit_row,
    norm_rows,
    token_head_rows,
)
from fkeras.pretrained.tables.sentence_files import sentence_rows


class ElectraConfig(bert.BertConfig):
    """Configuration of ELECTRA: the fields are the keys of `config.json`.

    Args:
        embedding_size: size of the embeddings; a layer projects them if `hidden_size` differs.
        type_vocab_size: number of token types.
        position_embedding_type: only "absolute" is supported.
        parts: heads that the checkpoint has, of "masked" (the generator's masked language model),
            "replaced" (the discriminator's logits), "classifier" (of texts), "token_classifier" and "answers";
            "gamma" for old names of the normalizations. `load` finds them by the tensor names and the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ElectraConfig(hidden_size=768).projects
        True
    """

    hidden_size: Integer = option(default=256, convert=positive)
    num_attention_heads: Integer = option(default=4, convert=positive)
    intermediate_size: Integer = option(default=1024, convert=positive)
    embedding_size: Integer = option(default=128, convert=positive, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "options of the heads of multiple choice": (
                "summary_activation",
                "summary_last_dropout",
                "summary_type",
                "summary_use_proj",
            )
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "masked": ("generator_lm_head.bias",),
            "replaced": ("discriminator_predictions.dense.weight",),
            "classifier": ("/classifier.weight", "classifier.out_proj.weight"),
            "token_classifier": (),
            "answers": ("qa_outputs.weight",),
            "gamma": ("embeddings.LayerNorm.gamma",),
        }
    )
    pooling: ClassVar[tuple[str, ...]] = ("classifier.out_proj.weight",)
    has_pooler: ClassVar[bool] = False
    classifier_activation: ClassVar[str] = "gelu"
    head_activation = property(lambda self: "gelu")

    @property
    def projects(self) -> bool:
        """Whether a layer projects the embeddings to the size of the hidden states."""
        return self.embedding_size != self.hidden_size


class AlbertConfig(bert.BertConfig):
    """Configuration of ALBERT: the fields are the keys of `config.json`.

    Args:
        embedding_size: size of the embeddings, which a layer projects to `hidden_size`.
        num_hidden_groups: number of groups of blocks; the blocks of a group share their weights.
        inner_group_num: number of blocks with weights of their own in a group.
        type_vocab_size: number of token types.
        position_embedding_type: only "absolute" is supported.
        parts: heads that the checkpoint has, of "pooler", "masked" (masked language model),
            "sentence_order", "classifier" (of texts), "token_classifier" and "answers"; "bias" if it has the
            old name of the bias of untied logits. `load` finds them by the tensor names and the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.AlbertConfig(num_hidden_layers=4, num_hidden_groups=2).block_order
        (0, 0, 1, 1)
    """

    vocab_size: Integer = option(default=30000, convert=positive)
    hidden_size: Integer = option(default=4096, convert=positive)
    num_attention_heads: Integer = option(default=64, convert=positive)
    intermediate_size: Integer = option(default=16384, convert=positive)
    hidden_act: str = option(default="gelu_new", convert=activation_name)
    embedding_size: Integer = option(default=128, convert=positive, kw_only=True)
    num_hidden_groups: Integer = option(default=1, convert=count, kw_only=True)
    inner_group_num: Integer = option(default=1, convert=count, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "dropout in training": ("classifier_dropout_prob",),
            "options of the first code of ALBERT, which transformers does not read": (
                "down_scale_factor",
                "gap_size",
                "layers_to_keep",
                "net_structure_type",
                "num_memory_blocks",
            ),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "pooler": ("pooler.weight",),
            "masked": ("predictions.bias", "predictions.decoder.bias"),
            "sentence_order": ("/sop_classifier.classifier.weight",),
            "classifier": ("/classifier.weight",),
            "token_classifier": (),
            "answers": ("qa_outputs.weight",),
            "bias": (),
        }
    )
    pooling: ClassVar[tuple[str, ...]] = ("pooler.weight",)
    projects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                "AlbertConfig: num_hidden_groups: expected at most num_hidden_layers="
                f"{self.num_hidden_layers}, received {self.num_hidden_groups}. Correct config.json."
            )

    @property
    def has_pooler(self) -> bool:
        return bool({"pooler", "classifier", "sentence_order"} & {*self.parts})

    @property
    def block_order(self) -> tuple[int, ...]:
        """Indices of the blocks with weights of their own in the order of the calls."""
        inner, size = self.inner_group_num, self.num_hidden_layers / self.num_hidden_groups
        groups = (int(i / size) for i in range(self.num_hidden_layers))
        return tuple(group * inner + n for group in groups for n in range(inner))


def _electra_names(config: ElectraConfig) -> tuple[Row, ...]:
    p = "electra."
    rows = [*bert.embedding_rows(config, p), *bert.block_rows(config, p)]
    if config.projects:
        rows += dense_rows(f"{p}embeddings_project", "embedding_projection")
    if "masked" in config.parts:
        rows += dense_rows("generator_predictions.dense", "head_dense")
        rows += norm_rows("generator_predictions.LayerNorm", "head_norm")
        rows.append(logit_row("generator_lm_head.weight", config.tie_word_embeddings))
        rows.append(Row("generator_lm_head.bias", "head_bias/bias"))
    if "replaced" in config.parts:
        rows += dense_rows("discriminator_predictions.dense", "replaced_dense")
        rows += dense_rows("discriminator_predictions.dense_prediction", "replaced")
    if "classifier" in config.parts:
        rows += dense_rows("classifier.dense", "classifier_dense")
        rows += dense_rows("classifier.out_proj", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


def _albert_names(config: AlbertConfig) -> tuple[Row, ...]:
    n = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    rows = [*bert.embedding_rows(config, "albert.")]
    rows += dense_rows("albert.encoder.embedding_hidden_mapping_in", "embedding_projection")
    for i in range(config.num_hidden_groups * config.inner_group_num):
        group, inner = divmod(i, config.inner_group_num)
        b = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."
        tensors = ("query", "key", "value", "dense")
        rows += attention_rows(f"{b}attention.", f"block_{i}/", *n, tensors)
        rows += norm_rows(f"{b}attention.LayerNorm", f"block_{i}/attention_norm")
        rows += dense_rows(f"{b}ffn", f"block_{i}/mlp_in")
        rows += dense_rows(f"{b}ffn_output", f"block_{i}/mlp_out")
        rows += norm_rows(f"{b}full_layer_layer_norm", f"block_{i}/mlp_norm")
    if config.has_pooler:
        rows += dense_rows("albert.pooler", "pooler")
    if "masked" in config.parts:
        rows += bert.masked_rows(config, "predictions.", "predictions.", "LayerNorm")
    if "sentence_order" in config.parts:
        rows += dense_rows("sop_classifier.classifier", "sentence_order")
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


_TINY: Mapping[str, Any] = FrozenDict({**bert.TINY, "embedding_size": 18, "type_vocab_size": 3})

ELECTRA = Family(
    classes={"electra": tuple(f"Electra{end}" for end in (*bert.USUAL, "ForPreTraining"))},
    config=ElectraConfig,
    names=_electra_names,
    tiny=ElectraConfig(**_TINY, parts=("replaced",), model_type="electra"),
    prefix="electra.",
    adapted=bert.adapted,
    **bert.COMMON,
)
ALBERT = Family(
    classes={"albert": tuple(f"Albert{end}" for end in (*bert.USUAL, "ForPreTraining"))},
    config=AlbertConfig,
    names=_albert_names,
    tiny=AlbertConfig(
        **_TINY,
        num_hidden_groups=2,
        inner_group_num=2,
        parts=("pooler", "masked"),
        model_type="albert",
    ),
    prefix="albert.",
    adapted=bert.adapted,
    **bert.COMMON,
)

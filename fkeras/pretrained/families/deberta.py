"""DeBERTa v2 and v3: a text encoder whose attention scores add products of content and relative position.

The models return a dictionary: "hidden" (b, t, d), and "pooled", "logits" or "classes" if the checkpoint has
that head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fkeras import layers, ops
from fkeras.authoring.engine import Integer, Real, boolean, integer, several, text
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, first_token, norm
from fkeras.pretrained.blocks.heads import token_heads
from fkeras.pretrained.blocks.projections import from_heads, mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.blocks.sentences import sentence
from fkeras.pretrained.families import bert
from fkeras.pretrained.tables.config import count, epsilon, positive
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.rows import dense_rows, norm_rows, token_head_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES, sentence_rows

# options whose other values fkeras does not compute: the values of v3, and the defaults of transformers
_ONLY: Mapping[str, Any] = FrozenDict(
    {
        "relative_attention": True,
        "share_att_key": True,
        "position_biased_input": False,
        "norm_rel_ebd": "layer_norm",
        "legacy": True,
    }
)
_DEFAULTS: Mapping[str, Any] = FrozenDict(
    {
        "relative_attention": False,
        "share_att_key": False,
        "position_biased_input": True,
        "norm_rel_ebd": "none",
        "pos_att_type": (),
    }
)
# content and content, content and position, position and content
_PRODUCTS = 3
_LARGEST = 1 << 15


class DebertaV2Config(bert.PostNormConfig):
    """Configuration of DeBERTa v2 and v3: the fields are the keys of `config.json`.

    Args:
        relative_attention: only True is supported.
        share_att_key: only True is supported: positions have the projections of the content.
        position_biased_input: only False is supported: no position embeddings at the input.
        norm_rel_ebd: only "layer_norm" is supported: the relative position embeddings are normalized.
        legacy: only True is supported: the masked-language-model head of BERT.
        pos_att_type: only ("p2c", "c2p") is supported: both products of content and position.
        position_buckets: number of buckets of distances on each side; 0 or less for no buckets.
        max_relative_positions: largest distance; less than 1 for `max_position_embeddings`.
        type_vocab_size: number of token types: 0.
        pooler_hidden_act: activation of the pooler.
        parts: heads that the checkpoint has, of "pooler", "masked" (masked language model), "classifier" (of
            texts), "token_classifier" and "answers"; "bias" if it has the old name of the bias of untied logits.
            `load` finds them by the tensor names and the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.DebertaV2Config(position_buckets=256).span
        256
    """

    vocab_size: Integer = option(default=128100, convert=positive)
    hidden_size: Integer = option(default=1536, convert=positive)
    num_hidden_layers: Integer = option(default=24, convert=count)
    num_attention_heads: Integer = option(default=24, convert=positive)
    intermediate_size: Integer = option(default=6144, convert=positive)
    layer_norm_eps: Real = option(default=1e-7, convert=epsilon)
    type_vocab_size: Integer = option(default=0, convert=integer(minimum=0, maximum=0))
    relative_attention: bool = option(default=True, convert=boolean, kw_only=True)
    share_att_key: bool = option(default=True, convert=boolean, kw_only=True)
    position_biased_input: bool = option(default=False, convert=boolean, kw_only=True)
    norm_rel_ebd: str = option(default="layer_norm", convert=text(), kw_only=True)
    legacy: bool = option(default=True, convert=boolean, kw_only=True)
    pos_att_type: tuple[str, ...] = option(
        default=("p2c", "c2p"), convert=several(text(), "a list of names", least=0), kw_only=True
    )
    position_buckets: Integer = option(
        default=-1, convert=integer(minimum=-1, maximum=_LARGEST), kw_only=True
    )
    max_relative_positions: Integer = option(
        default=-1, convert=integer(minimum=-1, maximum=_LARGEST), kw_only=True
    )
    pooler_hidden_act: str = option(default="gelu", convert=activation_name, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "dropout in training": ("cls_dropout", "pooler_dropout"),
            "the size of the pooler, which is `hidden_size`": ("pooler_hidden_size",),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "pooler": ("pooler.dense.weight",),
            "masked": ("predictions.bias", "predictions.decoder.bias"),
            "classifier": ("/classifier.weight",),
            "token_classifier": (),
            "answers": ("qa_outputs.weight",),
            "bias": (),
        }
    )
    pooling: ClassVar[tuple[str, ...]] = ("pooler.dense.weight",)

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = {**_DEFAULTS, **super().canonical(mapping)}
        kinds = mapping["pos_att_type"]
        if isinstance(kinds, str):
            mapping["pos_att_type"] = tuple(kind.strip() for kind in kinds.lower().split("|"))
        return mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, value in (*_ONLY.items(), ("pos_att_type", ("c2p", "p2c"))):
            given: Any = getattr(self, key)
            if (tuple(sorted(given)) if isinstance(given, tuple) else given) != value:
                raise ValueError(
                    f"DebertaV2Config: {key}: expected {value!r}, received {str(given)[:80]!r}: fkeras has no "
                    "other DeBERTa models."
                )
        if self.position_buckets == 1:
            raise ValueError(
                "DebertaV2Config: position_buckets: expected at least 2, or 0 for no buckets, received 1. Correct "
                "config.json."
            )
        if self.span > _LARGEST or (
            self.position_buckets > 0 and self.distance <= self.span // 2 + 1
        ):
            raise ValueError(
                f"DebertaV2Config: max_relative_positions: expected at most {_LARGEST}, and more than half of "
                f"position_buckets={self.position_buckets}, received {self.distance}. Correct config.json."
            )

    @property
    def has_pooler(self) -> bool:
        return bool({"pooler", "classifier"} & {*self.parts})

    @property
    def distance(self) -> int:
        """Largest distance."""
        given = self.max_relative_positions
        return given if given > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """Half of the number of relative position embeddings."""
        return self.position_buckets if self.position_buckets > 0 else self.distance


def build(config: DebertaV2Config) -> Model:
    """Returns the graph of a configuration."""
    ids = Input((None,), dtype="int32", name="ids")
    positions = layers.Positions(name="positions")(ids)
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        config.hidden_size,
        tie_weights="masked" not in config.parts or config.tie_word_embeddings,
        name="embedding",
    )
    x = norm(embedding(ids), config.layer_norm_eps, "embedding_norm")
    index = _index(config, ops.unmask(positions))
    # the table does not depend on the rows: one row of the tokens suffices
    table = layers.LearnedTokens(2 * config.span, name="relative")(ops.unmask(x))[:1]
    table = norm(table, config.layer_norm_eps, "relative_norm")
    for block in repeated(lambda i: _block(config), [()] * config.num_hidden_layers):
        x = block([x, index, table])
    outputs = {"hidden": x, **token_heads(config, x)}
    if config.has_pooler:
        y = layers.Dense(config.hidden_size, name="pooler")(first_token(x, positions))
        outputs["pooled"] = activate(config.pooler_hidden_act, y)
    if "masked" in config.parts:
        y = layers.Dense(config.hidden_size, name="head_dense")(x)
        y = norm(activate(config.hidden_act, y), config.layer_norm_eps, "head_norm")
        outputs["logits"] = layers.Bias(name="head_bias")(embedding(y, reverse=True))
    if "classifier" in config.parts:
        y = layers.Dense(config.num_labels, name="classifier")
        outputs["classes"] = y(outputs["pooled"])
    if config.has_sentence:
        outputs["sentence"] = sentence(config, x, positions)
    return Model(ids, outputs, name="deberta")


def _index(config: DebertaV2Config, positions: Tensor) -> Tensor:
    """Records the index of the relative position embedding of each pair: (b, t) -> (b, 1, t, t)."""
    relative = ops.expand_dims(positions, 2) - ops.expand_dims(positions, 1)
    span = config.span
    if config.position_buckets > 0:
        # a table: a program that computes the logarithms rounds the largest distance up or down
        buckets = np.asarray(_buckets(span, config.distance), "int32")
        distances = ops.minimum(ops.absolute(relative), config.distance)
        relative = ops.sign(relative) * ops.take(buckets, distances)
    return ops.expand_dims(ops.clip(relative + span, 0, 2 * span - 1), 1)


def _buckets(span: int, distance: int) -> np.ndarray:
    """Returns the bucket of each distance from 0 to `distance`, as integers in float32.

    Distances up to half of `span` have buckets of their own; larger distances share buckets.
    """
    half = np.float32(span // 2)
    distances = np.arange(distance + 1, dtype="float32")
    far = np.log(np.maximum(distances, half) / half) / np.log(np.float32(distance - 1) / half)
    return np.where(distances <= half, distances, np.ceil(far * (half - 1)) + half)


def _block(config: DebertaV2Config) -> Model:
    heads, width = config.num_attention_heads, config.hidden_size
    size = width // heads
    # "t" ties the axes of the index to the length of the sequence
    x = Input(("t", width), name="x")
    index = Input((1, "t", "t"), dtype="int32", name="index")
    table = Input((2 * config.span, width), batch_size=1, name="table")

    def projection(name: str) -> layers.EinsumDense:
        return layers.EinsumDense(
            "abc,cde->abde",
            (None, heads, size),
            bias_axes="de",
            axis_roles={"d": "heads"},
            name=name,
        )

    project = {name: projection(name) for name in ("query", "key", "value")}
    query, key = project["query"](x), project["key"](x)
    scale = (_PRODUCTS * size) ** -0.5
    content = ops.einsum("bthd,bnhd->bhtn", ops.unmask(query), project["key"](table))
    content = ops.take_along_axis(content, index, axis=-1)
    place = ops.einsum("bshd,bnhd->bhsn", ops.unmask(key), project["query"](table))
    place = ops.take_along_axis(place, ops.transpose(index, (0, 1, 3, 2)), axis=-1)
    bias = (content + ops.transpose(place, (0, 1, 3, 2))) * scale
    attend = layers.DotProductAttention(scale=scale, name="attention")
    y = attend(query, key, project["value"](x), None, bias=bias)
    y = from_heads(y, width, "output", bias=True)
    y = norm(add(x, y, "attention_add"), config.layer_norm_eps, "attention_norm")
    z = mlp(y, config.intermediate_size, config.hidden_act)
    return Model([x, index, table], norm(add(y, z, "mlp_add"), config.layer_norm_eps, "mlp_norm"))


def names(config: DebertaV2Config) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    p = "deberta."
    tensors = ("self.query_proj", "self.key_proj", "self.value_proj", "output.dense")
    rows = [
        Row(f"{p}embeddings.word_embeddings.weight", "embedding/embeddings"),
        *norm_rows(f"{p}embeddings.LayerNorm", "embedding_norm"),
        Row(f"{p}encoder.rel_embeddings.weight", "relative/tokens"),
        *norm_rows(f"{p}encoder.LayerNorm", "relative_norm"),
        *bert.block_rows(config, p, tensors),
    ]
    if config.has_pooler:
        rows += dense_rows("pooler.dense", "pooler")
    if "masked" in config.parts:
        head = "cls.predictions."
        rows += bert.masked_rows(config, head, f"{head}transform.", "LayerNorm")
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


DEBERTA_V2 = Family(
    classes={"deberta-v2": tuple(f"DebertaV2{end}" for end in bert.USUAL)},
    config=DebertaV2Config,
    build=build,
    names=names,
    tiny=DebertaV2Config(
        **bert.TINY,
        position_buckets=8,
        pooler_hidden_act="tanh",
        parts=("pooler", "classifier"),
        model_type="deberta-v2",
    ),
    prefix="deberta.",
    ignored=("*.position_ids", "*.position_embeddings.weight"),
    adapted=bert.adapted,
    files=SENTENCE_FILES,
)

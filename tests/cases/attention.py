"""Rows of the layer table: attention with one head and with several."""

from fkeras import layers, masks
from tests.cases import Case

CASES = (
    Case(layers.Attention(), ([(2, 3, 4), (2, 5, 4)],)),
    Case(
        layers.Attention(use_scale=True, score_mode="concat"),
        ([(2, 3, 4), (2, 5, 6), (2, 5, 4)],),
        {"return_attention_scores": True},
    ),
    Case(
        layers.Attention(use_scale=True, dropout=0.3, seed=1),
        ([(2, 5, 4), (2, 5, 4)],),
        {"use_causal_mask": True},
    ),
    Case(layers.Attention(dropout=0.5), ([(2, 3, 4), (2, 5, 4)],), training=True, keras=False),
    Case(layers.AdditiveAttention(), ([(2, 3, 4), (2, 5, 4)],)),
    Case(
        layers.AdditiveAttention(use_scale=False),
        ([(2, 5, 4), (2, 5, 3), (2, 5, 4)],),
        {"use_causal_mask": True, "return_attention_scores": True},
    ),
    Case(layers.MultiHeadAttention(2, 3), ((2, 4, 6), (2, 5, 7))),
    Case(
        layers.MultiHeadAttention(
            3,
            2,
            use_bias=False,
            output_shape=(2, 3),
            sliding_window=2,
            kernel_regularizer="l2",
            kernel_constraint="max_norm",
            use_gate=True,
        ),
        ((2, 4, 6), (2, 4, 7), (2, 4, 5)),
        {"use_causal_mask": True},
    ),
    Case(
        layers.MultiHeadAttention(
            2, 3, 4, 0.5, bias_initializer="ones", bias_regularizer="l1", seed=2
        ),
        ((2, 4, 6), (2, 5, 6)),
        {"return_attention_scores": True},
    ),
    Case(layers.MultiHeadAttention(2, 2, attention_axes=(2, 1)), ((2, 3, 4, 5), (2, 2, 3, 5))),
    Case(
        layers.MultiHeadAttention(2, 3, dropout=0.5),
        ((2, 4, 6), (2, 4, 6)),
        {"use_causal_mask": True},
        training=True,
        keras=False,
    ),
    Case(layers.GroupQueryAttention(3, 4, 2), ((2, 4, 6), (2, 5, 6))),
    Case(
        layers.GroupQueryAttention(
            2, 4, 1, dropout=0.2, sliding_window=3, use_gate=True, bias_initializer="ones"
        ),
        ((2, 4, 6), (2, 4, 6), (2, 4, 5)),
        {"use_causal_mask": True, "return_attention_scores": True},
    ),
    Case(
        layers.TokenAndPositionEmbedding(9, 6, 4, mask_zero=True),
        (("int32", (2, 5), 9),),
        keras=False,
    ),
    Case(
        layers.TokenAndPositionEmbedding(9, 7, 4, tie_weights=False),
        (("int32", (2, 5), 9), ("int32", (2, 5), 7)),
        keras=False,
    ),
    Case(layers.TransformerEncoder(5, 2), ((2, 4, 6),), mask=(2, 4), keras=False),
    Case(
        layers.TransformerEncoder(5, 2, 0.5, activation="gelu", normalize_first=True),
        ((2, 4, 6),),
        training=True,
        keras=False,
    ),
    Case(layers.TransformerDecoder(5, 2), ((2, 4, 6),), keras=False),
    Case(
        layers.TransformerDecoder(5, 3, normalize_first=True, layer_norm_epsilon=1e-3),
        ((2, 4, 6), (2, 3, 5)),
        {"use_causal_mask": False},
        keras=False,
    ),
    Case(
        layers.RelativePositionBias(2, 8, 12),
        (("int32", (2, 4), 20), ("int32", (2, 5), 20)),
        keras=False,
    ),
    Case(
        layers.RelativePositionBias(3, 6, 12, bidirectional=False, embeddings_initializer="ones"),
        (("int32", (2, 4), 20),),
        keras=False,
    ),
    Case(layers.Positions(), (("int32", (2, 5), 9), ("int32", (2, 5), 3)), keras=False),
    Case(
        layers.RotaryEmbedding(
            100.0, partial=0.5, interleaved=True, scaling=layers.rotary.Llama3(8.0, 1.0, 4.0, 16)
        ),
        ([(2, 5, 4, 8), (2, 5, 2, 8)], ("int32", (2, 5), 40)),
        keras=False,
    ),
    Case(layers.SinePositionEncoding(100.0), ((2, 5, 6),), keras=False),
    Case(layers.PositionEmbedding(7), ((2, 5, 6), ("int32", (2, 5), 7)), keras=False),
    Case(
        layers.DotProductAttention(masks.Causal() & masks.Window(3), soft_cap=2.0, scale=0.4),
        ((2, 5, 4, 6), (2, 5, 2, 6), (2, 5, 2, 3), ("int32", (2, 5), 9)),
        keras=False,
    ),
    Case(
        layers.DotProductAttention(use_sinks=True, sinks_initializer="glorot_uniform"),
        ((2, 5, 4, 6), (2, 5, 2, 6), (2, 5, 2, 3)),
        keras=False,
    ),
    Case(
        layers.DotProductAttention(dropout=0.3, seed=1, cache="int8"),
        ((2, 3, 4, 6), (2, 5, 4, 6), (2, 5, 4, 6)),
        training=True,
        keras=False,
    ),
)

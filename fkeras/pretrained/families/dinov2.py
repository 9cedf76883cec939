"""DINOv2, with and without registers: vision transformers with layer scales.

The models return a dictionary: "hidden" (b, t, d), "pooled", which is the hidden state of the class token, and
"classes" if the checkpoint has the classifier. A backbone also has a feature map (b, rows, columns, d) for each
stage, such as "stage4". A model with a mask token has a second, optional input: "masked" (b, rows, columns), True
for each patch that the mask token replaces.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, cast

from fkeras import layers, ops
from fkeras.authoring.engine import (
    Integer,
    Real,
    boolean,
    integer,
    several,
    text,
)
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.encoder_blocks import (
    Tensor,
    pre_norm_states,
)
from fkeras.pretrained.blocks.encoder_config import with_parts
from fkeras.pretrained.families.vit import (
    COMMON,
    LARGEST_SIDE,
    TINY,
    VisionConfig,
    embedding_rows,
    head_rows,
    patches,
)
from fkeras.pretrained.tables.config import (
    number,
    whole_factor,
)
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Reshape, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    dense_rows,
    fused_mlp_rows,
    norm_rows,
)

_stages = several(text(), "a list of names of stages", least=0, optional=True)
_indices = several(integer(), "a list of integers", least=0, optional=True)


class Dinov2Config(VisionConfig):
    """Configuration of DINOv2: the fields are the keys of `config.json`.

    Args:
        mlp_ratio: hidden size of the MLP, divided by `hidden_size`.
        layerscale_value: initial value of the layer scales.
        use_swiglu_ffn: whether the MLP is a SwiGLU.
        num_register_tokens: number of register tokens after the class token.
        out_features: stages whose feature maps a backbone returns: "stem" for the embeddings, "stage1" for the
            output of the first block, and so on; None for the last stage.
        out_indices: the same stages as numbers, where 0 is the stem; negative numbers count from the end.
        apply_layernorm: whether the feature maps are normalized.
        reshape_hidden_states: whether a feature map is (b, rows, columns, d), without class token and
            registers, and not (b, t, d).
        parts: parts that the checkpoint has, of "mask_token" and "classifier", which `load` finds by the
            tensor names; "maps" for a backbone, which `load` finds by the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.Dinov2Config(mlp_ratio=4, use_swiglu_ffn=True).inner
        2048
    """

    mlp_ratio: Real = option(default=4, convert=whole_factor)
    qkv_bias: bool = option(default=True, convert=boolean)
    layerscale_value: Real = option(default=1.0, convert=number)
    use_swiglu_ffn: bool = option(default=False, convert=boolean)
    num_register_tokens: Integer = option(
        default=0, convert=integer(minimum=0, maximum=LARGEST_SIDE)
    )

    out_features: tuple[str, ...] | None = option(default=None, convert=_stages, kw_only=True)
    out_indices: tuple[int, ...] | None = option(default=None, convert=_indices, kw_only=True)
    apply_layernorm: bool = option(default=True, convert=boolean, kw_only=True)
    reshape_hidden_states: bool = option(default=True, convert=boolean, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "names that follow from the number of blocks": ("stage_names",),
            "regularization in training": ("drop_path_rate",),
            "the tensors have the mask token": ("use_mask_token",),
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"dinov2": ("num_register_tokens",)}
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "mask_token": ("embeddings.mask_token",),
            "classifier": ("classifier.weight",),
            "maps": (),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stages()

    def stages(self) -> tuple[int, ...]:
        """Returns the numbers of the stages whose feature maps a backbone returns.

        Raises:
            ValueError: for stages that the model lacks, in another order, or that the two fields give differently.
        """
        blocks = range(1, cast(int, self.num_hidden_layers) + 1)
        names = ["stem", *(f"stage{n}" for n in blocks)]
        count = len(names)
        given = [
            [names.index(name) if name in names else count for name in self.out_features or ()],
            [n + count if n < 0 else n for n in self.out_indices or ()],
        ]
        given = [numbers for numbers in given if numbers]
        stages = tuple(given[0] if given else [count - 1])
        is_ordered = list(stages) == sorted({*stages} & {*range(count)})
        if not is_ordered or any(numbers != given[0] for numbers in given):
            raise ValueError(
                f"{type(self).__name__}: out_features and out_indices: expected equal stages among "
                f"{names[0]}, {names[1]}, ..., {names[-1]} in this order, received "
                f"{str(self.out_features)[:80]} and {str(self.out_indices)[:80]}. Correct config.json."
            )
        return stages

    @property
    def inner(self) -> int:
        """Hidden size of the MLP."""
        width = int(self.hidden_size * self.mlp_ratio)
        # two thirds, rounded up to a multiple of 8: a gated MLP has three matrices instead of two
        return (int(width * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else width


class Dinov2RegistersConfig(Dinov2Config):
    """Configuration of DINOv2 with registers; other fields are those of `Dinov2Config`.

    Args:
        num_register_tokens: number of register tokens after the class token.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.Dinov2RegistersConfig().num_register_tokens
        4
    """

    num_register_tokens: Integer = option(
        default=4, convert=integer(minimum=0, maximum=LARGEST_SIDE)
    )


def _build_dinov2(config: Dinov2Config) -> Model:
    registers = config.num_register_tokens
    images, x = patches(config)
    inputs: Any = images
    patched = x
    if "mask_token" in config.parts:
        masked = Input((None, None), dtype="bool", name="masked", optional=True)
        x = layers.MaskedPatches(name="mask_token")(x, masked)
        inputs = [images, masked]
    # transformers antialiases resized position embeddings only in the model with registers
    antialias = isinstance(config, Dinov2RegistersConfig)
    x = layers.PatchSequence(config.grid, 1, antialias, name="sequence")(x)
    if registers:
        tokens = layers.LearnedTokens(registers, name="registers")(x)
        x = layers.Concatenate(axis=1, name="register_tokens")([x[:, :1], tokens, x[:, 1:]])
    states = pre_norm_states(
        x,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.inner,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
        bias=config.qkv_bias,
        gated=config.use_swiglu_ffn,
        layer_scale=config.layerscale_value,
    )
    normalize = layers.LayerNormalization(epsilon=config.layer_norm_eps, name="norm")
    x = normalize(states[-1])
    outputs = {"hidden": x, "pooled": x[:, 0]}
    for n in config.stages() if "maps" in config.parts else ():
        y = normalize(states[n]) if config.apply_layernorm else states[n]
        if config.reshape_hidden_states:
            y = ops.take(y, _places(patched, 1 + registers), axis=1)
        outputs[f"stage{n}" if n else "stem"] = y
    if "classifier" in config.parts:
        mean = ops.mean(x[:, 1 + registers :], axis=1)
        y = layers.Concatenate(name="features")([outputs["pooled"], mean])
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(y)
    return Model(inputs, outputs, name="dinov2")


def _places(patched: Tensor, prefix: int) -> Tensor:
    """Returns the index (rows, columns) of each patch in the sequence, after `prefix` other tokens."""
    ones = ops.cast(ops.ones_like(patched[0, :, :, 0]), "int32")
    row, column = ops.cumsum(ones, axis=0) - 1, ops.cumsum(ones, axis=1) - 1
    return row * ops.sum(ones, axis=1, keepdims=True) + column + prefix


def _dinov2_adapted(config: Dinov2Config, tensors: Collection[str]) -> Dinov2Config:
    """Returns the configuration with its parts; a backbone has the tensors of a model without head."""
    config = with_parts(config, tensors)
    if config.named_parts != ("maps",):
        return config
    return dataclasses.replace(config, parts=(*config.parts, "maps"))


def _dinov2_names(config: Dinov2Config, current: bool = False) -> tuple[Row, ...]:
    """Returns the table of names of checkpoints; with `current` of the modules of transformers 5."""
    registers, width = config.num_register_tokens, config.hidden_size
    p = "dinov2_with_registers." if isinstance(config, Dinov2RegistersConfig) else "dinov2."
    b = f"{p}encoder.layer.{{i}}."
    if config.use_swiglu_ffn and current:
        parts = ("gate", "up", "down")
        mlp_rows = [r for n in parts for r in dense_rows(f"{b}mlp.{n}_proj", f"block_{{i}}/{n}")]
    elif config.use_swiglu_ffn:
        gates = fused_mlp_rows(f"{b}mlp.weights_in.", "block_{i}/", config.inner)
        mlp_rows = (*gates, *dense_rows(f"{b}mlp.weights_out", "block_{i}/down"))
    else:
        names = (("fc1", "mlp_in"), ("fc2", "mlp_out"))
        mlp_rows = [r for t, n in names for r in dense_rows(f"{b}mlp.{t}", f"block_{{i}}/{n}")]
    rows = [*embedding_rows(config, f"{p}embeddings."), *norm_rows(f"{p}layernorm", "norm")]
    if "mask_token" in config.parts:
        shape = Reshape((1, width), (width,))
        rows.append(Row(f"{p}embeddings.mask_token", "mask_token/token", shape))
    if registers:
        shape = Reshape((1, registers, width), (registers, width))
        rows.append(Row(f"{p}embeddings.register_tokens", "registers/tokens", shape))
    rows += in_blocks(
        range(config.num_hidden_layers),
        *norm_rows(f"{b}norm1", "block_{i}/attention_norm"),
        *head_rows(config, config.qkv_bias, f"{b}attention.", current),
        Row(f"{b}layer_scale1.lambda1", "block_{i}/attention_scale/gamma"),
        *norm_rows(f"{b}norm2", "block_{i}/mlp_norm"),
        *mlp_rows,
        Row(f"{b}layer_scale2.lambda1", "block_{i}/mlp_scale/gamma"),
    )
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    return tuple(rows)


DINOV2 = Family(
    classes={"dinov2": ("Dinov2Model", "Dinov2ForImageClassification", "Dinov2Backbone")},
    config=Dinov2Config,
    build=_build_dinov2,
    names=_dinov2_names,
    modules=functools.partial(_dinov2_names, current=True),
    tiny=Dinov2Config(
        **TINY,
        mlp_ratio=2,
        use_swiglu_ffn=True,
        layerscale_value=0.7,
        parts=("mask_token",),
        model_type="dinov2",
    ),
    prefix="dinov2.",
    adapted=_dinov2_adapted,
    **COMMON,
)
DINOV2_REGISTERS = Family(
    classes={
        "dinov2_with_registers": (
            "Dinov2WithRegistersModel",
            "Dinov2WithRegistersForImageClassification",
            "Dinov2WithRegistersBackbone",
        )
    },
    config=Dinov2RegistersConfig,
    build=_build_dinov2,
    names=_dinov2_names,
    modules=functools.partial(_dinov2_names, current=True),
    tiny=Dinov2RegistersConfig(
        **TINY,
        mlp_ratio=3,
        hidden_act="gelu_new",
        num_register_tokens=3,
        qkv_bias=False,
        parts=("mask_token",),
        model_type="dinov2_with_registers",
    ),
    prefix="dinov2_with_registers.",
    adapted=_dinov2_adapted,
    **COMMON,
)

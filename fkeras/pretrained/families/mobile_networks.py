"""EfficientNet and MobileNet of timm: blocks that expand the channels, filter each channel and project back.

A network is described by its stages: rows of equal blocks, with the widths and depths that factors scale. The outputs
are those of `convnets.py`; "hidden" is the last feature map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fkeras import layers, ops
from fkeras.engine import FrozenDict, Input, Model
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.tables.names import Convolution, Operation, Reshape, Row, Then, Transpose
from fkeras.pretrained.tables.rows import dense_rows, norm_rows


class _Blocks(NamedTuple):
    """Equal blocks of a stage.

    Attributes:
        kind: "inverted" expands by a convolution of one pixel and filters each channel; "separable" only filters;
            "fused" expands by a convolution of `size`; "plain" is one convolution.
        count: number of blocks.
        size: kernel size.
        stride: stride of the first block.
        growth: factor of the channels between expansion and projection.
        width: number of output channels.
        gates: whether a network over the mean of all pixels weights the channels.
        activation: activation, if it differs from that of the network.
    """

    kind: str
    count: int
    size: int
    stride: int
    growth: float
    width: int
    gates: bool = False
    activation: str | None = None


class _Table(NamedTuple):
    """The stages of a type of networks.

    Attributes:
        stem: number of channels of the first convolution.
        head: number of channels of the last convolution.
        stages: rows of blocks for each stage.
        activation: activation of the network.
        pools_first: whether the last convolution follows the pooling; it then has a bias and no normalization.
        rounds_gates: whether the hidden size of the gates is a fraction of the expanded channels, rounded to a
            multiple of 8, and the gates are piecewise linear; otherwise a fraction of the input channels.
    """

    stem: int
    head: int
    stages: tuple[tuple[_Blocks, ...], ...]
    activation: str
    pools_first: bool = False
    rounds_gates: bool = False


def _stages(
    rows: tuple[tuple[str, int, int, int, float, int, bool], ...],
) -> tuple[tuple[_Blocks, ...], ...]:
    return tuple((_Blocks(*row),) for row in rows)


_INVERTED, _SEPARABLE, _FUSED, _PLAIN = "inverted", "separable", "fused", "plain"
_FIRST = _Table(
    32,
    1280,
    _stages(
        (
            (_SEPARABLE, 1, 3, 1, 1, 16, True),
            (_INVERTED, 2, 3, 2, 6, 24, True),
            (_INVERTED, 2, 5, 2, 6, 40, True),
            (_INVERTED, 3, 3, 2, 6, 80, True),
            (_INVERTED, 3, 5, 1, 6, 112, True),
            (_INVERTED, 4, 5, 2, 6, 192, True),
            (_INVERTED, 1, 3, 1, 6, 320, True),
        )
    ),
    "silu",
)
_MOBILE_2 = _Table(
    32,
    1280,
    _stages(
        (
            (_SEPARABLE, 1, 3, 1, 1, 16, False),
            (_INVERTED, 2, 3, 2, 6, 24, False),
            (_INVERTED, 3, 3, 2, 6, 32, False),
            (_INVERTED, 4, 3, 2, 6, 64, False),
            (_INVERTED, 3, 3, 1, 6, 96, False),
            (_INVERTED, 3, 3, 2, 6, 160, False),
            (_INVERTED, 1, 3, 1, 6, 320, False),
        )
    ),
    "relu6",
)
_SECOND_S = _Table(
    24,
    1280,
    _stages(
        (
            (_PLAIN, 2, 3, 1, 1, 24, False),
            (_FUSED, 4, 3, 2, 4, 48, False),
            (_FUSED, 4, 3, 2, 4, 64, False),
            (_INVERTED, 6, 3, 2, 4, 128, True),
            (_INVERTED, 9, 3, 1, 6, 160, True),
            (_INVERTED, 15, 3, 2, 6, 256, True),
        )
    ),
    "silu",
)
_SECOND_M = _Table(
    24,
    1280,
    _stages(
        (
            (_PLAIN, 3, 3, 1, 1, 24, False),
            (_FUSED, 5, 3, 2, 4, 48, False),
            (_FUSED, 5, 3, 2, 4, 80, False),
            (_INVERTED, 7, 3, 2, 4, 160, True),
            (_INVERTED, 14, 3, 1, 6, 176, True),
            (_INVERTED, 18, 3, 2, 6, 304, True),
            (_INVERTED, 5, 3, 1, 6, 512, True),
        )
    ),
    "silu",
)
_SECOND_L = _Table(
    32,
    1280,
    _stages(
        (
            (_PLAIN, 4, 3, 1, 1, 32, False),
            (_FUSED, 7, 3, 2, 4, 64, False),
            (_FUSED, 7, 3, 2, 4, 96, False),
            (_INVERTED, 10, 3, 2, 4, 192, True),
            (_INVERTED, 19, 3, 1, 6, 224, True),
            (_INVERTED, 25, 3, 2, 6, 384, True),
            (_INVERTED, 7, 3, 1, 6, 640, True),
        )
    ),
    "silu",
)
_SMALL = _Table(
    16,
    1024,
    (
        (_Blocks(_SEPARABLE, 1, 3, 2, 1, 16, True, "relu"),),
        (
            _Blocks(_INVERTED, 1, 3, 2, 4.5, 24, False, "relu"),
            _Blocks(_INVERTED, 1, 3, 1, 3.67, 24, False, "relu"),
        ),
        (_Blocks(_INVERTED, 1, 5, 2, 4, 40, True), _Blocks(_INVERTED, 2, 5, 1, 6, 40, True)),
        (_Blocks(_INVERTED, 2, 5, 1, 3, 48, True),),
        (_Blocks(_INVERTED, 3, 5, 2, 6, 96, True),),
        (_Blocks(_PLAIN, 1, 1, 1, 1, 576),),
    ),
    "hard_silu",
    pools_first=True,
    rounds_gates=True,
)
_LARGE = _Table(
    16,
    1280,
    (
        (_Blocks(_SEPARABLE, 1, 3, 1, 1, 16, False, "relu"),),
        (
            _Blocks(_INVERTED, 1, 3, 2, 4, 24, False, "relu"),
            _Blocks(_INVERTED, 1, 3, 1, 3, 24, False, "relu"),
        ),
        (_Blocks(_INVERTED, 3, 5, 2, 3, 40, True, "relu"),),
        (
            _Blocks(_INVERTED, 1, 3, 2, 6, 80),
            _Blocks(_INVERTED, 1, 3, 1, 2.5, 80),
            _Blocks(_INVERTED, 2, 3, 1, 2.3, 80),
        ),
        (_Blocks(_INVERTED, 2, 3, 1, 6, 112, True),),
        (_Blocks(_INVERTED, 3, 5, 2, 6, 160, True),),
        (_Blocks(_PLAIN, 1, 1, 1, 1, 960),),
    ),
    "hard_silu",
    pools_first=True,
    rounds_gates=True,
)
_EFFICIENT = (1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4), (1.4, 1.8), (1.6, 2.2), (1.8, 2.6)
_SIZES = ("050", 0.5), ("075", 0.75), ("100", 1.0)
#: stages, and the factors of widths and depths, of each architecture without the prefix "tf_"
_ROWS: Mapping[str, tuple[_Table, float, float]] = FrozenDict(
    {
        **{
            f"efficientnet_b{n}": (_FIRST, *factors)
            for n, factors in enumerate((*_EFFICIENT, (2.0, 3.1), (2.2, 3.6)))
        },
        "efficientnetv2_s": (_SECOND_S, 1.0, 1.0),
        "efficientnetv2_m": (_SECOND_M, 1.0, 1.0),
        "efficientnetv2_l": (_SECOND_L, 1.0, 1.0),
        **{f"mobilenetv2_{name}": (_MOBILE_2, size, 1.0) for name, size in _SIZES},
        "mobilenetv2_140": (_MOBILE_2, 1.4, 1.0),
        **{f"mobilenetv3_small_{name}": (_SMALL, size, 1.0) for name, size in _SIZES},
        **{f"mobilenetv3_large_{name}": (_LARGE, size, 1.0) for name, size in _SIZES[1:]},
    }
)
_TF = tuple(
    name for name in _ROWS if not name.startswith("mobilenetv2") and not name.endswith("_050")
)
#: names of the architectures; those with the prefix "tf_" pad and normalize like TensorFlow
NAMES = (*_ROWS, *(f"tf_{name}" for name in _TF))


class _Block(NamedTuple):
    """A block with its sizes; `place` is its place in timm's names, such as "1.0"."""

    place: str
    kind: str
    size: int
    stride: int
    before: int
    inner: int
    width: int
    gates: int
    activation: str

    @property
    def filtered(self) -> int:
        """Number of channels before the projection."""
        return self.before if self.kind == _SEPARABLE else self.inner


class Network(NamedTuple):
    """An architecture with its head.

    Attributes:
        name: name of the architecture.
        num_labels: number of classes.
        has_classifier: whether the network has the classifier.
    """

    name: str
    num_labels: int
    has_classifier: bool

    @property
    def is_tf(self) -> bool:
        """Whether convolutions pad like TensorFlow's."""
        return self.name.startswith("tf_")

    @property
    def table(self) -> _Table:
        """The stages."""
        return self._row[0]

    @property
    def _row(self) -> tuple[_Table, float, float]:
        return _ROWS[self.name.removeprefix("tf_")]

    @property
    def stem_size(self) -> int:
        """Number of channels of the first convolution."""
        table, factor, _ = self._row
        # narrow networks of MobileNet v3 keep their first convolution
        return table.stem if table.pools_first and factor < 0.75 else _whole(table.stem * factor)

    @property
    def head_size(self) -> int:
        """Number of channels of the last convolution."""
        table, factor, _ = self._row
        if table.pools_first:
            return table.head
        scaled = _whole(table.head * factor)
        return max(scaled, table.head) if table is _MOBILE_2 else scaled

    def blocks(self) -> Iterator[_Block]:
        """Yields the blocks."""
        table, factor, depth = self._row
        before = self.stem_size
        for stage, rows in enumerate(table.stages):
            index = 0
            for row in rows:
                for number in range(math.ceil(row.count * depth)):
                    inner, width = _whole(before * row.growth), _whole(row.width * factor)
                    # a separable block has a growth of 1
                    gates = before if row.kind == _SEPARABLE else inner
                    if table.rounds_gates:
                        gates = _whole(gates * 0.25)
                    else:
                        gates = round(gates * 0.25 / row.growth)
                    yield _Block(
                        f"{stage}.{index}",
                        row.kind,
                        row.size,
                        1 if number else row.stride,
                        before,
                        inner,
                        width,
                        gates if row.gates else 0,
                        row.activation or table.activation,
                    )
                    before, index = width, index + 1


def _whole(size: float) -> int:
    """Returns the nearest multiple of 8 that is not more than 10 % smaller."""
    rounded = max(8, int(size + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * size else rounded


def _activated(name: str, x: Tensor) -> Tensor:
    functions = {"silu": ops.silu, "relu": ops.relu, "relu6": ops.relu6, "hard_silu": ops.hard_silu}
    return functions[name](x)


def build(network: Network) -> Model:
    """Returns the graph: images (b, h, w, 3) -> a dictionary."""
    table, kinds = network.table, [block[1:] for block in network.blocks()]
    images = Input((None, None, 3), name="images")
    x = _convolution(network, images, network.stem_size, 3, 2, "stem", table.activation)
    blocks = [*network.blocks()]
    for block in repeated(lambda i: _block(network, blocks[i]), kinds):
        x = block(x)
    if table.pools_first:
        pooled = layers.GlobalAveragePooling2D(name="pool")(x)
        pooled = _activated(table.activation, layers.Dense(network.head_size, name="head")(pooled))
    else:
        x = _convolution(network, x, network.head_size, 1, 1, "head", table.activation)
        pooled = layers.GlobalAveragePooling2D(name="pool")(x)
    outputs = {"hidden": x, "pooled": pooled}
    if network.has_classifier:
        outputs["classes"] = layers.Dense(network.num_labels, name="classifier")(pooled)
    return Model(images, outputs, name=network.name)


def _convolution(
    network: Network,
    x: Tensor,
    width: int,
    size: int,
    stride: int,
    name: str,
    activation: str | None = None,
    groups: int = 1,
) -> Tensor:
    """Records a convolution, batch normalization and an activation."""
    padding = "same"
    if stride > 1 and not network.is_tf:
        # padding="same" would pad at the end only
        x, padding = layers.ZeroPadding2D(size // 2, name=f"{name}_padding")(x), "valid"
    convolution = layers.Conv2D(
        width, size, stride, padding, groups=groups, use_bias=False, name=f"{name}_conv"
    )
    epsilon = 1e-3 if network.is_tf else 1e-5
    x = layers.BatchNormalization(epsilon=epsilon, momentum=0.9, name=f"{name}_norm")(
        convolution(x)
    )
    return x if activation is None else _activated(activation, x)


def _block(network: Network, block: _Block) -> Model:
    x = y = Input((None, None, block.before), name="x")
    size, stride, activation = block.size, block.stride, block.activation
    if block.kind == _PLAIN:
        y = _convolution(network, y, block.width, size, stride, "expand", activation)
    elif block.kind == _FUSED:
        y = _convolution(network, y, block.inner, size, stride, "expand", activation)
    else:
        if block.kind == _INVERTED:
            y = _convolution(network, y, block.inner, 1, 1, "expand", activation)
        inner = block.filtered
        y = _convolution(network, y, inner, size, stride, "filter", activation, inner)
    if block.gates:
        y = _gated(network, block, y)
    if block.kind != _PLAIN:
        y = _convolution(network, y, block.width, 1, 1, "project")
    is_residual = stride == 1 and block.before == block.width
    return Model(x, add(x, y, "add") if is_residual else y)


def _gated(network: Network, block: _Block, y: Tensor) -> Tensor:
    piecewise = network.table.rounds_gates
    z = layers.GlobalAveragePooling2D(keepdims=True, name="gate_pool")(y)
    z = layers.Dense(block.gates, name="gate_in")(z)
    z = _activated("relu" if piecewise else block.activation, z)
    activation = "hard_sigmoid" if piecewise else "sigmoid"
    gates = layers.Dense(block.filtered, activation, name="gate_out")(z)
    return layers.Multiply(name="gated")([y, gates])


#: names of the convolutions and normalizations of each kind of block, in timm and in the graph
_PARTS: Mapping[str, tuple[tuple[str, str, str], ...]] = FrozenDict(
    {
        _INVERTED: (
            ("conv_pw", "bn1", "expand"),
            ("conv_dw", "bn2", "filter"),
            ("conv_pwl", "bn3", "project"),
        ),
        _SEPARABLE: (("conv_dw", "bn1", "filter"), ("conv_pw", "bn2", "project")),
        _FUSED: (("conv_exp", "bn1", "expand"), ("conv_pwl", "bn2", "project")),
        _PLAIN: (("conv", "bn1", "expand"),),
    }
)


def names(network: Network) -> tuple[Row, ...]:
    """Returns the table of names of timm's checkpoints."""
    rows, width = [*_rows("", "conv_stem", "bn1", "stem")], network.stem_size
    for i, block in enumerate(network.blocks()):
        prefix, layer = f"blocks.{block.place}.", f"block_{i}/"
        for convolution, normalization, name in _PARTS[block.kind]:
            rows += _rows(prefix, convolution, normalization, layer + name)
        width = block.width
        if block.gates:
            sizes = block.gates, block.filtered
            for name, tensor, kernel in (
                ("gate_in", "se.conv_reduce", _of_pixels(*sizes)),
                ("gate_out", "se.conv_expand", _of_pixels(*sizes[::-1])),
            ):
                rows += dense_rows(prefix + tensor, layer + name, kernel=kernel)
    if network.table.pools_first:
        rows += dense_rows("conv_head", "head", kernel=_of_pixels(network.head_size, width))
    else:
        rows += _rows("", "conv_head", "bn2", "head")
    if network.has_classifier:
        rows += dense_rows("classifier", "classifier")
    return tuple(rows)


def _of_pixels(width: int, before: int) -> Operation:
    """Returns the operation of the kernel of a convolution of one pixel that is a dense layer in the graph."""
    return Then(Reshape((width, before, 1, 1), (width, before)), Transpose())


def _rows(prefix: str, convolution: str, normalization: str, layer: str) -> tuple[Row, ...]:
    n = f"{prefix}{normalization}"
    return (
        Row(f"{prefix}{convolution}.weight", f"{layer}_conv/kernel", Convolution()),
        *norm_rows(n, f"{layer}_norm"),
        Row(f"{n}.running_mean", f"{layer}_norm/moving_mean"),
        Row(f"{n}.running_var", f"{layer}_norm/moving_variance"),
    )

"""Folders of timm: ResNet, ConvNeXT, EfficientNet and MobileNet, whose `config.json` names the architecture.

The graphs of ResNet and ConvNeXT are those of `convnets.py`, with timm's names of the tensors. The processor follows `pretrained_cfg` of
`config.json`: resize, crop from the center, normalization.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.authoring.engine import choice, describe_value
from fkeras.engine import FrozenDict, Model, option
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.families import convnets, mobile_networks
from fkeras.pretrained.families.mobile_networks import Network
from fkeras.pretrained.media.images import ImageProcessor
from fkeras.pretrained.tables.config import thaw
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row

_WIDE = (256, 512, 1024, 2048)
_NARROW = (64, 128, 256, 512)
#: type of the blocks, depths and widths of each architecture
_RESNETS: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = FrozenDict(
    {
        "resnet18": ("basic", (2, 2, 2, 2), _NARROW),
        "resnet34": ("basic", (3, 4, 6, 3), _NARROW),
        "resnet26": ("bottleneck", (2, 2, 2, 2), _WIDE),
        "resnet50": ("bottleneck", (3, 4, 6, 3), _WIDE),
        "resnet101": ("bottleneck", (3, 4, 23, 3), _WIDE),
        "resnet152": ("bottleneck", (3, 8, 36, 3), _WIDE),
    }
)
#: depth of the third stage, and width of the first stage
_CONVNEXTS: Mapping[str, tuple[int, int]] = FrozenDict(
    {
        "convnext_tiny": (9, 96),
        "convnext_small": (27, 96),
        "convnext_base": (27, 128),
        "convnext_large": (27, 192),
        "convnext_xlarge": (27, 256),
    }
)
_NAMES = (*_RESNETS, *_CONVNEXTS, *mobile_networks.NAMES)
#: parts of the names of transformers, and those of timm; "+1" adds 1 to the number
_RENAMED = (
    (r"resnet\.embedder\.embedder\.convolution", "conv1"),
    (r"resnet\.embedder\.embedder\.normalization", "bn1"),
    (r"resnet\.encoder\.stages\.(\d+)\.layers", "layer+1"),
    (r"layer\.(\d+)\.convolution", "conv+1"),
    (r"layer\.(\d+)\.normalization", "bn+1"),
    (r"shortcut\.convolution", "downsample.0"),
    (r"shortcut\.normalization", "downsample.1"),
    (r"classifier\.1", "fc"),
    (r"convnext\.embeddings\.patch_embeddings", "stem.0"),
    (r"convnext\.embeddings\.layernorm", "stem.1"),
    (r"convnext\.layernorm", "head.norm"),
    (r"convnext\.encoder\.", ""),
    (r"downsampling_layer", "downsample"),
    (r"\.layers\.", ".blocks."),
    (r"dwconv", "conv_dw"),
    (r"\.layernorm", ".norm"),
    (r"pwconv", "mlp.fc"),
    (r"layer_scale_parameter", "gamma"),
    (r"classifier", "head.fc"),
)
_FILTERS = FrozenDict({"lanczos": 1, "bilinear": 2, "bicubic": 3})


class TimmConfig(EncoderConfig):
    """Configuration of a folder of timm.

    Args:
        architecture: name of the architecture: "resnet18", "resnet26", "resnet34", "resnet50", "resnet101",
            "resnet152", "convnext_tiny", "convnext_small", "convnext_base", "convnext_large", "convnext_xlarge",
            "efficientnet_b0" to "efficientnet_b8", "efficientnetv2_s", "efficientnetv2_m", "efficientnetv2_l",
            "mobilenetv2_100", "mobilenetv3_small_100", "mobilenetv3_large_100" and the same with the width 050,
            075 or 140; names of EfficientNet and MobileNet v3 with the prefix "tf_" too.
        num_labels: number of classes, the key `num_classes`.
        parts: ("classifier",) if the checkpoint has the classifier; `load` finds it by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.TimmConfig("resnet18").network.depths
        (2, 2, 2, 2)
    """

    architecture: str = option(
        default="resnet50",
        convert=choice(*_NAMES, hint="fkeras has no other architectures of timm."),
    )

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "sizes that the architecture determines, and names": (
                "label_descriptions",
                "label_names",
                "num_features",
            ),
            "the preprocessing of images, which the processor reads": ("pretrained_cfg",),
        }
    )
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"num_classes": ("num_labels",), "global_pool": (), "model_args": ()}
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"classifier": ("/fc.weight", "/head.fc.weight", "/classifier.weight")}
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = mapping.get("model_args") or {}
        if not isinstance(arguments, Mapping):
            raise ValueError(
                f"TimmConfig: model_args: expected a mapping, received {describe_value(arguments)}. Correct "
                "config.json."
            )
        usual = {"in_chans": 3, "global_pool": "avg", "num_classes": mapping.get("num_classes")}
        given = {"model_args": arguments, "": {"global_pool": mapping.get("global_pool") or "avg"}}
        for where, options in given.items():
            for key, value in options.items():
                if key not in usual or value != usual[key]:
                    name = f"{where}.{key}".lstrip(".")
                    raise ValueError(
                        f"TimmConfig: {str(name)[:80]}: expected {describe_value(usual.get(key))}, received "
                        f"{describe_value(value)}. fkeras has no other variants of timm's networks."
                    )
        # 0 stands for a model without a classifier
        number = mapping.get("num_classes") or None
        return mapping if number is None else {"num_labels": number, **mapping}

    @property
    def network(self) -> convnets.ResNetConfig | convnets.ConvNextConfig | Network:
        """The configuration of the network in transformers, or a network that transformers lacks."""
        if self.architecture in mobile_networks.NAMES:
            return Network(self.architecture, self.num_labels, "classifier" in self.parts)
        options: dict[str, Any] = {"num_labels": self.num_labels, "parts": self.parts}
        if self.architecture in _RESNETS:
            kind, depths, widths = _RESNETS[self.architecture]
            return convnets.ResNetConfig(
                layer_type=kind, depths=depths, hidden_sizes=widths, **options
            )
        depth, width = _CONVNEXTS[self.architecture]
        widths = tuple(width * 2**stage for stage in range(4))
        return convnets.ConvNextConfig(
            depths=(3, 3, depth, 3), hidden_sizes=widths, layer_norm_eps=1e-6, **options
        )

    def write(self) -> dict[str, Any]:
        mapping = {**thaw(self.source), "architecture": self.architecture}
        if "classifier" in self.parts:
            mapping["num_classes"] = self.num_labels
            if "num_classes" in mapping.get("model_args", {}):
                mapping["model_args"]["num_classes"] = self.num_labels
        return mapping


def build(config: TimmConfig) -> Model:
    """Returns the graph of a configuration."""
    network = config.network
    if isinstance(network, convnets.ResNetConfig):
        return convnets.RESNET.build(network)
    if isinstance(network, Network):
        return mobile_networks.build(network)
    return convnets.CONVNEXT.build(network)


def names(config: TimmConfig) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    network = config.network
    if isinstance(network, Network):
        return mobile_networks.names(network)
    if isinstance(network, convnets.ResNetConfig):
        rows = convnets.RESNET.names(network)
    else:
        rows = convnets.CONVNEXT.names(network)
    return tuple(dataclasses.replace(row, tensors=_renamed(row.tensors)) for row in rows)


def _renamed(name: str) -> str:
    for pattern, other in _RENAMED:
        name = re.sub(
            pattern,
            lambda match, other=other: (
                other.replace("+1", str(int(match[1]) + 1)) if match.re.groups else other
            ),
            name,
        )
    return name


def processor(mapping: Mapping[str, Any]) -> ImageProcessor:
    """Returns the processor that `pretrained_cfg` of a `config.json` describes.

    Raises:
        ValueError: for sizes, filters and crops that are not supported.
    """

    def reject(key: str, expected: str) -> None:
        raise ValueError(
            f"pretrained_cfg: {key}: expected {expected}, received {describe_value(mapping.get(key))}. Build an "
            "ImageProcessor with the arguments of the file."
        )

    size = mapping.get("input_size", (3, 224, 224))
    valid = isinstance(size, list | tuple) and len(size) == 3 and size[0] == 3
    if not valid or size[1] != size[2] or not isinstance(size[1], int) or not 0 < size[1] < 1 << 15:
        reject("input_size", "three channels and equal sides, such as [3, 224, 224]")
    share = mapping.get("crop_pct", 0.875)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        reject("crop_pct", "a share above 0, at most 1")
    if mapping.get("interpolation", "bicubic") not in _FILTERS:
        reject("interpolation", "one of " + ", ".join(_FILTERS))
    mode = mapping.get("crop_mode", "center")
    if mode not in ("center", "squash"):
        reject("crop_mode", "'center' or 'squash'")
    side = size[1]
    resized = math.floor(side / share)
    # "squash" keeps no proportions
    sizes = ("shortest_edge",) if mode == "center" else ("height", "width")
    read = ImageProcessor.read(
        {
            "image_processor_type": "BitImageProcessor",
            "size": dict.fromkeys(sizes, resized),
            "crop_size": side,
            "resample": _FILTERS[mapping.get("interpolation", "bicubic")],
            "image_mean": mapping.get("mean", (0.485, 0.456, 0.406)),
            "image_std": mapping.get("std", (0.229, 0.224, 0.225)),
        }
    )
    return dataclasses.replace(read, rounds=True)


TIMM = Family(
    classes=FrozenDict(dict.fromkeys(_NAMES, ())),
    config=TimmConfig,
    build=build,
    names=names,
    tiny=TimmConfig("resnet18", parts=("classifier",), num_labels=5),
    ignored=("*.num_batches_tracked",),
    adapted=with_parts,
    processor=processor,
    preprocessor=lambda config: config.source.get("pretrained_cfg"),
)

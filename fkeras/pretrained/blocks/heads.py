"""Heads that several families share, by the parts of the configuration."""

from __future__ import annotations

from fkeras import layers, ops
from fkeras.engine import Input, Layer
from fkeras.pretrained.blocks.encoder_blocks import Tensor, last_token
from fkeras.pretrained.blocks.sentences import sentence
from fkeras.pretrained.tables.decoder_config import CausalConfig
from fkeras.pretrained.tables.heads import HeadsConfig


def token_heads(config: HeadsConfig, x: Tensor) -> dict[str, Tensor]:
    """Records the heads with numbers for each token, and returns their outputs.

    The outputs are "token_classes" (b, t, n), and "start" and "end" (b, t), the logits of the first and
    the last token of an answer.
    """
    outputs = {}
    if "token_classifier" in config.parts:
        outputs["token_classes"] = layers.Dense(config.num_labels, name="token_classifier")(x)
    if "answers" in config.parts:
        y = ops.unmask(layers.Dense(2, name="answers")(x))
        outputs |= {"start": y[:, :, 0], "end": y[:, :, 1]}
    return outputs


def decoder_inputs(config: CausalConfig) -> list[Tensor]:
    """Returns the inputs: ids, and segments of packed sequences unless the head pools a whole row."""
    ids = Input((None,), dtype="int32", name="ids")
    if config.has_sentence or "classifier" in config.parts:
        return [ids]
    return [ids, Input((None,), dtype="int32", name="segments", optional=True)]


def decoder_outputs(
    config: CausalConfig,
    x: Tensor,
    ids: Tensor,
    positions: Tensor,
    embedding: layers.ReversibleEmbedding,
    last: Layer | None = None,
) -> Tensor | dict[str, Tensor]:
    """Records the heads of a decoder: the logits of the next token alone, or a dictionary.

    The dictionary has "hidden" and the outputs of the heads. "classes" is computed from the last token whose
    id is not `pad_token_id` and which the mask does not leave out.

    Args:
        last: layer that the logits pass last, such as a bias.
    """
    outputs = {"hidden": x, **token_heads(config, x)}
    if "causal" in config.parts:
        logits = embedding(x, reverse=True)
        logits = logits if last is None else last(logits)
        if config.returns_logits:
            return logits
        outputs["logits"] = logits
    if "classifier" in config.parts:
        if config.pad_token_id is not None:
            is_padding = ops.equal(ops.unmask(ids), config.pad_token_id)
            positions = ops.where(is_padding, -1, ops.unmask(positions))
        classifier = layers.Dense(config.num_labels, use_bias=False, name="classifier")
        outputs["classes"] = classifier(last_token(x, positions))
    if config.has_sentence:
        outputs["sentence"] = sentence(config, x, positions)
    return outputs

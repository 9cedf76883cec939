"""Configurations of pretrained models: typed fields with the names of the keys of `config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from fkeras.engine import Configurable, FrozenDict, option, suggest
from fkeras.engine.config.configurable import describe
from fkeras.engine.config.converters import integer
from fkeras.pretrained.tables.layout import Layout

#: number of blocks or experts; bounded, since a table of names has entries for each of them
count = integer(minimum=1, maximum=10_000)
#: sizes
positive, optional_positive = integer(minimum=1), integer(minimum=1, optional=True)

# keys of all families that do not affect the computation: token ids of generation, names, initializers,
# regularization in training, and arguments of the classes of transformers
_NEUTRAL = frozenset(
    [
        *("architectures", "model_type", "transformers_version", "torch_dtype", "dtype"),
        *("name_or_path", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id"),
        *("sep_token_id", "decoder_start_token_id", "unk_token_id", "forced_bos_token_id"),
        *("forced_eos_token_id", "begin_suppress_tokens", "suppress_tokens", "initializer_range"),
        *("initializer_factor", "use_cache", "return_dict", "output_attentions"),
        *("output_hidden_states", "attention_dropout", "attention_probs_dropout_prob"),
        *("hidden_dropout", "hidden_dropout_prob", "dropout", "dropout_rate", "resid_pdrop"),
        *("embd_pdrop", "attn_pdrop", "activation_dropout", "layerdrop", "classifier_dropout"),
        *("id2label", "label2id", "num_labels", "problem_type", "task_specific_params"),
        *("finetuning_task", "gradient_checkpointing", "language", "tokenizer_class", "prefix"),
        *("torchscript", "chunk_size_feed_forward", "is_encoder_decoder", "attn_implementation"),
        *("unsloth_version", "unsloth_fixed", "bad_words_ids", "max_length", "min_length"),
        *("temperature", "top_k", "top_p", "typical_p", "do_sample", "num_beams"),
        *("num_beam_groups", "early_stopping", "diversity_penalty", "length_penalty"),
        *("repetition_penalty", "encoder_no_repeat_ngram_size", "no_repeat_ngram_size"),
        *("num_return_sequences", "remove_invalid_values", "exponential_decay_length_penalty"),
        *("return_dict_in_generate", "output_scores", "tf_legacy_loss", "use_bfloat16"),
    ]
)


class Config(Configurable):
    """Base class of the configurations: frozen fields with the names of the keys of `config.json`.

    A subclass, such as `LlamaConfig`, declares the keys that affect the computation as fields. `read`
    rejects unknown keys, unless the value is null, false or empty. Two configurations are equal if they
    describe the same network: `source` and `layout` are not compared.

    Args:
        model_type: the key `model_type`, which names the architecture within the family. Arguments that
            are left out have the defaults of this architecture; `dataclasses.replace` leaves no argument
            out.
        source: the mapping that `read` received; empty for a configuration that was not read. `write`
            returns this mapping, updated with the fields that changed.
        beside: the parsed JSON of other files in the folder, by name.
        layout: names, dtypes and shards of the tensors in the folder. `fk.pretrained.save` writes these
            names and shards, with the dtypes of the weights; without a layout, one file.

    Args of the family:
        vocab_size: size of the vocabulary.
        hidden_size: size of the hidden states.
        intermediate_size: hidden size of the MLP.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of attention heads.
        hidden_act: activation of the MLP.
        activation_function: activation of the MLP.
        max_position_embeddings: maximum number of tokens of a sequence.
        layer_norm_eps: epsilon of the layer normalizations.
        tie_word_embeddings: whether the token embeddings are also the kernel of the logits.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.LlamaConfig.read({"model_type": "mistral", "hidden_size": 64})
        >>> config.sliding_window, config.write()
        (4096, {'model_type': 'mistral', 'hidden_size': 64})
        >>> fk.pretrained.LlamaConfig.read({"model_type": "llama", "key_multiplier": 2.0})
        Traceback (most recent call last):
        ValueError: LlamaConfig: unknown key 'key_multiplier' with the value 2.0: it may change what the network computes. Remove the key from config.json if it has no effect.
    """

    model_type: str = option(default="", kw_only=True)
    source: FrozenDict[Any] = option(default=FrozenDict({}), kw_only=True)
    beside: FrozenDict[Any] = option(default=FrozenDict({}), kw_only=True)
    layout: Layout | None = option(default=None, kw_only=True)

    #: keys of the family that do not affect the computation
    neutral: ClassVar[frozenset[str]] = frozenset()
    #: for each `model_type` the default values that differ from those of the fields
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict({})
    #: keys that `canonical` converts to fields; `write` removes a key if one of its fields has changed
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({})

    def _values(self) -> tuple:
        values = [getattr(self, field.name) for field in _own_fields(type(self))]
        return (*values, self.beside)

    def __repr__(self) -> str:
        # the defaults of the fields may be those of another architecture
        shown = self.defaults.get(self.model_type, ())
        return describe(self, ("source", "beside", "layout"), shown=tuple(shown))

    @classmethod
    def _other_defaults(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        model_type = arguments.get("model_type", cls.model_type)
        return cls.defaults.get(model_type, {}) if isinstance(model_type, str) else {}

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the mapping with the keys of other format versions converted to fields."""
        return mapping

    @classmethod
    def read(cls, mapping: Mapping[str, Any], beside: Mapping[str, Any] = FrozenDict({})) -> Self:
        """Returns the configuration that a `config.json` describes.

        Args:
            mapping: the parsed file.
            beside: the parsed JSON of other files in the folder, by name.

        Raises:
            ValueError: for an unknown key, a missing key, or a value out of range.
        """
        names = {field.name for field in _own_fields(cls)}
        canonical = cls.canonical(mapping)
        for key, value in canonical.items():
            known = key in names or key in _NEUTRAL or key in cls.neutral or key in cls.aliases
            is_set = value is not None and value is not False and value not in ({}, [], ())
            if is_set and not known and not key.startswith("_"):
                raise ValueError(
                    f"{cls.__name__}: unknown key {key[:80]!r} with the value {str(value)[:80]}: it may "
                    f"change what the network computes.{suggest(key, names)} Remove the key from "
                    "config.json if it has no effect."
                )
        fields = {key: value for key, value in canonical.items() if key in names}
        return cls(**fields, source=FrozenDict(mapping), beside=FrozenDict(beside))

    def write(self) -> dict[str, Any]:
        """Returns the mapping for `config.json`: `source`, updated with the fields that changed."""
        mapping = dict(self.source)
        before = type(self).read(mapping, self.beside) if mapping else None
        for field in _own_fields(type(self)):
            value = getattr(self, field.name)
            if before is not None and getattr(before, field.name) == value:
                continue
            mapping[field.name] = value
            for alias, names in self.aliases.items():
                if field.name in names:
                    mapping.pop(alias, None)
        return thaw(mapping)


def _own_fields(cls: type[Config]) -> list[dataclasses.Field]:
    kept = ("source", "beside", "layout")
    return [field for field in dataclasses.fields(cls) if field.name not in kept]


def thaw(value: Any) -> Any:
    """Returns frozen mappings and tuples as dictionaries and lists.

    Example:
        >>> thaw(FrozenDict({"a": (1, 2)}))
        {'a': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple | list) else value

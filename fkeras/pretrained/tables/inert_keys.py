"""Keys of `config.json` that do not affect the computation, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from fkeras.engine import FrozenDict

#: keys by the reason why they do not affect the computation
Reasons: TypeAlias = Mapping[str, tuple[str, ...]]

#: keys of all families
NEUTRAL: Reasons = FrozenDict(
    {
        "names of the model and of classes": (
            "architectures",
            "model_type",
            "name",
            "name_or_path",
            "auto_map",
            "tokenizer_class",
            "finetuning_task",
            "language",
            "prefix",
            "problem_type",
            "task_specific_params",
            "id2label",
            "label2id",
            "num_labels",
        ),
        "versions of the programs that wrote the file": (
            "transformers_version",
            "unsloth_version",
            "unsloth_fixed",
            "transformers.js_config",
            "export_model_type",
        ),
        "dtype of the weights, which the tensors have": ("torch_dtype", "dtype", "use_bfloat16"),
        "token ids of generation and of padding": (
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "sep_token_id",
            "unk_token_id",
            "decoder_start_token_id",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "begin_suppress_tokens",
            "suppress_tokens",
            "bad_words_ids",
        ),
        "options of generation": (
            "max_length",
            "min_length",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
            "do_sample",
            "num_beams",
            "num_beam_groups",
            "early_stopping",
            "diversity_penalty",
            "length_penalty",
            "repetition_penalty",
            "encoder_no_repeat_ngram_size",
            "no_repeat_ngram_size",
            "num_return_sequences",
            "remove_invalid_values",
            "exponential_decay_length_penalty",
            "return_dict_in_generate",
            "output_scores",
        ),
        "initial values of weights": ("initializer_range", "initializer_factor"),
        "regularization and losses in training": (
            "attention_dropout",
            "attention_probs_dropout_prob",
            "hidden_dropout",
            "hidden_dropout_prob",
            "dropout",
            "dropout_rate",
            "resid_pdrop",
            "embd_pdrop",
            "attn_pdrop",
            "activation_dropout",
            "layerdrop",
            "classifier_dropout",
            "gradient_checkpointing",
            "tf_legacy_loss",
        ),
        "arguments of the classes of transformers, and their outputs": (
            "use_cache",
            "return_dict",
            "output_attentions",
            "output_hidden_states",
            "output_past",
            "torchscript",
            "chunk_size_feed_forward",
            "is_encoder_decoder",
            "attn_implementation",
            "tie_weights_",
        ),
    }
)


def inert_keys(cls: type) -> frozenset[str]:
    """Returns the keys of the tables `neutral` of a class of configurations and of its bases."""
    tables = (vars(base).get("neutral", {}) for base in cls.__mro__)
    return frozenset(key for table in tables for keys in table.values() for key in keys)

"""Every key of `config.json` with an unusual value: the numbers of transformers, or an error that names the key."""

import numpy as np
import pytest

from fkeras.pretrained.families.table import FAMILIES, family_of
from tests.pretrained.option_checks import computed, mapping_of, stored

ENTRIES = stored()
# keys that may change the graph of a short text without changing its numbers
_GRAPH = {
    "rope_scaling",
    "rope_parameters",
    "eos_token_id",
    "layerscale_value",
    "layer_scale_init_value",
}
# keys of Phi 3 and Granite that `LlamaConfig` has for these architectures alone
_OTHERS = ("partial_rotary_factor", "embedding_multiplier", "residual_multiplier")
_FACTORS = ("attention_multiplier", "logits_scaling")
_REFUSED = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3"), _OTHERS),
    **dict.fromkeys(("gemma", "olmo2"), (*_OTHERS, *_FACTORS)),
    "phi3": _OTHERS[1:],
    "granite": ("partial_rotary_factor",),
    "starcoder2": ("partial_rotary_factor",),
    "falcon": ("partial_rotary_factor", "alibi"),
    "opt": ("_remove_final_layer_norm",),
    "deepseek_v2": (
        *(*_OTHERS, *_FACTORS, "hidden_act", "head_dim", "norm_topk_prob"),
        *("scoring_func", "moe_layer_freq"),
    ),
    "deepseek_v3": (
        *(*_OTHERS, *_FACTORS, "hidden_act", "mlp_bias"),
        *("moe_layer_freq", "topk_method", "num_experts_per_tok"),
    ),
    "llama4_text": (
        *(*_OTHERS, *_FACTORS, "hidden_act", "mlp_bias", "original_max_position_embeddings"),
        *("sliding_window", "use_sliding_window", "max_window_layers"),
    ),
    "gpt_oss": (
        *(*_OTHERS, *_FACTORS, "hidden_act", "mlp_bias", "use_sliding_window"),
        *("max_window_layers", "no_rope_layers", "no_rope_layer_interval", "num_experts"),
    ),
    "mixtral": (*_OTHERS, "hidden_act", "num_experts"),
    "qwen2_moe": (*_OTHERS, "hidden_act"),
    "qwen3_moe": (*_OTHERS, "hidden_act", "layer_types", "num_local_experts"),
    "wav2vec2": ("add_adapter", "adapter_attn_dim"),
    "gemma2": ("sliding_window_pattern", "use_bidirectional_attention"),
    "gemma3_text": ("attn_logit_softcapping", "rope_parameters", "rope_scaling"),
    "bert": ("position_embedding_type",),
    "roberta": ("position_embedding_type",),
    "xlm-roberta": ("position_embedding_type",),
    "camembert": ("position_embedding_type",),
    "deberta-v2": (
        "legacy",
        "norm_rel_ebd",
        "pos_att_type",
        "position_biased_input",
        "relative_attention",
        "share_att_key",
        "type_vocab_size",
    ),
    "electra": ("position_embedding_type",),
    "albert": ("position_embedding_type",),
    "modernbert": ("rope_parameters",),
    "t5": ("is_encoder_decoder", "is_gated_act", "tie_word_embeddings"),
    "mt5": ("is_encoder_decoder", "is_gated_act", "scale_decoder_outputs"),
    "bart": ("tie_word_embeddings",),
    "mbart": ("tie_word_embeddings",),
    "pegasus": ("tie_word_embeddings",),
    "marian": ("tie_word_embeddings", "pad_token_id"),
    "m2m_100": (
        "tie_word_embeddings",
        "decoder_vocab_size",
        "share_encoder_decoder_embeddings",
    ),
    "dinov2": ("num_register_tokens",),
}


def names_of(options):
    """The keys of options, and those of mappings in options."""
    inner = [key for value in options.values() if isinstance(value, dict) for key in value]
    return [*options, *inner]


def parts():
    """Rows of one option, or of several that depend on each other."""
    for model_type, entry in ENTRIES.items():
        for where, options, numbers, shapes in entry["rows"]:
            single = len(options) <= 3
            for part in [options] if single else [{key: value} for key, value in options.items()]:
                yield model_type, where, part, numbers, shapes


def is_refused(model_type, options, message):
    """Whether an error is expected: an unknown key, or a row of the table."""
    assert any(name in message for name in names_of(options)), message
    expected = _REFUSED.get(model_type, ())
    general = ("unknown key", "expected a divisor of", "expected the key 'rope_type'")
    return any(part in message for part in (*general, *expected))


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_type", ENTRIES)
def test_keys_that_transformers_ignores_change_nothing(model_type):
    entry = ENTRIES[model_type]
    family = family_of(mapping_of(model_type, entry, "", {}))

    def read(where, options):
        config = family.config.read(mapping_of(model_type, entry, where, options))
        return family.adapted(config, entry["tensors"][0])

    base = read("", {})
    for kind, where, options, numbers, _ in parts():
        if kind != model_type or numbers != "same" or options.keys() & _GRAPH:
            continue
        try:
            config = read(where, options)
        except ValueError as error:
            assert is_refused(model_type, options, str(error)), str(error)
        else:
            equal = config == base or family.build(config) == family.build(base)
            assert equal or options == {"output_router_logits": True}, options


def rows():
    """Rows whose numbers are compared: one of each family by default."""
    families = set()
    for n, (model_type, where, options, numbers, shapes) in enumerate(parts()):
        if numbers == "same" and not options.keys() & _GRAPH:
            continue
        family = next(f.config for f in FAMILIES if model_type in f.classes)
        marks = [pytest.mark.exhaustive] if family in families or numbers == "same" else []
        families.add(family)
        yield pytest.param(
            *(model_type, where, options, numbers, shapes),
            id=f"{model_type}-{n}-{'-'.join(options)}",
            marks=marks,
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("model_type", "where", "options", "numbers", "shapes"), [*rows()])
def test_options_compute_the_numbers_of_transformers(
    model_type, where, options, numbers, shapes, tmp_path
):
    entry = ENTRIES[model_type]
    mapping = mapping_of(model_type, entry, where, options)
    expected = entry["numbers"] if numbers == "same" else numbers
    try:
        ours = computed(tmp_path, model_type, mapping, entry["tensors"][shapes])
    except ValueError as error:
        assert is_refused(model_type, options, str(error)), str(error)
        return
    for name, array in expected.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-4, rtol=1e-4, err_msg=name)


@pytest.mark.exhaustive
def test_rows_of_the_table_of_refusals_are_refused():
    refused = set()
    for model_type, where, options, _, shapes in parts():
        entry = ENTRIES[model_type]
        mapping = mapping_of(model_type, entry, where, options)
        family = family_of(mapping)
        names = [name for name in _REFUSED.get(model_type, ()) if name in names_of(options)]
        if names:
            try:
                family.adapted(family.config.read(mapping), entry["tensors"][shapes])
            except ValueError:
                refused |= {(model_type, name) for name in names}
    expected = {(kind, name) for kind, names in _REFUSED.items() for name in names}
    assert refused == expected

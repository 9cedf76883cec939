"""Writes tests/pretrained/data/options.json.gz: what transformers computes with unusual options.

For each architecture: a small `config.json`, the names and shapes of its tensors, and numbers of the
output; of models with an encoder and a decoder of texts also generated tokens. Then one entry for each key of the configuration, each key of fkeras and each key of other
architectures with an unusual value: the numbers, "same" or "error". Tensors have the numbers of
`weights`, which depend only on name and shape, so that the tests write them again.

Run it where torch and transformers are installed (written with torch 2.13.0, transformers 5.24.0):
`python tools/references/option_reference.py [MODEL_TYPE ...]`.
"""

import dataclasses
import gzip
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from fkeras.pretrained.families.table import FAMILIES
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.inert_keys import inert_keys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained import option_checks

FILE = option_checks.FILE
FULL, SLIDING = "full_attention", "sliding_attention"
DECODER = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 500.0,
}
HEAD = {**DECODER, "hidden_size": 24, "head_dim": 8}
LAYER_NORM = {
    key: value
    for key, value in DECODER.items()
    if key not in ("intermediate_size", "num_key_value_heads", "rope_theta")
}
EXPERTS = {**HEAD, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2}
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
TEXT = {
    "vocab_size": 67,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 12,
    "patch_size": 4,
}
TOWER = {**TEXT, "num_hidden_layers": 2, "max_position_embeddings": 30}
T5 = {
    **{"vocab_size": 67, "d_model": 20, "d_kv": 6, "d_ff": 28, "num_layers": 2},
    **{"num_heads": 4, "relative_attention_num_buckets": 8, "decoder_start_token_id": 0},
    "relative_attention_max_distance": 12,
}
BART = {
    **{"vocab_size": 67, "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2},
    **{"encoder_ffn_dim": 28, "decoder_layers": 3, "decoder_attention_heads": 4},
    **{"decoder_ffn_dim": 36, "max_position_embeddings": 40, "bos_token_id": 1},
    **{"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 3},
}
#: architecture, class and keys of the configurations to which unusual values are added
BASES = {
    "llama": ("LlamaForCausalLM", HEAD),
    "mistral": ("MistralForCausalLM", {**HEAD, "sliding_window": 5}),
    "qwen2": ("Qwen2ForCausalLM", {**DECODER, **WINDOW}),
    "qwen3": ("Qwen3ForCausalLM", {**HEAD, **WINDOW}),
    "smollm3": ("SmolLM3ForCausalLM", {**DECODER, "no_rope_layer_interval": 2, "pad_token_id": 0}),
    "phi3": ("Phi3ForCausalLM", {**DECODER, "sliding_window": 5, "pad_token_id": 0}),
    "gemma2": ("Gemma2ForCausalLM", {**HEAD, "query_pre_attn_scalar": 10, "sliding_window": 5}),
    "gemma3_text": (
        "Gemma3ForCausalLM",
        {**HEAD, "query_pre_attn_scalar": 10, "sliding_window": 5, "sliding_window_pattern": 2},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 67, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 48},
    ),
    "gemma": ("GemmaForCausalLM", HEAD),
    "olmo2": ("Olmo2ForCausalLM", DECODER),
    "granite": ("GraniteForCausalLM", DECODER),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {**LAYER_NORM, "intermediate_size": 20, "rotary_pct": 0.5},
    ),
    "phi": ("PhiForCausalLM", DECODER),
    "starcoder2": ("Starcoder2ForCausalLM", {**DECODER, "sliding_window": 5}),
    "falcon": ("FalconForCausalLM", {**LAYER_NORM, "ffn_hidden_size": 20, "rope_theta": 500.0}),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {
            **{**DECODER, "num_key_value_heads": 4, "kv_lora_rank": 12, "qk_nope_head_dim": 6},
            **{"qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 10, "n_routed_experts": 4},
            **{"num_experts_per_tok": 2, "moe_intermediate_size": 12, "first_k_dense_replace": 1},
        },
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            **{**DECODER, "num_key_value_heads": 4, "kv_lora_rank": 12, "qk_nope_head_dim": 6},
            **{"qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 10, "n_routed_experts": 4},
            **{"num_experts_per_tok": 2, "moe_intermediate_size": 12, "first_k_dense_replace": 1},
            **{"n_group": 2, "topk_group": 1},
        },
    ),
    "llama4_text": (
        "Llama4ForCausalLM",
        {
            **{**HEAD, "intermediate_size_mlp": 28, "num_local_experts": 4, "moe_layers": [0, 2]},
            **{"no_rope_layer_interval": 2, "attention_chunk_size": 5, "floor_scale": 3},
            "attn_scale": 0.5,
        },
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        {**HEAD, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "opt": ("OPTForCausalLM", {**LAYER_NORM, "ffn_dim": 20, "pad_token_id": 1}),
    "mixtral": (
        "MixtralForCausalLM",
        {**HEAD, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {**EXPERTS, **WINDOW, "max_window_layers": 2, "shared_expert_intermediate_size": 18},
    ),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**EXPERTS, **WINDOW}),
    "t5": ("T5ForConditionalGeneration", T5),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "bart": ("BartForConditionalGeneration", BART),
    "mbart": ("MBartForConditionalGeneration", {**BART, "scale_embedding": True}),
    "marian": ("MarianMTModel", {**BART, "pad_token_id": 0}),
    "m2m_100": ("M2M100ForConditionalGeneration", BART),
    "pegasus": ("PegasusForConditionalGeneration", BART),
    "bert": ("BertForPreTraining", TEXT),
    "roberta": ("RobertaForMaskedLM", {**TEXT, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRobertaForSequenceClassification", {**TEXT, "pad_token_id": 1}),
    "camembert": ("CamembertForMaskedLM", {**TEXT, "pad_token_id": 1}),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {
            **{"vocab_size": 67, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 20},
            "max_position_embeddings": 48,
        },
    ),
    "electra": ("ElectraForMaskedLM", {**TEXT, "embedding_size": 18}),
    "albert": (
        "AlbertForPreTraining",
        {**TEXT, "embedding_size": 18, "num_hidden_layers": 5, "num_hidden_groups": 2},
    ),
    "mpnet": ("MPNetForMaskedLM", TEXT),
    "deberta-v2": (
        "DebertaV2ForSequenceClassification",
        {
            **{**TEXT, "position_buckets": 8, "relative_attention": True, "share_att_key": True},
            **{"pos_att_type": "p2c|c2p", "position_biased_input": False},
            **{"norm_rel_ebd": "layer_norm"},
        },
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        {**TEXT, "local_attention": 6, "global_attn_every_n_layers": 2, "pad_token_id": 0},
    ),
    "vit": ("ViTModel", VISION),
    "deit": ("DeiTForImageClassificationWithTeacher", VISION),
    "dinov2": ("Dinov2Model", {k: v for k, v in VISION.items() if k != "intermediate_size"}),
    "dinov2_with_registers": (
        "Dinov2WithRegistersForImageClassification",
        {k: v for k, v in VISION.items() if k != "intermediate_size"},
    ),
    "siglip_vision_model": ("SiglipVisionModel", VISION),
    "resnet": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [12, 16], "depths": [2, 1]},
    ),
    "convnext": (
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 12], "depths": [2, 1], "num_stages": 2, "patch_size": 2},
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**TOWER, "eos_token_id": 66},
            "vision_config": VISION,
            "projection_dim": 14,
        },
    ),
    "siglip": (
        "SiglipModel",
        {"text_config": {**TOWER, "projection_size": 24}, "vision_config": VISION},
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        {
            **{
                "vocab_size": 11,
                "hidden_size": 24,
                "intermediate_size": 20,
                "conv_dim": [8, 12, 8],
            },
            **{"num_hidden_layers": 2, "num_attention_heads": 4, "conv_stride": [3, 2, 2]},
            **{"conv_kernel": [5, 3, 2], "num_conv_pos_embeddings": 6},
            "num_conv_pos_embedding_groups": 2,
        },
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        {
            **{"vocab_size": 67, "num_mel_bins": 12, "d_model": 16, "encoder_layers": 2},
            **{"encoder_attention_heads": 2, "encoder_ffn_dim": 28, "decoder_layers": 2},
            **{"decoder_attention_heads": 4, "decoder_ffn_dim": 36, "max_source_positions": 10},
            **{"max_target_positions": 40, "bos_token_id": 1, "eos_token_id": 2},
            **{"pad_token_id": 0, "decoder_start_token_id": 3},
        },
    ),
}
_TOKENS = ("ForTokenClassification", "ForQuestionAnswering")
_TEXTS = ("ForMaskedLM", "ForSequenceClassification", *_TOKENS)
#: further classes, with other heads
HEADS = {
    "electra": [f"Electra{end}" for end in ("ForPreTraining", *_TEXTS[1:])],
    "albert": [f"Albert{end}" for end in _TEXTS],
    "mpnet": [f"MPNet{end}" for end in ("Model", *_TEXTS[1:])],
    "deberta-v2": [f"DebertaV2{end}" for end in ("Model", "ForMaskedLM", *_TOKENS)],
    "deit": ["DeiTModel", "DeiTForImageClassification"],
    "resnet": ["ResNetModel"],
    "convnext": ["ConvNextModel"],
    "wav2vec2": ["Wav2Vec2Model"],
}
_TYPES = [FULL, SLIDING, FULL]
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 16,
}
_LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 1.2, 3.0],
    "long_factor": [2.0, 6.0, 5.0, 7.0],
}
#: unusual values by key, for all architectures
VALUES = {
    "activation": ["relu", "gelu_new"],
    "activation_dropout": [0.3],
    "activation_function": ["gelu", "relu", "quick_gelu", "gelu_fast", "swish"],
    "apply_layernorm": [False],
    "attention_bias": [True, False],
    "attention_dropout": [0.3],
    "attn_logit_softcapping": [0.5, None],
    "begin_suppress_tokens": [[3, 4]],
    "bos_token_id": [5, None],
    "cache_implementation": ["static"],
    "chunk_size_feed_forward": [2],
    "classifier_activation": ["relu"],
    "classifier_bias": [True],
    "classifier_pooling": ["mean"],
    "cls_token_id": [7],
    "add_adapter": [True],
    "adapter_attn_dim": [4],
    "conv_bias": [True],
    "conv_dim": [[6, 12, 8]],
    "conv_kernel": [[4, 3, 2]],
    "conv_stride": [[2, 2, 2]],
    "d_kv": [4],
    "do_stable_layer_norm": [True],
    "decoder_bias": [False],
    "decoder_layerdrop": [0.2],
    "decoder_sparse_step": [2],
    "decoder_start_token_id": [5],
    "decoder_vocab_size": [60],
    "deterministic_flash_attn": [True],
    "directionality": ["bidi"],
    "depths": [[1, 1]],
    "downsample_in_bottleneck": [True],
    "downsample_in_first_stage": [True],
    "drop_path_rate": [0.3],
    "dtype": ["bfloat16"],
    "embedding_size": [24, 30],
    "encoder_stride": [8],
    "eos_token_id": [2, 5, [5, 6]],
    "feat_extract_activation": ["relu"],
    "feat_extract_norm": ["layer"],
    "num_conv_pos_embedding_groups": [3],
    "num_conv_pos_embeddings": [5],
    "feed_forward_proj": ["gated-gelu", "gelu", "gated-silu", "gated-relu"],
    "final_logit_softcapping": [0.5, None],
    "global_attn_every_n_layers": [3],
    "global_rope_theta": [30.0],
    "head_dim": [6, 10, None],
    "hidden_act": ["gelu", "relu", "gelu_pytorch_tanh", "quick_gelu", "tanh", "silu"],
    "hidden_sizes": [[8, 24]],
    "hidden_activation": ["gelu", "relu", "silu"],
    "hidden_dropout_prob": [0.3],
    "init_std": [0.5],
    "inner_group_num": [2],
    "initializer_range": [0.5],
    "intermediate_size": [12],
    "is_decoder": [True],
    "add_cross_attention": [True],
    "layer_norm_eps": [0.3],
    "layer_norm_epsilon": [0.3],
    "layer_scale_init_value": [0.0, 0.5],
    "layer_type": ["basic"],
    "layer_types": [_TYPES, None],
    "layerscale_value": [0.4],
    "local_attention": [4, 9],
    "local_rope_theta": [30.0, None],
    "logit_scale_init_value": [1.0],
    "mask_time_prob": [0.3],
    "max_position_embeddings": [40, 128],
    "max_relative_positions": [20, 12],
    "max_window_layers": [0, 2, 3],
    "median_filter_width": [3],
    "mlp_bias": [True],
    "mlp_only_layers": [[1], None],
    "mlp_ratio": [2],
    "moe_intermediate_size": [16],
    "n_ctx": [20],
    "n_inner": [12, None],
    "no_rope_layers": [[1, 0, 1], None],
    "no_rope_layer_interval": [3],
    "norm_bias": [True],
    "norm_rel_ebd": ["none"],
    "norm_eps": [0.3],
    "norm_topk_prob": [True, False],
    "num_channels": [1],
    "num_decoder_layers": [1, None],
    "num_experts_per_tok": [1, 3],
    "num_hidden_groups": [1, 3],
    "num_layers": [3],
    "num_key_value_heads": [1, 4, None],
    "num_labels": [5],
    "num_register_tokens": [2],
    "original_max_position_embeddings": [16],
    "out_indices": [[1]],
    "output_hidden_states": [True],
    "output_past": [True],
    "output_router_logits": [True],
    "pad_token_id": [0, 3, None],  # no id of the inputs
    "partial_rotary_factor": [0.5],
    "patch_size": [6],
    "pooler_act": ["relu"],
    "pooler_hidden_act": ["tanh"],
    "pos_att_type": ["c2p", ["c2p", "p2c"], "C2P | P2C"],
    "pooler_fc_size": [12],
    "pooler_num_attention_heads": [2],
    "pooler_num_fc_layers": [2],
    "pooler_size_per_head": [5],
    "pooler_type": ["first_token_transform"],
    "pooler_output_size": [24, 18],
    "position_biased_input": [True],
    "position_buckets": [16, -1],
    "position_embedding_type": ["absolute", "relative_key"],
    "pretraining_tp": [2],
    "problem_type": ["regression"],
    "projection_dim": [10],
    "projection_size": [18, None],
    "qkv_bias": [True, False],
    "query_pre_attn_scalar": [3],
    "relative_attention": [False],
    "relative_attention_max_distance": [30],
    "relative_attention_num_buckets": [6],
    "reorder_and_upcast_attn": [True],
    "repad_logits_with_grad": [True],
    "resid_pdrop": [0.3],
    "rms_norm_eps": [0.3],
    "rope_local_base_freq": [30.0],
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": 30.0},
        {"rope_type": "default", "rope_theta": 30.0, "partial_rotary_factor": 0.5},
        {FULL: {"rope_type": "default", "rope_theta": 30.0}},
        {
            FULL: {"rope_type": "linear", "rope_theta": 30.0, "factor": 4.0},
            SLIDING: {"rope_type": "default", "rope_theta": 20.0},
        },
        {**_YARN, "rope_theta": 30.0},
        None,
    ],
    "rope_scaling": [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {"type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "dynamic", "factor": 4.0},
        _YARN,
        {**_YARN, "attention_factor": 0.7},
        {**_YARN, "beta_fast": 5.0, "beta_slow": 0.5},
        {**_YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
        {**_YARN, "truncate": False},
        {"rope_type": "yarn", "factor": 4.0},
        _LLAMA3,
        {**_LLAMA3, "partial_rotary_factor": 0.5},
        {**_LLAMA3, "rope_theta": 30.0},
        {**_LONG, "original_max_position_embeddings": 16},
        {**_LONG, "original_max_position_embeddings": 16, "factor": 3.0},
        {**_LONG, "original_max_position_embeddings": 16, "attention_factor": 0.7},
        _LONG,
        None,
    ],
    "rope_theta": [30.0],
    "rope_interleaved": [True],
    "router_aux_loss_coef": [0.5],
    "router_jitter_noise": [0.3],
    "scale_attn_by_inverse_layer_idx": [True],
    "scale_attn_weights": [False],
    "scale_decoder_outputs": [True, False],
    "scale_embedding": [True],
    "share_att_key": [False],
    "sinusoidal_pos_embds": [True],
    "sliding_window": [3, None],
    "sliding_window_pattern": [3],
    "_sliding_window_pattern": [3],
    "sparse_prediction": [True],
    "suppress_tokens": [[3, 4]],
    "tie_encoder_decoder": [True],
    "tie_word_embeddings": [True, False],
    "tie_weights_": [True],
    "torch_dtype": ["bfloat16"],
    "type_vocab_size": [1, 3],
    "use_bidirectional_attention": [True],
    "use_cache": [False],
    "use_mask_token": [False],
    "use_mean_pooling": [True],
    "use_sliding_window": [True, False],
    "use_swiglu_ffn": [True],
    "vision_use_head": [False],
    "vocab_size": [50],
    "is_llama_config": [True],
    "transformers.js_config": [{"dtype": "q4"}],
    "full_attn_mod": [1],
    "interpolate_factor": [1],
    "attention_scale": [2.0],
    "logit_scale": [2.0],
    "embedding_multiplier": [2.0],
    "residual_multiplier": [2.0],
    "attention_multiplier": [2.0],
    "logits_scaling": [2.0],
    "rotary_pct": [0.25, 1.0],
    "rotary_emb_base": [30.0],
    "use_parallel_residual": [False],
    "qk_layernorm": [True],
    "norm_epsilon": [0.3],
    "use_bias": [False],
    "alibi": [True],
    "bias": [True],
    "ffn_hidden_size": [12, None],
    "multi_query": [False],
    "new_decoder_architecture": [True],
    "num_kv_heads": [2, 4],
    "num_ln_in_parallel_attn": [1, 2],
    "parallel_attn": [False],
    "do_layer_norm_before": [False],
    "enable_bias": [False],
    "ffn_dim": [12],
    "layer_norm_elementwise_affine": [False],
    "word_embed_proj_dim": [12, 32, None],
    "_remove_final_layer_norm": [True],
    "q_lora_rank": [None, 8],
    "kv_lora_rank": [8],
    "qk_nope_head_dim": [4],
    "qk_rope_head_dim": [6],
    "v_head_dim": [6],
    "first_k_dense_replace": [0, 2],
    "n_routed_experts": [3],
    "n_shared_experts": [1],
    "n_group": [2, 1],
    "rope_interleave": [False],
    "topk_group": [1, 2],
    "topk_method": ["group_limited_greedy"],
    "routed_scaling_factor": [2.0],
    "scoring_func": ["sigmoid"],
    "moe_layer_freq": [2],
    "aux_loss_alpha": [0.3],
    "seq_aux": [True],
    "num_experts": [3],
    "num_local_experts": [3],
    "swiglu_alpha": [0.7],
    "swiglu_limit": [0.2],
    "experts_per_token": [3],
    "initial_context_length": [16],
    "num_hidden_layers": [2],
    "attention_chunk_size": [3, None],
    "attn_scale": [0.0, -0.2],
    "attn_temperature_tuning": [False],
    "floor_scale": [2],
    "interleave_moe_layer_step": [2],
    "intermediate_size_mlp": [12],
    "moe_layers": [[1], [], None],
    "use_qk_norm": [False],
}
_HIGH = {"rope_type": "linear", "factor": 3.0, "rope_theta": 40.0}
#: options that depend on each other
SEVERAL = [
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "rope_parameters": _HIGH},
    {"rope_scaling": _YARN, "max_position_embeddings": 40},
    {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 16},
    {"use_sliding_window": False, "layer_types": _TYPES},
    {"use_sliding_window": True, "sliding_window": 5, "layer_types": _TYPES},
    {"use_sliding_window": False, "sliding_window": 5, "layer_types": _TYPES},
    {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
    {"layer_types": _TYPES, "sliding_window_pattern": 3},
    {"tie_word_embeddings": False, "scale_decoder_outputs": True},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 60},
    {"num_register_tokens": 2, "use_swiglu_ffn": True, "mlp_ratio": 3},
    {"new_decoder_architecture": True, "num_kv_heads": 2},
    {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    {"multi_query": False, "parallel_attn": False, "bias": True},
    {"do_layer_norm_before": False, "word_embed_proj_dim": 12},
    {"moe_layers": None, "interleave_moe_layer_step": 2},
    {"layer_types": ["chunked_attention", FULL, FULL], "attention_chunk_size": 4},
    {"no_rope_layers": [0, 1, 0], "attention_chunk_size": None},
    {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True},
]
SKIPPED = {
    "id2label",
    "label2id",
    "architectures",
    "model_type",
    "transformers_version",
    "auto_map",
    "parts",
    "beside",
}
# arguments of this program's calls, and fields of classes
SKIPPED |= {"return_dict", "output_attentions", "attn_implementation", "attribute_map"}
SKIPPED |= {"_auto_class", "ignore_keys_at_rope_validation"}
SKIPPED |= {f"base_model_{kind}_plan" for kind in ("ep", "fsdp", "pp", "tp")}
SKIPPED |= {"text_config", "vision_config", "text_config_dict", "vision_config_dict"}


# outputs of transformers, and their names in fkeras
OUTPUTS = {
    **{"prediction_logits": "logits", "seq_relationship_logits": "next_sentence"},
    **{"logits": "logits", "last_hidden_state": "hidden", "pooler_output": "pooled"},
    **{"sop_logits": "sentence_order", "start_logits": "start", "end_logits": "end"},
    **{"image_embeds": "image", "text_embeds": "text", "logits_per_image": "logits"},
}
INPUTS = dict.fromkeys(option_checks.TEXT_TO_TEXT, ("input_ids", "decoder_input_ids"))
INPUTS |= {"clip": ("pixel_values", "input_ids")}
INPUTS |= {"siglip": INPUTS["clip"], "whisper": ("input_features", "decoder_input_ids")}
INPUTS |= {"wav2vec2": ("input_values",)}


def arguments(model_type, mapping):
    """The inputs of `option_checks`, with the channels first."""
    arrays = option_checks.inputs(model_type, mapping)
    names = INPUTS.get(model_type, ("input_ids" if arrays[0].ndim == 2 else "pixel_values",))
    arrays = [np.moveaxis(a, -1, 1) if a.dtype == "float32" else a.astype("int64") for a in arrays]
    return {name: torch.tensor(array) for name, array in zip(names, arrays, strict=True)}


def channels_last(array):
    return np.moveaxis(array, 1, -1) if array.ndim == 4 else array


def numbers_of(cls, out):
    """Numbers spread over the outputs, by their names in fkeras."""
    names = {**OUTPUTS, **({"logits": "classes"} if "Classification" in cls else {})}
    names |= {"logits": "replaced"} if cls == "ElectraForPreTraining" else {}
    names |= {"logits": "token_classes"} if cls.endswith("ForTokenClassification") else {}
    return {
        ours: option_checks.spread(channels_last(out[theirs].numpy()))
        for theirs, ours in names.items()
        if out.get(theirs) is not None
    }


def opened(model_type, cls, mapping):
    """The model of transformers from a folder with this `config.json`, and the shapes of its tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        text = json.dumps({"model_type": model_type, "architectures": [cls], **mapping})
        (path / "config.json").write_text(text)
        config = transformers.AutoConfig.from_pretrained(path)
        kind = getattr(transformers, cls)
        kind(config).save_pretrained(path)
        tensors = load_file(path / "model.safetensors")
        shapes = {name: list(array.shape) for name, array in tensors.items()}
        arrays = {name: option_checks.weights(name, array.shape) for name, array in tensors.items()}
        save_file(arrays, path / "model.safetensors", {"format": "pt"})
        (path / "config.json").write_text(text)
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        return kind.from_pretrained(path, **options).eval(), shapes


@torch.no_grad()
def computed(model_type, cls, mapping):
    """Numbers and tensors of transformers."""
    (cls,) = mapping.get("architectures", [cls])
    model, shapes = opened(model_type, cls, mapping)
    out = model(**arguments(model_type, mapping), return_dict=True)
    return numbers_of(cls, out), shapes


@torch.no_grad()
def tokens(model_type, cls, mapping, count=9):
    """Greedy tokens with a penalty of repetitions, for two texts with padding."""
    ids, mask = option_checks.padded()
    generated = opened(model_type, cls, mapping)[0].generate(
        input_ids=torch.tensor(ids.astype("int64")),
        attention_mask=torch.tensor(mask.astype("int64")),
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=None,
        forced_eos_token_id=None,
        repetition_penalty=option_checks.PENALTY,
    )
    return generated[:, 1:].tolist()


def keys_of(kind):
    """Keys that fkeras declares, and keys of transformers with their defaults."""
    config, ours = transformers.AutoConfig.for_model(kind), set()
    for cls in (family.config for family in FAMILIES if kind in family.classes):
        ours |= {field.name for field in dataclasses.fields(cls)} | set(cls.aliases)
        ours |= inert_keys(cls) - inert_keys(Config)
    ours -= {"source", "layout"}
    return ours, {key: getattr(config, key, None) for key in type(config).__dataclass_fields__}


def other(value):
    """An unusual value like a default."""
    if isinstance(value, bool):
        return not value
    return 0.3 if isinstance(value, float) else 7


def describe(model_type):
    """Returns the entry of an architecture; keys that nobody declares are tried together."""
    cls, base = BASES[model_type]
    numbers, tensors = computed(model_type, cls, base)
    shapes, rows, failed = [tensors], [], []

    def add(where, options, split=False):
        """Adds a row; without `split` and for one option also a row that changes the numbers."""
        inner = {where: {**base[where], **options}} if where else options
        try:
            result, names = computed(model_type, cls, {**base, **inner})
        except Exception as error:  # transformers refuses the value
            result, names = type(error).__name__, tensors
        is_same = result == numbers and names == tensors
        if split and len(options) > 1 and not is_same:
            items = list(options.items())
            for part in (items[: len(items) // 2], items[len(items) // 2 :]):
                add(where, dict(part), split)
        elif isinstance(result, str):
            failed.append((options, result))
        else:
            shapes.extend([] if names in shapes else [names])
            rows.append([where, options, "same" if is_same else result, shapes.index(names)])

    for where in ("", "text_config", "vision_config"):
        if where and where not in base:
            continue
        kind = f"{model_type}_{where.removesuffix('_config')}_model" if where else model_type
        ours, theirs = keys_of(kind)
        foreign = {}
        for key in sorted((ours | set(theirs) | inert_keys(Config) | set(VALUES)) - SKIPPED):
            values = VALUES.get(key, [other(theirs.get(key))])
            if key in VALUES and key in ours | set(theirs):
                for value in values:
                    if (base[where] if where else base).get(key, ...) != value:
                        add(where, {key: value})
            else:
                foreign[key] = values[0]
        add(where, foreign, split=True)
    for options in SEVERAL:
        theirs = keys_of(model_type)[1]
        if options.keys() <= theirs.keys() | (
            {"rope_scaling"} if "rope_parameters" in theirs else set()
        ):
            add("", options)
    for name in HEADS.get(model_type, ()):
        add("", {"architectures": [name]})
    changed = sum(row[2] != "same" for row in rows)
    print(model_type, len(rows), "rows,", changed, "changed; refused:", failed, flush=True)
    entry = {"class": cls, "base": base, "numbers": numbers, "tensors": shapes, "rows": rows}
    if model_type in option_checks.TEXT_TO_TEXT:
        entry["tokens"] = tokens(model_type, cls, base)
    return entry


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    content = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else {}
    content["about"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    for chosen in sys.argv[1:] or BASES:
        content[chosen] = describe(chosen)
        FILE.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    print(f"{FILE.stat().st_size} bytes")

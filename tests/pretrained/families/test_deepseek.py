"""DeepSeek V2 Lite: its configuration and the scale of its scores; test_decoder_numbers.py has the numbers."""

import pytest

import fkeras as fk
from fkeras.pretrained.families import deepseek

TINY = deepseek.TINY.write()


def test_scale_and_experts():
    config = fk.pretrained.DeepseekConfig.read(TINY)
    assert config == deepseek.TINY
    assert [config.has_experts(i) for i in range(3)] == [False, True, True]
    assert config.scale == 10**-0.5
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    assert fk.pretrained.DeepseekConfig.read({**TINY, "rope_scaling": yarn}).scale == 10**-0.5
    scaled = fk.pretrained.DeepseekConfig.read(
        {**TINY, "rope_scaling": {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}}
    )
    # 0.1 * ln(4) + 1, squared
    assert scaled.scale == pytest.approx(10**-0.5 * 1.13862944**2)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_key_value_heads": 2}, "num_key_value_heads: expected num_attention_heads=4"),
        ({"num_experts_per_tok": 6}, "at most the number of experts, 5"),
        ({"qk_rope_head_dim": 5}, "qk_rope_head_dim: expected an even number"),
        ({"topk_method": "group_limited_greedy"}, "topk_method.*no routing to groups"),
        ({"topk_method": "noaux_tc"}, "topk_method"),
        ({"scoring_func": "sigmoid"}, "scoring_func: expected 'softmax'"),
        ({"moe_layer_freq": 2}, "moe_layer_freq: expected 1"),
        ({"hidden_act": "tanh"}, "Experts have no other activation"),
        ({"partial_rotary_factor": 0.5}, "transformers ignores the key"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.pretrained.DeepseekConfig.read({**TINY, **mapping})

"""DeepSeek V2 and V3: their configuration and the scale of the scores; test_decoder_numbers.py has the numbers."""

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
    # copies that transformers writes
    copies = {"head_dim": 4, "qk_head_dim": 10}
    read = fk.pretrained.DeepseekConfig.read({**TINY, **copies})
    assert read == deepseek.TINY and read.write() == {**TINY, **copies}
    # 0.1 * ln(4) + 1, squared
    assert scaled.scale == pytest.approx(10**-0.5 * 1.13862944**2)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_key_value_heads": 2}, "num_key_value_heads: expected num_attention_heads=4"),
        ({"num_experts_per_tok": 6}, "at most the number of experts, 5"),
        ({"head_dim": 6}, "head_dim: expected None"),
        ({"qk_rope_head_dim": 5}, "qk_rope_head_dim: expected an even number"),
        ({"topk_method": "noaux_tc"}, "topk_method: expected one of greedy, group_limited_greedy"),
        (
            {"topk_method": "group_limited_greedy", "n_group": 2},
            "n_group: expected a divisor of n_routed_experts=5",
        ),
        (
            {"topk_method": "group_limited_greedy", "n_group": 5, "topk_group": 1},
            "topk_group: expected at most n_group=5, with at least num_experts_per_tok=2",
        ),
        ({"model_type": "deepseek_v3"}, "topk_method: expected 'noaux_tc'"),
        (
            {"model_type": "deepseek_v3", "topk_method": "noaux_tc", "n_group": 5},
            "at least two experts in a group of V3",
        ),
        ({"rope_interleave": False}, "rope_interleave: expected True"),
        ({"scoring_func": "sigmoid"}, "scoring_func: expected 'softmax'"),
        ({"moe_layer_freq": 2}, "moe_layer_freq: expected 1"),
        ({"hidden_act": "tanh"}, "Experts have no other activation"),
        ({"partial_rotary_factor": 0.5}, "transformers ignores the key"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.pretrained.DeepseekConfig.read({**TINY, **mapping})

"""DeepSeek V2 and V3: their configuration and the scale of the scores; test_decoder_numbers.py has the numbers."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.pretrained.families import deepseek
from tests.pretrained import float8_folders, option_checks

TINY = deepseek.TINY.write()
FILE = "model.safetensors"
BIAS, GATE = "gate.e_score_correction_bias", "mlp.gate.weight"
ROUTER = ("router_kernel", "router_bias")


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


def halves(folder, wide=()):
    """Writes a folder of bfloat16, whose tensors with these ends of the names are float32."""
    entry = option_checks.stored(option_checks.DECODERS)["deepseek_v3"]
    tensors = {
        name: option_checks.weights(name, shape).astype(
            "float32" if name.endswith(wide) else "bfloat16"
        )
        for name, shape in entry["tensors"].items()
    }
    return float8_folders.write_folder(
        folder, tensors, mapping={**entry["config"], "dtype": "bfloat16"}
    )


def is_half(model):
    """Whether the weights of the routers are float32, and the others bfloat16."""
    return all(
        leaf.dtype == ("float32" if path[-1].key.endswith(ROUTER) else "bfloat16")
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
    )


# published folders, and folders that transformers writes
@pytest.mark.parametrize(
    "wide", [(BIAS,), pytest.param((BIAS, GATE), marks=pytest.mark.exhaustive)]
)
def test_experts_of_a_folder_of_halves_are_halves(wide, tmp_path):
    folder = halves(tmp_path / "halves", wide)
    loaded = fk.pretrained.load(folder)
    experts = loaded.model.layers["block_1"].layers["experts"]
    assert is_half(loaded.model) and experts.dtype.name == "bfloat16"
    tensors = safetensors.numpy.load_file(folder / FILE)
    np.testing.assert_array_equal(experts.router_bias, tensors[f"model.layers.1.mlp.{BIAS}"])
    fk.pretrained.save(tmp_path / "again", loaded.model, {}, loaded.config)
    written, mapping = ((tmp_path / "again" / n).read_bytes() for n in (FILE, "config.json"))
    assert written == (folder / FILE).read_bytes()
    assert json.loads(mapping) == json.loads((folder / "config.json").read_text())


@pytest.mark.exhaustive
def test_dtypes_by_request(tmp_path):
    folder = halves(tmp_path / "halves", (BIAS,))
    loaded = fk.pretrained.load(folder)
    assert fk.pretrained.load(folder, dtype="bfloat16").model == loaded.model
    wide = fk.pretrained.load(folder, dtype="float32")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(wide.model)} == {"float32"}
    assert fk.cast(wide.model, "bfloat16") == loaded.model
    quantized = fk.pretrained.load(folder, quantize="int4").model
    assert quantized == fk.quantize(loaded.model, "int4")
    fk.pretrained.save(tmp_path / "wide", wide.model, {}, wide.config)
    tensors = safetensors.numpy.load_file(tmp_path / "wide" / FILE)
    assert {array.dtype.name for array in tensors.values()} == {"float32"}
    # `dtype=` rounds no router
    fk.pretrained.save(tmp_path / "again", wide.model, {}, wide.config, dtype="bfloat16")
    assert (tmp_path / "again" / FILE).read_bytes() == (folder / FILE).read_bytes()
    tuned = jax.tree.map(lambda leaf: leaf * (1 + 1e-4), wide.model)
    fk.pretrained.save(tmp_path / "tuned", tuned, {}, wide.config, dtype="bfloat16")
    again = fk.pretrained.load(tmp_path / "tuned")
    assert is_half(again.model)
    for name in ROUTER:
        ours, theirs = (
            getattr(model.layers["block_1"].layers["experts"], name)
            for model in (again.model, tuned)
        )
        np.testing.assert_array_equal(ours, theirs)

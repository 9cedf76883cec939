"""Mixtral, Qwen 2 MoE and Qwen 3 MoE against transformers, and their configuration."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine.tree.axes import weight_axis_roles
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import mixtral
from fkeras.pretrained.families.mixtral import MixtralConfig
from tests.pretrained import checks
from tests.support.quick_cases import quick_cases

FOLDERS = ("mixtral", "qwen2_moe", "qwen3_moe")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(FOLDERS, "qwen2_moe"))
def test_numbers_equal_those_of_transformers(name):
    loaded = checks.is_a_causal_decoder(name)
    checks.computes_with_a_cache(loaded.model, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    loaded = checks.is_written_back(name, tmp_path)
    assert loaded.config.model_type == name


@pytest.mark.exhaustive
def test_generation_reads_each_token_once():
    # experts are sorted by token: the layer declares that tokens do not mix
    model = fk.pretrained.load(checks.DATA / "qwen3_moe", dtype="float32").model
    arrays = checks.expected("qwen3_moe")
    prompts = np.asarray(arrays["ids"][:, :7], "int32")
    generated = fk.generate(model, None, prompts, max_new_tokens=9, cache=True)
    np.testing.assert_array_equal(generated.tokens, arrays["greedy"])


@pytest.mark.exhaustive
def test_experts_and_shared_experts_are_layers_by_name():
    model = fk.pretrained.load(checks.DATA / "qwen2_moe").model
    block, dense = model.layers["block_0"], model.layers["block_1"]
    assert {"experts", "shared_gate", "shared_up", "shared_down"} <= set(block.layers)
    assert {"gate", "up", "down"} <= set(dense.layers)
    assert block.layers["experts"].gate_kernel.shape == (6, 24, 12)
    roles = weight_axis_roles(model)
    assert roles["block_0/experts/gate_kernel"] == ("experts", None, "hidden")


@pytest.mark.exhaustive
def test_shards_of_experts_compute_the_same_numbers():
    mesh = jax.make_mesh((2,), ("model",))
    roles = {"batch": None, "experts": "model"}
    sharded = fk.pretrained.load(checks.DATA / "qwen3_moe", mesh=mesh, sharding=roles).model
    kernel = sharded.layers["block_1"].layers["experts"].down_kernel
    assert kernel.sharding.spec == jax.sharding.PartitionSpec("model")
    arrays = checks.expected("qwen3_moe")
    logits = jax.jit(lambda model, ids: model(ids))(sharded, jnp.asarray(arrays["ids"], "int32"))
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


@pytest.mark.exhaustive
def test_training_balances_the_experts_only_where_the_configuration_says_so():
    ids = np.ones((1, 4), "int32")
    for balanced in (False, True):
        config = MixtralConfig(
            vocab_size=7,
            hidden_size=4,
            intermediate_size=4,
            num_hidden_layers=2,
            num_attention_heads=1,
            num_key_value_heads=1,
            num_local_experts=3,
            output_router_logits=balanced,
        )
        model = fk.pretrained.build(config).build(jax.random.key(0))
        assert len(model.apply(ids, training=True).losses) == 2 * balanced


@pytest.mark.exhaustive
def test_keys_of_each_architecture():
    config = MixtralConfig.read({"model_type": "mixtral"})
    assert (config.num_local_experts, config.rope_theta, config.has_experts(1)) == (8, 1e6, True)
    assert config.window(0) is None
    mapping = {
        "model_type": "qwen2_moe",
        "num_experts": 4,
        "qkv_bias": False,
        "mlp_only_layers": None,
        "decoder_sparse_step": 2,
        "use_sliding_window": True,
        "max_window_layers": 3,
    }
    config = MixtralConfig.read(mapping)
    assert config.write() == mapping
    assert (config.num_local_experts, config.attention_bias, config.output_bias) == (
        4,
        False,
        False,
    )
    assert [config.has_experts(i) for i in range(4)] == [False, True, False, True]
    assert [config.window(i) for i in range(5)] == [4096, None, 4096, None, None]
    assert MixtralConfig.read({"model_type": "qwen2_moe"}).attention_bias
    config = MixtralConfig.read({"model_type": "qwen3_moe", "use_sliding_window": True})
    assert config.window(1) == 4096
    # the key that was read is replaced where the number changes
    fewer = dataclasses.replace(MixtralConfig.read(mapping), num_local_experts=9)
    assert fewer.write() == {
        **{k: v for k, v in mapping.items() if k != "num_experts"},
        "num_local_experts": 9,
    }
    assert MixtralConfig.read(fewer.write()).num_local_experts == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.pop("model.layers.1.block_sparse_moe.experts.4.w2.weight"),
            r"missing in the file: model\.layers\.1\.block_sparse_moe\.experts\.4\.w2\.weight\.",
        ),
        (
            lambda a: a.update({"model.layers.0.block_sparse_moe.experts.5.w1.weight": a["lm_head.weight"]}),
            r"not in the model: model\.layers\.0\.block_sparse_moe\.experts\.5\.w1\.weight \(67, 20\)",
        ),
        (
            lambda a: a.update({"model.layers.0.block_sparse_moe.experts.2.w1.weight": a["lm_head.weight"]}),
            "of another shape or dtype: .*experts.2.w1",
        ),
        (lambda a: a.pop("lm_head.weight"), "no causal head"),
    ],
)  # fmt: skip
def test_files_of_another_model_are_rejected(change, message, tmp_path):
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(checks.rewritten("mixtral", tmp_path, change))


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(tmp_path):
    checks.is_kept_by_a_model_file("qwen2_moe", tmp_path)


@pytest.mark.exhaustive
def test_the_tiny_configuration_builds():
    model = fk.pretrained.build(mixtral.TINY).build(jax.random.key(0))
    assert model(np.ones((1, 3), "int32")).shape == (1, 3, 67)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_local_experts": 2, "num_experts_per_tok": 3}, "at most the number of experts, 2"),
        ({"num_local_experts": 10**9}, "1 to 1024"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({"router_aux_loss_coef": -1.0}, "router_aux_loss_coef"),
        ({"mlp_only_layers": [1.5]}, "mlp_only_layers"),
        ({"mlp_only_layers": 3}, "mlp_only_layers"),
        ({"n_group": 4}, "unknown key 'n_group'"),
        (
            {"num_experts": 4, "num_local_experts": 3},
            "expected the value of num_experts, 4, received 3",
        ),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MixtralConfig.read({"model_type": "mixtral", **mapping})

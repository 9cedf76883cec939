"""gpt-oss: its configuration, windows and layers; test_decoder_numbers.py has the numbers."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine.tree.axes import weight_axis_roles
from fkeras.pretrained.families import gpt_oss

TINY = gpt_oss.TINY.write()


def test_windows_and_scaling():
    config = fk.pretrained.GptOssConfig.read(TINY)
    assert config == gpt_oss.TINY
    assert [config.window(i) for i in range(3)] == [6, None, 6]
    types = ["full_attention", "full_attention", "sliding_attention"]
    other = fk.pretrained.GptOssConfig.read({**TINY, "layer_types": types})
    assert [other.window(i) for i in range(3)] == [None, None, 6]
    assert config.scaling() == fk.layers.rotary.Yarn(32.0, 4096, truncate=False)
    # null stands for the default, and another key for no scaling
    null = fk.pretrained.GptOssConfig.read({**TINY, "rope_scaling": None})
    assert null == config and null.write() == {**TINY, "rope_scaling": None}
    plain = dataclasses.replace(config, rope_scaling=None)
    assert plain.scaling() is None
    assert plain.write()["rope_scaling"] == {"rope_type": "default"}
    assert fk.pretrained.GptOssConfig.read(plain.write()) == plain
    read = dataclasses.replace(null, rope_scaling=None).write()
    assert fk.pretrained.GptOssConfig.read(read).scaling() is None
    named = {**TINY, "num_experts": 7}
    del named["num_local_experts"]
    assert fk.pretrained.GptOssConfig.read(named).num_local_experts == 7
    wide = fk.pretrained.GptOssConfig.read({"model_type": "gpt_oss", "num_hidden_layers": 2})
    assert (wide.head_size, wide.key_heads, wide.num_local_experts) == (64, 8, 128)


def test_gate_and_up_take_turns_in_a_tensor():
    matches = {m.tensors[0]: m for row in gpt_oss.names(gpt_oss.TINY) for m in row.matches()}
    for end, ours, shape in (("", "kernel", (5, 24, 24)), ("_bias", "bias", (5, 24))):
        match = matches[f"model.layers.1.mlp.experts.gate_up_proj{end}"]
        assert match.weights == tuple(f"block_1/experts/{n}_{ours}" for n in ("gate", "up"))
        tensor = np.arange(np.prod(shape)).reshape(shape)
        gate, up = match.operation.read_all((tensor,))
        np.testing.assert_array_equal(gate, tensor[..., ::2])
        np.testing.assert_array_equal(up, tensor[..., 1::2])
        np.testing.assert_array_equal(match.operation.write_all((gate, up))[0], tensor)


@pytest.mark.exhaustive
def test_sinks_and_biases_are_weights_by_name():
    model = fk.pretrained.build(gpt_oss.TINY).build(jax.random.key(0))
    block = model.layers["block_1"].layers
    assert block["attention"].sinks.shape == (4,)
    shapes = {name: getattr(block["experts"], f"{name}_bias").shape for name in ("gate", "down")}
    assert shapes == {"gate": (5, 12), "down": (5, 24)}
    roles = weight_axis_roles(model)
    assert roles["block_0/attention/sinks"] == ("heads",)
    assert roles["block_0/experts/gate_bias"] == ("experts", "hidden")


@pytest.mark.exhaustive
def test_a_prefill_and_steps_equal_one_call(tmp_path):
    config = dataclasses.replace(gpt_oss.TINY, num_hidden_layers=2)
    model = fk.pretrained.build(config).build(jax.random.key(1))
    ids = np.random.default_rng(0).integers(1, 67, (2, 15)).astype("int32")
    expected, state, start, logits = model(ids), model.init_cache(2, 16), 0, []
    # windows of 6 tokens: the prompt is longer than the ring
    for size in (9, 1, 1, 4):
        out = model.apply(ids[:, start : start + size], state=state)
        state, start = state | out.updates, start + size
        logits.append(out.value)
    np.testing.assert_allclose(np.concatenate(logits, axis=1), expected, atol=1e-5)
    fk.save_model(tmp_path / "m.keras", model)
    assert fk.load_model(tmp_path / "m.keras").model == model


@pytest.mark.exhaustive
def test_training_reaches_sinks_and_balances_experts():
    config = dataclasses.replace(gpt_oss.TINY, num_hidden_layers=1, output_router_logits=True)
    model = fk.pretrained.build(config).build(jax.random.key(1))
    ids = np.arange(12, dtype="int32").reshape(2, 6)
    assert len(model.apply(ids, training=True).losses) == 1

    def loss(model):
        return model(ids).var()

    block = jax.grad(loss)(model).layers["block_0"].layers
    for gradient in (block["attention"].sinks, block["experts"].logit_bias):
        assert np.abs(gradient).max() > 0


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"num_experts_per_tok": 6}, "at most the number of experts, 5"),
        ({"num_local_experts": 0}, "num_local_experts"),
        ({"swiglu_limit": 0}, "swiglu_limit"),
        ({"swiglu_alpha": "x"}, "swiglu_alpha"),
        ({"hidden_act": "gelu"}, "Experts have no other activation"),
        ({"mlp_bias": True}, "mlp_bias: expected False"),
        ({"use_sliding_window": True}, "use_sliding_window: expected False"),
        ({"layer_types": ["full_attention"]}, "a type for each of 3 blocks"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_scaling: expected a type among"),
        ({"swiglu": 3}, "unknown key 'swiglu'"),
        ({"num_experts": 7}, "expected the value of num_experts, 7, received 5"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.pretrained.GptOssConfig.read({**TINY, **mapping})

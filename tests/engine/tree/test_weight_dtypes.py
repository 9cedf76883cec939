"""Weights that `jax.tree.map` cast decide over the dtype policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.tree.weight_dtypes import cast_dtype

X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def make_model():
    x = fk.Input((5, 4), batch_size=2)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    y = layers.BatchNormalization()(layers.Dense(4)(y))
    return fk.Model(x, layers.GRU(3, stateful=True)(y)).build(jax.random.key(0))


@pytest.mark.exhaustive
def test_weights_that_were_cast_compute_in_their_dtype():
    model = make_model()
    state = model.init_state()
    want = model.apply(X, state=state).value
    half = jax.tree.map(lambda w: w.astype("bfloat16"), model)
    # the initial state of both dtypes is taken
    for start in (state, half.init_state()):
        out = half.apply(X, state=start)
        assert out.value.dtype == "bfloat16"
        assert 0 < float(abs(out.value.astype("float32") - want).max()) < 0.02
    assert (
        half.layers["gru"].policy.name == "bfloat16" and half.layers["gru"].dtype.name == "float32"
    )
    assert out.updates["batch_normalization"]["moving_mean"].dtype == "float32"
    assert half(fk.Input((5, 4), batch_size=2)).dtype == "bfloat16"
    gradients = jax.grad(lambda m: m.apply(X, state=state).value.astype("float32").sum())(half)
    assert {g.dtype.name for g in jax.tree.leaves(gradients)} == {"bfloat16"}


@pytest.mark.parametrize(("start", "to"), [("bfloat16", "float32"), ("float32", "float16")])
def test_the_policy_follows_in_both_directions(start, to):
    layer = layers.Dense(2, dtype=start).build(jax.random.key(0), (None, 4))
    layer = jax.tree.map(lambda w: w.astype(to), layer)
    assert layer.policy.name == to and layer(X).dtype == to


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_other_policies_stay(policy):
    layer = layers.Dense(2, dtype=policy).build(jax.random.key(0), (None, 4))
    part = layer.replace(kernel=layer.kernel.astype("float16"))
    assert cast_dtype(part) is None and part.policy.name == policy
    whole = jax.tree.map(lambda w: w.astype("float16"), layer)
    assert whole.policy.name == ("float16" if policy == "float32" else policy)
    # a layer around layers of another policy keeps its own
    outer = layers.Bidirectional(layers.LSTM(2, dtype="bfloat16"))
    outer = outer.build(jax.random.key(0), (2, 5, 4))
    assert outer.policy.name == "float32" and outer(X).dtype == "float32"


def test_quantized_weights_and_labels_keep_the_policy():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dense(2, name="a")(x)).build(jax.random.key(0))
    assert fk.quantize(model, "int8").layers["a"].policy.name == "float32"
    labels = jax.tree.map(lambda w: "float16", model.layers["a"])
    assert labels.policy.name == "float32"
    ones = jnp.ones((1, 4))
    assert (jax.tree.map(lambda w: w + 0, model)(ones) == model(ones)).all()

"""Which calls compute each position by itself."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.generation.positions import follow, token_entry
from tests.support import language_models


def mixing(make):
    """The layers that mix positions in a model of one operation behind an embedding."""
    ids = fk.Input((None,), dtype="int32")
    x = layers.Embedding(5, 4, name="embedding")(ids)
    model = fk.Model(ids, layers.Dense(5, name="head")(make(x))).build(jax.random.key(0))
    state = jax.eval_shape(model.init_state)
    return follow(model, [token_entry("int32")], state, state).mixing


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make",
    [
        layers.LayerNormalization(),
        layers.EinsumDense("abc,cd->abd", (None, 4)),
        layers.Activation("gelu"),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        lambda x: layers.Add()([x, fk.ops.tanh(x)]),
        lambda x: fk.ops.transpose(fk.ops.transpose(x, (1, 0, 2)), (1, 0, 2)),
        fk.Sequential([fk.Input((None, 4)), layers.Dense(4, "relu")]),
    ],
    ids=lambda make: getattr(make, "name", None) or type(make).__name__,
)
def test_calls_without_other_positions_are_separate(make):
    assert mixing(make) == ()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make",
    [
        layers.Conv1D(4, 3, padding="causal", name="mix"),
        layers.GRU(4, return_sequences=True, name="mix"),
        layers.MultiHeadAttention(1, 2, name="mix"),
        lambda x: fk.ops.cumsum(x, axis=1, name="mix"),
        lambda x: fk.ops.flip(x, axis=1, name="mix"),
        lambda x: fk.ops.roll(x, 1, axis=1, name="mix"),
        lambda x: fk.ops.softmax(x, axis=1, name="mix"),
    ],
    ids=["convolution", "gru", "attention", "cumsum", "flip", "roll", "softmax"],
)
def test_calls_that_mix_positions_are_named(make):
    call = (lambda x: make(x, x)) if isinstance(make, layers.MultiHeadAttention) else make
    assert mixing(call) == ("mix",)


def test_layers_may_declare_that_positions_are_separate():
    class Sorted(fk.Layer):
        separate_positions: ClassVar[bool] = True

        def call(self, x):
            order = jnp.argsort(x[0, :, 0])
            return x[:, order][:, jnp.argsort(order)]

    assert mixing(Sorted(name="mix")) == ()


def test_caches_of_nested_layers_count():
    model = language_models.cached(depth=1)
    state = jax.eval_shape(model.init_state)
    cache = jax.eval_shape(lambda: model.init_cache(2, 16))
    entries = [token_entry("int32"), None]
    assert follow(model, entries, state, cache).mixing == ()
    assert follow(model, entries, state, state).mixing == ("positions", "block_0/attention")

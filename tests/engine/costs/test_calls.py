"""FLOPs of the calls of a graph: the sum equals XLA's analysis of the model."""

import jax
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.costs.calls import call_costs


def _costs(model):
    model = model.build(jax.random.key(0))
    return model, [call_costs(model, number) for number in range(len(model.graph.calls))]


@pytest.mark.exhaustive
def test_the_calls_sum_to_xlas_analysis_of_the_model():
    x = fk.Input((12, 12, 1))
    y = layers.Conv2D(4, 3, activation="relu")(x)
    y = layers.BatchNormalization()(y)
    y = layers.MaxPooling2D()(y)
    y = layers.GlobalAveragePooling2D()(y)
    model, costs = _costs(fk.Model(x, layers.Dense(3, activation="softmax")(y)))
    image = jax.ShapeDtypeStruct((1, 12, 12, 1), "float32")
    program = jax.jit(lambda m, s, x: m.apply(x, state=s).value)
    analysis = program.lower(model, model.init_state(), image).cost_analysis()
    assert sum(each.flops for each in costs) == pytest.approx(analysis["flops"], rel=0.01)


def test_masks_and_shared_layers():
    x = fk.Input((6,), dtype="int32")
    y = layers.Embedding(9, 8, mask_zero=True)(x)
    dense = layers.Dense(8)
    _, costs = _costs(fk.Model(x, layers.LSTM(4)(dense(dense(y)))))
    assert [each.flops for each in costs[2:4]] == [2 * 6 * 8 * 8 + 6 * 8] * 2
    assert costs[-1].flops > 6 * 2 * (8 + 4) * 16


def test_a_batch_size_in_the_graph_counts_the_whole_batch():
    x = fk.Input(batch_shape=(5, 3))
    assert _costs(fk.Model(x, layers.Dense(2, use_bias=False)(x)))[1][1].flops == 5 * 2 * 3 * 2


def test_calls_with_other_open_sizes_and_calls_on_strings_are_unknown():
    x = fk.Input((None, 3))
    assert _costs(fk.Model(x, layers.LSTM(2)(x)))[1][1] is None
    texts = fk.Input((), dtype="string")
    lookup = layers.StringLookup(vocabulary=["a", "b"])
    assert _costs(fk.Model(texts, lookup(texts)))[1][1] is None

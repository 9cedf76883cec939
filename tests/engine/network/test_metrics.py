"""Metrics of trainers and layers: their order, their names, their merged states."""

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.engine_layers import Tally

KEY = jax.random.key(9)
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


@pytest.mark.exhaustive
def test_metrics_keep_the_order_of_declaration():
    trainer = fk.Trainer("sgd", "mse", metrics=["mae", "mape", fk.metrics.MeanSquaredError("last")])
    run = trainer.init(fk.Sequential([fk.Input((4,)), layers.Dense(1)]), KEY)
    logs = trainer.evaluate(run, X, X[:, :1], verbose=0)
    assert len(logs) == 4
    assert next(iter(logs)) == "loss"
    assert list(logs)[3] == "last"
    assert logs["last"] == pytest.approx(logs["loss"], rel=1e-5)
    shortened = fk.Trainer("sgd", "mse", metrics=trainer.metrics[::-1])
    order = list(shortened.evaluate(shortened.init(run.model, KEY), X, X[:, :1], verbose=0))
    assert order == ["loss", *list(logs)[:0:-1]]


def test_metrics_reported_by_layers():
    x = fk.Input((4,))
    y = layers.Dense(1)(Tally("mn")(Tally("s")(x) * 2.0))
    model = fk.Model(x, y)
    trainer = fk.Trainer("sgd", "mse", metrics=[fk.metrics.MeanAbsoluteError("mae")])
    run = trainer.init(model, KEY)
    logs = trainer.evaluate(run, X[:6], X[:6, :1], batch_size=3, verbose=0)
    assert list(logs)[:2] == ["loss", "mae"]
    assert set(logs) == {"loss", "mae", "s", "mn"}
    assert logs["s"] == pytest.approx(np.mean(X[:6]), rel=1e-4)
    assert logs["mn"] == pytest.approx(2 * np.mean(X[:6]), rel=1e-4)
    assert run.model.graph.layer("tally").nodes[0].outbound_layer == "tally"
    twice = fk.Model(x, Tally("q")(Tally("q")(x))).build(KEY)
    with pytest.raises(
        ValueError, match=r"two calls report the metric 'q'.*'tally_1'.*different names"
    ):
        twice(X)


METRICS = [
    fk.metrics.MeanSquaredError(),
    fk.metrics.BinaryAccuracy(),
    fk.metrics.AUC(),
    fk.metrics.Precision(),
    fk.metrics.RootMeanSquaredError(),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("metric", METRICS, ids=lambda m: type(m).__name__)
def test_merged_metric_states_equal_the_state_of_all_data(metric):
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, size=(12, 1)).astype("float32")
    p = rng.random((12, 1)).astype("float32")

    @jax.jit
    def states(y, p):
        batch_states = [metric.update(metric.init(), y[i : i + 4], p[i : i + 4]) for i in (0, 4, 8)]
        merged = metric.merge(metric.merge(*batch_states[:2]), batch_states[2])
        carried, _ = jax.lax.scan(
            lambda s, b: (metric.update(s, *b), None),
            metric.init(),
            (y.reshape(3, 4, 1), p.reshape(3, 4, 1)),
        )
        return merged, metric.update(metric.init(), y, p), carried

    merged, full_state, carried = states(y, p)
    result = jax.jit(metric.result)
    chex.assert_trees_all_close(merged, full_state, rtol=1e-5, atol=1e-6)
    assert float(result(merged)) == pytest.approx(float(result(full_state)), rel=1e-5)
    assert float(result(merged)) == float(result(merged))
    assert metric == type(metric)(**metric.get_config())
    assert hash(metric) == hash(type(metric)())
    chex.assert_trees_all_close(carried, full_state, rtol=1e-5, atol=1e-6)

"""Exact counts and sums of metrics beyond 2**24, the limit of exact integers in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, metrics
from fkeras.metrics import exact
from tests.metrics.test_metrics import CASES, batches

# a metric for each kind of state; the exhaustive tests have the other metrics
QUICK = "BinaryAccuracy RootMeanSquaredError Precision AUC FBetaScore R2Score MeanIoU".split()
NUMBERS = [
    next(i for i, (metric, _) in enumerate(CASES) if type(metric).__name__ == kind)
    for kind in QUICK
]
OTHERS = [i for i in range(len(CASES)) if i not in NUMBERS]
COUNTERS = ("TruePositives", "TrueNegatives", "FalsePositives", "FalseNegatives")
FLOAT32_LIMIT = 2**24
MERGED_BATCHES = 2**26


def as_float64(state, name):
    """Returns a sum of the state as float64."""
    rest = np.asarray(state.get(f"{name}__rest", 0))  # a count of rows has no rest
    scale = 2.0**30 if rest.dtype == "int32" else 1.0
    return np.asarray(state[name], "float64") + rest * scale


@functools.cache
def repeated(numbers):
    """For each metric, the states of one batch and of 2**26 + 1 equal batches, with their results."""

    @jax.jit
    def every(data):
        states = []
        for (metric, _), batch in zip(cases, data, strict=True):
            empty = metric.init(jax.ShapeDtypeStruct((4, 4), "float32"))
            one = metric.update(empty, *batch)
            body = lambda _, state, metric=metric: metric.merge(state, state)  # noqa: E731
            many = jax.lax.fori_loop(0, 26, body, one)
            states.append((one, metric.merge(many, one), metric.result(one)))
            states[-1] += (metric.result(states[-1][1]),)
        return states

    cases = [CASES[number] for number in numbers]
    data = [next(iter(batches(kind, whole=m.dtype == "int32"))) for m, kind in cases]
    return dict(zip(numbers, jax.device_get(every(data)), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "group"),
    [(n, "quick") for n in NUMBERS]
    + [pytest.param(n, "others", marks=pytest.mark.exhaustive) for n in OTHERS],
    ids=lambda v: repr(CASES[v][0]) if isinstance(v, int) else "",
)
def test_merged_states_count_beyond_2_to_the_26(number, group):
    metric = CASES[number][0]
    results = repeated(tuple(NUMBERS if group == "quick" else OTHERS))
    one, many, result, result_of_many = results[number]
    names = [name for name in one if f"{name}__rest" in one]
    assert len(names) * 2 == len(one)
    for name in names:
        expected = as_float64(one, name) * (MERGED_BATCHES + 1)
        is_integer = (np.floor(as_float64(one, name)) == as_float64(one, name)).all()
        np.testing.assert_allclose(as_float64(many, name), expected, rtol=0 if is_integer else 1e-8)
    if getattr(metric, "num_regressors", 0) == 0:  # the score depends on the number of samples
        times = MERGED_BATCHES if type(metric).__name__ in COUNTERS else 1
        result = result * times
        np.testing.assert_allclose(result_of_many, result, rtol=1e-5, atol=1e-5)


def test_mean_counts_single_updates_beyond_2_to_the_24():
    metric = metrics.Mean()
    state = exact.add(metric.init(), {"count": jnp.float32(FLOAT32_LIMIT), "total": jnp.float32(0)})

    def step(state, value):
        return metric.update(state, value[None]), None

    @jax.jit
    def run(state, values):
        return jax.vmap(lambda s, v: jax.lax.scan(step, s, v)[0], in_axes=(None, 0))(state, values)

    states = run(state, jnp.ones((2, 9)))
    assert as_float64(states, "count").tolist() == [FLOAT32_LIMIT + 9] * 2
    assert as_float64(states, "total").tolist() == [9, 9]
    for part in ({"mask": [True, True, False]}, {"sample_weight": [1.0, 0.0, 1.0]}):
        later = metric.update(state, [1.0, 1.0, 1.0], **part)
        assert as_float64(later, "count") == FLOAT32_LIMIT + 2


@pytest.mark.exhaustive
def test_one_update_counts_more_than_2_to_the_24_values():
    size = FLOAT32_LIMIT + 3
    ones = np.ones(size, "int8")
    state = jax.jit(lambda v: metrics.Mean().update(metrics.Mean().init(), v))(ones)
    assert as_float64(state, "count") == as_float64(state, "total") == size
    metric = metrics.TruePositives()
    state = jax.jit(lambda v: metric.update(metric.init(), v, v))(ones)
    assert as_float64(state, "accumulator").tolist() == [size]


@pytest.mark.exhaustive
def test_integer_tables_count_beyond_2_to_the_31():
    metric = metrics.MeanIoU(2)
    state = metric.update(metric.init(), [0, 1, 1], [0, 1, 0])
    for _ in range(33):
        state = metric.merge(state, state)
    assert (
        as_float64(state, "total_confusion_matrix") == np.array([[1, 0], [1, 1]]) * 2.0**33
    ).all()
    np.testing.assert_allclose(metric.result(state), 0.5, 1e-6)
    more = exact.add(exact.zeros(["n"], (), "int32"), {"n": jnp.int32(2**31 - 1)})
    more = exact.add(more, {"n": jnp.int32(2**31 - 1)})
    assert as_float64(more, "n") == 2**32 - 2


def test_infinity_and_nan_are_preserved():
    state = exact.zeros(["total"], (), "float32")
    for value, expected in ((np.inf, np.inf), (1.0, np.inf), (-np.inf, np.nan), (1.0, np.nan)):
        state = exact.add(state, {"total": jnp.float32(value)})
        np.testing.assert_equal(float(state["total"]), expected)
    largest = exact.add(exact.zeros(["total"], (), "float32"), {"total": jnp.finfo("float32").max})
    assert exact.merge(largest, largest)["total"] == np.inf


def test_states_of_other_metrics_merge_as_sums():
    class Own(metrics.MeanMetric):
        def values(self, y_true, y_pred):
            return jnp.abs(y_true - y_pred)

        def init(self, y_pred=None):
            return {"total": jnp.zeros(()), "count": jnp.zeros(())}

    metric = Own()
    state = metric.update(metric.init(), np.ones(3, "float32"), np.zeros(3, "float32"))
    assert sorted(state) == ["count", "total"]
    both = metric.merge(state, state)
    assert (float(both["total"]), float(both["count"])) == (6, 6)


def test_trainers_count_samples_beyond_2_to_the_24():
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
    trainer = fk.Trainer("sgd", "mse", metrics=["mae"])
    run = trainer.init(model, jax.random.key(0))
    sums = {name: dict(state) for name, state in run.metrics.items()}
    for state in sums.values():
        state["count"] = jnp.int32(FLOAT32_LIMIT)
    run = run.replace(metrics=sums)
    x, y = np.ones((3, 2), "float32"), np.ones((3, 1), "float32")
    for _ in range(3):
        run, _ = trainer.step(run, (x, y))
    for state in run.metrics.values():
        assert as_float64(state, "count") == FLOAT32_LIMIT + 9

"""Learning rate schedules against Keras."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import optimizers
from fkeras.engine.config.configurable import option
from fkeras.optimizers import schedules
from tests.support import keras_numpy
from tests.support.optimizer_problem import SCHEDULES, rates

SCHEDULE_FORMS = (
    schedules.ExponentialDecay(0.1, 2, 0.5),
    lambda step: 0.1 / (step + 1).astype("float32"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rate", SCHEDULE_FORMS, ids=["schedule", "function"])
def test_schedules_are_functions_and_parts_of_an_optimizer(rate):
    tx = optimizers.SGD(rate).transformation()
    state = tx.init(jnp.ones(1))
    for step in range(3):
        delta, state = tx.update(jnp.ones(1), state)
        np.testing.assert_allclose(delta, -jnp.reshape(rate(jnp.int32(step)), 1), rtol=1e-6)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedules_equal_keras(schedule):
    config = schedules.serialize(schedule)
    assert config["module"] == "keras.optimizers.schedules"
    assert schedules.deserialize(config) == schedule
    mine = rates()[schedule]
    assert mine.dtype == "float32"
    theirs = keras_numpy.keras.optimizers.schedules.deserialize(config)
    expected = [theirs(np.int32(step)) for step in range(60)]
    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


# Keras's cosine takes no warmup beyond int32, and its PiecewiseConstantDecay no boundary
LONG = (
    ("CosineDecay", (0.1, 2**31)),
    ("CosineDecay", (0.1, 2**40)),
    ("CosineDecayRestarts", (0.1, 2**31)),
    ("CosineDecayRestarts", (0.1, 2**31, 1.0)),
    ("CosineDecayRestarts", (0.1, 2**31, 0.5)),
    ("ExponentialDecay", (0.1, 2**31, 0.9)),
    ("InverseTimeDecay", (0.1, 2**31, 0.9)),
    ("PolynomialDecay", (0.1, 2**31)),
    ("PolynomialDecay", (0.1, 2**31, 0.0, 1.0, True)),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "arguments"), LONG)
def test_schedules_take_more_steps_than_int32_holds(name, arguments):
    mine = jax.jit(getattr(schedules, name)(*arguments))
    theirs = getattr(keras_numpy.keras.optimizers.schedules, name)(*arguments)
    for step in (5, 2**20, 2**30):
        np.testing.assert_allclose(mine(step), theirs(step), rtol=1e-5, atol=1e-6)


def test_a_warmup_takes_more_steps_than_int32_holds():
    schedule = schedules.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=2**31)
    np.testing.assert_allclose(schedule(2**30), 0.5, rtol=1e-6)


BEYOND = 2**24  # float32 holds every integer up to here


@pytest.mark.exhaustive
def test_schedules_distinguish_steps_beyond_2_to_the_24():
    piecewise = schedules.PiecewiseConstantDecay([BEYOND, BEYOND + 2.5], [1.0, 0.5, 0.25])
    stairs = schedules.ExponentialDecay(1.0, BEYOND + 1, 0.5, staircase=True)
    inverse = schedules.InverseTimeDecay(1.0, BEYOND + 1, 1.0, staircase=True)
    line = schedules.PolynomialDecay(1.0, BEYOND + 3, 0.0)
    cycle = schedules.PolynomialDecay(1.0, BEYOND + 1, 0.0, cycle=True)
    warm = schedules.CosineDecay(0.0, 2, warmup_target=1.0, warmup_steps=BEYOND + 1)
    flat = schedules.CosineDecayRestarts(1.0, BEYOND + 1, t_mul=1.0, m_mul=0.5)
    waves = schedules.CosineDecayRestarts(1.0, 2**22 - 1, t_mul=2.0)
    every = (piecewise, stairs, inverse, line, cycle, warm, flat, waves)
    compute = jax.jit(lambda steps: [schedule(steps) for schedule in every])
    steps = jnp.asarray([BEYOND, BEYOND + 1, BEYOND + 2, BEYOND + 3], "int32")
    found = dict(zip(every, np.asarray(compute(steps)), strict=True))
    assert found[piecewise].tolist() == [1.0, 0.5, 0.5, 0.25]
    assert found[stairs].tolist() == [1.0, 0.5, 0.5, 0.5]
    assert found[inverse].tolist() == [1.0, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(found[line] * (BEYOND + 3), [3, 2, 1, 0], 1e-6)
    np.testing.assert_allclose(found[cycle], [0, 0, 0.5, 0.5], 1e-6, 1e-7)
    np.testing.assert_allclose(found[warm], [1, 1, 0.5, 0], 1e-6, 1e-6)
    np.testing.assert_allclose(found[flat], [0, 0.5, 0.5, 0.5], 1e-6, 1e-6)
    start = 7 * (2**22 - 1)
    around = np.asarray(compute(jnp.asarray([start - 1, start, start + 1, 2**31 - 1], "int32"))[-1])
    np.testing.assert_allclose(around[:3], [0, 1, 1], 1e-6, 1e-6)
    assert 0 <= around[3] <= 1


@pytest.mark.one_in(6)
@pytest.mark.parametrize("step", [3, 3.0, np.int8(3), np.uint32(3), np.int64(3), jnp.float32(3)])
def test_schedules_take_steps_of_every_dtype(step):
    for schedule in SCHEDULES[::3]:
        np.testing.assert_allclose(schedule(step), rates()[schedule][3], 1e-6)
        assert np.isfinite(schedule(2**40))


class Halving(schedules.LearningRateSchedule):
    every: int = option(default=2)

    def __call__(self, step):
        return 0.1 * 0.5 ** (step // self.every)


def test_a_custom_schedule():
    optimizer = optimizers.SGD(Halving(3))
    config = optimizers.serialize(optimizer)
    assert optimizers.get(config, {"Halving": Halving}) == optimizer

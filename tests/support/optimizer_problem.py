"""A small problem, and twenty steps of our optimizers and of Keras's on it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fkeras import optimizers
from fkeras.optimizers import schedules
from tests.support import keras_numpy
from tests.support.keras_oracle import keras, keras_rules

STEPS = 20


def problem():
    """Weights of one, two and three axes, the last of them zero, and a gradient for each step."""
    rng = np.random.default_rng(0)
    shapes = {"bias": (4,), "kernel": (3, 4), "zeros": (2, 3, 2)}
    weights = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    weights["zeros"] *= 0
    gradients = {n: rng.normal(size=(STEPS, *s)).astype("float32") for n, s in shapes.items()}
    gradients["bias"][3] = 0
    return jax.device_put((weights, gradients))


def ours(optimizer, weights, gradients):
    tx = optimizer.transformation()

    def step(carry, gradient):
        weights, state = carry
        deltas, state = tx.update(gradient, state, weights)
        return (optax.apply_updates(weights, deltas), state), None

    return jax.jit(lambda w: jax.lax.scan(step, (w, tx.init(w)), gradients)[0])(weights)


def keras_optimizer(optimizer, keras=keras):
    # Keras's own deserialize does not know Lamb
    cls = getattr(keras.optimizers, type(optimizer).__name__)
    with keras_rules():
        return cls.from_config(optimizers.serialize(optimizer)["config"])


def keras_steps(optimizer, weights, gradients, prepare=lambda reference: None):
    """Keras's weights after all steps, the finalized weights, and the optimizer's variables."""
    names = sorted(weights)
    reference = keras_optimizer(optimizer, keras_numpy.keras)
    variables = [keras_numpy.keras.Variable(np.asarray(weights[n]), name=n) for n in names]
    prepare(reference)
    keras_numpy.quietly(reference.build, variables)
    gradients = [np.asarray(gradients[n]) for n in names]
    for step in range(STEPS):
        keras_numpy.quietly(reference.apply, [gradient[step] for gradient in gradients])
    values = [np.array(v.value) for v in variables]
    reference.finalize_variable_values(variables)
    final_values = [np.array(v.value) for v in variables]
    own_variables = {v.path: np.asarray(v.value) for v in reference.variables}
    return (
        dict(zip(names, values, strict=True)),
        dict(zip(names, final_values, strict=True)),
        own_variables,
    )


def assert_trees_close(mine, expected, **tolerances):
    tolerances = {"rtol": 1e-5, "atol": 1e-5} | tolerances
    assert sorted(mine) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(mine[name], value, err_msg=name, **tolerances)


SCHEDULES = (
    schedules.ExponentialDecay(0.1, 10, 0.9),
    schedules.ExponentialDecay(0.1, 10, 0.9, staircase=True),
    schedules.InverseTimeDecay(0.1, 10, 0.5),
    schedules.InverseTimeDecay(0.1, 10, 0.5, staircase=True),
    schedules.PiecewiseConstantDecay([10, 20, 25], [0.1, 0.2, 0.05, 0.01]),
    schedules.PolynomialDecay(0.1, 12),
    schedules.PolynomialDecay(0.1, 12, 0.01, power=2.0, cycle=True),
    schedules.CosineDecay(0.1, 12),
    schedules.CosineDecay(0.1, 12, alpha=0.1, warmup_target=0.3, warmup_steps=5),
    schedules.CosineDecayRestarts(0.1, 5),
    schedules.CosineDecayRestarts(0.1, 5, t_mul=1.0, m_mul=0.5, alpha=0.1),
    schedules.CosineDecayRestarts(0.1, 7, t_mul=1.5, m_mul=0.9),
)


@functools.cache
def rates():
    """Learning rates of every schedule for sixty steps, in one compiled program."""
    steps = jnp.arange(60)
    values = jax.jit(lambda steps: [jax.vmap(schedule)(steps) for schedule in SCHEDULES])(steps)
    return dict(zip(SCHEDULES, values, strict=True))

"""Optimizers: Keras's numbers, optax's protocol, legal carries, configuration."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from keras_oracle import keras, keras_rules

from fkeras import optimizers
from fkeras.engine.config import option
from fkeras.optimizers import schedules

STEPS = 20

OPTIMIZERS = (
    optimizers.SGD(0.1),
    optimizers.SGD(0.1, momentum=0.9),
    optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    optimizers.RMSprop(0.01),
    optimizers.RMSprop(0.01, rho=0.8, momentum=0.5, centered=True, epsilon=1e-3),
    optimizers.Adam(0.01),
    optimizers.Adam(0.01, amsgrad=True, epsilon=1e-2),
    optimizers.Adam(0.01, weight_decay=0.1),
    optimizers.AdamW(0.01),
    optimizers.AdamW(0.01, 0.1, 0.8, 0.99),
    optimizers.Adamax(0.01),
    optimizers.Nadam(0.01),
    optimizers.Adagrad(0.1),
    optimizers.Adadelta(1.0),
    optimizers.Lion(0.01, weight_decay=0.02),
    optimizers.Ftrl(
        0.1,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        beta=0.1,
    ),
    optimizers.Ftrl(0.1, weight_decay=0.05),
    optimizers.Lamb(0.01),
    optimizers.Lamb(0.01, weight_decay=0.1),
    optimizers.Adafactor(0.1),
    optimizers.Adafactor(0.5, relative_step=False, weight_decay=0.01),
    optimizers.SGD(0.1, clipnorm=0.5),
    optimizers.SGD(0.1, clipvalue=0.1),
    optimizers.Adam(0.01, global_clipnorm=0.5),
    optimizers.Adam(schedules.CosineDecay(0.05, 15, warmup_target=0.1, warmup_steps=4)),
    optimizers.SGD(schedules.PiecewiseConstantDecay([3, 9], [0.1, 0.05, 0.01]), weight_decay=0.1),
)


def problem():
    """Weights of one, two and three axes, one of them zero, and a gradient for each step."""
    rng = np.random.default_rng(0)
    shapes = {"bias": (4,), "kernel": (3, 4), "zeros": (2, 3), "third": (2, 3, 2)}
    weights = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    weights["zeros"] *= 0
    gradients = {n: rng.normal(size=(STEPS, *s)).astype("float32") for n, s in shapes.items()}
    gradients["bias"][3] = 0
    return jax.tree.map(jnp.asarray, (weights, gradients))


def ours(optimizer, weights, gradients):
    tx = optimizer.transformation()

    def step(carry, gradient):
        weights, state = carry
        deltas, state = tx.update(gradient, state, weights)
        return (optax.apply_updates(weights, deltas), state), None

    return jax.jit(lambda c: jax.lax.scan(step, c, gradients)[0])((weights, tx.init(weights)))


def keras_optimizer(optimizer):
    config = optimizers.serialize(optimizer)["config"]
    return getattr(keras.optimizers, type(optimizer).__name__).from_config(config)


def keras_weights(optimizer, weights, gradients):
    names = sorted(weights)
    with keras_rules():
        made = keras_optimizer(optimizer)
        variables = [keras.Variable(np.asarray(weights[n]), name=n) for n in names]
        made.build(variables)

        def step(carry, gradient):
            values, state = made.stateless_apply(carry[1], [gradient[n] for n in names], carry[0])
            return (values, state), None

        carry = ([v.value for v in variables], [v.value for v in made.variables])
        values, _ = jax.jit(lambda c: jax.lax.scan(step, c, gradients)[0])(carry)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_twenty_steps_equal_keras(optimizer):
    weights, gradients = problem()
    mine, state = ours(optimizer, weights, gradients)
    expected = keras_weights(optimizer, weights, gradients)
    for name, value in expected.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    assert int(state.count) == STEPS


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_values_and_configuration(optimizer):
    config = optimizers.serialize(optimizer)
    assert optimizers.deserialize(config) == optimizer
    assert optimizers.get(config) == optimizer
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer
    assert hash(optimizers.deserialize(config)) == hash(optimizer)
    with keras_rules():
        theirs = dict(config, config=keras_optimizer(optimizer).get_config())
    theirs["config"]["name"] = optimizer.name
    assert optimizers.deserialize(theirs) == optimizer


@pytest.mark.parametrize("name", sorted({type(o).__name__ for o in OPTIMIZERS}))
def test_names_and_defaults_of_keras(name):
    assert optimizers.get(name) == optimizers.get(name.lower()) == getattr(optimizers, name)()
    with keras_rules():
        config = dict(getattr(keras.optimizers, name)().get_config(), name=None)
    assert getattr(optimizers, name).from_config(config) == getattr(optimizers, name)()


@pytest.mark.parametrize(
    "optimizer", {type(o): o for o in OPTIMIZERS[:-2]}.values(), ids=lambda o: type(o).__name__
)
def test_low_precision_weights_keep_dtypes(optimizer):
    weights, gradients = problem()
    mixed = dict(weights, kernel=weights["kernel"].astype("bfloat16"))
    mixed_gradients = dict(gradients, kernel=gradients["kernel"].astype("bfloat16"))
    new, state = ours(optimizer, mixed, mixed_gradients)
    assert new["kernel"].dtype == "bfloat16"
    for leaf in jax.tree.leaves(state):
        assert not leaf.weak_type
        assert leaf.dtype in ("int32", "float32")
    assert all(np.isfinite(np.asarray(w, "float32")).all() for w in jax.tree.leaves(new))
    full, _ = ours(optimizer, weights, gradients)
    np.testing.assert_allclose(new["kernel"].astype("float32"), full["kernel"], atol=0.1)


def test_the_rate_of_a_running_training_changes_without_a_new_compilation():
    tx = optimizers.get("sgd").transformation()
    traces = []

    @jax.jit
    def update(gradient, state):
        traces.append(1)
        return tx.update(gradient, state)

    state = tx.init(jnp.ones(2))
    np.testing.assert_allclose(update(jnp.ones(2), state)[0], -0.01)
    state = state._replace(learning_rate=jnp.float32(0.5))
    np.testing.assert_allclose(update(jnp.ones(2), state)[0], -0.5)
    assert len(traces) == 1


def test_vmap_over_members():
    tx = optimizers.Adam(0.1).transformation()
    weights = {"w": jnp.ones((3, 2))}
    state = jax.vmap(tx.init)(weights)
    deltas, state = jax.vmap(tx.update)({"w": jnp.ones((3, 2))}, state, weights)
    np.testing.assert_allclose(deltas["w"], -0.1, rtol=1e-5)
    assert state.count.shape == (3,)


def test_holes_in_the_tree_stay_holes():
    tx = optimizers.Adam().transformation()
    weights = {"a": jnp.ones(2), "b": None}
    deltas, _ = tx.update(weights, tx.init(weights), weights)
    assert deltas["b"] is None


def test_nothing_to_train():
    tx = optimizers.Adam(weight_decay=0.1).transformation()
    deltas, state = tx.update({}, tx.init({}), {})
    assert deltas == {}
    assert int(state.count) == 1


def test_functions_of_the_step_and_optax_chains():
    tx = optax.chain(
        optax.add_decayed_weights(0.0),
        optimizers.SGD(lambda n: 1.0 / (n + 1).astype(float)).transformation(),
    )
    state = tx.init(jnp.ones(1))
    first, state = tx.update(jnp.ones(1), state, jnp.ones(1))
    second, _ = tx.update(jnp.ones(1), state, jnp.ones(1))
    np.testing.assert_allclose(np.concatenate([first, second]), [-1.0, -0.5])


def test_optax_transformations_pass_through():
    adam = optax.adam(1e-3)
    assert optimizers.get(adam) is adam
    assert optimizers.transformation(adam) is adam
    assert optimizers.get(None) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimizers.get("adm"), "Did you mean 'adam'"),
        (lambda: optimizers.get(print), "has no init and update"),
        (lambda: optimizers.get(3), "optimizer"),
        (lambda: optimizers.Adam("fast"), "learning_rate: expected a number"),
        (lambda: optimizers.Adam(learning_rat=1.0), "learning_rate"),
        (lambda: optimizers.SGD(momentum=2.0), "momentum: expected a number from 0 to 1"),
        (lambda: optimizers.SGD(clipnorm=-1), "clipnorm: expected a number above 0"),
        (lambda: optimizers.SGD(clipnorm=1, clipvalue=1), "at most one of"),
        (lambda: optimizers.Ftrl(learning_rate_power=1), "learning_rate_power"),
        (lambda: optimizers.SGD.from_config({"use_ema": True}), "there is no use_ema here"),
        (lambda: optimizers.SGD(use_ema=True), "use_ema"),
        (
            lambda: optimizers.transformation(optimizers.Optimizer()).update(
                [1.0], optimizers.transformation(optimizers.Optimizer()).init([1.0])
            ),
            "needs its own step",
        ),
        (lambda: schedules.CosineDecay(0.1, 0), "decay_steps: expected"),
        (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "one value more"),
        (lambda: schedules.LearningRateSchedule()(0), "needs its own __call__"),
    ],
)
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
        call()


def test_weights_are_asked_for():
    for optimizer in (optimizers.AdamW(), optimizers.Lamb()):
        tx = optimizer.transformation()
        with pytest.raises(ValueError, match="expected the weights too"):
            tx.update(jnp.ones(2), tx.init(jnp.ones(2)))


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


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedules_equal_keras(schedule):
    config = schedules.serialize(schedule)
    assert config["module"] == "keras.optimizers.schedules"
    assert schedules.deserialize(config) == schedule
    steps = jnp.arange(60)
    mine = jax.jit(jax.vmap(schedule))(steps)
    assert mine.dtype == "float32"
    with keras_rules():
        theirs = keras.optimizers.schedules.deserialize(config)
        expected = jax.jit(jax.vmap(theirs))(steps)
    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


class Halving(schedules.LearningRateSchedule):
    every: int = option(2)

    def __call__(self, step):
        return 0.1 * 0.5 ** (step // self.every)


def test_a_schedule_of_ones_own():
    optimizer = optimizers.SGD(Halving(3))
    config = optimizers.serialize(optimizer)
    assert optimizers.get(config, {"Halving": Halving}) == optimizer

"""`Trainer.run`: whole trainings as one pure function; populations and hypergradients."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import experimental

import fkeras as fk
from fkeras import layers

RNG = np.random.default_rng(2)
X = RNG.normal(size=(37, 3)).astype("float32")
Y = (X[:, :1] - 0.5 * X[:, 1:2] ** 2).astype("float32")
KEY = jax.random.key(4)


def noisy():
    x = fk.Input((3,))
    h = layers.Dropout(0.2)(layers.Dense(6, "tanh")(x))
    return fk.Model(x, layers.Dense(1)(layers.BatchNormalization(momentum=0.8)(h)))


TRAINER = fk.Trainer(fk.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
RUN = TRAINER.init(noisy(), KEY)


def with_rate(run, rate):
    return run.replace(opt_state=run.opt_state._replace(learning_rate=rate))


@pytest.mark.parametrize("shuffle", [True, False])
def test_run_computes_the_same_as_fit(shuffle):
    fitted, history = TRAINER.fit(RUN, X, Y, 8, epochs=2, shuffle=shuffle, verbose=0)
    run, logs = jax.jit(lambda run: TRAINER.run(run, (X, Y), 2, 8, shuffle))(RUN)
    chex.assert_trees_all_close(run.model, fitted.model, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(run.state, fitted.state, rtol=1e-4, atol=1e-6)
    assert int(run.step) == int(fitted.step) == 10
    assert list(logs) == list(history.history)
    for name, values in history.history.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-4)


def test_sixty_four_members_of_a_population_are_as_sixty_four_trainings():
    members = 64
    rates = jnp.linspace(0.001, 0.1, members)
    keys = jax.random.split(KEY, members)
    starts = [with_rate(TRAINER.init(noisy(), key), rate) for key, rate in zip(keys, rates)]
    together = jax.tree.map(lambda *a: jnp.stack(a), *starts)
    train = jax.jit(lambda run: TRAINER.run(run, (X, Y), 2, 8))
    population, logs = jax.jit(jax.vmap(lambda run: TRAINER.run(run, (X, Y), 2, 8)))(together)
    assert logs["loss"].shape == (members, 2)
    for member, start in enumerate(starts):
        single_run, single_logs = train(start)
        mine = jax.tree.map(lambda a, member=member: a[member], population)
        chex.assert_trees_all_close(mine.model, single_run.model, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(logs["loss"][member], single_logs["loss"], rtol=1e-4)
    assert np.unique(logs["loss"][:, 1]).size == members


def test_hypergradients_agree_with_finite_differences():
    trainer = fk.Trainer(fk.optimizers.AdamW(0.02, weight_decay=0.1), "mse")
    with (jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64)(True):
        x = fk.Input((3,), dtype="float64")
        h = layers.Dense(4, "tanh", dtype="float64")(x)
        model = fk.Model(x, layers.Dense(1, dtype="float64")(h))
        start = trainer.init(model, KEY)
        rows = X[:24].astype("float64"), Y[:24].astype("float64")
        held = X[24:].astype("float64"), Y[24:].astype("float64")

        @jax.jit
        def outer(hyper):
            rate, decay = hyper
            opt_state = start.opt_state._replace(learning_rate=rate, weight_decay=decay)
            run, _ = trainer.run(start.replace(opt_state=opt_state), rows, 2, 8, shuffle=False)
            return jnp.mean(jnp.square(run.model(held[0]) - held[1]))

        point = jnp.array([0.02, 0.1], "float64")
        slopes = jax.jit(jax.grad(outer))(point)
        for place, step in enumerate((1e-5, 1e-4)):
            moved = [outer(point.at[place].add(sign * step)) for sign in (1, -1)]
            expected = (moved[0] - moved[1]) / (2 * step)
            assert abs(slopes[place] - expected) < 1e-3 * abs(expected), (slopes, expected)


def test_a_run_takes_sample_weights_and_trees():
    a, b = fk.Input((3,), name="a"), fk.Input((3,), name="b")
    model = fk.Model({"a": a, "b": b}, {"sum": layers.Dense(1, name="out")(a + b)})
    trainer = fk.Trainer("sgd", "mse")
    run, weights = trainer.init(model, KEY), RNG.random(37).astype("float32")
    rows = {"a": X, "b": X[::-1].copy()}, {"sum": Y}
    fitted, _ = trainer.fit(run, *rows, 8, sample_weight={"sum": weights}, verbose=0)
    pure, _ = trainer.run(run, (*rows, {"sum": weights}), 1, 8)
    chex.assert_trees_all_close(pure.model, fitted.model, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((X, Y), 0), "epochs: expected a positive integer"),
        (((X, Y), 1, 0), "batch_size: expected"),
        ((X, 1), r"expected a batch \(x, y\)"),
        (((X, Y[:3]), 1), "x 37, y 3"),
        (((X[:0], Y[:0]), 1), "empty"),
    ],
)
def test_bad_arguments_of_run(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TRAINER.run(RUN, *arguments)
    with pytest.raises(TypeError, match="expected a TrainState first"):
        TRAINER.run(RUN.model, (X, Y), 1)

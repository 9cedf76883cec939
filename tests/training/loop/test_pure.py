"""`Trainer.run`: whole trainings as one pure function; populations and hypergradients."""

import contextlib
import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import experimental

import fkeras as fk
from fkeras import layers
from tests.support.quick_cases import quick_cases

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


@pytest.mark.exhaustive
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


#: options of the base class of optimizers, alone and where one changes the meaning of another
OPTIONS = [
    {"learning_rate": fk.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5), "name": "decaying"},
    {"weight_decay": 0.1, "exclude_from_weight_decay": ["bias"]},
    {"clipnorm": 0.1},
    {"clipvalue": 0.01},
    {"global_clipnorm": 0.1},
    {"use_ema": True, "ema_momentum": 0.9},
    {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3},
    {"loss_scale_factor": 1024.0},
    {"gradient_accumulation_steps": 3},
    {"gradient_accumulation_steps": 3, "use_ema": True, "clipnorm": 0.1},
]
AVERAGING = fk.optimizers.SGD(0.05, use_ema=True)
OPTIMIZERS = {
    **{" ".join(row): fk.optimizers.Adam(**{"learning_rate": 0.01, **row}) for row in OPTIONS},
    "loss scale": fk.optimizers.LossScaleOptimizer(AVERAGING, dynamic_growth_steps=3),
    "overflow": fk.optimizers.LossScaleOptimizer(AVERAGING, initial_scale=2.0**127),
    "multi": fk.optimizers.MultiOptimizer({"*/kernel": AVERAGING, "*": "adam"}),
    "optax": optax.chain(optax.clip(0.1), optax.sgd(0.01, momentum=0.9)),
    "optax mask": optax.adamw(
        0.01, weight_decay=0.1, mask=lambda weights: {path: "bias" not in path for path in weights}
    ),
    "optax plateau": optax.chain(
        optax.sgd(0.1), optax.contrib.reduce_on_plateau(patience=1, rtol=0.5)
    ),
    "optax lbfgs": optax.lbfgs(),
}
OPTIMIZERS |= {
    name: value(0.01, use_ema=True, clipnorm=0.1)
    for name, value in vars(fk.optimizers).items()
    if isinstance(value, type)
    and issubclass(value, fk.optimizers.Optimizer)
    and name != "Optimizer"
}
QUICK = ("use_ema ema_momentum ema_overwrite_frequency", "learning_rate name", "overflow", "multi")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(OPTIMIZERS, *QUICK))
def test_run_and_steps_equal_fit_with_every_option(name):
    """Compares bit by bit: the tests compile without the optimizations that fuse across a step."""
    with contextlib.ExitStack() as rules:
        if name.startswith("optax"):  # whose code promotes dtypes and ranks
            rules.enter_context(jax.numpy_dtype_promotion("standard"))
            rules.enter_context(jax.numpy_rank_promotion("allow"))
        _compare_run_and_steps_with_fit(OPTIMIZERS[name])


def _compare_run_and_steps_with_fit(optimizer):
    trainer = fk.Trainer(optimizer, "mse")
    x = fk.Input((3,))
    run = trainer.init(fk.Model(x, layers.Dense(1, kernel_constraint="unit_norm")(x)), KEY)
    rows = X[:32], Y[:32]
    fitted, history = trainer.fit(run, *rows, 8, epochs=2, shuffle=False, verbose=0)
    pure, logs = trainer.run(run, rows, 2, 8, shuffle=False)
    chex.assert_trees_all_equal(pure.replace(position=fitted.position), fitted)
    np.testing.assert_array_equal(logs["loss"], np.asarray(history["loss"], "float32"))
    for start in [*range(0, 32, 8), *range(0, 32, 8)]:
        run, _ = trainer.step(run, tuple(a[start : start + 8] for a in rows))
    chex.assert_trees_all_equal(run.opt_state, fitted.opt_state)
    if isinstance(optimizer, fk.optimizers.BaseOptimizer):
        run = run.replace(model=optimizer.finalize(run.opt_state, run.model))
    chex.assert_trees_all_equal(run.model, fitted.model)


def test_every_option_is_in_the_table():
    fields = {field.name for field in dataclasses.fields(fk.optimizers.Optimizer)}
    assert fields == {name for row in OPTIONS for name in row}


@pytest.mark.exhaustive
def test_run_trains_on_after_layers_were_frozen():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1, use_ema=True), "mse")
    run = trainer.init(noisy(), KEY)
    run = run.replace(model=fk.freeze(run.model, "dense"))
    fitted, _ = trainer.fit(run, X[:32], Y[:32], 8, verbose=0)
    pure, _ = trainer.run(run, (X[:32], Y[:32]), 1, 8)
    chex.assert_trees_all_equal(pure.model, fitted.model)
    trainable, frozen = fk.partition(pure.model)
    averaged = fk.combine(trainer.optimizer.finalize(pure.opt_state, trainable), frozen)
    chex.assert_trees_all_equal(averaged, fitted.model)


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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

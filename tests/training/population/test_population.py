"""`Population`: each member equals its own `fit`; runs of members, meshes, wrong runs."""

import chex
import jax
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, losses, optimizers
from fkeras.optimizers import schedules
from fkeras.training.population import program

RNG = np.random.default_rng(3)
X = RNG.normal(size=(37, 4)).astype("float32")
LABELS = RNG.integers(0, 3, 37)
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
KEY = jax.random.key(5)
SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)
SMOOTH = losses.CategoricalCrossentropy(from_logits=True)


def dense():
    hidden = [layers.Dense(5, "tanh"), layers.Dropout(0.3)]
    return fk.Sequential([fk.Input((4,)), *hidden, layers.Dense(3)])


def normalized():
    # without a bias before BatchNormalization: Adam would amplify rounding in its gradient of 0
    hidden = [layers.Dense(5, use_bias=False), layers.BatchNormalization(momentum=0.8)]
    return fk.Sequential([fk.Input((4,)), *hidden, layers.Dense(3)])


def convolutional():
    hidden = [layers.Reshape((4, 1)), layers.Conv1D(3, 2, activation="relu"), layers.Flatten()]
    return fk.Sequential([fk.Input((4,)), *hidden, layers.Dense(3)])


def own_trainer(population, runs, number):
    trainer = population.trainer_of(runs, number)
    return fk.Trainer(trainer.optimizer, trainer.loss, trainer.metrics)


def check_members(population, model, y, **options):
    """Compares each member with its own `fit`; returns the runs after the training."""
    options = {"epochs": 2, "batch_size": 8, "verbose": 0, **options}
    start = population.init(model, KEY)
    runs, history = population.fit(start, X, y, **options)
    for number in range(len(population)):
        trainer = own_trainer(population, start, number)
        own, logs = trainer.fit(population.member(start, number), X, y, **options)
        member = population.member(runs, number)
        fields = [(r.model, r.state, r.opt_state, r.step) for r in (member, own)]
        chex.assert_trees_all_close(*fields, rtol=1e-5, atol=1e-5)
        assert list(history.history) == list(logs.history)
        for name, values in logs.history.items():
            np.testing.assert_allclose(np.array(history[name])[:, number], values, rtol=1e-5)
    return runs


ADAM = fk.Trainer("adam", SPARSE, ["accuracy"])
SGD = fk.Trainer(optimizers.SGD(0.1, momentum=0.9), SMOOTH)
INJECTED = fk.Trainer(optax.inject_hyperparams(optax.sgd)(0.1, momentum=0.9), SPARSE)
RATES = (schedules.CosineDecay(0.1, 10), schedules.ExponentialDecay(0.1, 5, 0.5))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("trainer", "values", "model", "y", "options"),
    [
        (
            ADAM,
            {"learning_rate": [1e-2, 1e-3], "seed": [0, 7]},
            dense,
            LABELS,
            {"validation_split": 0.2},
        ),
        (ADAM, {"seed": [1, 2]}, normalized, LABELS, {"validation_data": (X[:9], LABELS[:9])}),
        (
            SGD,
            {"momentum": [0.5, 0.9], "clipnorm": [0.1], "weight_decay": [0, 0.1]},
            dense,
            ONE_HOT,
            {},
        ),
        (
            fk.Trainer("adam", SMOOTH),
            {"beta_1": [0.5, 0.9], "label_smoothing": [0.0, 0.1]},
            dense,
            ONE_HOT,
            {"validation_split": 0.2},
        ),
        (fk.Trainer("sgd", SPARSE), {"learning_rate": RATES, "seed": [0]}, dense, LABELS, {}),
        (
            INJECTED,
            {"learning_rate": [0.01, 0.1], "momentum": [0.5]},
            dense,
            LABELS,
            {"shuffle": False},
        ),
        (ADAM, {"seed": [0, 1]}, convolutional, LABELS, {"class_weight": {0: 2.0}}),
    ],
    ids=["rate", "statistics", "sgd", "smoothing", "schedules", "optax", "convolution"],
)
def test_each_member_equals_its_own_fit(trainer, values, model, y, options):
    check_members(fk.populate(trainer, values), model(), y, **options)


@pytest.mark.exhaustive
def test_members_in_groups_equal_their_own_fit():
    check_members(fk.populate(ADAM, {"seed": range(3)}, group_size=2), dense(), LABELS, epochs=1)


@pytest.mark.parametrize("members", [8, 3])
@pytest.mark.exhaustive
def test_devices_share_the_members(members):
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    trainer = fk.Trainer("adam", SPARSE, ["accuracy"], mesh=mesh)
    population = fk.populate(trainer, {"seed": range(members)})
    runs = check_members(population, dense(), LABELS, epochs=1, validation_split=0.2)
    kernel = runs.model.layers["dense"].kernel
    if members == 8:
        assert {shard.data.shape[0] for shard in kernel.addressable_shards} == {1}
    own, _ = trainer.fit(population.member(runs, 1), X, LABELS, batch_size=16, verbose=0)
    assert int(own.step) == 7


@pytest.mark.exhaustive
def test_a_short_last_batch_has_only_its_rows():
    population = fk.populate(ADAM, {"seed": range(2)}, order="shared")
    runs, _ = population.fit(
        population.init(normalized(), KEY), X, LABELS, batch_size=16, verbose=0
    )
    start = population.init(normalized(), KEY)
    own, _ = ADAM.fit(population.member(start, 0), X, LABELS, batch_size=16, verbose=0)
    chex.assert_trees_all_close(population.member(runs, 0).model, own.model, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_shared_order_gives_all_members_the_batches_of_the_first():
    model, runs = normalized().build(KEY), {}
    for order in ("member", "shared"):
        population = fk.populate(ADAM, {"seed": range(2)}, order=order)
        runs[order], _ = population.fit(population.init(model, KEY), X, LABELS, 8, verbose=0)
    members = {order: np.asarray(jax.tree.leaves(run.model)[0]) for order, run in runs.items()}
    assert (members["shared"][0] == members["shared"][1]).all()
    assert (members["member"][0] != members["member"][1]).any()


@pytest.mark.exhaustive
def test_without_seeds_members_start_alike():
    population = fk.populate(ADAM, {"learning_rate": [0.1, 0.2]})
    runs = population.init(dense(), KEY)
    kernel = runs.model.layers["dense"].kernel
    assert (kernel[0] == kernel[1]).all()
    assert bool(population.member(runs, 1).key == KEY)
    seeded = fk.populate(ADAM, {"seed": [3]})
    run = seeded.member(seeded.init(dense(), KEY), 0)
    assert bool(run.key == jax.random.fold_in(KEY, 3))
    chex.assert_trees_all_equal(run.model, ADAM.init(dense(), run.key).model)


@pytest.mark.exhaustive
def test_a_member_continues_and_is_saved(tmp_path):
    population = fk.populate(ADAM, {"learning_rate": [0.1, 0.2], "seed": [0]})
    runs, _ = population.fit(population.init(dense(), KEY), X, LABELS, verbose=0)
    run = population.member(runs, -1)
    assert float(run.opt_state.learning_rate) == pytest.approx(0.2)
    fitted, history = ADAM.fit(run, X, LABELS, initial_epoch=1, epochs=2, verbose=0)
    assert int(fitted.step) == 4 and history.epoch == [1]
    fk.save_model(tmp_path / "m.keras", run.model, run.state)
    model, _ = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(model(X[:2]), run.model(X[:2]))


@pytest.mark.exhaustive
def test_runs_continue_in_a_second_fit():
    population = fk.populate(ADAM, {"seed": range(2)})
    start = population.init(dense(), KEY)
    both, _ = population.fit(start, X, LABELS, epochs=2, verbose=0)
    half, _ = population.fit(start, X, LABELS, epochs=1, verbose=0)
    half, history = population.fit(half, X, LABELS, initial_epoch=1, epochs=2, verbose=0)
    chex.assert_trees_all_equal(both.model, half.model)
    assert history.epoch == [1]


def test_trainer_of_has_the_hyperparameters_of_a_member():
    population = fk.populate(SGD, {"clipnorm": [0.3, 0.7], "learning_rate": [1e-3]})
    runs = population.init(dense(), KEY)
    trainer = population.trainer_of(runs, 1)
    assert trainer.optimizer == optimizers.SGD(1e-3, momentum=0.9, clipnorm=0.7)
    assert trainer == fk.Trainer(trainer.optimizer, SMOOTH)


@pytest.mark.exhaustive
def test_select_returns_some_members():
    population = fk.populate(SGD, {"learning_rate": [*RATES], "clipnorm": [0.1, 0.2], "seed": [4]})
    runs = population.init(dense(), KEY)
    best, chosen = population.select(runs, [3, 2])
    assert best.members == [population.members[3], population.members[2]]
    assert best.trainer_of(chosen, 0) == population.trainer_of(runs, 3)
    chosen, history = best.fit(chosen, X, ONE_HOT, verbose=0)
    runs, all_logs = population.fit(runs, X, ONE_HOT, verbose=0)
    np.testing.assert_allclose(history["loss"][0], all_logs["loss"][0][[3, 2]], rtol=1e-5)
    with pytest.raises(ValueError, match="select: expected at least one member"):
        best.select(chosen, [])


def test_wrong_runs_are_rejected():
    population = fk.populate(ADAM, {"seed": range(2)})
    runs = population.init(dense(), KEY)
    with pytest.raises(TypeError, match="received the run of one training"):
        population.fit(population.member(runs, 0), X, LABELS, verbose=0)
    with pytest.raises(TypeError, match="expected the runs of all members first, received ndarray"):
        population.fit(X, X, LABELS, verbose=0)
    with pytest.raises(TypeError, match="expected runs of 3 members, received runs of 2"):
        fk.populate(ADAM, {"seed": range(3)}).member(runs, 0)
    with pytest.raises(IndexError, match="expected a member from 0 to 1, received 2"):
        population.member(runs, 2)
    with pytest.raises(TypeError, match="Population.init expected a typed PRNG key|PRNG key"):
        population.init(dense(), 0)
    with pytest.raises(TypeError, match="there is no argument 'checkpoint'"):
        population.fit(runs, X, LABELS, checkpoint="folder")


@pytest.mark.exhaustive
def test_one_program_serves_all_values():
    compiled = []
    for shares in ([0.1, 0.2], [0.3, 0.4]):
        values = {"learning_rate": shares, "clipnorm": shares, "label_smoothing": shares}
        population = fk.populate(SGD, members=[dict.fromkeys(values, share) for share in shares])
        start = population.init(dense(), KEY)
        runs, _ = population.fit(start, X, ONE_HOT, batch_size=8, verbose=0)
        assert int(runs.step[0]) == 5
        compiled.append(program.train._cache_size())
    assert compiled[0] == compiled[1]

"""Rules: early stopping as of one training, successive halving, population-based training."""

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training import population as populations

RNG = np.random.default_rng(8)
X = RNG.normal(size=(24, 3)).astype("float32")
Y = X[:, :1] - 0.5 * X[:, 1:2]
KEY = jax.random.key(2)
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(1)]).build(KEY)
TRAINER = fk.Trainer("sgd", "mse", ["mae"])


def fitted(values, rules, **options):
    population = fk.populate(TRAINER, values)
    options = {"epochs": 6, "batch_size": 8, "verbose": 0, **options}
    start = population.init(MODEL, KEY)
    runs, history = population.fit(start, X, Y, rules=rules, **options)
    return population, start, runs, history, options


def trained(history, name="loss"):
    """Returns the number of epochs of each member."""
    return (~np.isnan(np.array(history[name]))).sum(axis=0).tolist()


@pytest.mark.exhaustive
@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("monitor", ["loss", "val_mae"])
def test_early_stopping_decides_as_the_callback_of_one_training(restore, monitor):
    arguments = {"patience": 1, "min_delta": 0.05, "restore_best_weights": restore}
    rule = populations.EarlyStopping(monitor, **arguments)
    callback = fk.callbacks.EarlyStopping(monitor, **arguments)
    validation = {"validation_data": (X[:7], Y[:7]), "validation_freq": 2}
    rates = {"learning_rate": [0.0, 0.1, 0.3, 1.2]}
    population, start, runs, history, options = fitted(rates, [rule], **validation)
    for number in range(len(population)):
        run = population.member(start, number)
        own, logs = TRAINER.fit(run, X, Y, callbacks=[callback], **options)
        chex.assert_trees_all_close(
            population.member(runs, number).model, own.model, rtol=1e-5, atol=1e-6
        )
        assert trained(history)[number] == len(logs.epoch)
    assert len(set(trained(history))) > 1
    stopped = history.params["stopped"]
    assert {n for n, count in enumerate(trained(history)) if count < 6} <= set(stopped)
    assert stopped[0].endswith(": EarlyStopping")


@pytest.mark.exhaustive
def test_successive_halving_trains_fewer_members_in_smaller_programs():
    rule = populations.SuccessiveHalving("loss", every=1)
    rates = {"learning_rate": np.geomspace(1e-4, 0.1, 8)}
    population, start, runs, history, options = fitted(rates, [rule])
    assert sorted(trained(history)) == [1, 1, 1, 1, 2, 2, 4, 6]
    best = int(np.argmax(trained(history)))
    own, logs = TRAINER.fit(population.member(start, best), X, Y, **options)
    chex.assert_trees_all_close(
        population.member(runs, best).model, own.model, rtol=1e-5, atol=1e-6
    )
    first = int(np.argmin(trained(history)))
    one, _ = TRAINER.fit(population.member(start, first), X, Y, **options | {"epochs": 1})
    chex.assert_trees_all_close(
        population.member(runs, first).model, one.model, rtol=1e-5, atol=1e-6
    )
    assert history.params["stopped"][first] == "epoch 1: SuccessiveHalving"


def test_nan_counts_as_the_worst_value():
    rule = populations.SuccessiveHalving("loss")
    values, active = np.array([np.nan, 2.0, 3.0, 1.0]), np.array([True, True, True, False])
    decision = rule.decide(0, values, active, rule.begin(4, ()))
    assert decision.active.tolist() == [False, True, True, False]
    largest = populations.SuccessiveHalving("accuracy")
    decision = largest.decide(0, values, active, rule.begin(4, ()))
    assert decision.active.tolist() == [False, True, True, False]


def test_population_based_training_copies_the_best_and_changes_its_values():
    rule = populations.PopulationBased("loss", every=2, fraction=0.5, factors=(0.5,))
    rates = {"learning_rate": [0.1, 1e-4], "clipnorm": [5.0], "seed": [3]}
    population, start, runs, _, _ = fitted(rates, [rule], epochs=3)
    values = population.values(runs)
    assert values["learning_rate"].tolist() == pytest.approx([0.1, 0.05])
    assert values["clipnorm"].tolist() == [5.0, 2.5]
    trainer = population.trainer_of(runs, 1)
    assert trainer.optimizer.clipnorm == 2.5
    assert trainer.optimizer.learning_rate == pytest.approx(0.05)
    assert population.trainer_of(runs, 0).optimizer.learning_rate == 0.1
    _, _, two, _, _ = fitted(rates, [rule], epochs=2)
    chex.assert_trees_all_equal(*(population.member(two, n).model for n in (0, 1)))
    one, other = (population.member(runs, n) for n in (0, 1))
    assert (one.model.layers["dense"].kernel != other.model.layers["dense"].kernel).any()
    # the copy continues with its own learning rate
    own, _ = fk.Trainer(trainer.optimizer, "mse", ["mae"]).fit(
        population.member(two, 1), X, Y, 8, epochs=3, initial_epoch=2, verbose=0
    )
    chex.assert_trees_all_close(other.model, own.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_values_out_of_range_stay():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1, momentum=0.9), "mse")
    population = fk.populate(trainer, {"momentum": [0.9, 0.8]})
    rule = populations.PopulationBased("loss", fraction=0.5, factors=(2.0,))
    runs, _ = population.fit(population.init(MODEL, KEY), X, Y, rules=[rule], verbose=0)
    momentum = population.values(runs)["momentum"]
    assert momentum[0] == momentum[1]


@pytest.mark.exhaustive
def test_a_rule_of_a_user():
    class StopOne(populations.Rule):
        def decide(self, epoch, values, active, memory):
            active[1] = False
            return populations.Decision(active, memory)

    _, _, _, history, _ = fitted({"learning_rate": [0.1, 0.1]}, [StopOne("loss")], epochs=3)
    assert trained(history) == [3, 1]
    with pytest.raises(NotImplementedError, match="missing method decide"):
        fitted({"seed": [0]}, [populations.Rule("loss")])


@pytest.mark.exhaustive
def test_the_training_ends_when_all_members_have_stopped():
    rules = [populations.EarlyStopping("loss", min_delta=9.0)]
    _, _, _, history, _ = fitted({"seed": range(2)}, rules)
    assert history.epoch == [0, 1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        (
            [fk.callbacks.EarlyStopping("loss")],
            TypeError,
            "received EarlyStopping. A callback belongs",
        ),
        ([populations.EarlyStopping], TypeError, "received EarlyStopping"),
        (populations.EarlyStopping("loss"), TypeError, "expected a list of rules"),
        ([populations.EarlyStopping("val_loss")], ValueError, "this training has no validation"),
        (
            [populations.SuccessiveHalving("los")],
            ValueError,
            "unknown log 'los'. Did you mean 'loss'",
        ),
    ],
)
def test_wrong_rules_are_rejected(rules, error, message):
    with pytest.raises(error) as raised:
        fitted({"seed": [0]}, rules)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: populations.PopulationBased("loss", fraction=0.6), "fraction"),
        (lambda: populations.PopulationBased("loss", factors=()), "factors"),
        (lambda: populations.PopulationBased("loss", factors=(0.0,)), "factors"),
        (lambda: populations.SuccessiveHalving("loss", factor=1), "factor"),
        (lambda: populations.EarlyStopping("loss", patience=-1), "patience"),
    ],
)
def test_wrong_options_of_rules_are_rejected(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()

"""Names and values of hyperparameters: combinations, and every mistake with its message."""

import itertools

import jax
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, losses

TRAINER = fk.Trainer("adam", losses.CategoricalCrossentropy())


def test_members_are_all_combinations_in_the_order_of_the_names():
    population = fk.populate(TRAINER, {"learning_rate": [1e-2, 1e-3], "seed": range(4)})
    assert len(population) == 8
    assert population.members[0] == {"learning_rate": 1e-2, "seed": 0}
    assert population.members[3] == {"learning_rate": 1e-2, "seed": 3}
    assert population.members[4] == {"learning_rate": 1e-3, "seed": 0}
    arrays = fk.populate(
        TRAINER, {"learning_rate": np.array([0.5, 0.25]), "seed": jax.numpy.arange(1)}
    )
    assert arrays.members == [{"learning_rate": r, "seed": 0} for r in (0.5, 0.25)]


def test_members_may_be_listed():
    members = [{"learning_rate": 0.1, "beta_1": 0.5}, {"beta_1": 0.9, "learning_rate": 0.2}]
    assert fk.populate(TRAINER, members=members).members == members


@pytest.mark.exhaustive
def test_equal_populations_are_equal_values():
    one, two = (fk.populate(TRAINER, {"beta_1": [0.5, 0.9]}) for _ in range(2))
    assert one == two and hash(one) == hash(two)
    assert repr(one) == "<Population of 2 members: beta_1>"


@pytest.mark.exhaustive
def test_names_of_injected_hyperparameters_of_optax_are_found():
    inject = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2, weight_decay=1e-3)
    trainer = fk.Trainer(optax.chain(optax.clip(1.0), inject), "mse")
    population = fk.populate(trainer, {"weight_decay": [0.0, 0.1], "b2": [0.9]})
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
    runs = population.init(model, jax.random.key(0))
    assert population.values(runs)["weight_decay"].tolist() == pytest.approx([0.0, 0.1])


@pytest.mark.parametrize(
    ("trainer", "values", "message"),
    [
        (
            TRAINER,
            {"learning_rat": [1.0]},
            "unknown hyperparameter 'learning_rat'. Did you mean 'learning_rate'",
        ),
        (
            TRAINER,
            {"dropout/rate": [0.1]},
            "Values of layers, such as the rate of Dropout, are constants",
        ),
        (TRAINER, {"loss.beta_1": [0.1]}, "unknown hyperparameter 'loss.beta_1'"),
        (TRAINER, {3: [0.1]}, "unknown hyperparameter 3"),
        (
            TRAINER,
            {"learning_rate": []},
            "'learning_rate': expected at least one value, received none",
        ),
        (TRAINER, {}, "expected at least one hyperparameter"),
        (TRAINER, {"learning_rate": [-1.0]}, "member 0: Adam: learning_rate"),
        (TRAINER, {"beta_1": [0.5, 1.5]}, "member 1: Adam: beta_1"),
        (TRAINER, {"label_smoothing": [2.0]}, "member 0: CategoricalCrossentropy: label_smoothing"),
        (TRAINER, {"seed": [-1]}, "'seed': expected an integer from 0"),
        (TRAINER, {"seed": [1.5]}, "'seed': expected an integer"),
        (TRAINER, {"seed": ["a"]}, "'seed': expected an integer"),
        (
            TRAINER,
            {"learning_rate": [0.1, lambda step: 0.1]},
            "expected numbers or schedules, received both",
        ),
        (fk.Trainer("sgd", "mse"), {"momentum": [0.0, 0.9]}, "keep different states"),
        (
            fk.Trainer("sgd", "mse"),
            {"weight_decay": [0.1], "clipnorm": [1.0], "clipvalue": [1.0]},
            "at most one of",
        ),
        (fk.Trainer("sgd", "crossentropy"), {"label_smoothing": [0.1]}, "unknown hyperparameter"),
        (fk.Trainer(optax.sgd(0.1), "mse"), {"learning_rate": [0.1]}, "unknown hyperparameter"),
    ],
)
def test_bad_values_are_rejected(trainer, values, message):
    with pytest.raises(ValueError, match="populate") as error:
        fk.populate(trainer, values)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("adam", {"seed": [0]}), {}, "expected a Trainer first, received str"),
        ((TRAINER,), {}, "expected either values by name or members, received none"),
        ((TRAINER, {"seed": [0]}), {"members": [{"seed": 0}]}, "received both"),
        ((TRAINER, [1e-2]), {}, "expected values by name, received list"),
        ((TRAINER, {"learning_rate": 0.1}), {}, "expected a list of values, received 0.1"),
        ((TRAINER, {"learning_rate": "0.1"}), {}, "expected a list of values, received '0.1'"),
        ((TRAINER, {"learning_rate": ["0.1"]}), {}, "expected numbers, received '0.1'"),
        ((TRAINER, {"amsgrad": [True, False]}), {}, "Only numbers vary within one program"),
        ((TRAINER,), {"members": {"seed": 0}}, "expected a list of dictionaries, received dict"),
        ((TRAINER,), {"members": [0, 1]}, "member 0: expected a dictionary"),
    ],
)
def test_values_of_other_types_are_rejected(arguments, options, message):
    with pytest.raises(TypeError, match="populate") as error:
        fk.populate(*arguments, **options)
    assert message in str(error.value)


def test_listed_members_need_the_same_names():
    with pytest.raises(
        ValueError, match=r"member 1: expected the names of member 0 \(seed\), received"
    ):
        fk.populate(TRAINER, members=[{"seed": 0}, {"learning_rate": 0.1}])
    with pytest.raises(ValueError, match="at least one hyperparameter"):
        fk.populate(TRAINER, members=[])


def test_a_name_of_optimizer_and_loss_needs_a_prefix():
    class Scaled(losses.Loss):
        epsilon: float = fk.option(default=0.5, convert=float)

        def call(self, y_true, y_pred):
            return jax.numpy.mean(self.epsilon * (y_true - y_pred) ** 2, axis=-1)

    trainer = fk.Trainer("adam", Scaled())
    with pytest.raises(ValueError, match=r"Write 'optimizer.epsilon' or 'loss.epsilon'"):
        fk.populate(trainer, {"epsilon": [0.1]})
    population = fk.populate(trainer, {"loss.epsilon": [0.1, 0.2]})
    assert [p.home for p in population.hyperparameters] == ["loss"]


def test_options_are_checked():
    with pytest.raises(ValueError, match="populate: order: expected"):
        fk.populate(TRAINER, {"seed": [0]}, order="own")
    with pytest.raises(ValueError, match="populate: group_size: expected a positive integer"):
        fk.populate(TRAINER, {"seed": [0]}, group_size=0)
    mesh = jax.make_mesh((8,), ("data",))
    with pytest.raises(ValueError, match="Remove sharding from the trainer"):
        fk.populate(fk.Trainer("adam", "mse", mesh=mesh, sharding="fsdp"), {"seed": [0]})


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"seed": range(10**12)}, {}, "'seed': expected at most 1048576 values"),
        ({"seed": itertools.count()}, {}, "'seed': expected at most 1048576 values"),
        (
            {"seed": range(2**10), "beta_1": np.full(2**11, 0.5)},
            {},
            "received 2097152 combinations",
        ),
        (None, {"members": itertools.repeat({"seed": 1})}, "members: expected at most 1048576"),
    ],
)
def test_populations_without_bounds_are_refused_before_they_are_listed(values, options, message):
    with pytest.raises(ValueError, match=message):
        fk.populate(TRAINER, values, **options)

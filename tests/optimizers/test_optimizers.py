"""Optimizers: Keras's numbers, optax's protocol, legal carries, configuration."""

import dataclasses
import functools
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import optimizers
from fkeras.optimizers import schedules
from tests.support.keras_oracle import keras, keras_rules
from tests.support.optimizer_problem import (
    STEPS,
    assert_trees_close,
    keras_optimizer,
    keras_steps,
    ours,
    problem,
)

OPTIMIZERS = (
    optimizers.SGD(0.1),
    optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    optimizers.RMSprop(0.01),
    optimizers.RMSprop(0.01, rho=0.8, momentum=0.5, centered=True, epsilon=1e-3),
    optimizers.Adam(0.01),
    optimizers.Adam(0.01, amsgrad=True, epsilon=1e-2),
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
    optimizers.Muon(0.02),
    optimizers.Muon(
        0.02,
        exclude_layers=["^zer"],
        exclude_embeddings=False,
        nesterov=False,
        rms_rate=None,
        adam_lr_ratio=0.5,
        adam_weight_decay=None,
        weight_decay=0.1,
    ),
    optimizers.ScheduleFreeAdamW(0.01),
    optimizers.ScheduleFreeAdamW(0.01, 0.8, 0.99, warmup_steps=7, weight_decay=0.1),
    optimizers.SGD(0.1, clipnorm=0.5),
    optimizers.SGD(0.1, clipvalue=0.1),
    optimizers.Adam(0.01, global_clipnorm=0.5),
    optimizers.Adam(schedules.CosineDecay(0.05, 15, warmup_target=0.1, warmup_steps=4)),
    optimizers.SGD(schedules.PiecewiseConstantDecay([3, 9], [0.1, 0.05, 0.01]), weight_decay=0.1),
    optimizers.SGD(schedules.ExponentialDecay(0.1, 3, 0.5, staircase=True), momentum=0.5),
    optimizers.SGD(schedules.InverseTimeDecay(0.1, 4, 0.5), clipvalue=0.5),
    optimizers.SGD(schedules.PolynomialDecay(0.1, 6, 0.01, power=2.0, cycle=True)),
    optimizers.SGD(schedules.CosineDecayRestarts(0.1, 4, t_mul=1.5, m_mul=0.9), clipnorm=0.5),
)


# what several steps, or none, have in common
OPTIONS = (
    optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_momentum=0.8),
    optimizers.Adam(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3),
    optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0, gradient_accumulation_steps=3),
    optimizers.Nadam(
        0.01, gradient_accumulation_steps=4, use_ema=True, ema_momentum=0.7, loss_scale_factor=8.0
    ),
    optimizers.AdamW(
        schedules.CosineDecay(0.05, 15),
        global_clipnorm=0.3,
        gradient_accumulation_steps=2,
        use_ema=True,
        ema_overwrite_frequency=2,
    ),
    optimizers.LossScaleOptimizer(optimizers.Adam(0.01, use_ema=True), 1024.0, 4),
    optimizers.LossScaleOptimizer("sgd"),
    optimizers.MultiOptimizer(
        {
            "zeros": optimizers.RMSprop(0.01, weight_decay=0.1),
            "re:ker.*": optimizers.SGD(0.1, momentum=0.5, use_ema=True, clipnorm=1.0),
            "*": "adam",
        },
        loss_scale_factor=4.0,
    ),
)


@functools.cache
def ours_on_the_problem(optimizer):
    return ours(optimizer, *problem())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_twenty_steps_equal_keras(optimizer):
    weights, gradients = problem()
    mine, state = ours_on_the_problem(optimizer)
    expected, _, _ = keras_steps(optimizer, weights, gradients)
    assert_trees_close(mine, expected)
    assert int(state.count) == STEPS
    assert optimizer.finalize(state, mine) is mine


@pytest.mark.one_in(3)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("optimizer", OPTIONS, ids=repr)
def test_twenty_steps_with_options_equal_keras(optimizer):
    weights, gradients = problem()
    mine, state = ours_on_the_problem(optimizer)
    expected, final_weights, _ = keras_steps(optimizer, weights, gradients)
    assert_trees_close(mine, expected)
    assert_trees_close(optimizer.finalize(state, mine), final_weights)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *OPTIONS], ids=repr)
def test_values_and_configuration(optimizer):
    config = json.loads(json.dumps(optimizers.serialize(optimizer)))
    assert optimizers.deserialize(config) == optimizer
    assert optimizers.get(config) == optimizer
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer
    assert hash(optimizers.deserialize(config)) == hash(optimizer)
    assert dataclasses.replace(optimizer, name="mine") != optimizer


def without_names(value):
    """JSON data without the names, which Keras makes up."""
    if isinstance(value, dict):
        return {k: without_names(v) for k, v in value.items() if k not in ("name", "patterns")}
    return [without_names(v) for v in value] if isinstance(value, list) else value


@pytest.mark.one_in(5)
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *OPTIONS], ids=repr)
def test_configurations_of_keras_are_read(optimizer):
    keras_instance = keras_optimizer(optimizer)
    with keras_rules():
        keras_config = dict(optimizers.serialize(optimizer), config=keras_instance.get_config())
    again = optimizers.deserialize(json.loads(json.dumps(keras_config)))
    if isinstance(optimizer, optimizers.MultiOptimizer):
        assert again.optimizer_map[-1][0] == "*"  # its default
        return
    ours_again = without_names(optimizers.serialize(again))
    assert ours_again == without_names(optimizers.serialize(optimizer))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", sorted({type(o).__name__ for o in OPTIMIZERS}))
def test_names_and_defaults_of_keras(name):
    assert optimizers.get(name) == optimizers.get(name.lower()) == getattr(optimizers, name)()
    with keras_rules():
        config = dict(getattr(keras.optimizers, name)().get_config(), name=None)
    assert getattr(optimizers, name).from_config(config) == getattr(optimizers, name)()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "optimizer",
    {type(o): o for o in OPTIMIZERS[:26] + OPTIONS[5:]}.values(),
    ids=lambda o: type(o).__name__,
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
    full, _ = ours_on_the_problem(optimizer)
    np.testing.assert_allclose(new["kernel"].astype("float32"), full["kernel"], atol=0.1)


@pytest.mark.exhaustive
def test_a_new_learning_rate_does_not_recompile_the_training():
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


@pytest.mark.exhaustive
def test_vmap_trains_members_of_different_rates_and_decays():
    weights, gradients = problem()
    rates, decays = jnp.array([0.1, 0.02, 0.0]), jnp.array([0.0, 0.1, 0.5])
    optimizer = optimizers.Adam(1.0, weight_decay=1.0)
    tx = optimizer.transformation()

    def train(rate, decay):
        state = tx.init(weights)._replace(learning_rate=rate, weight_decay=decay)

        def step(carry, gradient):
            deltas, state = tx.update(gradient, carry[1], carry[0])
            return (optax.apply_updates(carry[0], deltas), state), None

        return jax.lax.scan(step, (weights, state), gradients)[0]

    final_weights, state = jax.jit(jax.vmap(train))(rates, decays)
    assert state.count.shape == state.learning_rate.shape == state.weight_decay.shape == (3,)
    alone = jax.jit(train)
    for member, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
        expected, _ = alone(rate, decay)
        assert_trees_close({n: w[member] for n, w in final_weights.items()}, expected)
    expected, _ = ours(optimizers.Adam(0.02, weight_decay=0.1), weights, gradients)
    assert_trees_close({n: w[1] for n, w in final_weights.items()}, expected)


DIFFERENTIABLE = (
    optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1, clipnorm=1.0),
    optimizers.AdamW(0.1, global_clipnorm=2.0, use_ema=True, gradient_accumulation_steps=2),
    optimizers.Adafactor(0.1, weight_decay=0.1),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", DIFFERENTIABLE, ids=lambda o: type(o).__name__)
def test_hypergradients(optimizer):
    """Also where a weight has no gradient, whose root has no derivative."""
    tx = optimizer.transformation()
    start = {"a": jnp.array([1.0, -2.0, 0.5]), "dead": jnp.array([[3.0, 1.0]])}

    def loss(weights):
        return jnp.sum(jnp.square(weights["a"] - 0.3)) + 0.0 * jnp.sum(jnp.square(weights["dead"]))

    @jax.jit
    def trained(rate, decay):
        state = tx.init(start)._replace(learning_rate=rate, weight_decay=decay)

        def step(carry, _):
            weights, state = carry
            deltas, state = tx.update(jax.grad(loss)(weights), state, weights)
            return (optax.apply_updates(weights, deltas), state), None

        weights, _ = jax.lax.scan(step, (start, state), None, length=4)[0]
        return loss(weights) + jnp.sum(weights["dead"])

    at = jnp.float32(0.1), jnp.float32(0.1)
    slopes = jax.jit(jax.grad(trained, argnums=(0, 1)))(*at)
    for slope, step in zip(slopes, ((1e-3, 0.0), (0.0, 1e-3)), strict=True):
        ahead, behind = (
            trained(at[0] + sign * step[0], at[1] + sign * step[1]) for sign in (1, -1)
        )
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-3, rtol=0.02, atol=2e-3)


def test_weight_decay_is_a_leaf_only_if_set():
    for optimizer, leaves in ((optimizers.Adam(), 1), (optimizers.AdamW(), 2)):
        state = optimizer.transformation().init({})
        assert len(jax.tree.leaves(state._replace(count=None))) == leaves
    assert optimizers.SGD(weight_decay=0.0).transformation().init({}).weight_decay == 0


@pytest.mark.exhaustive
def test_scalars_are_computed_once_for_all_weights():
    weights = {f"layer_{i}/kernel": jnp.ones((2, 2)) for i in range(10)}
    for optimizer, powers in ((optimizers.Adam(), 2), (optimizers.Nadam(), 3)):
        tx = optimizer.transformation()
        program = str(jax.make_jaxpr(tx.update)(weights, tx.init(weights), weights))
        assert program.count(" pow ") == powers


@pytest.mark.exhaustive
@pytest.mark.parametrize("patterns", ["bias", ("bias",), ["*ias", "nothing"]], ids=str)
def test_weights_excluded_from_decay(patterns):
    optimizer = optimizers.AdamW(0.01, 0.3, exclude_from_weight_decay=patterns)
    assert optimizers.deserialize(optimizers.serialize(optimizer)) == optimizer
    weights, gradients = problem()
    mine, _ = ours(optimizer, weights, gradients)
    plain = optimizers.AdamW(0.01, 0.3)
    expected, _, _ = keras_steps(
        plain, weights, gradients, lambda made: made.exclude_from_weight_decay(var_names=["bias"])
    )
    assert_trees_close(mine, expected)


def test_weight_decay_exclusion_matches_paths_in_any_tree():
    ones = np.ones(2, "float32")
    tree = {"dense": {"kernel": ones, "bias": ones}, "more": [ones]}
    optimizer = optimizers.SGD(1.0, weight_decay=0.5, exclude_from_weight_decay=("dense/b*", "e/0"))
    tx = optimizer.transformation()
    zeros = jax.tree.map(np.zeros_like, tree)
    deltas, _ = jax.jit(lambda tree: tx.update(zeros, tx.init(tree), tree))(tree)
    values = [np.asarray(d).tolist() for d in jax.tree.leaves(deltas)]
    assert values == [[0.0, 0.0], [-0.5, -0.5], [0.0, 0.0]]


def test_none_leaves_stay_none():
    tx = optimizers.Adam().transformation()
    weights = {"a": np.ones(2, "float32"), "b": None}
    deltas, _ = jax.jit(lambda weights: tx.update(weights, tx.init(weights), weights))(weights)
    assert deltas["b"] is None


def test_a_model_without_trainable_weights():
    tx = optimizers.Adam(weight_decay=0.1).transformation()
    deltas, state = tx.update({}, tx.init({}), {})
    assert deltas == {}
    assert int(state.count) == 1


@pytest.mark.exhaustive
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


class Crowded(optimizers.Optimizer):
    def slots(self, weight):
        return {"average": weight}


def multi_init(optimizer_map):
    weights = {"bias": jnp.ones(2), "kernel": jnp.ones((2, 2))}
    return optimizers.MultiOptimizer(optimizer_map).transformation().init(weights)


@pytest.mark.one_in(3)
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
        (lambda: optimizers.SGD(use_ema=True, ema_momentum=2), "ema_momentum: expected a number"),
        (lambda: optimizers.SGD(ema_overwrite_frequency=0), "ema_overwrite_frequency: expected"),
        (lambda: optimizers.SGD(gradient_accumulation_steps=1), "integer of 2 or more, or None"),
        (lambda: optimizers.SGD(loss_scale_factor=-1.0), "loss_scale_factor: expected"),
        (
            lambda: optimizers.SGD(weight_decay="much"),
            "weight_decay: expected a number of 0 or more, or None",
        ),
        (lambda: optimizers.SGD(exclude_from_weight_decay=3), "names or patterns of weights"),
        (lambda: optimizers.SGD.from_config({"use_emma": True}), "unknown key 'use_emma'"),
        (lambda: optimizers.Muon(exclude_layers=["("]), "expected regular expressions"),
        (lambda: optimizers.Muon(ns_steps=0), "Muon: ns_steps: expected a positive integer"),
        (lambda: optimizers.ScheduleFreeAdamW(beta_1=0.0), "beta_1: expected a number above 0"),
        (lambda: optimizers.Lion(beta_1=0.0), "beta_1: expected a number above 0"),
        (
            lambda: optimizers.ema_weights(optimizers.SGD().transformation().init({})),
            "use_ema=True",
        ),
        (
            lambda: optimizers.SGD(use_ema=True).finalize(
                optimizers.SGD(use_ema=True).transformation().init({"a": jnp.ones(1)}), {}
            ),
            "SGD.finalize: .* 'a' is not in both",
        ),
        (lambda: Crowded(use_ema=True).transformation().init([1.0]), "slot name 'average'"),
        (lambda: optimizers.BaseOptimizer().transformation().init({}), "its own slots and step"),
        (
            lambda: optimizers.BaseOptimizer().transformation().update({}, None),
            "its own slots and step",
        ),
        (lambda: optimizers.LossScaleOptimizer(None), "expected an inner optimizer"),
        (
            lambda: optimizers.LossScaleOptimizer(optimizers.LossScaleOptimizer("sgd")),
            "does not scale the loss",
        ),
        (lambda: optimizers.LossScaleOptimizer("sgd", None), "initial_scale: expected"),
        (lambda: optimizers.LossScaleOptimizer("sgd", 0.0), "initial_scale: expected"),
        (lambda: optimizers.LossScaleOptimizer("sgd", 1.0, 0), "dynamic_growth_steps: expected"),
        (
            lambda: optimizers.LossScaleOptimizer.from_config(
                {"inner_optimizer": "sgd", "use_ema": True}
            ),
            "unknown key 'use_ema'",
        ),
        (lambda: optimizers.MultiOptimizer({}), "expected optimizers by patterns"),
        (lambda: optimizers.OptimizerMap(None), "expected a default_optimizer"),
        (lambda: optimizers.OptimizerMap("sgd", ["adam"]), "optimizers by regular expressions"),
        (
            lambda: optimizers.OptimizerMap("sgd", {"(": "adam"}),
            r"a regular expression, received '\('",
        ),
        (
            lambda: optimizers.OptimizerMap.from_config({"default_optimiser": "sgd"}),
            "Did you mean 'default_optimizer'",
        ),
        (lambda: optimizers.MultiOptimizer(print), "expected optimizers by patterns"),
        (lambda: optimizers.MultiOptimizer(["sgd"]), "a pattern and its optimizer"),
        (lambda: optimizers.MultiOptimizer({"re:(": "sgd"}), "a regular expression after 're:'"),
        (
            lambda: optimizers.MultiOptimizer({"*": optimizers.LossScaleOptimizer("sgd")}),
            "Put LossScaleOptimizer or Rowwise around",
        ),
        (lambda: optimizers.MultiOptimizer([("*", "sgd"), ("*", "adam")]), "duplicate pattern"),
        (lambda: multi_init({"b*": "sgd"}), "no pattern matches the weight 'kernel'"),
        (
            lambda: optimizers.MultiOptimizer({"gamma": "sgd", "*": "sgd"})._check_paths(["bias"]),
            "'gamma' matches no weight.* weights are: bias",
        ),
        (
            lambda: optimizers.MultiOptimizer({"*": "sgd", "b*": "sgd"})._check_paths(["bias"]),
            "matches only weights of earlier patterns",
        ),
        (
            lambda: optimizers.MultiOptimizer.from_config({"optimizer_map": "mine"}),
            "configuration of an OptimizerMap",
        ),
        (
            lambda: optimizers.transformation(optimizers.Optimizer()).update(
                [1.0], optimizers.transformation(optimizers.Optimizer()).init([1.0])
            ),
            "missing method step",
        ),
        (lambda: schedules.CosineDecay(0.1, 0), "decay_steps: expected"),
        (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "one value more"),
        (lambda: schedules.LearningRateSchedule()(0), "missing method __call__"),
    ],
)
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
        call()


def test_missing_weights_are_rejected():
    for optimizer in (optimizers.AdamW(), optimizers.Lamb(), optimizers.SGD(use_ema=True)):
        tx = optimizer.transformation()
        with pytest.raises(ValueError, match="missing weights"):
            tx.update(np.ones(2, "float32"), tx.init(np.ones(2, "float32")))


IDLE = {
    "a name": optimizers.AdamW(exclude_from_weight_decay=["bias", "nope"]),
    "a pattern": optimizers.SGD(weight_decay=0.1, exclude_from_weight_decay=["nope*", "*/kernel"]),
    "layers": optimizers.Muon(exclude_layers=["bias$", "^nope"]),
    "of a group": optimizers.MultiOptimizer(
        {"*/kernel": optimizers.AdamW(exclude_from_weight_decay=["nope"]), "*": "sgd"}
    ),
    "in another optimizer": optimizers.LossScaleOptimizer(optimizers.Muon(exclude_layers=["nope"])),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", IDLE)
def test_names_that_match_no_weight_are_told(name):
    model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(1)])
    with pytest.warns(UserWarning, match="nope.*' matches no weight.*dense/kernel") as caught:
        _ = fk.Trainer(IDLE[name], "mse").init(model, jax.random.key(0))
    assert [warning.filename for warning in caught] == [__file__]  # the line of the user


def test_names_are_not_told_without_weight_decay():
    optimizer = optimizers.SGD(exclude_from_weight_decay=["nope"])
    assert list(optimizer._idle_names(["dense/kernel"])) == []


@pytest.mark.exhaustive
def test_an_average_is_returned_in_the_order_of_the_weights():
    optimizer = optimizers.SGD(0.1, use_ema=True)
    model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)]).build(jax.random.key(0))
    trainer = fk.Trainer(optimizer, "mse")
    run = trainer.init(model, jax.random.key(0))
    # the state averages a dictionary of the weights, whose order differs from the model's
    averaged = optimizer.finalize(run.opt_state, model)
    jax.tree.map(np.testing.assert_array_equal, averaged, model)


def test_optimizers_show_their_learning_rate():
    assert repr(optimizers.AdamW()) == "AdamW(0.001)"
    assert repr(optimizers.SGD(0.1, momentum=0.9)) == "SGD(0.1, 0.9)"
    assert "ExponentialDecay(0.1" in repr(optimizers.Adam(schedules.ExponentialDecay(0.1, 5, 0.9)))
    assert "Adam(0.001)" in repr(optimizers.LossScaleOptimizer(optimizers.Adam()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
def test_gradients_whose_squares_overflow_are_clipped(option, dtype):
    large = float(jnp.finfo(dtype).max) / 8
    gradients = [jnp.array([0.75 * large, -large], dtype), jnp.zeros(1, dtype)]
    transform = optimizers.SGD(1.0, **{option: 0.5}).transformation()
    state = transform.init(gradients)
    deltas, _ = jax.jit(transform.update)(gradients, state, gradients)
    np.testing.assert_allclose(np.asarray(deltas[0], "float32"), [-0.3, 0.4], rtol=0.01)
    np.testing.assert_array_equal(np.asarray(deltas[1], "float32"), [0.0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_gradients_without_a_norm_give_nan(option, value):
    gradients = [jnp.array([value, 1.0])]
    transform = optimizers.SGD(1.0, **{option: 0.5}).transformation()
    deltas, _ = transform.update(gradients, transform.init(gradients), gradients)
    assert np.isnan(deltas[0][0])

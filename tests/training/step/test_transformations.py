"""Transformations of optax in a `Trainer`: each public one trains and resumes, or is refused by name."""

import inspect
import logging
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.host.processes.arrays import is_key
from fkeras.training.step.step import is_finite
from tests.support.quick_cases import quick_cases

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 3)).astype("float32")
Y = X[:, :2]
INPUT = fk.Input((3,))
SMALL = fk.Model(INPUT, layers.Dense(2)(INPUT)).build(KEY)
HIDDEN = layers.BatchNormalization(name="norm")(layers.Dense(4, "tanh", name="body")(INPUT))
DEEP = fk.Model(INPUT, layers.Dense(2, name="head")(HIDDEN)).build(KEY)
DECAYED = jax.tree.map(lambda a: a.ndim > 1, DEEP)
BY_PATH = {path: a.ndim > 1 for path, a in fk.engine.trainable_weights(DEEP).items()}
SGD = optax.sgd(0.01)
IS_KERNEL = {"dense/kernel": True, "dense/bias": False}
GROUPS = {"dense/kernel": "a", "dense/bias": "b"}


def _norm(tree):
    return jnp.sqrt(sum(jnp.sum(a**2) for a in jax.tree.leaves(tree)))


#: arguments of functions that take more than a learning rate
ARGUMENTS = {
    "MultiSteps": (SGD, 2),
    "adaptive_grad_clip": (0.1,),
    "add_noise": (0.1, 0.5, 0),
    "apply_every": (2,),
    "apply_if_finite": (SGD, 2),
    "chain": (SGD, optax.scale(0.5)),
    "clip_by_block_rms": (1.0,),
    "clip_by_global_norm": (1.0,),
    "conditionally_mask": (SGD, lambda step, **_: step > 0),
    "conditionally_transform": (SGD, lambda step, **_: step > 0),
    "ema": (0.9,),
    "flatten": (SGD,),
    "freeze": (IS_KERNEL,),
    "lookahead": (SGD, 5, 0.5),
    "masked": (SGD, IS_KERNEL),
    "measure_with_ema": (_norm, 0.9),
    "mechanize": (SGD,),
    "multi_transform": ({"a": SGD, "b": optax.adam(0.1)}, GROUPS),
    "named_chain": (("a", SGD),),
    "partition": ({"a": SGD, "b": optax.adam(0.1)}, GROUPS),
    "sam": (SGD, SGD),
    "scale_by_schedule": (lambda step: -0.1 / (step + 1),),
    "schedule_free": (SGD, 0.01),
    "selective_transform": (SGD,),
    "snapshot": ("norm", _norm),
    "split_real_and_imaginary": (SGD,),
    "stateless": (lambda updates, weights: updates,),
    "stateless_with_tree_map": (lambda update, weight: update,),
    "trace": (0.9,),
    "with_extra_args_support": (SGD,),
}
OPTIONS = {
    "differentially_private_aggregate": {"l2_norm_clip": 1.0, "noise_multiplier": 1.0, "seed": 0},
    "dpsgd": {"learning_rate": 0.1, "l2_norm_clip": 1.0, "noise_multiplier": 1.0, "seed": 0},
    "selective_transform": {"freeze_mask": IS_KERNEL},
    "scale_by_learning_rate": {"learning_rate": 0.1},
    "schedule_free": {},
}
#: functions from functions to functions
FACTORIES = ("inject_hyperparams", "inject_stateful_hyperparams")
#: the function of optax that the error names, and its reason
REFUSED = {
    "differentially_private_aggregate": ("differentially_private_aggregate", "batch dimension"),
    "dpsgd": ("differentially_private_aggregate", "batch dimension"),
    "lookahead": ("lookahead", "has no attribute 'fast'"),
    "measure_with_ema": ("chain", "other shapes than the weights"),
}


def _public():
    """Returns the functions of optax that make a transformation, by name."""
    functions = {}
    for module in (optax, optax.contrib):
        for name in dir(module):
            function = getattr(module, name)
            if name.startswith("_") or not callable(function):
                continue
            try:
                returned = str(inspect.signature(function).return_annotation)
            except (TypeError, ValueError):
                continue
            if "GradientTransformation" in returned or name == "MultiSteps":
                functions[name] = function
    return functions


PUBLIC = _public()


def _made(name):
    function = PUBLIC[name]
    with warnings.catch_warnings():  # of names that optax will remove
        warnings.simplefilter("ignore")
        if name == "scale_by_muon":  # of matrices alone
            numbers = optax.contrib.MuonDimensionNumbers()
            muon = function(
                weight_dimension_numbers=lambda weights: jax.tree.map(lambda _: numbers, weights)
            )
            return optax.masked(muon, IS_KERNEL)
        if name in FACTORIES:
            return function(optax.sgd)(0.01)
        if name in ARGUMENTS or name in OPTIONS:
            return function(*ARGUMENTS.get(name, ()), **OPTIONS.get(name, {}))
        parameters = inspect.signature(function).parameters.values()
        needs = [p for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
        return function(*[0.01] * len(needs))


def _trained(trainer, model, start=None, **options):
    start = trainer.init(model, KEY) if start is None else start
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # for optax
        return trainer.fit(start, X, Y, batch_size=4, verbose=0, **{"epochs": 2, **options})


def _assert_equal(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


# -- all of them ----------------------------------------------------------------------------------


def test_optax_has_these_transformations():
    assert len(PUBLIC) > 90 and {"adam", "lbfgs", "sam", "momo"} < set(PUBLIC)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "name", quick_cases(sorted(PUBLIC), "add_noise", *(set(REFUSED) & set(PUBLIC)))
)
def test_a_transformation_trains_and_resumes_or_is_refused(name, tmp_path):
    logging.getLogger("absl").setLevel("ERROR")  # lookahead logs that it takes other weights
    optimizer = _made(name)
    if name in REFUSED:
        named, reason = REFUSED[name]
        with pytest.raises(TypeError, match=f"received optax.{named}, .*{reason}"):
            fk.Trainer(optimizer, "mse")
        return
    with jax.numpy_dtype_promotion("standard"):
        trainer = fk.Trainer(optimizer, "mse", on_nonfinite="ignore")
        whole = _trained(trainer, SMALL)
    assert len(whole.history["loss"]) == 2
    _trained(trainer, SMALL, epochs=1, checkpoint=tmp_path)
    resumed = _trained(trainer, SMALL, checkpoint=tmp_path)
    _assert_equal(resumed.run.replace(memory={}), whole.run.replace(memory={}))


@pytest.mark.exhaustive
def test_typed_keys_of_a_state_are_saved_and_are_those_of_each_member(tmp_path):
    noise = optax.add_noise(0.1, 0.5, jax.random.key(3))
    with jax.numpy_dtype_promotion("standard"):
        trainer = fk.Trainer(optax.chain(noise, SGD), "mse", on_nonfinite="skip")
        start = trainer.init(SMALL, KEY)
        run, _ = trainer.step(start, (X, Y))
        fk.callbacks.save_weights(tmp_path / "w.npz", run, weights_only=False)
        _assert_equal(fk.callbacks.load_weights(tmp_path / "w.npz", start).opt_state, run.opt_state)
        population = fk.populate(trainer, {"seed": [0, 1]})
        runs = population.init(fk.engine.unbuilt(SMALL), KEY)
        runs, history = population.fit(runs, X, Y, batch_size=8, verbose=0)
        member = population.member(runs, 1)
    assert np.shape(history.history["loss"]) == (1, 2)
    (key,) = [a for a in jax.tree.leaves(member.opt_state) if is_key(a)]
    np.testing.assert_array_equal(
        jax.random.key_data(key), jax.random.key_data(run.opt_state[0].rng_key)
    )


# -- the arguments of an update ------------------------------------------------------------------


def _reference(optimizer, steps, arguments):
    """Returns the weights after steps of a plain loop over batches of four rows."""

    def step(weights, state, batch):
        def loss_fn(weights):
            model = fk.engine.replace_weights(SMALL, weights)
            return jnp.mean((model(batch[0]) - batch[1]) ** 2)

        value, grad = jax.value_and_grad(loss_fn)(weights)
        extra = {
            "value": value,
            "grad": grad,
            "value_fn": loss_fn,
            "obj_fn": loss_fn,
            "grad_fn": lambda weights, i: jax.grad(loss_fn)(weights),
        }
        extra = {name: extra[name] for name in arguments}
        deltas, state = optimizer.update(grad, state, weights, **extra)
        return optax.apply_updates(weights, deltas), state

    weights = fk.engine.trainable_weights(SMALL)
    state = optimizer.init(weights)
    for number in range(steps):
        rows = slice(4 * number % 8, 4 * number % 8 + 4)
        weights, state = jax.jit(step)(weights, state, (X[rows], Y[rows]))
    return weights


READS_LOSS = {
    "polyak_sgd": (lambda: optax.polyak_sgd(), ("value",)),
    "reduce_on_plateau": (
        lambda: optax.chain(SGD, optax.contrib.reduce_on_plateau(patience=1, accumulation_size=2)),
        ("value",),
    ),
    "lbfgs": (lambda: optax.lbfgs(memory_size=2), ("value", "grad", "value_fn")),
    "sam": (lambda: optax.contrib.sam(SGD, SGD, opaque_mode=True), ("grad_fn",)),
    "sophia": (lambda: optax.contrib.sophia(0.01, update_interval=1), ("obj_fn",)),
    "MultiSteps": (lambda: optax.MultiSteps(optax.contrib.momo(0.1), 2), ("value",)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(READS_LOSS, "reduce_on_plateau", "lbfgs", "sam"))
def test_updates_receive_the_loss_of_the_batch(name):
    make, arguments = READS_LOSS[name]
    with jax.numpy_dtype_promotion("standard"):
        optimizer = make()
        run = _trained(fk.Trainer(optimizer, "mse"), SMALL, shuffle=False, epochs=1).run
        expected = _reference(optimizer, 2, arguments)
    for path, weight in fk.engine.trainable_weights(run.model).items():
        np.testing.assert_allclose(weight, expected[path], rtol=2e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_optimizers_around_transformations_pass_the_loss_on():
    momo = optax.contrib.momo(0.1)
    plain = fk.Trainer(momo, "mse")
    scaled = fk.Trainer(fk.optimizers.LossScaleOptimizer(momo, initial_scale=8.0), "mse")
    (one, _), (two, _) = (
        trainer.step(trainer.init(SMALL, KEY), (X, Y)) for trainer in (plain, scaled)
    )
    for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(two.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    # the line search of a group moves the weights of the group alone
    search = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5))
    by_pattern = fk.optimizers.MultiOptimizer({"*/bias": search, "*": optax.set_to_zero()})
    trainer = fk.Trainer(by_pattern, "mse")
    run, logs = trainer.step(trainer.init(SMALL, KEY), (X, Y))
    np.testing.assert_array_equal(run.model.layers["dense"].kernel, SMALL.layers["dense"].kernel)
    assert float(trainer.evaluate(run, X, Y, verbose=0)["loss"]) < float(logs["loss"])


def test_a_missing_argument_of_an_update_is_named():
    def update(gradients, state, weights=None, *, curvature):
        return gradients, state

    optimizer = optax.GradientTransformationExtraArgs(lambda weights: (), update)
    with pytest.raises(TypeError, match="Trainer: optimizer: .*keyword-only argument: 'curvature'"):
        fk.Trainer(optimizer, "mse")


def test_updates_and_states_of_other_forms_are_refused():
    sums = optax.stateless(lambda updates, _: jax.tree.map(jnp.sum, updates))
    grows = optax.GradientTransformation(
        lambda weights: (jnp.zeros(1),),
        lambda updates, state, weights=None: (updates, (*state, 0.0)),
    )
    for optimizer, message in (
        (sums, "other shapes than the weights"),
        (grows, "optimizer's state"),
    ):
        with pytest.raises(TypeError, match=message):
            fk.Trainer(optax.chain(optax.identity(), optimizer), "mse")
    # for weights of its own, a transformation is checked in `init`
    own = optax.masked(sums, BY_PATH)
    with pytest.raises(ValueError, match="other shapes than the weights") as error:
        fk.Trainer(own, "mse").init(DEEP, KEY)
    assert "passes the trainable weights by path" in error.value.__notes__[-1]


# -- trees over the model --------------------------------------------------------------------------


MASKED = {
    "adamw": lambda mask: optax.adamw(1e-2, weight_decay=0.1, mask=mask),
    "chain": lambda mask: optax.chain(optax.add_decayed_weights(0.1, mask), SGD),
    "masked": lambda mask: optax.masked(optax.sgd(0.1, momentum=0.9), mask),
    "injected": lambda mask: optax.inject_hyperparams(optax.adamw, static_args=("mask",))(
        1e-2, mask=mask
    ),
    "line search": lambda mask: optax.chain(
        optax.masked(SGD, mask), optax.scale_by_backtracking_linesearch(3)
    ),
    "function": lambda mask: optax.masked(SGD, lambda weights: mask),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", quick_cases(MASKED, "adamw", "line search"))
def test_a_tree_over_the_model_is_the_tree_by_path(name):
    runs = []
    for mask in (DECAYED, BY_PATH):
        with jax.numpy_dtype_promotion("standard"):
            trainer = fk.Trainer(MASKED[name](mask), "mse")
            runs.append(trainer.step(trainer.init(DEEP, KEY), (X, Y))[0])
    _assert_equal(*runs)


@pytest.mark.exhaustive
def test_a_tree_over_the_model_fits_frozen_models():
    optimizer = MASKED["adamw"](DECAYED)
    trainer = fk.Trainer(optimizer, "mse")
    frozen = fk.freeze(DEEP, "body")
    with jax.numpy_dtype_promotion("standard"):
        run = trainer.step(trainer.init(frozen, KEY), (X, Y))[0]
    slots = run.opt_state[0].mu
    assert sorted(slots) == ["head/bias", "head/kernel", "norm/beta", "norm/gamma"]
    body = run.model.layers["body"].kernel
    np.testing.assert_array_equal(body, DEEP.layers["body"].kernel)
    with jax.numpy_dtype_promotion("standard"):
        run = trainer.step(run.replace(model=fk.unfreeze(run.model, "body")), (X, Y))[0]
    assert (run.model.layers["body"].kernel != body).any() and len(run.opt_state[0].mu) == 6


def test_injected_masks_without_a_static_argument_name_the_remedy():
    optimizer = optax.inject_hyperparams(optax.adamw)(1e-2, mask=DECAYED)
    with pytest.raises(fk.FKerasError, match=r"static_args=\('mask',\)"):
        fk.Trainer(optimizer, "mse").init(DEEP, KEY)


# -- infinite numbers ------------------------------------------------------------------------------


def test_infinite_numbers_of_an_optimizer_are_no_failure():
    plateau = optax.contrib.reduce_on_plateau(
        patience=2, accumulation_size=9
    )  # best loss: infinity
    trainer = fk.Trainer(optax.chain(optax.adam(1e-2), plateau), "mse")
    run = trainer.init(SMALL, KEY)
    assert np.isinf(run.opt_state[1].best_value) and is_finite(run)
    adam, plateau_state = run.opt_state
    moments = jax.tree.map(lambda a: a + jnp.inf, adam[0].mu)
    for state in (
        ((adam[0]._replace(mu=moments), *adam[1:]), plateau_state),
        (adam, plateau_state._replace(best_value=jnp.float32(jnp.nan))),
    ):
        assert not is_finite(run.replace(opt_state=state))

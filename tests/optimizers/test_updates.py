"""Options of optimizers in training: averages, accumulation, loss scaling, patterns."""

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, optimizers

RNG = np.random.default_rng(9)
X = RNG.normal(size=(32, 3)).astype("float32")
Y = (X[:, :1] - X[:, 1:2]).astype("float32")
KEY = jax.random.key(0)


def model(**options):
    x = fk.Input((3,))
    h = layers.Dense(4, "tanh", name="body", **options)(x)
    return fk.Model(x, layers.Dense(1, name="head", **options)(h))


def fit(optimizer, made=None, **options):
    trainer = fk.Trainer(optimizer, "mse")
    run = trainer.init(model() if made is None else made, KEY)
    defaults = {"batch_size": 8, "epochs": 2, "verbose": 0, "shuffle": False}
    return trainer.fit(run, X, Y, **{**defaults, **options})


@pytest.mark.exhaustive
def test_accumulated_gradients_are_those_of_larger_batches():
    small, _ = fit(optimizers.SGD(0.1, gradient_accumulation_steps=4))
    large, _ = fit(optimizers.SGD(0.1), batch_size=32)
    chex.assert_trees_all_close(small.model, large.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_training_ends_with_the_average():
    plain, _ = fit(optimizers.SGD(0.1))
    run, _ = fit(optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    average = optimizers.ema_weights(run.opt_state)
    chex.assert_trees_all_close(fk.engine.trainable_weights(run.model), average)
    assert np.any(run.model.layers["head"].kernel != plain.model.layers["head"].kernel)


def test_loss_scaling_changes_no_step_and_skips_overflows():
    plain, history = fit(optimizers.SGD(0.1))
    scaled, same = fit(optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=1024.0))
    chex.assert_trees_all_close(scaled.model, plain.model, rtol=1e-4, atol=1e-6)
    assert same.history["loss"] == pytest.approx(history.history["loss"], rel=1e-4)
    # in float16 a scale of 2^20 overflows at first: steps are left out, the scale comes down
    half = optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=2.0**20)
    run, history = fit(half, model(dtype="mixed_float16"), epochs=6)
    assert float(run.opt_state.scale) < 2.0**20
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.model))


@pytest.mark.exhaustive
def test_each_pattern_has_its_optimizer():
    both = optimizers.MultiOptimizer({"body/*": "sgd", "*": optimizers.SGD(0.0)})
    run, _ = fit(both)
    start = fk.Trainer("sgd", "mse").init(model(), KEY)
    chex.assert_trees_all_equal(run.model.layers["head"], start.model.layers["head"])
    assert np.any(run.model.layers["body"].kernel != start.model.layers["body"].kernel)
    frozen = run.replace(model=fk.freeze(run.model, "head"))
    again, _ = fk.Trainer(both, "mse").step(frozen, (X, Y))
    assert np.any(again.model.layers["body"].kernel != run.model.layers["body"].kernel)


@pytest.mark.exhaustive
def test_members_of_a_population_have_their_own_weight_decay():
    trainer = fk.Trainer(optimizers.AdamW(0.05, weight_decay=0.1), "mse")
    run = trainer.init(model(), KEY)
    decays = np.asarray([0.0, 0.5], "float32")

    def train(decay):
        decayed_run = run.replace(opt_state=run.opt_state._replace(weight_decay=decay))
        return trainer.run(decayed_run, (X, Y), 2, 8, shuffle=False)[0].model

    together = jax.jit(jax.vmap(train))(decays)
    for place, decay in enumerate((0.0, 0.5)):
        alone, _ = fit(optimizers.AdamW(0.05, weight_decay=decay))
        mine = jax.tree.map(lambda a, place=place: a[place], together)
        chex.assert_trees_all_close(mine, alone.model, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("wrap", [lambda o: o, optimizers.LossScaleOptimizer])
def test_a_pattern_of_frozen_weights_is_accepted(wrap):
    both = wrap(optimizers.MultiOptimizer({"body/*": "adam", "head/*": optimizers.SGD(0.1)}))
    trainer = fk.Trainer(both, "mse")
    run, _ = trainer.fit(trainer.init(fk.freeze(model(), "body"), KEY), X, Y, 8, verbose=0)
    thawed, _ = trainer.step(run.replace(model=fk.unfreeze(run.model)), (X[:8], Y[:8]))
    for name, moved in (("body", True), ("head", True)):
        kernels = [one.model.layers[name].kernel for one in (run, thawed)]
        assert np.any(kernels[0] != kernels[1]) == moved
    again, _ = trainer.step(thawed.replace(model=fk.freeze(thawed.model, "body")), (X[:8], Y[:8]))
    chex.assert_trees_all_equal(again.model.layers["body"], fk.freeze(thawed.model.layers["body"]))
    with pytest.raises(ValueError, match="'boddy/\\*' matches no weight"):
        fk.Trainer(wrap(optimizers.MultiOptimizer({"boddy/*": "adam", "*": "sgd"})), "mse").init(
            model(), KEY
        )

"""Master weights: a float32 copy of each weight of 16 bits, which the optimizer updates."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, losses
from fkeras.engine import trainable_weights
from fkeras.training.step.blocks import stacking_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 4)).astype("float32")
Y = (X.sum(1, keepdims=True) / 4).astype("float32")
FIT = {"epochs": 2, "batch_size": 16, "verbose": 0}


@functools.cache
def network(dtype="bfloat16", blocks=0, **options):
    x = h = fk.Input((4,))
    h = layers.Dense(4, "tanh", dtype=dtype, name="a", **options)(h)
    for number in range(blocks):
        h = layers.Dense(4, "tanh", dtype=dtype, name=f"block{number}")(h)
    return fk.Model(x, layers.Dense(1, dtype=dtype, name="b")(h))


def rounded(weights):
    return {path: np.asarray(w.astype("bfloat16")) for path, w in weights.items()}


def close(a, b, **tolerances):
    assert sorted(a) == sorted(b)
    for path in a:
        np.testing.assert_allclose(
            *(np.asarray(w[path], "float32") for w in (a, b)), err_msg=path, **tolerances
        )


def check_rounded(run, paths=("a/bias", "a/kernel", "b/bias", "b/kernel")):
    """The weights of the model are the rounded masters, and all of `paths` have masters."""
    assert sorted(run.opt_state.weights) == sorted(paths)
    weights = {p: w for p, w in trainable_weights(run.model).items() if p in paths}
    assert {w.dtype.name for w in weights.values()} == {"bfloat16"}
    close(rounded(run.opt_state.weights), weights, rtol=0)


def objective(model, state, batch, key, training):
    """The loss of a float32 model whose weights are rounded before use."""
    x, y = batch
    out = fk.cast(model, "bfloat16").apply(x, state=state, training=training, key=key)
    return fk.Output(losses.MeanSquaredError()(y, out.value), out.updates)


OPTIMIZERS = (
    fk.optimizers.Adam(0.01, clipnorm=0.5),
    pytest.param(fk.optimizers.SGD(0.01, momentum=0.9, weight_decay=0.1), marks=pytest.mark.exhaustive),
    pytest.param(fk.optimizers.Muon(0.01), marks=pytest.mark.exhaustive),
    pytest.param(fk.optimizers.LossScaleOptimizer("adam", initial_scale=1.0), marks=pytest.mark.exhaustive),
    pytest.param(optax.adamw(0.01), marks=pytest.mark.exhaustive),
    pytest.param(optax.lbfgs(), marks=pytest.mark.exhaustive),
)  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
@jax.numpy_dtype_promotion("standard")  # for optax
def test_masters_equal_a_float32_run_that_rounds_its_weights(optimizer):
    wide = network().build(jax.random.key(0))
    wide = fk.cast(wide, "float32")
    trainer = fk.Trainer(optimizer, "mse", master="float32")
    run = trainer.init(fk.cast(wide, "bfloat16"), jax.random.key(1))
    check_rounded(run)
    run, _ = trainer.fit(run, X, Y, **FIT)
    reference = fk.Trainer(optimizer, objective=objective)
    expected, _ = reference.fit(reference.init(wide, jax.random.key(1)), (X, Y), **FIT)
    close(run.opt_state.weights, trainable_weights(expected.model), rtol=1e-5, atol=1e-6)
    check_rounded(run)
    # the slots, too
    for slot, other in zip(
        jax.tree.leaves(run.opt_state.inner), jax.tree.leaves(expected.opt_state), strict=True
    ):
        assert slot.dtype == other.dtype
        np.testing.assert_allclose(slot, other, rtol=2e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_small_updates_are_not_lost():
    model = network(kernel_initializer="ones").build(jax.random.key(0))
    kernels = []
    for master in (None, "float32"):
        trainer = fk.Trainer(fk.optimizers.SGD(0.01), "mse", master=master)
        run = trainer.init(model, jax.random.key(0))
        run, _ = trainer.run(run, (X, Y), epochs=50, batch_size=32)
        kernels.append(np.asarray(run.model.layers["a"].kernel, "float32"))
    assert (kernels[0] == 1).all()  # each step is below 1 / 512
    assert (kernels[1] != 1).any()


@pytest.mark.exhaustive
def test_constraints_hold_for_masters_and_changed_weights_are_copied():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse", master="float32")
    model = network(kernel_constraint=fk.constraints.MaxNorm(0.1))
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.step(run, (X, Y), donate=True)
    check_rounded(run)
    norms = np.linalg.norm(run.opt_state.weights["a/kernel"], axis=0)
    np.testing.assert_allclose(norms, 0.1, rtol=1e-4)  # in float32: 0.1 in bfloat16 is off by .001
    moved = fk.engine.replace_weights(run.model, {"b/bias": jnp.full((1,), 8.0, "bfloat16")})
    run, _ = trainer.step(run.replace(model=moved), (X, 0 * Y + 8))
    check_rounded(run)
    assert abs(float(run.opt_state.weights["b/bias"][0]) - 8) < 1


@pytest.mark.exhaustive
@jax.numpy_dtype_promotion("standard")  # for optax
def test_frozen_weights_have_no_masters_and_trainers_can_be_exchanged():
    trainer = fk.Trainer(optax.adam(0.01), "mse", master="float32")
    run = trainer.init(network(), jax.random.key(0))
    run = run.replace(model=fk.freeze(run.model, "a"))
    frozen, _ = trainer.step(run, (X, Y))
    check_rounded(frozen, ("b/bias", "b/kernel"))
    before = frozen.opt_state.weights["b/kernel"]
    run, _ = trainer.step(frozen.replace(model=fk.unfreeze(frozen.model, "a")), (X, Y))
    check_rounded(run)
    assert (np.abs(np.asarray(run.opt_state.weights["b/kernel"] - before)) < 0.02).all()
    # without masters, and with them again
    plain = dataclasses.replace(trainer, master=None)
    run, _ = plain.step(run, (X, Y))
    assert run.opt_state[0].mu["a/kernel"].dtype == "bfloat16"
    run, _ = trainer.step(run, (X, Y))
    assert run.opt_state.inner[0].mu["a/kernel"].dtype == "float32"
    check_rounded(run)


@pytest.mark.exhaustive
def test_float32_weights_have_no_masters():
    for dtype in ("float32", "mixed_bfloat16"):
        results = []
        for master in (None, "float32"):
            trainer = fk.Trainer("adam", "mse", master=master)
            run = trainer.init(network(dtype), jax.random.key(0))
            run, _ = trainer.fit(run, X, Y, **FIT)
            results.append(trainable_weights(run.model))
        assert run.opt_state.weights == {}
        close(*results, rtol=0)


@pytest.mark.exhaustive
def test_averages_are_those_of_masters():
    trainer = fk.Trainer(
        fk.optimizers.Adam(use_ema=True, ema_momentum=0.5), "mse", master="float32"
    )
    run, _ = trainer.fit(trainer.init(network(), jax.random.key(0)), X, Y, **FIT)
    average = fk.optimizers.ema_weights(run.opt_state)
    assert average["a/kernel"].dtype == "float32"
    close(rounded(average), trainable_weights(run.model), rtol=0)
    run, _ = trainer.step(run, (X, Y))
    check_rounded(run)


@pytest.mark.exhaustive
def test_a_population_equals_single_trainings():
    trainer = fk.Trainer("adam", "mse", master="float32")
    population = fk.populate(trainer, {"learning_rate": [0.1, 0.01], "beta_1": [0.9, 0.8]})
    runs, _ = population.fit(population.init(network(), jax.random.key(0)), X, Y, **FIT)
    run = population.member(runs, 2)
    check_rounded(run)
    single = fk.Trainer(fk.optimizers.Adam(0.01, beta_1=0.9), "mse", master="float32")
    expected, _ = single.fit(single.init(network(), jax.random.key(0)), X, Y, **FIT)
    close(run.opt_state.weights, expected.opt_state.weights, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_resumed_training_is_equal_in_every_bit(tmp_path):
    trainer = fk.Trainer("adam", "mse", master="float32")
    run = trainer.init(network(), jax.random.key(0))
    expected, _ = trainer.fit(run, X, Y, **FIT | {"epochs": 4})
    folder = tmp_path / "run"
    trainer.fit(run, X, Y, checkpoint=str(folder), **FIT)
    resumed, _ = trainer.fit(run, X, Y, checkpoint=str(folder), **FIT | {"epochs": 4})
    for a, b in zip(jax.tree.leaves(resumed), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    plain = fk.Trainer("adam", "mse")
    with pytest.raises(fk.CheckpointError, match="optimizer"):
        plain.fit(plain.init(network(), jax.random.key(0)), X, Y, checkpoint=str(folder), **FIT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["fsdp", None])
def test_masters_have_the_layout_of_their_weights(sharding):
    mesh = jax.make_mesh((2,), ("data",))
    trainer = fk.Trainer("adam", "mse", master="float32", mesh=mesh, sharding=sharding)
    run, _ = trainer.fit(trainer.init(network(), jax.random.key(0)), X, Y, **FIT)
    kernel, master = run.model.layers["a"].kernel, run.opt_state.weights["a/kernel"]
    assert kernel.sharding.is_equivalent_to(master.sharding, 2)
    assert (len({str(s.index) for s in master.addressable_shards}) == 2) == (sharding is not None)
    single = fk.Trainer("adam", "mse", master="float32")
    expected, _ = single.fit(single.init(network(), jax.random.key(0)), X, Y, **FIT)
    close(run.opt_state.weights, expected.opt_state.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
def test_blocks_as_a_loop_equal_single_blocks(on_nonfinite):
    results = []
    for depth in ("scan", "unroll"):
        trainer = fk.Trainer(
            "adam", "mse", master="float32", depth=depth, on_nonfinite=on_nonfinite
        )
        run = trainer.init(network(blocks=4), jax.random.key(0))
        if depth == "scan":
            assert stacking_of(trainer, run) is not None
        run, _ = trainer.fit(run, X, Y, **FIT)
        check_rounded(run, run.opt_state.weights)
        assert len(run.opt_state.weights) == 12
        results.append(run.opt_state.weights)
    close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
def test_files_of_keras_hold_the_slots_and_warn_of_the_masters(tmp_path):
    trainer = fk.Trainer("adam", "mse", master="float32")
    run, _ = trainer.fit(trainer.init(network(), jax.random.key(0)), X, Y, **FIT)
    path = tmp_path / "m.keras"
    with pytest.warns(UserWarning, match=r"master of the trainer.*replace\(trainer, master="):
        fk.save_model(path, run.model, run.state, trainer=trainer, run=run)
    loaded, again = fk.load_training(path)
    np.testing.assert_array_equal(
        again.opt_state.slots["momentum"]["a/kernel"],
        run.opt_state.inner.slots["momentum"]["a/kernel"],
    )
    again, _ = dataclasses.replace(loaded, master="float32").step(again, (X, Y))
    check_rounded(again)


@pytest.mark.parametrize("master", ["bfloat16", "float16", True, 32])
def test_other_dtypes_of_masters_are_rejected(master):
    with pytest.raises((ValueError, TypeError), match="master: expected"):
        fk.Trainer("adam", "mse", master=master)


@pytest.mark.exhaustive
def test_rows_of_tables_have_masters():
    ids = fk.Input((2,), dtype="int32")
    h = layers.Embedding(50, 4, dtype="bfloat16", name="items")(ids)
    model = fk.Model(ids, layers.Dense(1, dtype="bfloat16", name="b")(layers.Flatten()(h)))
    x, y = RNG.integers(0, 20, (32, 2)), Y
    results = []
    for optimizer in (
        fk.optimizers.Adagrad(0.1),
        fk.optimizers.Rowwise(fk.optimizers.Adagrad(0.1)),
    ):
        trainer = fk.Trainer(optimizer, "mse", master="float32")
        run = trainer.init(model, jax.random.key(0))
        run, _ = trainer.fit(run, x, y, **FIT)
        check_rounded(run, ("items/embeddings", "b/kernel", "b/bias"))
        results.append(run.opt_state.weights)
    close(*results, rtol=1e-5, atol=1e-6)

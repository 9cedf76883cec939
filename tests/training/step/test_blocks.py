"""Trainings with repeated blocks in one loop compute what trainings with single blocks compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.records.state import split
from fkeras.training.step.blocks import stacked, stacking_of, unstacked
from fkeras.training.step.changes import parted
from fkeras.training.step.step import compiled_train
from fkeras.transforms.depth import with_depth

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 5, 6)).astype("float32")
Y = RNG.normal(size=(24, 5, 2)).astype("float32")


def block(x):
    """A block with masks, state, randomness and losses."""
    attention = layers.MultiHeadAttention(1, 3)(x, x)
    x = layers.BatchNormalization()(x + layers.Dropout(0.2)(attention))
    return x + layers.Dense(6, "tanh", kernel_regularizer="l2")(x)


def chain(count=3):
    x = y = fk.Input((5, 6))
    for _ in range(count):
        y = block(y)
    return fk.Model(x, layers.Dense(2)(y))


def dense(count=3):
    hidden = [layers.Dense(6, "tanh") for _ in range(count)]
    return fk.Sequential([fk.Input((5, 6)), *hidden, layers.Dense(2)])


def trainers(**options):
    options = {"optimizer": "sgd", "loss": "mse", "metrics": ["mae"], **options}
    return [fk.Trainer(**options, depth=depth) for depth in ("unroll", "scan")]


def start(trainer, model):
    return trainer.init(model, jax.random.key(0))


def assert_same_run(run, other, atol=2e-6):
    assert jax.tree.structure(run.model) == jax.tree.structure(other.model)
    assert jax.tree.structure(run) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(run), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol)


def fit(trainer, run, **options):
    options = {"epochs": 2, "batch_size": 8, "verbose": 0, **options}
    return trainer.fit(run, X, Y, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("remat", [None, "dots"])
def test_fit_equals_the_unrolled_training(remat):
    (unrolled, history), (scanned, scanned_history) = (
        fit(t, start(t, chain()), validation_data=(X, Y)) for t in trainers(remat=remat)
    )
    assert_same_run(unrolled, scanned)
    for name, values in history.history.items():
        np.testing.assert_allclose(values, scanned_history.history[name], rtol=1e-5)


@pytest.mark.exhaustive
def test_blocks_over_an_unknown_axis_that_fits_any_axis():
    def mixed(*shape):
        x = y = fk.Input(shape)
        doubled = layers.UpSampling1D()(layers.MaxPooling1D()(x))
        for number in range(3):  # each sum joins two axes that cannot be proved equal
            y = layers.Add()([layers.Dense(6, "tanh", name=f"hidden_{number}")(y), doubled])
        return fk.Model(x, layers.Dense(2)(y))

    x, y = X[:, :4], Y[:, :4]
    runs = []
    for trainer in trainers():
        run = start(trainer, mixed(None, 6))
        assert (stacking_of(trainer, run) is None) == (trainer.depth == "unroll")
        runs.append(trainer.fit(run, x, y, batch_size=8, verbose=0)[0])
    assert_same_run(*runs)
    known = mixed(4, 6).build(jax.random.key(0)).set_weights(runs[0].model.get_weights({}), {})[0]
    rolled = with_depth(runs[0].model, "scan")
    assert rolled.graph.depth == "scan"
    np.testing.assert_allclose(rolled(x), known(x), rtol=1e-5, atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["adam", "lamb", fk.optimizers.SGD(0.1, global_clipnorm=0.1)])
def test_optimizers_train_stacked_and_single_weights(optimizer):
    unroll, scan = trainers(optimizer=optimizer)
    run = start(scan, dense())
    assert (stacking_of(scan, run) is None) == (optimizer == "lamb")
    assert stacking_of(unroll, run) is None
    assert_same_run(fit(unroll, run)[0], fit(scan, run)[0], atol=2e-4)


@pytest.mark.exhaustive
def test_run_step_and_evaluate_equal_the_unrolled_ones():
    unroll, scan = trainers()
    run = start(scan, dense())
    results = []
    for trainer in (unroll, scan):
        new, logs = jax.jit(trainer.run, static_argnums=(2, 3))(run, (X, Y), 1, 8)
        stepped, step_logs = jax.jit(trainer.step)(new, (X[:8], Y[:8]))
        results.append((new, logs, stepped, step_logs, trainer.evaluate(stepped, X, Y, verbose=0)))
    assert jax.tree.structure(results[0]) == jax.tree.structure(results[1])
    for a, b in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


@pytest.mark.exhaustive
def test_a_frozen_block_stays_and_the_other_blocks_train():
    _, scan = trainers()
    run = start(scan, dense(30))
    run = run.replace(model=fk.freeze(run.model, "dense_11"))
    trained, _ = fit(scan, run, epochs=1)
    changed = {
        name: bool((layer.kernel != run.model.layers[name].kernel).any())
        for name, layer in trained.model.layers.items()
        if isinstance(layer, layers.Dense)
    }
    assert [name for name, is_changed in changed.items() if not is_changed] == ["dense_11"]
    assert not trained.model.layers["dense_11"].trainable


def test_callbacks_see_single_blocks_and_may_change_them():
    class Watch(fk.callbacks.Callback):
        def on_batch_end(self, step, run, logs):
            names.append(list(run.model.layers))
            return run.replace(model=fk.freeze(run.model, "dense")) if step == 2 else run

    names = []
    _, scan = trainers(optimizer="adam")
    run = start(scan, dense())
    assert stacking_of(scan, run) is not None
    run, _ = fit(scan, run, epochs=1, callbacks=[Watch()])
    assert names == [list(run.model.layers)] * 3 and "dense" in names[0]
    assert not run.model.layers["dense"].trainable
    assert "dense/kernel" not in run.opt_state.slots["momentum"]


@pytest.mark.exhaustive
def test_a_checkpoint_in_the_middle_of_an_epoch_continues_with_equal_bits(tmp_path):
    class Stop(fk.callbacks.Callback):
        def on_batch_end(self, step, run, logs):
            if step == 4:
                raise KeyboardInterrupt
            return run

    _, scan = trainers(optimizer="adam")
    run = start(scan, chain())
    whole, _ = fit(scan, run, steps_per_execution=1)
    with pytest.raises(KeyboardInterrupt) as error:
        fit(scan, run, checkpoint=tmp_path, callbacks=[Stop()], steps_per_execution=1)
    assert list(error.value.run.model.layers) == list(run.model.layers)
    resumed, _ = fit(scan, run, checkpoint=tmp_path, steps_per_execution=1)
    assert jax.tree.structure(whole.model) == jax.tree.structure(resumed.model)
    jax.tree.map(np.testing.assert_array_equal, whole.model, resumed.model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("large", [False, True])
def test_steps_that_are_not_finite_are_left_out(large, monkeypatch):
    if large:
        monkeypatch.setattr("fkeras.training.data.array_feed.device_bytes", lambda: 0)
    y = Y.copy()
    y[3] = 1e30  # the square overflows
    results = []
    for trainer in trainers(on_nonfinite="skip"):
        with pytest.warns(UserWarning, match="were skipped"):
            run, _ = trainer.fit(
                start(trainer, dense()), X, y, epochs=1, batch_size=8, shuffle=False, verbose=0
            )
        results.append(run)
    assert_same_run(*results)


@pytest.mark.exhaustive
def test_find_nan_names_the_layer_of_one_block():
    _, scan = trainers()
    run = start(scan, dense())
    kernel = run.model.layers["dense_1"].kernel.at[0, 0].set(jnp.nan)
    run = run.replace(model=fk.engine.replace_weights(run.model, {"dense_1/kernel": kernel}))
    with pytest.raises(FloatingPointError) as error:
        fit(scan, run)
    assert "dense_1/kernel" in str(fk.find_nan(error.value.run, (X[:8], Y[:8]), scan))


@pytest.mark.exhaustive
def test_an_objective_receives_single_blocks():
    def objective(model, state, batch, key, training):
        x, y = batch
        assert "dense" in model.layers
        out = model.apply(x, state=state, training=training, key=key)
        return fk.Output(((out.value - y) ** 2).mean(), updates=out.updates)

    results = []
    for depth in ("unroll", "scan"):
        trainer = fk.Trainer("sgd", objective=objective, depth=depth)
        run = start(trainer, dense())
        assert stacking_of(trainer, run) is None
        results.append(trainer.fit(run, (X, Y), epochs=1, batch_size=8, verbose=0)[0])
    assert_same_run(*results)


@pytest.mark.exhaustive
def test_the_program_of_fit_does_not_grow_with_the_number_of_blocks():
    sizes = []
    for count in (2, 16):
        _, scan = trainers(optimizer="adam")
        run = start(scan, chain(count))
        stacking = stacking_of(scan, run)
        structure, leaves = split(stacked(stacking, run))
        rows = ((X[None], Y[None], None), np.array([len(X)], "int32"))
        parts = parted(structure, leaves)
        program = compiled_train.by_default.lower(
            scan, structure, "loop", *parts, rows, np.int32(1)
        )
        sizes.append(len(program.as_text()))
        assert_same_run(unstacked(stacking, stacked(stacking, run)), run, atol=0)
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.exhaustive
def test_auto_scans_blocks_with_many_operations_alone():
    auto = fk.Trainer("adam", "mse")
    assert stacking_of(auto, start(auto, chain(9))) is not None
    assert stacking_of(auto, start(auto, dense(9))) is None
    # few blocks compile faster one after the other
    assert stacking_of(auto, start(auto, chain(4))) is None
    nine, eight = (start(auto, chain(count)).model for count in (9, 8))
    assert with_depth(nine, "auto", training=False).graph.depth == "scan"
    assert with_depth(eight, "auto", training=False).graph.depth == "unroll"


@pytest.mark.exhaustive
def test_quantized_blocks_train():
    results = []
    for trainer in trainers():
        run = start(trainer, dense())
        run = run.replace(model=fk.quantize(run.model, "int8", "dense_[0-2]"))
        run = run.replace(model=fk.quantize(run.model, "int8", "dense"))
        results.append(trainer.fit(trainer.init(run.model, jax.random.key(1)), X, Y, verbose=0)[0])
    assert_same_run(*results)


@pytest.mark.exhaustive
def test_a_mesh_shards_the_weights_of_single_blocks():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    rules = {"*/kernel": (None, "model")}
    results = []
    for trainer in trainers(optimizer="adam", mesh=mesh, sharding=rules):
        run = start(trainer, dense())
        assert stacking_of(trainer, run) is None
        results.append(fit(trainer, run, epochs=1)[0])
    assert_same_run(*results, atol=1e-4)
    kernel = results[1].model.layers["dense_1"].kernel
    assert kernel.sharding.spec == jax.sharding.PartitionSpec(None, "model")

"""Memory of `fit`: a large run is held once, and nobody loses an array to a call that overwrites it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.data import array_feed
from fkeras.training.step import step
from fkeras.training.step.blocks import flat

X = np.random.default_rng(3).normal(size=(32, 16)).astype("float32")
Y = X[:, :13]


def trainer(**options):
    return fk.Trainer("adam", "mse", **options)


def start(frozen="", key=0):
    x = h = fk.Input((16,))
    for units in (15, 14, 13):
        h = layers.Dense(units, "tanh")(h)
    model = fk.Model(x, h).build(jax.random.key(key))
    return trainer().init(fk.freeze(model, frozen) if frozen else model, jax.random.key(key))


def live_bytes():
    """The bytes of all arrays of the process; arrays with the same memory count once."""
    parts = [shard.data for array in jax.live_arrays() for shard in array.addressable_shards]
    return sum({part.unsafe_buffer_pointer(): part.nbytes for part in parts}.values())


class Watch(fk.Callback):
    def on_batch_end(self, step, run, logs):
        assert np.isfinite(np.asarray(run.model.layers["dense"].kernel)).all()


@pytest.fixture
def peaks(monkeypatch):
    """The bytes at each call that overwrites its arrays; every run is a large run."""
    monkeypatch.setattr(array_feed, "MEMORY", 1 << 12)
    seen, overwriting = [], step.donating_train

    class Spy:
        by_default = overwriting.by_default

        def __call__(self, *arguments):
            seen.append(live_bytes())
            return overwriting(*arguments)

    monkeypatch.setattr(step, "donating_train", Spy())
    return seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("frozen", ["", "dense*"])
@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_large_run_is_held_once(peaks, frozen, on_nonfinite, watched):
    if frozen:  # all but the last layer
        frozen = ["dense", "dense_1"]
    others, run = live_bytes(), start(frozen)
    one = live_bytes() - others
    options = {"verbose": 0, "callbacks": [Watch()] * watched, "epochs": 3}
    fitting = trainer(on_nonfinite=on_nonfinite)
    kept, _ = fitting.fit(run, X, Y, 16, **options)
    assert len(peaks) == 6
    changed = sum(a.nbytes for a in flat(fitting, run).leaves)
    assert max(peaks) < others + one + 1.1 * changed + 4096  # the caller's run, and one
    assert np.isfinite(fitting.evaluate(run, X, Y, verbose=0)["loss"])  # which stays valid
    peaks.clear()
    del kept
    again, _ = fitting.fit(run, X, Y, 16, donate=True, **options)
    assert run.step.is_deleted()
    assert max(peaks) < others + 1.1 * one + 4096
    small = start(frozen)
    expected, _ = fitting.fit(small, X, Y, 16, steps_per_execution=1, **options)
    chex.assert_trees_all_close(again.model, expected.model, rtol=1e-6)


@pytest.mark.exhaustive
def test_a_callback_may_keep_all_or_a_part_of_a_large_run(peaks):
    kept = {}

    class Keep(fk.Callback):
        def on_epoch_begin(self, epoch, run):
            kept["begin", epoch] = run.opt_state

        def on_batch_end(self, step, run, logs):
            kept["model", step] = run.model
            kept["kernel", step] = run.model.layers["dense_1"].kernel
            kept["numpy", step] = np.asarray(run.model.layers["dense_2"].kernel)
            return self.remember(run, run.model.layers["dense"].bias)

    run, _ = trainer().fit(start(), X, Y, 16, epochs=2, callbacks=[Keep()], verbose=0, donate=True)
    assert len(peaks) == 4
    seen = {}
    for number in range(1, 5):
        seen[number] = kept["model", number]
        chex.assert_trees_all_equal(kept["kernel", number], seen[number].layers["dense_1"].kernel)
        chex.assert_trees_all_equal(kept["numpy", number], seen[number].layers["dense_2"].kernel)
    chex.assert_trees_all_equal(seen[4], run.model)
    chex.assert_trees_all_equal(run.memory["keep"], run.model.layers["dense"].bias)
    kernels = [np.asarray(model.layers["dense"].kernel) for model in seen.values()]
    assert all((a != b).any() for a, b in zip(kernels, kernels[1:], strict=False))
    assert all(
        not leaf.is_deleted() for leaf in jax.tree.leaves(kept) if hasattr(leaf, "is_deleted")
    )


def test_an_exception_carries_the_run_of_a_donated_run(peaks):
    run = start()
    with pytest.raises(ValueError, match="epochs") as caught:
        _ = trainer().fit(run, X, Y, epochs=0, donate=True)
    assert caught.value.run is run and not run.step.is_deleted()
    with pytest.raises(ValueError, match="donate: expected True or False"):
        _ = trainer().fit(run, X, Y, donate="yes")

    def fail(*arguments):
        raise OSError

    for number, hook in enumerate(("on_train_begin", "on_epoch_begin", "on_epoch_end")):
        run = start()
        with pytest.raises(OSError) as caught:
            callback = fk.callbacks.LambdaCallback(**{hook: fail})
            _ = trainer().fit(run, X, Y, 16, callbacks=[callback], verbose=0, donate=True)
        assert run.step.is_deleted()
        assert int(caught.value.run.step) == (2 if number == 2 else 0)
        assert np.isfinite(trainer().evaluate(caught.value.run, X, Y, verbose=0)["loss"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["source", "nan"])
@pytest.mark.parametrize("large", [False, True])
def test_an_exception_in_the_first_step_of_an_epoch_precedes_its_hooks(
    fault, large, monkeypatch, tmp_path
):
    monkeypatch.setattr(array_feed, "MEMORY", 1 << 12 if large else 1 << 32)
    faults = []

    def batch(number):
        if number == 2 and not faults:
            faults.append(1)
            if fault == "source":
                raise FloatingPointError
            return np.full((16, 16), np.nan, "float32"), Y[:16]
        return X[16 * (number % 2) :][:16], Y[16 * (number % 2) :][:16]

    halve = fk.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    options = {"epochs": 2, "steps_per_epoch": 2, "callbacks": [halve], "verbose": 0}
    with pytest.raises(FloatingPointError) as caught:
        _ = trainer().fit(start(), batch, checkpoint=tmp_path, **options)
    run = caught.value.run
    assert (int(run.step), list(run.position)) == (2, [1, 0])
    assert float(run.opt_state.learning_rate) == pytest.approx(0.0005)
    resumed, _ = trainer().fit(start(), batch, checkpoint=tmp_path, **options)
    expected, _ = trainer().fit(start(), batch, **options)
    chex.assert_trees_all_equal(resumed.replace(memory={}), expected.replace(memory={}))


def test_a_step_takes_the_memory_of_a_donated_run():
    run = start()
    expected, _ = trainer().step(run, (X, Y))
    twice = run.replace(memory={"mine": run.model.layers["dense"].kernel})
    old_kernel = np.array(run.model.layers["dense"].kernel)
    new, _ = trainer().step(twice, (X, Y), donate=True)
    assert run.model.layers["dense"].kernel.is_deleted()
    chex.assert_trees_all_close(new.model, expected.model, rtol=1e-6)
    np.testing.assert_array_equal(new.memory["mine"], old_kernel)
    with pytest.raises(RuntimeError, match="donated"):
        _ = trainer().step(run, (X, Y))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("depth", "share"), [(4, 1.1), (8, 1.5)])
def test_a_guarded_step_needs_the_memory_of_one_run_and_its_gradients(depth, share):
    x = h = fk.Input((256,))
    for _ in range(depth):
        h = layers.Dense(256, "tanh")(h)
    fitting = trainer(depth="unroll")
    run = fitting.init(fk.Model(x, h), jax.random.key(0))
    structure, changed, fixed, *_ = flat(fitting, run)
    rows = ((jnp.ones((1, 8, 256)), jnp.ones((1, 8, 256)), None), jnp.ones(1, "int32"))
    held = {}
    for mode in ("once", "guarded", "halting"):
        arguments = step.training_form(fitting), structure, mode, changed, fixed, rows, np.int32(0)
        memory = step.donating_train.by_default.lower(*arguments).compile().memory_analysis()
        # nothing but the logs is new memory
        assert memory.output_size_in_bytes - memory.alias_size_in_bytes < 4096
        held[mode] = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(run.model))
    for mode in ("guarded", "halting"):
        assert held[mode] < held["once"] + share * weights


@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [1 << 12, 1 << 32])
def test_a_guard_of_transfers_permits_those_of_the_trainer(memory, monkeypatch):
    monkeypatch.setattr(array_feed, "MEMORY", memory)
    run, options = start(), {"verbose": 0, "callbacks": [Watch()], "epochs": 2}
    expected, logs = trainer().fit(run, X, Y, 16, validation_data=(X, Y), **options)
    with jax.transfer_guard("disallow"):
        guarded, again = trainer().fit(run, X, Y, 16, validation_data=(X, Y), **options)
        _ = trainer().fit(run, [(X[:16], Y[:16]), (X[16:], Y[16:])], verbose=0)
        evaluated = trainer().evaluate(guarded, X, Y, verbose=0)
        predicted = trainer().predict(guarded, X)
        with pytest.raises(Exception, match="Disallowed host-to-device"):
            jnp.sin(X)
    chex.assert_trees_all_equal(guarded.model, expected.model)
    assert again.history == logs.history
    assert evaluated["loss"] == pytest.approx(logs.history["val_loss"][-1], rel=1e-6)
    assert predicted.shape == (32, 13)

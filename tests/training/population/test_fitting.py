"""`Population.fit`: members that are not finite, sources, objectives, memory and exceptions."""

import signal

import chex
import jax
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.data import array_feed
from fkeras.training.population import EarlyStopping, fitting, lanes, memory, program

RNG = np.random.default_rng(1)
X = RNG.normal(size=(24, 3)).astype("float32")
Y = X[:, :1] - 0.5 * X[:, 1:2]
KEY = jax.random.key(2)
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="one"), layers.Dense(1)]).build(KEY)


def population_of(values, trainer=None, **options):
    population = fk.populate(
        fk.Trainer("sgd", "mse") if trainer is None else trainer, values, **options
    )
    return population, population.init(MODEL, KEY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group_size", [None, 1])
def test_a_member_that_is_not_finite_stops_alone(group_size):
    population, start = population_of({"learning_rate": [0.1, 1e30, 0.2]}, group_size=group_size)
    with pytest.warns(UserWarning, match=r"1 of 3 members returned nan or infinity \(member 1\)"):
        runs, history = population.fit(start, X, Y, 8, epochs=3, verbose=0)
    for number in (0, 2):
        own, logs = population.trainer.fit(population.member(start, number), X, Y, 8, 3, verbose=0)
        chex.assert_trees_all_close(
            population.member(runs, number).model, own.model, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            np.array(history["loss"])[:, number], logs["loss"], rtol=1e-5, atol=1e-6
        )
    with pytest.raises(fk.NonFiniteError) as error:
        _ = population.trainer.fit(population.member(start, 1), X, Y, 8, 3, verbose=0)
    # as in its own fit: the run before the step
    stopped = population.member(runs, 1)
    assert int(stopped.step) == int(error.value.run.step)
    chex.assert_trees_all_close(stopped.model, error.value.run.model, rtol=1e-5, atol=1e-6)
    assert np.isnan(np.array(history["loss"])[:, 1]).all()
    assert history.params["stopped"] == {1: "epoch 1: nan or infinity"}


@pytest.mark.exhaustive
def test_steps_that_are_not_finite_are_skipped_or_ignored():
    x = X.copy()
    x[3] = np.nan
    batches = [(x[:8], Y[:8]), (x[8:16], Y[8:16])]
    for mode in ("skip", "ignore"):
        trainer = fk.Trainer("sgd", "mse", on_nonfinite=mode)
        population, start = population_of({"learning_rate": [0.1, 0.2]}, trainer)
        if mode == "ignore":
            runs, _ = population.fit(start, batches, verbose=0)
            assert np.isnan(runs.model.layers["one"].kernel).all()
            continue
        with pytest.warns(UserWarning, match="2 of 2 members .* were skipped"):
            runs, _ = population.fit(start, batches, verbose=0)
        with pytest.warns(UserWarning, match="skipped"):
            own, _ = trainer.fit(population.member(start, 1), batches, verbose=0)
        chex.assert_trees_all_close(
            population.member(runs, 1).model, own.model, rtol=1e-5, atol=1e-6
        )


@pytest.mark.exhaustive
def test_members_share_the_batches_of_a_source():
    batches = [(X[:8], Y[:8]), (X[8:16], Y[8:16]), (X[16:21], Y[16:21])]
    population, start = population_of({"learning_rate": [0.1], "seed": range(2)})
    runs, history = population.fit(start, batches, epochs=2, validation_data=batches, verbose=0)
    for number in range(2):
        own, logs = population.trainer.fit(
            population.member(start, number), batches, epochs=2, validation_data=batches, verbose=0
        )
        chex.assert_trees_all_close(
            population.member(runs, number).model, own.model, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            np.array(history["val_loss"])[:, number], logs["val_loss"], rtol=1e-5
        )


@pytest.mark.exhaustive
def test_an_objective_trains_members():
    def objective(model, state, batch, key, training):
        out = model.apply(batch, state=state, training=training, key=key)
        error = jax.numpy.mean((out.value - jax.random.normal(key, out.value.shape)) ** 2)
        return fk.Output(error, metrics={"error": error})

    trainer = fk.Trainer("adam", objective=objective)
    population, start = population_of({"seed": range(2)}, trainer)
    options = {"batch_size": 10, "epochs": 2, "verbose": 0, "validation_data": X[:4]}
    runs, history = population.fit(start, X, **options)
    own, logs = trainer.fit(population.member(start, 1), X, **options)
    chex.assert_trees_all_close(population.member(runs, 1).model, own.model, rtol=1e-5, atol=1e-6)
    for name in ("error", "val_error"):
        np.testing.assert_allclose(np.array(history[name])[:, 1], logs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_averages_are_final_and_frozen_layers_stay():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    population, start = population_of({"ema_momentum": [0.5, 0.9]}, trainer)
    runs, _ = population.fit(start, X, Y, verbose=0)
    own, _ = population.trainer_of(start, 1).fit(population.member(start, 1), X, Y, verbose=0)
    chex.assert_trees_all_close(population.member(runs, 1).model, own.model, rtol=1e-5, atol=1e-6)
    frozen = runs.replace(model=fk.freeze(runs.model, "one"))
    after, _ = population.fit(frozen, X, Y, verbose=0)
    assert (after.model.layers["one"].kernel == runs.model.layers["one"].kernel).all()
    assert (after.model.layers["dense"].kernel != runs.model.layers["dense"].kernel).any()


def test_a_field_that_shapes_the_program_is_named():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse")
    population, start = population_of({"gradient_accumulation_steps": [2, 4]}, trainer)
    with pytest.raises(
        ValueError, match="value of 'gradient_accumulation_steps': a Python condition"
    ):
        population.fit(start, X, Y, verbose=0)


@pytest.mark.exhaustive
def test_an_exception_carries_the_runs():
    def batches():
        yield X[:8], Y[:8]
        raise OSError("the disk is gone")

    population, start = population_of({"learning_rate": [0.1, 0.2]})
    with pytest.raises(OSError, match="the disk is gone") as error:
        population.fit(start, batches(), verbose=0)
    runs = error.value.run
    assert runs.step.tolist() == [1, 1]
    assert population.trainer_of(runs, 1).optimizer.learning_rate == 0.2


def test_ctrl_c_keeps_the_runs():
    rows = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 24, 8)]

    def interrupting(step):
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        return rows[step % 3]

    population, start = population_of({"learning_rate": [0.1, 0.2]})
    with pytest.raises(
        fk.Interrupted, match=r"^Population.fit: ended by Ctrl-C.*so far\.$"
    ) as error:
        _ = population.fit(start, interrupting, epochs=3, steps_per_epoch=3, verbose=0)
    runs = error.value.run
    expected, _ = population.fit(start, lambda step: rows[step % 3], steps_per_epoch=4, verbose=0)
    assert runs.step.tolist() == [4, 4]
    chex.assert_trees_all_close(runs.model, expected.model, rtol=1e-6)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.exhaustive
def test_sigterm_is_left_to_the_program():
    """As in `fit` without checkpoint: the default ends the process, a handler's exception has the run."""
    rows = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 24, 8)]

    def terminating(step):
        if step == 2:
            signal.raise_signal(signal.SIGTERM)
        return rows[step]

    def leave(number, frame):
        raise SystemExit(128 + number)

    population, start = population_of({"learning_rate": [0.1, 0.2]})
    trainings = (population.fit, start), (population.trainer.fit, population.member(start, 0))
    before = signal.signal(signal.SIGTERM, leave)
    try:
        for fit, run in trainings:
            with pytest.raises(SystemExit, match="143") as error:
                _ = fit(run, terminating, steps_per_epoch=3, verbose=0)
            assert (error.value.run.step == 2).all()
            expected, _ = fit(run, rows[:2], verbose=0)
            chex.assert_trees_all_close(error.value.run.model, expected.model, rtol=1e-6)
            assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.exhaustive
def test_ctrl_c_does_not_separate_the_lanes_from_their_runs(monkeypatch):
    choose = fitting.Training._choose

    def interrupted(training, members):
        if len(members) < 3:
            signal.raise_signal(signal.SIGINT)
        choose(training, members)

    monkeypatch.setattr(fitting.Training, "_choose", interrupted)
    population, start = population_of({"learning_rate": [1e30, 0.1, 1e30]})
    with pytest.raises(fk.Interrupted) as error:
        _ = population.fit(start, X, Y, 8, epochs=3, verbose=0)
    own, _ = population.trainer.fit(population.member(start, 1), X, Y, 8, verbose=0)
    member = population.member(error.value.run, 1)
    assert int(member.step) == 3
    chex.assert_trees_all_close(member.model, own.model, rtol=1e-5, atol=1e-6)


def test_memory_is_checked_first(monkeypatch):
    population = fk.populate(fk.Trainer("adam", "mse"), {"seed": range(4)})
    start = population.init(MODEL, KEY)
    monkeypatch.setattr(memory, "capacity", lambda: 800)
    with pytest.raises(MemoryError, match=r"Population.init: .* runs of 4 members need"):
        population.init(MODEL, KEY)
    with pytest.raises(MemoryError, match=r"Population.fit: .* arrays of a step of 4 members need"):
        population.fit(start, X, Y, verbose=0)


def test_rows_that_do_not_fit_need_a_shared_order(monkeypatch):
    monkeypatch.setattr(array_feed, "is_small", lambda feed: False)
    population, start = population_of({"seed": range(2)})
    with pytest.raises(ValueError, match='fk.populate\\(..., order="shared"\\)'):
        population.fit(start, X, Y, verbose=0)
    shared, _ = population_of({"seed": range(2)}, order="shared")
    runs, _ = shared.fit(start, X, Y, 8, verbose=0)
    own, _ = shared.trainer.fit(shared.member(start, 0), X, Y, 8, verbose=0)
    chex.assert_trees_all_close(shared.member(runs, 0).model, own.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_the_line_of_an_epoch_shows_medians(capsys):
    population, start = population_of({"learning_rate": [0.0, 0.1, 0.2]})
    _, history = population.fit(start, X, Y, verbose=2)
    assert np.shape(history["loss"]) == (1, 3) and history.params["stopped"] == {}
    assert "<table" in history._repr_html_() and history.plot().axes
    with pytest.raises(ValueError, match="unknown log 'los'. Did you mean 'loss'"):
        history["los"]
    assert f"loss {np.median(history['loss'][0]):.4f}" in capsys.readouterr().out


def test_lanes_fill_whole_groups_on_all_devices():
    for members, limit, devices in ((7, 4, 1), (7, None, 2), (64, 24, 1), (3, None, 8)):
        result = lanes.lanes_of(np.arange(members), limit, devices)
        assert len(result.members) % (result.group * devices) == 0
        assert result.active.sum() == members and result.group <= (limit or members)
        assert result.members[:members].tolist() == list(range(members))


def test_groups_on_cpus_hold_single_convolutions():
    assert program.group_limit(100, True) == 1
    assert program.group_limit(1 << 30, False) == 1
    assert program.group_limit(1 << 10, False) == 512


@pytest.mark.exhaustive
def test_idle_groups_keep_their_arrays():
    population, start = population_of({"learning_rate": [0.0, 0.1, 0.2]}, group_size=1)
    rule = EarlyStopping("loss", min_delta=1e-6)
    runs, history = population.fit(start, X, Y, epochs=4, rules=[rule], verbose=0)
    chex.assert_trees_all_equal(population.member(runs, 0).model, MODEL)
    assert np.isnan(history["loss"][2][0]) and not np.isnan(history["loss"][3][1:]).any()


@pytest.mark.exhaustive
def test_optax_transformations_have_seeds_alone():
    population, start = population_of({"seed": range(2)}, fk.Trainer(optax.sgd(0.1), "mse"))
    runs, _ = population.fit(start, X, Y, verbose=0)
    own, _ = population.trainer.fit(population.member(start, 1), X, Y, verbose=0)
    chex.assert_trees_all_close(population.member(runs, 1).model, own.model, rtol=1e-5, atol=1e-6)

"""Profiles: parts of traces, names of operations, times by call, and bad arguments."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.planning.attribution import BETWEEN, LOSS, UPDATE, Calls
from fkeras.planning.scopes import awaited, instructions, scopes
from fkeras.planning.traces import Interval, divide, innermost


def trained(model=None, **options):
    if model is None:
        x = fk.Input((64,))
        h = layers.Dense(256, activation="relu", name="wide")(x)
        model = fk.Model(x, layers.Dense(8, name="add")(h))
    trainer = fk.Trainer("adam", "mse", **options)
    return trainer, trainer.init(model, jax.random.key(0))


BATCH = (np.ones((512, 64), "float32"), np.ones((512, 8), "float32"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("intervals", "parts"),
    [
        ([], []),
        ([(0, 4, "a"), (5, 6, "b")], [(0, 4, "a"), (5, 6, "b")]),
        (
            [(0, 9, "a"), (1, 2, "b"), (2, 5, "c")],
            [(0, 1, "a"), (1, 2, "b"), (2, 5, "c"), (5, 9, "a")],
        ),
        ([(0, 9, "a"), (0, 9, "b"), (3, 4, "c")], [(0, 3, "b"), (3, 4, "c"), (4, 9, "b")]),
        ([(5, 6, "b"), (0, 4, "a")], [(0, 4, "a"), (5, 6, "b")]),
    ],
)
def test_innermost(intervals, parts):
    assert innermost([Interval(*each) for each in intervals]) == parts


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([], {"": 10}),
        ([[(0, 10, "a")]], {"": 0, "a": 10}),
        ([[(0, 5, "a")], [(0, 5, "b")]], {"": 5, "a": 2.5, "b": 2.5}),
        ([[(0, 5, "a")], [(0, 5, "a")]], {"": 5, "a": 5}),
        ([[(-5, 2, "a"), (8, 20, "b")]], {"": 6, "a": 2, "b": 2}),
        ([[(0, 1, "dot"), (6, 7, "reads")]], {"": 3, "dot": 6, "reads": 1}),
        ([[(6, 7, "reads")]], {"": 9, "reads": 1}),
    ],
)
def test_divide(lines, seconds):
    lines = [[Interval(a * 1e9, b * 1e9, name) for a, b, name in line] for line in lines]
    assert divide(lines, 0, 10e9, {"reads": ("dot",)}) == pytest.approx(seconds)


@pytest.mark.exhaustive
def test_operations_of_a_compiled_step_have_names():
    trainer, run = trained()
    text = jax.jit(trainer.step).lower(run, BATCH).compile().as_text()
    names, calls = scopes(instructions(text)), Calls(run.model)
    rows = {calls.of_scope(stack) for stack in names.values()}
    assert rows == {"wide", "add", LOSS, UPDATE}
    waits = awaited(instructions(text))
    assert waits and all(operand in names for operands in waits.values() for operand in operands)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ("jit(f)/jvp(Model)/wide", "wide"),
        ("transpose(jvp(Model))/add/dot_general", "add"),
        ("jvp(Intercepted)/checkpoint/rematted_computation/wide", "wide"),
        ("jit(f)/add", UPDATE),
        ("jit(f)/jvp()/add", LOSS),
        ("jvp(Model)", BETWEEN),
        ("", UPDATE),
    ],
)
def test_calls_of_name_stacks(scope, name):
    assert Calls(trained()[1].model).of_scope(scope) == name


def times_of(profile):
    return {call.name: call.seconds for call in profile.calls}


def undisturbed(condition, *args, steps):
    """Whether one of up to ten profiles satisfies `condition`.

    Another process can slow any part of a profile down, seldom ten times in a row.
    """
    return any(condition(fk.profile(*args, steps=steps)) for _ in range(10))


@pytest.mark.exhaustive
def test_the_times_of_the_calls_sum_to_the_step():
    trainer, run = trained()
    profile = fk.profile(trainer, run, BATCH, steps=3)
    times = times_of(profile)
    assert list(times) == ["wide", "add", "(loss, metrics)", "(update)", "(runtime)"]
    assert profile.seconds == pytest.approx(sum(times.values()))
    assert all(times[name] > 0 for name in ("wide", "add"))

    def expected(profile):
        near = 0.3 < profile.seconds / profile.step_seconds < 3
        return near and times_of(profile)["wide"] > times_of(profile)["add"]

    assert undisturbed(expected, trainer, run, BATCH, steps=3)
    assert profile.plan == fk.plan(run, BATCH, trainer, donate=False)
    assert profile.calls[0].plan == profile.plan.calls[0]


@pytest.mark.exhaustive
def test_the_table_of_a_profile():
    trainer, run = trained()
    profile = fk.profile(trainer, run, BATCH, steps=1)
    text = str(profile)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.splitlines()[0] == "Profile of a training step on 512 rows: median of 1 step"
    assert "wide (Dense)" in text and "100.0%" in text
    assert profile._repr_html_().count("<tr>") == len(profile.calls) + 2


@pytest.mark.exhaustive
def test_recurrent_and_rematerialized_models():
    model = fk.Sequential([fk.Input((8, 64)), layers.LSTM(32), layers.Dense(8)])
    trainer, run = trained(model, remat="full")
    batch = (np.ones((16, 8, 64), "float32"), BATCH[1][:16])

    def expected(profile):
        return times_of(profile)["lstm"] > times_of(profile)["dense"]

    assert undisturbed(expected, trainer, run, batch, steps=1)


@pytest.mark.exhaustive
def test_blocks_in_a_loop_share_the_time():
    hidden = [layers.Dense(64, activation="tanh") for _ in range(6)]
    model = fk.Sequential([fk.Input((64,)), *hidden, layers.Dense(8, name="scores")])
    trainer, run = trained(model, depth="scan")
    times = times_of(fk.profile(trainer, run, BATCH, steps=1))
    assert times["dense_5"] == pytest.approx(times["dense_1"])
    assert times["dense_1"] > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"trainer": None}, TypeError, "expected a Trainer first"),
        ({"run": None}, TypeError, "expected a run as the second argument"),
        ({"batch": None}, TypeError, "batch"),
        ({"batch": ("x", "y")}, TypeError, "x"),
        ({"steps": 0}, ValueError, "at least one step"),
        ({"steps": 1.5}, TypeError, "an integer"),
        ({"steps": True}, TypeError, "an integer"),
    ],
)
def test_bad_arguments(change, error, message):
    trainer, run = trained()
    arguments = {"trainer": trainer, "run": run, "batch": BATCH, **change}
    with pytest.raises(error, match=message):
        fk.profile(**arguments)


def test_shapes_and_donated_runs_are_rejected():
    trainer, run = trained()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), run)
    with pytest.raises(TypeError, match="fk.plan"):
        fk.profile(trainer, shapes, BATCH)
    batch = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in BATCH)
    with pytest.raises(TypeError, match="arrays"):
        fk.profile(trainer, run, batch)
    jax.jit(trainer.step, donate_argnums=0)(run, BATCH)
    with pytest.raises(RuntimeError, match="donated"):
        fk.profile(trainer, run, BATCH)


@pytest.mark.exhaustive
def test_plans_and_profiles_are_immutable():
    trainer, run = trained()
    profile = fk.profile(trainer, run, BATCH, steps=1)
    for value in (profile, profile.calls[0], profile.plan, profile.plan.calls[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.name = "x"

"""Plans for devices by name: names, missing compilers, rejected steps, estimates, and TPUs' compiler itself."""

import dataclasses
import importlib
import importlib.util
import re

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.planning import compiling, devices
from fkeras.planning.devices import CHIPS, Slice, name_of, slice_of, slices
from fkeras.transforms.depth import with_depth
from tests.planning.test_cycles import PROGRAM

# the package's name `plan` is the function
planning = importlib.import_module("fkeras.planning.plan")

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs libtpu: pip install 'jax[tpu]'"
)


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


def small(name):
    x = fk.Input((128,))
    inner = fk.Sequential([fk.Input((128,)), layers.Dense(128, name="hidden")], name="inner")
    hidden = layers.Dense(128, name="hidden")(inner(x))
    model = fk.Model(x, layers.Dense(128, name="out")(hidden), name=name)
    return model, (spec(16, 128), spec(16, 128)), fk.Trainer("sgd", "mse")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "size", "text", "count"),
    [
        ("v5e", None, "v5e:1x1", 1),
        ("V5E:2x4", None, "v5e:2x4", 8),
        ("v5e", 8, "v5e:2x4", 8),
        ("v6e", 256, "v6e:16x16", 256),
        ("v5p:2x2x2", 8, "v5p:2x2x2", 8),
        ("v4", None, "v4:1x1x1", 1),
        ("tpu7x", None, "tpu7x:1x1x1", 2),
        ("v3", 8, "v3:2x2", 8),
        ("h100:8", None, "h100:8", 8),
        ("t4", None, "t4:1", 1),
    ],
)
def test_names(name, size, text, count):
    chosen = slice_of(name, size)
    assert str(chosen) == text
    assert chosen.size == count


@pytest.mark.parametrize(
    ("name", "size", "error", "message"),
    [
        (8, None, TypeError, "received 8"),
        (None, 4, TypeError, "received None"),
        ("v5", None, ValueError, "Did you mean 'v5[ep]'"),
        ("tpu", None, ValueError, "Known names: v2, v3"),
        ("v5e-8", None, ValueError, 'such as "v5e", "v5e:2x4"'),
        ("", None, ValueError, "received ''"),
        ("v5e:", None, ValueError, "received 'v5e:'"),
        ("v5e:2x2x2", None, ValueError, "along 2 axes, such as 'v5e:16x16'"),
        ("v5p:2x2", None, ValueError, "along 3 axes"),
        ("h100:2x2", None, ValueError, "along 1 axis, such as 'h100:8'"),
        ("v5e:0x0", None, ValueError, "received 'v5e:0x0'"),
        ("v5e:999x999", None, ValueError, "received 'v5e:999x999'"),
        ("v5e:2x4", 4, ValueError, "has 8 devices, the mesh has 4"),
        ("v5e", 6, ValueError, "known numbers of devices are 1, 4, 8, 16"),
    ],
)
def test_bad_names(name, size, error, message):
    with pytest.raises(error, match=message):
        slice_of(name, size)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "gib", "clock"),
    [("v5e", 16, 1.5e9), ("v6e", 32, 0), ("v5p", 95, 1.75e9), ("v4", 32, 1.05e9), ("tpu7x", 96, 0)],
)
def test_memory_and_clock(name, gib, clock):
    assert (CHIPS[name].memory, CHIPS[name].clock) == (gib * 2**30, clock)
    assert name_of(CHIPS[name].kind) == name


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'libtpu.*pip install "jax\[tpu\]"'):
        fk.plan(*small("missing"), device="v5e")
    with pytest.raises(ImportError, match=r'jax-cuda12-plugin.*pip install "jax\[cuda12-local\]"'):
        fk.plan(*small("missing"), device="h100")
    plan = fk.plan(*small("missing"))
    assert (plan.device, plan.fits, plan.cycles, plan.seconds) == ("", None, None, None)
    with pytest.raises(ImportError, match="libtpu"):
        plan.fit_into(device="v6e")


@pytest.mark.exhaustive
def test_names_are_checked_before_the_compiler():
    with pytest.raises(ValueError, match="Known names"):
        fk.plan(*small("names"), device="v9")
    with pytest.raises(ValueError, match="has 8 devices, the mesh has 4"):
        fk.plan(*small("names"), device="v5e:2x4", mesh={"data": 4})
    with pytest.raises(TypeError, match="expected mesh as sizes"):
        fk.plan(*small("names"), device="v5e", mesh=4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="expected a Trainer as the third"):
        fk.plan(*small("names")[:2], "adam", device="v5e")


def test_a_budget_or_a_device():
    with pytest.raises(TypeError, match=r'plan.fit_into\(device="v5e"\)'):
        fk.plan(*small("budget")).fit_into()


@pytest.fixture
def as_v5e(monkeypatch):
    """Plans as on a v5e: with the text of a TPU's program, and without the compiler."""
    planning._plan.cache_clear()
    real = compiling.compiled
    monkeypatch.setattr(
        planning, "compiled", lambda *args: real(*args)._replace(text=PROGRAM, rejected=False)
    )
    monkeypatch.setattr(planning, "device_of", lambda mesh: "v5e")
    yield monkeypatch
    planning._plan.cache_clear()


@pytest.mark.exhaustive
def test_cycles_by_call(as_v5e):
    plan = fk.plan(*small("Model"))
    # of the stored program: the update ends with 400 cycles; "attention" is no call of this model
    rows = {call.name: call.cycles for call in plan.calls}
    assert rows == {"inner/hidden": 0, "inner": 0, "hidden": 160, "out": 50, "(loss, metrics)": 0,
                    "(between calls)": 0, "(update)": 400}  # fmt: skip
    assert plan.cycles == 610 and plan.seconds == 610 / 1.5e9
    assert set(plan.without_cycles) == {"out", "(between calls)"}
    assert plan.collectives == (("all-gather", 1, 65536), ("all-reduce", 16, 65536))
    assert plan.fits and plan.device_memory == 16 * 2**30
    text = str(plan)
    assert "for the device 'v5e'" in text and "The step fits into the 16.0 GiB of one v5e." in text
    assert "= 610 cycles, most in (update) 66%, hidden 26%, out 8%" in text
    assert "Collective operations: 1 all-gather (64.0 KiB), 16 all-reduce (64.0 KiB)" in text
    assert "Operations of unknown time in: " in text
    assert max(map(len, text.splitlines()[1:-8])) <= 100


@pytest.mark.exhaustive
def test_the_estimate_shows_time_by_call(as_v5e):
    estimate = fk.plan(*small("Model")).estimate
    assert sum(call.share for call in estimate.calls) == pytest.approx(1)
    assert {call.name: call.share for call in estimate.calls}["hidden"] == 160 / 610
    assert estimate.seconds == 610 / 1.5e9
    lines = str(estimate).splitlines()
    assert "by the compiler of a v5e" in lines[0]
    (hidden,) = [line for line in lines if line.startswith("hidden (Dense)")]
    assert re.search(r"0\.107 µs +26\.2% +160 ", hidden)
    svg = estimate.svg
    # the darkest box has the largest share of the calls; a frame has the sum of its boxes
    assert ">26.2%<" in svg and ">8.2%<" in svg and svg.count(">0.0%<") == 2
    opacities = [float(n) for n in re.findall(r'fill="#ef4444" fill-opacity="([\d.]+)"', svg)]
    assert sorted(opacities) == pytest.approx([0, 0.7 * 50 / 400, 0.7 * 160 / 400], abs=1e-3)
    html = estimate._repr_html_()
    assert "<svg" in html and "610" in html


@pytest.mark.exhaustive
def test_a_chip_without_a_documented_clock_shows_cycles_alone(as_v5e):
    as_v5e.setattr(planning, "device_of", lambda mesh: "v6e")
    plan = fk.plan(*small("Model"))
    assert plan.cycles == 610 and plan.seconds is None and plan.estimate.seconds is None
    assert "Expected time of the operations: 610 cycles" in str(plan)


def test_plans_without_cycles_have_no_estimate():
    with pytest.raises(ValueError, match="the backend 'cpu' does not state.*fk.profile"):
        fk.plan(*small("without")).estimate  # noqa: B018


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required "
        "for HLO temporaries (17.50G) exceeds available HBM (15.75G). HLO module: jit_train_logs.",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        "Used 17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G.",
    ],
)
def test_a_step_that_the_compiler_rejects(as_v5e, message):
    def rejecting(asked, donate):
        run, batch = compiling._placed(asked)
        needed = compiling._NEEDED.search(message)
        jaxpr = jax.make_jaxpr(lambda: 0)().jaxpr
        return compiling._rejected(jaxpr, asked, (run, batch), donate, needed)

    as_v5e.setattr(planning, "compiled", rejecting)
    for donate in (True, False):
        plan = fk.plan(*small("rejected"), donate=donate)
        assert plan.peak == 17.5 * 2**30
        assert plan.arguments >= plan.weights + plan.optimizer + 2 * 16 * 128 * 4
        assert plan.rejected and plan.fits is False and plan.cycles is None
        assert "The step does not fit into the 16.0 GiB of one v5e." in str(plan)
    with pytest.raises(ValueError, match="does not fit into the device"):
        plan.estimate  # noqa: B018


@pytest.mark.exhaustive
def test_larger_meshes_are_those_that_google_rents(as_v5e):
    meshes = list(fk.plan(*small("Model"))._larger_meshes())
    assert [count for count, _ in meshes] == [4, 8, 16, 32, 64, 128, 256]
    as_v5e.setattr(planning, "device_of", lambda mesh: "")
    planning._plan.cache_clear()
    meshes = list(fk.plan(*small("Model"))._larger_meshes())
    assert [count for count, _ in meshes] == [2, 4, 8, 16, 32, 64]


@pytest.mark.exhaustive
def test_depth_depends_on_the_devices_of_the_mesh(monkeypatch):
    blocks = [layers.Dense(8) for _ in range(40)]
    model = fk.Sequential([fk.Input((8,)), *blocks])
    model = jax.eval_shape(model.build, jax.random.key(0))

    class Device:
        platform = "tpu"

    class Mesh:
        devices = np.array([Device()])

    # on CPUs, a loop copies weights that serve one row
    monkeypatch.setattr("fkeras.transforms.depth._CACHED_WEIGHTS", 0)
    monkeypatch.setattr("fkeras.transforms.depth._LEAST_SAVED", 1)
    assert with_depth(model, "auto").graph.depth != "scan"
    assert with_depth(model, "auto", mesh=Mesh()).graph.depth == "scan"  # pyright: ignore[reportArgumentType]


@pytest.mark.exhaustive
@needs_libtpu
def test_the_compiler_of_tpus():
    model, batch, trainer = small("real")
    plan = fk.plan(model, batch, trainer, device="v5e")
    assert (plan.backend, plan.device, plan.devices) == ("tpu", "v5e", 1)
    assert plan.fits and plan.cycles and plan.cycles == sum(call.cycles for call in plan.calls)
    assert plan.peak >= plan.weights + plan.optimizer
    named = {call.name for call in plan.calls if call.cycles}
    assert {"inner/hidden", "hidden", "out"} <= named
    split = dataclasses.replace(trainer, sharding="fsdp")
    shared = fk.plan(model, batch, split, device="v5e", mesh={"data": 8})
    assert shared.devices == 8 and shared.weights == plan.weights / 8
    kinds = {kind for kind, _, _ in shared.collectives}
    assert "all-gather" in kinds or "all-reduce" in kinds
    with pytest.raises(ValueError, match="divisible by the 256 devices"):
        fk.plan(model, batch, trainer, device="v5e:16x16")
    with pytest.raises(ValueError, match="compiler rejects device='v5e:3x3'"):
        Slice("v5e", "3x3").devices()
    assert [each.size for each in slices("v5e")][-1] == 256


@pytest.mark.exhaustive
@needs_libtpu
def test_runs_on_described_devices_have_shapes():
    model, batch, _ = small("shapes")
    mesh = jax.make_mesh((8,), ("data",), devices=slice_of("v5e:2x4").devices())
    trainer = fk.Trainer("adam", "mse", mesh=mesh, sharding="fsdp")
    run = jax.eval_shape(lambda key: trainer.init(model, key), jax.random.key(0))
    assert run.model.layers["out"].kernel.shape == (128, 128)
    text = jax.jit(trainer.step).trace(run, batch).lower(lowering_platforms=("tpu",)).as_text()
    assert "num_partitions = 8" in text


@needs_libtpu
def test_a_step_that_does_not_fit():
    model = fk.Sequential([fk.Input((40000,)), layers.Dense(40000)])
    plan = fk.plan(model, (spec(8, 40000), spec(8, 40000)), fk.Trainer("adam", "mse"), device="v5e")
    assert plan.rejected and plan.fits is False
    assert plan.peak == pytest.approx(3 * 4 * 40000**2, rel=0.02)

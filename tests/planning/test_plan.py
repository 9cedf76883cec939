"""Plans of training steps: bytes and operations by call, accuracy, advice, and bad arguments."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.planning.budget import budget_bytes, largest_rows
from fkeras.transforms.remat import compiler_options

LOGITS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def dense():
    hidden = [layers.Dense(64, activation="relu") for _ in range(3)]
    model = fk.Sequential([fk.Input((32,)), *hidden, layers.Dense(10, name="scores")])
    return model, (spec(256, 32), spec(256, dtype="int32")), fk.Trainer("adam", LOGITS)


def images():
    x = fk.Input((16, 16, 3))
    h = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    h = layers.MaxPooling2D()(layers.Activation("relu")(layers.BatchNormalization()(h)))
    model = fk.Model(x, layers.Dense(5)(layers.GlobalAveragePooling2D()(h)))
    batch = (spec(32, 16, 16, 3), spec(32, dtype="int32"))
    return model, batch, fk.Trainer(fk.optimizers.SGD(0.1, momentum=0.9), LOGITS)


def attention():
    x = fk.Input((16,), dtype="int32")
    h = layers.Embedding(50, 32)(x)
    h = layers.Add()([h, layers.MultiHeadAttention(2, 16)(h, h, use_causal_mask=True)])
    model = fk.Model(x, layers.Dense(50)(layers.LayerNormalization()(h)))
    batch = (spec(16, 16, dtype="int32"), spec(16, 16, dtype="int32"))
    return model, batch, fk.Trainer("sgd", LOGITS)


def recurrent():
    model = fk.Sequential([fk.Input((12, 8)), layers.LSTM(16), layers.Dense(2)])
    return model, (spec(32, 12, 8), spec(32, 2)), fk.Trainer("rmsprop", "mse")


def shapes_of(model, trainer):
    key = jax.eval_shape(jax.random.key, spec(dtype="uint32"))
    return jax.eval_shape(lambda key: trainer.init(model, key), key)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [dense, images, attention, recurrent])
@pytest.mark.parametrize("donate", [False, True])
def test_memory_and_flops_are_those_of_xla(case, donate):
    model, batch, trainer = case()
    lowered = jax.jit(
        lambda run, batch: trainer.step(run, batch), donate_argnums=(0,) if donate else ()
    ).lower(shapes_of(model, trainer), batch)
    memory = lowered.compile().memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes
    peak += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    plan = fk.plan(model, batch, trainer, donate=donate)
    assert plan.peak == pytest.approx(peak, rel=0.001)
    assert plan.arguments == memory.argument_size_in_bytes
    if case is not recurrent:  # XLA counts one step of a loop
        assert plan.flops == pytest.approx(lowered.cost_analysis()["flops"], rel=0.05)


@pytest.mark.exhaustive
def test_a_built_model_an_unbuilt_model_and_a_run_have_the_same_plan():
    model, batch, trainer = dense()
    run = trainer.init(model, jax.random.key(0))
    arrays = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), batch)
    plan = fk.plan(model, batch, trainer)
    assert plan == fk.plan(run.model, arrays, trainer) == fk.plan(run, batch, trainer)
    assert fk.plan(shapes_of(model, trainer), batch, trainer) == plan
    wide = tuple(a.astype("float64" if a.dtype == "float32" else "int64") for a in arrays)
    assert fk.plan(model, wide, trainer) == plan


def test_bytes_of_each_call():
    model, batch, trainer = images()
    plan = fk.plan(model, batch, trainer)
    calls = {call.name: call for call in plan.calls}
    assert list(calls)[:2] == ["conv2d", "batch_normalization"]
    assert calls["conv2d"].weights == 4 * 3 * 3 * 3 * 8 == calls["conv2d"].optimizer
    norm = calls["batch_normalization"]
    assert norm.weights == norm.state == norm.optimizer == 4 * 2 * 8
    assert norm.layer == "BatchNormalization"
    for column in ("weights", "state", "optimizer", "activations", "flops"):
        total = sum(getattr(call, column) for call in plan.calls)
        assert total == pytest.approx(getattr(plan, column)), column
    # forward, the gradient of the kernel, no gradient of the images
    products = 2 * 32 * 8 * 3 * (16 * 3 - 2) ** 2
    assert calls["conv2d"].flops == pytest.approx(2 * products, rel=0.02)


@pytest.mark.exhaustive
def test_calls_of_nested_models_have_paths():
    x = fk.Input((8,))
    block = fk.Sequential([fk.Input((8,)), layers.Dense(8), layers.Dense(8)], name="block")
    model = fk.Model(x, layers.Dense(1)(block(x)))
    plan = fk.plan(model, (spec(4, 8), spec(4, 1)), fk.Trainer("sgd", "mse"))
    flops = {call.name: call.flops for call in plan.calls}
    assert list(flops)[:3] == ["block/dense", "block/dense_1", "block"]
    assert flops["block/dense_1"] > 3 * 2 * 4 * 8 * 8
    assert flops["block"] == 0


def repeated(depth, **options):
    x = fk.Input((16,), dtype="int32")
    h = layers.Embedding(50, 32)(x)
    for _ in range(4):
        h = layers.Add()([h, layers.MultiHeadAttention(2, 16)(h, h)])
        h = layers.Dense(32, activation="gelu")(layers.LayerNormalization()(h))
    batch = (spec(16, 16, dtype="int32"), spec(16, 16, dtype="int32"))
    model = fk.Model(x, layers.Dense(50)(h))
    return model, batch, fk.Trainer("adam", LOGITS, depth=depth, **options)


@pytest.mark.exhaustive
def test_a_plan_over_unknown_axes_is_that_of_the_sizes_in_the_batch():
    def unet(*sizes):
        x = fk.Input((*sizes, 3))
        h = layers.Conv2D(4, 3, padding="same", activation="relu", name="down")(x)
        u = layers.UpSampling2D(name="up")(layers.MaxPooling2D(name="pool")(h))
        joined = layers.Concatenate(name="join")([u, h])
        return fk.Model(x, layers.Conv2D(3, 3, padding="same", name="out")(joined))

    batch, trainer = (spec(2, 8, 12, 3), spec(2, 8, 12, 3)), fk.Trainer("adam", "mse")
    assert fk.plan(unet(None, None), batch, trainer) == fk.plan(unet(8, 12), batch, trainer)
    with pytest.raises(ValueError, match=r"'join'.*they differ on axis 2"):
        fk.plan(unet(None, None), (spec(2, 8, 11, 3),) * 2, trainer)


@pytest.mark.exhaustive
def test_calls_in_a_loop_have_equal_shares():
    unrolled, scanned = fk.plan(*repeated("unroll")), fk.plan(*repeated("scan"))
    assert unrolled.loops == ()
    ((first, *_, last),) = scanned.loops
    assert len(scanned.loops[0]) == 4
    assert first == ("multi_head_attention", "add", "layer_normalization", "dense")
    assert last[-1] == "dense_3"
    assert scanned.flops == pytest.approx(unrolled.flops, rel=0.01)
    counts = {call.name: call.flops for call in unrolled.calls}
    for call in scanned.calls:
        if call.name in counts and counts[call.name] > 1e5:
            assert call.flops == pytest.approx(counts[call.name], rel=0.05), call.name
    assert sum(call.activations for call in scanned.calls) == scanned.activations
    assert "One loop: 4 blocks of 4 calls, multi_head_attention … dense_3" in str(scanned)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"remat": "full"}])
def test_memory_of_a_loop_over_blocks_is_that_of_xla(options):
    model, batch, trainer = repeated("scan", **options)
    lowered = jax.jit(
        lambda run, batch: trainer.step(run, batch), compiler_options=compiler_options()
    ).lower(shapes_of(model, trainer), batch)
    memory = lowered.compile().memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    plan = fk.plan(model, batch, trainer, donate=False)
    assert plan.peak == pytest.approx(peak, rel=0.001)


@pytest.mark.exhaustive
def test_frozen_weights_have_no_gradients():
    model, batch, trainer = dense()
    run = trainer.init(model, jax.random.key(0))
    frozen = fk.plan(fk.freeze(run.model, "dense*"), batch, trainer)
    plan = fk.plan(model, batch, trainer)
    assert frozen.weights == plan.weights == plan.gradients
    assert frozen.gradients == 4 * (64 * 10 + 10)
    assert frozen.flops < plan.flops / 2


@pytest.mark.exhaustive
def test_rematerialization_trades_memory_for_operations():
    x = h = fk.Input((64,))
    for _ in range(9):
        h = layers.Dense(64, activation="tanh")(h)
    model, batch = fk.Model(x, h), (spec(2048, 64), spec(2048, 64))
    plain = fk.plan(model, batch, fk.Trainer("sgd", "mse"))
    full = fk.plan(model, batch, fk.Trainer("sgd", "mse", remat="full"))
    assert full.activations < 0.7 * plain.activations
    assert 1.1 * plain.flops < full.flops < 1.5 * plain.flops


@pytest.mark.exhaustive
def test_an_objective_and_losses_of_layers():
    def objective(model, state, batch, key, training):
        out = model.apply(batch["x"], state=state, training=training, key=key)
        return fk.Output((out.value**2).mean(), out.updates, metrics={"size": out.value.max()})

    model, _, _ = dense()
    plan = fk.plan(model, {"x": spec(16, 32)}, fk.Trainer("sgd", objective=objective))
    assert plan.rows == 16
    assert plan.flops > 3 * 2 * 16 * 64 * 64


@pytest.mark.exhaustive
def test_a_model_that_fits_into_no_memory_is_planned():
    x = h = fk.Input((65536,))
    for _ in range(4):
        h = layers.Dense(65536)(h)
    plan = fk.plan(fk.Model(x, h), (spec(8, 65536), spec(8, 65536)), fk.Trainer("adam", "mse"))
    assert plan.weights == 4 * 4 * (65536**2 + 65536)
    assert plan.peak > 3 * plan.weights


@pytest.mark.exhaustive
def test_the_table_has_a_row_for_each_call_and_at_most_100_columns():
    model, batch, trainer = attention()
    plan = fk.plan(model, batch, trainer)
    text = str(plan)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "multi_head_attention (MultiHeadAttention)" in text and "(update)" in text
    assert text.splitlines()[0] == "Plan of a training step on 16 rows, for the backend 'cpu'"
    assert "Peak memory: " in text
    page = plan._repr_html_()
    assert page.count("<tr>") == len(plan.calls) + 2 and "<b>Plan of a" in page
    remat = fk.plan(model, batch, dataclasses.replace(trainer, remat="full"))
    assert "remat='full'" in str(remat)


@pytest.mark.exhaustive
def test_a_plan_fits_into_a_budget():
    x = h = fk.Input((32,))
    for _ in range(6):
        h = layers.Dense(32, activation="tanh")(h)
    model, trainer = fk.Model(x, h), fk.Trainer("sgd", "mse")
    plan = fk.plan(model, (spec(64, 32), spec(64, 32)), trainer)
    advice = plan.fit_into(2 * plan.peak)
    assert advice.rows == 64 and advice.best.remat is None and advice.best.rows >= 64
    flops = [candidate.flops_per_row for candidate in advice.candidates]
    assert flops == sorted(flops) and len(flops) == 3
    for candidate in advice.candidates:
        assert candidate.plan.rows == candidate.rows
        assert candidate.plan.peak <= 2 * plan.peak
        batch = (spec(2 * candidate.rows, 32), spec(2 * candidate.rows, 32))
        larger = fk.plan(model, batch, dataclasses.replace(trainer, remat=candidate.remat))
        assert larger.peak > 2 * plan.peak
        assert larger.peak == fk.plan(model, batch, larger._request.trainer).peak
    assert "A batch of 64 fits with remat=None." in str(advice)
    assert "<table>" in advice._repr_html_()
    small = plan.fit_into(100)
    assert small.best is None and "Not even one row fits" in str(small)
    tight = plan.fit_into(int(0.6 * plan.peak))
    assert tight.best.remat is not None or tight.best.devices > 1
    assert tight.best.plan.peak <= 0.6 * plan.peak and tight.best.rows >= 64


@pytest.mark.exhaustive
def test_a_fixed_batch_size_is_kept():
    x = fk.Input((8,), batch_size=4)
    plan = fk.plan(
        fk.Model(x, layers.Dense(1)(x)), (spec(4, 8), spec(4, 1)), fk.Trainer("sgd", "mse")
    )
    assert {candidate.rows for candidate in plan.fit_into("1MB").candidates} == {4}
    assert {candidate.rows for candidate in plan.fit_into(10).candidates} == {0}
    assert {candidate.devices for candidate in plan.fit_into(10).candidates} == {1, 2, 4}


@pytest.mark.exhaustive
def test_more_devices_are_advised_if_nothing_fits_into_one():
    x = h = fk.Input((8,))
    for _ in range(2):
        h = layers.Dense(512)(h)
    plan = fk.plan(fk.Model(x, h), (spec(2, 8), spec(2, 512)), fk.Trainer("adam", "mse"))
    advice = plan.fit_into(int(0.7 * plan.peak))
    assert advice.best.devices > 1 and advice.best.sharding == "fsdp"
    assert advice.best.plan.weights < plan.weights
    assert f"on {advice.best.devices} devices" in str(advice)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("limit", [1, 99, 100, 101, 1000, 12345, 10**9])
@pytest.mark.parametrize("peak", [lambda rows: 10 * rows, lambda rows: 90 + rows + rows // 3])
def test_largest_rows(limit, peak):
    sizes = sorted({*(2**k for k in range(21)), *(3 * 2**k for k in range(20)), 50})
    expected = max((size for size in sizes if peak(size) <= limit), default=0)
    assert largest_rows(peak, 50, limit, True) == expected
    assert largest_rows(peak, 50, limit, False) == (50 if peak(50) <= limit else 0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        *(("16GB", 16 * 10**9), ("16 GiB", 16 * 2**30), ("1.5kb", 1500), ("100", 100)),
        *((2048, 2048), (1e3, 1000), (" 2 TB ", 2 * 10**12)),
    ],
)
def test_budgets(budget, expected):
    assert budget_bytes(budget) == expected


@pytest.mark.parametrize(
    ("budget", "error", "message"),
    [
        (None, TypeError, "a number of bytes or a text"),
        (True, TypeError, "a number of bytes"),
        ("16 Gigs", ValueError, "'16 Gigs'"),
        ("16 GBi", ValueError, "Did you mean 'GB'|Did you mean 'GIB'"),
        ("-1GB", ValueError, "'-1GB'"),
        ("", ValueError, "such as"),
        (0, ValueError, "positive"),
        (-5, ValueError, "positive"),
        (float("nan"), ValueError, "positive"),
        (float("inf"), ValueError, "positive"),
    ],
)
def test_bad_budgets(budget, error, message):
    with pytest.raises(error, match=message):
        budget_bytes(budget)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"trainer": None}, TypeError, "expected a Trainer as the third argument"),
        ({"trainer": "adam"}, TypeError, "fk.Trainer"),
        ({"model": lambda x: x}, TypeError, "expected a model or a run"),
        ({"model": fk.Sequential([layers.Dense(3)])}, fk.FKerasError, "unknown inputs"),
        ({"model": layers.Dense(3)}, fk.FKerasError, "unknown inputs"),
        ({"batch": None}, TypeError, "Trainer.step: expected a batch"),
        ({"batch": spec(4, 32)}, TypeError, "Trainer.step: expected a batch"),
        ({"batch": ("x", "y")}, TypeError, "expected arrays or shapes in the batch"),
        ({"batch": ((4, 32), (4,))}, TypeError, "jax.ShapeDtypeStruct"),
        ({"batch": (spec(0, 32), spec(0, dtype="int32"))}, ValueError, "at least one row"),
        ({"batch": (spec(), spec())}, ValueError, "no arrays"),
        ({"batch": (spec(4, 31), spec(4, dtype="int32"))}, Exception, "32"),
        ({"batch": (spec(4, 32), spec(4, dtype="int32"), 1, 2)}, TypeError, "batch"),
        ({"donate": 1}, TypeError, "True or False"),
    ],
)
def test_bad_arguments(change, error, message):
    model, batch, trainer = dense()
    arguments = {"model": model, "batch": batch, "trainer": trainer, **change}
    with pytest.raises(error, match=message):
        fk.plan(**arguments)


def test_open_sizes_are_rejected():
    class Open:
        shape, dtype = (None, 32), "float32"

    model, batch, trainer = dense()
    with pytest.raises(ValueError, match="known sizes"):
        fk.plan(model, (Open(), batch[1]), trainer)

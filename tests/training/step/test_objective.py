"""Objectives, and models with their own losses: four kinds of training, batches, errors, evaluation."""

import dataclasses
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import fkeras as fk
from fkeras import layers

RNG = np.random.default_rng(5)
X = RNG.normal(size=(10, 3)).astype("float32")
Y = (X[:, :1] * 2).astype("float32")
KEY = jax.random.key(0)


def network():
    return fk.Sequential(
        [
            fk.Input((3,)),
            layers.Dense(4, "relu"),
            layers.BatchNormalization(momentum=0.5),
            layers.Dropout(0.1),
            layers.Dense(1),
        ]
    )


def regress(model, state, batch, key, training):
    x, y, *_ = batch
    out = model.apply(x, state=state, training=training, key=key)
    error = out.value - y
    return fk.Output(
        (error**2).mean(), out.updates, out.losses, metrics={"mae": jnp.abs(error).mean()}
    )


TRAINER = fk.Trainer("adam", objective=regress)
RUN = TRAINER.init(network(), KEY)


def same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


def two_networks(one, two):
    """Two networks in one model: their layers are the networks, their weights go by both names."""
    first, second = (fk.Input(n.inputs.shape[1:]) for n in (one, two))
    return fk.Model([first, second], [one(first), two(second)])


@pytest.mark.exhaustive
def test_generator_and_critic_in_one_model():
    generator = fk.Sequential(
        [fk.Input((2,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)],
        name="generator",
    )
    critic = fk.Sequential([fk.Input((3,)), layers.Dense(1)], name="critic")

    def adversarial(model, state, batch, key, training):
        g, c = model.layers["generator"], model.layers["critic"]
        noise = jax.random.normal(key, (len(batch), 2))
        drawn = g.apply(noise, state=state["generator"], training=training)
        # each network moves by its own loss: the other one is a constant there
        fake = jax.lax.stop_gradient(drawn.value)
        gap = c(fake).mean() - c(batch).mean()
        fooled = -jax.lax.stop_gradient(c)(drawn.value).mean()
        return fk.Output(
            gap + fooled, {"generator": drawn.updates}, metrics={"gap": gap, "fooled": fooled}
        )

    optimizer = fk.optimizers.MultiOptimizer({"generator/*": "adam", "critic/*": "sgd"})
    trainer = fk.Trainer(optimizer, objective=adversarial)
    run = trainer.init(two_networks(generator, critic), KEY)
    new, history = trainer.fit(run, X, batch_size=5, epochs=2, verbose=0)
    assert list(history.history) == ["loss", "fooled", "gap"]
    np.testing.assert_allclose(
        history.history["loss"], np.add(*map(history.history.get, ("gap", "fooled"))), rtol=1e-5
    )
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), run.model, new.model)
    assert all(leaf for leaf in jax.tree.leaves(moved.layers["critic"].layers["dense"].kernel))
    assert moved.layers["generator"].layers["dense_1"].kernel
    assert (new.state["generator"]["batch_normalization"]["moving_mean"] != 0).any()
    # a frozen network stays bit-identical and the other one trains on
    frozen = run.replace(model=fk.freeze(run.model, "generator"))
    alone, _ = trainer.fit(frozen, X, verbose=0)
    same(alone.model.layers["generator"], frozen.model.layers["generator"])
    assert (
        alone.model.layers["critic"].layers["dense"].kernel
        != run.model.layers["critic"].layers["dense"].kernel
    ).any()


@pytest.mark.exhaustive
def test_distillation_of_a_frozen_teacher():
    x = fk.Input((3,))
    teacher = fk.freeze(fk.Sequential([layers.Dense(8, "relu"), layers.Dense(2)], name="teacher"))
    student = fk.Sequential([layers.Dense(2)], name="student")

    def distill(model, state, batch, key, training):
        learned, taught = model.apply(batch, state=state, training=training, key=key).value
        target = jax.nn.softmax(taught)
        loss = -(target * jax.nn.log_softmax(learned)).sum(-1).mean()
        agree = (learned.argmax(-1) == taught.argmax(-1)).mean()
        return fk.Output(loss, metrics={"agreement": agree})

    trainer = fk.Trainer(fk.optimizers.Adam(0.1, weight_decay=0.01), objective=distill)
    run = trainer.init(fk.Model(x, [student(x), teacher(x)]), KEY)
    new, history = trainer.fit(run, X, epochs=15, verbose=0, validation_data=X)
    same(new.model.layers["teacher"], run.model.layers["teacher"])
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert history.history["val_agreement"][-1] >= 0.8


@pytest.mark.exhaustive
def test_contrastive_learning_of_two_views():
    encoder = fk.Sequential([fk.Input((3,)), layers.Dropout(0.3), layers.Dense(4)])

    def contrast(model, state, batch, key, training):
        views = [model.apply(batch, training=True, key=k).value for k in jax.random.split(key)]
        a, b = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in views)
        scores = a @ b.T / 0.2
        right = jnp.arange(len(batch))
        loss = -jax.nn.log_softmax(scores)[right, right].mean()
        return fk.Output(
            loss, metrics={"rows": len(batch), "top": (scores.argmax(-1) == right).mean()}
        )

    trainer = fk.Trainer(fk.optimizers.Adam(0.05), objective=contrast)
    run = trainer.init(encoder, KEY)
    new, history = trainer.fit(run, X, batch_size=5, epochs=30, verbose=0)
    logs = history.history
    assert np.mean(logs["loss"][-5:]) < np.mean(logs["loss"][:5])
    assert logs["rows"] == [5.0] * 30
    # an evaluation draws the same numbers each time, for any number of batches a call
    assert trainer.evaluate(new, X, batch_size=4, verbose=0) == trainer.evaluate(
        new, X, batch_size=4, verbose=0
    )


@pytest.mark.exhaustive
def test_reinforcement_of_the_rewarded_action():
    policy = fk.Sequential([fk.Input((1,)), layers.Dense(2)])

    def reinforce(model, state, batch, key, training):
        scores = model(batch)
        actions = jax.random.categorical(key, scores)
        rewards = ((actions == 1) == (batch[:, 0] > 0)).astype("float32")
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(scores), actions[:, None], 1)[:, 0]
        advantage = jax.lax.stop_gradient(rewards - rewards.mean())
        return fk.Output(-(advantage * log_probs).mean(), metrics={"reward": rewards.mean()})

    trainer = fk.Trainer(fk.optimizers.Adam(0.1), objective=reinforce)
    run = trainer.init(policy, KEY)
    seen = X[:, :1]
    _, history = trainer.fit(run, lambda step: seen, steps_per_epoch=60, verbose=0, epochs=2)
    rewards = history.history["reward"]
    assert rewards[1] > max(rewards[0], 0.8)


@pytest.mark.exhaustive
def test_fit_of_arrays_streams_and_run_are_one_training():
    fitted = TRAINER.fit(RUN, X, Y, batch_size=4, shuffle=False, verbose=0)
    assert fitted.run is fitted[0] and fitted.history is fitted[1]
    batches = [(X[i : i + 4], Y[i : i + 4]) for i in (0, 4, 8)]
    stream = TRAINER.fit(RUN, iter(batches), verbose=0)
    step = RUN
    total = []
    for batch in batches:
        step, logs = TRAINER.step(step, batch)
        total.append(float(logs["mae"]))
    pure, logs = TRAINER.run(RUN, (X, Y), 1, 4, shuffle=False)
    for other in (stream.run, step, pure):
        same((other.model, other.state, other.step), (fitted.run.model, fitted.run.state, 3))
    # a log is the mean over batches, weighted by their rows: the last batch has two
    expected = np.average(total, weights=[4, 4, 2])
    for value in (
        fitted.history.history["mae"][0],
        stream.history.history["mae"][0],
        logs["mae"][0],
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.exhaustive
def test_scan_over_steps():
    run = TRAINER.init(RUN.model, KEY, batch=(X, Y))
    assert set(run.metrics) == {"loss", "mae"}
    end, logs = jax.lax.scan(lambda r, _: TRAINER.step(r, (X, Y)), run, None, length=2)
    one = TRAINER.step(RUN, (X, Y))[0]
    np.testing.assert_allclose(logs["mae"][1], TRAINER.step(one, (X, Y))[1]["mae"], rtol=1e-5)
    assert TRAINER.reset_metrics(end).metrics["mae"]["count"] == 0


@pytest.mark.exhaustive
def test_checkpoints_resume_bit_for_bit_with_metrics_of_half_an_epoch(tmp_path):
    class Break(fk.Callback):
        at: int = fk.option()

        def on_batch_end(self, step, run, logs):
            if step == self.at:
                raise RuntimeError("pulled the plug")

    call = functools.partial(TRAINER.fit, RUN, X, Y, batch_size=4, epochs=3, verbose=0)
    expected = call(validation_data=(X, Y))
    plan = fk.Checkpoint(tmp_path, every=2)
    with pytest.raises(RuntimeError, match="plug"):
        call(validation_data=(X, Y), checkpoint=plan, callbacks=[Break(5)], steps_per_execution=1)
    resumed = call(validation_data=(X, Y), checkpoint=plan)
    same(
        (resumed.run.model, resumed.run.opt_state, resumed.history.history),
        (expected.run.model, expected.run.opt_state, expected.history.history),
    )


@pytest.mark.exhaustive
def test_mesh_and_remat_keep_the_numbers():
    if jax.device_count() < 2:
        pytest.skip("needs two devices")
    one = TRAINER.fit(RUN, X, Y, batch_size=4, verbose=0)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    for changes in ({"mesh": mesh}, {"remat": "full"}):
        trainer = dataclasses.replace(TRAINER, **changes)
        run = trainer.init(network(), KEY)
        other = trainer.fit(run, X, Y, batch_size=4, verbose=0)
        for a, b in zip(
            jax.tree.leaves(one.run.model), jax.tree.leaves(other.run.model), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        logs = trainer.evaluate(other.run, X, Y, batch_size=8, verbose=0)
        np.testing.assert_allclose(
            logs["loss"], TRAINER.evaluate(one.run, X, Y, verbose=0)["loss"], rtol=1e-3
        )


@pytest.mark.exhaustive
def test_metrics_of_training_and_evaluation_may_differ():
    def objective(model, state, batch, key, training):
        out = regress(model, state, batch, key, training)
        return dataclasses.replace(out, metrics={"fit" if training else "held": out.value})

    trainer = fk.Trainer("adam", objective=objective)
    stop = fk.callbacks.EarlyStopping("val_held", mode="min")
    new, history = trainer.fit(
        RUN, X, Y, verbose=0, validation_data=(X[:3], Y[:3]), callbacks=[stop]
    )
    assert list(history.history) == ["loss", "fit", "val_loss", "val_held"]
    assert set(trainer.evaluate(new, X, Y, verbose=0)) == {"loss", "held"}
    with pytest.raises(ValueError, match="val_fit"):
        _ = trainer.fit(
            RUN, X, Y, verbose=0, callbacks=[fk.callbacks.EarlyStopping("val_fit", mode="min")]
        )


@pytest.mark.exhaustive
def test_a_batch_has_the_structure_of_the_data():
    seen = []

    def objective(model, state, batch, key, training):
        seen.append(jax.tree.map(lambda a: a.shape, batch))
        x = jax.tree.leaves(batch)[0]
        out = model.apply(x, state=state, key=key, training=training)
        return fk.Output(out.value.mean(), out.updates)

    trainer = fk.Trainer("adam", objective=objective)

    def batch_of(*data, **options):
        seen.clear()
        _ = trainer.fit(RUN, *data, verbose=0, batch_size=5, **options)
        return seen[0]

    one = (5, 3)
    assert batch_of(X) == one
    assert batch_of(X, Y) == (one, (5, 1))
    assert batch_of(X, Y, sample_weight=Y[:, 0]) == (one, (5, 1), (5,))
    assert batch_of({"image": X, "more": [Y]}) == {"image": one, "more": [(5, 1)]}
    assert batch_of({"image": X[:5]} for _ in range(2)) == {"image": one}
    assert batch_of(X, validation_split=0.5)[-2:] == one
    assert batch_of(lambda step: {"image": X[:5]}, steps_per_epoch=2) == {"image": one}
    assert batch_of(X, validation_data={"image": X}) == one
    assert seen[-1] == {"image": one}


@pytest.mark.exhaustive
def test_frozen_weights_nonfinite_steps_and_find_nan():
    def objective(model, state, batch, key, training):
        out = model.apply(batch, state=state, key=key, training=training)
        return fk.Output(jnp.log(out.value).mean(), out.updates)

    trainer = fk.Trainer("adam", objective=objective)
    with pytest.raises(fk.training.NonFiniteError) as error:
        _ = trainer.fit(RUN, X, verbose=0)
    finding = fk.find_nan(error.value.run, error.value.batch, trainer)
    assert (
        finding.phase == "loss" and "'objective'" in finding.where and "logarithm" in str(finding)
    )
    assert fk.find_nan(RUN, (X, Y), TRAINER) is None
    finding = fk.find_nan(RUN, (X * np.nan, Y), TRAINER)
    assert finding.phase == "batch"
    skip = dataclasses.replace(trainer, on_nonfinite="skip")
    with pytest.warns(UserWarning, match="were skipped"):
        new, _ = skip.fit(RUN, X, verbose=0)
    same(new.model, RUN.model)


def test_find_nan_names_the_layer_that_an_objective_calls():
    def root(model, state, batch, key, training):
        return fk.Output(jnp.sqrt(jnp.float32(0) * model(batch)).sum())

    trainer = fk.Trainer("adam", objective=root)
    bad = fk.Sequential([fk.Input((3,)), layers.Lambda(jnp.log, name="log"), layers.Dense(1)])
    finding = fk.find_nan(trainer.init(bad, KEY), X, trainer)
    assert (finding.phase, finding.path) == ("forward", "log")
    run = trainer.init(fk.Sequential([fk.Input((3,)), layers.Dense(1)]), KEY)
    finding = fk.find_nan(run, X, trainer)
    assert (finding.phase, finding.path) == ("backward", "dense/bias")


def answer(**changes):
    def objective(model, state, batch, key, training):
        return dataclasses.replace(regress(model, state, batch, key, training), **changes)

    return objective


def constant(model, state, batch, key, training):
    return regress(RUN.model, state, batch, key, training)


ANSWERS = [
    (lambda *a: regress(*a).value, TypeError, "received an array"),
    (lambda *a: None, TypeError, "is the return statement missing"),
    (lambda *a: (1, 2), TypeError, "a tuple of 2 values"),
    (lambda model, state, batch, key: None, TypeError, "five arguments by position"),
    (lambda a, b, c, d, e, f: None, TypeError, "missing 1 required"),
    (functools.partial(regress, 1), TypeError, "five arguments"),
    (lambda *a: len(3), TypeError, "^object of type 'int' has no len"),
    (answer(value=jnp.ones(3)), TypeError, r"received an array of shape \(3,\)"),
    (answer(value=jnp.int32(3)), TypeError, "received int32"),
    (answer(value=1.0), TypeError, "received float. A Python number"),
    (answer(losses=(jnp.ones(2),)), TypeError, r"losses\[0\]"),
    (answer(updates={"batch_norm": {}}), ValueError, "Did you mean 'batch_normalization'"),
    (answer(updates={"batch_normalization": {"mean": 1.0}}), ValueError, "like the state"),
    (answer(updates=[1]), TypeError, "updates as a dictionary"),
    (answer(updates=None), ValueError, "the call of 'batch_normalization' changes the state, but"),
    (answer(metrics={"loss": jnp.float32(0)}), ValueError, "cannot be named 'loss'"),
    (answer(metrics={"val_a": jnp.float32(0)}), ValueError, "'val_'"),
    (answer(metrics={"a": jnp.ones(2)}), TypeError, "metric 'a' as a scalar"),
    (answer(metrics={"a": "b"}), TypeError, "received 'b'"),
    (answer(metrics=[1.0]), TypeError, "metrics as a dictionary"),
    (constant, ValueError, "does not depend on any trainable weight"),
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("objective", "kind", "message"), ANSWERS, ids=[a[2][:30] for a in ANSWERS]
)
def test_an_invalid_output_is_reported_before_the_first_step(objective, kind, message):
    trainer = fk.Trainer("adam", objective=objective)
    with pytest.raises(kind, match=message):
        _ = trainer.fit(RUN, X, Y, verbose=0)


class Pair(fk.Layer):
    """Two models; their state has an entry for each of them."""

    one: fk.Layer
    two: fk.Layer

    def init_state(self):
        return {"one": self.one.init_state(), "two": self.two.init_state()}


def error_of(model, state, x, training, key):
    out = model.apply(x, state=state, training=training, key=key)
    return jnp.mean(out.value**2), out.updates


def dropping(model, state, batch, key, training):
    return fk.Output(error_of(model, state, batch, training, key)[0])


def keeping(model, state, batch, key, training):
    return fk.Output(error_of(model, state, batch, training, key)[0], updates={})


def inferring(model, state, batch, key, training):
    return fk.Output(error_of(model, state, batch, False, key)[0])


def comparing(model, state, batch, key, training):
    """Computes with the model as a tree, which no other structure fits."""
    loss, _ = error_of(model, state, batch, training, key)
    distances = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), model, RUN.model)
    return fk.Output(loss + sum(jax.tree.leaves(distances)))


def pair(updates):
    def objective(model, state, batch, key, training):
        one, ones = error_of(model.one, state["one"], batch, training, key)
        two, _ = error_of(model.two, state["two"], batch, training, key)
        return fk.Output(one + two, ones and {"one": ones}) if updates else fk.Output(one + two)

    return objective


def twice(model, state, batch, key, training):
    """One network in one call, through a name that the model has for the network."""
    return dropping(model.layers["inner"], state["inner"], batch, key, training)


def nested(network):
    x = fk.Input((3,))
    return fk.Model(x, network.replace(name="inner")(x))


def deep():
    x = h = fk.Input((3,))
    for _ in range(4):
        h = layers.BatchNormalization()(layers.Dense(3)(h))
    return fk.Model(x, h)


CALLED = {
    "fit": lambda trainer, run: trainer.fit(run, X, verbose=0),
    "run": lambda trainer, run: trainer.run(run, X, 1),
    "step": lambda trainer, run: trainer.step(run, X),
    "evaluate": lambda trainer, run: trainer.evaluate(run, X, verbose=0),
    "scan": lambda trainer, run: dataclasses.replace(trainer, depth="scan").step(run, X),
    "remat": lambda trainer, run: dataclasses.replace(trainer, remat="full").step(run, X),
}
PAIR = Pair(RUN.model, RUN.model)
STATEFUL = fk.Sequential([fk.Input((3, 1), batch_size=5), layers.SimpleRNN(2, stateful=True)])
LOST = {
    **{name: (network, dropping, name) for name in CALLED if name != "evaluate"},
    "deep scan": (deep, dropping, "scan"),
    "frozen elsewhere": (lambda: fk.freeze(RUN.model, "dense"), dropping, "step"),
    "a compiled objective": (network, jax.jit(dropping, static_argnums=4), "step"),
    "a rematerialized objective": (network, jax.checkpoint(dropping, static_argnums=4), "step"),
    "two models": (lambda: PAIR, pair(False), "step"),
    "inside": (lambda: nested(network()), twice, "step"),
    "calls that cannot be observed": (network, comparing, "step"),
}
FROZEN = fk.freeze(RUN.model, "batch*")
KEPT = {
    **{f"{{}} in {name}": (network, keeping, name) for name in CALLED},
    "evaluation": (network, dropping, "evaluate"),
    "inference": (network, inferring, "fit"),
    "frozen": (lambda: FROZEN, dropping, "fit"),
    "frozen scan": (lambda: fk.freeze(deep().build(KEY), "batch*"), dropping, "scan"),
    "no state": (lambda: fk.Sequential([fk.Input((3,)), layers.Dense(1)]), dropping, "fit"),
    "updates of one of two models": (lambda: PAIR, pair(True), "step"),
    "two frozen models": (lambda: Pair(FROZEN, FROZEN), pair(False), "step"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("model", "objective", "call"), LOST.values(), ids=LOST)
def test_updates_that_an_objective_drops_are_reported(model, objective, call):
    trainer = fk.Trainer("adam", objective=objective)
    run = trainer.init(model(), KEY)
    with pytest.raises(ValueError, match=r"state.*but the fk.Output has no updates.*updates={}"):
        CALLED[call](trainer, run)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("model", "objective", "call"), KEPT.values(), ids=KEPT)
def test_objectives_without_updates_keep_the_state(model, objective, call):
    trainer = fk.Trainer("adam", objective=objective)
    run = trainer.init(model(), KEY)
    result = CALLED[call](trainer, run)
    if isinstance(result, tuple) and "one" not in run.state:
        same(result[0].state, run.state)


def test_the_carry_that_an_evaluation_drops_is_reported():
    trainer = fk.Trainer("adam", objective=dropping)
    run = trainer.init(STATEFUL, KEY)
    with pytest.raises(ValueError, match="the call of 'simple_rnn' changes the state"):
        trainer.evaluate(run, np.ones((5, 3, 1), "float32"), verbose=0)


@pytest.mark.exhaustive
def test_populations_report_dropped_updates():
    population = fk.populate(fk.Trainer("adam", objective=dropping), {"learning_rate": [0.1, 0.2]})
    with pytest.raises(ValueError, match="the call of 'batch_normalization' changes the state"):
        _ = population.fit(population.init(network(), KEY), X, verbose=0)


def test_changed_dtypes_of_the_state_are_shown():
    half = jax.tree.map(lambda a: a.astype("bfloat16"), RUN.state)
    with pytest.raises(ValueError, match=r"float32\[4\].*received.*bfloat16\[4\]"):
        fk.Trainer("adam", objective=answer(updates=half)).step(RUN, (X, Y))


BAD_CALLS = [
    (lambda: fk.Trainer("adam", "mse", objective=regress), "either objective= or loss="),
    (lambda: fk.Trainer("adam", metrics=["mae"], objective=regress), "Output.metrics"),
    (lambda: fk.Trainer("adam", loss_weights=[1.0], objective=regress), "inside the objective"),
    (lambda: fk.Trainer("adam", objective="mse"), "expected a function, received 'mse'"),
    (lambda: fk.Trainer("adam", objective=dict), "the class dict"),
    (
        lambda: TRAINER.fit(RUN, X, Y, class_weight={0: 1.0}),
        "class_weight needs a trainer with a loss",
    ),
    (lambda: TRAINER.fit(RUN, {"x": X, "y": Y[:2]}), "number of rows"),
    (lambda: TRAINER.fit(RUN, None), "expected at least one row"),
    (lambda: TRAINER.fit(RUN, iter([])), "received an empty source"),
    (
        lambda: fk.save_model("x.keras", RUN.model, RUN.state, trainer=TRAINER, run=RUN),
        "custom function, and files hold no code",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS, ids=[m[:24] for _, m in BAD_CALLS])
def test_wrong_use_of_an_objective(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.exhaustive
def test_exported_step_and_pickled_run(tmp_path):
    fk.export_step(TRAINER, RUN, (X, Y), tmp_path / "step.jax")
    step = jax.export.deserialize((tmp_path / "step.jax").read_bytes())
    arrays, logs = step.call(dict(np.load(f"{tmp_path}/step.jax.npz")), X[:4], Y[:4])
    arrays, logs = step.call(arrays, X[:4], Y[:4])
    assert sorted(logs) == ["loss", "mae"]
    copy = pickle.loads(pickle.dumps((TRAINER, RUN)))
    same(copy[0].step(copy[1], (X, Y))[1], TRAINER.step(RUN, (X, Y))[1])


class Reconstruct(fk.Layer):
    """Returns the error of a reconstruction as a loss, and another number as a metric."""

    def forward(self, context, x, decoded):
        error = (x - decoded) ** 2
        return fk.Output(
            decoded, losses=(error.mean(),), metrics={"largest": jnp.sqrt(error.max())}
        )


def autoencoder():
    x = fk.Input((3,))
    return fk.Model(x, Reconstruct()(x, layers.Dense(3)(layers.Dense(2)(x))))


OWN = fk.Trainer("adam")
OWN_RUN = OWN.init(autoencoder(), KEY)


@pytest.mark.exhaustive
def test_a_model_with_its_own_loss_trains_without_targets():
    new, history = OWN.fit(OWN_RUN, X, batch_size=4, epochs=3, verbose=0, validation_split=0.2)
    assert list(history.history) == ["loss", "largest", "val_loss", "val_largest"]
    assert history.history["loss"][2] < history.history["loss"][0]
    assert set(OWN.evaluate(new, X, verbose=0)) == {"loss", "largest"}
    one, two = (OWN.step(OWN_RUN, batch)[1] for batch in (X, (X, None)))
    same(one, two)
    error = np.mean((np.asarray(OWN_RUN.model(X)) - X) ** 2)
    np.testing.assert_allclose(one["loss"], error, rtol=1e-5)
    # the rows that are left make a batch of their own, as a loss of a layer knows no invalid rows
    parts = [OWN.evaluate(OWN_RUN, part, verbose=0)["loss"] for part in (X[:8], X[8:])]
    expected = OWN.evaluate(OWN_RUN, X, batch_size=8, verbose=0)["loss"]
    np.testing.assert_allclose(expected, np.average(parts, weights=[8, 2]), rtol=1e-5)
    assert OWN.predict(new, X).shape == (10, 3)
    assert fk.find_nan(OWN_RUN, X, OWN) is None


@pytest.mark.exhaustive
def test_sources_without_targets():
    plain = OWN.fit(OWN_RUN, X, batch_size=5, shuffle=False, verbose=0)
    for source in (
        [(X[:5],), (X[5:],)],
        iter([X[:5], X[5:]]),
        iter([(X[:5], None), (X[5:], None)]),
    ):
        other = OWN.fit(OWN_RUN, source, verbose=0, validation_data=X[:3])
        same(other.run.model, plain.run.model)
    pure, _ = OWN.run(OWN_RUN, X, 1, 5, shuffle=False)
    same(pure.model, plain.run.model)


@pytest.mark.exhaustive
def test_targets_serve_metrics_and_files_keep_the_training(tmp_path):
    trainer = fk.Trainer("adam", metrics=["mae"])
    logs = trainer.evaluate(OWN_RUN, X, X, verbose=0)
    np.testing.assert_allclose(logs["mae"], np.abs(OWN_RUN.model(X) - X).mean(), rtol=1e-5)
    path = tmp_path / "own.keras"
    fk.save_model(path, OWN_RUN.model, OWN_RUN.state, trainer=OWN, run=OWN_RUN)
    loaded, run = fk.load_training(path, custom_objects={"Reconstruct": Reconstruct})
    same(
        loaded.fit(run, X, shuffle=False, verbose=0)[0].model,
        OWN.fit(OWN_RUN, X, shuffle=False, verbose=0)[0].model,
    )


def plain(**options):
    x = fk.Input((3,))
    return fk.Model(x, layers.Dense(1, **options)(x))


OWN_BAD = [
    (lambda: fk.Trainer("adam").init(plain(), KEY), "Model records no loss"),
    (lambda: fk.Trainer("adam").init(plain(kernel_regularizer="l2"), KEY), "regularizers alone"),
    (lambda: OWN.fit(OWN_RUN, X, class_weight={0: 1.0}), "class_weight"),
    (lambda: OWN.fit(OWN_RUN, X, sample_weight=Y[:, 0]), "sample_weight: expected a trainer with"),
    (lambda: fk.Trainer("adam", metrics=["mae"]).fit(OWN_RUN, X), "a trainer with metrics"),
    (lambda: fk.Trainer("adam", "mse").fit(OWN_RUN, X), "received no targets"),
    (lambda: fk.Trainer("adam", "mse").fit(OWN_RUN, [(X,)]), r"expected \(x, y\)"),
    (lambda: fk.Trainer("adam", "mse").step(OWN_RUN, (X, None)), "missing targets"),
    (lambda: OWN.step(OWN_RUN, (X, Y, Y, Y)), "received 4"),
    (lambda: OWN.fit(OWN_RUN, X, validation_data=(X, X, X, X)), "received 4"),
]


@pytest.mark.parametrize(("call", "message"), OWN_BAD, ids=[m[:24] for _, m in OWN_BAD])
def test_wrong_use_of_models_with_their_own_losses(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
